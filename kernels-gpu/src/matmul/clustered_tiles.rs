//! [`clustered()`](fn@clustered): small tiles of what the accelerator can fetch; [`clusters`](super::clusters) tells the rest.

use super::Product;
use super::clusters::{Room, WARPS, begin, part_of, share_of};
use super::finish::{Finish, Tensors};
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use cuda_std::prelude::*;
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::WarpgroupHalf;

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`, and so do the maps, with the boxes of this instance; the grid is as the module says, with
/// its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 1, B_K: 1; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 1, B_K: 0; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 0, B_K: 1; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 0, B_K: 0; threads: 256, min_blocks: 2 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 5, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 5, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 5, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 5, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn clustered<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
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
    unsafe { run::<T, CONSUMERS, SUMS, STAGES, false, A_K, B_K>([map_a, map_b], b, tensors, &p) }
}

/// All of the kernel. Consumers multiply as [`Room::multiply`] says.
///
/// # Safety
/// As [`clustered()`](fn@clustered); the maps are of a and of b.
#[inline(always)]
pub(super) unsafe fn run<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const TURNED: bool,
    const A_K: usize,
    const B_K: usize,
>(
    [map_a, map_b]: [TensorMap; 2],
    b: Global<T>,
    tensors: Tensors<T>,
    p: &Product,
) {
    let (of_consumers, of_each) = (CONSUMERS as u32 * ROWS, 2 * SUMS as u32);
    let (rows, cols) = if const { TURNED } { (of_each, of_consumers) } else { (of_consumers, of_each) };
    let warps = CONSUMERS as u32 * WARPS;
    // SAFETY: the caller's contract.
    unsafe {
        if p.is_nothing() {
            return;
        }
        let prefetch = || {
            map_a.prefetch();
            map_b.prefetch();
        };
        let (place, k, turns) = part_of::<T>(p);
        let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
        let (m, n) = if const { TURNED } { p.extents_of_few() } else { (p.epilogue.m, p.epilogue.n) };
        let share = share_of(rows, first_row, m);
        let room = Room::<STAGES, A_K, B_K>::new(rows, cols, p, share, [1, warps], prefetch);
        room.part_b.ask(p.asks != 0, b, p.b, (first_col, n), p.terms(cluster::rank()), place);
        begin();
        if warp::warp_id() >= warps {
            if thread::thread_idx_x() == warps * 32 {
                room.fill::<T>([map_a, map_b], (first_row, first_col), k, turns, place);
            }
            warp::sync_warp(u32::MAX);
        } else {
            room.multiply::<T, SUMS, TURNED>(turns);
        }
        let finish = Finish::new(tensors, &p.epilogue, place);
        room.finish::<T, SUMS, TURNED>(finish, (first_row, first_col), (warps + WARPS) * 32);
    }
}
