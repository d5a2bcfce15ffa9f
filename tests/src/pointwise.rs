//! What the tests of operations on each element share: operands that lie in memory in every way, and what a
//! result may be off by.

use half::{bf16, f16};
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{POISON, Random, floats, poisoned};

/// A number rounded to `dtype`.
pub fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        _ => f64::from(value as f32),
    }
}

/// The distance of neighbours of `dtype` at `y`.
pub fn ulp(dtype: DType, y: f64) -> f64 {
    let (digits, lowest) = match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        _ => (23, -126),
    };
    // The logarithm of 0 is the lowest, too.
    let exponent = y.abs().log2().floor().max(f64::from(lowest));
    (exponent - f64::from(digits)).exp2()
}

/// How an operand of two dimensions lies in its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    Dense,
    /// Begins so many elements behind an allocation.
    Offset(usize),
    /// Its rows are parts of longer ones.
    Padded(usize, usize),
    /// Every second column.
    Stepped,
    /// The dimensions are exchanged.
    Transposed,
    /// All rows are one.
    Repeated,
}

impl Layout {
    pub const ALL: [Layout; 9] = [
        Layout::Dense,
        Layout::Offset(3),
        Layout::Offset(7),
        Layout::Padded(0, 8),
        Layout::Padded(16, 24),
        Layout::Padded(1, 2),
        Layout::Stepped,
        Layout::Transposed,
        Layout::Repeated,
    ];

    /// A view [rows, cols] of random numbers in `low..high`.
    pub fn random(
        self,
        device: &Device,
        dtype: DType,
        [rows, cols]: [usize; 2],
        (low, high): (f32, f32),
        random: &mut Random,
    ) -> Result<Tensor> {
        let mut numbers =
            |shape: &[usize]| floats(device, dtype, shape, &random.floats(shape.iter().product(), low, high));
        match self {
            Layout::Dense => numbers(&[rows, cols]),
            Layout::Offset(by) => {
                numbers(&[by + rows * cols])?.narrow(0, by, rows * cols)?.reshape(&[rows, cols])
            }
            Layout::Padded(before, after) => numbers(&[rows, before + cols + after])?.narrow(1, before, cols),
            Layout::Stepped => numbers(&[rows, 2 * cols])?.step(1, 2),
            Layout::Transposed => numbers(&[cols, rows])?.transpose(0, 1),
            Layout::Repeated => numbers(&[1, cols])?.expand(&[rows, cols]),
        }
    }

    /// Contiguous memory [rows, cols] that nothing has written, for outputs: dense, or with an offset.
    pub fn output(self, device: &Device, dtype: DType, [rows, cols]: [usize; 2]) -> Result<Tensor> {
        let by = if let Layout::Offset(by) = self { by } else { 0 };
        poisoned(device, dtype, &[by + rows * cols], POISON)?
            .narrow(0, by, rows * cols)?
            .reshape(&[rows, cols])
    }
}

/// Shapes around the edges of packs, warps and blocks, and empty ones.
pub const SHAPES: [[usize; 2]; 14] = [
    [1, 1],
    [1, 7],
    [3, 8],
    [2, 9],
    [5, 16],
    [4, 31],
    [33, 40],
    [7, 129],
    [3, 1000],
    [1, 4099],
    [130, 64],
    [0, 8],
    [5, 0],
    [600, 3],
];
