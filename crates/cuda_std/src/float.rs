//! `f32` math. `core` has none on this target, LLVM contracts nothing and `/` is a slow call, so
//! kernels say what they want.
//!
//! Accuracy is stated for the GPU, as the largest error of the result (ulp = units in the last place), from
//! NVIDIA's documentation of the instructions. The CPU's results lie within it too, mostly far, and are not
//! the same bits.

use crate::imp::float as imp;

macro_rules! unary {
    ($($name:ident: $what:literal;)*) => {$(
        #[doc = $what]
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            imp::$name(x)
        }
    )*};
}

unary! {
    exp2: "2^x; 2 ulp. Results below 2^-126 are 0 (`ex2.approx.ftz`); NaN stays NaN.";
    log2: "log2 x; absolute error 2^-22 in [0.5, 2], else relative error 2^-22 (`lg2.approx.ftz`). Subnormal x counts as 0, negative: NaN.";
    rcp: "1/x; 1 ulp (`rcp.approx.ftz`). Subnormal x counts as 0, a subnormal result is 0.";
    rsqrt: "1/√x; relative error 2^-22.4 (`rsqrt.approx.ftz`). Subnormal x counts as 0.";
    sqrt: "√x, correctly rounded (`sqrt.rn`, a slow path on the GPU).";
    tanh_approx: "tanh x; relative error 2^-11, one instruction (`tanh.approx`).";
}

/// a·b + c with one rounding.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    imp::fma(a, b, c)
}

/// The larger value; NaN if either is (`f32::max` drops NaN). +0 is larger than −0.
#[inline(always)]
pub fn max_nan(a: f32, b: f32) -> f32 {
    imp::max_nan(a, b)
}

/// The smaller value; NaN if either is. −0 is smaller than +0.
#[inline(always)]
pub fn min_nan(a: f32, b: f32) -> f32 {
    imp::min_nan(a, b)
}

/// log2(e).
pub const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// ln(2).
pub const LN_2: f32 = core::f32::consts::LN_2;

/// e^x; relative error below 2^-21, results below 2^-126 are 0. The exponent is split so that large |x| keeps
/// its low bits: x·log2(e) as a head and a tail.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // log2(e) = LOG2_E + 1.925963e-8: the tail carries what the head's rounding loses.
    let head = x * LOG2_E;
    let tail = fma(x, 1.925_963e-8, fma(x, LOG2_E, -head));
    let power = exp2(head);
    // Beyond the range of results the tail is no longer small, and NaN where the head is infinite.
    if head.abs() < 256.0 { power * fma(tail, LN_2, 1.0) } else { power }
}

/// ln x; absolute error 2^-22 in [0.5, 2], else relative error 2^-21.5. Subnormal x counts as 0, negative: NaN.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    log2(x) * LN_2
}

/// tanh x; relative error below 2^-20. Odd polynomial below 0.55, else 1 − 2/(e^2x + 1).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let square = a * a;
    // Taylor coefficients up to a^15; the first left out is below 2^-23 of the sum at 0.55.
    let mut p = fma(square, -0.001_455_834, 0.003_592_128);
    p = fma(p, square, -0.008_863_236);
    p = fma(p, square, 0.021_869_488);
    p = fma(p, square, -0.053_968_254);
    p = fma(p, square, 0.133_333_33);
    p = fma(p, square, -0.333_333_33);
    let small = fma(p * square, a, a);
    let large = 1.0 - 2.0 * rcp(exp2(a * (2.0 * LOG2_E)) + 1.0);
    (if a < 0.55 { small } else { large }).copysign(x)
}

/// erf x; absolute error below 2^-21. Series below 1, else 1 − erfc by Abramowitz and Stegun 7.1.26's
/// form with a longer fit.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let square = a * a;
    // Maclaurin series: 2/√π·Σ (−1)^n a^(2n+1) / (n!·(2n+1)), to n = 9.
    let mut p = fma(square, -1.450_385e-7, 1.458_916_9e-6);
    p = fma(p, square, -1.322_751_3e-5);
    p = fma(p, square, 1.068_376_1e-4);
    p = fma(p, square, -7.575_757_6e-4);
    p = fma(p, square, 4.629_629_6e-3);
    p = fma(p, square, -2.380_952_4e-2);
    p = fma(p, square, 0.1);
    p = fma(p, square, -0.333_333_33);
    let small = core::f32::consts::FRAC_2_SQRT_PI * fma(p * square, a, a);
    // erfc(a) ≈ t·exp(−a² + polynomial(t)), t = 1/(1 + a/2); 1.2e-7 (Press et al., erfcc).
    let t = rcp(fma(0.5, a, 1.0));
    let mut q = fma(t, 0.170_872_77, -0.822_152_2);
    q = fma(q, t, 1.488_515_9);
    q = fma(q, t, -1.135_204);
    q = fma(q, t, 0.278_868_07);
    q = fma(q, t, -0.186_288_06);
    q = fma(q, t, 0.096_784_18);
    q = fma(q, t, 0.374_091_96);
    q = fma(q, t, 1.000_023_7);
    q = fma(q, t, -1.265_512_2);
    let large = 1.0 - t * exp(q - square);
    (if a < 1.0 { small } else { large }).copysign(x)
}
