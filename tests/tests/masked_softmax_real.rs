//! Attention scores of MiniLM against the model's own probabilities: see tests/data/README.md.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use std::collections::BTreeMap;
use std::path::PathBuf;

use softmax::{check_against, tolerances};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, io, reference};
use warpwright_tests::{assert_same, assert_within, on_each_device};

/// 384 hidden units over 12 heads make 32 a head.
const SCALE: f32 = 0.176_776_69;

fn load(name: &str, device: &Device) -> Result<BTreeMap<String, Tensor>> {
    // Where the test runs now, which need not be where it was compiled.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    io::load(PathBuf::from(package).join("data").join(format!("minilm_{name}.safetensors")), device)
}

/// x, keep, lengths and the expected y of a layer.
fn layer(number: usize, device: &Device) -> Result<(Tensor, Tensor, Tensor, Vec<f64>)> {
    let (inputs, expected) =
        (load(&format!("layer{number}"), device)?, load(&format!("layer{number}_expected"), device)?);
    let lengths = load("lengths", device)?["lengths"].clone();
    let (x, keep, want) = (inputs["x"].clone(), inputs["keep"].clone(), expected["y"].to_f64()?);
    assert_eq!(
        (x.shape(), keep.shape(), lengths.shape()),
        (&[8, 12, 37, 37][..], &[8, 1, 1, 37][..], &[8, 1, 1][..])
    );
    Ok((x, keep, lengths, want))
}

on_each_device! {
    fn the_model_s_own_probabilities_come_out(device: &Device) -> Result<()> {
        for number in [0, 5] {
            let (x, keep, lengths, want) = layer(number, device)?;
            let parameters = MaskedSoftmax { scale: SCALE, mask: Mask::Keep(&keep), causal: None };
            // Within what f32 costs, as derived there; four values of layer 0 are below its least number.
            let by_mask = check_against(&want, &x, &parameters, &format!("layer {number}, keep"))?;
            let mask = Mask::Range { lengths: Some(&lengths), starts: None };
            let by_lengths = ops::masked_softmax(&x, &MaskedSoftmax { mask, ..parameters })?;
            assert_same(
                &by_lengths.to_bytes()?,
                &by_mask.to_bytes()?,
                format!("layer {number}, lengths and mask"),
            );
        }
        Ok(())
    }

    fn the_other_forms_of_the_padding_mask_give_the_same(device: &Device) -> Result<()> {
        let (x, keep, _, want) = layer(5, device)?;
        let bytes = keep.to_vec::<u8>()?;
        let drop: Vec<bool> = bytes.iter().map(|&keep| keep == 0).collect();
        let drop = Tensor::from_slice(device, keep.shape(), &drop)?;
        // BERT's additive mask.
        let bias: Vec<f32> = bytes.iter().map(|&keep| if keep == 1 { 0.0 } else { f32::MIN }).collect();
        let bias = Tensor::from_slice(device, keep.shape(), &bias)?;
        for mask in [Mask::Drop(&drop), Mask::Bias(&bias)] {
            check_against(
                &want,
                &x,
                &MaskedSoftmax { scale: SCALE, mask, causal: None },
                &format!("{mask:?}"),
            )?;
        }
        Ok(())
    }

    fn half_precision_scores_give_them_within_their_rounding(device: &Device) -> Result<()> {
        let (x, keep, _, _) = layer(5, device)?;
        for dtype in [DType::F16, DType::BF16] {
            let values: Vec<f32> = x.to_vec()?;
            let rounded = warpwright_tests::floats(device, dtype, x.shape(), &values)?;
            let parameters = MaskedSoftmax { scale: SCALE, mask: Mask::Keep(&keep), causal: None };
            softmax::check(&rounded, &parameters, "layer 5")?;
        }
        Ok(())
    }

    fn real_rows_sum_to_1_and_padding_gets_nothing(device: &Device) -> Result<()> {
        for number in [0, 5] {
            let (x, keep, _, _) = layer(number, device)?;
            let parameters = MaskedSoftmax { scale: SCALE, mask: Mask::Keep(&keep), causal: None };
            let y = ops::masked_softmax(&x, &parameters)?.to_f64()?;
            let keep = keep.expand(x.shape())?.to_vec::<u8>()?;
            for (row, (y, keep)) in y.chunks(37).zip(keep.chunks(37)).enumerate() {
                // Each of at most 37 terms is rounded, and so are the sum and its reciprocal.
                let sum: f64 = y.iter().sum();
                approx::assert_abs_diff_eq!(sum, 1.0, epsilon = 40.0 / f64::from(1 << 24));
                assert!(
                    y.iter().zip(keep).all(|(&p, &keep)| keep == 1 || p == 0.0),
                    "layer {number}, row {row}"
                );
            }
        }
        Ok(())
    }
}

/// The reference is written from the formula, the expected files come from numpy.
#[test]
fn the_reference_agrees_with_the_expected_files() -> Result<()> {
    for number in [0, 5] {
        let (x, keep, _, want) = layer(number, &Device::cpu())?;
        let parameters = MaskedSoftmax { scale: SCALE, mask: Mask::Keep(&keep), causal: None };
        let got = reference::masked_softmax(&x, &parameters)?;
        // The files are rounded to f32, and made with the scale in f64: 6e-9 of an exponent of up to 96.
        let scale_off = (f64::from(SCALE) * 32f64.sqrt() - 1.0).abs();
        let allowed =
            |i: usize| want[i] * (0.5f64.powi(24) + 200.0 * scale_off) + f64::from(f32::from_bits(1));
        assert_within(&got, &want, allowed, format!("layer {number}"));
        assert!(tolerances(&want, &x, &parameters)?.iter().all(|&tolerance| tolerance < 1e-4));
    }
    Ok(())
}
