//! [`narrow()`](fn@narrow): few rows, of which the accelerator fetches both operands; [`clusters`](super::clusters) tells the rest.
//!
//! As decoding has them: weights are read once, and hardly anything else is. A warpgroup multiplies 64 columns of b by 2·`SUMS` rows of a, so that a
//! stage has as many lines of a as there are rows, where [`clustered()`](fn@super::clustered) has 64: lines beyond the operand, which the
//! accelerator fills with zeros, take it longer than others. Unlike with [`thin()`](fn@super::thin) no registers hold what is on its way.
//!
//! `STAGES` are as many as have room for two blocks of a multiprocessor (of 32 rows for one), or fewer for three of them, where products have so many.
//!
//! Of few columns and many rows operands change places, and rows of tiles are columns of the result.
//!
//! Floor: b once at the copy rate.

use super::Product;
use super::clustered_tiles::run;
use super::finish::Tensors;
use super::piped_tiles::PIPELINED_ROWS;
use cuda_std::prelude::*;
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::WarpgroupHalf;

/// Columns of a tile.
pub const NARROW_COLS: u32 = PIPELINED_ROWS;

/// Multiplies. a's columns are neighbours in memory, and b's where `B_K` is 1; where it is 0 b's rows are.
///
/// # Safety
/// As [`clustered()`](fn@super::clustered).
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { SUMS: 4, STAGES: 7, B_K: 1; threads: 256, min_blocks: 3 },
        { SUMS: 4, STAGES: 7, B_K: 0; threads: 256, min_blocks: 3 },
        { SUMS: 4, STAGES: 11, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 4, STAGES: 11, B_K: 0; threads: 256, min_blocks: 2 },
        { SUMS: 8, STAGES: 6, B_K: 1; threads: 256, min_blocks: 3 },
        { SUMS: 8, STAGES: 6, B_K: 0; threads: 256, min_blocks: 3 },
        { SUMS: 8, STAGES: 10, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 8, STAGES: 10, B_K: 0; threads: 256, min_blocks: 2 },
        { SUMS: 16, STAGES: 5, B_K: 1; threads: 256, min_blocks: 3 },
        { SUMS: 16, STAGES: 5, B_K: 0; threads: 256, min_blocks: 3 },
        { SUMS: 16, STAGES: 9, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 16, STAGES: 9, B_K: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn narrow<T: WarpgroupHalf, const SUMS: usize, const STAGES: usize, const B_K: usize>(
    map_a: TensorMap,
    map_b: TensorMap,
    _map_out: TensorMap,
    _map_beside: TensorMap,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let tensors = Tensors { bias, addend, aux, out };
    // SAFETY: the caller's contract.
    unsafe { run::<T, 1, SUMS, STAGES, true, 1, B_K>([map_a, map_b], b, tensors, &p) }
}
