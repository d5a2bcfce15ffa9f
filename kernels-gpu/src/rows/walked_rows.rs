//! Rows one after another, by blocks that stay: what is the same for all rows is read once, and the next rows are on their way
//! to shared memory while one is computed.
//!
//! A block walks every n-th row, n the number of blocks; rows of at most 32 threads side by side. A thread has the same columns
//! of every row: the vectors stay in its registers, and so do the sums along columns, of operations that have them. These come
//! as a row of f32 for each block, which `column_sums` adds up: no atomics, and an order that the launch alone determines.

use super::staged::{Of, Share, Staged, pitch, result_place};
use super::statistic::Statistic;
use super::{MAX_INPUTS, Operands, Params, RowOp};
use core::marker::PhantomData;
use cuda_std::async_copy;
use cuda_std::prelude::*;

/// Rows that a block takes side by side.
pub const fn side_by_side(lanes: usize, threads: u32) -> u32 {
    threads / lanes as u32
}

/// Bytes of dynamic shared memory of a block, for so many inputs that are there.
pub const fn walked_shared_bytes(
    [packed, lanes, packs, stages]: [usize; 4],
    threads: u32,
    inputs: usize,
) -> u32 {
    (side_by_side(lanes, threads) as usize * stages * inputs * pitch(packed, lanes, packs) * 16) as u32
}

/// # Safety
/// The operands match `p`: one dimension of rows, in every input, of at most `LANES·PACKS` packs. With `PACKED` rows are whole
/// aligned packs, and the vectors aligned; else rows lie one behind the other in all operands, the first aligned, and have
/// two packs' columns at least. The launch has [`walked_shared_bytes`]; `sums` a row for each block in as many matrices as
/// the operation has sums.
#[inline(always)]
pub(super) unsafe fn run<
    T: Float,
    Op: RowOp<T>,
    const PACKED: usize,
    const LANES: usize,
    const PACKS: usize,
    const STAGES: usize,
>(
    operands: &Operands<T>,
    sums_of_columns: GlobalMut<f32>,
    p: &Params,
) {
    let (thread, lanes) = (thread::thread_idx_x(), LANES as u32);
    let (lane, group, side_by_side) = if const { LANES > 32 } {
        (thread, 0, 1)
    } else {
        (thread % lanes, thread / lanes, thread::block_dim_x() / lanes)
    };
    let step = side_by_side * thread::grid_dim_x();
    let mut sums = [[[0.0; 8]; PACKS]; 2];
    let mut first = thread::block_idx_x() * side_by_side;
    // SAFETY: a block's threads go round the loop equally often. Slots are copied to again when all threads of their row have
    // done with them; packs are a thread's own.
    unsafe {
        let mut share = Share::<T, PACKED, LANES, PACKS> { p, lane, slots: Shared::dynamic(0, 0) };
        let inputs = if Op::INPUTS < 3 || share.is_given(2) { Op::INPUTS } else { 2 };
        let stage = (inputs * pitch(PACKED, LANES, PACKS) * T::PER_PACK) as u32;
        let base = group * STAGES as u32 * stage;
        share.slots = Shared::dynamic(0, side_by_side * STAGES as u32 * stage);
        for i in 0..STAGES as u32 {
            share.clear::<Op>(base + i * stage);
            share.fetch::<Op>(operands, first + i * step + group, base + i * stage);
            async_copy::commit();
        }
        let mut vectors = share.vectors::<Op>(operands);
        let last = p.rows - 1;
        let mut known = Op::begin(operands, (first + group).min(last));
        let (mut at, mut turn) = (base, 0);
        while first < p.rows {
            let number = first + group;
            let is_there = const { LANES > 32 } || number < p.rows;
            let row = if const { LANES > 32 } { number } else { number.min(last) };
            let next = Op::begin(operands, (number + step).min(last));
            match const { STAGES } {
                1 => async_copy::wait::<0>(),
                2 => async_copy::wait::<1>(),
                _ => async_copy::wait::<2>(),
            }
            meet::<PACKED, LANES>();
            renew(&mut vectors);
            let held = [[[0; 4]; PACKS]; MAX_INPUTS];
            let mut staged = Staged { share, operands, row, at, vectors, held };
            if is_there {
                staged.hold::<Op>();
                if const { Op::JOINS } {
                    staged.join::<Op>(operands);
                }
            }
            if const { Op::JOINS && PACKED == 0 } {
                meet::<PACKED, LANES>();
                if is_there {
                    staged.store(operands.joined, 0);
                }
            }
            let mut mine = Op::Statistic::EMPTY;
            if is_there {
                mine = Op::statistic(known, &Of(&staged, PhantomData::<Op>));
            }
            let statistic = if const { LANES > 32 } {
                mine.over_block::<LANES>(turn)
            } else {
                mine.over_lanes::<LANES>()
            };
            turn ^= 1;
            let total = Op::finish(operands, p, staged.row, lane == 0 && is_there, known, statistic);
            // Widened again rather than kept so over the barrier.
            renew(&mut staged.vectors);
            renew(&mut staged.held);
            vectors = staged.vectors;
            if is_there {
                staged.results::<Op>(operands, known, total, &mut sums);
            }
            meet::<PACKED, LANES>();
            if is_there {
                staged.store(operands.y, const { result_place::<T, Op>() });
            }
            meet::<PACKED, LANES>();
            share.fetch::<Op>(operands, number + STAGES as u32 * step, at);
            async_copy::commit();
            if const { STAGES > 1 } {
                at = if at == base + (STAGES as u32 - 1) * stage { base } else { at + stage };
            }
            first += step;
            known = next;
        }
        if const { Op::SUMS > 0 } {
            async_copy::wait::<0>();
            thread::sync_threads();
            for which in 0..Op::SUMS {
                let matrix = which as u64 * thread::grid_dim_x() as u64 + thread::block_idx_x() as u64;
                let row = sums_of_columns.offset((matrix * p.cols as u64) as i64);
                write(&share, row, sums[which]);
            }
        }
    }
}

