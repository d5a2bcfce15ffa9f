//! Rows whose columns are not neighbours in memory, or whose operands are not aligned alike: a warp a row, element
//! by element. The cost: one load and one store instruction an element, twice read.

use super::held::{ELEMENTS, Held};
use super::row::Row;
use super::statistic::Statistic;
use super::{Operands, Params, RowOp};
use cuda_std::prelude::*;

/// Threads of a row.
const LANES: usize = 32;

/// # Safety
/// The operands match `p`, which must be ragged; the grid has a warp for each row.
#[inline(always)]
pub(crate) unsafe fn run<T: Float, Op: RowOp<T>>(operands: &Operands<T>, p: &Params) {
    let number = thread::block_idx_x() * (thread::block_dim_x() / warp::SIZE) + warp::warp_id();
    if number >= p.rows {
        return; // the whole warp leaves
    }
    let lane = warp::lane_id();
    let row = Row::of_elements(p, number);
    // SAFETY: the caller's contract.
    unsafe {
        let known = Op::begin(operands, number);
        let mut mine = Op::Statistic::EMPTY;
        let mut first = 0;
        while first < row.loose {
            let held = Held::<T, LANES, 0>::load::<Op>(operands, p, row, first + lane);
            let held =
                if const { Op::WEIGHS } { held.with_vectors(operands, 0..Op::VECTORS, 0..0) } else { held };
            let held = if const { Op::JOINS } { held.join::<Op>(operands, false, 0..0) } else { held };
            mine = mine.with(Op::statistic(known, &held));
            first += (ELEMENTS * LANES) as u32;
        }
        let statistic = mine.over_lanes::<32>();
        let total = Op::finish(operands, p, number, lane == 0, known, statistic);
        let mut first = 0;
        while first < row.loose {
            let held = Held::<T, LANES, 0>::load::<Op>(operands, p, row, first + lane).with_vectors(
                operands,
                0..Op::VECTORS,
                0..0,
            );
            let held = if const { Op::JOINS } { held.join::<Op>(operands, true, 0..0) } else { held };
            held.store::<Op>(operands.y, total, 0..0);
            first += (ELEMENTS * LANES) as u32;
        }
    }
}
