//! What comes of unusual values and scales.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use half::bf16;
use softmax::{Form, check, check_against, scores};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{DTYPES, Random, floats, on_each_device};

/// The largest, the smallest normal and the smallest number of a type.
fn limits(dtype: DType) -> [f32; 3] {
    match dtype {
        DType::F16 => [65504.0, 2f32.powi(-14), 2f32.powi(-24)],
        DType::BF16 => [bf16::MAX.to_f32(), f32::MIN_POSITIVE, bf16::from_bits(1).to_f32()],
        _ => [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1)],
    }
}

fn scaled<'a>(scale: f32) -> MaskedSoftmax<'a> {
    MaskedSoftmax { scale, ..Default::default() }
}

/// Columns that take a part of a warp, a warp, a block, and a cluster or the streaming kernel.
const LENGTHS: [usize; 5] = [5, 120, 700, 6000, 40_001];

on_each_device! {
    fn every_three_special_values_meet_as_the_reference_says(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let [max, normal, least] = limits(dtype);
            let special = [
                f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                max,
                -max,
                0.0,
                -0.0,
                1.0,
                -1.5,
                normal,
                -least,
                88.0,
                -104.0,
            ];
            let count = special.len();
            let threes: Vec<f32> = (0..count.pow(3))
                .flat_map(|i| [special[i / count / count], special[i / count % count], special[i % count]])
                .collect();
            let x = floats(device, dtype, &[threes.len() / 3, 3], &threes)?;
            for scale in [1.0, -1.0, 0.0, -0.0, 0.5, -3.0, 1e-3, 1e30] {
                check(&x, &scaled(scale), "three of the special values")?;
            }
        }
        Ok(())
    }

    fn a_nan_or_infinity_that_is_kept_spoils_its_row_and_no_other(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            if dtype == DType::BF16 && cols > 10_000 {
                continue; // as f16
            }
            for (case, special) in [f32::NAN, f32::INFINITY, -f32::NAN].into_iter().enumerate() {
                let mut random = Random::new(cols as u64);
                let mut values = random.floats(4 * cols, -8.0, 8.0);
                let place = [0, cols - 1, cols / 2][case];
                values[cols + place] = special;
                values[2 * cols + place] = special;
                let mut keep: Vec<u8> = (0..4 * cols).map(|i| u8::from(i % 3 != 1)).collect();
                keep[cols + place] = 1;
                keep[2 * cols + place] = 0;
                let x = floats(device, dtype, &[4, cols], &values)?;
                let mask = Tensor::from_slice(device, &[4, cols], &keep)?;
                let y = check(
                    &x,
                    &MaskedSoftmax { mask: Mask::Keep(&mask), ..Default::default() },
                    "one special",
                )?
                .to_f64()?;
                for (i, p) in y.into_iter().enumerate() {
                    assert_eq!(
                        p.is_nan(),
                        i / cols == 1 && keep[i] == 1,
                        "{dtype}, {cols} columns, element {i} is {p}"
                    );
                }
            }
        }
        Ok(())
    }

    fn a_row_of_nothing_but_minus_infinity_is_zeros(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            for (value, scale) in [(f32::NEG_INFINITY, 1.0), (f32::INFINITY, -0.25)] {
                let x = floats(device, dtype, &[cols], &vec![value; cols])?;
                check_against(&vec![0.0; cols], &x, &scaled(scale), "all -inf")?;
                let zero = floats(device, dtype, &[1], &[0.0])?;
                let biased = MaskedSoftmax { scale, mask: Mask::Bias(&zero), causal: None };
                check_against(&vec![0.0; cols], &x, &biased, "all -inf, biased")?;
            }
        }
        Ok(())
    }

    fn minus_infinity_beside_numbers_is_0(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols))) {
            // In a row of 40,001 whole warps and blocks hold nothing but -inf.
            let values: Vec<f32> =
                (0..cols).map(|j| if j == cols / 2 { -3.0 } else { f32::NEG_INFINITY }).collect();
            let y = ops::masked_softmax(&floats(device, dtype, &[cols], &values)?, &scaled(1.0))?.to_f64()?;
            for (j, p) in y.into_iter().enumerate() {
                assert_eq!(p, f64::from(u8::from(j == cols / 2)), "{dtype}, {cols} columns, column {j}");
            }
        }
        Ok(())
    }

    fn equal_scores_share_1_equally(device: &Device) -> Result<()> {
        for (dtype, cols) in
            DTYPES.into_iter().flat_map(|dtype| [1, 2, 3, 7, 64, 700, 6000].map(|cols| (dtype, cols)))
        {
            let [max, normal, least] = limits(dtype);
            for value in [0.0, -0.0, 1.0, max, -max, normal, least, 300.0] {
                let x = floats(device, dtype, &[cols], &vec![value; cols])?;
                let want = vec![1.0 / cols as f64; cols];
                let y = check_against(&want, &x, &scaled(1.0), &format!("all {value}"))?.to_bytes()?;
                let size = dtype.size();
                assert!(y.chunks(size).all(|p| p == &y[..size]), "{dtype}, {cols} columns of {value} differ");
                if cols == 1 {
                    let y = ops::masked_softmax(&x, &scaled(-5.0))?;
                    assert_eq!(y.to_f64()?, [1.0], "{dtype}, {value}");
                }
            }
        }
        Ok(())
    }

    fn subnormal_scores_count(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let least = limits(dtype)[2];
            let values: Vec<f32> = (0..40).map(|j| ((j * 7) % 40 - 20) as f32 * least).collect();
            let x = floats(device, dtype, &[40], &values)?;
            let scale = if dtype == DType::F16 { 1.1e6 } else { 2e38 };
            check(&x, &scaled(scale), "subnormal")?;
            check(&x, &scaled(-scale), "subnormal")?;
            // All of them are next to 0.
            check(&x, &scaled(1.0), "subnormal")?;
        }
        Ok(())
    }

    fn scales_of_any_size_and_sign_are_applied_before_the_maximum(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [13, 600].map(|cols| (dtype, cols))) {
            let x = scores(device, dtype, &[3, cols], &mut Random::new(7))?;
            let masking = Form::Keep.random(device, dtype, cols, &[3, cols], &mut Random::new(8))?;
            for size in [
                0.0,
                f32::from_bits(1),
                1e-40,
                f32::MIN_POSITIVE,
                1e-20,
                1e-3,
                0.7,
                1.0,
                3.0,
                50.0,
                1e4,
                1e20,
                f32::MAX,
            ] {
                for scale in [size, -size] {
                    check(&x, &MaskedSoftmax { scale, mask: masking.mask(), causal: None }, "keep")?;
                    check(&x, &scaled(scale), "no mask")?;
                }
            }
        }
        Ok(())
    }

    fn tiny_scales_count_where_scores_are_huge(device: &Device) -> Result<()> {
        // The differences pass f32, their products with the scale do not.
        for (dtype, scale) in [DType::F32, DType::BF16].into_iter().flat_map(|dtype| {
            [1e-39f32, -1e-38, 3e-38, 4e-37, 7e-37, 8e-37, -1e-36, 1e-35].map(|scale| (dtype, scale))
        }) {
            let max = limits(dtype)[0];
            let x = floats(device, dtype, &[6], &[max, -max, 0.0, max / 2.0, f32::NEG_INFINITY, -1e38])?;
            let masking = Form::Keep.random(device, dtype, 6, &[6], &mut Random::new(13))?;
            if scale > 0.0 {
                check(&x, &MaskedSoftmax { scale, mask: masking.mask(), causal: None }, "keep")?;
                check(&x, &scaled(scale), "no mask")?;
            }
            check(&x.narrow(0, 0, 4)?, &scaled(scale), "finite")?;
            let lengths = Tensor::from_slice(device, &[], &[3])?;
            let mask = Mask::Range { lengths: Some(&lengths), starts: None };
            check(&x, &MaskedSoftmax { scale, mask, causal: None }, "lengths")?;
        }
        Ok(())
    }

    fn exponentials_below_2_to_the_minus_126_are_0(device: &Device) -> Result<()> {
        // ln 2^-126 is -87.34.
        for (dtype, cols) in
            [DType::F32, DType::BF16].into_iter().flat_map(|dtype| LENGTHS.map(|cols| (dtype, cols)))
        {
            for (value, zero) in [(-87.0, false), (-88.0, true), (-103.0, true), (-1e30, true)] {
                let mut values = vec![value; cols];
                values[cols / 3] = 0.0;
                let y =
                    check(&floats(device, dtype, &[cols], &values)?, &scaled(1.0), "one is 0")?.to_f64()?;
                for (j, p) in y.into_iter().enumerate().filter(|&(j, _)| j != cols / 3) {
                    assert_eq!(p == 0.0, zero, "{dtype}, {cols} columns of {value}: column {j} is {p:e}");
                }
            }
        }
        Ok(())
    }
}
