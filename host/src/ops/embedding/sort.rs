//! The tokens in ascending order, equal ones as they came: in many tokens by the digits of their keys, in few by merging sorted tiles.

use super::BACKWARD;
use super::launch::{token_params, token_slot};
use super::problem::Problem;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;
use cuda_std::Global;
use kernels_gpu::embedding::{self as kernels, DIGIT_BITS, DIGITS, MERGE_KEYS, MERGE_TILE, Pass, TILE};

/// The most tokens whose tiles are merged, each looked for in all tiles; the time for that grows with the square of their number.
pub const MERGED: usize = 1 << 14;

/// Keys in order, and the numbers of their tokens.
pub struct Sorted {
    pub keys: Tensor,
    pub indices: Tensor,
}

impl Sorted {
    /// Tokens, one at least; and the check of them. In `marks`, one for each row, those that they choose become 1, the others 0.
    pub fn by_merging(problem: &Problem, tokens: &Tensor, marks: &Tensor) -> Result<Self> {
        let (device, count, rows) = (tokens.device(), problem.token_count(), problem.vocabulary as u32);
        let tiles = count.div_ceil(MERGE_TILE as usize);
        let (of_tiles, all) = (Self::of(device, tiles * MERGE_TILE as usize)?, Self::of(device, count)?);
        let slot = token_slot(BACKWARD, problem, device)?;
        // SAFETY: words of tokens, of one or two each; whole tiles, with a block for each, and then blocks for all their keys. Memory is
        // freed in the order of the stream.
        unsafe {
            let words = Global::from_raw(tokens.raw_view()?);
            let (keys, indices) = (of_tiles.keys.view_mut()?, of_tiles.indices.view_mut()?);
            let (marks, params) = (marks.view_mut()?, token_params(problem));
            let args = (words, keys, indices, marks, slot.view(), count as u32, rows, params);
            device.launch(&kernels::sort_tiles::ALL[0], Grid::new(tiles as u64)?, args)?;
            let grid = Grid::covering(of_tiles.keys.len() as u64, u64::from(MERGE_KEYS))?;
            let (keys, indices) = (of_tiles.keys.view()?, of_tiles.indices.view()?);
            let args =
                (keys, indices, all.keys.view_mut()?, all.indices.view_mut()?, marks, count as u32, rows);
            device.launch(&kernels::merge_tiles::ALL[0], grid, args)?;
        }
        slot.finish()?;
        Ok(all)
    }

    /// Keys as `launch_keys` gives them.
    pub fn by_digits(problem: &Problem, keys: Tensor) -> Result<Self> {
        let (device, count) = (&keys.device().clone(), problem.token_count());
        let words = |count: usize| Tensor::uninit(device, DType::U32, &[count]);
        let mut from = Sorted { keys, indices: words(count)? };
        if count == 0 {
            return Ok(from);
        }
        let mut to = Sorted::of(device, count)?;
        let tiles = count.div_ceil(TILE as usize);
        let (counts, totals) = (words(DIGITS as usize * tiles)?, words(DIGITS as usize)?);
        for shift in shifts(problem.vocabulary as u32) {
            let pass = Pass { count: count as u32, shift, first: u32::from(shift == 0) };
            let (keys, indices) = (from.keys.view::<u32>()?, from.indices.view::<u32>()?);
            let grid = Grid::new(tiles as u64)?;
            // SAFETY: the tensors have the sizes that the kernels want; a block for each tile, or for each digit.
            unsafe {
                device.launch(&kernels::count_digits::ALL[0], grid, (keys, counts.view_mut()?, pass))?;
                let args = (counts.view_mut()?, totals.view_mut()?, tiles as u32);
                device.launch(&kernels::scan_digits::ALL[0], Grid::new(u64::from(DIGITS))?, args)?;
                let (to_keys, to_indices) = (to.keys.view_mut()?, to.indices.view_mut()?);
                let args = (keys, indices, counts.view()?, totals.view()?, to_keys, to_indices, pass);
                device.launch(&kernels::scatter::ALL[0], grid, args)?;
            }
            std::mem::swap(&mut from, &mut to);
        }
        Ok(from)
    }

