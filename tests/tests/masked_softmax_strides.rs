//! Views of x and of masks give what contiguous copies of them give; y is the caller's memory.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, check, check_against, copy, scores};
use warpwright::ops::masked_softmax::{Choice, explain};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, on_each_device, poisoned};

type View = fn(&Tensor) -> Result<Tensor>;

/// Views of `[3, 4, 5, 24]`.
const VIEWS: [(&str, View); 19] = [
    ("itself", |t| Ok(t.clone())),
    ("outer dimensions permuted", |t| t.permute(&[2, 0, 1, 3])),
    ("rows and heads exchanged", |t| t.transpose(1, 2)),
    ("last dimension moved to the front", |t| t.permute(&[3, 0, 1, 2])),
    ("last two exchanged", |t| t.transpose(-1, -2)),
    ("reversed", |t| t.permute(&[3, 2, 1, 0])),
    ("from an aligned column", |t| t.narrow(3, 8, 16)),
    ("from column 1", |t| t.narrow(3, 1, 17)),
    ("from column 3 to the end", |t| t.narrow(3, 3, 21)),
    ("a single column", |t| t.narrow(3, 5, 1)),
    ("from an odd row", |t| t.narrow(2, 1, 3)),
    ("one head", |t| t.narrow(1, 2, 1)),
    ("every second column", |t| t.step(3, 2)),
    ("every fifth column", |t| t.step(3, 5)),
    ("every second row of every second batch", |t| t.step(2, 2)?.step(0, 2)),
    ("one row for all", |t| t.narrow(2, 3, 1)?.expand(&[3, 4, 5, 24])),
    ("one head for all, from column 2", |t| t.narrow(1, 1, 1)?.narrow(3, 2, 20)?.expand(&[3, 4, 5, 20])),
    ("one column for all", |t| t.narrow(3, 2, 1)?.expand(&[3, 4, 5, 24])),
    ("one number for all", |t| {
        t.narrow(0, 1, 1)?.narrow(1, 1, 1)?.narrow(2, 1, 1)?.narrow(3, 1, 1)?.expand(&[3, 4, 5, 24])
    }),
];

