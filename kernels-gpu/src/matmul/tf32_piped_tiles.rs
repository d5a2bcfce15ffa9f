//! f32 products on Hopper's tensor cores of operands that are rounded to tf32.
//!
//! As [`pipelined()`](fn@super::pipelined): a producer fills `STAGES` stages of [`TF32_DEPTH`] terms of both operands by the accelerator, and
//! `CONSUMERS` warpgroups multiply 64 rows of 2·`SUMS` columns each and end their tiles one after the other. The accelerator rounds: the
//! maps say tf32, to the nearest number of 11 bits, the even one of two, where the tensor cores would cut the others off.
//!
//! Both operands have neighbours in memory along k, as the tensor cores take nothing else of 32 bits; another is transposed first. What
//! lies beyond m, n and k is read as zeros and not written. There is at least one term.
//!
//! Floor: 2·m·n·k operations at half the rate of bf16, or the operands and the result once at the copy rate.
//!
//! Launch: 1-D grid of at most as many blocks as fit at once, for the total of [`Blocks`](super::Blocks);
//! [`tf32_pipelined_shared_bytes`] of dynamic shared memory. It may be early.

use super::Product;
use super::epilogue::flag;
use super::f32_consumer::{ROOM_BYTES, WarpFinisher};
use super::feed::Feed;
use super::finish::{Finish, Tensors};
use super::part::{LINE_BYTES, Part, TF32_DEPTH};
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use super::ring::{Ring, barrier_bytes};
use super::staged::{ROWS as ROWS_OF_WARP, WARPS};
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup;

/// Registers of a producer's and of a consumer's thread, of two consumers, and of three or one.
const FEW_REGISTERS: u32 = 32;
const REGISTERS_OF_TWO: u32 = 232;
const REGISTERS_OF_OTHERS: u32 = 160;

/// Bytes of shared memory of an instance with so many consumers and columns.
pub const fn tf32_pipelined_shared_bytes(consumers: u32, cols: u32, stages: u32) -> u32 {
    let stage = (consumers * ROWS + cols) * LINE_BYTES;
    stages * stage + consumers * WARPS * ROOM_BYTES + barrier_bytes(stages, consumers - 1)
}

/// Multiplies.
///
/// # Safety
/// The tensors have the matrices of `p`, and so do the maps, which round to tf32, with the boxes of this instance; there is one of the result
/// where `p` says [`flag::STORED`], with splits along the outer dimension, if it has not both; the grid is as the module says, with its shared
/// memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    instances = [
        { CONSUMERS: 2, SUMS: 128, STAGES: 4; threads: 384, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4; threads: 512, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6; threads: 384, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn tf32_pipelined<const CONSUMERS: usize, const SUMS: usize, const STAGES: usize>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    let (rows, cols) = (CONSUMERS as u32 * ROWS, 2 * SUMS as u32);
    let part_a = Part::<1>::new(rows, p.a);
    let part_b = Part::<1>::new(cols, p.b);
    let stage_bytes = part_a.bytes() + part_b.bytes();
    let rooms = STAGES as u32 * stage_bytes;
    // Known to be the same in all lanes.
    let warp_id = || warp::warp_shuffle_idx(u32::MAX, thread::thread_idx_x() / 32, 0, 32).0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read
    // between the ends of *full* and of the next phase of *empty*.
    unsafe {
        let prefetch = || {
            map_a.prefetch();
            map_b.prefetch();
        };
        let of_barriers = rooms + CONSUMERS as u32 * WARPS * ROOM_BYTES;
        let ring =
            Ring::<STAGES>::new(stage_bytes, of_barriers, [CONSUMERS as u32, CONSUMERS as u32 - 1], prefetch);
        let feed = Feed { ring, part_a, part_b, depth: TF32_DEPTH };
        tile::expect_slabs();
        thread::sync_threads();
        dependent::wait();
        dependent::allow_next();
        if warp_id() / WARPS == CONSUMERS as u32 {
            warpgroup::shrink_registers::<FEW_REGISTERS>();
            if thread::thread_idx_x() == CONSUMERS as u32 * WARPS * 32 {
                feed.run::<f32, false>([map_a, map_b], None, &p);
            }
            return;
        }
        if const { CONSUMERS == 2 } {
            warpgroup::grow_registers::<REGISTERS_OF_TWO>();
        } else {
            warpgroup::grow_registers::<REGISTERS_OF_OTHERS>();
        }
        let (warp, lane) = (warp_id(), warp::lane_id());
        let group = warp / WARPS;
        let mut turn = Turn::<STAGES>::first();
        let mut index = thread::block_idx_x();
        let mut round = 0;
        let mut sums = [0.0f32; SUMS];
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (_, turns) = feed.terms(&p, place);
            let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
            let start = |sums: &mut [f32; SUMS], stage: u32, more: bool| {
                let (tile_a, tile_b) = feed.tiles::<f32>(stage);
                let of_a = tile_a.rows_along_terms(group * ROWS);
                warpgroup::multiply_tf32_tiles::<SUMS>(sums, of_a, tile_b.rows_along_terms(0), more);
            };
            let of = [group, CONSUMERS as u32];
            ring.consume(&mut sums, &mut turn, &mut round, turns, STAGES as u32 - 1, of, lane, start);
            let finisher = WarpFinisher {
                lane,
                room: rooms + warp * ROOM_BYTES,
                row: first_row + warp * ROWS_OF_WARP,
                col: first_col,
            };
            if p.epilogue.flags & flag::STORED != 0 {
                finisher.store(&sums, &p.epilogue, bias, map_out, place);
            } else {
                let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
                finisher.finish(&sums, finish, true, |_, _| 0.0);
            }
            index += thread::grid_dim_x();
        }
        tma::wait_stores_read::<0>();
    }
}
