//! `cross_entropy` and `cross_entropy_backward` against float64.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use pointwise::{Layout, ulp};
use warpwright::ops::{self, CrossEntropy, CrossEntropyGradient, Reduction};
use warpwright::{DType, Device, Error, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, apart, assert_same, assert_within, floats, on_each_device, poisoned,
};

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// Around the capacity of every kernel: lanes, packs, loose elements, blocks and clusters.
const CLASSES: [usize; 20] =
    [1, 2, 3, 7, 8, 9, 16, 31, 63, 64, 100, 255, 257, 512, 1000, 1029, 4099, 8192, 16_390, 50_257];
const REDUCTIONS: [Reduction; 3] = [Reduction::None, Reduction::Mean, Reduction::Sum];
const IGNORED: i64 = -100;

/// A class for each row, every fourth of them ignored.
fn targets(device: &Device, rows: usize, classes: usize, wide: bool, random: &mut Random) -> Result<Tensor> {
    let mut target = |row: usize| if row % 4 == 3 { IGNORED } else { random.below(classes as u64) as i64 };
    let targets: Vec<i64> = (0..rows).map(&mut target).collect();
    if wide {
        return Tensor::from_slice(device, &[rows], &targets);
    }
    let targets: Vec<i32> = targets.into_iter().map(|target| target as i32).collect();
    Tensor::from_slice(device, &[rows], &targets)
}

/// Compares both operations with float64.
#[track_caller]
fn check(
    x: &Tensor,
    target: &Tensor,
    dloss: Option<&Tensor>,
    reduction: Reduction,
    what: &str,
) -> Result<CrossEntropyGradient> {
    let parameters = CrossEntropy { ignore_index: IGNORED, reduction };
    let what = format!("{what}: {:?}, {reduction:?}", x.desc());
    let of_loss = if reduction == Reduction::None { target.shape().to_vec() } else { vec![] };
    let gradient = CrossEntropyGradient {
        loss: poisoned(x.device(), DType::F32, &of_loss, POISON)?,
        dx: poisoned(x.device(), x.dtype(), x.shape(), POISON)?,
    };
    ops::cross_entropy_backward_into(x, target, dloss, &parameters, &gradient)?;
    let (loss, dx) = reference::cross_entropy_backward(x, target, dloss, &parameters)?;
    // Scores are below 8: a logarithm and two differences of such numbers, and for a sum as many more.
    let of_loss = U * 8.0 * (8.0 + if reduction == Reduction::None { 0.0 } else { loss[0].abs() + 8.0 });
    assert_within(&gradient.loss.to_f64()?, &loss, |_| of_loss, format!("{what}: loss"));
    let upstream: f64 = match dloss {
        Some(dloss) => dloss.to_f64()?.iter().fold(0.0, |most, g| f64::max(most, g.abs())),
        None => 1.0,
    };
    // A probability is off by some roundings of its exponent, at most 16; the target's is a difference from 1.
    let (targets, classes) = (target.to_f64()?, x.shape()[x.rank() - 1]);
    let allowed = |i: usize| {
        let is_target = targets[i / classes] == (i % classes) as f64;
        let computed =
            U * 64.0 * if is_target { upstream } else { dx[i].abs() } + f64::from(f32::MIN_POSITIVE);
        computed + 0.51 * ulp(x.dtype(), dx[i].abs() + computed)
    };
    assert_within(&gradient.dx.to_f64()?, &dx, allowed, format!("{what}: dx"));
    let alone = ops::cross_entropy(x, target, &parameters)?;
    assert_same(&alone.to_bytes()?, &gradient.loss.to_bytes()?, format!("{what}: the loss alone"));
    Ok(gradient)
}

