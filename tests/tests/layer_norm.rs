//! `layer_norm`, `add_layer_norm` and `rms_norm` against float64.

#[path = "../src/norms.rs"]
mod norms;
#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use norms::{LENGTHS, LONG, U, close, each};
use pointwise::{Layout, SHAPES, round, ulp};
use warpwright::ops::{self, AddLayerNorm, AddLayerNormed, LayerNorm, LayerNormed, RmsNormed};
use warpwright::{DType, Device, Graph, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, first_gpu_apart, floats, on_each_device, poisoned,
};

/// Results that nothing has written: y as `layout` says.
fn outputs(x: &Tensor, layout: Layout) -> Result<LayerNormed> {
    let [rows, cols] = [x.shape()[0], x.shape()[1]];
    let of_rows = || poisoned(x.device(), DType::F32, &[rows], POISON);
    Ok(LayerNormed {
        y: layout.output(x.device(), x.dtype(), [rows, cols])?,
        mean: of_rows()?,
        rstd: of_rows()?,
    })
}

/// Compares with float64, row by row. The mean of n numbers of magnitude m is off by some roundings of m, and x − mean by as
/// much: `off`. The variance is off by some of its own roundings and, in the means of parts, by off·√variance.
#[track_caller]
fn check_normed(x: &Tensor, parameters: &LayerNorm, normed: &LayerNormed, what: &str) -> Result<()> {
    let want = reference::layer_norm(x, parameters)?;
    let what = format!("{what}: {:?}", x.desc());
    let (dtype, cols) = (x.dtype(), x.shape()[1]);
    let xs = x.to_f64()?;
    let weight = each(parameters.weight, cols, 1.0)?;
    let largest = |row: &[f64]| row.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let magnitudes: Vec<f64> = xs.chunks(cols.max(1)).map(largest).collect();
    // A row without columns has none.
    let off = |row: usize| 8.0 * U * magnitudes.get(row).copied().unwrap_or(0.0);
    let relative = |row: usize| 32.0 * U + 4.0 * off(row) * want.rstd[row];
    assert_within(&normed.mean.to_f64()?, &want.mean, off, format!("mean, {what}"));
    assert_within(
        &normed.rstd.to_f64()?,
        &want.rstd,
        |row| want.rstd[row] * relative(row),
        format!("rstd, {what}"),
    );
    let allowed = |i: usize| {
        let (row, w) = (i / cols, weight[i % cols].abs());
        let normal = (xs[i] - want.mean[row]) * want.rstd[row];
        let computed =
            w * (off(row) * want.rstd[row] + normal.abs() * relative(row)) + 4.0 * U * want.y[i].abs();
        computed + 0.51 * ulp(dtype, want.y[i].abs() + computed)
    };
    assert_within(&normed.y.to_f64()?, &want.y, allowed, format!("y, {what}"));
    Ok(())
}

#[track_caller]
fn check(x: &Tensor, parameters: &LayerNorm, output: Layout, what: &str) -> Result<LayerNormed> {
    let normed = outputs(x, output)?;
    ops::layer_norm_into(x, parameters, &normed)?;
    check_normed(x, parameters, &normed, what)?;
    Ok(normed)
}

/// The sum is exact but for one rounding to x's type (in f32 two), and its layer norm has the bits of `layer_norm`.
#[track_caller]
fn check_add(
    [x, residual]: [&Tensor; 2],
    input_bias: Option<&Tensor>,
    parameters: &LayerNorm,
    output: Layout,
    what: &str,
) -> Result<AddLayerNormed> {
    let LayerNormed { y, mean, rstd } = outputs(x, output)?;
    let sum = output.output(x.device(), x.dtype(), [x.shape()[0], x.shape()[1]])?;
    let normed = AddLayerNormed { sum, y, mean, rstd };
    let add = AddLayerNorm { input_bias, ..AddLayerNorm::from(*parameters) };
    ops::add_layer_norm_into(x, residual, &add, &normed)?;
    let want = reference::add_layer_norm(x, residual, &add)?;
    let what = format!("{what}: {:?}", x.desc());
    let allowed = |i: usize| 0.51 * ulp(x.dtype(), want.sum[i]) + 16.0 * U;
    assert_within(&normed.sum.to_f64()?, &want.sum, allowed, format!("sum, {what}"));
    let AddLayerNormed { sum, y, mean, rstd } = normed.clone();
    check_normed(&sum, parameters, &LayerNormed { y, mean, rstd }, &what)?;
    Ok(normed)
}

