//! f32 products on Hopper's tensor cores, which multiply f16: each number, divided by its row's [scale](super::Scales), is a sum of two of
//! these, h + 2^-11·l, which [`part_rows()`](fn@super::part_rows) or [`part_columns()`](fn@super::part_columns) makes.
//!
//! Of x = h + 2^-11·l and x′ = h′ + 2^-11·l′ the products h·h′, and 2^-11 times h·l′ and l·h′, are added up. What is left out, and what parts are off by, are
//! 2^-22 of x·x′ each at most, either way.
//!
//! Tensor cores cut off the bits of a sum that do not fit, always towards zero, which would add up over k: so they add up the
//! [`PIPELINED_DEPTH`] terms of h·h′ of a stage, and these sums are added by additions that round. The small products stay with them for all of k.
//!
//! Sums of what is not finite are NaN or infinite, and those that are not sure by their rows' scales become NaN: a warp that finds such
//! sums computes these again, one by one, by ordinary f32 operations on the operands themselves, in the order of the terms.
//!
//! As in [`pipelined()`](fn@super::pipelined) a producer fills `STAGES` stages, by the accelerator, with both parts of both operands' tiles, and
//! `CONSUMERS` warpgroups multiply 64 rows of 2·`SUMS` columns each. A part comes once for the products that it is in, two or one.
//!
//! Floor: 2·m·n·k operations at a third of the rate of f16.
//!
//! Launch: 1-D grid of at most as many blocks as fit at once, for the total of [`Blocks`](super::Blocks);
//! [`parted_shared_bytes`] of dynamic shared memory. It may be early.
//!
//! Source: Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance, 2022. Scales by rows and
//! what is done about faint numbers are ours.

use super::epilogue::flag;
use super::f32_consumer::{ROOM_BYTES, WarpFinisher};
use super::finish::{Finish, Tensors};
use super::part::{PIPELINED_DEPTH, Part, multiply};
use super::parts::{MAGNIFIED, PARTS};
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use super::scale::{Scale, Scales};
use super::staged::{ROWS as ROWS_OF_WARP, WARPS};
use super::{Matrix, Product};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::float::fma;
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup;

/// Columns of a tile.
const COLS: usize = 128;
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
/// this instance; their scales are where `of_a` and `of_b` say; there is one of the result where `p` says [`flag::STORED`], with splits along the outer dimension, if it has not both;
/// there is at least one term; the grid is as the module says, with its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    instances = [
        { CONSUMERS: 2, SUMS: 64, STAGES: 3, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 3, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 3, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 3, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 4, A_K: 1, B_K: 1; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 4, A_K: 1, B_K: 0; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 4, A_K: 0, B_K: 1; threads: 256, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 64, STAGES: 4, A_K: 0, B_K: 0; threads: 256, min_blocks: 1 },
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
    scales_a: Global<u32>,
    scales_b: Global<u32>,
    of_a: Scales,
    of_b: Scales,
    p: Product,
) {
    const { assert!(2 * SUMS == COLS) };
    let (rows, cols) = (CONSUMERS as u32 * ROWS, COLS as u32);
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
        let tile_a = |stage: u32, part: u32| part_a.tile::<f16>(stage * stage_bytes + part * part_a.bytes());
        let tile_b = |stage: u32, part: u32| {
            part_b.tile::<f16>(stage * stage_bytes + all_of_a + part * part_b.bytes())
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
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (first, end) = p.terms(place.split);
            let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
            // On their way during the products.
            let row = first_row + warp * ROWS_OF_WARP + lane % ROWS_OF_WARP;
            let (at_a, at_b) = (of_a.of(place), of_b.of(place));
            let word_of_row = scales_a.get_4_if(row < p.epilogue.m, (at_a + row as i64) as usize, 0);
            let mut words_of_cols = [0; COLS / 32];
            for i in 0..COLS / 32 {
                let col = first_col + 32 * i as u32 + lane;
                words_of_cols[i] = scales_b.get_4_if(col < p.epilogue.n, (at_b + col as i64) as usize, 0);
            }
            // Begun with zeros, so that none is kept in registers while the tile before is finished.
            let (mut of_stage, mut small) = ([0.0f32; SUMS], [0.0f32; SUMS]);
            let mut sums = [0.0f32; SUMS];
            let mut k = first;
            while k < end {
                let stage = turn.stage();
                ring.full(stage).wait(turn.parity());
                let [head_a, rest_a] = [0, 1].map(|part| part_a.operand(tile_a(stage, part), group * ROWS));
                let [head_b, rest_b] = [0, 1].map(|part| part_b.operand(tile_b(stage, part), 0));
                multiply::<f16, SUMS, A_K, B_K>(&mut small, head_a, rest_b, k > first);
                multiply::<f16, SUMS, A_K, B_K>(&mut small, rest_a, head_b, true);
                multiply::<f16, SUMS, A_K, B_K>(&mut of_stage, head_a, head_b, false);
                warpgroup::finish(&mut of_stage);
                ring.empty(stage).arrive_if(lane == 0);
                for i in 0..SUMS {
                    sums[i] += of_stage[i];
                }
                turn = turn.next();
                k += PIPELINED_DEPTH;
            }
            warpgroup::finish(&mut small);
            let word_of =
                |words: u32, lane: u32| Scale::of_word(warp::warp_shuffle_idx(u32::MAX, words, lane, 32).0);
            let of_rows = [word_of(word_of_row, lane / 4), word_of(word_of_row, lane / 4 + 8)];
            for eight in 0..SUMS / 4 {
                let from = eight as u32 % 4 * 8 + lane % 4 * 2;
                let of_cols = [0, 1].map(|j| word_of(words_of_cols[eight / 4], from + j));
                for half in 0..2 {
                    for j in 0..2 {
                        let i = eight * 4 + half * 2 + j;
                        let sum = fma(small[i], 1.0 / MAGNIFIED, sums[i]);
                        sums[i] = of_rows[half].undo(of_cols[j], sum);
                    }
                }
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

/// Terms of a lane that are on their way at a time, where a sum is computed again. Those beyond the last are zeros.
const TERMS_AT_A_TIME: usize = 4;

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
    /// The sum of (row, col), in the order of the terms, of which each lane reads every 32nd. All lanes call.
    ///
    /// # Safety
    /// The operands have the row, the column and the terms.
    #[inline(always)]
    unsafe fn sum(&self, row: u32, col: u32) -> f32 {
        let at = |matrix: Matrix, line: u32, term: u32| {
            (line as i64 * matrix.row + term as i64 * matrix.col) as usize
        };
        // Not to be unrolled: the code is long as it is.
        let (mut sum, mut first, lanes) = (0.0f32, bits::opaque(self.first), bits::opaque(32));
        // What is NaN stays NaN.
        while first < self.end && !sum.is_nan() {
            let mut factors = [[0.0f32; 2]; TERMS_AT_A_TIME];
            for i in 0..TERMS_AT_A_TIME {
                let term = first + i as u32 * 32 + warp::lane_id();
                if term < self.end {
                    // SAFETY: the caller's contract.
                    factors[i] = unsafe {
                        [self.a.get(at(self.of_a, row, term)), self.b.get(at(self.of_b, col, term))]
                    };
                }
            }
            for i in 0..TERMS_AT_A_TIME {
                let mut lane = 0;
                while lane < lanes {
                    let [a, b] =
                        factors[i].map(|factor| warp::warp_shuffle_idx(u32::MAX, factor, lane, 32).0);
                    sum = fma(a, b, sum);
                    lane += 1;
                }
            }
            first += TERMS_AT_A_TIME as u32 * 32;
        }
        sum
    }
}
