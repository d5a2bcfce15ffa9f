//! The distribution function of the normal distribution, exactly and as GELU approximates it, times x, and
//! its derivative.
//!
//! Each comes in two accuracies: for results in f32, off by at most 2^-19, and cheaper for 16-bit ones, by at most
//! 2^-13. For values these are relative errors and hold into the tail on the left, where x·Φ(x) is small: nothing is
//! subtracted from 1 there. For slopes they are absolute. Exponentials below
//! 2^-126 are 0, so that results below some 2^-120 may be.

use cuda_std::float;
use cuda_std::float::{fma, max_nan, min_nan};

/// Beyond ± this the exponentials are 0 in f32: Φ is 0 or 1. Keeps infinities out of the arithmetic.
const EDGE: f32 = 20.0;

/// A number as head and tail: exponents of 2 need more than 24 bits where they are large.
#[derive(Clone, Copy)]
struct Double(f32, f32);

impl Double {
    /// −log2(e)/2.
    const HALF_LOG2_E: Double = Double(-0.721_347_5, -9.629_815e-9);

    /// a².
    #[inline(always)]
    fn square(a: f32) -> Double {
        let head = a * a;
        Double(head, fma(a, a, -head))
    }

    #[inline(always)]
    fn times(self, other: Double) -> Double {
        let head = self.0 * other.0;
        let tail = fma(self.0, other.0, -head);
        Double(head, fma(self.0, other.1, fma(self.1, other.0, tail)))
    }

    #[inline(always)]
    fn plus(self, other: Double) -> Double {
        let head = self.0 + other.0;
        // What rounding took from either (Knuth's two-sum).
        let back = head - self.0;
        let tail = (self.0 - (head - back)) + (other.0 - back);
        Double(head, tail + (self.1 + other.1))
    }

    /// 2 to the power of it: the tail moves the result by its share of ln 2. Exponents stay below 1100, where the
    /// tail is below 2^-13.
    #[inline(always)]
    fn exp2(self) -> f32 {
        let power = float::exp2(self.0);
        fma(power, self.1 * float::LN_2, power)
    }
}

/// Φ(−a) and exp(−a²/2), for a in 0..=EDGE.
///
/// Φ(−a) = exp(−a²/2)·m(a) with m a polynomial in t = 1/(1 + p·a), times t: minimax fits of the relative error over
/// 0..=14, 2^-24.9 of degree 8 and 2^-14.2 of degree 4 (Hastings' form, as in Abramowitz and Stegun 7.1.26).
#[inline(always)]
fn upper_tail<const EXACT: bool>(a: f32) -> (f32, f32) {
    if EXACT {
        let t = float::rcp(fma(0.34, a, 1.0));
        let mut m = fma(t, -0.026_120_41, 0.139_499_17);
        m = fma(m, t, -0.273_132_12);
        m = fma(m, t, 0.202_182_17);
        m = fma(m, t, -0.044_717_975);
        m = fma(m, t, 0.115_358_96);
        m = fma(m, t, 0.115_197_71);
        m = fma(m, t, 0.136_112_18);
        m = fma(m, t, 0.135_620_5);
        let power = Double::square(a).times(Double::HALF_LOG2_E).exp2();
        (power * (m * t), power)
    } else {
        let t = float::rcp(fma(0.25, a, 1.0));
        let mut m = fma(t, 0.240_692_69, -0.101_691_43);
        m = fma(m, t, 0.178_522_75);
        m = fma(m, t, 0.081_185_17);
        m = fma(m, t, 0.101_265_654);
        let power = float::exp2(a * a * Double::HALF_LOG2_E.0);
        (power * (m * t), power)
    }
}

/// x·Φ(x).
#[inline(always)]
pub(crate) fn gelu_erf<const EXACT: bool>(x: f32) -> f32 {
    let a = min_nan(x.abs(), EDGE);
    let (tail, _) = upper_tail::<EXACT>(a);
    // x·(1 − tail) from 0 on, else x·tail, which −0 leaves its sign.
    fma(-a, tail, max_nan(x, -0.0))
}

/// d/dx x·Φ(x) = Φ(x) + x·φ(x).
#[inline(always)]
pub(crate) fn gelu_erf_slope<const EXACT: bool>(x: f32) -> f32 {
    const PEAK: f32 = 0.398_942_3; // 1/√(2π)
    let x = min_nan(max_nan(x, -EDGE), EDGE);
    let (tail, power) = upper_tail::<EXACT>(x.abs());
    fma(x * PEAK, power, if x < 0.0 { tail } else { 1.0 - tail })
}

/// 2·√(2/π)·log2(e), and times 0.044715: the tanh form is x·σ(2u) with u = √(2/π)·(x + 0.044715·x³), and
/// σ(2u) = 1/(1 + 2^(−x·(LINEAR + CUBIC·x²))).
const LINEAR: Double = Double(2.302_208_2, 1.294_840_2e-8);
const CUBIC: Double = Double(0.102_943_24, -2.016_198_5e-9);

/// σ(2u) and 1 − σ(2u) at a in 0..=EDGE. Neither comes from a difference.
#[inline(always)]
fn logistic(a: f32) -> (f32, f32) {
    let power = Double::square(a).times(CUBIC).plus(LINEAR).times(Double(-a, 0.0)).exp2();
    let above = float::rcp(1.0 + power);
    (above, power * above)
}

/// σ(2u) at a of −EDGE and more, for 16 bits. Where the power is too large for f32, the reciprocal makes 0 of it.
#[inline(always)]
fn rough_logistic(a: f32) -> f32 {
    float::rcp(1.0 + float::exp2(-a * fma(a * a, CUBIC.0, LINEAR.0)))
}

/// x·σ(2u).
#[inline(always)]
pub(crate) fn gelu_tanh<const EXACT: bool>(x: f32) -> f32 {
    let x = max_nan(x, -EDGE);
    if EXACT {
        let (above, below) = logistic(min_nan(x.abs(), EDGE));
        x * (if x < 0.0 { below } else { above })
    } else {
        x * rough_logistic(x)
    }
}

/// d/dx x·σ(2u) = σ + x·σ·(1 − σ)·2u′.
#[inline(always)]
pub(crate) fn gelu_tanh_slope<const EXACT: bool>(x: f32) -> f32 {
    // 2u′ = LINEAR + 3·CUBIC·x², without the log2(e).
    const CONSTANT: f32 = 1.595_769_2;
    const SQUARE: f32 = 0.214_064_45;
    let x = min_nan(max_nan(x, -EDGE), EDGE);
    let inner = fma(x * x, SQUARE, CONSTANT);
    if EXACT {
        let (above, below) = logistic(x.abs());
        fma(x, above * below * inner, if x < 0.0 { below } else { above })
    } else {
        let above = rough_logistic(x);
        fma(x * inner, fma(-above, above, above), above)
    }
}
