//! `masked_softmax_backward` against float64.

#[path = "../src/norms.rs"]
#[allow(dead_code)]
mod norms;
#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use norms::{LENGTHS, U};
use pointwise::{Layout, SHAPES, round, ulp};
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, Random, assert_same, assert_within, floats, on_each_device};

const SCALE: f32 = -0.75;

/// Positive numbers, every fifth of them 0.
fn with_zeros(
    layout: Layout,
    device: &Device,
    dtype: DType,
    shape: [usize; 2],
    random: &mut Random,
) -> Result<Tensor> {
    let mut values: Vec<f32> = random.floats(shape[0] * shape[1], 0.0, 1.0);
    values.iter_mut().step_by(5).for_each(|value| *value = 0.0);
    let zeroed = floats(device, dtype, &shape, &values)?;
    match layout {
        Layout::Dense => Ok(zeroed),
        _ => layout.random(device, dtype, shape, (0.0, 1.0), random),
    }
}

/// Compares with float64. Products and their sum are off by some roundings of Σ|dy·y|, the difference by one.
#[track_caller]
fn check(y: &Tensor, dy: &Tensor, output: Layout, what: &str) -> Result<Tensor> {
    let (dtype, cols) = (y.dtype(), y.shape()[1]);
    let dx = output.output(y.device(), dtype, [y.shape()[0], cols])?;
    ops::masked_softmax_backward_into(y, dy, SCALE, &dx)?;
    let want = reference::masked_softmax_backward(y, dy, SCALE)?;
    let (ys, dys) = (y.to_f64()?, dy.to_f64()?);
    let magnitude: Vec<f64> = ys
        .chunks(cols.max(1))
        .zip(dys.chunks(cols.max(1)))
        .map(|(y, dy)| y.iter().zip(dy).map(|(y, dy)| (y * dy).abs()).sum())
        .collect();
    let allowed = |i: usize| {
        let computed = ys[i] * U * (40.0 * magnitude[i / cols] + 4.0 * dys[i].abs());
        if ys[i] == 0.0 { 0.0 } else { computed + 0.51 * ulp(dtype, want[i].abs() + computed) }
    };
    assert_within(&dx.to_f64()?, &want, allowed, format!("{what}: {:?}", y.desc()));
    Ok(dx)
}

