//! Inputs and outputs.

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpwright::{DType, Device, Result, Tensor};

/// Floats at which implementations differ: zeros, the smallest and largest of each kind, powers of two and
/// their neighbours, infinities and NaN.
pub const EDGES: [f32; 32] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    1.000_000_1,
    0.999_999_94,
    -1.000_000_1,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    1.175_494_2e-38,
    -1.175_494_2e-38,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    126.0,
    -126.0,
    127.999_99,
    128.0,
    -149.0,
    88.722_83,
    -87.336_55,
    0.55,
    1e20,
    -1e20,
];

/// Random numbers that are the same in every run.
pub struct Random(StdRng);

impl Random {
    /// The numbers that belong to `seed`.
    pub fn new(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    /// Any bits.
    pub fn bits(&mut self) -> u64 {
        self.0.random()
    }

    /// A number in `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    /// `count` floats, evenly spread over `low..high`.
    pub fn floats(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| self.0.random_range(low..high)).collect()
    }

    /// `count` words of any bits.
    pub fn words(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.0.random()).collect()
    }
}

/// A contiguous tensor whose every byte is `byte`: for outputs, so that what a kernel left out shows. 0xff
/// makes NaN of floats and -1 of integers, 0xa5 unlikely numbers.
pub fn poisoned(device: &Device, dtype: DType, shape: &[usize], byte: u8) -> Result<Tensor> {
    let bytes = shape.iter().product::<usize>() * dtype.size();
    Tensor::from_bytes(device, dtype, shape, &vec![byte; bytes])
}

/// The types that operations compute in.
pub const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Fills outputs beforehand: as f32 and bf16 -2.9e-16, as f16 -0.022, none of which is a probability.
pub const POISON: u8 = 0xa5;

/// A tensor of these numbers, rounded to `dtype`.
pub fn floats(device: &Device, dtype: DType, shape: &[usize], values: &[f32]) -> Result<Tensor> {
    match dtype {
        DType::F16 => {
            let rounded: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
            Tensor::from_slice(device, shape, &rounded)
        }
        DType::BF16 => {
            let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            Tensor::from_slice(device, shape, &rounded)
        }
        _ => Tensor::from_slice(device, shape, values),
    }
}

/// Tokens as u32, i32 or i64.
pub fn tokens_of(device: &Device, dtype: DType, shape: &[usize], tokens: &[i64]) -> Result<Tensor> {
    match dtype {
        DType::U32 => {
            Tensor::from_slice(device, shape, &tokens.iter().map(|&t| t as u32).collect::<Vec<_>>())
        }
        DType::I32 => {
            Tensor::from_slice(device, shape, &tokens.iter().map(|&t| t as i32).collect::<Vec<_>>())
        }
        _ => Tensor::from_slice(device, shape, tokens),
    }
}
