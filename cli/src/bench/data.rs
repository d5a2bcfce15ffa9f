//! Input tensors, fast: random elements are made once for each type, on all cores, and uploaded once. Tensors
//! are filled with pieces of that pool by copies on the device, each from another place.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpwright::{DType, Device, Result, Tensor};

use crate::demo::random;

/// Elements of a pool.
const POOL: usize = 16 << 20;
/// The most that one copy takes: what is left to begin at is as much again.
const PIECE: usize = POOL / 2;
/// Pieces begin at multiples of this many elements, so that all copies are of whole aligned words.
const STEP: usize = 256;
/// Random numbers are uniform in ± this.
const REACH: f32 = 4.0;
/// How far weights do.
const REACH_OF_WEIGHTS: f32 = 1.0 / 32.0;
/// The part of a mask that keeps.
pub const KEPT: f32 = 0.8;

/// What a pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Numbers of a floating-point type.
    Numbers(DType),
    /// Smaller ones.
    Weights(DType),
    /// Bytes, 1 with the probability [`KEPT`], else 0.
    Keep,
    /// The bits of f32, as u32.
    Words,
    /// The bits of f32, as elements of any type.
    Bits(DType),
}

/// Makes the tensors of a device's cases.
pub struct Data {
    device: Device,
    /// Elements of a pool: less in tests.
    pool: usize,
    pools: RefCell<BTreeMap<Kind, Tensor>>,
    /// How many pieces were taken.
    taken: Cell<usize>,
}

impl Data {
    pub fn new(device: &Device) -> Data {
        Data::with_pool(device, POOL)
    }

    /// With a pool that the CPU has quickly.
    pub fn small(device: &Device) -> Data {
        Data::with_pool(device, 1 << 16)
    }

    fn with_pool(device: &Device, pool: usize) -> Data {
        Data { device: device.clone(), pool, pools: RefCell::default(), taken: Cell::new(0) }
    }

    /// For each set a tensor of random numbers in f32, f16 or bf16, uniform in ±4.
    pub fn numbers(&self, sets: usize, dtype: DType, shape: &[usize]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| self.filled(Kind::Numbers(dtype), shape)).collect()
    }

    /// A tensor of random numbers in ±1/32: weights through which gradients go back over many steps, and neither vanish nor overflow.
    pub fn weights(&self, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        self.filled(Kind::Weights(dtype), shape)
    }

    /// For each set a mask of bytes that keeps four in five.
    pub fn keep(&self, sets: usize, shape: &[usize]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| self.filled(Kind::Keep, shape)).collect()
    }

    /// For each set a tensor of random u32.
    pub fn words(&self, sets: usize, shape: &[usize]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| self.filled(Kind::Words, shape)).collect()
    }

    /// For each set a tensor of random bits: for operations that look at none.
    pub fn bits(&self, sets: usize, dtype: DType, shape: &[usize]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| self.filled(Kind::Bits(dtype), shape)).collect()
    }

    /// For each set a tensor to write to.
    pub fn outputs(&self, sets: usize, dtype: DType, shape: &[usize]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| Tensor::uninit(&self.device, dtype, shape)).collect()
    }

    /// So many numbers of bf16, and room for as many.
    pub fn ahead(&self, numbers: usize) -> Result<[Tensor; 2]> {
        let x = self.filled(Kind::Numbers(DType::BF16), &[numbers])?;
        let y = Tensor::uninit(&self.device, DType::BF16, &[numbers])?;
        Ok([x, y])
    }

    /// For each set a tensor of the same i32: lengths, indices and labels, which cases look at too.
    pub fn indices(&self, sets: usize, shape: &[usize], values: &[i32]) -> Result<Vec<Tensor>> {
        (0..sets).map(|_| Tensor::from_slice(&self.device, shape, values)).collect()
    }

    fn filled(&self, kind: Kind, shape: &[usize]) -> Result<Tensor> {
        let pool = self.pool_of(kind)?;
        let tensor = Tensor::uninit(&self.device, pool.dtype(), shape)?;
        let flat = tensor.reshape(&[tensor.len()])?;
        let most = PIECE.min(self.pool / 2);
        for start in (0..flat.len()).step_by(most) {
            let len = most.min(flat.len() - start);
            flat.narrow(0, start, len)?.copy_from(&pool.narrow(0, self.next_place(most), len)?)?;
        }
        Ok(tensor)
    }

    /// Where the next piece of the pool begins: all over its first half.
    fn next_place(&self, most: usize) -> usize {
        let taken = self.taken.replace(self.taken.get() + 1);
        taken.wrapping_mul(7919) % (most / STEP).max(1) * STEP
    }

    fn pool_of(&self, kind: Kind) -> Result<Tensor> {
        if let Some(pool) = self.pools.borrow().get(&kind) {
            return Ok(pool.clone());
        }
        let (device, shape) = (&self.device, &[self.pool]);
        let pool = match kind {
            Kind::Numbers(dtype) => random::tensor(device, dtype, shape, REACH, 1)?,
            Kind::Weights(dtype) => random::tensor(device, dtype, shape, REACH_OF_WEIGHTS, 6)?,
            Kind::Keep => {
                let bytes = random::fill(self.pool, 0.5, 2, |value| [u8::from(value < KEPT - 0.5)]);
                Tensor::from_bytes(device, DType::U8, shape, &bytes)?
            }
            Kind::Words => {
                let bytes = random::fill(self.pool, REACH, 3, f32::to_le_bytes);
                Tensor::from_bytes(device, DType::U32, shape, &bytes)?
            }
            Kind::Bits(dtype) => {
                let words = (self.pool * dtype.size()).div_ceil(size_of::<f32>());
                let bytes = random::fill(words, REACH, 3, f32::to_le_bytes);
                Tensor::from_bytes(device, dtype, shape, &bytes[..self.pool * dtype.size()])?
            }
        };
        self.pools.borrow_mut().insert(kind, pool.clone());
        Ok(pool)
    }
}

