//! Random tensors, the same in each run on each machine.

use half::{bf16, f16};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use warpwright::{DType, Device, Result, Tensor};

/// Elements that one generator makes: large tensors are made by all cores.
const CHUNK: usize = 1 << 16;

/// Uniform in ±`reach`, in f32, f16 or bf16.
pub fn tensor(device: &Device, dtype: DType, shape: &[usize], reach: f32, seed: u64) -> Result<Tensor> {
    let len = shape.iter().product();
    let bytes = match dtype {
        DType::F16 => fill(len, reach, seed, |value| f16::from_f32(value).to_le_bytes()),
        DType::BF16 => fill(len, reach, seed, |value| bf16::from_f32(value).to_le_bytes()),
        _ => fill(len, reach, seed, f32::to_le_bytes),
    };
    Tensor::from_bytes(device, dtype, shape, &bytes)
}

/// The bytes of elements that `bytes` makes of numbers uniform in ±`reach`.
pub fn fill<const N: usize>(
    len: usize,
    reach: f32,
    seed: u64,
    bytes: impl Fn(f32) -> [u8; N] + Sync,
) -> Vec<u8> {
    let mut out = vec![0; len * N];
    out.par_chunks_mut(CHUNK * N).enumerate().for_each(|(chunk, out)| {
        let mut rng = SmallRng::seed_from_u64(seed << 32 | chunk as u64);
        for element in out.as_chunks_mut().0 {
            *element = bytes(rng.random_range(-reach..reach));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_differ_within_the_reach_and_repeat_with_the_seed() {
        let make =
            |seed| tensor(&Device::cpu(), DType::F16, &[70_000], 14.0, seed).unwrap().to_f64().unwrap();
        let a = make(1);
        assert_eq!(a, make(1));
        assert_ne!(a, make(2));
        assert!(a.iter().all(|value| value.abs() <= 14.0));
        let mean = a.iter().sum::<f64>() / a.len() as f64;
        assert!(mean.abs() < 0.2 && a.iter().any(|&value| value > 13.5), "{mean}");
    }
}
