//! `gelu` and `gelu_backward` against float64.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use pointwise::{Layout, SHAPES, round, ulp};
use warpwright::ops::{self, Approximate};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, EDGES, POISON, Random, assert_same, assert_within, floats, on_each_device, poisoned,
};

const FORMS: [Approximate; 2] = [Approximate::None, Approximate::Tanh];

/// Relative error of the f32 forms; results below the last may be 0. Of slopes it is the absolute error.
const RELATIVE: f64 = 1.0 / (1 << 19) as f64;
const SLOPE: f64 = 1.0 / (1 << 20) as f64;
const SMALLEST: f64 = 7.5e-37; // 2^-120

/// What gelu(x) may be off by. 16-bit results: half an ulp of rounding, 0.2 of arithmetic.
fn tolerance(dtype: DType, y: f64) -> f64 {
    match dtype {
        DType::F32 => y.abs() * RELATIVE + SMALLEST,
        _ => 0.7 * ulp(dtype, y) + SMALLEST,
    }
}

/// What dx may be off by: slopes have an absolute error, which dy scales.
fn slope_tolerance(dtype: DType, dx: f64, dy: f64) -> f64 {
    match dtype {
        DType::F32 => dy.abs() * SLOPE + ulp(dtype, dx),
        _ => dy.abs() / f64::from(1 << 13) + 0.55 * ulp(dtype, dx),
    }
}

#[track_caller]
fn check(x: &Tensor, approximate: Approximate, y: &Tensor, what: &str) -> Result<()> {
    ops::gelu_into(x, approximate, y)?;
    let want = reference::gelu(x, approximate)?;
    let (dtype, device) = (x.dtype(), x.device());
    let what = format!("{what}: {approximate:?} {dtype}{:?} on {device}", x.shape());
    let got = y.to_f64()?;
    let share = |i: usize| (got[i] - want[i]).abs() / tolerance(dtype, want[i]);
    let worst = (0..got.len()).map(share).filter(|share| share.is_finite()).fold(0.0, f64::max);
    println!("{what}: {worst:.3} of what is allowed"); // what `--nocapture` shows
    assert_within(&got, &want, |i| tolerance(dtype, want[i]), what);
    Ok(())
}

#[track_caller]
fn check_backward(x: &Tensor, dy: &Tensor, approximate: Approximate, dx: &Tensor, what: &str) -> Result<()> {
    ops::gelu_backward_into(x, dy, approximate, dx)?;
    let want = reference::gelu_backward(x, dy, approximate)?;
    let (dtype, device, dys) = (x.dtype(), x.device(), dy.to_f64()?);
    let what = format!("{what}: backward {approximate:?} {dtype}{:?} on {device}", x.shape());
    let got = dx.to_f64()?;
    let share = |i: usize| (got[i] - want[i]).abs() / slope_tolerance(dtype, want[i], dys[i]);
    let worst = (0..got.len()).map(share).filter(|share| share.is_finite()).fold(0.0, f64::max);
    println!("{what}: {worst:.3} of what is allowed");
    assert_within(&got, &want, |i| slope_tolerance(dtype, want[i], dys[i]), what);
    Ok(())
}

/// Edges and their neighbours, a fine grid, and floats of any bits.
fn arguments() -> Vec<f32> {
    let mut x: Vec<f32> = EDGES.iter().flat_map(|&x| [x, x.next_up(), x.next_down(), -x]).collect();
    x.extend((-3000..3000).map(|i| i as f32 / 200.0));
    let mut random = Random::new(70);
    x.extend(random.words(5000).into_iter().map(f32::from_bits));
    for (low, high) in [(-0.01, 0.01), (-1.0, 1.0), (-6.0, 6.0), (-14.0, -5.0), (-25.0, 25.0)] {
        x.extend(random.floats(5000, low, high));
    }
    x
}