/// Random integers from 0 to `last`, the same in each run.
pub fn integers(count: usize, last: i32) -> Vec<i32> {
    let mut rng = SmallRng::seed_from_u64(4);
    (0..count).map(|_| rng.random_range(0..=last)).collect()
}

/// Random integers below `end`, as often as words are in a text: i about 1/(i + 1) as often as 0 (Zipf's law).
pub fn words(count: usize, end: usize) -> Vec<i32> {
    let mut rng = SmallRng::seed_from_u64(5);
    let most = (end as f64 + 1.0).ln();
    (0..count).map(|_| (rng.random_range(0.0..most).exp() - 1.0).min(end as f64 - 1.0) as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_random_and_differ_from_set_to_set() {
        let data = Data::small(&Device::cpu());
        let shape = [3, 40_000]; // more than one piece
        let sets = data.numbers(2, DType::BF16, &shape).unwrap();
        let values: Vec<Vec<f64>> = sets.iter().map(|set| set.to_f64().unwrap()).collect();
        assert_eq!(sets[0].shape(), shape);
        assert_ne!(values[0], values[1]);
        for values in &values {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            assert!(mean.abs() < 0.1 && values.iter().all(|value| value.abs() <= f64::from(REACH)), "{mean}");
            assert!(values.iter().any(|&value| value > 3.9));
        }
    }

    #[test]
    fn words_follow_zipfs_law() {
        let words = words(100_000, 50_257);
        let share = |word| words.iter().filter(|&&w| w == word).count() as f64 / 1e5;
        assert!((share(0) - 0.064).abs() < 0.005, "{}", share(0)); // ln 2 / ln 50258
        assert!((share(1) - 0.0375).abs() < 0.005, "{}", share(1)); // ln 1.5 / ln 50258
        assert!(words.iter().all(|word| (0..50_257).contains(word)) && words.iter().any(|&w| w > 40_000));
    }

    #[test]
    fn masks_keep_most_and_integers_stay_in_their_range() {
        let data = Data::small(&Device::cpu());
        let keep = data.keep(1, &[100, 100]).unwrap()[0].to_f64().unwrap();
        let kept = keep.iter().sum::<f64>() / keep.len() as f64;
        assert!((kept - f64::from(KEPT)).abs() < 0.02, "{kept}");
        let values = integers(1000, 3);
        assert!((0..=3).all(|value| values.contains(&value)) && values.iter().all(|v| (0..=3).contains(v)));
        let tensors = data.indices(2, &[10, 100], &values).unwrap();
        assert_eq!(tensors[1].to_vec::<i32>().unwrap(), values);
    }
}
