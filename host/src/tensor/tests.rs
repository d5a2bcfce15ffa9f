use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::shape::test_support::offsets;
use crate::{DType, Device, Error};

fn iota(shape: &[usize]) -> Tensor {
    let data: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    Tensor::from_slice(&Device::cpu(), shape, &data).unwrap()
}

#[test]
fn elements_come_back_in_every_dtype() {
    fn check<T: crate::Element + PartialEq + std::fmt::Debug>(data: [T; 3], wide: [f64; 3]) {
        let tensor = Tensor::from_slice(&Device::cpu(), &[3], &data).unwrap();
        assert_eq!(tensor.dtype(), T::DTYPE);
        assert_eq!(tensor.to_vec::<T>().unwrap(), data);
        assert_eq!(tensor.to_f64().unwrap(), wide);
        let again = Tensor::from_bytes(&Device::cpu(), T::DTYPE, &[3], &tensor.to_bytes().unwrap()).unwrap();
        assert_eq!(again.to_vec::<T>().unwrap(), data);
    }
    check([1.5f32, -0.25, f32::INFINITY], [1.5, -0.25, f64::INFINITY]);
    check([1.5f64, -0.1, 1e300], [1.5, -0.1, 1e300]);
    check([f16::from_f32(1.5), f16::from_f32(-2.0), f16::MAX], [1.5, -2.0, 65504.0]);
    check([bf16::from_f32(1.5), bf16::from_f32(-2.0), bf16::ONE], [1.5, -2.0, 1.0]);
    check([true, false, true], [1.0, 0.0, 1.0]);
    check([0u8, 1, 255], [0.0, 1.0, 255.0]);
    check([-128i8, 1, 127], [-128.0, 1.0, 127.0]);
    check([i16::MIN, 1, i16::MAX], [-32768.0, 1.0, 32767.0]);
    check([i32::MIN, 1, i32::MAX], [-2147483648.0, 1.0, 2147483647.0]);
    check([0u32, 1, u32::MAX], [0.0, 1.0, 4294967295.0]);
    check([i64::MIN, 1, -3], [i64::MIN as f64, 1.0, -3.0]);
    check([0u64, 1, 1 << 60], [0.0, 1.0, (1u64 << 60) as f64]);
}

#[test]
fn any_byte_but_zero_is_true() {
    let tensor = Tensor::from_bytes(&Device::cpu(), DType::Bool, &[3], &[0, 1, 7]).unwrap();
    assert_eq!(tensor.to_vec::<bool>().unwrap(), [false, true, true]);
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [0, 1, 1]);
    // A kernel may leave other bytes there.
    let poisoned = Tensor::uninit(&Device::cpu(), DType::Bool, &[2]).unwrap();
    assert_eq!(poisoned.to_bytes().unwrap(), [1, 1]);
    assert!(tensor.view::<u8>().is_ok() && tensor.view_mut::<bool>().is_ok());
}

#[test]
fn zeros_are_zeros_and_unwritten_memory_is_poisoned() {
    let cpu = Device::cpu();
    let zeros = Tensor::zeros(&cpu, DType::F32, &[70, 100]).unwrap();
    assert!(zeros.to_f64().unwrap().iter().all(|&x| x == 0.0));
    assert!(Tensor::uninit(&cpu, DType::BF16, &[2]).unwrap().to_f64().unwrap()[1].is_nan());
}

