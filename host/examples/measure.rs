//! The figures of docs/PERFORMANCE.md: `measure [--quick] [--sweep] [--k=K]` on a machine with a GPU prints one JSON object a line.
//!
//! Every case rotates through buffers larger than the L2 cache, on random data; a figure is the median of
//! repetitions, each the mean of many launches between two events.

use half::{bf16, f16};
use std::time::Instant;
use warpwright::ops::masked_softmax::{self, Choice, masked_softmax_into_by};
use warpwright::ops::{Mask, MaskedSoftmax};
use warpwright::{DType, Device, Graph, Grid, Result, Tensor};

/// Bytes that the rotation covers, well over any L2.
const ROTATE: usize = 2 << 30;
/// Bytes of one x.
const CASE: usize = 256 << 20;

fn random(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 24) as f32 * 8.0 - 4.0
        })
        .collect()
}

fn tensor(device: &Device, dtype: DType, shape: &[usize], seed: u32) -> Result<Tensor> {
    let values = random(shape.iter().product(), seed);
    match dtype {
        DType::F16 => {
            Tensor::from_slice(device, shape, &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>())
        }
        DType::BF16 => {
            Tensor::from_slice(device, shape, &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>())
        }
        _ => Tensor::from_slice(device, shape, &values),
    }
}

/// Median and spread, in microseconds a call, of `run(i)` called with a growing i: replays of a graph, as
/// PyTorch's side is measured, so that neither side's launch calls count.
fn time(device: &Device, sets: usize, run: impl Fn(usize) -> Result<()>) -> Result<(f64, f64)> {
    let calls = (2 * sets).max(8);
    (0..sets).try_for_each(&run)?; // loads the kernel
    device.synchronize()?;
    let (graph, ()) = Graph::capture(device, |_| (0..calls).try_for_each(|call| run(call % sets)))?;
    graph.launch()?;
    let stream = device.stream().expect("a GPU");
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = stream.record()?;
        graph.launch()?;
        let end = stream.record()?;
        end.synchronize()?;
        times.push(f64::from(end.elapsed_ms_since(&start)?) * 1e3 / calls as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() - 1] / times[0] - 1.0))
}

fn copy_rate(device: &Device) -> Result<f64> {
    let bytes: usize = 512 << 20;
    let x: Vec<Tensor> =
        (0..2).map(|i| tensor(device, DType::F32, &[bytes / 4], i + 1)).collect::<Result<_>>()?;
    let y: Vec<Tensor> =
        (0..2).map(|_| Tensor::uninit(device, DType::F32, &[bytes / 4])).collect::<Result<_>>()?;
    let kernel = &kernels_gpu::probe::copy::ALL[0];
    let packs = (bytes / 16) as u64;
    let (us, _) = time(device, 2, |i| {
        let raw = |t: &Tensor| t.raw_view();
        // SAFETY: 32-bit views of as many bytes as the kernel copies.
        unsafe {
            let args =
                (cuda_std::Global::from_raw(raw(&x[i])?), cuda_std::GlobalMut::from_raw(raw(&y[i])?), packs);
            device.launch(kernel, Grid::covering(packs, 1024)?, args)
        }
    })?;
    Ok(2.0 * bytes as f64 / us / 1e3)
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    None,
    Keep,
    Lengths,
    Bias,
}

