//! How exact results are, and what must not change a bit of them.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use half::{bf16, f16};
use softmax::{Form, scores, tolerances};
use warpwright::ops::{self, MaskedSoftmax};
use warpwright::{DType, Device, Result, reference};
use warpwright_tests::{DTYPES, Random, assert_same, assert_within, floats, on_each_device};

fn round(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_f32(),
        DType::BF16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn scaled<'a>(scale: f32) -> MaskedSoftmax<'a> {
    MaskedSoftmax { scale, ..Default::default() }
}

/// Columns that take a part of a warp, a warp, a block, and a cluster or the streaming kernel.
const LENGTHS: [usize; 5] = [5, 120, 700, 6000, 40_001];

on_each_device! {
    fn a_negative_scale_is_the_scale_of_negative_scores(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [37, 64, 700].map(|cols| (dtype, cols))) {
            let values = Random::new(9).floats(3 * cols, -8.0, 8.0);
            let negative: Vec<f32> = values.iter().map(|value| -value).collect();
            let x = floats(device, dtype, &[3, cols], &values)?;
            let minus_x = floats(device, dtype, &[3, cols], &negative)?;
            let (a, b) =
                (ops::masked_softmax(&x, &scaled(-0.3))?, ops::masked_softmax(&minus_x, &scaled(0.3))?);
            assert_same(&a.to_bytes()?, &b.to_bytes()?, format!("{dtype}, {cols} columns"));
        }
        Ok(())
    }

    fn adding_a_number_to_a_row_changes_no_bit_of_f32_and_one_ulp_of_16_bits(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            // Multiples of 1/8 below 32 are exact in eight bits.
            let values: Vec<f32> = (0..cols).map(|j| ((j * 37 + j / 64) % 65) as f32 / 8.0 - 4.0).collect();
            let plain = ops::masked_softmax(&floats(device, dtype, &[cols], &values)?, &scaled(1.0))?;
            let (plain, bytes) = (plain.to_f64()?, plain.to_bytes()?);
            for shift in [16.0, -16.0, 0.125] {
                let shifted: Vec<f32> = values.iter().map(|value| value + shift).collect();
                let y = ops::masked_softmax(&floats(device, dtype, &[cols], &shifted)?, &scaled(1.0))?;
                let what = format!("{dtype}, {cols} columns, {shift} added");
                match dtype {
                    DType::F32 => assert_same(&y.to_bytes()?, &bytes, what),
                    // Which way a result rounds may depend on the maximum, which is part of the exponents.
                    DType::F16 => assert_within(&y.to_f64()?, &plain, |i| plain[i] / 1024.0 + 6e-8, what),
                    _ => assert_within(&y.to_f64()?, &plain, |i| plain[i] / 128.0, what),
                }
            }
        }
        Ok(())
    }

    fn rows_sum_to_1(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            let x = scores(device, dtype, &[2, cols], &mut Random::new(10))?;
            let want = reference::masked_softmax(&x, &scaled(0.5))?;
            let tolerance = tolerances(&want, &x, &scaled(0.5))?;
            let y = ops::masked_softmax(&x, &scaled(0.5))?.to_f64()?;
            for (y, tolerance) in y.chunks(cols).zip(tolerance.chunks(cols)) {
                let (sum, allowed): (f64, f64) = (y.iter().sum(), tolerance.iter().sum());
                // Roundings to the type go both ways.
                let allowed = if cols > 1000 { allowed / 4.0 } else { allowed };
                assert!((sum - 1.0).abs() <= allowed, "{dtype}, {cols} columns: {sum}, allowed {allowed:e}");
            }
        }
        Ok(())
    }

    fn the_same_input_gives_the_same_bits_again(device: &Device) -> Result<()> {
        for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
            for cols in [37, 2000, 20_000] {
                let mut random = Random::new(11);
                let x = scores(device, dtype, &[3, cols], &mut random)?;
                let masking = form.random(device, dtype, cols, &[3, cols], &mut random)?;
                let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                let again = || ops::masked_softmax(&x, &parameters)?.to_bytes();
                assert_same(&again()?, &again()?, format!("{dtype}, {form:?}, {cols} columns"));
            }
        }
        Ok(())
    }

    fn exponentials_far_from_the_maximum_lose_one_rounding_of_their_exponent(device: &Device) -> Result<()> {
        for scale in [1.0, 0.1, -0.37, 2.9] {
            // Differences of integers are exact, so that only the exponent, exp, a product and the reciprocal
            // round. The exponent's rounding moves exp(-E) by E u at most.
            let rows = (85.0 / f32::abs(scale)) as usize;
            let scores: Vec<f32> = (0..rows).flat_map(|row| [0.0, -(row as f32) * scale.signum()]).collect();
            let x = floats(device, DType::F32, &[rows, 2], &scores)?;
            let want = reference::masked_softmax(&x, &scaled(scale))?;
            let y = ops::masked_softmax(&x, &scaled(scale))?.to_f64()?;
            let allowed = |i: usize| want[i] * (16.0 - want[i].ln()) / f64::from(1 << 24);
            assert_within(&y, &want, allowed, format!("scale {scale}"));
        }
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [3, 9, 33, 200].map(|cols| (dtype, cols))) {
            let (rows, scale) = (400, 0.3);
            let x = scores(device, dtype, &[rows, cols], &mut Random::new(12))?;
            let want = reference::masked_softmax(&x, &scaled(scale))?;
            let got = ops::masked_softmax(&x, &scaled(scale))?.to_f64()?;
            let values: Vec<f32> = x.to_f64()?.into_iter().map(|value| value as f32).collect();
            let plain: Vec<f64> = values.chunks(cols).flat_map(|row| unfused(dtype, row, scale)).collect();
            // Of probabilities that f16 holds as normal numbers.
            let worst = |y: &[f64]| {
                let pairs = y.iter().zip(&want).filter(|(_, p)| **p > 1e-4);
                pairs.map(|(y, p)| (y - p).abs() / p).fold(0.0, f64::max)
            };
            let (got, plain) = (worst(&got), worst(&plain));
            assert!(got <= 2.0 * plain, "{dtype}, {cols} columns: {got:e} against {plain:e}");
        }
        Ok(())
    }
}

/// Scale, maximum, difference, exp, sum and quotient, each rounded to `dtype`.
fn unfused(dtype: DType, row: &[f32], scale: f32) -> Vec<f64> {
    let scores: Vec<f32> = row.iter().map(|x| round(dtype, x * scale)).collect();
    let maximum = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |score: &f32| round(dtype, f64::from(round(dtype, score - maximum)).exp() as f32);
    let exponentials: Vec<f32> = scores.iter().map(exp).collect();
    let sum = exponentials.iter().fold(0.0, |sum, e| round(dtype, sum + e));
    exponentials.iter().map(|e| round(dtype, e / sum).into()).collect()
}