on_each_device! {
    fn values_are_right_from_the_tail_to_infinity(device: &Device) -> Result<()> {
        let values = arguments();
        for (dtype, approximate) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
            let x = floats(device, dtype, &[values.len()], &values)?;
            let y = poisoned(device, dtype, x.shape(), POISON)?;
            check(&x, approximate, &y, "any argument")?;
        }
        Ok(())
    }

    fn slopes_are_right_and_finite_everywhere(device: &Device) -> Result<()> {
        let values = arguments();
        for (dtype, approximate) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
            let x = floats(device, dtype, &[values.len()], &values)?;
            let dys = Random::new(71).floats(values.len(), -4.0, 4.0);
            let dy = floats(device, dtype, x.shape(), &dys)?;
            let dx = poisoned(device, dtype, x.shape(), POISON)?;
            check_backward(&x, &dy, approximate, &dx, "any argument")?;
            for (x, dx) in x.to_f64()?.into_iter().zip(dx.to_f64()?) {
                assert_eq!(x.is_nan(), !dx.is_finite(), "{dtype} {approximate:?}: the gradient at {x} is {dx}");
            }
        }
        Ok(())
    }

    fn limits_are_exact(device: &Device) -> Result<()> {
        for (dtype, approximate) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
            let large = if dtype == DType::F16 { 60000.0 } else { 1e38 };
            let values = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, large, -large, 20.0, -20.0, 0.0, -0.0];
            let x = floats(device, dtype, &[9], &values)?;
            let y = ops::gelu(&x, approximate)?.to_f64()?;
            let large = round(dtype, large.into());
            let want = [f64::INFINITY, -0.0, f64::NAN, large, -0.0, 20.0, -0.0, 0.0, -0.0];
            assert_same(&y, &want, format!("{dtype} {approximate:?}"));
            let ones = floats(device, dtype, &[9], &[1.0; 9])?;
            let dx = ops::gelu_backward(&x, &ones, approximate)?.to_f64()?;
            let want = [1.0, 0.0, f64::NAN, 1.0, 0.0, 1.0, 0.0, 0.5, 0.5];
            assert_within(&dx, &want, |i| if want[i] == 0.5 { SLOPE } else { 0.0 }, format!("slopes of {dtype} {approximate:?}"));
        }
        Ok(())
    }

    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(72);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let (dtype, form) = (DTYPES[(turn + i) % 3], FORMS[(turn + i / 3) % 2]);
                let what = format!("{layout:?}");
                let x = layout.random(device, dtype, shape, (-6.0, 6.0), &mut random)?;
                // y alike, y aligned, and dy otherwise.
                for output in [layout, Layout::Dense] {
                    check(&x, form, &output.output(device, dtype, shape)?, &what)?;
                }
                for of_dy in [layout, Layout::Dense, Layout::ALL[(i + 4) % 9]] {
                    let dy = of_dy.random(device, dtype, shape, (-2.0, 2.0), &mut random)?;
                    let dx = layout.output(device, dtype, shape)?;
                    check_backward(&x, &dy, form, &dx, &format!("{layout:?}, dy {of_dy:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn nothing_beside_y_is_written(device: &Device) -> Result<()> {
        for (dtype, at) in DTYPES.into_iter().flat_map(|dtype| [0, 1, 5, 8].map(|at| (dtype, at))) {
            let whole = poisoned(device, dtype, &[100], POISON)?;
            let before = whole.to_bytes()?;
            let x = floats(device, dtype, &[100], &[1.0; 100])?.narrow(0, at, 70)?;
            ops::gelu_into(&x, Approximate::None, &whole.narrow(0, at, 70)?)?;
            let (after, size) = (whole.to_bytes()?, dtype.size());
            assert_eq!(after[..at * size], before[..at * size]);
            assert_eq!(after[(at + 70) * size..], before[(at + 70) * size..]);
        }
        Ok(())
    }

    fn many_dimensions_are_walked(device: &Device) -> Result<()> {
        let values = Random::new(73).floats(2 * 3 * 2 * 3 * 2 * 2 * 2 * 5, -4.0, 4.0);
        let x = floats(device, DType::BF16, &[2, 3, 2, 3, 2, 2, 2, 5], &values)?;
        for dims in [[7, 6, 5, 4, 3, 2, 1, 0], [1, 0, 3, 2, 5, 4, 7, 6], [0, 2, 1, 3, 5, 4, 6, 7]] {
            let x = x.permute(&dims)?;
            check(&x, Approximate::Tanh, &poisoned(device, DType::BF16, x.shape(), 0xa5)?, "permuted")?;
        }
        let scalar = floats(device, DType::F32, &[], &[1.5])?;
        check(&scalar, Approximate::None, &poisoned(device, DType::F32, &[], 0xa5)?, "a scalar")
    }

    /// Enough elements for the instance that takes the most of them a thread.
    fn large_tensors_take_the_larger_instance(device: &Device) -> Result<()> {
        for (dtype, count) in [(DType::F32, (1 << 21) + 4099), (DType::BF16, (1 << 22) + 4099)] {
            let period = 1009;
            let few = Random::new(74).floats(period, -5.0, 5.0);
            let values: Vec<f32> = (0..count).map(|i| few[i % period]).collect();
            let x = floats(device, dtype, &[count], &values)?;
            let part = x.narrow(0, 0, period)?;
            let want = ops::gelu(&part, Approximate::Tanh)?.to_f64()?;
            let want_dx = ops::gelu_backward(&part, &part, Approximate::Tanh)?.to_f64()?;
            check(&part, Approximate::Tanh, &poisoned(device, dtype, &[period], 0xa5)?, "a part")?;
            let y = ops::gelu(&x, Approximate::Tanh)?.to_f64()?;
            let dx = ops::gelu_backward(&x, &x, Approximate::Tanh)?.to_f64()?;
            for i in 0..count {
                assert_eq!((y[i], dx[i]), (want[i % period], want_dx[i % period]), "{dtype}: element {i}");
            }
        }
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for (dtype, approximate) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
            let x = floats(device, dtype, &[8000], &Random::new(75).floats(8000, -4.0, 8.0))?;
            let want = reference::gelu(&x, approximate)?;
            let got = ops::gelu(&x, approximate)?.to_f64()?;
            let plain: Vec<f64> = x.to_f64()?.into_iter().map(|x| unfused(dtype, x, approximate)).collect();
            let worst = |y: &[f64]| y.iter().zip(&want).map(|(y, want)| (y - want).abs()).fold(0.0, f64::max);
            let (got, plain) = (worst(&got), worst(&plain));
            assert!(got <= 2.0 * plain, "{dtype} {approximate:?}: {got:e} against {plain:e}");
        }
        Ok(())
    }
}

