//! 16-bit products on Hopper's tensor cores, fed by its tensor memory accelerator.
//!
//! A block stays for several tiles, one multiprocessor each. One of its warpgroups, the producer, does nothing but
//! start copies: a thread of it fills `STAGES` stages of [`PIPELINED_DEPTH`] terms of both operands in turn. The
//! `CONSUMERS` others each multiply 64 rows of 2·`SUMS` columns by `wgmma` and finish them. A stage has two barriers: *full*,
//! where its bytes arrive, and *empty*, where a warp of each consumer arrives when the products that read the stage are
//! done, of which two stages' are under way. The producer runs ahead into the next tile while consumers finish
//! theirs.
//!
//! Operands of any strides that are multiples of 16 bytes, along k or across it, batches as outer dimensions of the
//! tensor maps; what lies beyond m, n and k is read as zeros and not written. There is at least one term.
//!
//! Ways out: results that the accelerator can store, with a bias and an activation, go through shared memory in their
//! own type and are copied during the next tile's products; whatever else is asked goes there as f32, to the epilogue
//! that all kernels share.
//!
//! Launch: 1-D grid of at most as many blocks as fit at once, for the total of [`Blocks`](super::Blocks);
//! [`pipelined_shared_bytes`] of dynamic shared memory.
//!
//! Source: NVIDIA's CUTLASS (warp-specialised persistent kernels), as a technique.

use super::Product;
use super::consumer::{CHUNK, Finisher, GROUP_ROWS, ROOM_BYTES, WARPS};
use super::epilogue::{Finish, Tensors, flag};
use super::part::{PIPELINED_DEPTH, Part, multiply};
use super::place::Place;
use cuda_std::barrier::{self, Barriers, Turn};
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Rows of a consumer.
pub const PIPELINED_ROWS: u32 = GROUP_ROWS;
/// Columns of a box of the result.
pub const PIPELINED_CHUNK: u32 = CHUNK;
/// Registers of a producer's and of a consumer's thread, of two and of three consumers.
const FEW_REGISTERS: u32 = 32;
const REGISTERS_OF_TWO: u32 = 232;
const REGISTERS_OF_THREE: u32 = 160;

