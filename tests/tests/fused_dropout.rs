//! Dropout fused with `masked_softmax` and `add_layer_norm`: the same elements are dropped as by `dropout` alone.

#[path = "../src/norms.rs"]
#[allow(dead_code)]
mod norms;
#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use norms::U;
use pointwise::{Layout, SHAPES, ulp};
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{
    self, AddLayerNorm, AddLayerNormBackward, AddLayerNormGradients, AddLayerNormed, Dropout, DroppedSoftmax,
    LayerNorm, Mask, MaskedSoftmax,
};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, floats, on_each_device, poisoned,
};

const DROPOUT: Dropout = Dropout { p: 0.3, seed: 0x1234_5678_9abc, offset: 7 };

/// Columns: each form of kernel, whole packs, whole groups of four and neither.
const COLUMNS: [usize; 12] = [1, 4, 16, 77, 100, 256, 385, 1000, 1023, 2056, 8200, 20_003];

/// y has the bits of `dropout(probabilities)`, and these are those of a masked softmax.
#[track_caller]
fn check_softmax(
    x: &Tensor,
    parameters: &MaskedSoftmax,
    output: Layout,
    what: &str,
) -> Result<DroppedSoftmax> {
    let what = format!("{what}: {:?}", x.desc());
    let shape = [x.shape()[0], x.shape()[1]];
    let result = || output.output(x.device(), x.dtype(), shape);
    let of = DroppedSoftmax { y: result()?, probabilities: result()? };
    ops::masked_softmax_dropout_into(x, parameters, DROPOUT, &of)?;
    let want = reference::masked_softmax(x, parameters)?;
    let allowed = |i: usize| 1e-5 * want[i] + ulp(x.dtype(), want[i]) + 1e-38;
    assert_within(&of.probabilities.to_f64()?, &want, allowed, format!("probabilities, {what}"));
    let dropped = ops::dropout(&of.probabilities, DROPOUT)?;
    assert_same(&of.y.to_bytes()?, &dropped.to_bytes()?, format!("y, {what}"));
    Ok(of)
}

