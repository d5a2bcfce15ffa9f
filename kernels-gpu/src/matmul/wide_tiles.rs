//! 16-bit products on Hopper's tensor cores, by `wgmma`.
//!
//! As [`tensor_cores()`](fn@super::tensor_cores), with two warpgroups a block that read both operands' tiles from shared
//! memory: each computes 64 rows of 2·`SUMS` columns. 64 terms at a time come by `cp.async`, `STAGES` of them in turn, into slabs
//! that are swizzled as the tensor cores want them. The products of a stage go on while the next is waited for: a stage
//! is free when every warp has waited for the products of the one behind it, so that `STAGES` − 2 are under way.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks), [`wide_shared_bytes`] of dynamic shared memory.
//!
//! Source: NVIDIA's CUTLASS (its multistage kernels for Hopper), as a technique.

use super::epilogue::{Finish, Tensors};
use super::side::Side;
use super::{Matrix, Product};
use cuda_std::prelude::*;
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Rows of a tile: 64 for each warpgroup.
pub const WIDE_ROWS: u32 = 128;
/// Terms of a stage.
pub const WIDE_DEPTH: u32 = warpgroup::TERMS;
/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of padding behind a row of sums.
const PAD: u32 = 8;

/// Bytes of shared memory of an instance with tiles of so many columns.
pub const fn wide_shared_bytes(cols: u32, stages: u32) -> u32 {
    let (operands, sums) = ((WIDE_ROWS + cols) * WIDE_DEPTH * 2 * stages, WIDE_ROWS * (cols + PAD) * 4);
    if operands > sums { operands } else { sums }
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// As `tensor_cores`.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { SUMS: 128, STAGES: 4, A_K: 1, B_K: 1; threads: 256, min_blocks: 1 },
        { SUMS: 128, STAGES: 4, A_K: 1, B_K: 0; threads: 256, min_blocks: 1 },
        { SUMS: 128, STAGES: 4, A_K: 0, B_K: 1; threads: 256, min_blocks: 1 },
        { SUMS: 128, STAGES: 4, A_K: 0, B_K: 0; threads: 256, min_blocks: 1 },
        { SUMS: 64, STAGES: 3, A_K: 1, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 64, STAGES: 3, A_K: 1, B_K: 0; threads: 256, min_blocks: 2 },
        { SUMS: 64, STAGES: 3, A_K: 0, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 64, STAGES: 3, A_K: 0, B_K: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn warpgroups<
    T: WarpgroupHalf,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let cols = 2 * SUMS as u32;
    let place = p.blocks.place();
    let (first_row, first_col) = (place.tile_row * WIDE_ROWS, place.tile_col * cols);
    let (k, end) = p.terms(place.split);
    let warp = warp::warp_id();
    let group_row = warp / 4 * 64;
    let mut sums = [0.0f32; SUMS];
    // SAFETY: the caller's contract; a stage is overwritten behind a barrier that every warp reaches after its wait for
    // the products that read the stage.
    unsafe {
        let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
        let stride = |along: usize, matrix: Matrix| if along == 1 { matrix.row } else { matrix.col };
        let of_rows = ((first_row, p.epilogue.m), (WIDE_ROWS, WIDE_DEPTH));
        let of_cols = ((first_col, p.epilogue.n), (cols, WIDE_DEPTH));
        let side_a = Side::<T, A_K>::in_slabs(a, stride(A_K, p.a), of_rows.0, of_rows.1, THREADS);
        let side_b = Side::<T, B_K>::in_slabs(b, stride(B_K, p.b), of_cols.0, of_cols.1, THREADS);
        let stage_bytes = side_a.bytes() + side_b.bytes();
        let tiles = |stage: u32| {
            let offset = stage * stage_bytes;
            (side_a.tile(offset), side_b.tile(offset + side_a.bytes()))
        };
        // Beyond the last terms copies are of zeros, so that there is a group for every turn of the loop.
        let copy = |stage: u32, k: u32| {
            let (tile_a, tile_b) = tiles(stage);
            side_a.copy(tile_a, k, end);
            side_b.copy(tile_b, k, end);
            async_copy::commit();
        };
        let ahead = STAGES as u32 - 2;
        for stage in 0..ahead {
            copy(stage, k + stage * WIDE_DEPTH);
        }
        let turns = if end > k { (end - k).div_ceil(WIDE_DEPTH) } else { 0 };
        let next = |stage: u32| if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
        let (mut stage, mut free, mut next_k) = (0, ahead, k + ahead * WIDE_DEPTH);
        let mut turn = 0;
        while turn < turns {
            match const { STAGES } {
                3 => async_copy::wait::<0>(),
                _ => async_copy::wait::<1>(),
            }
            warpgroup::fence_copies();
            thread::sync_threads();
            let (tile_a, tile_b) = tiles(stage);
            let (of_a, of_b) = (side_a.operand(tile_a, group_row), side_b.operand(tile_b, 0));
            match const { (A_K, B_K) } {
                (1, 1) => T::multiply_tiles::<SUMS, 0, 0>(&mut sums, of_a, of_b),
                (1, _) => T::multiply_tiles::<SUMS, 0, 1>(&mut sums, of_a, of_b),
                (_, 1) => T::multiply_tiles::<SUMS, 1, 0>(&mut sums, of_a, of_b),
                (_, _) => T::multiply_tiles::<SUMS, 1, 1>(&mut sums, of_a, of_b),
            }
            copy(free, next_k);
            warpgroup::wait::<1>();
            stage = next(stage);
            free = next(free);
            next_k += WIDE_DEPTH;
            turn += 1;
        }
        warpgroup::finish(&mut sums);
        async_copy::wait::<0>();
        thread::sync_threads();
        let pitch = cols + PAD;
        let shared = Shared::<f32>::dynamic(0, WIDE_ROWS * pitch);
        let (row, col) = (warp * 16 + warp::lane_id() / 4, warp::lane_id() % 4 * 2);
        for i in 0..SUMS / 4 {
            let at = row * pitch + (i * 8) as u32 + col;
            let [a, b, c, d] = [0, 1, 2, 3].map(|j| sums[4 * i + j].to_bits());
            shared.set_8(at, [a, b]);
            shared.set_8(at + 8 * pitch, [c, d]);
        }
        thread::sync_threads();
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        finish.tile(shared, pitch, (WIDE_ROWS, cols), (first_row, first_col), THREADS);
    }
}