on_each_device! {
    fn every_number_of_classes_is_right(device: &Device) -> Result<()> {
        for (turn, classes) in CLASSES.into_iter().enumerate() {
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                let mut random = Random::new(classes as u64);
                let rows = if classes < 300 { 37 } else { 4 };
                let layout = [Layout::Dense, Layout::Offset(3), Layout::Dense][(turn + i) % 3];
                let x = layout.random(device, dtype, [rows, classes], (-8.0, 8.0), &mut random)?;
                let target = targets(device, rows, classes, (turn + i) % 2 == 0, &mut random)?;
                let reduction = REDUCTIONS[(turn + i) % 3];
                let gradient = check(&x, &target, None, reduction, "classes")?;
                let again = check(&x, &target, None, reduction, "again")?;
                assert_same(&again.dx.to_bytes()?, &gradient.dx.to_bytes()?, "again");
            }
        }
        Ok(())
    }

    fn logits_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(3);
        for (i, layout) in Layout::ALL.into_iter().enumerate() {
            for (shape, dtype) in [([9, 40], DTYPES[i % 3]), ([5, 131], DTYPES[(i + 1) % 3])] {
                let x = layout.random(device, dtype, shape, (-4.0, 4.0), &mut random)?;
                let target = targets(device, shape[0], shape[1], i % 2 == 0, &mut random)?;
                check(&x, &target, None, REDUCTIONS[i % 3], &format!("{layout:?}"))?;
            }
        }
        Ok(())
    }

    /// Positive, negative and zero gradients, one or one a row.
    fn the_gradient_of_the_loss_is_passed_on(device: &Device) -> Result<()> {
        for (dtype, classes) in [(DType::F32, 50), (DType::BF16, 64), (DType::F16, 700), (DType::BF16, 33_000)] {
            let mut random = Random::new(4);
            let x = Layout::Dense.random(device, dtype, [6, classes], (-4.0, 4.0), &mut random)?;
            let target = targets(device, 6, classes, true, &mut random)?;
            let of_rows = floats(device, DType::F32, &[6], &[0.5, -2.0, 0.0, 3.0, 1.0, -0.125])?;
            check(&x, &target, Some(&of_rows), Reduction::None, "a row's own")?;
            for (upstream, reduction) in [(-3.0, Reduction::Sum), (1024.0, Reduction::Mean)] {
                let upstream = floats(device, DType::F32, &[], &[upstream])?;
                check(&x, &target, Some(&upstream), reduction, "one")?;
            }
        }
        Ok(())
    }

    fn rows_may_have_any_rank(device: &Device) -> Result<()> {
        let mut random = Random::new(5);
        let x = floats(device, DType::F32, &[2, 3, 5], &random.floats(30, -2.0, 2.0))?;
        let target = Tensor::from_slice(device, &[2, 3], &[0i32, 4, -100, 2, 2, 1])?;
        check(&x, &target, None, Reduction::None, "rank 3")?;
        let x = floats(device, DType::F32, &[5], &random.floats(5, -2.0, 2.0))?;
        let target = Tensor::from_slice(device, &[], &[3i64])?;
        check(&x, &target, None, Reduction::Mean, "rank 1")?;
        // Steps of a sequence: each logit's target is the next word.
        let wide = floats(device, DType::F32, &[2, 4, 5], &random.floats(40, -2.0, 2.0))?;
        let target = Tensor::from_slice(device, &[2, 3], &[0i32, 4, 1, 2, 2, 1])?;
        check(&wide.narrow(1, 0, 3)?, &target, None, Reduction::Sum, "a part").map(drop)
    }

    /// What ignored rows hold is of no interest.
    fn ignored_rows_are_0_whatever_they_hold(device: &Device) -> Result<()> {
        for classes in [6, 40, 1025, 40_000] {
            let mut values: Vec<f32> = Random::new(6).floats(3 * classes, -2.0, 2.0);
            values[classes..2 * classes].fill(f32::NAN);
            let x = floats(device, DType::F32, &[3, classes], &values)?;
            let target = Tensor::from_slice(device, &[3], &[1i32, -100, 5])?;
            let gradient = check(&x, &target, None, Reduction::Mean, "ignored")?;
            assert!(gradient.dx.to_f64()?[classes..2 * classes].iter().all(|&dx| dx == 0.0));
        }
        // A mean over nothing.
        let x = floats(device, DType::F32, &[2, 3], &[0.0; 6])?;
        let target = Tensor::from_slice(device, &[2], &[-100i64, -100])?;
        let CrossEntropyGradient { loss, dx } =
            ops::cross_entropy_backward(&x, &target, None, &CrossEntropy::default())?;
        assert!(loss.to_f64()?[0].is_nan() && dx.to_f64()? == [0.0; 6]);
        Ok(())
    }

    fn values_without_a_loss_give_nan_in_their_row_alone(device: &Device) -> Result<()> {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        for classes in [8, 9, 300, 2051, 20_000] {
            let mut values: Vec<f32> = Random::new(7).floats(5 * classes, -2.0, 2.0);
            values[2] = nan;
            values[classes + 3] = infinity;
            values[2 * classes..3 * classes].fill(-infinity);
            values[3 * classes + 1] = -infinity; // the target's, beside others
            let x = floats(device, DType::F32, &[5, classes], &values)?;
            let target = Tensor::from_slice(device, &[5], &[1i32; 5])?;
            let parameters = CrossEntropy { reduction: Reduction::None, ..Default::default() };
            let CrossEntropyGradient { loss, dx } = ops::cross_entropy_backward(&x, &target, None, &parameters)?;
            let (loss, dx) = (loss.to_f64()?, dx.to_f64()?);
            assert!(loss[..3].iter().all(|loss| loss.is_nan()), "{loss:?}");
            assert!(dx[..3 * classes].iter().all(|dx| dx.is_nan()));
            assert_eq!(loss[3], f64::INFINITY);
            assert!(loss[4].is_finite() && dx[3 * classes..].iter().all(|dx| dx.is_finite()));
            assert_eq!(dx[3 * classes + 1], -1.0);
        }
        Ok(())
    }

    fn a_target_that_is_no_class_is_named(device: &Device) -> Result<()> {
        // On a stream of its own: whoever reads back there next hears of it.
        let device = &apart(device)?;
        let x = floats(device, DType::F32, &[3, 4], &[0.0; 12])?;
        for (target, want) in [
            (Tensor::from_slice(device, &[3], &[0i32, 4, -1])?, "`target[1]` must be in 0..=3, got 4"),
            (Tensor::from_slice(device, &[3], &[0i64, 3, -1])?, "`target[2]` must be in 0..=3, got -1"),
            (Tensor::from_slice(device, &[3], &[0i64, i64::MAX, 1])?, "`target[1]` must be in 0..=3, got 2147483647 or more"),
            (Tensor::from_slice(device, &[3], &[i64::MIN, 0, 1])?, "`target[0]` must be in 0..=3, got -2147483648 or less"),
        ] {
            let done = ops::cross_entropy(&x, &target, &CrossEntropy::default());
            let error = done.and_then(|loss| loss.to_vec::<f32>()).expect_err("a class too many");
            assert_eq!(error.to_string(), format!("cross_entropy: {want}"));
        }
        Ok(())
    }

    fn without_rows_there_is_nothing_to_do(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[0, 4])?;
        let target = Tensor::zeros(device, DType::I32, &[0])?;
        for (reduction, want) in [(Reduction::None, vec![]), (Reduction::Sum, vec![0.0])] {
            let parameters = CrossEntropy { reduction, ..Default::default() };
            assert_eq!(ops::cross_entropy(&x, &target, &parameters)?.to_f64()?, want);
        }
        let mean = ops::cross_entropy(&x, &target, &CrossEntropy::default())?;
        assert!(mean.to_f64()?[0].is_nan());
        Ok(())
    }

    fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
        let parameters = CrossEntropy::default();
        let x = Tensor::zeros(device, DType::F32, &[3, 4])?;
        let of = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let refusal = |x: &Tensor, target: &Tensor, dloss: Option<&Tensor>| {
            ops::cross_entropy_backward_shape(x, target, dloss, &parameters).map(drop).expect_err("refused")
        };
        let target = of(DType::I64, &[3])?;
        assert!(matches!(refusal(&of(DType::I32, &[3, 4])?, &target, None), Error::DType { arg: "x", .. }));
        assert!(matches!(refusal(&x, &of(DType::F32, &[3])?, None), Error::DType { arg: "target", .. }));
        assert!(matches!(refusal(&x, &of(DType::I32, &[4])?, None), Error::Shape { arg: "target", .. }));
        let every_second = of(DType::I32, &[3, 2])?.transpose(0, 1)?.narrow(0, 0, 1)?;
        let one_row = of(DType::F32, &[1, 3, 4])?;
        assert!(matches!(refusal(&one_row, &every_second, None), Error::Strides { arg: "target", .. }));
        assert!(matches!(refusal(&of(DType::F32, &[3, 0])?, &target, None), Error::Shape { arg: "x", .. }));
        assert!(matches!(refusal(&x, &target, Some(&of(DType::F32, &[3])?)), Error::Shape { arg: "dloss", .. }));
        assert!(matches!(refusal(&of(DType::F32, &[])?, &target, None), Error::Shape { arg: "x", .. }));
        Ok(())
    }
}
