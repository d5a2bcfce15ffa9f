//! Few tokens, beside which most of dwte is zeros: their sums, those of positions, and the zeros, in one launch.
//!
//! Blocks begin in the order of their numbers. The first have pieces of the sorted tokens, the next units of dwpe; both read dy, one from
//! memory and the other from L2. The last write zeros as those end: all that is read comes before nearly all that is written, since loads
//! beside so many stores take longer than one behind the other.
//!
//! Launch: 1-D grid, so many blocks of each. Floor: dy and both gradients once.

use super::positions::{PositionSums, sum_positions};
use super::sums::{Sums, WARPS, sum_pieces, zero_rows};
use super::unit::Packs;
use cuda_std::prelude::*;

/// What the blocks of a launch do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Pieces of tokens.
    pub pieces: Sums,
    /// Rows that may become zeros.
    pub rows: Sums,
    /// Positions, in one group.
    pub positions: PositionSums,
    /// Blocks of pieces, a warp for each strip.
    pub blocks_of_pieces: u32,
    /// Blocks of positions; none where these have no gradient.
    pub blocks_of_positions: u32,
}
cuda_std::plain_parameter!(Together);
const _: () = assert!(size_of::<Together>() == 2 * size_of::<Sums>() + size_of::<PositionSums>() + 8);

/// Packs: rows of whole packs, aligned; all sums that are of one piece, all of positions, and zeros in the rows without a mark.
///
/// # Safety
/// Those of [`sum_pieces_packs()`](fn@super::sum_pieces_packs), [`sum_positions_packs()`](fn@super::sum_positions_packs), with one group of
/// sequences, and [`zero_rows_packs()`](fn@super::zero_rows_packs) of blocks with as many threads.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [{ PACKED: 0; threads: 128, min_blocks: 6 }, { PACKED: 1; threads: 128, min_blocks: 6 }],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sum_together<T: Float, const PACKED: usize>(
    keys: Global<u32>,
    indices: Global<u32>,
    marks: Global<u32>,
    starts: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    dwpe: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Together,
) {
    let block = thread::block_idx_x();
    let of_sums = p.blocks_of_pieces + p.blocks_of_positions;
    // SAFETY: the caller's contract.
    unsafe {
        if block < p.blocks_of_pieces {
            sum_pieces::<T, Packs>(keys, indices, dy, dwte, partials, &p.pieces, block);
        } else if block < of_sums {
            let blocks = [block - p.blocks_of_pieces, p.blocks_of_positions];
            sum_positions::<T, Packs, PACKED>(starts, dy, dwpe, partials, &p.positions, blocks);
        } else {
            let warp = (block - of_sums) * WARPS + warp::warp_id();
            let warps = (thread::grid_dim_x() - of_sums) * WARPS;
            zero_rows::<T, Packs>(marks, dwte, &p.rows, warp, warps);
        }
    }
}