/// The formula with each step rounded to `dtype`; erf and tanh of it as exact as f64's.
fn unfused(dtype: DType, x: f64, approximate: Approximate) -> f64 {
    let r = |value| round(dtype, value);
    let bell = match approximate {
        Approximate::Tanh => {
            let cube = r(r(x * x) * x);
            r(r(0.797_884_560_802_865_4 * r(x + r(0.044715 * cube))).tanh())
        }
        // erf(x/√2) = 2·Φ(x) − 1, of the reference.
        Approximate::None => {
            let argument = r(x / std::f64::consts::SQRT_2);
            r(2.0 * phi(argument * std::f64::consts::SQRT_2) - 1.0)
        }
    };
    r(r(0.5 * x) * r(1.0 + bell))
}

/// Φ by Simpson's rule from 0: exact to 1e-9, far below any rounding here.
fn phi(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (steps, width) = (200, x / 200.0);
    let sum: f64 = (0..=steps)
        .map(|i| {
            density(f64::from(i) * width)
                * if i == 0 || i == steps {
                    1.0
                } else if i % 2 == 1 {
                    4.0
                } else {
                    2.0
                }
        })
        .sum();
    0.5 + sum * width / 3.0
}

#[test]
fn the_reference_has_the_slope_of_its_values() -> Result<()> {
    let device = Device::cpu();
    // Multiples of 2^-8, so that their neighbours are exact.
    let h = 1.0 / 256.0;
    let x: Vec<f32> = (-2000..2000).map(|i| i as f32 / 256.0).collect();
    let of = |by: f32| floats(&device, DType::F32, &[x.len()], &x.iter().map(|x| x + by).collect::<Vec<_>>());
    for approximate in FORMS {
        let (above, below) =
            (reference::gelu(&of(h)?, approximate)?, reference::gelu(&of(-h)?, approximate)?);
        let ones = floats(&device, DType::F32, &[x.len()], &vec![1.0; x.len()])?;
        let slope = reference::gelu_backward(&of(0.0)?, &ones, approximate)?;
        let difference: Vec<f64> =
            above.iter().zip(&below).map(|(a, b)| (a - b) / (2.0 * f64::from(h))).collect();
        // h²/6 times the third derivative, which stays below 2.
        assert_within(&difference, &slope, |_| 6e-6, format!("{approximate:?}"));
    }
    Ok(())
}

