//! What callers read when a request is refused: one line with operation, argument, what was required and what
//! came.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use warpwright::ops::masked_softmax::{Causal, explain};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Desc, Device, Error, Result, Tensor};
use warpwright_tests::{apart, first_gpu, floats, on_each_device, poisoned};

fn masked<D>(mask: Mask<'_, D>) -> MaskedSoftmax<'_, D> {
    MaskedSoftmax { scale: 1.0, mask, causal: None }
}

/// Wants the same refusal from every function that takes the arguments.
#[track_caller]
fn refused(x: &Tensor, parameters: &MaskedSoftmax, want: &str) -> Result<()> {
    let y = poisoned(x.device(), DType::F32, &[2, 3, 4], 0)?;
    let errors = [
        ops::masked_softmax(x, parameters).map(drop),
        ops::masked_softmax_into(x, parameters, &y),
        ops::masked_softmax_shape(x, parameters).map(drop),
        explain(x, parameters).map(drop),
    ];
    for error in errors {
        assert_eq!(error.expect_err("the arguments are wrong").to_string(), want);
    }
    Ok(())
}

on_each_device! {
    fn x_must_be_a_float_with_columns(device: &Device) -> Result<()> {
        for dtype in [DType::F64, DType::Bool, DType::U8, DType::I32, DType::I64] {
            let x = Tensor::zeros(device, dtype, &[2, 3])?;
            let want = format!("masked_softmax: `x` must have dtype f32, f16 or bf16, got {dtype}");
            refused(&x, &masked(Mask::None), &want)?;
        }
        let x = floats(device, DType::F16, &[], &[1.0])?;
        refused(&x, &masked(Mask::None), "masked_softmax: `x` must have shape [.., K], got []")
    }

    fn the_scale_must_be_finite(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[2], &[1.0, 2.0])?;
        for (scale, got) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let want = format!("masked_softmax: `scale` must be finite, got {got}");
            refused(&x, &MaskedSoftmax { scale, ..Default::default() }, &want)?;
        }
        Ok(())
    }

    fn masks_must_have_their_type(device: &Device) -> Result<()> {
        let of = |dtype| Tensor::zeros(device, dtype, &[4]);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = Tensor::zeros(device, dtype, &[2, 4])?;
            for wrong in [DType::I8, DType::I32, DType::F32] {
                let mask = of(wrong)?;
                for (arg, mask) in [("keep", Mask::Keep(&mask)), ("drop", Mask::Drop(&mask))] {
                    let want = format!("masked_softmax: `{arg}` must have dtype u8 or bool, got {wrong}");
                    refused(&x, &masked(mask), &want)?;
                }
            }
            let required = if dtype == DType::F32 { "f32".to_owned() } else { format!("{dtype} or f32") };
            let other = if dtype == DType::F16 { DType::BF16 } else { DType::F16 };
            for wrong in [other, DType::F64, DType::U8] {
                let want = format!("masked_softmax: `bias` must have dtype {required}, got {wrong}");
                refused(&x, &masked(Mask::Bias(&of(wrong)?)), &want)?;
            }
            for wrong in [DType::I64, DType::U32, DType::F32] {
                let bounds = Tensor::zeros(device, wrong, &[2])?;
                for (arg, mask) in [
                    ("lengths", Mask::Range { lengths: Some(&bounds), starts: None }),
                    ("starts", Mask::Range { lengths: None, starts: Some(&bounds) }),
                ] {
                    refused(
                        &x,
                        &masked(mask),
                        &format!("masked_softmax: `{arg}` must have dtype i32, got {wrong}"),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn masks_must_broadcast_against_x(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[2, 3, 4])?;
        let hint = "where dimensions may be missing in front or be 1";
        for shape in [&[3][..], &[2, 4], &[3, 3], &[3, 3, 4], &[2, 3, 8], &[1, 2, 3, 4], &[0], &[4, 1]] {
            let (byte, float) =
                (Tensor::zeros(device, DType::U8, shape)?, Tensor::zeros(device, DType::F32, shape)?);
            for (arg, mask) in
                [("keep", Mask::Keep(&byte)), ("drop", Mask::Drop(&byte)), ("bias", Mask::Bias(&float))]
            {
                let want =
                    format!("masked_softmax: `{arg}` must have shape [2, 3, 4], {hint}, got {shape:?}");
                refused(&x, &masked(mask), &want)?;
            }
        }
        for shape in [&[2][..], &[3, 1], &[3, 3], &[2, 3, 1], &[2, 3, 4], &[0]] {
            let bounds = Tensor::zeros(device, DType::I32, shape)?;
            let whole = Tensor::zeros(device, DType::I32, &[])?;
            for (arg, mask) in [
                ("lengths", Mask::Range { lengths: Some(&bounds), starts: Some(&whole) }),
                ("starts", Mask::Range { lengths: Some(&whole), starts: Some(&bounds) }),
            ] {
                let want = format!("masked_softmax: `{arg}` must have shape [2, 3], {hint}, got {shape:?}");
                refused(&x, &masked(mask), &want)?;
            }
        }
        Ok(())
    }

    fn the_first_bound_out_of_range_is_named_and_the_nearest_valid_one_used(device: &Device) -> Result<()> {
        // The next read reports it, also those of other tests on the same stream.
        let device = &apart(device)?;
        for (bounds, index, got) in [
            ([0, 3, -1, 4, 9], 2, -1),
            ([5, 3, -1, 4, 9], 0, 5),
            ([0, 1, 2, 3, i32::MIN], 4, i32::MIN),
            ([4, i32::MAX, -7, 3, 5], 1, i32::MAX),
        ] {
            let (x, tensor) =
                (Tensor::zeros(device, DType::F32, &[5, 4])?, Tensor::from_slice(device, &[5], &bounds)?);
            for (arg, lengths, starts) in [("lengths", Some(&tensor), None), ("starts", None, Some(&tensor))]
            {
                let y = poisoned(device, DType::F32, &[5, 4], 0xa5)?;
                let want = format!("masked_softmax: `{arg}[{index}]` must be in 0..=4, got {got}");
                let at_once = ops::masked_softmax_into(&x, &masked(Mask::Range { lengths, starts }), &y);
                assert_eq!(at_once.is_ok(), device.is_cuda(), "{want}");
                let error = at_once.and_then(|()| y.to_vec::<f32>().map(drop)).unwrap_err();
                assert_eq!(error.to_string(), want);
                assert!(matches!(error, Error::Value { min: 0, max: 4, .. }));
                // Reported once; then the values are there.
                let nonzero: Vec<usize> = y
                    .to_vec::<f32>()?
                    .chunks(4)
                    .map(|row| row.iter().filter(|&&p| p != 0.0).count())
                    .collect();
                let valid = bounds.map(|bound| bound.clamp(0, 4) as usize);
                assert_eq!(
                    nonzero,
                    valid.map(|bound| if lengths.is_some() { bound } else { 4 - bound }),
                    "{want}"
                );
            }
        }
        Ok(())
    }

    fn lengths_are_named_before_starts_and_a_later_call_is_clean(device: &Device) -> Result<()> {
        let device = &apart(device)?;
        let x = Tensor::zeros(device, DType::BF16, &[2, 3, 8])?;
        let (lengths, starts) =
            (Tensor::from_slice(device, &[3], &[8, 1, 9])?, Tensor::from_slice(device, &[2, 1], &[-3, 0])?);
        let run = |lengths, starts| {
            ops::masked_softmax(&x, &masked(Mask::Range { lengths, starts }))
                .and_then(|y| y.to_f64().map(drop))
        };
        let error = run(Some(&lengths), Some(&starts)).unwrap_err();
        let of_lengths = "masked_softmax: `lengths[2]` must be in 0..=8, got 9";
        let of_starts = "masked_softmax: `starts[0]` must be in 0..=8, got -3";
        assert_eq!(error.to_string(), of_lengths);
        // On a GPU the other may follow.
        if let Err(error) = device.synchronize() {
            assert_eq!(error.to_string(), of_starts);
        }
        assert_eq!(run(None, Some(&starts)).unwrap_err().to_string(), of_starts);
        device.synchronize()?;
        run(Some(&Tensor::from_slice(device, &[], &[8])?), None)
    }

    fn sizes_beyond_every_memory_are_refused(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[1, 1], &[1.0])?.expand(&[1 << 45, 2])?;
        let error = ops::masked_softmax(&x, &masked(Mask::None)).unwrap_err();
        let want = format!("{device}: out of memory allocating {} bytes (", 1u64 << 48);
        assert!(error.to_string().starts_with(&want), "{error}");
        assert!(error.to_string().ends_with(" bytes are free)"), "{error}");
        assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 1 << 48));
        // The device is as before.
        let y = ops::masked_softmax(&x.narrow(0, 0, 1)?, &masked(Mask::None))?;
        assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);

        let error = Tensor::zeros(device, DType::F32, &[1 << 40, 1 << 40]).unwrap_err();
        let want = "Tensor::zeros: the tensor's bytes must be at most 9223372036854775807, got shape \
                    [1099511627776, 1099511627776] of 4-byte elements";
        assert_eq!(error.to_string(), want);
        let error = Tensor::zeros(device, DType::F32, &[1; 9]).unwrap_err();
        assert_eq!(error.to_string(), "Tensor::zeros: the number of dimensions must be at most 8, got 9");
        Ok(())
    }
}

