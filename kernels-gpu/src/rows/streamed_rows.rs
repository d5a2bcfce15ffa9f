//! Rows of any length, a block each: read once for the statistic, and once more to write. The second reading comes
//! from L2 as far as the rows in flight fit there.

use super::held::Held;
use super::row::Row;
use super::statistic::Statistic;
use super::{Operands, Params, RowOp};
use cuda_std::prelude::*;

/// # Safety
/// The operands match `p`; the grid has one block of `LANES` threads, whole warps, a row.
#[inline(always)]
pub(crate) unsafe fn run<T: Float, Op: RowOp<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
) {
    let thread = thread::thread_idx_x();
    let row = Row::new::<T>(p, thread::block_idx_x());
    // The loose elements come with the first packs, and the numbers of later ones are beyond them.
    let step = (LANES * PACKS) as u32;
    // SAFETY: the caller's contract.
    unsafe {
        let known = Op::begin(operands, row.number);
        let mut mine = Op::Statistic::EMPTY;
        let mut first = 0;
        // A row without packs has loose elements.
        while first == 0 || first < row.packs {
            let held = Held::<T, LANES, PACKS>::load::<Op>(operands, p, row, first + thread);
            let held = if const { Op::WEIGHS } {
                held.with_vectors(operands, 0..Op::VECTORS, 0..PACKS)
            } else {
                held
            };
            let held = if const { Op::JOINS } { held.join::<Op>(operands, false, 0..PACKS) } else { held };
            mine = mine.with(Op::statistic(known, &held));
            first += step;
        }
        let statistic = mine.over_block::<LANES>(0);
        let total = Op::finish(operands, p, row.number, thread == 0, known, statistic);
        let mut first = 0;
        while first == 0 || first < row.packs {
            let held = Held::<T, LANES, PACKS>::load::<Op>(operands, p, row, first + thread).with_vectors(
                operands,
                0..Op::VECTORS,
                0..PACKS,
            );
            let held = if const { Op::JOINS } { held.join::<Op>(operands, true, 0..PACKS) } else { held };
            held.store::<Op>(operands.y, total, 0..PACKS);
            first += step;
        }
    }
}
