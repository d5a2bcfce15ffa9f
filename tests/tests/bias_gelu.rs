//! `bias_gelu` and `bias_gelu_backward` against float64.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use pointwise::{Layout, SHAPES, round, ulp};
use warpwright::ops::{self, Approximate};
use warpwright::{DType, Device, Graph, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, first_gpu_apart, floats, on_each_device, poisoned,
};

const FORMS: [Approximate; 2] = [Approximate::None, Approximate::Tanh];
const U: f64 = 1.0 / (1 << 24) as f64;

#[track_caller]
fn check(x: &Tensor, bias: &Tensor, form: Approximate, y: &Tensor, what: &str) -> Result<()> {
    ops::bias_gelu_into(x, bias, form, y)?;
    let want = reference::bias_gelu(x, bias, form)?;
    // In f32 the sum is rounded: half an ulp of numbers below 16, which a slope of at most 1.13 passes on.
    let allowed = |i: usize| match x.dtype() {
        DType::F32 => 20.0 * U + want[i].abs() * 16.0 * U,
        dtype => 0.75 * ulp(dtype, want[i]) + 20.0 * U,
    };
    assert_within(&y.to_f64()?, &want, allowed, format!("{what}: {form:?} {:?}", x.desc()));
    Ok(())
}

/// Computes into outputs that lie as `output` says, and compares both.
#[track_caller]
fn check_backward(
    [x, bias, dy]: [&Tensor; 3],
    form: Approximate,
    output: Layout,
    what: &str,
) -> Result<(Tensor, Tensor)> {
    let (dtype, device) = (x.dtype(), x.device());
    let (rows, cols) = (x.shape()[0], x.shape()[1]);
    let dx = output.output(device, dtype, [rows, cols])?;
    let dbias = poisoned(device, dtype, &[cols], POISON)?;
    ops::bias_gelu_backward_into(x, bias, dy, form, &dx, &dbias)?;
    let (want_dx, want_dbias) = reference::bias_gelu_backward(x, bias, dy, form)?;
    let what = format!("{what}: {form:?} {:?}", x.desc());
    let dys = dy.to_f64()?;
    // The slope's own error, and its curvature (below 1) times the rounding of the sum.
    let computed =
        |i: usize| dys[i].abs() * if dtype == DType::F32 { 32.0 * U } else { 1.0 / f64::from(1 << 13) };
    let allowed = |i: usize| computed(i) + 0.55 * ulp(dtype, want_dx[i]);
    assert_within(&dx.to_f64()?, &want_dx, allowed, format!("dx, {what}"));
    // A column adds up some hundred numbers at most one after another.
    let allowed = |j: usize| {
        let column = || (0..rows).map(|row| row * cols + j);
        let magnitude: f64 = column().map(|i| want_dx[i].abs()).sum();
        let computed: f64 = column().map(computed).sum();
        computed + magnitude * 300.0 * U + 0.55 * ulp(dtype, want_dbias[j])
    };
    assert_within(&dbias.to_f64()?, &want_dbias, allowed, format!("dbias, {what}"));
    Ok((dx, dbias))
}

