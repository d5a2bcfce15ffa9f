//! Rows held in the registers of a thread-block cluster (sm_90a): read once, written once.
//!
//! Each block takes a slice of the row, the first of them the loose elements too; the warps of all blocks exchange their
//! statistics through distributed shared memory.

use super::held::Held;
use super::row::Row;
use super::statistic::Statistic;
use super::{Operands, Params, RowOp};
use crate::exchange::Exchange;
use cuda_std::bits;
use cuda_std::prelude::*;

/// How many of the vectors are in flight from the start. A second one would take the registers of a fourth block of a multiprocessor,
/// without which too few rows are on their way: its first half comes while the blocks exchange their statistics, the other behind
/// them. Where inputs are joined these are twice the bytes.
const fn early_vectors<T: Float, Op: RowOp<T>>() -> usize {
    if Op::JOINS || Op::WEIGHS || Op::VECTORS < 2 { Op::VECTORS } else { 1 }
}

/// # Safety
/// The operands match `p`, whose rows have at most `LANES·PACKS` whole packs for each block of a cluster; the grid has one
/// cluster a row.
#[inline(always)]
pub(crate) unsafe fn run<T: Float, Op: RowOp<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
) {
    let (rank, thread) = (cluster::rank(), thread::thread_idx_x());
    let row = Row::new::<T>(p, cluster::index());
    let first = rank * (LANES * PACKS) as u32 + thread;
    // SAFETY: the caller's contract. Slices have more packs than a row has loose elements.
    unsafe {
        let exchange = Exchange::<LANES, 3>::begin();
        let held = Held::<T, LANES, PACKS>::load::<Op>(operands, p, row, first);
        let known = Op::begin(operands, row.number);
        let early = const { early_vectors::<T, Op>() };
        let held = held.with_vectors(operands, 0..early, 0..PACKS);
        let held = if const { Op::JOINS } { held.join::<Op>(operands, true, 0..PACKS) } else { held };
        let held = if early < Op::VECTORS {
            held.with_vectors(operands, early..Op::VECTORS, 0..PACKS / 2)
        } else {
            held
        };
        let mine = Op::statistic(known, &held).over_lanes::<32>();
        let statistic = exchange
            .agree(mine.words(), Op::Statistic::EMPTY, |total, words| {
                total.with(Op::Statistic::from_words(words))
            })
            .over_lanes::<32>();
        // Where the results go is worked out once more: what it takes to remember is needed for the row.
        let held = held.of(Row::new::<T>(p, bits::opaque(cluster::index())));
        let leader = rank == 0 && thread == 0;
        let total = Op::finish(operands, p, row.number, leader, known, statistic);
        if early == Op::VECTORS {
            held.store::<Op>(operands.y, total, 0..PACKS);
        } else {
            let held = held.with_vectors(operands, early..Op::VECTORS, PACKS / 2..PACKS);
            held.store::<Op>(operands.y, total, 0..PACKS / 2);
            held.store::<Op>(operands.y, total, PACKS / 2..PACKS);
        }
    }
}
