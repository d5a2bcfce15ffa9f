//! Reductions over segments of a warp, over masks, and over blocks: bit for bit, floats in the order of
//! operations that the docs state.

use cuda_std::warp::Reduce;
use kernels_gpu::probe::{WIDTHS, reduce_block, reduce_lanes, segments};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Plain, Random, assert_same, on_each_device};

/// Sum, maximum, minimum.
const OPS: usize = 3;

/// What the tests need of a type, in plain Rust.
trait Number: Plain + Reduce + PartialEq + bytemuck::NoUninit + std::fmt::Debug {
    fn combine(op: usize, a: Self, b: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Number for $ty {
            fn combine(op: usize, a: Self, b: Self) -> Self {
                [a.wrapping_add(b), Ord::max(a, b), Ord::min(a, b)][op]
            }
        }
    )*};
}
integers!(u32 i32 u64 i64);

impl Number for f32 {
    fn combine(op: usize, a: f32, b: f32) -> f32 {
        let a_first = a.total_cmp(&b).is_lt();
        match op {
            0 => a + b,
            _ if a.is_nan() || b.is_nan() => f32::NAN,
            1 => {
                if a_first {
                    b
                } else {
                    a
                }
            }
            _ => {
                if a_first {
                    a
                } else {
                    b
                }
            }
        }
    }
}

/// Lanes combine with those at half the width's distance, then a quarter's, and so on.
fn butterfly<T: Number>(values: &[T], width: usize, op: usize) -> Vec<T> {
    let mut held = values.to_vec();
    let mut distance = width / 2;
    while distance > 0 {
        held = (0..32).map(|lane| T::combine(op, held[lane], held[lane ^ distance])).collect();
        distance /= 2;
    }
    held
}

fn segment_cases<T: Number + segments::Instances>(device: &Device, cases: &[Vec<T>]) -> Result<()> {
    for (case, values) in cases.iter().enumerate() {
        let (x, out) = (Array::new(device, values)?, Array::poisoned(device, WIDTHS.len() * OPS * 32)?);
        let kernel = &segments::kernels::<T>()[0];
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, Grid::new(1)?, (x.view()?, out.view_mut()?))? };
        let mut want = Vec::new();
        for width in WIDTHS {
            (0..OPS).for_each(|op| want.extend(butterfly(values, width, op)));
        }
        assert_same(&out.read()?, &want, format!("{} case {case}, [width, op, lane]", kernel.name));
    }
    Ok(())
}

fn mask_cases<T: Number + reduce_lanes::Instances>(device: &Device, cases: &[Vec<T>]) -> Result<()> {
    for (case, values) in cases.iter().enumerate() {
        for mask in [u32::MAX, 0x7fff_ffff, 0xffff_0000, 0x5555_5555, 1, 0x8000_0000, 0x1c39_f042] {
            let (x, out) = (Array::new(device, values)?, Array::poisoned(device, OPS * 32)?);
            let kernel = &reduce_lanes::kernels::<T>()[0];
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, Grid::new(1)?, (x.view()?, out.view_mut()?, mask))? };
            let got = out.read()?;
            let lanes: Vec<usize> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
            for op in 0..OPS {
                // The full mask by butterfly, another in the order of its lanes.
                let total = match mask {
                    u32::MAX => butterfly(values, 32, op)[0],
                    _ => lanes.iter().map(|&l| values[l]).reduce(|a, b| T::combine(op, a, b)).unwrap(),
                };
                let got: Vec<T> = lanes.iter().map(|lane| got[32 * op + lane]).collect();
                let what = format!("{} case {case}, op {op}, mask {mask:#x}", kernel.name);
                assert_same(&got, &vec![total; lanes.len()], what);
            }
            for lane in (0..32).filter(|lane| mask >> lane & 1 == 0) {
                assert!(out.is_poison(lane)?, "lane {lane} is not in {mask:#x}");
            }
        }
    }
    Ok(())
}

/// Random numbers of any bits, and the extremes.
fn integer_cases<T: Number>(of: impl Fn(u64) -> T) -> Vec<Vec<T>> {
    let mut random = Random::new(10);
    let mut cases: Vec<Vec<T>> = (0..3).map(|_| (0..32).map(|_| of(random.bits())).collect()).collect();
    cases.push(
        (0..32)
            .map(|lane| of(if lane % 2 == 0 { 1 << 63 | 1 << 31 } else { !(1 << 63 | 1 << 31) }))
            .collect(),
    );
    cases
}

