//! Atomic operations: what each gives and leaves behind, alone and contended.

use kernels_gpu::probe::{INTEGER_CELLS, float_atomics, integer_atomics, semantics};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, Random, assert_same, on_each_device};

/// The numbers of threads that take part: one, part of a warp, and eight blocks.
const ACTIVE: [usize; 3] = [1, 33, 512];

macro_rules! integer_cases {
    ($($name:ident: $ty:ty;)*) => {$(
        fn $name(device: &Device) -> Result<()> {
            let operations: [(&str, fn($ty, $ty, $ty) -> $ty); INTEGER_CELLS] = [
                ("add", |old, value, _| old.wrapping_add(value)),
                ("min", |old, value, _| old.min(value)),
                ("max", |old, value, _| old.max(value)),
                ("and", |old, value, _| old & value),
                ("or", |old, value, _| old | value),
                ("xor", |old, value, _| old ^ value),
                ("exchange", |_, value, _| value),
                ("compare-exchange", |old, value, expected| if old == expected { value } else { old }),
                ("sum by compare-exchange", |old, value, _| old.wrapping_add(value)),
            ];
            let mut random = Random::new(30);
            for active in ACTIVE {
                for matches in [true, false] {
                    let start: Vec<$ty> = (0..INTEGER_CELLS).map(|_| random.bits() as $ty).collect();
                    let values: Vec<$ty> = (0..active).map(|_| random.bits() as $ty).collect();
                    let expected = if matches { start[7] } else { start[7] ^ 1 };
                    let (cells, x) = (Array::new(device, &start)?, Array::new(device, &values)?);
                    let before = Array::poisoned(device, INTEGER_CELLS * active)?;
                    let e = Array::new(device, &[expected])?;
                    let args =
                        (cells.view_mut()?, x.view()?, before.view_mut()?, e.view()?, active as u32);
                    let kernel = &integer_atomics::kernels::<$ty>()[0];
                    let grid = Grid::covering(active as u64, kernel.bounds.threads.into())?;
                    // SAFETY: the arrays have the sizes that the kernel states.
                    unsafe { device.launch(kernel, grid, args)? };
                    let (end, before) = (cells.read()?, before.read()?);
                    for (cell, (name, apply)) in operations.iter().enumerate() {
                        // Every value the cell held was found by one thread, or is what is left: the first
                        // value and the results are, in some order, the values found and the last.
                        let found = &before[cell * active..][..active];
                        let results = found.iter().zip(&values).map(|(&old, &value)| apply(old, value, expected));
                        let mut held: Vec<$ty> = results.chain([start[cell]]).collect();
                        let mut seen = [found, &[end[cell]]].concat();
                        held.sort_unstable();
                        seen.sort_unstable();
                        assert_same(&seen, &held, format!("{name} of {} by {active} threads", stringify!($ty)));
                    }
                    // The results that do not depend on the order.
                    for cell in [0, 1, 2, 3, 4, 5, 8] {
                        let (name, apply) = operations[cell];
                        let want = values.iter().fold(start[cell], |old, &value| apply(old, value, expected));
                        assert_eq!(end[cell], want, "{name} of {} by {active} threads", stringify!($ty));
                    }
                }
            }
            Ok(())
        }
    )*};
}

integer_cases! {
    u32_cases: u32;
    i32_cases: i32;
    u64_cases: u64;
    i64_cases: i64;
}

on_each_device! {
    fn integers_of_four_bytes(device: &Device) -> Result<()> {
        u32_cases(device)?;
        i32_cases(device)
    }

    fn integers_of_eight_bytes(device: &Device) -> Result<()> {
        u64_cases(device)?;
        i64_cases(device)
    }

    fn floats(device: &Device) -> Result<()> {
        for active in ACTIVE {
            // Whole numbers whose sum is exact in every order, all different.
            let values: Vec<f32> = (0..active).map(|i| i as f32 - 7.0).collect();
            let start = [vec![100.0, 200.5, -300.25], vec![0.0; active]].concat();
            let (cells, x) = (Array::new(device, &start)?, Array::new(device, &values)?);
            let before = Array::poisoned(device, 3 * active)?;
            let args = (cells.view_mut()?, x.view()?, before.view_mut()?, active as u32);
            let kernel = &float_atomics::ALL[0];
            let grid = Grid::covering(active as u64, kernel.bounds.threads.into())?;
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, grid, args)? };
            let (end, before) = (cells.read()?, before.read()?);
            assert_eq!(end[0], 100.0 + values.iter().sum::<f32>(), "the sum of {active}");
            for (cell, apply) in [(|old, value| old + value) as fn(f32, f32) -> f32, |_, value| value].iter().enumerate() {
                let found = &before[cell * active..][..active];
                let results = found.iter().zip(&values).map(|(&old, &value)| apply(old, value));
                let mut held: Vec<f32> = results.chain([start[cell]]).collect();
                let mut seen = [found, &[end[cell]]].concat();
                held.sort_unstable_by(f32::total_cmp);
                seen.sort_unstable_by(f32::total_cmp);
                assert_same(&seen, &held, format!("cell {cell}, {active} threads"));
            }
            assert_same(&before[2 * active..], &vec![-300.25; active], "loads");
            assert_same(&end[2..], &vec![-300.25; active + 1], "stores");
        }
        Ok(())
    }

    fn every_ordering_at_every_scope(device: &Device) -> Result<()> {
        assert_eq!(semantics::ALL.len(), 12);
        for kernel in semantics::ALL {
            let (narrow, wide) = (Array::new(device, &[1000u32])?, Array::new(device, &[1u64 << 40])?);
            let out = Array::poisoned(device, 8)?;
            let args = (narrow.view_mut()?, wide.view_mut()?, out.view_mut()?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(kernel, Grid::new(1)?, args)? };
            let want = [1000, 1005, 70, 800, 1 << 40, (1 << 40) + 5, 70, 800];
            assert_same(&out.read()?, &want, kernel.name);
            assert_same(&narrow.read()?, &[9800], kernel.name);
            assert_same(&wide.read()?, &[9800], kernel.name);
        }
        Ok(())
    }
}
