//! exp of a difference of scores, as a power of 2.

use cuda_std::float;

/// `exp(factor · d) = 2^(d·(high + low))` for d ≤ 0, with high + low = factor·log2(e) to 48 bits.
///
/// Both parts are positive: −∞ then stays −∞ in every product and sum, and its power is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponent {
    high: f32,
    low: f32,
    /// Zeros, which the compilers do not know: see `packed::renew`. One for each place that widens scores again.
    pub(crate) zeros: [u32; 3],
}

impl Exponent {
    /// For a factor of at least 2^-100.
    pub fn new(factor: f64) -> Exponent {
        let exact = factor * core::f64::consts::LOG2_E;
        // A factor times log2(e) beyond f32 counts as the largest f32: off for differences below 1e-36 alone.
        let nearest = exact.min(f32::MAX as f64) as f32;
        let high = if nearest as f64 > exact { nearest.next_down() } else { nearest };
        let low = ((exact - high as f64) as f32).min(f32::MAX / 2.0);
        // The smallest low is at most 2^-26 of high.
        Exponent {
            high,
            low: if high == f32::MAX { f32::MIN_POSITIVE } else { low.max(f32::MIN_POSITIVE) },
            zeros: [0; 3],
        }
    }

    /// The power of 2, its exponent rounded once: a relative error of 2^-24·|exponent| and 2 ulp. NaN stays.
    #[inline(always)]
    pub fn exp(self, d: f32) -> f32 {
        float::exp2(float::fma(d, self.high, d * self.low))
    }

    /// The power of 2, its exponent rounded twice: a relative error of 2^-23·|exponent|, enough for 16-bit
    /// results.
    #[inline(always)]
    pub fn exp_fast(self, d: f32) -> f32 {
        float::exp2(d * self.high)
    }

    /// The exponent of 2 that a score is, rounded twice.
    #[inline(always)]
    pub(crate) fn power(self, score: f32) -> f32 {
        score * self.high
    }

    /// What [`Self::exp_from`] subtracts to give powers relative to a maximum, if that is exact enough for 16-bit
    /// results: up to 2048 its rounding moves a power by 2^-13.
    #[inline(always)]
    pub fn shift(self, maximum: f32) -> Option<f32> {
        let shift = maximum * self.high;
        if shift.abs() <= 2048.0 { Some(shift) } else { None }
    }

    /// The power of 2 of a score, without its difference from the maximum. −∞ gives 0.
    #[inline(always)]
    pub fn exp_from(self, score: f32, shift: f32) -> f32 {
        float::exp2(float::fma(score, self.high, -shift))
    }

    /// `exp_fast(d) / 2^log2_sum` in one step.
    #[inline(always)]
    pub fn exp_over(self, d: f32, log2_sum: f32) -> f32 {
        float::exp2(float::fma(d, self.high, -log2_sum))
    }
}