#[test]
fn limits_of_columns_and_causal_queries_are_named() -> Result<()> {
    let device = Device::cpu();
    let of = |shape: &[usize]| Desc::new(&device, DType::F16, shape);
    let most = (1usize << 31) - (1 << 15);
    assert!(ops::masked_softmax_shape(&of(&[2, most])?, &masked(Mask::None)).is_ok());
    let error = ops::masked_softmax_shape(&of(&[2, most + 1])?, &masked(Mask::None)).unwrap_err();
    let want = "masked_softmax: columns of `x` must be at most 2147450880, got 2147450881";
    assert_eq!(error.to_string(), want);
    let causal = |causal| MaskedSoftmax { causal: Some(causal), ..masked(Mask::None) };
    let long = of(&[1 << 33, 4])?;
    let error = ops::masked_softmax_shape(&long, &causal(Causal::BottomRight)).unwrap_err();
    let want = "masked_softmax: queries of a causal `x` must be at most 2147483647, got 8589934592";
    assert_eq!(error.to_string(), want);
    assert!(ops::masked_softmax_shape(&long, &causal(Causal::Offset(0))).is_ok());
    Ok(())
}

#[test]
fn without_a_driver_opening_a_gpu_says_so() {
    match Device::cuda(0) {
        Ok(_) => {
            let error = Device::cuda(4095).unwrap_err().to_string();
            assert!(error.starts_with("no CUDA device 4095: this machine has "), "{error}");
        }
        Err(error @ Error::NoDriver { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with("no NVIDIA driver: "), "{text}");
            assert!(text.ends_with("; install one, or use the CPU device"), "{text}");
            assert!(!text.contains('\n'), "{text}");
            // Once more: the answer is not a panic and does not change.
            assert_eq!(Device::cuda(0).unwrap_err().to_string(), text);
            assert!(!Device::best().is_cuda());
        }
        Err(error) => {
            assert!(matches!(error, Error::NoDevice { .. } | Error::Architecture { .. }), "{error}")
        }
    }
}

