//! dwte's launches: sums of pieces of the sorted tokens, zeros, and the runs that were cut. See the kernels' `sums` and `together`.

use super::BACKWARD;
use super::backward::{Gradients, Kernels};
use super::launch::divisor;
use super::positions::Groups;
use super::problem::Problem;
use super::sort::{MERGED, Sorted};
use crate::aside::Aside;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::views::read;
use crate::tensor::Tensor;
use cuda_std::{Float, warp};
use kernels_gpu::embedding::{self as kernels, PositionSums, SUM_ELEMENTS, Sums, Together, ZERO_STRIPS};

/// Blocks that write zeros beside the sort, of so many multiprocessors: each has one of its own, and the sort the others, as loads wait behind
/// all the stores of their multiprocessor.
const ZEROING: u32 = 72;
const MULTIPROCESSORS: u32 = 132;

/// The sorted tokens, cut into pieces: see the kernels' `sums`.
pub struct Pieces<'a> {
    sorted: &'a Sorted,
    /// Tokens of one.
    tokens: usize,
    count: usize,
    /// Two rows of sums for each.
    partials: Tensor,
}

impl Pieces<'_> {
    fn params(&self, problem: &Problem, unit: usize) -> Result<Sums> {
        strips(problem, self.count, self.tokens, unit)
    }
}