on_each_device! {
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(80);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let (dtype, form) = (DTYPES[(turn + i) % 3], FORMS[(turn + i / 3) % 2]);
                let x = layout.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
                let of_bias = [Layout::Dense, Layout::Offset(1), Layout::Stepped][i % 3];
                let bias = of_bias.random(device, dtype, [1, shape[1]], (-1.0, 1.0), &mut random)?.squeeze(0)?;
                let what = format!("{layout:?}, bias {of_bias:?}");
                for output in [layout, Layout::Dense] {
                    check(&x, &bias, form, &output.output(device, dtype, shape)?, &what)?;
                }
                for of_dy in [layout, Layout::Dense] {
                    let dy = of_dy.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                    check_backward([&x, &bias, &dy], form, layout, &what)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of every length between one element and some packs, aligned: in units, ragged, and shorter than a unit.
    fn every_length_of_rows_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(81);
        for dtype in DTYPES {
            for cols in (1..40).chain([255, 256, 257, 264, 520]) {
                let shape = [5, cols];
                let form = FORMS[cols % 2];
                let x = Layout::Dense.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
                let dy = Layout::Dense.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                let bias = floats(device, dtype, &[cols], &random.floats(cols, -1.0, 1.0))?;
                check(&x, &bias, form, &poisoned(device, dtype, &shape, POISON)?, "dense")?;
                check_backward([&x, &bias, &dy], form, Layout::Dense, "dense")?;
            }
        }
        Ok(())
    }

    /// Enough rows for several groups of them, of columns that take one strip and several.
    fn many_rows_are_summed_in_groups(device: &Device) -> Result<()> {
        let mut random = Random::new(82);
        for (dtype, shape) in [
            (DType::F32, [700, 260]),
            (DType::BF16, [1000, 320]),
            (DType::F16, [5000, 8]),
            (DType::F32, [3000, 5]),
            (DType::BF16, [2500, 33]),
            // Folded: by 4, by 4 and by 8, with rows left over; by 4 without.
            (DType::F32, [1103, 259]),
            (DType::BF16, [1031, 262]),
            (DType::F16, [2111, 125]),
            (DType::F32, [1300, 203]),
        ] {
            let x = Layout::Dense.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
            let dy = Layout::Dense.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
            let bias = floats(device, dtype, &[shape[1]], &random.floats(shape[1], -1.0, 1.0))?;
            let (dx, dbias) = check_backward([&x, &bias, &dy], Approximate::Tanh, Layout::Dense, "groups")?;
            for _ in 0..2 {
                let (dx_again, dbias_again) = ops::bias_gelu_backward(&x, &bias, &dy, Approximate::Tanh)?;
                assert_same(&dx_again.to_bytes()?, &dx.to_bytes()?, "dx again");
                assert_same(&dbias_again.to_bytes()?, &dbias.to_bytes()?, "dbias again");
            }
        }
        Ok(())
    }

    /// Rows that all begin at the same place of a pack, which is not its first: most of them are cut elsewhere.
    fn rows_that_begin_inside_a_pack_are_summed(device: &Device) -> Result<()> {
        let mut random = Random::new(84);
        for (dtype, shape, first) in [
            (DType::F32, [1100, 260], 1),
            (DType::F32, [90_000, 3], 3),
            (DType::BF16, [1000, 320], 7),
            (DType::F16, [2111, 125], 5),
            (DType::BF16, [60_000, 5], 1),
            // Too few rows to be cut.
            (DType::BF16, [7, 40_001], 1),
        ] {
            let len = shape[0] * shape[1];
            let mut of = |low, high| -> Result<Tensor> {
                let all = floats(device, dtype, &[len + first], &random.floats(len + first, low, high))?;
                all.narrow(0, first, len)?.reshape(&shape)
            };
            let (x, dy) = (of(-6.0, 6.0)?, of(-2.0, 2.0)?);
            let bias = floats(device, dtype, &[shape[1]], &random.floats(shape[1], -1.0, 1.0))?;
            let dx = poisoned(device, dtype, &[len + 2 * first], POISON)?;
            let dbias = poisoned(device, dtype, &[shape[1]], POISON)?;
            let inner = dx.narrow(0, first, len)?.reshape(&shape)?;
            ops::bias_gelu_backward_into(&x, &bias, &dy, Approximate::Tanh, &inner, &dbias)?;
            // What is computed at once and from the start of a pack on is the same, but for the order of the sums.
            let (x, dy) = (ops::cast(&x, dtype)?, ops::cast(&dy, dtype)?);
            let (want_dx, want_dbias) = check_backward([&x, &bias, &dy], Approximate::Tanh, Layout::Dense, "aligned")?;
            assert_same(&inner.to_f64()?, &want_dx.to_f64()?, format!("dx, {dtype} {shape:?}"));
            let tolerance = if dtype == DType::F32 { 1e-3 } else { 0.2 };
            let want = want_dbias.to_f64()?;
            assert_within(&dbias.to_f64()?, &want, |i| tolerance * (1.0 + want[i].abs() / 50.0), format!("dbias, {dtype} {shape:?}"));
            // Nothing beside it is written.
            let bytes = dx.to_bytes()?;
            let beside = first * dtype.size();
            assert!(bytes[..beside].iter().chain(&bytes[bytes.len() - beside..]).all(|&byte| byte == POISON));
        }
        Ok(())
    }

    fn leading_dimensions_are_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(83);
        let mut of = |shape: &[usize]| floats(device, DType::F16, shape, &random.floats(shape.iter().product(), -3.0, 3.0));
        let (x, dy, bias) = (of(&[3, 5, 2, 16])?, of(&[5, 3, 2, 16])?.transpose(0, 1)?, of(&[16])?);
        let (dx, dbias) = ops::bias_gelu_backward(&x, &bias, &dy, Approximate::None)?;
        assert_eq!((dx.shape(), dbias.shape()), (x.shape(), bias.shape()));
        let (want_dx, want_dbias) = reference::bias_gelu_backward(&x, &bias, &dy, Approximate::None)?;
        assert_within(&dx.to_f64()?, &want_dx, |_| 3e-3, "dx");
        assert_within(&dbias.to_f64()?, &want_dbias, |_| 2e-2, "dbias");
        let y = ops::bias_gelu(&x.transpose(0, 2)?, &bias, Approximate::None)?;
        let want = reference::bias_gelu(&x.transpose(0, 2)?, &bias, Approximate::None)?;
        assert_within(&y.to_f64()?, &want, |_| 3e-3, "y");
        Ok(())
    }

    fn without_rows_dbias_is_0(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let (x, bias) = (Tensor::zeros(device, dtype, &[0, 9])?, floats(device, dtype, &[9], &[1.0; 9])?);
            let dbias = poisoned(device, dtype, &[9], POISON)?;
            let dx = poisoned(device, dtype, &[0, 9], POISON)?;
            ops::bias_gelu_backward_into(&x, &bias, &x, Approximate::None, &dx, &dbias)?;
            assert_same(&dbias.to_f64()?, &[0.0; 9], format!("{dtype}"));
        }
        Ok(())
    }

    fn a_nan_stays_in_its_element_and_column(device: &Device) -> Result<()> {
        for (cols, form) in [(16, Approximate::None), (13, Approximate::Tanh)] {
            let mut values = vec![0.5; 20 * cols];
            values[7 * cols + 3] = f32::NAN;
            let x = floats(device, DType::F32, &[20, cols], &values)?;
            let ones = floats(device, DType::F32, &[20, cols], &vec![1.0; 20 * cols])?;
            let bias = floats(device, DType::F32, &[cols], &vec![0.25; cols])?;
            let (dx, dbias) = ops::bias_gelu_backward(&x, &bias, &ones, form)?;
            let nans = |values: Vec<f32>| (0..values.len()).filter(|&i| values[i].is_nan()).collect::<Vec<_>>();
            assert_eq!(nans(dx.to_vec()?), [7 * cols + 3]);
            assert_eq!(nans(dbias.to_vec()?), [3]);
            assert_eq!(nans(ops::bias_gelu(&x, &bias, form)?.to_vec()?), [7 * cols + 3]);
            // A bias of infinity, where the slope is 0 or 1.
            let bias = floats(device, DType::F32, &[cols], &vec![f32::NEG_INFINITY; cols])?;
            let (dx, dbias) = ops::bias_gelu_backward(&ones, &bias, &ones, form)?;
            assert!(dx.to_f64()?.into_iter().chain(dbias.to_f64()?).all(|slope| slope == 0.0));
        }
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
            let mut random = Random::new(84);
            let x = Layout::Dense.random(device, dtype, [200, 40], (-4.0, 8.0), &mut random)?;
            let bias = floats(device, dtype, &[40], &random.floats(40, -1.0, 1.0))?;
            let want = reference::bias_gelu(&x, &bias, form)?;
            let got = ops::bias_gelu(&x, &bias, form)?.to_f64()?;
            // The sum rounded, then the exact function, rounded: better than unfused steps can be.
            let biases = bias.to_f64()?;
            let sums: Vec<f32> =
                x.to_f64()?.iter().enumerate().map(|(i, x)| round(dtype, x + biases[i % 40]) as f32).collect();
            let plain = reference::gelu(&floats(device, dtype, &[sums.len()], &sums)?, form)?;
            let plain: Vec<f64> = plain.into_iter().map(|y| round(dtype, y)).collect();
            let worst = |y: &[f64]| y.iter().zip(&want).map(|(y, want)| (y - want).abs()).fold(0.0, f64::max);
            let (got, plain) = (worst(&got), worst(&plain));
            assert!(got <= 2.0 * plain, "{dtype} {form:?}: {got:e} against {plain:e}");
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[2, 3], &[1.0; 6])?;
        let form = Approximate::Tanh;
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let forward = |x: &Tensor, bias: &Tensor| text(ops::bias_gelu(x, bias, form).map(drop));
        let bias = zeros(DType::F32, &[3])?;
        let wrong = zeros(DType::F32, &[2])?;
        assert_eq!(forward(&x, &wrong), "bias_gelu: `bias` must have shape [3], got [2]");
        let wrong = zeros(DType::F32, &[1, 3])?;
        assert_eq!(forward(&x, &wrong), "bias_gelu: `bias` must have shape [3], got [1, 3]");
        let wrong = zeros(DType::F16, &[3])?;
        assert_eq!(forward(&x, &wrong), "bias_gelu: `bias` must have dtype f32, got f16");
        let scalar = zeros(DType::F32, &[])?;
        assert_eq!(forward(&scalar, &bias), "bias_gelu: `x` must have shape [.., N], got []");
        let backward = |dx: &Tensor, dbias: &Tensor| {
            text(ops::bias_gelu_backward_into(&x, &bias, &x.clone(), form, dx, dbias))
        };
        let (dx, dbias) = (zeros(DType::F32, &[2, 3])?, zeros(DType::F32, &[3])?);
        let want = "bias_gelu_backward: `dbias` must have shape [3], got [2]";
        assert_eq!(backward(&dx, &zeros(DType::F32, &[2])?), want);
        let want = "bias_gelu_backward: `dbias` must have memory apart from the inputs', got strides [1]";
        assert_eq!(backward(&dx, &bias), want);
        assert_eq!(backward(&dx, &dx.reshape(&[6])?.narrow(0, 2, 3)?), want);
        let want = "bias_gelu_backward: `dx` must have shape [2, 3], got [3, 2]";
        assert_eq!(backward(&zeros(DType::F32, &[3, 2])?, &dbias), want);
        let dy = zeros(DType::F32, &[2])?;
        let want = "bias_gelu_backward: `dy` must have shape [2, 3], got [2]";
        assert_eq!(text(ops::bias_gelu_backward(&x, &bias, &dy, form).map(drop)), want);
        Ok(())
    }
}