#[test]
fn no_elements_and_no_dimensions_are_fine() {
    let empty = Tensor::from_slice::<f32>(&Device::cpu(), &[3, 0], &[]).unwrap();
    assert!(empty.is_empty() && empty.is_contiguous() && empty.byte_range().is_empty());
    assert_eq!(empty.transpose(0, 1).unwrap().to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(empty.view::<f32>().unwrap().address(), empty.address());
    let scalar = Tensor::from_slice(&Device::cpu(), &[], &[5i64]).unwrap();
    assert_eq!((scalar.len(), scalar.to_vec::<i64>().unwrap()), (1, vec![5]));
    assert_eq!(scalar.expand(&[2, 2]).unwrap().to_vec::<i64>().unwrap(), [5; 4]);
    assert_eq!(scalar.permute(&[]).unwrap().rank(), 0);
}

#[test]
fn mistakes_are_named() {
    let x = iota(&[2, 3]);
    let text = |result: crate::Result<Tensor>| result.unwrap_err().to_string();
    assert_eq!(
        text(Tensor::from_slice(&Device::cpu(), &[2, 3], &[0f32; 5])),
        "Tensor::from_slice: `data` must have shape [6], the elements of [2, 3], got [5]"
    );
    assert_eq!(
        x.to_vec::<f32>().unwrap_err().to_string(),
        "Tensor::to_vec: `tensor` must have dtype f32, got i32"
    );
    assert_eq!(
        x.view::<u32>().map(|_| ()).unwrap_err().to_string(),
        "Tensor::view: `tensor` must have dtype u32, got i32"
    );
    assert_eq!(
        text(x.permute(&[0, 0])),
        "Tensor::permute: `dims` must be each of the 2 dimensions once, got [0, 0]"
    );
    assert!(x.permute(&[0]).is_err() && x.permute(&[0, 2]).is_err());
    assert_eq!(text(x.transpose(0, 2)), "Tensor::transpose: `b` must be in -2..=1, got 2");
    assert_eq!(
        text(x.narrow(1, 2, 2)),
        "Tensor::narrow: `start..start + len` must be within 0..3, got 2..2 + 2"
    );
    assert!(x.narrow(1, usize::MAX, 2).is_err());
    assert_eq!(text(x.step(1, 0)), "Tensor::step: `step` must be at least 1, got 0");
    assert_eq!(
        text(x.reshape(&[4])),
        "Tensor::reshape: `tensor` must have shape [4] or another of 4 elements, got [2, 3]"
    );
    assert_eq!(
        text(x.transpose(0, 1).unwrap().reshape(&[6])),
        "Tensor::reshape: `tensor` must have strides that allow the new shape without a copy, \
         got strides [1, 3]"
    );
    assert_eq!(text(x.squeeze(0)), "Tensor::squeeze: `tensor` must have shape 1 in dimension 0, got [2, 3]");
    assert!(x.expand(&[4, 3]).is_err() && x.expand(&[3]).is_err());
    assert!(iota(&[1; 8]).unsqueeze(0).is_err());
    assert!(x.unsqueeze(3).is_err());
    // SAFETY: refused before anything is touched.
    let foreign = unsafe { Tensor::from_foreign(&Device::cpu(), 64, DType::F32, &[1], &[1]) };
    assert!(matches!(foreign.unwrap_err(), Error::State { .. }));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let error = Tensor::uninit(&Device::cpu(), DType::F32, &[1 << 20, 1 << 28]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested: 0x4_0000_0000_0000, .. }), "{error}");
    let error = Tensor::uninit(&Device::cpu(), DType::F32, &[1 << 40, 1 << 40]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // A view of more elements than any memory holds is fine until it is read.
    let wide = iota(&[1]).expand(&[1 << 31, 1 << 25]).unwrap();
    assert!(matches!(wide.to_vec::<i32>().unwrap_err(), Error::OutOfMemory { .. }));
}

#[test]
fn views_share_memory_and_know_where_it_is() {
    let x = iota(&[4, 6]);
    let part = x.narrow(0, 1, 2).unwrap().narrow(1, 2, 3).unwrap();
    assert_eq!(part.address(), x.address() + 8 * 4);
    assert_eq!(part.byte_range(), x.address() + 32..x.address() + 32 + 4 * 9);
    assert_eq!(part.view::<i32>().unwrap().address(), part.address());
    assert_eq!(part.to_vec::<i32>().unwrap(), [8, 9, 10, 14, 15, 16]);
    assert_eq!(x.byte_range(), x.address()..x.address() + 96);
    assert!(!part.is_contiguous() && x.narrow(0, 1, 2).unwrap().is_contiguous());
    assert_eq!(format!("{part:?}"), "Tensor(i32[2, 3] on cpu, strides [6, 1])");
}

