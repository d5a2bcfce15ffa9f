//! `ops::attention_scores` against float64: shapes, broadcasts, strides, masks, types, values at the edges.

use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, floats, on_each_device, poisoned,
};

fn uniform(device: &Device, dtype: DType, shape: &[usize], random: &mut Random) -> Result<Tensor> {
    floats(device, dtype, shape, &random.floats(shape.iter().product(), -1.0, 1.0))
}

/// Wants what float64 gives, of operands within ±1; twice the same bits.
fn check(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax, what: &str) -> Result<Tensor> {
    let want = reference::attention_scores(q, k, parameters)?;
    let shape = ops::attention_scores_shape(q, k, parameters)?;
    let y = poisoned(q.device(), shape.dtype(), shape.shape(), POISON)?;
    ops::attention_scores_into(q, k, parameters, &y)?;
    let half_bit = match q.dtype() {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 2f64.powi(-22),
    };
    // A score is rounded to its type, which moves the exponential by as much as a share of it, and the sum likewise; the
    // result is rounded once more.
    let terms = q.shape()[q.rank() - 1] as f64;
    let score = f64::from(parameters.scale.abs()) * terms;
    let allowed = |i: usize| want[i] * half_bit * (2.0 * score + 2.0) + 2f64.powi(-20);
    assert_within(&y.to_f64()?, &want, allowed, format!("{what}: {:?}·{:?}", q.desc(), k.desc()));
    assert_same(&ops::attention_scores(q, k, parameters)?.to_bytes()?, &y.to_bytes()?, what);
    Ok(y)
}

on_each_device! {
    fn every_shape_and_type_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(140);
        for dtype in DTYPES {
            for (front, s, t, d) in [
                (&[][..], 1, 1, 1), (&[], 3, 5, 8), (&[2], 17, 33, 20), (&[2, 3], 24, 40, 16), (&[1, 2], 65, 130, 64), (&[2], 0, 4, 3), (&[2], 4, 0, 3),
            ] {
                let of = |rows: usize| -> Vec<usize> { front.iter().copied().chain([rows, d]).collect() };
                let (q, k) = (uniform(device, dtype, &of(s), &mut random)?, uniform(device, dtype, &of(t), &mut random)?);
                let parameters = MaskedSoftmax { scale: 1.0 / (d as f32).sqrt(), ..MaskedSoftmax::default() };
                check(&q, &k, &parameters, "shape")?;
            }
        }
        Ok(())
    }

    /// BERT's padding mask, a causal limit, lengths and biases, as the softmax has them; keys without heads of their own.
    fn masks_are_those_of_the_softmax(device: &Device) -> Result<()> {
        let mut random = Random::new(141);
        let (batch, heads, s, t, d) = (2, 3, 9, 24, 8);
        for dtype in [DType::F32, DType::BF16] {
            let q = uniform(device, dtype, &[batch, heads, s, d], &mut random)?;
            let k = uniform(device, dtype, &[batch, 1, t, d], &mut random)?;
            let bytes: Vec<u8> = (0..batch * t).map(|i| u8::from(i % t < 5 + 7 * (i / t))).collect();
            let keep = Tensor::from_slice(device, &[batch, 1, 1, t], &bytes)?;
            let bias = uniform(device, dtype, &[heads, s, t], &mut random)?;
            let lengths = Tensor::from_slice(device, &[batch, 1, 1], &[t as i32, 0])?;
            let masks = [
                Mask::None, Mask::Keep(&keep), Mask::Drop(&keep), Mask::Bias(&bias),
                Mask::Range { lengths: Some(&lengths), starts: None },
            ];
            for (i, mask) in masks.into_iter().enumerate() {
                for causal in [None, Some(Causal::BottomRight), Some(Causal::Offset(2))] {
                    let parameters = MaskedSoftmax { scale: -0.5, mask, causal };
                    let y = check(&q, &k, &parameters, &format!("mask {i}, {causal:?}"))?.to_f64()?;
                    let masked = y.iter().filter(|&&p| p == 0.0).count();
                    assert_eq!(masked > 0, i == 1 || i == 2 || i == 4 || causal.is_some(), "mask {i}, {causal:?}");
                }
            }
        }
        Ok(())
    }

    fn strides_are_any_and_heads_need_no_copy(device: &Device) -> Result<()> {
        let mut random = Random::new(142);
        // [B, S, H, D], seen as [B, H, S, D].
        let q = uniform(device, DType::F16, &[2, 10, 3, 16], &mut random)?.transpose(1, 2)?;
        let k = uniform(device, DType::F16, &[2, 12, 3, 16], &mut random)?.transpose(1, 2)?;
        check(&q, &k, &MaskedSoftmax { scale: 0.25, ..Default::default() }, "heads")?;
        Ok(())
    }

    /// NaN in a query stays in its row, whatever the scale; infinite scores make NaN rows.
    fn what_is_not_finite_shows(device: &Device) -> Result<()> {
        let q = floats(device, DType::F32, &[3, 2], &[f32::NAN, 1.0, 1.0, 1.0, f32::INFINITY, 1.0])?;
        let k = floats(device, DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
        for scale in [1.0, 0.0] {
            let y = ops::attention_scores(&q, &k, &MaskedSoftmax { scale, ..Default::default() })?.to_vec::<f32>()?;
            assert!(y[..2].iter().chain(&y[4..]).all(|p| p.is_nan()), "{y:?}");
            assert!((y[2] + y[3] - 1.0).abs() < 1e-6, "{y:?}");
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let of = |shape: &[usize]| Tensor::zeros(device, DType::F32, shape);
        let text = |q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax| {
            ops::attention_scores(q, k, parameters).unwrap_err().to_string()
        };
        let plain = MaskedSoftmax::default();
        let (q, k) = (of(&[2, 3, 4])?, of(&[2, 5, 4])?);
        assert_eq!(text(&q, &of(&[2, 5, 3])?, &plain), "attention_scores: `k` must have shape [.., N, 4], got [2, 5, 3]");
        let infinite = MaskedSoftmax { scale: f32::INFINITY, ..plain };
        assert_eq!(text(&q, &k, &infinite), "attention_scores: `scale` must be finite, got inf");
        let keep = Tensor::zeros(device, DType::U8, &[6])?;
        let error = text(&q, &k, &MaskedSoftmax { mask: Mask::Keep(&keep), ..plain });
        assert!(error.starts_with("attention_scores: `keep` must"), "{error}");
        Ok(())
    }
}