on_each_device! {
    fn softmax_drops_what_dropout_of_its_probabilities_would(device: &Device) -> Result<()> {
        let mut random = Random::new(400);
        for (turn, cols) in COLUMNS.into_iter().enumerate() {
            for dtype in DTYPES {
                let shape = [if cols < 500 { 9 } else { 2 }, cols];
                let layout = [Layout::Dense, Layout::Offset(3), Layout::Offset(8)][turn % 3];
                let x = layout.random(device, dtype, shape, (-4.0, 4.0), &mut random)?;
                check_softmax(&x, &MaskedSoftmax::default(), layout, "unmasked")?;
                let bytes: Vec<u8> = (0..cols).map(|j| u8::from(j % 3 != 1)).collect();
                let keep = Tensor::from_slice(device, &[cols], &bytes)?;
                let masked = MaskedSoftmax { scale: -0.5, mask: Mask::Keep(&keep), causal: None };
                check_softmax(&x, &masked, Layout::Dense, "keep")?;
                let bias = floats(device, dtype, &shape, &random.floats(shape[0] * cols, -2.0, 2.0))?;
                check_softmax(&x, &MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() }, layout, "bias")?;
                let causal = MaskedSoftmax { causal: Some(Causal::Offset(1)), ..Default::default() };
                check_softmax(&x, &causal, Layout::Dense, "causal")?;
            }
        }
        Ok(())
    }

    fn every_layout_of_scores_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(401);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let x = layout.random(device, DTYPES[(turn + i) % 3], shape, (-4.0, 4.0), &mut random)?;
                check_softmax(&x, &MaskedSoftmax::default(), layout, &format!("{layout:?}"))?;
            }
        }
        Ok(())
    }

    fn a_row_that_is_nan_is_dropped_from_too(device: &Device) -> Result<()> {
        let mut values = vec![0.5f32; 2 * 40];
        values[3] = f32::NAN;
        let x = floats(device, DType::F32, &[2, 40], &values)?;
        let of = ops::masked_softmax_dropout(&x, &MaskedSoftmax::default(), DROPOUT)?;
        let (y, probabilities) = (of.y.to_vec::<f32>()?, of.probabilities.to_vec::<f32>()?);
        assert!(probabilities[..40].iter().all(|p| p.is_nan()) && probabilities[40..].iter().all(|&p| p == 0.025));
        let kept: Vec<bool> = ops::dropout(&floats(device, DType::F32, &[2, 40], &[1.0; 80])?, DROPOUT)?
            .to_vec::<f32>()?
            .iter()
            .map(|&one| one != 0.0)
            .collect();
        for (i, (y, kept)) in y.iter().zip(kept).enumerate() {
            assert_eq!(y.is_nan(), kept && i < 40, "{i}: {y}");
            assert_eq!(*y == 0.0, !kept, "{i}: {y}");
        }
        Ok(())
    }

    fn nothing_and_everything_may_be_dropped(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[3, 10], &Random::new(402).floats(30, -2.0, 2.0))?;
        let plain = ops::masked_softmax(&x, &MaskedSoftmax::default())?.to_bytes()?;
        let of = |p| ops::masked_softmax_dropout(&x, &MaskedSoftmax::default(), Dropout { p, ..DROPOUT });
        assert_same(&of(0.0)?.y.to_bytes()?, &plain, "p = 0");
        let all = of(1.0)?;
        assert_same(&all.y.to_vec::<f32>()?, &[0.0; 30], "p = 1");
        assert_same(&all.probabilities.to_bytes()?, &plain, "p = 1, probabilities");
        let empty = Tensor::zeros(device, DType::BF16, &[0, 7])?;
        assert!(ops::masked_softmax_dropout(&empty, &MaskedSoftmax::default(), DROPOUT)?.y.is_empty());
        let want = "masked_softmax: `p` must be in 0..=1, got 1.5";
        assert_eq!(of(1.5).expect_err("no probability").to_string(), want);
        let want = "masked_softmax_backward: `p` must be in 0..=1, got -1";
        let bad = Dropout { p: -1.0, ..DROPOUT };
        let error = ops::masked_softmax_dropout_backward(&x, &x, 1.0, bad).expect_err("no probability");
        assert_eq!(error.to_string(), want);
        let other = Tensor::zeros(device, DType::F32, &[3, 10])?;
        let same = DroppedSoftmax { y: other.clone(), probabilities: other };
        let error = ops::masked_softmax_dropout_into(&x, &MaskedSoftmax::default(), DROPOUT, &same);
        let want = "masked_softmax: `probabilities` must have memory apart from the inputs', got strides [10, 1]";
        assert_eq!(error.expect_err("one memory for two results").to_string(), want);
        Ok(())
    }

    fn the_gradient_of_softmax_knows_what_was_dropped(device: &Device) -> Result<()> {
        let mut random = Random::new(403);
        for (turn, cols) in COLUMNS.into_iter().enumerate() {
            for dtype in DTYPES {
                let shape = [if cols < 500 { 9 } else { 2 }, cols];
                let layout = [Layout::Dense, Layout::Offset(3), Layout::Offset(4), Layout::Stepped][turn % 4];
                let y = layout.random(device, dtype, shape, (0.0, 1.0), &mut random)?;
                let dy = layout.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                let dx = layout.output(device, dtype, shape)?;
                ops::masked_softmax_dropout_backward_into(&y, &dy, 0.75, DROPOUT, &dx)?;
                let want = reference::masked_softmax_dropout_backward(&y, &dy, 0.75, DROPOUT)?;
                let (ys, dys) = (y.to_f64()?, dy.to_f64()?);
                let magnitude: Vec<f64> = ys
                    .chunks(cols)
                    .zip(dys.chunks(cols))
                    .map(|(y, dy)| y.iter().zip(dy).map(|(y, dy)| (y * dy / 0.7).abs()).sum())
                    .collect();
                // Scaled gradients are rounded to their type first.
                let allowed = |i: usize| {
                    let rounded = 0.51 * ulp(dtype, dys[i] / 0.7) + 0.51 * ulp(dtype, 2.9) * magnitude[i / cols];
                    ys[i] * (U * 60.0 * magnitude[i / cols] + 4.0 * U * dys[i].abs() + rounded)
                        + 0.51 * ulp(dtype, want[i])
                };
                assert_within(&dx.to_f64()?, &want, allowed, format!("{:?}", y.desc()));
            }
        }
        Ok(())
    }

    fn add_layer_norm_drops_before_it_adds(device: &Device) -> Result<()> {
        let mut random = Random::new(404);
        for (turn, cols) in COLUMNS.into_iter().enumerate() {
            for dtype in DTYPES {
                let shape = [if cols < 500 { 9 } else { 2 }, cols];
                let layout = [Layout::Dense, Layout::Offset(3), Layout::Offset(4), Layout::Stepped][turn % 4];
                let x = layout.random(device, dtype, shape, (-4.0, 4.0), &mut random)?;
                let residual = layout.random(device, dtype, shape, (-4.0, 4.0), &mut random)?;
                let mut vector = || floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0));
                let (weight, input_bias) = (vector()?, vector()?);
                let norm = LayerNorm { weight: Some(&weight), ..Default::default() };
                let with_bias = turn % 2 == 0;
                let parameters =
                    AddLayerNorm { input_bias: with_bias.then_some(&input_bias), dropout: Some(DROPOUT), norm };
                let result = || layout.output(device, dtype, shape);
                let of_rows = || poisoned(device, DType::F32, &[shape[0]], POISON);
                let normed = AddLayerNormed { sum: result()?, y: result()?, mean: of_rows()?, rstd: of_rows()? };
                ops::add_layer_norm_into(&x, &residual, &parameters, &normed)?;
                let want = reference::add_layer_norm(&x, &residual, &parameters)?;
                let what = format!("{:?}", x.desc());
                let allowed = |i: usize| 0.51 * ulp(dtype, want.sum[i]) + 32.0 * U;
                assert_within(&normed.sum.to_f64()?, &want.sum, allowed, format!("sum, {what}"));
                let of_sum = reference::layer_norm(&normed.sum, &norm)?;
                let allowed = |i: usize| {
                    0.51 * ulp(dtype, of_sum.y[i]) + 200.0 * U * (1.0 + of_sum.y[i].abs() + of_sum.rstd[i / cols])
                };
                assert_within(&normed.y.to_f64()?, &of_sum.y, allowed, format!("y, {what}"));
            }
        }
        Ok(())
    }

    fn gradients_of_add_layer_norm_go_where_they_belong(device: &Device) -> Result<()> {
        let mut random = Random::new(405);
        for (dtype, shape, dropout) in [
            (DType::F32, [70, 48], Some(DROPOUT)),
            (DType::BF16, [33, 768], Some(DROPOUT)),
            (DType::F16, [9, 385], Some(DROPOUT)),
            (DType::F32, [40, 1000], None),
            (DType::BF16, [5, 64], Some(Dropout { p: 0.0, ..DROPOUT })),
        ] {
            let [rows, cols] = shape;
            let x = Layout::Dense.random(device, dtype, shape, (-3.0, 3.0), &mut random)?;
            let residual = Layout::Dense.random(device, dtype, shape, (-3.0, 3.0), &mut random)?;
            let dy = Layout::Dense.random(device, dtype, shape, (-1.0, 1.0), &mut random)?;
            let weight = floats(device, dtype, &[cols], &random.floats(cols, -2.0, 2.0))?;
            let norm = LayerNorm { weight: Some(&weight), ..Default::default() };
            let normed = ops::add_layer_norm(&x, &residual, &AddLayerNorm { input_bias: None, dropout, norm })?;
            let parameters =
                AddLayerNormBackward { dsum: Some(&residual), weight: Some(&weight), dropout, input_bias: true };
            let AddLayerNormed { sum, mean, rstd, .. } = &normed;
            let got = ops::add_layer_norm_backward(sum, &dy, mean, rstd, &parameters)?;
            let want = reference::add_layer_norm_backward(sum, &dy, mean, rstd, &parameters)?;
            let drops = dropout.is_some_and(|dropout| dropout.p > 0.0);
            assert_eq!((got.dresidual.is_some(), want.dresidual.is_some()), (drops, drops));
            let near = |want: &[f64]| {
                let want = want.to_vec();
                move |i: usize| 2e-4 + 1.6 * ulp(dtype, want[i])
            };
            assert_within(&got.dx.to_f64()?, &want.dx, near(&want.dx), format!("dx, {dtype} {shape:?}"));
            if let (Some(got), Some(want)) = (&got.dresidual, &want.dresidual) {
                assert_within(&got.to_f64()?, want, near(want), format!("dresidual, {dtype} {shape:?}"));
            }
            let (got, want) = (got.dinput_bias.expect("asked for"), want.dinput_bias.expect("asked for"));
            // Sums of what was rounded.
            let allowed = |j: usize| rows as f64 * (2e-4 + 0.51 * ulp(dtype, 8.0)) + ulp(dtype, want[j]);
            assert_within(&got.to_f64()?, &want, allowed, format!("dinput_bias, {dtype} {shape:?}"));
        }
        Ok(())
    }

    fn gradients_that_are_asked_for_must_be_given(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[2, 4])?;
        let rows = Tensor::zeros(device, DType::F32, &[2])?;
        let gradients = AddLayerNormGradients {
            dx: Tensor::zeros(device, DType::F32, &[2, 4])?,
            dresidual: None,
            dinput_bias: None,
            dweight: Tensor::zeros(device, DType::F32, &[4])?,
            dbias: Tensor::zeros(device, DType::F32, &[4])?,
        };
        let text = |parameters: AddLayerNormBackward| {
            let result = ops::add_layer_norm_backward_into(&x, &x, &rows, &rows, &parameters, &gradients);
            result.expect_err("a gradient is missing").to_string()
        };
        let with_bias = AddLayerNormBackward { input_bias: true, ..Default::default() };
        assert!(text(with_bias).contains("`dinput_bias`"), "{}", text(with_bias));
        let with_dropout = AddLayerNormBackward { dropout: Some(DROPOUT), ..Default::default() };
        assert!(text(with_dropout).contains("`dresidual`"), "{}", text(with_dropout));
        Ok(())
    }
}
