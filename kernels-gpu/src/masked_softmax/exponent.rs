//! exp of a difference of scores, as a power of 2.

use cuda_std::float;

/// `exp(factor · d) = 2^(d·(high + low))` for d ≤ 0, with high + low = factor·log2(e) > 0 to 48 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponent {
    high: f32,
    low: f32,
    /// The difference below which the result is 0: keeps −∞ out of the arithmetic.
    floor: f32,
    /// 0, which the compilers do not know: see `packed::renew`.
    pub(crate) zero: u32,
}

impl Exponent {
    /// For a factor that is finite and positive.
    pub fn new(factor: f64) -> Exponent {
        let exact = factor * core::f64::consts::LOG2_E;
        // A factor times log2(e) beyond f32 counts as the largest f32: off for differences below 1e-36 alone.
        let high = if exact > f32::MAX as f64 { f32::MAX } else { exact as f32 };
        let low = (exact - high as f64).clamp(-(f32::MAX as f64), f32::MAX as f64) as f32;
        let floor = (-200.0 / exact).max(f32::MIN as f64) as f32;
        Exponent { high, low: if high == f32::MAX { 0.0 } else { low }, floor, zero: 0 }
    }

    /// The power of 2, with the rounding of the exponent compensated: 2 to 3 ulp for any d. NaN stays.
    #[inline(always)]
    pub fn exp(self, d: f32) -> f32 {
        let d = float::max_nan(d, self.floor);
        let head = d * self.high;
        let tail = float::fma(d, self.low, float::fma(d, self.high, -head));
        let power = float::exp2(head);
        float::fma(power, tail * float::LN_2, power)
    }

    /// The power of 2 without compensation: relative error 2^-24·|exponent|, enough for 16-bit results.
    #[inline(always)]
    pub fn exp_fast(self, d: f32) -> f32 {
        float::exp2(d * self.high)
    }

    /// `exp_fast(d) / 2^log2_sum` in one step.
    #[inline(always)]
    pub fn exp_over(self, d: f32, log2_sum: f32) -> f32 {
        float::exp2(float::fma(d, self.high, -log2_sum))
    }
}