on_each_device! {
    fn views_give_what_their_copies_give(device: &Device) -> Result<()> {
        for (dtype, (name, view)) in DTYPES.into_iter().flat_map(|dtype| VIEWS.map(|view| (dtype, view))) {
            let mut random = Random::new(20);
            let x = view(&scores(device, dtype, &[3, 4, 5, 24], &mut random)?)?;
            let x_copy = copy(&x)?;
            for form in [Form::None, Form::Keep, Form::DropBool, Form::Bias, Form::BiasF32] {
                let masking = form.random(device, dtype, 24, &[3, 4, 5, 24], &mut random)?.map(view)?;
                let masking_copy = masking.map(copy)?;
                let of = |masking: &'static str, mask| {
                    (masking, MaskedSoftmax { scale: -0.6, mask, causal: None })
                };
                let (viewed, copied) = (of("view", masking.mask()), of("copy", masking_copy.mask()));
                let want = reference::masked_softmax(&x_copy, &copied.1)?;
                for (x_is, x) in [("view", &x), ("copy", &x_copy)] {
                    for (mask_is, parameters) in [&viewed, &copied] {
                        let what = format!("{name}, {form:?}, x a {x_is}, the mask a {mask_is}");
                        check_against(&want, x, parameters, &what)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn lengths_and_starts_may_be_views(device: &Device) -> Result<()> {
        for (dtype, (name, view)) in DTYPES.into_iter().flat_map(|dtype| VIEWS.map(|view| (dtype, view))) {
            let mut random = Random::new(21);
            let x = view(&scores(device, dtype, &[3, 4, 5, 24], &mut random)?)?;
            let &[a, b, c, cols] = x.shape() else { panic!("{name} has rank {}", x.rank()) };
            let bounds = Form::Both.random(device, dtype, cols, &[c, 2 * b, a, 1], &mut random)?;
            let masking = bounds.map(|tensor| tensor.step(1, 2)?.permute(&[2, 1, 0]))?;
            let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
            let masking_copy = masking.map(copy)?;
            let want = reference::masked_softmax(
                &copy(&x)?,
                &MaskedSoftmax { mask: masking_copy.mask(), ..parameters },
            )?;
            check_against(&want, &x, &parameters, name)?;
        }
        Ok(())
    }

    fn rows_of_wider_tensors_match_at_every_offset(device: &Device) -> Result<()> {
        for (dtype, offset) in DTYPES.into_iter().flat_map(|dtype| (0..10).map(move |offset| (dtype, offset)))
        {
            let long = [0, 1, 8].contains(&offset);
            for (wide, cols) in
                [(64, 50), (800, 700), (5003, 4990)].into_iter().take(if long { 3 } else { 1 })
            {
                let mut random = Random::new(22);
                let x = scores(device, dtype, &[3, wide], &mut random)?.narrow(1, offset, cols)?;
                for form in [Form::Keep, Form::Bias, Form::Lengths] {
                    let masking = form.random(device, dtype, cols, &[3, wide], &mut random)?;
                    let masking = if form == Form::Lengths {
                        masking
                    } else {
                        masking.map(|mask| mask.narrow(1, offset, cols))?
                    };
                    check(
                        &x,
                        &MaskedSoftmax { mask: masking.mask(), ..Default::default() },
                        &format!("{form:?} from {offset}"),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn only_y_itself_is_written(device: &Device) -> Result<()> {
        for (dtype, offset) in
            DTYPES.into_iter().flat_map(|dtype| [0, 1, 8, 13].map(|offset| (dtype, offset)))
        {
            for cols in [1, 6, 37, 64, 700, 5001] {
                let x = scores(device, dtype, &[3, cols], &mut Random::new(23))?;
                let memory = poisoned(device, dtype, &[3 * cols + 40], POISON)?;
                let y = memory.narrow(0, offset, 3 * cols)?.reshape(&[3, cols])?;
                ops::masked_softmax_into(&x, &MaskedSoftmax::default(), &y)?;
                let want = reference::masked_softmax(&x, &MaskedSoftmax::default())?;
                let tolerance = softmax::tolerances(&want, &x, &MaskedSoftmax::default())?;
                warpwright_tests::assert_within(
                    &y.to_f64()?,
                    &want,
                    |i| tolerance[i],
                    format!("{dtype} at {offset}, {cols} columns"),
                );
                let bytes = memory.to_bytes()?;
                let (before, after) = (offset * dtype.size(), (offset + 3 * cols) * dtype.size());
                let outside = bytes[..before].iter().chain(&bytes[after..]);
                assert!(outside.copied().all(|byte| byte == POISON), "{dtype} at {offset}, {cols} columns");
            }
        }
        Ok(())
    }

    fn the_result_is_contiguous_and_x_stays(device: &Device) -> Result<()> {
        let x = scores(device, DType::F16, &[4, 6], &mut Random::new(24))?;
        let (before, view) = (x.to_bytes()?, x.transpose(0, 1)?);
        let y = ops::masked_softmax(&view, &MaskedSoftmax::default())?;
        assert!(y.is_contiguous());
        assert_eq!((y.shape(), y.dtype()), (&[6, 4][..], DType::F16));
        assert_same(&x.to_bytes()?, &before, "x");
        Ok(())
    }

    fn parts_of_one_allocation_that_do_not_overlap_are_fine(device: &Device) -> Result<()> {
        let memory = poisoned(device, DType::F32, &[3, 2, 32], POISON)?;
        let (x, y) = (memory.narrow(0, 0, 1)?, memory.narrow(0, 1, 1)?);
        ops::masked_softmax_into(
            &scores(device, DType::F32, &[1, 2, 32], &mut Random::new(25))?,
            &MaskedSoftmax::default(),
            &x,
        )?;
        ops::masked_softmax_into(&x, &MaskedSoftmax::default(), &y)?;
        let want = reference::masked_softmax(&x, &MaskedSoftmax::default())?;
        let tolerance = softmax::tolerances(&want, &x, &MaskedSoftmax::default())?;
        warpwright_tests::assert_within(&y.to_f64()?, &want, |i| tolerance[i], "beside x");
        assert!(memory.narrow(0, 2, 1)?.to_bytes()?.iter().all(|&byte| byte == POISON));
        Ok(())
    }

    fn an_output_that_does_not_fit_is_refused_and_left_alone(device: &Device) -> Result<()> {
        let x = scores(device, DType::F32, &[4, 8], &mut Random::new(26))?;
        let keep = poisoned(device, DType::U8, &[256], 1)?;
        let y = |dtype, shape: &[usize]| poisoned(device, dtype, shape, POISON);
        let refused = |mask: Mask, y: &Tensor, want: &str| -> Result<()> {
            let before = y.to_bytes()?;
            let error =
                ops::masked_softmax_into(&x, &MaskedSoftmax { mask, ..Default::default() }, y).unwrap_err();
            assert_eq!(error.to_string(), format!("masked_softmax: `y` must have {want}"));
            assert_same(&y.to_bytes()?, &before, want);
            Ok(())
        };
        refused(Mask::None, &y(DType::F16, &[4, 8])?, "dtype f32, got f16")?;
        for shape in [&[8, 4][..], &[32], &[1, 4, 8], &[4, 7], &[]] {
            refused(Mask::None, &y(DType::F32, shape)?, &format!("shape [4, 8], got {shape:?}"))?;
        }
        let wide = y(DType::F32, &[4, 9])?.narrow(1, 0, 8)?;
        refused(Mask::None, &wide, "contiguous strides, got strides [9, 1]")?;
        refused(
            Mask::None,
            &y(DType::F32, &[1, 8])?.expand(&[4, 8])?,
            "contiguous strides, got strides [0, 1]",
        )?;
        let apart = "memory apart from the inputs', got strides [8, 1]";
        refused(Mask::None, &x, apart)?;
        // Masks and y in one allocation, the last byte of one on the first of the other.
        let both = y(DType::F32, &[16, 8])?;
        let (rows, bias) = (both.narrow(0, 3, 4)?, both.narrow(0, 0, 4)?);
        refused(Mask::Bias(&bias), &rows, apart)?;
        ops::masked_softmax_into(
            &x,
            &MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() },
            &both.narrow(0, 4, 4)?,
        )?;
        // Lengths and starts of 32 bits cannot share memory with floats; keep is apart.
        ops::masked_softmax_into(
            &x,
            &MaskedSoftmax { mask: Mask::Keep(&keep.narrow(0, 0, 8)?), ..Default::default() },
            &rows,
        )
    }
}

/// A permuted or stepped last dimension is what takes the slow kernel, and aligned rows never do.
#[test]
fn only_columns_apart_or_unlike_alignment_take_the_strided_kernel() -> Result<()> {
    let device = Device::cpu();
    let x = scores(&device, DType::F16, &[3, 4, 5, 24], &mut Random::new(27))?;
    let strided: Vec<&str> = VIEWS
        .iter()
        .filter(|(_, view)| {
            let plan = view(&x).and_then(|x| explain(&x, &MaskedSoftmax::default()));
            matches!(plan, Ok(plan) if plan.choice == Choice::Strided)
        })
        .map(|(name, _)| *name)
        .collect();
    for name in [
        "last two exchanged",
        "every second column",
        "every fifth column",
        "one column for all",
        "one number for all",
    ] {
        assert!(strided.contains(&name), "{name}: {strided:?}");
    }
    for name in ["itself", "outer dimensions permuted", "from an odd row", "one row for all"] {
        assert!(!strided.contains(&name), "{name}: {strided:?}");
    }
    Ok(())
}