#[track_caller]
fn check_rms(x: &Tensor, weight: Option<&Tensor>, eps: f32, output: Layout, what: &str) -> Result<RmsNormed> {
    let LayerNormed { y, rstd, .. } = outputs(x, output)?;
    let normed = RmsNormed { y, rstd };
    ops::rms_norm_into(x, weight, eps, &normed)?;
    let want = reference::rms_norm(x, weight, eps)?;
    let what = format!("{what}: {:?}", x.desc());
    assert_within(
        &normed.rstd.to_f64()?,
        &want.rstd,
        |row| want.rstd[row] * 32.0 * U,
        format!("rstd, {what}"),
    );
    let allowed = |i: usize| want.y[i].abs() * 36.0 * U + 0.51 * ulp(x.dtype(), want.y[i]);
    assert_within(&normed.y.to_f64()?, &want.y, allowed, format!("y, {what}"));
    Ok(normed)
}

on_each_device! {
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(200);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let dtype = DTYPES[(turn + i) % 3];
                let x = layout.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
                let of_vector = [Layout::Dense, Layout::Offset(1), Layout::Stepped][i % 3];
                let mut vector = || of_vector.random(device, dtype, [1, shape[1]], (-2.0, 2.0), &mut random)?.squeeze(0);
                let (weight, bias, input_bias) = (vector()?, vector()?, vector()?);
                let parameters = LayerNorm {
                    weight: (turn % 2 == 0).then_some(&weight),
                    bias: ((turn + i) % 3 != 0).then_some(&bias),
                    eps: 1e-5,
                };
                let what = format!("{layout:?}, vectors {of_vector:?}");
                for output in [layout, Layout::Dense] {
                    check(&x, &parameters, output, &what)?;
                    check_rms(&x, parameters.weight, 1e-5, output, &what)?;
                }
                for of_residual in [layout, Layout::Dense] {
                    let residual = of_residual.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                    let input_bias = (i % 2 == 0).then_some(&input_bias);
                    check_add([&x, &residual], input_bias, &parameters, layout, &what)?;
                }
            }
        }
        Ok(())
    }

    /// Around the capacity of each kernel, aligned and not.
    fn every_length_of_rows_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(201);
        for (turn, &cols) in LENGTHS.iter().enumerate() {
            for dtype in DTYPES {
                let rows = if cols < 100 { 9 } else { 2 };
                let layout = [Layout::Dense, Layout::Offset(3)][turn % 2];
                let x = layout.random(device, dtype, [rows, cols], (-6.0, 6.0), &mut random)?;
                let residual = layout.random(device, dtype, [rows, cols], (-6.0, 6.0), &mut random)?;
                let mut vector = || floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0));
                let (weight, bias, input_bias) = (vector()?, vector()?, vector()?);
                let parameters = LayerNorm { weight: Some(&weight), bias: Some(&bias), eps: 1e-5 };
                check(&x, &parameters, layout, "lengths")?;
                check_add([&x, &residual], Some(&input_bias), &parameters, layout, "lengths")?;
                check_rms(&x, Some(&weight), 1e-5, layout, "lengths")?;
            }
        }
        Ok(())
    }

    /// More rows than blocks, of lengths around those that are walked: each block has several, which begin at any place of a pack.
    fn rows_that_are_walked_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(206);
        for (dtype, shape) in [
            (DType::F16, [290, 521]),
            (DType::BF16, [530, 1021]),
            (DType::BF16, [290, 2051]),
            (DType::F16, [290, 4095]),
            (DType::BF16, [300, 4104]),
            (DType::F32, [300, 4100]),
            (DType::F32, [266, 8200]),
            (DType::BF16, [40, 200]),
            (DType::F16, [70, 769]),
            (DType::BF16, [20, 1023]),
            (DType::F32, [17, 4095]),
            (DType::BF16, [9, 8191]),
            (DType::F16, [5, 9001]),
            (DType::F32, [9, 8193]),
            (DType::BF16, [3, 17_000]),
        ] {
            let x = Layout::Dense.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
            let residual = Layout::Dense.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
            let mut vector = || floats(device, dtype, &shape[1..], &random.floats(shape[1], -2.0, 2.0));
            let (weight, bias, input_bias) = (vector()?, vector()?, vector()?);
            let parameters = LayerNorm { weight: Some(&weight), bias: Some(&bias), eps: 1e-5 };
            check(&x, &parameters, Layout::Dense, "walked")?;
            check_add([&x, &residual], Some(&input_bias), &parameters, Layout::Dense, "walked")?;
            check_rms(&x, Some(&weight), 1e-5, Layout::Dense, "walked")?;
        }
        Ok(())
    }

    /// Rows that begin at every place of a pack, of any length, without gaps, with gaps, and behind an offset.
    fn rows_that_begin_at_any_place_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(207);
        for turn in 0..24 {
            let (rows, cols) = (1 + random.below(40) as usize, 500 + random.below(600) as usize);
            let (dtype, layout) = (DTYPES[1 + turn % 2], [Layout::Dense, Layout::Offset(3), Layout::Padded(0, 8)][turn % 3]);
            let x = layout.random(device, dtype, [rows, cols], (-6.0, 6.0), &mut random)?;
            let residual = layout.random(device, dtype, [rows, cols], (-6.0, 6.0), &mut random)?;
            let mut vector = || floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0));
            let (weight, bias, input_bias) = (vector()?, vector()?, vector()?);
            let parameters = LayerNorm { weight: Some(&weight), bias: Some(&bias), eps: 1e-5 };
            check(&x, &parameters, layout, "ragged")?;
            check_add([&x, &residual], Some(&input_bias), &parameters, layout, "ragged")?;
        }
        Ok(())
    }

    fn rows_beyond_a_block_and_beyond_a_cluster_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(202);
        for (dtype, cols) in LONG {
            let layout = [Layout::Dense, Layout::Offset(1)][cols % 2];
            let x = layout.random(device, dtype, [1, cols], (-6.0, 6.0), &mut random)?;
            let weight = floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0))?;
            let parameters = LayerNorm { weight: Some(&weight), bias: Some(&weight), eps: 1e-5 };
            check(&x, &parameters, layout, "long")?;
            check_add([&x, &x], Some(&weight), &parameters, layout, "long")?;
            check_rms(&x, Some(&weight), 1e-5, layout, "long")?;
        }
        Ok(())
    }

    fn leading_dimensions_are_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(203);
        let x = floats(device, DType::F16, &[3, 5, 2, 16], &random.floats(480, -3.0, 3.0))?;
        for x in [x.clone(), x.transpose(0, 2)?, x.transpose(0, 1)?.narrow(3, 3, 9)?, x.transpose(1, 3)?] {
            let parameters = LayerNorm::default();
            let normed = ops::layer_norm(&x, &parameters)?;
            let rows = &x.shape()[..3];
            assert_eq!((normed.y.shape(), normed.mean.shape(), normed.rstd.shape()), (x.shape(), rows, rows));
            let want = reference::layer_norm(&x, &parameters)?;
            assert_within(&normed.y.to_f64()?, &want.y, |_| 2e-3, "y");
            assert_within(&normed.mean.to_f64()?, &want.mean, |_| 1e-6, "mean");
            assert_within(&normed.rstd.to_f64()?, &want.rstd, |_| 1e-5, "rstd");
        }
        let row = x.narrow(0, 0, 1)?.narrow(1, 0, 1)?.narrow(2, 0, 1)?.reshape(&[16])?;
        assert_eq!(ops::layer_norm(&row, &LayerNorm::default())?.mean.shape(), [0usize; 0]);
        Ok(())
    }

    /// 1000 ± 1: Σx² − (Σx)²/n would lose all but a few bits of the variance in f32.
    fn a_large_mean_leaves_the_variance_exact(device: &Device) -> Result<()> {
        let mut random = Random::new(204);
        for cols in [3, 64, 100, 768, 1000, 4096, 20_000] {
            for layout in [Layout::Dense, Layout::Stepped] {
                let x = layout.random(device, DType::F32, [3, cols], (999.0, 1001.0), &mut random)?;
                let parameters = LayerNorm::default();
                let normed = check(&x, &parameters, Layout::Dense, "mean 1000")?;
                let want = reference::layer_norm(&x, &parameters)?;
                assert_within(&normed.rstd.to_f64()?, &want.rstd, |row| want.rstd[row] * 5e-5, format!("{cols}"));
                assert_within(&normed.y.to_f64()?, &want.y, |_| 5e-4, format!("{cols}"));
            }
        }
        let same = floats(device, DType::F32, &[1, 500], &[1000.25; 500])?;
        let normed = ops::layer_norm(&same, &LayerNorm { eps: 1e-12, ..Default::default() })?;
        assert_same(&normed.mean.to_vec::<f32>()?, &[1000.25], "the mean of equal numbers");
        assert_same(&normed.y.to_vec::<f32>()?, &[0.0; 500], "equal numbers");
        Ok(())
    }

    fn empty_tensors_are_fine(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let none = Tensor::zeros(device, dtype, &[0, 9])?;
            let normed = ops::layer_norm(&none, &LayerNorm::default())?;
            assert_eq!((normed.y.shape(), normed.mean.shape()), (&[0usize, 9][..], &[0usize][..]));
            ops::add_layer_norm(&none, &none, &AddLayerNorm::default())?;
            ops::rms_norm(&none, None, 1e-5)?;
            // Rows without columns have numbers nonetheless.
            let x = Tensor::zeros(device, dtype, &[3, 0])?;
            let normed = ops::layer_norm(&x, &LayerNorm { eps: 0.25, ..Default::default() })?;
            assert_same(&normed.mean.to_vec::<f32>()?, &[0.0; 3], "mean");
            assert_within(&normed.rstd.to_f64()?, &[2.0; 3], |_| 1e-6, "rstd");
            assert_within(&ops::rms_norm(&x, None, 0.25)?.rstd.to_f64()?, &[2.0; 3], |_| 1e-6, "rstd");
        }
        Ok(())
    }

    fn a_nan_or_an_infinity_stays_in_its_row(device: &Device) -> Result<()> {
        for (cols, bad) in [(16, f32::NAN), (13, f32::INFINITY), (300, f32::NEG_INFINITY), (5000, f32::NAN)] {
            let mut values: Vec<f32> = (0..4 * cols).map(|i| (i % 7) as f32).collect();
            values[2 * cols + cols / 2] = bad;
            let x = floats(device, DType::F32, &[4, cols], &values)?;
            let normed = ops::layer_norm(&x, &LayerNorm::default())?;
            let nans = |values: Vec<f32>| (0..values.len()).filter(|&i| values[i].is_nan()).collect::<Vec<_>>();
            let row: Vec<usize> = (2 * cols..3 * cols).collect();
            assert_eq!(nans(normed.y.to_vec()?), row, "{cols}");
            assert_eq!((nans(normed.mean.to_vec()?), nans(normed.rstd.to_vec()?)), (vec![2], vec![2]), "{cols}");
            let rms = ops::rms_norm(&x, None, 1e-5)?;
            if bad.is_nan() {
                assert_eq!(nans(rms.y.to_vec()?), row, "{cols}");
            } else {
                assert_eq!(nans(rms.y.to_vec()?), [2 * cols + cols / 2], "{cols}");
                assert_eq!(rms.rstd.to_vec::<f32>()?[2], 0.0);
            }
        }
        Ok(())
    }

    fn the_layer_norm_of_a_sum_has_the_bits_of_the_two_steps(device: &Device) -> Result<()> {
        let mut random = Random::new(205);
        for (dtype, shape) in [(DType::BF16, [5, 768]), (DType::F16, [3, 333]), (DType::F32, [4, 1024])] {
            let x = Layout::Dense.random(device, dtype, shape, (-3.0, 3.0), &mut random)?;
            let residual = Layout::Dense.random(device, dtype, shape, (-3.0, 3.0), &mut random)?;
            let weight = floats(device, dtype, &[shape[1]], &random.floats(shape[1], -2.0, 2.0))?;
            let parameters = LayerNorm { weight: Some(&weight), ..Default::default() };
            let fused = ops::add_layer_norm(&x, &residual, &parameters.into())?;
            let sum = ops::add(&x, &residual)?;
            assert_same(&fused.sum.to_bytes()?, &sum.to_bytes()?, format!("sum, {dtype}"));
            for _ in 0..2 {
                let again = ops::add_layer_norm(&x, &residual, &parameters.into())?;
                assert_same(&again.y.to_bytes()?, &fused.y.to_bytes()?, "again");
            }
            // Other instances may add up in another order.
            check_normed(&sum, &parameters, &ops::layer_norm(&sum, &parameters)?, "steps")?;
        }
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let mut random = Random::new(206);
            let (rows, cols) = (40, 96);
            let x = Layout::Dense.random(device, dtype, [rows, cols], (-4.0, 8.0), &mut random)?;
            let weight = floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0))?;
            let parameters = LayerNorm { weight: Some(&weight), bias: Some(&weight), eps: 1e-5 };
            let want = reference::layer_norm(&x, &parameters)?;
            let got = ops::layer_norm(&x, &parameters)?.y.to_f64()?;
            // x − mean, its square's mean, the quotient, the product, the sum: each rounded, from exact values.
            let (xs, w) = (x.to_f64()?, weight.to_f64()?);
            let step = |value: f64| round(dtype, value);
            let mut plain = Vec::new();
            for row in xs.chunks(cols) {
                let mean = step(row.iter().sum::<f64>() / cols as f64);
                let off: Vec<f64> = row.iter().map(|x| step(x - mean)).collect();
                let variance = step(off.iter().map(|d| step(d * d)).sum::<f64>() / cols as f64);
                let rstd = step(1.0 / step((variance + 1e-5).sqrt()));
                plain.extend(off.iter().zip(&w).map(|(d, w)| step(step(step(d * rstd) * w) + w)));
            }
            let worst = |y: &[f64]| y.iter().zip(&want.y).map(|(y, want)| (y - want).abs()).fold(0.0, f64::max);
            let (got, plain) = (worst(&got), worst(&plain));
            assert!(got <= 2.0 * plain, "{dtype}: {got:e} against {plain:e}");
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[2, 3], &[1.0; 6])?;
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let with = |parameters: LayerNorm| text(ops::layer_norm(&x, &parameters).map(drop));
        for (eps, got) in [(0.0, "0"), (-1e-5, "-0.00001"), (f32::NAN, "NaN"), (f32::INFINITY, "inf"), (1e-39, "0.000000000000000000000000000000000000001")] {
            let want = format!("layer_norm: `eps` must be positive, finite and at least 2^-126, got {got}");
            assert_eq!(with(LayerNorm { eps, ..Default::default() }), want);
        }
        let wrong = zeros(DType::F32, &[2])?;
        let want = "layer_norm: `weight` must have shape [3], got [2]";
        assert_eq!(with(LayerNorm { weight: Some(&wrong), ..Default::default() }), want);
        let wrong = zeros(DType::F16, &[3])?;
        let want = "layer_norm: `bias` must have dtype f32, got f16";
        assert_eq!(with(LayerNorm { bias: Some(&wrong), ..Default::default() }), want);
        let scalar = zeros(DType::F32, &[])?;
        let want = "layer_norm: `x` must have shape [.., N], got []";
        assert_eq!(text(ops::layer_norm(&scalar, &LayerNorm::default()).map(drop)), want);
        let bytes = zeros(DType::U8, &[2, 3])?;
        let want = "rms_norm: `x` must have dtype f32, f16 or bf16, got u8";
        assert_eq!(text(ops::rms_norm(&bytes, None, 1.0).map(drop)), want);
        let want = "rms_norm: `eps` must be positive, finite and at least 2^-126, got 0";
        assert_eq!(text(ops::rms_norm(&x, None, 0.0).map(drop)), want);
        let add = |residual: &Tensor, bias: Option<&Tensor>| {
            let parameters = AddLayerNorm { input_bias: bias, ..Default::default() };
            text(ops::add_layer_norm(&x, residual, &parameters).map(drop))
        };
        let want = "add_layer_norm: `residual` must have shape [2, 3], got [3, 2]";
        assert_eq!(add(&zeros(DType::F32, &[3, 2])?, None), want);
        let want = "add_layer_norm: `input_bias` must have shape [3], got [1, 3]";
        assert_eq!(add(&x.clone(), Some(&zeros(DType::F32, &[1, 3])?)), want);
        let (y, of_rows) = (zeros(DType::F32, &[2, 3])?, || zeros(DType::F32, &[2]));
        let into = |y: &Tensor, mean: &Tensor, rstd: &Tensor| {
            let normed = LayerNormed { y: y.clone(), mean: mean.clone(), rstd: rstd.clone() };
            text(ops::layer_norm_into(&x, &LayerNorm::default(), &normed))
        };
        let want = "layer_norm: `y` must have memory apart from the inputs', got strides [3, 1]";
        assert_eq!(into(&x, &of_rows()?, &of_rows()?), want);
        let mean = of_rows()?;
        let want = "layer_norm: `rstd` must have memory apart from the inputs', got strides [1]";
        assert_eq!(into(&y, &mean, &mean), want);
        let want = "layer_norm: `mean` must have shape [2], got [3]";
        assert_eq!(into(&y, &zeros(DType::F32, &[3])?, &of_rows()?), want);
        let want = "layer_norm: `mean` must have dtype f32, got f16";
        assert_eq!(into(&y, &zeros(DType::F16, &[2])?, &of_rows()?), want);
        Ok(())
    }

    fn shapes_are_known_without_computing(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::BF16, &[4, 3, 8])?;
        let shape = ops::add_layer_norm_shape(&x, &x, &AddLayerNorm::default())?;
        assert_eq!((shape.sum.shape(), shape.y.dtype(), shape.mean.shape()), (x.shape(), DType::BF16, &[4usize, 3][..]));
        assert_eq!(ops::rms_norm_shape(&x, None, 1.0)?.rstd.dtype(), DType::F32);
        Ok(())
    }
}

