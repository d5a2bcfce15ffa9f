//! Float math against f64, within the errors that `cuda_std::float` states, which on a GPU are those of the
//! PTX instructions and what is built on them.

use kernels_gpu::probe::{UNARY, ternary, unary};
use warpwright::{Device, Grid, Result};
use warpwright_tests::{Array, EDGES, Random, assert_same, assert_within, on_each_device, ulp};

/// Below this the instructions with `.ftz` give 0.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// What a function is compared with.
struct Function {
    name: &'static str,
    exact: fn(f64) -> f64,
    /// The allowed error at `x`, of the result `y`.
    allowed: fn(x: f64, y: f64) -> f64,
    /// Whether subnormal arguments count as 0.
    flushes: bool,
    /// Where random arguments come from, beside those of any bits.
    ranges: &'static [(f32, f32)],
}

fn two_to(exponent: i32) -> f64 {
    f64::from(exponent).exp2()
}

/// Within [0.5, 2] an absolute error, else a relative one.
fn logarithm_error(x: f64, y: f64, absolute: f64, relative: f64) -> f64 {
    if (0.5..=2.0).contains(&x) { absolute } else { y.abs() * relative }
}

/// tanh and erf of subnormal arguments have results of one digit.
const LAST_DIGIT: f64 = f32::from_bits(1) as f64;

const FUNCTIONS: [Function; 10] = [
    Function {
        name: "exp2",
        exact: f64::exp2,
        allowed: |_, y| 2.0 * ulp(y),
        flushes: true,
        ranges: &[(-1.0, 1.0), (-126.0, 128.0), (-160.0, 140.0)],
    },
    Function {
        name: "log2",
        exact: f64::log2,
        allowed: |x, y| logarithm_error(x, y, two_to(-22), two_to(-22)),
        flushes: true,
        ranges: &[(0.4, 2.5), (0.99, 1.01), (0.0, 1e6)],
    },
    Function {
        name: "rcp",
        exact: |x| 1.0 / x,
        allowed: |_, y| ulp(y),
        flushes: true,
        ranges: &[(-4.0, 4.0), (1.0, 2.0)],
    },
    Function {
        name: "rsqrt",
        exact: |x| 1.0 / x.sqrt(),
        allowed: |_, y| y.abs() * (-22.4f64).exp2(),
        flushes: true,
        ranges: &[(0.0, 4.0), (1.0, 4.0)],
    },
    Function {
        name: "sqrt",
        exact: f64::sqrt,
        allowed: |_, y| 0.5 * ulp(y),
        flushes: false,
        ranges: &[(0.0, 4.0), (1.0, 1e30)],
    },
    Function {
        name: "exp",
        exact: f64::exp,
        allowed: |_, y| y * two_to(-21),
        flushes: true,
        ranges: &[(-1.0, 1.0), (-87.4, 88.8), (-20.0, 0.0), (-110.0, 100.0), (-1e30, 1e30)],
    },
    Function {
        name: "ln",
        exact: f64::ln,
        allowed: |x, y| logarithm_error(x, y, two_to(-22), (-21.5f64).exp2()),
        flushes: true,
        ranges: &[(0.4, 2.5), (0.99, 1.01), (0.0, 1e6)],
    },
    Function {
        name: "tanh",
        exact: f64::tanh,
        allowed: |_, y| y.abs() * two_to(-20) + LAST_DIGIT,
        flushes: false,
        ranges: &[(-1.0, 1.0), (-0.6, -0.5), (0.5, 0.6), (-10.0, 10.0)],
    },
    Function {
        name: "tanh_approx",
        exact: f64::tanh,
        allowed: |_, y| y.abs() * two_to(-11) + LAST_DIGIT,
        flushes: false,
        ranges: &[(-1.0, 1.0), (-10.0, 10.0)],
    },
    Function {
        name: "erf",
        exact: erf,
        allowed: |_, _| two_to(-21),
        flushes: false,
        ranges: &[(-1.1, 1.1), (0.9, 1.1), (-4.0, 4.0)],
    },
];

/// erf by its Maclaurin series below 3, by the continued fraction of erfc above; to 1e-14.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return a;
    }
    let scale = std::f64::consts::FRAC_2_SQRT_PI;
    let positive = if a < 3.0 {
        let mut term = a;
        let mut sum = a;
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        scale * sum
    } else if a > 7.0 {
        1.0
    } else {
        // erfc(a) = exp(-a²)/√π / (a + 1/2 / (a + 2/2 / (a + 3/2 / (a + …)))).
        let fraction = (1..=80).rev().fold(a, |rest, n| a + f64::from(n) / 2.0 / rest);
        1.0 - 0.5 * scale * (-a * a).exp() / fraction
    };
    positive.copysign(x)
}

/// Edges, their neighbours, floats of any bits, and the function's ranges.
fn arguments(function: &Function) -> Vec<f32> {
    let mut random = Random::new(50);
    let mut x: Vec<f32> = EDGES.iter().flat_map(|&x| [x, x.next_up(), x.next_down(), -x]).collect();
    x.extend(random.words(20_000).into_iter().map(f32::from_bits));
    for &(low, high) in function.ranges {
        x.extend(random.floats(20_000, low, high));
    }
    x
}

