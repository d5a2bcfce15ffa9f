//! 16-bit products on tensor cores, by `mma.sync`.
//!
//! A block of `WARPS_M`·`WARPS_N` warps computes a tile, each warp a part of `MI`·16 rows and `NI`·8 columns of it. `STEPS`·16
//! terms of both operands' tiles at a time come to shared memory by `cp.async`, `STAGES` of them in turn, of which
//! `STAGES` − 1 are under way; fragments come by `ldmatrix`, a step ahead of the products. In the end the sums go
//! through shared memory, so that the epilogue reads and writes 16 bytes a thread, row by row.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks), [`shared_bytes`] of dynamic shared memory.

use super::Product;
use super::finish::{Finish, Tensors};
use super::side::Side;
use cuda_std::prelude::*;

/// Elements of padding behind a row of sums: rows of a fragment fall on different banks.
const PAD: u32 = 8;

/// Bytes of shared memory of an instance with tiles of `rows`×`cols`, and `depth` terms in each of `stages`.
pub const fn shared_bytes(rows: u32, cols: u32, depth: u32, stages: u32) -> u32 {
    let (operands, sums) = ((rows + cols) * depth * 2 * stages, rows * (cols + PAD) * 4);
    if operands > sums { operands } else { sums }
}

/// Fragments of a step: `MI` of a, `NI` of b in twos.
#[derive(Clone, Copy)]
struct Fragments<const MI: usize, const NI: usize> {
    a: [[u32; 4]; MI],
    b: [[u32; 2]; NI],
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`; rows (`A_K` = 1) or columns of the operands start at multiples of 16 bytes; the
/// grid is `p.blocks`', with its shared memory.
#[kernel(
    family = "matmul",
    types = [f16, bf16],
    instances = [
        { MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 1, B_K: 1; threads: 128, min_blocks: 2 },
        { MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 1, B_K: 0; threads: 128, min_blocks: 2 },
        { MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 0, B_K: 1; threads: 128, min_blocks: 2 },
        { MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 0, B_K: 0; threads: 128, min_blocks: 2 },
        { MI: 4, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 1, B_K: 1; threads: 128, min_blocks: 3 },
        { MI: 4, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 1, B_K: 0; threads: 128, min_blocks: 3 },
        { MI: 4, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 0, B_K: 1; threads: 128, min_blocks: 3 },
        { MI: 4, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 2, STAGES: 4, A_K: 0, B_K: 0; threads: 128, min_blocks: 3 },
        { MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 4, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 3 },
        { MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 4, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 3 },
        { MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 4, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 3 },
        { MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STEPS: 4, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 3 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn tensor_cores<
    T: Half,
    const MI: usize,
    const NI: usize,
    const WARPS_M: usize,
    const WARPS_N: usize,
    const STEPS: usize,
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
    let rows = (WARPS_M * MI * 16) as u32;
    let cols = (WARPS_N * NI * 8) as u32;
    let depth = (STEPS * 16) as u32;
    let threads = (WARPS_M * WARPS_N * 32) as u32;
    let place = p.blocks.place();
    let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
    let (k, end) = p.terms(place.split);
    let warp = warp::warp_id();
    let (warp_row, warp_col) = (warp / WARPS_N as u32, warp % WARPS_N as u32);
    let (warp_row, warp_col) = (warp_row * (MI * 16) as u32, warp_col * (NI * 8) as u32);
    let mut sums = [[[0.0f32; 4]; NI]; MI];
    // SAFETY: the caller's contract; a stage is overwritten when every warp has passed the barrier behind its last
    // read.
    unsafe {
        let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
        let stride = |along: usize, matrix: super::Matrix| if along == 1 { matrix.row } else { matrix.col };
        let side_a =
            Side::<T, A_K>::new(a, stride(A_K, p.a), (first_row, p.epilogue.m), (rows, depth), threads);
        let side_b =
            Side::<T, B_K>::new(b, stride(B_K, p.b), (first_col, p.epilogue.n), (cols, depth), threads);
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
        let load = |stage: u32, step: u32| {
            let (tile_a, tile_b) = tiles(stage);
            let mut fragments = Fragments::<MI, NI> { a: [[0; 4]; MI], b: [[0; 2]; NI] };
            for i in 0..MI {
                fragments.a[i] = side_a.load::<true>(tile_a, warp_row + (i * 16) as u32, step * 16);
            }
            for i in 0..NI / 2 {
                let four = side_b.load::<false>(tile_b, warp_col + (i * 16) as u32, step * 16);
                fragments.b[2 * i] = [four[0], four[1]];
                fragments.b[2 * i + 1] = [four[2], four[3]];
            }
            fragments
        };
        for stage in 0..STAGES as u32 - 1 {
            copy(stage, k + stage * depth);
        }
        let turns = if end > k { (end - k).div_ceil(depth) } else { 0 };
        let (mut stage, mut free) = (0, STAGES as u32 - 1);
        let mut next_k = k + (STAGES as u32 - 1) * depth;
        let next = |stage: u32| if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
        wait_for_oldest::<STAGES>();
        thread::sync_threads();
        let mut held = load(0, 0);
        let mut turn = 0;
        while turn < turns {
            for step in 0..STEPS as u32 {
                let now = held;
                if step + 1 == STEPS as u32 {
                    // The next tiles are there, and nobody reads these any more.
                    wait_for_oldest::<STAGES>();
                    thread::sync_threads();
                    stage = next(stage);
                    held = load(stage, 0);
                } else {
                    held = load(stage, step + 1);
                }
                for i in 0..MI {
                    for j in 0..NI {
                        sums[i][j] = T::multiply(now.a[i], now.b[j], sums[i][j]);
                    }
                }
                if step == 0 {
                    copy(free, next_k);
                    free = next(free);
                    next_k += depth;
                }
            }
            turn += 1;
        }
        async_copy::wait::<0>();
        thread::sync_threads();
        let pitch = cols + PAD;
        let shared = Shared::<f32>::dynamic(0, rows * pitch);
        let (row, col) = (warp::lane_id() / 4, warp::lane_id() % 4 * 2);
        let corner = (warp_row + row) * pitch + warp_col + col;
        for i in 0..MI {
            for j in 0..NI {
                let at = corner + (i * 16) as u32 * pitch + (j * 8) as u32;
                let [a, b, c, d] = sums[i][j].map(f32::to_bits);
                shared.set_8(at, [a, b]);
                shared.set_8(at + 8 * pitch, [c, d]);
            }
        }
        thread::sync_threads();
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        finish.tile(shared, pitch, (rows, cols), (first_row, first_col), threads);
    }
}

/// Waits until at most `STAGES` − 2 groups of copies are under way.
#[inline(always)]
#[track_caller]
pub(super) fn wait_for_oldest<const STAGES: usize>() {
    match const { STAGES } {
        3 => async_copy::wait::<1>(),
        4 => async_copy::wait::<2>(),
        _ => async_copy::wait::<0>(),
    }
}