#[test]
fn unsqueezed_tensors_stay_contiguous_and_squeeze_back() {
    let x = iota(&[2, 3]);
    for dim in [0, 1, 2, -1, -3] {
        let y = x.unsqueeze(dim).unwrap();
        assert!(y.is_contiguous());
        assert_eq!(&*crate::shape::contiguous_strides(y.shape()), y.strides());
        let dim = if dim < 0 { dim + 3 } else { dim };
        assert_eq!(y.squeeze(dim).unwrap().strides(), x.strides());
    }
}

#[test]
fn a_tensor_moves_to_its_own_device_for_free() {
    let x = iota(&[2, 3]).transpose(0, 1).unwrap();
    let y = x.to_device(&Device::cpu_with(crate::Checks::None)).unwrap();
    assert_eq!((y.address(), y.strides()), (x.address(), x.strides()));
}

#[test]
fn a_copy_overwrites_a_part_and_refuses_what_it_cannot_copy() {
    let (x, y) = (iota(&[4, 3]), Tensor::zeros(&Device::cpu(), DType::I32, &[4, 3]).unwrap());
    y.narrow(0, 2, 1).unwrap().copy_from(&x.narrow(0, 1, 1).unwrap()).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 0, 0, 0, 0, 0, 3, 4, 5, 0, 0, 0]);
    let wide = Tensor::zeros(&Device::cpu(), DType::I64, &[4, 3]).unwrap();
    for (source, want) in [
        (iota(&[3, 4]), "Tensor::copy_from: `source` must have shape [4, 3], got [3, 4]"),
        (wide, "Tensor::copy_from: `source` must have dtype i32, got i64"),
        (
            iota(&[3, 4]).transpose(0, 1).unwrap(),
            "Tensor::copy_from: `source` must have contiguous elements, got strides [1, 4]",
        ),
    ] {
        assert_eq!(y.copy_from(&source).unwrap_err().to_string(), want);
    }
    let error = y.copy_from(&y.clone()).unwrap_err().to_string();
    assert!(error.starts_with("Tensor::copy_from: `self` must be memory apart from the source's"), "{error}");
}

#[test]
fn handles_may_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Tensor>();
    check::<Device>();
    check::<crate::Stream>();
    check::<crate::Graph>();
    check::<Error>();
}

#[test]
fn tensors_of_a_gpu_move_between_streams_and_devices() {
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let other = device.on_stream(&device.new_stream().unwrap()).unwrap();
    let data: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    for round in 0..20 {
        let x = Tensor::from_slice(&device, &[1 << 10, 1 << 10], &data).unwrap();
        let y = x.on(&other).unwrap();
        assert!(y.device().same_stream(&other) && y.address() == x.address());
        drop(x);
        let columns = y.transpose(0, 1).unwrap().narrow(0, round, 2).unwrap();
        let want: Vec<f32> = (0..2048).map(|i| ((i % 1024) * 1024 + i / 1024 + round) as f32).collect();
        assert_eq!(columns.to_vec::<f32>().unwrap(), want);
        let host = columns.to_device(&Device::cpu()).unwrap();
        assert_eq!(host.to_device(&device).unwrap().to_vec::<f32>().unwrap(), want);
    }
    let zeros = Tensor::zeros(&other, DType::F16, &[1000]).unwrap();
    assert!(zeros.to_f64().unwrap().iter().all(|&x| x == 0.0));
    let x = Tensor::from_slice(&device, &[4], &[1i32, 2, 3, 4]).unwrap();
    // Backwards, as an embedder may have it.
    let last = x.narrow(0, 3, 1).unwrap();
    // SAFETY: within `x`, which outlives the view.
    let view = unsafe { Tensor::from_foreign(&device, last.address(), DType::I32, &[2, 2], &[-2, -1]) };
    let view = view.unwrap();
    assert_eq!(view.to_vec::<i32>().unwrap(), [4, 3, 2, 1]);
    assert_eq!((view.address(), view.byte_range()), (last.address(), x.byte_range()));
    // SAFETY: refused before anything is touched.
    let crooked = unsafe { Tensor::from_foreign(&device, x.address() + 1, DType::I32, &[1], &[1]) };
    assert!(crooked.unwrap_err().to_string().contains("`address` must be a multiple of 4"));
}