/// Times the planned kernel, or with `sweep` every candidate that is not far too large.
fn softmax(
    device: &Device,
    copy: f64,
    dtype: DType,
    shape: [usize; 4],
    form: Form,
    sweep: bool,
) -> Result<()> {
    let [b, h, q, k] = shape;
    let bytes = b * h * q * k * dtype.size();
    let sets = (ROTATE / (2 * bytes)).clamp(2, 64);
    let x: Vec<Tensor> =
        (0..sets).map(|i| tensor(device, dtype, &shape, i as u32 + 1)).collect::<Result<_>>()?;
    let y: Vec<Tensor> = (0..sets).map(|_| Tensor::uninit(device, dtype, &shape)).collect::<Result<_>>()?;
    let bits = random(b * q * k, 77);
    let keep: Vec<u8> = bits.iter().map(|&v| u8::from(v > -2.4)).collect();
    let keep = Tensor::from_slice(device, &[b, 1, q, k], &keep)?;
    let bias = tensor(device, dtype, &[b, 1, q, k], 5)?;
    let lengths: Vec<i32> = random(b * h * q, 99)
        .iter()
        .map(|v| ((v + 4.0) / 8.0 * (k + 1) as f32) as i32)
        .map(|l| l.clamp(0, k as i32))
        .collect();
    let read: usize = lengths.iter().map(|&l| l as usize * dtype.size()).sum();
    let lengths = Tensor::from_slice(device, &[b, h, q], &lengths)?;
    let (name, mask, floor) = match form {
        Form::None => ("none", Mask::None, 2 * bytes),
        Form::Keep => ("keep", Mask::Keep(&keep), 2 * bytes + b * q * k),
        Form::Bias => ("bias", Mask::Bias(&bias), 2 * bytes + b * q * k * dtype.size()),
        Form::Lengths => {
            ("lengths", Mask::Range { lengths: Some(&lengths), starts: None }, read + bytes + 4 * b * h * q)
        }
    };
    let parameters = MaskedSoftmax { scale: 0.125, mask, causal: None };
    let plans = masked_softmax::candidates(&x[0], &parameters)?;
    for plan in plans.iter().filter(|plan| plan.choice != Choice::Strided).take(if sweep { 6 } else { 1 }) {
        let choice = plan.choice;
        let (us, spread) = time(device, sets, |i| masked_softmax_into_by(choice, &x[i], &parameters, &y[i]))?;
        let rate = floor as f64 / us / 1e3;
        println!(
            "{{\"op\":\"masked_softmax\",\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"mask\":\"{name}\",\"us\":{us:.2},\"spread\":{spread:.3},\"gbps\":{rate:.1},\"share\":{:.4},\"plan\":\"{choice:?}\"}}",
            rate / copy
        );
    }
    Ok(())
}

/// A shape of about `CASE` bytes with 16 heads.
fn shape_for(k: usize, dtype: DType) -> [usize; 4] {
    let rows = (CASE / (k * dtype.size())).max(16);
    let q = (rows / 16).clamp(1, 512);
    [(rows / 16 / q).max(1), 16, q, k]
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let sweep = std::env::args().any(|arg| arg == "--sweep");
    let only: Option<usize> = std::env::args().find_map(|arg| arg.strip_prefix("--k=")?.parse().ok());
    let begun = Instant::now();
    let device = Device::cuda(0)?;
    let opened = begun.elapsed();
    let small = Tensor::from_slice(&device, &[4, 128], &random(512, 3))?;
    let first = warpwright::ops::masked_softmax(&small, &MaskedSoftmax::default())?.to_vec::<f32>()?;
    println!(
        "{{\"cold_start\":{{\"open_ms\":{:.1},\"first_result_ms\":{:.1},\"row_sum\":{:.6},\"loads\":{:?}}}}}",
        opened.as_secs_f64() * 1e3,
        begun.elapsed().as_secs_f64() * 1e3,
        first.iter().take(128).sum::<f32>(),
        format!("{:?}", device.module_loads())
    );
    let copy = copy_rate(&device)?;
    println!("{{\"copy_gbps\":{copy:.1},\"device\":\"{}\"}}", device.name());
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        if dtype == DType::F16 && quick {
            continue;
        }
        for k in [
            128,
            256,
            384,
            512,
            1024,
            2048,
            4096,
            8192,
            16384,
            32768,
            65536,
            131072,
            262144,
            1 << 20,
            127,
            385,
            1000,
            4095,
            50257,
        ] {
            if only.is_some_and(|only| only != k) {
                continue;
            }
            let shape = shape_for(k, dtype);
            softmax(&device, copy, dtype, shape, Form::None, sweep)?;
            softmax(&device, copy, dtype, shape, Form::Keep, sweep)?;
            if !quick && [128, 1024, 4096].contains(&k) {
                softmax(&device, copy, dtype, shape, Form::Lengths, false)?;
                softmax(&device, copy, dtype, shape, Form::Bias, false)?;
            }
        }
        for shape in [[8, 16, 384, 384], [64, 16, 512, 512]].into_iter().filter(|_| only.is_none()) {
            softmax(&device, copy, dtype, shape, Form::None, sweep)?;
            softmax(&device, copy, dtype, shape, Form::Keep, sweep)?;
            softmax(&device, copy, dtype, shape, Form::Lengths, false)?;
        }
    }
    println!("{{\"copy_gbps_again\":{:.1}}}", copy_rate(&device)?);
    Ok(())
}
