//! f32 products on Hopper's tensor cores, which multiply bf16: each number is a sum of three of these, which
//! [`part_numbers()`](fn@super::part_numbers) makes.
//!
//! Of x = h + m + l and x′ = h′ + m′ + l′ the products l·h′, h·l′, m·m′, m·h′, h·m′ and h·h′ are added up, in this order.
//! What is left out is at most 2^-25 of x·x′: half of what rounding x·x′ to f32 costs.
//!
//! Tensor cores cut off the bits of a sum that do not fit, always towards zero, which would add up over k: so they add up the
//! [`PIPELINED_DEPTH`] terms of a stage, and these sums are added by additions that round.
//!
//! NaN, infinities, and numbers that round to infinity leave NaN in all sums that they are in: a warp that finds sums that are
//! not finite computes these again, one by one, by ordinary f32 operations on the operands themselves.
//!
//! As in [`pipelined()`](fn@super::pipelined) a producer fills `STAGES` stages, by the accelerator, with all parts of both operands' tiles, and
//! `CONSUMERS` warpgroups multiply 64 rows of 2·`SUMS` columns each. A part comes once for the products that it is in, up to three.
//!
//! Floor: 2·m·n·k operations at a sixth of the rate of bf16.
//!
//! Launch: 1-D grid of at most as many blocks as fit at once, for the total of [`Blocks`](super::Blocks);
//! [`parted_shared_bytes`] of dynamic shared memory. It may be early.
//!
//! Source: Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations, 2019.

use super::epilogue::{Finish, Tensors, flag};
use super::f32_consumer::{ROOM_BYTES, ROWS_OF_WARP, WARPS, WarpFinisher};
use super::part::{PIPELINED_DEPTH, Part, multiply};
use super::parts::PARTS;
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use super::{Matrix, Product};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::float::fma;
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup;

/// Registers of a producer's thread and of a consumer's.
const FEW_REGISTERS: u32 = 32;
const REGISTERS: u32 = 232;

/// Bytes of shared memory of an instance with so many consumers and columns.
pub const fn parted_shared_bytes(consumers: u32, cols: u32, stages: u32) -> u32 {
    let stage = PARTS as u32 * (consumers * ROWS + cols) * PIPELINED_DEPTH * 2;
    stages * stage + consumers * WARPS * ROOM_BYTES + stages * Ring::<1>::BYTES
}