impl Gradients {
    /// The sorted tokens in pieces, and room for the partial sums of each.
    pub fn pieces<'a>(&self, sorted: &'a Sorted) -> Result<Pieces<'a>> {
        let tokens = piece(self.problem.token_count());
        let count = self.problem.token_count().div_ceil(tokens);
        let partials = Tensor::uninit(sorted.keys.device(), DType::F32, &[count, 2, self.problem.cols])?;
        Ok(Pieces { sorted, tokens, count, partials })
    }

    /// The rows of dwte whose tokens are in one piece, and the partial sums of the others.
    pub fn sum_pieces<T: Element + Float + Kernels>(
        &self,
        pieces: &Pieces<'_>,
        dy: &Tensor,
        dwte: &Tensor,
    ) -> Result<()> {
        let packs = self.packs::<T>(&[dy, dwte]);
        let kernels =
            [kernels::sum_pieces_elements::kernels::<T>(), kernels::sum_pieces_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let params = pieces.params(&self.problem, unit::<T>(packs))?;
        let grid = Grid::covering(params.strips.into(), u64::from(kernel.bounds.threads / warp::SIZE))?;
        let Sorted { keys, indices } = pieces.sorted;
        // SAFETY: the tensors have the sizes of the problem, and the grid covers the strips. Here and below tensors are freed in
        // the order of the stream.
        unsafe {
            let (keys, indices, partials) = (keys.view()?, indices.view()?, pieces.partials.view_mut()?);
            dy.device().launch(
                kernel,
                grid,
                (keys, indices, dy.view::<T>()?, dwte.view_mut::<T>()?, partials, params),
            )
        }
    }

    /// The rows whose tokens are in several pieces, by a launch that waits for the work beside.
    pub fn finish_runs<T: Element + Float + Kernels>(
        &self,
        pieces: &Pieces<'_>,
        dwte: &Tensor,
        beside: Option<Aside<'_>>,
    ) -> Result<()> {
        // Whatever dy is like, which is not read here.
        let packs = self.packs::<T>(&[dwte]);
        let kernels =
            [kernels::finish_runs_elements::kernels::<T>(), kernels::finish_runs_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let params = pieces.params(&self.problem, unit::<T>(packs))?;
        let grid = Grid::covering(params.strips.into(), u64::from(kernel.bounds.threads / warp::SIZE))?;
        let grid = grid.early_if(beside.is_none());
        beside.map_or(Ok(()), Aside::join)?;
        // SAFETY: as above.
        unsafe {
            let (keys, partials) = (pieces.sorted.keys.view()?, pieces.partials.view()?);
            dwte.device().launch(kernel, grid, (keys, partials, dwte.view_mut::<T>()?, params))
        }
    }

    /// The sums of pieces and of positions, and zeros in the rows without a mark. All are whole packs.
    pub fn sum_together<T: Element + Float + Kernels>(
        &self,
        pieces: &Pieces<'_>,
        marks: &Tensor,
        starts: Option<&Tensor>,
        dy: &Tensor,
        dwte: &Tensor,
        positions: Option<(&Tensor, &Groups)>,
    ) -> Result<()> {
        let kernel = &kernels::sum_together::kernels::<T>()[usize::from(starts.is_some())];
        let threads = kernel.bounds.threads;
        let of_pieces = pieces.params(&self.problem, T::PER_PACK)?;
        let of_rows = strips(&self.problem, self.problem.vocabulary, 0, T::PER_PACK)?;
        let of_positions =
            positions.map_or(PositionSums::default(), |(dwpe, groups)| self.position_params(dwpe, groups));
        let blocks_of_pieces = of_pieces.strips.div_ceil(threads / warp::SIZE);
        let blocks_of_positions = (of_positions.len / T::PER_PACK as u64).div_ceil(threads.into());
        let zeroing = of_rows.strips.div_ceil(threads / warp::SIZE * ZERO_STRIPS);
        let blocks = u64::from(blocks_of_pieces) + blocks_of_positions + u64::from(zeroing);
        let params = Together {
            pieces: of_pieces,
            rows: of_rows,
            positions: of_positions,
            blocks_of_pieces,
            blocks_of_positions: blocks_of_positions as u32,
        };
        let Sorted { keys, indices } = pieces.sorted;
        // SAFETY: the tensors have the sizes of the problem; there are blocks for all pieces, units of dwpe and rows.
        unsafe {
            let (keys, indices, marks) = (keys.view()?, indices.view()?, marks.view()?);
            let dwpe = positions.map_or(dwte, |(dwpe, _)| dwpe).view_mut::<T>()?;
            let (dy, dwte, partials) = (dy.view::<T>()?, dwte.view_mut::<T>()?, pieces.partials.view_mut()?);
            let args = (keys, indices, marks, read::<u32>(starts)?, dy, dwte, dwpe, partials, params);
            pieces.sorted.keys.device().launch(kernel, Grid::new(blocks)?, args)
        }
    }

    /// Zeros in the rows of dwte that are not marked, by a stream that sees the tensors.
    pub fn zero_rows<T>(&self, device: &Device, marks: &Tensor, dwte: &Tensor) -> Result<()>
    where
        T: Element + Float + Kernels,
    {
        if dwte.is_empty() {
            return Ok(());
        }
        let packs = self.packs::<T>(&[dwte]);
        let kernels = [kernels::zero_rows_elements::kernels::<T>(), kernels::zero_rows_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(packs)][0];
        let params = strips(&self.problem, self.problem.vocabulary, 0, unit::<T>(packs))?;
        let of_block = kernel.bounds.threads / warp::SIZE * ZERO_STRIPS;
        let gpu = device.info().filter(|_| !device.same_stream(dwte.device()));
        let most = gpu.map_or(u32::MAX, |gpu| (gpu.sm_count * ZEROING / MULTIPROCESSORS).max(1));
        let grid = Grid::new(params.strips.div_ceil(of_block).min(most).into())?.early_if(false);
        // SAFETY: the tensors have the sizes of the problem, and each strip has its turn.
        unsafe { device.launch(kernel, grid, (marks.view::<u32>()?, dwte.view_mut::<T>()?, params)) }
    }
}

/// Strips of so many pieces or rows: 32 lanes of `unit` elements each.
pub fn strips_of_rows(problem: &Problem, rows: usize, unit: usize) -> usize {
    rows * problem.cols.div_ceil(unit * warp::SIZE as usize)
}

/// Tokens of a piece: of few tokens fewer, so that there are enough pieces for all warps.
fn piece(tokens: usize) -> usize {
    match tokens {
        0..=8192 => 16,
        8193..=MERGED => 32,
        _ => 64,
    }
}

/// Elements of a lane of the sums.
fn unit<T: Float>(packs: bool) -> usize {
    if packs { T::PER_PACK } else { SUM_ELEMENTS }
}

/// The strips of so many rows, or of so many pieces of this many tokens.
fn strips(problem: &Problem, rows: usize, piece: usize, unit: usize) -> Result<Sums> {
    let strips = strips_of_rows(problem, rows, unit);
    if strips >= 1 << 31 {
        let what = "strips of 32 columns of `wte`";
        return Err(Error::TooLarge { op: BACKWARD, what, limit: (1 << 31) - 1, got: strips.to_string() });
    }
    Ok(Sums {
        tokens: problem.token_count() as u32,
        rows: problem.vocabulary as u32,
        cols: problem.cols as u32,
        piece: piece as u32,
        strips: strips as u32,
        per_row: divisor(strips_of_rows(problem, 1, unit)),
    })
}