/// The reference itself.
#[test]
fn the_reference_agrees_with_closed_forms() -> Result<()> {
    let x = Tensor::from_slice(&Device::cpu(), &[1, 4], &[1.0f32, 2.0, 3.0, 4.0])?;
    let want = reference::layer_norm(&x, &LayerNorm { eps: 0.75, ..Default::default() })?;
    close(want.mean[0], 2.5, 1e-15);
    close(want.rstd[0], 1.0 / 2.0f64.sqrt(), 1e-15);
    close(want.y[3], 1.5 / 2.0f64.sqrt(), 1e-15);
    close(reference::rms_norm(&x, None, 0.5)?.rstd[0], 1.0 / 8.0f64.sqrt(), 1e-15);
    Ok(())
}

#[test]
fn a_replay_gives_the_bits_of_the_eager_call() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_gives_the_bits_of_the_eager_call")? else { return Ok(()) };
    let mut random = Random::new(207);
    let x = Layout::Dense.random(&device, DType::BF16, [3000, 768], (-6.0, 6.0), &mut random)?;
    let want = ops::add_layer_norm(&x, &x, &AddLayerNorm::default())?;
    let LayerNormed { y, mean, rstd } = outputs(&x, Layout::Dense)?;
    let sum = poisoned(&device, DType::BF16, &[3000, 768], POISON)?;
    let normed = AddLayerNormed { sum, y, mean, rstd };
    let (graph, ()) =
        Graph::capture(&device, |_| ops::add_layer_norm_into(&x, &x, &AddLayerNorm::default(), &normed))?;
    for _ in 0..3 {
        graph.launch()?;
        assert_same(&normed.y.to_bytes()?, &want.y.to_bytes()?, "y");
        assert_same(&normed.sum.to_bytes()?, &want.sum.to_bytes()?, "sum");
    }
    Ok(())
}
