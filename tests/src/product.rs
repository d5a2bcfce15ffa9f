//! What the tests of products share.

use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{Random, floats};

/// Random numbers within ±1.
pub fn uniform(device: &Device, dtype: DType, shape: &[usize], random: &mut Random) -> Result<Tensor> {
    floats(device, dtype, shape, &random.floats(shape.iter().product(), -1.0, 1.0))
}

/// What a sum of `k` products of numbers within ±1, times `scale`, may be off by in `dtype`: k roundings of partial
/// sums, which are within ±k in f32 and mostly far below, and that of the result.
pub fn tolerance(dtype: DType, k: usize, scale: f32, want: f64) -> f64 {
    let digits = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    };
    // Partial sums are a random walk within some √k, and so are the k roundings of them, of which each is below 2^-24 of
    // a partial sum; tensor cores cut off instead of rounding: twice that.
    let sums = 4.0 * k as f64 * 2f64.powi(-24);
    f64::from(scale) * (sums + 2f64.powi(-22)) + want.abs() * 2f64.powi(-digits) + 2f64.powi(-24)
}