/// Multiplies. `A_K` and `B_K` are 1 where the parts' columns are neighbours in memory, 0 where their rows are.
///
/// # Safety
/// The tensors have the matrices of `p`, the maps their parts, one behind the other for each of the batch's outer dimension, with the boxes of
/// this instance; there is one of the result where `p` says [`flag::STORED`], with splits along the outer dimension, if it has not both;
/// there is at least one term; the grid is as the module says, with its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    instances = [
        { CONSUMERS: 2, SUMS: 64, STAGES: 2, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 2, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 2, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 2, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 2, A_K: 1, B_K: 1; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 2, A_K: 1, B_K: 0; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 2, A_K: 0, B_K: 1; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 2, A_K: 0, B_K: 0; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn parted<
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    let (rows, cols) = (CONSUMERS as u32 * ROWS, 2 * SUMS as u32);
    let part_a = Part::<A_K>::new(rows, p.a);
    let part_b = Part::<B_K>::new(cols, p.b);
    let all_of_a = PARTS as u32 * part_a.bytes();
    let stage_bytes = all_of_a + PARTS as u32 * part_b.bytes();
    let rooms = STAGES as u32 * stage_bytes;
    // Known to be the same in all lanes.
    let warp_id = || warp::warp_shuffle_idx(u32::MAX, thread::thread_idx_x() / 32, 0, 32).0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read
    // between the ends of *full* and of the next phase of *empty*.
    unsafe {
        let ring = Ring::<STAGES>::dynamic(rooms + CONSUMERS as u32 * WARPS * ROOM_BYTES);
        let tile_a = |stage: u32, part: u32| part_a.tile::<bf16>(stage * stage_bytes + part * part_a.bytes());
        let tile_b = |stage: u32, part: u32| {
            part_b.tile::<bf16>(stage * stage_bytes + all_of_a + part * part_b.bytes())
        };
        if thread::thread_idx_x() == 0 {
            ring.init(1, CONSUMERS as u32 * WARPS);
            map_a.prefetch();
            map_b.prefetch();
        }
        tile::expect_slabs();
        thread::sync_threads();
        dependent::wait();
        dependent::allow_next();
        if warp_id() / WARPS == CONSUMERS as u32 {
            if const { CONSUMERS == 2 } {
                warpgroup::shrink_registers::<FEW_REGISTERS>();
            }
            if thread::thread_idx_x() == CONSUMERS as u32 * WARPS * 32 {
                let mut turn = Turn::<STAGES>::first();
                let mut index = thread::block_idx_x();
                while index < p.blocks.total {
                    let place = p.blocks.at(index);
                    let (mut k, end) = p.terms(place.split);
                    let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
                    while k < end {
                        // At first the phase before the first one is over.
                        let (stage, full) = (turn.stage(), ring.full(turn.stage()));
                        ring.empty(stage).wait(turn.parity() ^ 1);
                        full.arrive_expecting(stage_bytes);
                        for part in 0..PARTS as u32 {
                            let of = (PARTS as u32, part);
                            part_a.load_part(map_a, tile_a(stage, part), first_row, k, place, of, full);
                            part_b.load_part(map_b, tile_b(stage, part), first_col, k, place, of, full);
                        }
                        turn = turn.next();
                        k += PIPELINED_DEPTH;
                    }
                    index += thread::grid_dim_x();
                }
            }
            return;
        }
        if const { CONSUMERS == 2 } {
            warpgroup::grow_registers::<REGISTERS>();
        }
        let (warp, lane) = (warp_id(), warp::lane_id());
        let group = warp / WARPS;
        let mut turn = Turn::<STAGES>::first();
        let mut index = thread::block_idx_x();
        let mut of_stage = [0.0f32; SUMS];
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (first, end) = p.terms(place.split);
            let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
            let mut sums = [0.0f32; SUMS];
            let mut k = first;
            while k < end {
                let stage = turn.stage();
                ring.full(stage).wait(turn.parity());
                // Parts that are 2^-8 of each other: the products of the smallest first.
                for back in 0..PARTS {
                    let level = PARTS - 1 - back;
                    for i in 0..PARTS {
                        if i <= level {
                            let of_a = part_a.operand(tile_a(stage, (level - i) as u32), group * ROWS);
                            let of_b = part_b.operand(tile_b(stage, i as u32), 0);
                            multiply::<bf16, SUMS, A_K, B_K>(&mut of_stage, of_a, of_b, back > 0 || i > 0);
                        }
                    }
                }
                warpgroup::finish(&mut of_stage);
                ring.empty(stage).arrive_if(lane == 0);
                for i in 0..SUMS {
                    sums[i] += of_stage[i];
                }
                turn = turn.next();
                k += PIPELINED_DEPTH;
            }
            let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
            let again = Again {
                a: a.offset(place.of(p.a)),
                b: b.offset(place.of(p.b)),
                of_a: p.a,
                of_b: p.b,
                first,
                end,
            };
            let finisher = WarpFinisher {
                lane,
                room: rooms + warp * ROOM_BYTES,
                row: first_row + warp * ROWS_OF_WARP,
                col: first_col,
            };
            // 0, or NaN where a sum is not finite.
            let mut finite = 0.0;
            for i in 0..SUMS {
                finite = fma(sums[i], 0.0, finite);
            }
            let finite = !warp::warp_vote_any(u32::MAX, finite != 0.0);
            if finite && p.epilogue.flags & flag::STORED != 0 {
                finisher.store(&sums, &p.epilogue, bias, map_out, place);
            } else {
                finisher.finish(&sums, finish, finite, |row, col| again.sum(row, col));
            }
            index += thread::grid_dim_x();
        }
        tma::wait_stores_read::<0>();
    }
}

/// What sums are computed of again, one by one.
#[derive(Clone, Copy)]
struct Again {
    a: Global<f32>,
    b: Global<f32>,
    of_a: Matrix,
    of_b: Matrix,
    /// Where the terms begin and end.
    first: u32,
    end: u32,
}

impl Again {
    /// The sum of (row, col), in the order of the terms.
    ///
    /// # Safety
    /// The operands have the row, the column and the terms.
    #[inline(always)]
    unsafe fn sum(&self, row: u32, col: u32) -> f32 {
        let at = |matrix: Matrix, line: u32, term: u32| {
            (line as i64 * matrix.row + term as i64 * matrix.col) as usize
        };
        let (mut sum, mut term) = (0.0f32, bits::opaque(self.first));
        // What is NaN stays NaN.
        while term < self.end && !sum.is_nan() {
            // SAFETY: the caller's contract.
            sum = unsafe {
                fma(self.a.get(at(self.of_a, row, term)), self.b.get(at(self.of_b, col, term)), sum)
            };
            term += 1;
        }
        sum
    }
}
