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
use kernels_gpu::masked_softmax as kernels;

/// One past the most words of all rows of a mask: their numbers are divided as 31-bit numbers.
const MAX_WORDS: u64 = 1 << 31;

/// Words of all rows of the mask.
fn words(problem: &Problem) -> u64 {
    let rows = own_rows(problem).map(|dim| dim.extent as u64).product::<u64>();
    rows.saturating_mul(u64::from(kernels::words_of_row(problem.cols as u32)))
}

/// The dimensions along which the mask has rows of its own.
fn own_rows(problem: &Problem) -> impl Iterator<Item = &RowDimension> {
    problem.rows.iter().filter(|dim| dim.mask != 0)
}

/// Whether the problem's mask can be turned into bits; one that is not there can.
pub fn serve(problem: &Problem) -> bool {
    match problem.mask {
        MaskForm::None => true,
        MaskForm::Keep | MaskForm::Drop => words(problem) < MAX_WORDS,
        MaskForm::Bias(_) => false,
    }
}

/// The bits of a mask that [`serve`]s, and the problem with places in them for those in the mask.
pub fn of<T: Element + Float>(
    problem: &Problem,
    plan: Plan,
    device: &Device,
    mask: Global<u8>,
) -> Result<(Tensor, Problem)> {
    let own = Problem { rows: own_rows(problem).copied().collect(), ..problem.clone() };
    let (of_row, words) = (kernels::words_of_row(problem.cols as u32), words(problem));
    let bits = Tensor::uninit(device, DType::U32, &[words as usize])?;
    let kernel = &kernels::mask_bits::ALL[0];
    let grid = Grid::covering(words, u64::from(kernel.bounds.threads))?;
    let divisor = Divisor::new(of_row).expect("a row has two words and more");
    // Of bytes, which the rows of the mask still are.
    let params = params_of_all::<T>(&own, Plan { mask_bits: false, ..plan });
    // SAFETY: the mask is the problem's, whose layout the plan has checked; a word for each thread of the grid that has one.
    unsafe { device.launch(kernel, grid, (mask, bits.view_mut::<u32>()?, divisor, params))? };
    let mut of_bits = Problem { mask_reach: words as usize * u32::BITS as usize, ..problem.clone() };
    let mut step = of_row as isize * u32::BITS as isize;
    for dim in of_bits.rows.iter_mut().rev().filter(|dim| dim.mask != 0) {
        dim.mask = step;
        step *= dim.extent as isize;
    }
    Ok((bits, of_bits))
}
