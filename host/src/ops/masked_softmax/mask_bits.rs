//! The mask turned into bits, for kernels that read it so.

use super::launch::params_of_all;
use super::plan::Plan;
use super::problem::{MaskForm, Problem, RowDimension};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::{Float, Global};
use kernels_gpu::masked_softmax::{self as kernels, Params};

/// One past the most words of all rows of a mask: their numbers are divided as 31-bit numbers.
const MAX_WORDS: u64 = 1 << 31;

/// The dimensions along which the mask has rows of its own.
fn own_rows(problem: &Problem) -> impl DoubleEndedIterator<Item = &RowDimension> {
    problem.rows.iter().filter(|dim| dim.mask != 0)
}

/// Words of all rows of the mask, but for those between them.
fn words(problem: &Problem) -> u64 {
    let rows = own_rows(problem).map(|dim| dim.extent as u64).product::<u64>();
    rows.saturating_mul(u64::from(kernels::words_of_row(problem.cols as u32)))
}

/// Whether the problem's mask can be turned into bits; one that is not there can.
pub fn serve(problem: &Problem) -> bool {
    match problem.mask {
        MaskForm::None => true,
        MaskForm::Keep | MaskForm::Drop => words(problem) < MAX_WORDS,
        MaskForm::Bias(_) => false,
    }
}

/// Where the rows of a mask are in its bits.
struct Places {
    /// The step along each of the problem's dimensions.
    steps: Vec<isize>,
    /// Bits of all, with the words around the rows.
    bits: usize,
}

impl Places {
    /// A row's bits are where its bytes are, modulo a word's.
    fn of(problem: &Problem) -> Places {
        const WORD: usize = kernels::COLUMNS as usize;
        let row = kernels::words_of_row(problem.cols as u32) as usize * WORD;
        let (mut bits, mut last) = (row, 0);
        let mut steps = vec![0; problem.rows.len()];
        for (step, dim) in steps.iter_mut().zip(&problem.rows).rev().filter(|(_, dim)| dim.mask != 0) {
            let distance = bits + dim.mask.rem_euclid(WORD as isize) as usize;
            *step = distance as isize;
            last += distance * (dim.extent - 1);
            bits = (last + row).next_multiple_of(WORD);
        }
        Places { steps, bits }
    }
}

/// The bits of a mask that [`serve`]s, and the problem with places in them for those in the mask.
pub fn of<T: Element + Float>(
    problem: &Problem,
    plan: Plan,
    device: &Device,
    mask: Global<u8>,
) -> Result<(Tensor, Problem)> {
    let Places { steps, bits } = Places::of(problem);
    let mut of_bits = Problem { mask_reach: bits, ..problem.clone() };
    // The kernel has the places of bits for those in x.
    let mut own = problem.clone();
    for (dim, step) in own.rows.iter_mut().zip(&steps) {
        dim.x = *step;
    }
    own.rows.retain(|dim| dim.mask != 0);
    for (dim, step) in of_bits.rows.iter_mut().zip(steps) {
        dim.mask = step;
    }
    let words = Tensor::uninit(device, DType::U32, &[bits / kernels::COLUMNS as usize])?;
    let kernel = &kernels::mask_bits::ALL[0];
    let grid = Grid::covering(self::words(problem), u64::from(kernel.bounds.threads))?;
    let of_row = Divisor::new(kernels::words_of_row(problem.cols as u32)).expect("a row has words");
    // Of bytes, which the rows of the mask still are.
    let params = params_of_all::<T>(&own, Plan { mask_bits: false, ..plan });
    let params = Params { x_base: i64::from(kernels::COLUMNS), ..params };
    // SAFETY: the mask is the problem's, whose layout the plan has checked; a thread for each word of each row.
    unsafe { device.launch(kernel, grid, (mask, words.view_mut::<u32>()?, of_row, params))? };
    Ok((words, of_bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Desc;
    use crate::ops::masked_softmax::{Mask, MaskedSoftmax};

    #[test]
    fn rows_have_words_of_their_own_and_begin_like_their_bytes() {
        for (cols, strides) in [(97, [970, 97]), (64, [64, 640]), (33, [1000, 35]), (50, [3, 4000])] {
            let desc = |dtype| Desc::new(&Device::cpu(), dtype, &[5, 7, cols]).unwrap();
            let (x, mask) = (desc(DType::F32), desc(DType::U8));
            let parameters = MaskedSoftmax { mask: Mask::Keep(&mask), ..Default::default() };
            let mut problem = Problem::new("masked_softmax", &x, &parameters).unwrap();
            let dim = RowDimension { extent: 1, x: 0, y: 0, mask: 0, lengths: 0, starts: 0, query: 0 };
            let own =
                [(5, strides[0]), (7, strides[1])].map(|(extent, mask)| RowDimension { extent, mask, ..dim });
            problem.rows = vec![own[0], RowDimension { extent: 3, ..dim }, own[1]];
            let places = Places::of(&problem);
            let of_row = kernels::words_of_row(cols as u32) as usize;
            let mut taken = vec![false; places.bits / 32];
            for (i, j) in (0..5).flat_map(|i| (0..7).map(move |j| (i, j))) {
                let at = 32 + i * places.steps[0] + j * places.steps[2];
                assert_eq!(at % 32, (i * strides[0] + j * strides[1]) % 32);
                let first = at as usize / 32 - 1;
                assert!(at as usize + cols <= (first + of_row - 1) * 32, "a word of zeros is the last");
                taken[first..first + of_row].iter_mut().for_each(|t| assert!(!std::mem::replace(t, true)));
            }
            assert_eq!(places.steps[1], 0);
        }
    }
}