/// Bytes of shared memory of an instance with so many consumers and columns.
pub const fn pipelined_shared_bytes(consumers: u32, cols: u32, stages: u32) -> u32 {
    let stage = (consumers * PIPELINED_ROWS + cols) * PIPELINED_DEPTH * 2;
    stages * stage + consumers * ROOM_BYTES + 2 * stages * Barriers::BYTES
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`, and so do the maps, with the boxes of this instance; there is one of the result
/// where `p` says [`flag::STORED`]; the grid is as the module says, with its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 1, B_K: 1; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 1, B_K: 0; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 0, B_K: 1; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 0, B_K: 0; threads: 512, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn pipelined<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let (rows, cols) = (CONSUMERS as u32 * PIPELINED_ROWS, 2 * SUMS as u32);
    let part_a = Part::<A_K>::new(rows, p.a);
    let part_b = Part::<B_K>::new(cols, p.b);
    let stage_bytes = part_a.bytes() + part_b.bytes();
    let rooms = STAGES as u32 * stage_bytes;
    // Known to be the same in all lanes, so that what comes of it stays in uniform registers. Each role asks anew: what
    // both know takes registers of which there are few.
    let warp_id = || warp::warp_shuffle_idx(u32::MAX, thread::thread_idx_x() / 32, 0, 32).0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read
    // between the ends of *full* and of the next phase of *empty*.
    unsafe {
        let barriers = Barriers::dynamic(rooms + CONSUMERS as u32 * ROOM_BYTES, 2 * STAGES as u32);
        let full = |stage: u32| barriers.at(stage);
        let empty = |stage: u32| barriers.at(STAGES as u32 + stage);
        let tiles = |stage: u32| {
            let offset = stage * stage_bytes;
            (part_a.tile::<T>(offset), part_b.tile::<T>(offset + part_a.bytes()))
        };
        if thread::thread_idx_x() == 0 {
            for stage in 0..STAGES as u32 {
                barriers.at(stage).init(1);
                barriers.at(STAGES as u32 + stage).init(CONSUMERS as u32 * WARPS);
            }
            barrier::fence_init();
        }
        tile::expect_slabs();
        dependent::wait();
        dependent::allow_next();
        thread::sync_threads();
        let ends = |place: Place| {
            let (k, end) = p.terms(place.split);
            (k, (end - k).div_ceil(PIPELINED_DEPTH))
        };
        if warp_id() / WARPS == CONSUMERS as u32 {
            warpgroup::shrink_registers::<FEW_REGISTERS>();
            if thread::thread_idx_x() == CONSUMERS as u32 * WARPS * 32 {
                let mut turn = Turn::<STAGES>::first();
                let mut index = thread::block_idx_x();
                map_a.prefetch();
                map_b.prefetch();
                while index < p.blocks.total {
                    let place = p.blocks.at(index);
                    let (mut k, turns) = ends(place);
                    let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
                    let mut left = turns;
                    while left > 0 {
                        // At first the phase before the first one is over.
                        let full = full(turn.stage());
                        empty(turn.stage()).wait(turn.parity() ^ 1);
                        full.arrive_expecting(stage_bytes);
                        let (tile_a, tile_b) = tiles(turn.stage());
                        part_a.load(map_a, tile_a, first_row, k, place, full);
                        part_b.load(map_b, tile_b, first_col, k, place, full);
                        turn = turn.next();
                        k += PIPELINED_DEPTH;
                        left -= 1;
                    }
                    index += thread::grid_dim_x();
                }
            }
            return;
        }
        if const { CONSUMERS == 2 } {
            warpgroup::grow_registers::<REGISTERS_OF_TWO>();
        } else {
            warpgroup::grow_registers::<REGISTERS_OF_THREE>();
        }
        let (warp, lane) = (warp_id(), warp::lane_id());
        let group = warp / WARPS;
        let mut turn = Turn::<STAGES>::first();
        let mut index = thread::block_idx_x();
        let tensors = Tensors { bias, addend, aux, out };
        let mut sums = [0.0f32; SUMS];
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (_, turns) = ends(place);
            let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
            let mut done = 0;
            while done < turns {
                full(turn.stage()).wait(turn.parity());
                let (tile_a, tile_b) = tiles(turn.stage());
                let of_a = part_a.operand(tile_a, group * PIPELINED_ROWS);
                let of_b = part_b.operand(tile_b, 0);
                let more = done > 0;
                multiply::<T, SUMS, A_K, B_K>(&mut sums, of_a, of_b, more);
                // The products of the turn before are done.
                warpgroup::wait::<1>();
                empty(turn.stage_before()).arrive_if(more && lane == 0);
                turn = turn.next();
                done += 1;
            }
            warpgroup::finish(&mut sums);
            empty(turn.stage_before()).arrive_if(lane == 0);
            // A shuffle stays in its loop, and so does what comes of it: it would take registers during the products.
            let lane = warp::warp_shuffle_idx(u32::MAX, lane, lane, 32).0;
            let (row, col) = (first_row + group * PIPELINED_ROWS, first_col);
            let room = rooms + group * ROOM_BYTES;
            let finisher = Finisher { lane, warp: warp % WARPS, barrier: 1 + group, room, row, col };
            if p.epilogue.flags & flag::STORED != 0 {
                finisher.store(&sums, &p.epilogue, bias, map_out, place);
            } else {
                finisher.finish(&sums, Finish::new(tensors, &p.epilogue, place), p.epilogue.n);
            }
            index += thread::grid_dim_x();
        }
        tma::wait_stores_read::<0>();
    }
}