#[test]
fn tensors_of_two_devices_do_not_meet() -> Result<()> {
    let Some(gpu) = first_gpu("tensors_of_two_devices_do_not_meet") else { return Ok(()) };
    let cpu = Device::cpu();
    for (here, there) in [(&cpu, &gpu), (&gpu, &cpu)] {
        let x = Tensor::zeros(here, DType::F32, &[2, 3, 4])?;
        let (byte, float) = (Tensor::zeros(there, DType::U8, &[4])?, Tensor::zeros(there, DType::F32, &[4])?);
        let int = Tensor::zeros(there, DType::I32, &[3])?;
        for (arg, mask) in [
            ("keep", Mask::Keep(&byte)),
            ("drop", Mask::Drop(&byte)),
            ("bias", Mask::Bias(&float)),
            ("lengths", Mask::Range { lengths: Some(&int), starts: None }),
            ("starts", Mask::Range { lengths: None, starts: Some(&int) }),
        ] {
            refused(&x, &masked(mask), &format!("masked_softmax: `{arg}` must be on {here}, got {there}"))?;
        }
        let y = Tensor::zeros(there, DType::F32, &[2, 3, 4])?;
        let error = ops::masked_softmax_into(&x, &masked(Mask::None), &y).unwrap_err();
        assert_eq!(error.to_string(), format!("masked_softmax: `y` must be on {here}, got {there}"));
    }
    Ok(())
}

on_each_device! {
    fn bounds_of_rows_without_columns_must_be_0(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[3, 0])?;
        for (values, wanted) in [([0, 0, 0], None), ([0, 0, 2], Some(2)), ([0, -1, 0], Some(1))] {
            let bounds = Tensor::from_slice(device, &[3], &values)?;
            let range = Mask::Range { lengths: Some(&bounds), starts: None };
            let got = ops::masked_softmax(&x, &masked(range)).map(|y| y.len());
            match wanted {
                None => assert_eq!(got?, 0),
                Some(index) => {
                    let text = format!("masked_softmax: `lengths[{index}]` must be in 0..=0, got {}", values[index]);
                    assert_eq!(got.expect_err("a bound is out of range").to_string(), text);
                }
            }
        }
        Ok(())
    }
}
