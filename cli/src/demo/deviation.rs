//! How far a result is from the reference.

use warpwright::{DType, Result, Tensor};

/// The outcome of a comparison, element by element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    pub compared: u64,
    /// The largest absolute error.
    pub max_error: f64,
    /// The error of the element that comes closest to its tolerance, or exceeds it most.
    pub error: f64,
    /// That element's tolerance.
    pub tolerance: f64,
    /// error / tolerance.
    worst: f64,
}

impl Deviation {
    pub fn add(&mut self, got: f64, want: f64, tolerance: f64) {
        let error = match (got.is_nan(), want.is_nan()) {
            (true, true) => 0.0,
            (false, false) if got == want => 0.0, // equal infinities too
            (false, false) => (got - want).abs(),
            _ => f64::INFINITY,
        };
        let ratio = if error == 0.0 { 0.0 } else { error / tolerance };
        if self.compared == 0 || ratio > self.worst {
            (self.error, self.tolerance, self.worst) = (error, tolerance, ratio);
        }
        self.max_error = self.max_error.max(error);
        self.compared += 1;
    }

    /// Compares a tensor's elements, row-major; `tolerance` is that of an exact element.
    pub fn add_all(&mut self, got: &Tensor, want: Vec<f64>, tolerance: impl Fn(f64) -> f64) -> Result<()> {
        for (got, want) in got.to_f64()?.into_iter().zip(want) {
            self.add(got, want, tolerance(want));
        }
        Ok(())
    }

    pub fn passed(&self) -> bool {
        self.worst <= 1.0
    }
}

/// 2^exponent.
const fn power(exponent: u64) -> f64 {
    f64::from_bits((1023 - exponent) << 52)
}

/// Half of the last bit of a number of this type, relative to it; nothing for f32, in which results are computed.
pub const fn half_bit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => power(11),
        DType::BF16 => power(8),
        _ => 0.0,
    }
}

/// How far an element may be from `want`, the exact one, that is off by at most `computed` before it is rounded to its
/// type.
pub fn rounded(dtype: DType, want: f64, computed: f64) -> f64 {
    let lowest = if dtype == DType::F16 { power(25) } else { 0.0 };
    computed + half_bit(dtype) * (want.abs() + computed) + lowest
}

/// How far a softmax's element may be from `y`, the exact one.
///
/// A masked element is exactly 0. The others are computed in f32, with unit roundoff u = 2^-24:
///
/// - Their exponent a = scale·(m − x) takes the difference, the factor scale·log2(e) in two parts, and the
///   split into integer and fraction: four roundings, 4·u·a absolute. As y = exp(-a)/s with s ≥ 1, a is at
///   most ln(1/y).
/// - A relative error that does not depend on the element: 2 ulp (4 u) of `ex2.approx`, in the term and in
///   the sum; the sum of a lane's terms and of the lanes, about log2(K) + 8 roundings of the largest partial
///   sums; the reciprocal and the product (3 u); with a bias, the rounding of scores of magnitude 4 (8 u).
///   Together below 32 u.
/// - Exponentials below 2^-126 are 0.
///
/// Rounding to the element type adds at most 2^-11·y for f16, or half its smallest number, 2^-24; and
/// 2^-8·y for bf16. Inputs are exact: the reference starts from the same rounded ones.
pub fn softmax_tolerance(dtype: DType, y: f64) -> f64 {
    const U: f64 = power(24);
    if y == 0.0 {
        return 0.0;
    }
    let computed = y * U * (32.0 + 4.0 * (1.0 / y).ln()) + power(126);
    computed
        + match dtype {
            DType::F16 => power(11) * (y + computed) + power(25),
            DType::BF16 => power(8) * (y + computed) + power(134),
            _ => 0.0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_element_closest_to_its_tolerance_is_reported() {
        let mut deviation = Deviation::default();
        deviation.add(1.5, 1.0, 1.0);
        deviation.add(0.125, 0.0, 0.125);
        deviation.add(0.0, 0.0, 0.0);
        assert_eq!((deviation.max_error, deviation.error, deviation.tolerance), (0.5, 0.125, 0.125));
        assert!(deviation.passed() && deviation.compared == 3);
    }

    #[test]
    fn what_is_wrong_does_not_pass() {
        for (got, want, tolerance) in [
            (1.1, 1.0, 0.05),
            (f64::NAN, 0.0, 1.0),
            (0.0, f64::NAN, 1.0),
            (1e-30, 0.0, 0.0),
            (f64::INFINITY, 1.0, 9.0),
        ] {
            let mut deviation = Deviation::default();
            deviation.add(0.0, 0.0, 0.0);
            deviation.add(got, want, tolerance);
            assert!(!deviation.passed(), "{got} {want}");
        }
        let mut same = Deviation::default();
        same.add(f64::NAN, f64::NAN, 0.0);
        assert!(same.passed());
    }

    #[test]
    fn tolerances_are_a_few_roundings() {
        assert_eq!(softmax_tolerance(DType::F32, 0.0), 0.0);
        let relative = |dtype, y: f64| softmax_tolerance(dtype, y) / y;
        assert!(relative(DType::F32, 1.0) < 2e-6 && relative(DType::F32, 1e-30) < 2e-5);
        assert!((4.8e-4..5.0e-4).contains(&relative(DType::F16, 1.0)));
        assert!((3.9e-3..3.92e-3).contains(&relative(DType::BF16, 0.5)));
    }
}