#[test]
fn a_replay_gives_the_bits_of_the_eager_call() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_gives_the_bits_of_the_eager_call")? else { return Ok(()) };
    let mut random = Random::new(85);
    for (dtype, shape) in [(DType::BF16, [3000, 768]), (DType::F32, [1000, 77])] {
        let x = Layout::Dense.random(&device, dtype, shape, (-6.0, 6.0), &mut random)?;
        let dy = Layout::Dense.random(&device, dtype, shape, (-2.0, 2.0), &mut random)?;
        let bias = floats(&device, dtype, &[shape[1]], &random.floats(shape[1], -1.0, 1.0))?;
        let (want_dx, want_dbias) = ops::bias_gelu_backward(&x, &bias, &dy, Approximate::None)?;
        let dx = poisoned(&device, dtype, &shape, POISON)?;
        let dbias = poisoned(&device, dtype, &[shape[1]], POISON)?;
        let (graph, ()) = Graph::capture(&device, |_| {
            ops::bias_gelu_backward_into(&x, &bias, &dy, Approximate::None, &dx, &dbias)
        })?;
        for _ in 0..3 {
            graph.launch()?;
            assert_same(&dx.to_bytes()?, &want_dx.to_bytes()?, "dx");
            assert_same(&dbias.to_bytes()?, &want_dbias.to_bytes()?, "dbias");
        }
    }
    Ok(())
}
