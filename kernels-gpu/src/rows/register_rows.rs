//! Rows that fit in registers: read once, written once.
//!
//! Short rows take a part of a warp (`LANES` ≤ 32), longer ones a block of `LANES` threads, whose warps meet once.

use super::held::Held;
use super::row::Row;
use super::statistic::Statistic;
use super::{Operands, Params, RowOp};
use cuda_std::prelude::*;

/// Rows that one block takes.
pub const fn rows_per_block(lanes: usize, threads: u32) -> u32 {
    if lanes > 32 { 1 } else { threads / lanes as u32 }
}

/// How many of the vectors are in flight while the statistic is taken: as many as there are registers for, where several blocks
/// share a multiprocessor. The others are read in halves when it is known.
const fn early_vectors<T: Float, Op: RowOp<T>>(lanes: usize) -> usize {
    if lanes < 512 || Op::WEIGHS {
        Op::VECTORS
    } else if Op::JOINS {
        if lanes < 1024 { Op::VECTORS } else { 0 }
    } else if Op::VECTORS > 0 {
        1
    } else {
        0
    }
}

/// # Safety
/// The operands match `p`, whose rows have at most `LANES·PACKS` whole packs; the grid covers the rows.
#[inline(always)]
pub(crate) unsafe fn run<T: Float, Op: RowOp<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
) {
    let lanes = LANES as u32;
    let (number, lane) = if const { LANES > 32 } {
        (thread::block_idx_x(), thread::thread_idx_x())
    } else {
        let per_block = thread::block_dim_x() / lanes;
        (thread::block_idx_x() * per_block + thread::thread_idx_x() / lanes, thread::thread_idx_x() % lanes)
    };
    let row = Row::new::<T>(p, number);
    // SAFETY: the caller's contract.
    unsafe {
        let held = Held::<T, LANES, PACKS>::load::<Op>(operands, p, row, lane);
        let known = Op::begin(operands, row.number);
        let early = const { early_vectors::<T, Op>(LANES) };
        let held = held.with_vectors(operands, 0..early, 0..PACKS);
        let held = match const { (Op::JOINS, LANES < 1024) } {
            (false, _) => held,
            (true, true) => held.join::<Op>(operands, true, 0..PACKS),
            (true, false) => {
                let held = held.join::<Op>(operands, true, 0..PACKS / 2);
                held.join::<Op>(operands, true, PACKS / 2..PACKS)
            }
        };
        let mine = Op::statistic(known, &held);
        let statistic =
            if const { LANES > 32 } { mine.over_block::<LANES>(0) } else { mine.over_lanes::<LANES>() };
        let leader = lane == 0 && number < p.rows;
        let total = Op::finish(operands, p, row.number, leader, known, statistic);
        if early == Op::VECTORS {
            held.store::<Op>(operands.y, total, 0..PACKS);
        } else {
            let held = held.with_vectors(operands, early..Op::VECTORS, 0..PACKS / 2);
            held.store::<Op>(operands.y, total, 0..PACKS / 2);
            let held = held.with_vectors(operands, early..Op::VECTORS, PACKS / 2..PACKS);
            held.store::<Op>(operands.y, total, PACKS / 2..PACKS);
        }
    }
}