    /// Makes the marks of the rows that the keys choose 1.
    pub fn mark_runs(&self, marks: &Tensor) -> Result<()> {
        let (kernel, count) = (&kernels::mark_runs::ALL[0], self.keys.len());
        let grid = Grid::covering(count as u64, u64::from(kernel.bounds.threads))?;
        // SAFETY: the tensors have these sizes, and the grid covers the keys.
        unsafe {
            let args = (self.keys.view()?, marks.view_mut()?, count as u32, marks.len() as u32);
            self.keys.device().launch(kernel, grid, args)
        }
    }

    fn of(device: &Device, count: usize) -> Result<Self> {
        let words = || Tensor::uninit(device, DType::U32, &[count]);
        Ok(Self { keys: words()?, indices: words()? })
    }
}

/// The digits of keys up to `last`, from the lowest: one at least, which also makes the indices.
fn shifts(last: u32) -> impl Iterator<Item = u32> {
    let bits = u32::BITS - last.leading_zeros();
    (0..bits.max(1)).step_by(DIGIT_BITS as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::embedding::launch::launch_keys;
    use crate::tensor::Desc;

    /// Keys and indices in order.
    type Lists = [Vec<u32>; 2];

    /// By either way, and the marks of the first.
    fn sorted(tokens: &[i32], words: usize) -> Result<([Lists; 2], Vec<u32>)> {
        let device = Device::cpu();
        let wte = Desc::new(&device, DType::F32, &[words, 1])?;
        let tokens = Tensor::from_slice(&device, &[tokens.len()], tokens)?;
        let problem = Problem::new::<Desc>(BACKWARD, tokens.desc(), &wte, None)?;
        let marks = Tensor::uninit(&device, DType::U32, &[words])?;
        let lists = |sorted: Sorted| Ok([sorted.keys.to_vec()?, sorted.indices.to_vec()?]);
        let merged = lists(Sorted::by_merging(&problem, &tokens, &marks)?)?;
        let keys = launch_keys(BACKWARD, &problem, &tokens, None)?;
        let by_digits = lists(Sorted::by_digits(&problem, keys)?)?;
        Ok(([merged, by_digits], marks.to_vec()?))
    }

    #[test]
    fn equal_tokens_stay_as_they_came() -> Result<()> {
        let tile = MERGE_TILE as usize;
        for (count, words) in [
            (1, 1),
            (2, 9),
            (tile, 3),
            (tile + 1, 1000),
            (5 * tile - 1, 2),
            (33 * tile, 50),
            (33 * tile + 1, 70_000),
        ] {
            let tokens: Vec<i32> = (0..count).map(|i| (i * 7919 % 1013 % words) as i32).collect();
            let mut order: Vec<u32> = (0..count as u32).collect();
            order.sort_by_key(|&i| tokens[i as usize]);
            let keys: Vec<u32> = order.iter().map(|&i| tokens[i as usize] as u32).collect();
            let (ways, marks) = sorted(&tokens, words)?;
            for (way, name) in ways.iter().zip(["merged", "by digits"]) {
                assert!(*way == [keys.clone(), order.clone()], "{count} of {words}, {name}");
            }
            let chosen = |row: u32| u32::from(keys.binary_search(&row).is_ok());
            assert!((0..words as u32).map(chosen).eq(marks), "{count} of {words}, marks");
        }
        Ok(())
    }

    #[test]
    fn every_bit_of_a_key_is_in_a_digit() {
        for (last, want) in [(0, 1), (1, 1), (255, 1), (256, 2), (50_257, 2), (65_536, 3), ((1 << 31) - 2, 4)]
        {
            assert_eq!(shifts(last).count(), want, "{last}");
        }
    }
}