#[test]
fn the_two_forms_differ_by_what_is_known() -> Result<()> {
    let x: Vec<f32> = (-600..600).map(|i| i as f32 / 100.0).collect();
    let x = floats(&Device::cpu(), DType::F32, &[x.len()], &x)?;
    let (erf, tanh) =
        (ops::gelu(&x, Approximate::None)?.to_f64()?, ops::gelu(&x, Approximate::Tanh)?.to_f64()?);
    let most = erf.iter().zip(&tanh).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!((4e-4..6e-4).contains(&most), "{most}");
    Ok(())
}

on_each_device! {
    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[2, 3], &[1.0; 6])?;
        let form = Approximate::Tanh;
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let ints = Tensor::zeros(device, DType::I32, &[2, 3])?;
        let want = "gelu: `x` must have dtype f32, f16 or bf16, got i32";
        assert_eq!(text(ops::gelu(&ints, form).map(drop)), want);
        assert_eq!(text(ops::gelu_shape(&ints).map(drop)), want);
        let dy = Tensor::zeros(device, DType::F32, &[3, 2])?;
        let want = "gelu_backward: `dy` must have shape [2, 3], got [3, 2]";
        assert_eq!(text(ops::gelu_backward(&x, &dy, form).map(drop)), want);
        let dy = Tensor::zeros(device, DType::F16, &[2, 3])?;
        let want = "gelu_backward: `dy` must have dtype f32, got f16";
        assert_eq!(text(ops::gelu_backward(&x, &dy, form).map(drop)), want);
        for (y, want) in [
            (poisoned(device, DType::BF16, &[2, 3], 0)?, "gelu: `y` must have dtype f32, got bf16"),
            (poisoned(device, DType::F32, &[6], 0)?, "gelu: `y` must have shape [2, 3], got [6]"),
            (
                poisoned(device, DType::F32, &[3, 2], 0)?.transpose(0, 1)?,
                "gelu: `y` must have contiguous strides, got strides [1, 2]",
            ),
            (x.clone(), "gelu: `y` must have memory apart from the inputs', got strides [3, 1]"),
        ] {
            assert_eq!(text(ops::gelu_into(&x, form, &y)), want);
        }
        let both = poisoned(device, DType::F32, &[10], 0)?;
        let (a, b) = (both.narrow(0, 0, 6)?, both.narrow(0, 4, 6)?);
        let want = "gelu: `y` must have memory apart from the inputs', got strides [1]";
        assert_eq!(text(ops::gelu_into(&a, form, &b)), want);
        Ok(())
    }
}