on_each_device! {
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(240);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let dtype = DTYPES[(turn + i) % 3];
                let y = with_zeros(layout, device, dtype, shape, &mut random)?;
                for of_dy in [layout, Layout::Dense] {
                    let dy = of_dy.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                    check(&y, &dy, layout, &format!("{layout:?}, dy {of_dy:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn every_length_of_rows_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(241);
        for (turn, cols) in LENGTHS.into_iter().chain([8192, 16_391]).enumerate() {
            for dtype in DTYPES {
                let layout = [Layout::Dense, Layout::Offset(3)][turn % 2];
                let shape = [if cols < 100 { 9 } else { 2 }, cols];
                let y = with_zeros(layout, device, dtype, shape, &mut random)?;
                let dy = layout.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                let dx = check(&y, &dy, layout, "lengths")?;
                let again = check(&y, &dy, layout, "again")?;
                assert_same(&again.to_bytes()?, &dx.to_bytes()?, "again");
            }
        }
        for (dtype, cols) in [(DType::F32, 20_003), (DType::BF16, 40_000), (DType::F32, 262_147), (DType::F16, 1 << 20)] {
            let y = with_zeros(Layout::Dense, device, dtype, [1, cols], &mut random)?;
            let dy = Layout::Dense.random(device, dtype, [1, cols], (-2.0, 2.0), &mut random)?;
            check(&y, &dy, Layout::Dense, "long")?;
        }
        Ok(())
    }

    /// Whatever dy holds where y is 0, NaN and infinities too.
    fn masked_columns_are_0_and_do_not_count(device: &Device) -> Result<()> {
        for (cols, dtype) in [(12, DType::F32), (40, DType::BF16), (300, DType::F16), (2049, DType::F32)] {
            let mut random = Random::new(242);
            let x = Layout::Dense.random(device, dtype, [6, cols], (-3.0, 3.0), &mut random)?;
            let mask = MaskedSoftmax { scale: 0.5, mask: Mask::None, causal: Some(Causal::Offset(2)) };
            let y = ops::masked_softmax(&x, &mask)?;
            let mut values: Vec<f32> = random.floats(6 * cols, -2.0, 2.0);
            let clean = floats(device, dtype, &[6, cols], &values)?;
            let ys = y.to_f64()?;
            let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            (0..values.len()).filter(|&i| ys[i] == 0.0).for_each(|i| values[i] = bad[i % 3]);
            let dirty = floats(device, dtype, &[6, cols], &values)?;
            let (clean, dirty) =
                (ops::masked_softmax_backward(&y, &clean, 0.5)?, ops::masked_softmax_backward(&y, &dirty, 0.5)?);
            assert_same(&dirty.to_bytes()?, &clean.to_bytes()?, format!("{dtype} {cols}"));
            let dx = dirty.to_f64()?;
            assert!((0..dx.len()).all(|i| ys[i] != 0.0 || dx[i] == 0.0));
        }
        Ok(())
    }

    fn a_nan_stays_in_its_row(device: &Device) -> Result<()> {
        let y = floats(device, DType::F32, &[3, 4], &[0.25, 0.75, 0.0, 0.0, f32::NAN, f32::NAN, 0.0, f32::NAN, 0.5, 0.0, 0.5, 0.0])?;
        let dy = floats(device, DType::F32, &[3, 4], &[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, f32::INFINITY, 0.0, 1.0, 0.0])?;
        let dx = ops::masked_softmax_backward(&y, &dy, 1.0)?.to_vec::<f32>()?;
        let nan = f32::NAN;
        assert_same(&dx[..8], &[-0.1875, 0.1875, 0.0, 0.0, nan, nan, 0.0, nan], "rows 0 and 1");
        assert_same(&dx[8..], &[nan, 0.0, f32::NEG_INFINITY, 0.0], "row 2");
        Ok(())
    }

    fn leading_dimensions_are_rows_and_empty_tensors_are_fine(device: &Device) -> Result<()> {
        let mut random = Random::new(243);
        let mut of = |shape: &[usize]| floats(device, DType::F32, shape, &random.floats(shape.iter().product(), 0.0, 1.0));
        let (y, dy) = (of(&[3, 5, 2, 16])?.transpose(0, 1)?, of(&[5, 3, 2, 16])?);
        let dx = ops::masked_softmax_backward(&y, &dy, 2.0)?;
        assert_within(&dx.to_f64()?, &reference::masked_softmax_backward(&y, &dy, 2.0)?, |_| 1e-5, "dx");
        for shape in [[0, 4], [4, 0]] {
            let none = Tensor::zeros(device, DType::BF16, &shape)?;
            assert_eq!(ops::masked_softmax_backward(&none, &none, 1.0)?.shape(), shape);
        }
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let mut random = Random::new(244);
            let x = Layout::Dense.random(device, dtype, [40, 96], (-3.0, 3.0), &mut random)?;
            let y = ops::masked_softmax(&x, &MaskedSoftmax::default())?;
            let dy = Layout::Dense.random(device, dtype, [40, 96], (-2.0, 2.0), &mut random)?;
            let want = reference::masked_softmax_backward(&y, &dy, 0.3)?;
            let got = ops::masked_softmax_backward(&y, &dy, 0.3)?.to_f64()?;
            let step = |value: f64| round(dtype, value);
            let mut plain = vec![];
            for (y, dy) in y.to_f64()?.chunks(96).zip(dy.to_f64()?.chunks(96)) {
                let sum = step(y.iter().zip(dy).map(|(y, dy)| step(y * dy)).sum());
                let scale = f64::from(0.3f32);
                plain.extend(y.iter().zip(dy).map(|(y, dy)| step(scale * step(y * step(dy - sum)))));
            }
            let worst = |dx: &[f64]| dx.iter().zip(&want).map(|(dx, want)| (dx - want).abs()).fold(0.0, f64::max);
            let (got, plain) = (worst(&got), worst(&plain));
            assert!(got <= 2.0 * plain, "{dtype}: {got:e} against {plain:e}");
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let y = zeros(DType::F32, &[2, 3])?;
        let backward = |dy: &Tensor, scale| text(ops::masked_softmax_backward(&y, dy, scale).map(drop));
        let want = "masked_softmax_backward: `dy` must have dtype f32, got bf16";
        assert_eq!(backward(&zeros(DType::BF16, &[2, 3])?, 1.0), want);
        let want = "masked_softmax_backward: `dy` must have shape [2, 3], got [3]";
        assert_eq!(backward(&zeros(DType::F32, &[3])?, 1.0), want);
        assert_eq!(backward(&y, f32::NAN), "masked_softmax_backward: `scale` must be finite, got NaN");
        let want = "masked_softmax_backward: `dx` must have memory apart from the inputs', got strides [3, 1]";
        assert_eq!(text(ops::masked_softmax_backward_into(&y, &y, 1.0, &y)), want);
        assert_eq!(ops::masked_softmax_backward_shape(&y, &y, 1.0)?.shape(), [2, 3]);
        Ok(())
    }
}

/// The reference against differences of the forward reference.
#[test]
fn the_reference_is_the_derivative() -> Result<()> {
    let device = Device::cpu();
    let mut random = Random::new(245);
    let numbers = random.floats(6, -2.0, 2.0);
    let of = |values: &[f32]| Tensor::from_slice(&device, &[1, 6], values);
    let keep = Tensor::from_slice(&device, &[6], &[1u8, 1, 0, 1, 1, 1])?;
    let parameters = MaskedSoftmax { scale: 0.5, mask: Mask::Keep(&keep), causal: None };
    let forward = |x: &Tensor| reference::masked_softmax(x, &parameters);
    let dy = of(&random.floats(6, -1.0, 1.0))?;
    let dys = dy.to_f64()?;
    let y: Vec<f32> = forward(&of(&numbers)?)?.into_iter().map(|y| y as f32).collect();
    let dx = reference::masked_softmax_backward(&of(&y)?, &dy, 0.5)?;
    for j in 0..6 {
        let dot = |by: f32| -> Result<(f64, f64)> {
            let mut numbers = numbers.clone();
            numbers[j] += by;
            let y = forward(&of(&numbers)?)?;
            Ok((y.iter().zip(&dys).map(|(y, dy)| y * dy).sum(), f64::from(numbers[j])))
        };
        let ((up, high), (down, low)) = (dot(1.0 / 64.0)?, dot(-1.0 / 64.0)?);
        assert!(((up - down) / (high - low) - dx[j]).abs() < 1e-4, "{j}");
    }
    Ok(())
}
