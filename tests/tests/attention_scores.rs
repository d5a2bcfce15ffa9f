//! `ops::attention_scores` against float64: shapes, broadcasts, strides, masks, types, values at the edges.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, Masking};
use warpwright::ops::attention_scores::{By, Choice, attention_scores_into_by, candidates};
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Error, Graph, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, apart, assert_same, assert_within, first_gpu_apart, floats, on_each_device,
    poisoned,
};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];
/// More than there are.
const INSTANCES: usize = 32;

fn uniform(device: &Device, dtype: DType, shape: &[usize], random: &mut Random) -> Result<Tensor> {
    floats(device, dtype, shape, &random.floats(shape.iter().product(), -1.0, 1.0))
}

/// The results of each instance that can serve, preferred or not.
fn by_each_kernel(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax) -> Result<Vec<(Choice, Tensor)>> {
    let shape = ops::attention_scores_shape(q, k, parameters)?;
    let mut results = Vec::new();
    for (by, index) in
        [By::Warps, By::Warpgroups].into_iter().flat_map(|by| (0..INSTANCES).map(move |index| (by, index)))
    {
        let y = poisoned(q.device(), shape.dtype(), shape.shape(), POISON)?;
        let choice = Choice::WholeRows { by, index };
        match attention_scores_into_by(choice, q, k, parameters, &y) {
            Ok(()) => results.push((choice, y)),
            Err(Error::Parameter { arg: "choice", .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(results)
}

/// How many serve whole packs of up to 384 keys without a bias: two on Hopper.
fn kernels_of(device: &Device) -> usize {
    if device.info().is_none_or(|info| info.arch == (9, 0)) { 2 } else { 1 }
}

/// Whether one kernel can do it all.
fn can_be_one_kernel(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax) -> Result<bool> {
    Ok(!by_each_kernel(q, k, parameters)?.is_empty())
}

/// Whether an instance of this kernel can serve.
fn serves(who: By, q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax) -> Result<bool> {
    let plans = candidates(q, k, parameters)?;
    Ok(plans.iter().any(|plan| matches!(plan.choice(), Choice::WholeRows { by, .. } if by == who)))
}

/// Wants what float64 gives, of operands within ±1, of every way that can serve; twice the same bits.
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
    for (choice, y) in by_each_kernel(q, k, parameters)? {
        assert_within(
            &y.to_f64()?,
            &want,
            allowed,
            format!("{what} by {choice:?}: {:?}·{:?}", q.desc(), k.desc()),
        );
    }
    assert_same(&ops::attention_scores(q, k, parameters)?.to_bytes()?, &y.to_bytes()?, what);
    Ok(y)
}

/// The mask with a dimension in front of that of the queries, where it has none of the heads.
fn over_heads(masking: Masking) -> Result<Masking> {
    masking.map(|tensor| tensor.unsqueeze(1))
}

on_each_device! {
    /// At the edges of what each instance has room for, of one tile and of several, with terms that end inside a slice.
    fn every_instance_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(143);
        let rooms = [1, 8, 63, 64, 72, 120, 128, 136, 250, 256, 264, 383, 384, 385, 392, 512, 1000, 1024];
        for (i, keys) in rooms.into_iter().enumerate() {
            let dtype = HALVES[i % 2];
            let (queries, terms) = ([3, 70, 17, 193][i % 4], [64, 40, 16, 72, 136][i % 5]);
            let q = uniform(device, dtype, &[2, queries, terms], &mut random)?;
            let k = uniform(device, dtype, &[2, keys, terms], &mut random)?;
            let bias = uniform(device, [dtype, DType::F32][i / 2 % 2], &[queries, keys], &mut random)?;
            let of_keys = bias.narrow(0, 0, 1)?;
            for (form, mask) in [Mask::None, Mask::Bias(&bias), Mask::Bias(&of_keys)].into_iter().enumerate() {
                let parameters = MaskedSoftmax { scale: 0.2, mask, causal: None };
                let fused = can_be_one_kernel(&q, &k, &parameters)?;
                let by_warpgroups = keys <= 384 && form != 1 && kernels_of(device) == 2;
                assert_eq!(serves(By::Warpgroups, &q, &k, &parameters)?, by_warpgroups, "{keys} keys");
                assert_eq!(serves(By::Warps, &q, &k, &parameters)?, keys % 8 == 0, "{keys} keys");
                assert_eq!(fused, keys % 8 == 0 || by_warpgroups, "{keys} keys");
                check(&q, &k, &parameters, &format!("{keys} keys"))?;
            }
        }
        Ok(())
    }

    /// Every form of mask, over heads, queries and rows of keys that are whole packs or are not, with a causal limit or without.
    fn every_mask_broadcasts(device: &Device) -> Result<()> {
        let mut random = Random::new(144);
        let (batch, heads, queries) = (2, 2, 35);
        for (case, form) in Form::ALL.into_iter().enumerate() {
            for (turn, keys) in [(0, 136), (1, 45)] {
                let dtype = HALVES[(case + turn) % 2];
                let q = uniform(device, dtype, &[batch, heads, queries, 24], &mut random)?;
                let k = uniform(device, dtype, &[batch, heads, keys, 24], &mut random)?;
                let dense = form.random(device, dtype, keys, &[batch, queries, keys], &mut random)?;
                let of_keys = form.random(device, dtype, keys, &[batch, 1, keys], &mut random)?;
                for masking in [over_heads(dense)?, over_heads(of_keys)?] {
                    for causal in [None, Some(Causal::BottomRight), Some(Causal::Offset(-3))] {
                        let parameters = MaskedSoftmax { scale: -0.3, mask: masking.mask(), causal };
                        check(&q, &k, &parameters, &format!("{form:?}, {keys} keys, {causal:?}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Each way gives what float64 gives, and one kernel is no further from it than twice what rounded scores are.
    fn one_kernel_is_at_least_as_exact_as_two(device: &Device) -> Result<()> {
        let mut random = Random::new(145);
        for dtype in HALVES {
            let q = floats(device, dtype, &[2, 40, 64], &random.floats(2 * 40 * 64, -3.0, 3.0))?;
            let k = floats(device, dtype, &[2, 200, 64], &random.floats(2 * 200 * 64, -3.0, 3.0))?;
            let parameters = MaskedSoftmax { scale: 0.125, ..Default::default() };
            let want = reference::attention_scores(&q, &k, &parameters)?;
            let error = |choice: Choice| -> Result<f64> {
                let y = poisoned(device, dtype, &[2, 40, 200], POISON)?;
                attention_scores_into_by(choice, &q, &k, &parameters, &y)?;
                let off = y.to_f64()?.into_iter().zip(&want).map(|(got, want)| (got - want).abs() / want);
                Ok(off.fold(0.0, f64::max))
            };
            let steps = error(Choice::Steps)?;
            let half_bit = if dtype == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-8) };
            for plan in candidates(&q, &k, &parameters)? {
                if plan.choice() != Choice::Steps {
                    let one = error(plan.choice())?;
                    // The result's own rounding, and the powers' of 2; the smallest of f16 are subnormal.
                    assert!(one <= 2.0 * steps && (dtype == DType::F16 || one <= 1.01 * half_bit), "{one} {steps}");
                }
            }
        }
        Ok(())
    }

    fn strides_and_padded_rows_need_no_copy(device: &Device) -> Result<()> {
        let mut random = Random::new(146);
        let parameters = MaskedSoftmax { scale: 0.25, ..Default::default() };
        // Rows of 20 in 24, heads behind tokens; every second key; one query.
        let q = uniform(device, DType::BF16, &[2, 33, 3, 24], &mut random)?.narrow(-1, 0, 20)?.transpose(1, 2)?;
        let k = uniform(device, DType::BF16, &[2, 48, 3, 24], &mut random)?.narrow(-1, 0, 20)?.transpose(1, 2)?;
        assert!(can_be_one_kernel(&q, &k, &parameters)?);
        check(&q, &k, &parameters, "padded")?;
        check(&q, &k.step(2, 2)?, &parameters, "every second")?;
        check(&q.narrow(2, 5, 1)?, &k, &parameters, "one query")?;
        let bias = uniform(device, DType::F32, &[33, 48], &mut random)?.narrow(0, 7, 1)?;
        check(&q.narrow(2, 5, 1)?, &k, &MaskedSoftmax { mask: Mask::Bias(&bias), ..parameters }, "one query's bias")?;
        // A mask whose rows and columns are apart, and one that starts inside a pack.
        let bytes: Vec<u8> = (0..33 * 96).map(|i| u8::from(i % 7 != 2)).collect();
        let keep = Tensor::from_slice(device, &[33, 96], &bytes)?;
        for mask in [keep.step(1, 2)?, keep.narrow(1, 3, 48)?, keep.narrow(1, 8, 48)?] {
            check(&q, &k, &MaskedSoftmax { mask: Mask::Keep(&mask), ..parameters }, "mask")?;
        }
        // What the kernel does not take: rows anywhere, terms apart, three dimensions in front.
        let odd = uniform(device, DType::BF16, &[2, 3, 33, 20], &mut random)?;
        assert!(!can_be_one_kernel(&odd, &k, &parameters)?);
        check(&odd, &k, &parameters, "rows anywhere")?;
        let turned = uniform(device, DType::BF16, &[2, 3, 20, 32], &mut random)?.transpose(-1, -2)?;
        check(&turned, &k, &parameters, "terms apart")?;
        let of = |shape: &[usize], random: &mut Random| uniform(device, DType::F16, shape, random);
        let (a, b) = (of(&[2, 2, 2, 5, 8], &mut random)?, of(&[2, 1, 2, 16, 8], &mut random)?);
        assert!(!can_be_one_kernel(&a, &b, &parameters)?);
        check(&a, &b, &parameters, "three in front")?;
        Ok(())
    }

    /// Rows that are not whole packs, from any element of a pack on: nothing beside them is written.
    fn results_begin_anywhere(device: &Device) -> Result<()> {
        let mut random = Random::new(150);
        let (shape, keys) = ([2, 69, 45], 45);
        let count = shape.iter().product::<usize>();
        let q = uniform(device, DType::F16, &[2, 69, 24], &mut random)?;
        let k = uniform(device, DType::F16, &[2, keys, 24], &mut random)?;
        let bytes: Vec<u8> = (0..69 * keys).map(|i| u8::from(i % 5 != 1)).collect();
        let keep = Tensor::from_slice(device, &[69, keys], &bytes)?;
        for (offset, mask) in (0..9).flat_map(|offset| [(offset, Mask::None), (offset, Mask::Keep(&keep))]) {
            let parameters = MaskedSoftmax { scale: 0.3, mask, causal: None };
            let all = poisoned(device, DType::F16, &[count + 16], POISON)?;
            let y = all.narrow(0, offset, count)?.reshape(&shape)?;
            ops::attention_scores_into(&q, &k, &parameters, &y)?;
            let want = ops::attention_scores(&q, &k, &parameters)?.to_bytes()?;
            let got = all.to_bytes()?;
            assert_same(&got[2 * offset..][..want.len()], &want, format!("from element {offset} on"));
            let beside = got[..2 * offset].iter().chain(&got[2 * offset + want.len()..]);
            assert!(beside.copied().all(|byte| byte == POISON), "from element {offset} on");
        }
        Ok(())
    }

    /// As the softmax has them, in rows of one warp's keys and of another's.
    fn what_is_not_finite_shows_in_one_kernel_too(device: &Device) -> Result<()> {
        let (queries, keys) = (6, 104);
        for dtype in HALVES {
            let mut q = vec![1.0f32; queries * 8];
            q[8] = f32::NAN; // row 1
            let mut k: Vec<f32> = (0..keys * 8).map(|i| (i % 5) as f32 / 8.0).collect();
            (k[90 * 8], k[70 * 8]) = (f32::INFINITY, f32::NEG_INFINITY);
            let (q, k) = (floats(device, dtype, &[queries, 8], &q)?, floats(device, dtype, &[keys, 8], &k)?);
            // Row 0 keeps the infinity, 2 has it masked, 3 keeps nothing, 4 the negative infinity alone, 5 that and others.
            let kept = |row: usize, key: usize| match row {
                0 | 1 => key != 3,
                2 => key != 90,
                3 => false,
                4 => key == 70,
                _ => key != 90 && key > 65,
            };
            let bytes: Vec<u8> = (0..queries * keys).map(|i| u8::from(kept(i / keys, i % keys))).collect();
            let keep = Tensor::from_slice(device, &[queries, keys], &bytes)?;
            for scale in [0.5, 0.0] {
                let parameters = MaskedSoftmax { scale, mask: Mask::Keep(&keep), causal: None };
                let results = by_each_kernel(&q, &k, &parameters)?;
                assert_eq!(results.len(), kernels_of(device));
                for (choice, y) in results {
                    let y = y.to_f64()?;
                    for (i, &p) in y.iter().enumerate() {
                        let (row, key) = (i / keys, i % keys);
                        let nan = kept(row, key) && (row < 2 || scale == 0.0 && row > 3 || scale == 0.0 && row == 2);
                        assert_eq!(p.is_nan(), nan, "{choice:?}, {dtype}, scale {scale}: {row}, {key}: {p}");
                        assert!(nan || kept(row, key) || p == 0.0, "{choice:?}: {row}, {key}: {p}");
                        assert!(row != 4 || nan || p == 0.0);
                    }
                    if scale != 0.0 {
                        for row in [2, 5] {
                            let sum: f64 = y[row * keys..][..keys].iter().sum();
                            assert!((sum - 1.0).abs() < 0.02, "{choice:?}: row {row}: {sum}");
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn large_scores_and_scales_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(147);
        let q = floats(device, DType::BF16, &[20, 16], &random.floats(320, -300.0, 300.0))?;
        let k = floats(device, DType::BF16, &[24, 16], &random.floats(384, -300.0, 300.0))?;
        for scale in [1.0f32, -1.0, 1e-4, 1e-36] {
            let parameters = MaskedSoftmax { scale, ..Default::default() };
            let want = reference::attention_scores(&q, &k, &parameters)?;
            let results = by_each_kernel(&q, &k, &parameters)?;
            assert_eq!(results.len(), kernels_of(device));
            // Sums of 16 products are off by some 2^-20 of a product.
            let allowed = |i: usize| want[i] * (2f64.powi(-8) + 1e6 * f64::from(scale.abs()) * 2f64.powi(-19)) + 1e-6;
            for (choice, y) in results {
                assert_within(&y.to_f64()?, &want, allowed, format!("{choice:?}, scale {scale}"));
            }
        }
        Ok(())
    }

    fn lengths_out_of_range_are_told(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        let mut random = Random::new(148);
        let q = uniform(device, DType::F16, &[2, 3, 16], &mut random)?;
        let k = uniform(device, DType::F16, &[2, 72, 16], &mut random)?;
        let lengths = Tensor::from_slice(device, &[2, 1], &[72, 73])?;
        let mask = Mask::Range { lengths: Some(&lengths), starts: None };
        let parameters = MaskedSoftmax { mask, ..Default::default() };
        let error = ops::attention_scores(&q, &k, &parameters).and_then(|y| y.to_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "attention_scores: `lengths[1]` must be in 0..=72, got 73");
        Ok(())
    }

    fn a_result_in_the_mask_is_refused(device: &Device) -> Result<()> {
        let (q, k) = (Tensor::zeros(device, DType::F16, &[8, 8])?, Tensor::zeros(device, DType::F16, &[8, 8])?);
        let y = Tensor::zeros(device, DType::F16, &[8, 8])?;
        let parameters = MaskedSoftmax { mask: Mask::Bias(&y), ..Default::default() };
        let error = ops::attention_scores_into(&q, &k, &parameters, &y).unwrap_err().to_string();
        assert!(error.starts_with("attention_scores: `y` must have memory apart from the inputs'"), "{error}");
        Ok(())
    }

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
        assert_eq!(text(&q, &of(&[2, 5, 3])?, &plain), "attention_scores: `k` must have shape [.., T, 4], got [2, 5, 3]");
        assert_eq!(text(&of(&[4])?, &k, &plain), "attention_scores: `q` must have shape [.., S, D], got [4]");
        assert_eq!(text(&q, &of(&[4])?, &plain), "attention_scores: `k` must have shape [.., T, D], got [4]");
        let infinite = MaskedSoftmax { scale: f32::INFINITY, ..plain };
        assert_eq!(text(&q, &k, &infinite), "attention_scores: `scale` must be finite, got inf");
        let keep = Tensor::zeros(device, DType::U8, &[6])?;
        let error = text(&q, &k, &MaskedSoftmax { mask: Mask::Keep(&keep), ..plain });
        assert!(error.starts_with("attention_scores: `keep` must"), "{error}");
        Ok(())
    }
}

#[test]
fn a_replay_equals_the_eager_call() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_equals_the_eager_call")? else { return Ok(()) };
    let mut random = Random::new(149);
    for dtype in DTYPES {
        let q = uniform(&device, dtype, &[2, 3, 70, 64], &mut random)?;
        let k = uniform(&device, dtype, &[2, 3, 136, 64], &mut random)?;
        let lengths = Tensor::from_slice(&device, &[2, 1, 1], &[136, 50])?;
        let mask = Mask::Range { lengths: Some(&lengths), starts: None };
        let parameters = MaskedSoftmax { scale: 0.125, mask, causal: Some(Causal::BottomRight) };
        let y = poisoned(&device, dtype, &[2, 3, 70, 136], POISON)?;
        let (graph, ()) = Graph::capture(&device, |_| ops::attention_scores_into(&q, &k, &parameters, &y))?;
        assert!(y.to_bytes()?.iter().all(|&byte| byte == POISON), "a capture runs nothing");
        for _ in 0..3 {
            q.copy_from(&uniform(&device, dtype, &[2, 3, 70, 64], &mut random)?)?;
            graph.launch()?;
            let eager = ops::attention_scores(&q, &k, &parameters)?;
            assert_same(&y.to_bytes()?, &eager.to_bytes()?, format!("{dtype}"));
        }
    }
    Ok(())
}
