//! What the tests of operations along rows share.

use warpwright::{DType, Result, Tensor};

/// Unit roundoff of f32.
pub const U: f64 = 1.0 / (1 << 24) as f64;

/// Lengths of rows around the capacities of the kernels, in elements of f32 and of 16 bits.
pub const LENGTHS: [usize; 34] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 129, 192, 255, 256, 384, 385, 511, 512,
    768, 1000, 1024, 1536, 2047, 2048, 3072, 4100,
];

/// Rows that registers do not hold.
pub const LONG: [(DType, usize); 4] =
    [(DType::F32, 20_000), (DType::F32, 16_391), (DType::BF16, 40_001), (DType::F32, 131_083)];

/// The elements of a vector, or as many of what stands for an absent one.
pub fn each(vector: Option<&Tensor>, cols: usize, absent: f64) -> Result<Vec<f64>> {
    vector.map_or_else(|| Ok(vec![absent; cols]), Tensor::to_f64)
}

#[track_caller]
pub fn close(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= want.abs() * relative, "{got:e} is not {want:e}");
}