/// The largest error, in units of what is allowed, and where: what `--nocapture` shows.
fn check(device: &Device, index: usize) -> Result<()> {
    let function = &FUNCTIONS[index];
    assert_eq!(UNARY[index], function.name);
    let x = arguments(function);
    let (input, output) = (Array::new(device, &x)?, Array::poisoned(device, x.len())?);
    let kernel = unary::ALL.iter().find(|kernel| kernel.constant("FUNCTION") == index).expect("an instance");
    let grid = Grid::covering(x.len() as u64, kernel.bounds.threads.into())?;
    // SAFETY: the arrays have the sizes that the kernel states.
    unsafe { device.launch(kernel, grid, (input.view()?, output.view_mut()?, x.len() as u32))? };
    let got = output.read()?;
    let argument = |i: usize| match function.flushes && x[i].is_subnormal() {
        true => 0f64.copysign(x[i].into()),
        false => f64::from(x[i]),
    };
    let exact: Vec<f64> = (0..x.len()).map(|i| (function.exact)(argument(i))).collect();
    // What rounds to infinity is infinity.
    let overflow = f64::from(f32::MAX) + 0.5 * ulp(f32::MAX.into());
    let want: Vec<f64> =
        exact.iter().map(|&y| if y.abs() >= overflow { f64::INFINITY.copysign(y) } else { y }).collect();
    let allowed = |i: usize| {
        let tolerance = (function.allowed)(argument(i), want[i]);
        // A result at the edge of the normal numbers may be flushed to 0.
        if function.flushes && want[i].abs() <= SMALLEST * 1.000_001 {
            tolerance.max(SMALLEST)
        } else {
            tolerance
        }
    };
    let got: Vec<f64> = got.into_iter().map(f64::from).collect();
    let error = |i: usize| if want[i].is_finite() { (got[i] - want[i]).abs() / allowed(i) } else { 0.0 };
    let worst =
        (0..x.len()).filter(|&i| want[i].abs() > SMALLEST).max_by(|&a, &b| error(a).total_cmp(&error(b)));
    if let Some(i) = worst {
        println!("{} on {}: {:.3} of what is allowed, at {:e}", function.name, device.name(), error(i), x[i]);
    }
    if let Some(i) = (0..x.len()).find(|&i| {
        !(got[i] == want[i] || got[i].is_nan() && want[i].is_nan() || error(i) <= 1.0 && want[i].is_finite())
    }) {
        println!("{}({:e} = {:#010x})", function.name, x[i], x[i].to_bits());
    }
    assert_within(&got, &want, allowed, function.name);
    Ok(())
}

on_each_device! {
    fn exp2_log2_and_reciprocals(device: &Device) -> Result<()> {
        (0..5).try_for_each(|function| check(device, function))
    }

    fn exp_and_ln(device: &Device) -> Result<()> {
        (5..7).try_for_each(|function| check(device, function))
    }

    fn tanh_and_erf(device: &Device) -> Result<()> {
        (7..10).try_for_each(|function| check(device, function))
    }

    fn odd_functions_keep_the_sign_of_zero(device: &Device) -> Result<()> {
        for index in [4, 7, 8, 9] {
            let x = [0.0, -0.0f32];
            let (input, output) = (Array::new(device, &x)?, Array::poisoned(device, 2)?);
            // SAFETY: the arrays have the sizes that the kernel states.
            unsafe { device.launch(&unary::ALL[index], Grid::new(1)?, (input.view()?, output.view_mut()?, 2))? };
            assert_same(&output.read()?, &x, UNARY[index]);
        }
        Ok(())
    }

    /// fma rounds once, maximum and minimum keep NaN and order the zeros.
    fn fma_max_and_min_are_exact(device: &Device) -> Result<()> {
        let mut random = Random::new(51);
        let mut cases: Vec<[f32; 3]> = Vec::new();
        for a in EDGES {
            cases.extend(EDGES.map(|b| [a, b, EDGES[random.below(32) as usize]]));
        }
        cases.extend((0..10_000).map(|_| [0; 3].map(|_| f32::from_bits(random.bits() as u32))));
        // Products that the sum nearly cancels.
        let near = random.floats(10_000, 0.5, 2.0);
        cases.extend(near.windows(2).map(|w| [w[0], w[1], -(w[0] * w[1])]));
        let column = |i: usize| cases.iter().map(|case| case[i]).collect::<Vec<f32>>();
        let (a, b, c) = (column(0), column(1), column(2));
        let (xa, xb, xc) = (Array::new(device, &a)?, Array::new(device, &b)?, Array::new(device, &c)?);
        let out = Array::poisoned(device, 3 * cases.len())?;
        let args = (xa.view()?, xb.view()?, xc.view()?, out.view_mut()?, cases.len() as u32);
        let kernel = &ternary::ALL[0];
        let grid = Grid::covering(cases.len() as u64, kernel.bounds.threads.into())?;
        // SAFETY: the arrays have the sizes that the kernel states.
        unsafe { device.launch(kernel, grid, args)? };
        let got = out.read()?;
        let ordered = |a: f32, b: f32| if a.total_cmp(&b).is_lt() { (a, b) } else { (b, a) };
        let nan_or = |a: f32, b: f32, value: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { value };
        let each = |f: &dyn Fn(f32, f32, f32) -> f32| cases.iter().map(|&[a, b, c]| f(a, b, c)).collect::<Vec<f32>>();
        let (fma, rest) = got.split_at(cases.len());
        let (max, min) = rest.split_at(cases.len());
        assert_same(fma, &each(&|a, b, c| a.mul_add(b, c)), "fma");
        assert_same(max, &each(&|a, b, _| nan_or(a, b, ordered(a, b).1)), "max_nan");
        assert_same(min, &each(&|a, b, _| nan_or(a, b, ordered(a, b).0)), "min_nan");
        Ok(())
    }
}