/// A view operation and its arguments, reduced to what is valid where it is applied.
#[derive(Clone, Debug)]
enum Op {
    Transpose(usize, usize),
    Narrow(usize, usize, usize),
    Step(usize, usize),
    Expand(usize, usize),
    Unsqueeze(usize),
    Split(usize, usize),
}

/// What an operation means: a function from the result's index to the source's.
type Meaning = Box<dyn Fn(&[usize]) -> Vec<usize>>;

fn apply(x: &Tensor, op: &Op) -> (Tensor, Meaning) {
    let rank = x.rank();
    let dim = |d: usize| d % rank;
    let swap = |a: usize, b: usize| {
        move |index: &[usize]| {
            let mut index = index.to_vec();
            index.swap(a, b);
            index
        }
    };
    let along = |d: usize, f: Box<dyn Fn(usize) -> usize>| {
        move |index: &[usize]| {
            let mut index = index.to_vec();
            index[d] = f(index[d]);
            index
        }
    };
    match *op {
        Op::Transpose(a, b) => {
            let (a, b) = (dim(a), dim(b));
            (x.transpose(a as isize - rank as isize, b as isize).unwrap(), Box::new(swap(a, b)))
        }
        Op::Narrow(d, start, len) => {
            let d = dim(d);
            let start = start % (x.shape()[d] + 1);
            let len = len % (x.shape()[d] - start + 1);
            (x.narrow(d as isize, start, len).unwrap(), Box::new(along(d, Box::new(move |i| i + start))))
        }
        Op::Step(d, step) => {
            let d = dim(d);
            (x.step(d as isize, step).unwrap(), Box::new(along(d, Box::new(move |i| i * step))))
        }
        Op::Expand(d, extent) => {
            let d = dim(d);
            let mut shape = x.shape().to_vec();
            if shape[d] == 1 {
                shape[d] = extent;
            }
            let repeated = x.shape()[d] == 1;
            (x.expand(&shape).unwrap(), Box::new(along(d, Box::new(move |i| if repeated { 0 } else { i }))))
        }
        Op::Unsqueeze(d) => {
            let d = d % (rank + 1);
            let drop = move |index: &[usize]| [&index[..d], &index[d + 1..]].concat();
            (x.unsqueeze(d as isize).unwrap(), Box::new(drop))
        }
        Op::Split(d, part) => {
            // A dimension in two, which never needs a copy.
            let d = dim(d);
            let extent = x.shape()[d];
            let part = if extent.is_multiple_of(part) { part } else { 1 };
            let shape = [&x.shape()[..d], &[extent / part, part], &x.shape()[d + 1..]].concat();
            let join = move |index: &[usize]| {
                [&index[..d], &[index[d] * part + index[d + 1]], &index[d + 2..]].concat()
            };
            (x.reshape(&shape).unwrap(), Box::new(join))
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = 0usize..8;
    let op = prop_oneof![
        (n.clone(), n.clone()).prop_map(|(a, b)| Op::Transpose(a, b)),
        (n.clone(), n.clone(), n.clone()).prop_map(|(a, b, c)| Op::Narrow(a, b, c)),
        (n.clone(), 1usize..4).prop_map(|(a, b)| Op::Step(a, b)),
        (n.clone(), 0usize..4).prop_map(|(a, b)| Op::Expand(a, b)),
        n.clone().prop_map(Op::Unsqueeze),
        (n, 1usize..4).prop_map(|(a, b)| Op::Split(a, b)),
    ];
    prop::collection::vec(op, 0..5)
}

proptest! {
    #[test]
    fn views_give_the_elements_that_their_indices_mean(
        shape in prop::collection::vec(1usize..5, 1..4),
        ops in ops(),
    ) {
        let source = iota(&shape);
        let mut view = source.clone();
        let mut maps = Vec::new();
        for op in &ops {
            let (next, map) = apply(&view, op);
            maps.push(map);
            view = next;
        }
        // Row-major indices of the result, sent back through the operations to the source.
        let mut indices = vec![vec![]];
        for &extent in view.shape() {
            indices = indices
                .iter()
                .flat_map(|index: &Vec<usize>| (0..extent).map(move |i| [&index[..], &[i]].concat()))
                .collect();
        }
        let want: Vec<i32> = indices
            .iter()
            .map(|index| maps.iter().rev().fold(index.clone(), |index, map| map(&index)))
            .map(|index| index.iter().zip(&shape).fold(0, |at, (&i, &extent)| at * extent + i) as i32)
            .collect();
        prop_assert_eq!(view.to_vec::<i32>().unwrap(), want);
        // The range of addresses is that of the elements.
        let reached = offsets(view.shape(), view.strides());
        let range = view.byte_range();
        match (reached.iter().min(), reached.iter().max()) {
            (Some(low), Some(high)) => {
                let at = |element: isize| view.address().wrapping_add_signed(element as i64 * 4);
                prop_assert_eq!(range.clone(), at(*low)..at(*high + 1));
            }
            _ => prop_assert!(range.is_empty()),
        }
        prop_assert!(range.start >= source.byte_range().start && range.end <= source.byte_range().end);
    }
}

#[test]
fn small_floats_are_widened_and_complex_numbers_refused() {
    let cpu = Device::cpu();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let of = |dtype| Tensor::from_bytes(&cpu, dtype, &[256], &bytes).unwrap().to_f64().unwrap();
    let (e4m3, e5m2, e8m0) = (of(DType::F8E4M3), of(DType::F8E5M2), of(DType::F8E8M0));
    for (byte, want) in [
        (0x00, 0.0),
        (0x01, 1.0 / 512.0),
        (0x07, 7.0 / 512.0),
        (0x08, 1.0 / 64.0),
        (0x38, 1.0),
        (0x39, 1.125),
        (0x7e, 448.0),
        (0xb8, -1.0),
        (0xfe, -448.0),
    ] {
        assert_eq!(e4m3[byte], want, "{byte:#x}");
    }
    assert!(e4m3[0x7f].is_nan() && e4m3[0xff].is_nan() && e4m3[0x80].is_sign_negative());
    for (byte, want) in
        [(0x01, 2f64.powi(-16)), (0x3c, 1.0), (0x7b, 57344.0), (0x7c, f64::INFINITY), (0xbe, -1.5)]
    {
        assert_eq!(e5m2[byte], want, "{byte:#x}");
    }
    assert!((0x7d..=0x7f).all(|byte| e5m2[byte].is_nan()));
    assert_eq!((e8m0[0], e8m0[127], e8m0[254]), (2f64.powi(-127), 1.0, 2f64.powi(127)));
    assert!(e8m0[255].is_nan());
    // Larger bytes are larger numbers, as far as they are positive.
    assert!(e4m3[..0x7f].is_sorted() && e5m2[..0x7d].is_sorted() && e8m0[..255].is_sorted());

    let x = Tensor::from_slice(&cpu, &[2], &[[1.0f32, -2.0], [0.5, 3.0]]).unwrap();
    assert_eq!((x.dtype(), x.to_vec::<[f32; 2]>().unwrap()[1]), (DType::C64, [0.5, 3.0]));
    let error = x.to_f64().unwrap_err().to_string();
    assert_eq!(error, "Tensor::to_f64: `tensor` must have dtype a real one, got c64");
}