/// Random floats; a NaN, infinities and zeros among them, one by one and together.
fn float_cases() -> Vec<Vec<f32>> {
    let mut random = Random::new(11);
    let mut cases = vec![random.floats(32, -1000.0, 1000.0), random.floats(32, -1e-3, 1.0)];
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = random.floats(32, -9.0, 9.0);
        case[13] = special;
        cases.push(case);
    }
    let mut both = random.floats(32, -9.0, 9.0);
    (both[3], both[20], both[31]) = (f32::INFINITY, f32::NEG_INFINITY, f32::NAN);
    cases.push(both);
    cases.push((0..32).map(|lane| if lane % 3 == 0 { 0.0 } else { -0.0 }).collect());
    cases
}

on_each_device! {
    fn segments_of_integers(device: &Device) -> Result<()> {
        segment_cases(device, &integer_cases(|b| b as u32))?;
        segment_cases(device, &integer_cases(|b| b as i32))?;
        segment_cases(device, &integer_cases(|b| b))?;
        segment_cases(device, &integer_cases(|b| b as i64))
    }

    fn segments_of_floats(device: &Device) -> Result<()> {
        segment_cases(device, &float_cases())
    }

    fn masks_of_integers(device: &Device) -> Result<()> {
        mask_cases(device, &integer_cases(|b| b as u32))?;
        mask_cases(device, &integer_cases(|b| b as i32))?;
        mask_cases(device, &integer_cases(|b| b))?;
        mask_cases(device, &integer_cases(|b| b as i64))
    }

    fn masks_of_floats(device: &Device) -> Result<()> {
        mask_cases(device, &float_cases())
    }

    /// Twice in a row in several blocks, so that scratch that is used again too early shows.
    fn blocks_of_one_warp_three_and_thirty_two(device: &Device) -> Result<()> {
        const BLOCKS: usize = 5;
        for kernel in reduce_block::ALL {
            let threads = kernel.constant("THREADS");
            let mut floats = Random::new(12).floats(BLOCKS * 2 * threads, -50.0, 50.0);
            floats[threads + 5] = f32::NAN; // block 0, round 1
            floats[2 * threads + 31] = f32::INFINITY; // block 1, round 0
            let values: Vec<u32> = floats.iter().map(|value| value.to_bits()).collect();
            let (x, out) = (Array::new(device, &values)?, Array::poisoned(device, 9 * values.len())?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, Grid::new(BLOCKS as u64)?, (x.view()?, out.view_mut()?))? };
            let got: Vec<u32> = out.read()?;
            for round in 0..BLOCKS * 2 {
                let own = &values[round * threads..][..threads];
                let signed: Vec<i32> = own.iter().map(|&bits| bits as i32).collect();
                let float = |op| block_total(&floats[round * threads..][..threads], op, [0.0, f32::NEG_INFINITY, f32::INFINITY][op]);
                let wants = [
                    float(0).to_bits(),
                    float(1).to_bits(),
                    float(2).to_bits(),
                    block_total(own, 0, 0),
                    block_total(own, 1, 0),
                    block_total(own, 2, u32::MAX),
                    block_total(&signed, 0, 0) as u32,
                    block_total(&signed, 1, i32::MIN) as u32,
                    block_total(&signed, 2, i32::MAX) as u32,
                ];
                for (what, want) in wants.into_iter().enumerate() {
                    let got = &got[(round * 9 + what) * threads..][..threads];
                    let what = format!("{}, block {}, round {}, result {what}", kernel.name, round / 2, round % 2);
                    match f32::from_bits(want).is_nan() && what.ends_with(['0', '1', '2']) {
                        true => assert!(got.iter().all(|&bits| f32::from_bits(bits).is_nan()), "{what}"),
                        false => assert_same(got, &vec![want; threads], what),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The warps' butterflies, then one over their results, filled up with the identity.
fn block_total<T: Number>(values: &[T], op: usize, identity: T) -> T {
    let mut totals: Vec<T> = values.chunks(32).map(|warp| butterfly(warp, 32, op)[0]).collect();
    totals.resize(32, identity);
    butterfly(&totals, 32, op)[0]
}