/// Waits for the other threads of a row, where rows are not whole packs of one thread each.
#[inline(always)]
fn meet<const PACKED: usize, const LANES: usize>() {
    if const { PACKED == 1 } {
    } else if const { LANES > 32 } {
        thread::sync_threads();
    } else {
        warp::sync_warp(u32::MAX);
    }
}

/// Makes of packs the same, as the compilers do not know: what was made of them is not kept in registers.
#[inline(always)]
fn renew<const PACKS: usize, const K: usize>(packs: &mut [[Pack; PACKS]; K]) {
    for which in 0..K {
        for i in 0..PACKS {
            for word in 0..4 {
                packs[which][i][word] = cuda_std::bits::opaque(packs[which][i][word]);
            }
        }
    }
}

/// Adds up the sums of the rows side by side, in their order, and writes them.
///
/// # Safety
/// All threads of the block call, and none reads the slots any more.
#[inline(always)]
unsafe fn write<T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize>(
    share: &Share<T, PACKED, LANES, PACKS>,
    row: GlobalMut<f32>,
    mut sums: [[f32; 8]; PACKS],
) {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    // SAFETY: each thread has its own elements; those of the first row side by side write theirs. Two rows of two inputs are
    // room for a pack's elements as f32.
    unsafe {
        if const { LANES <= 32 } {
            let shared = Shared::<f32>::dynamic(0, (PACKS * T::PER_PACK) as u32 * threads);
            let of = |i: usize, e: usize| (i * T::PER_PACK + e) as u32 * threads;
            thread::sync_threads();
            for i in 0..PACKS {
                for e in 0..T::PER_PACK {
                    shared.set(of(i, e) + thread, sums[i][e]);
                }
            }
            thread::sync_threads();
            for i in 0..PACKS {
                for e in 0..T::PER_PACK {
                    let mut total = 0.0;
                    let mut other = share.lane;
                    while other < threads {
                        total += shared.get(of(i, e) + other);
                        other += LANES as u32;
                    }
                    sums[i][e] = total;
                }
            }
        }
        for i in 0..PACKS {
            if const { PACKED == 1 } {
                let column = share.column(i, 0);
                for four in 0..T::PER_PACK / 4 {
                    let mut pack = [0; 4];
                    for e in 0..4 {
                        pack[e] = sums[i][4 * four + e].to_bits();
                    }
                    let when = (thread < LANES as u32) & (column < share.p.cols);
                    row.set_pack_if(when, column as usize + 4 * four, pack);
                }
            } else {
                for e in 0..T::PER_PACK {
                    let column = share.column(i, e);
                    let when = (thread < LANES as u32) & (column < share.p.cols);
                    row.set_if(when, column as usize, sums[i][e]);
                }
            }
        }
    }
}
