//! Rows whose columns are not neighbours in memory, or whose operands are not aligned alike: a warp a row,
//! element by element. The cost: one load and one store instruction an element, twice read.

use super::ending::{End, Ending, Share, Sink, Softmax};
use super::held::finite_or_zero;
use super::locate::{Row, locate};
use super::loose::Element;
use super::nan_row::store_nan_row;
use super::register_rows::Partial;
use super::wide_scores::Wide;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// Rows of any layout.
///
/// # Safety
/// The operands match `p`, which must not be ragged; the grid has a warp for each row.
#[kernel(family = "masked_softmax", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn strided<T: Float>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { stride::<T, _>(&operands, &p, &Softmax) }
}

/// # Safety
/// As [`strided()`](fn@strided), and the ending's.
#[inline(always)]
pub(super) unsafe fn stride<T: Float, E: Ending<T>>(operands: &Operands<T>, p: &Params, ending: &E) {
    let number = thread::block_idx_x() * (thread::block_dim_x() / warp::SIZE) + warp::warp_id();
    if number >= p.rows {
        return; // the whole warp leaves
    }
    let lane = warp::lane_id();
    // SAFETY: the caller's contract.
    unsafe {
        // All elements are loose.
        let (known, row) = ending.begin(p, number, Row { whole: 0, ..locate(operands, p, number) });
        let mut mine = Partial::EMPTY;
        let mut column = row.low + lane as i32;
        while column < row.high {
            let score = Element::<T, Wide>::read(true, operands, p, &row, column).score(p);
            let most = float::max_nan(mine.maximum, score);
            let maximum = finite_or_zero(most);
            let before = p.exponent.exp(mine.maximum - maximum);
            mine =
                Partial { maximum: most, sum: float::fma(mine.sum, before, p.exponent.exp(score - maximum)) };
            column += warp::SIZE as i32;
        }
        let total = mine.over_warp(p);
        let share = Share::of_row(&row, lane, warp::SIZE as usize);
        if E::is_nan(known, total.sum) {
            if ending.stores() {
                store_nan_row(ending.sink(operands), operands, p, &row, lane, warp::SIZE);
            }
            ending.finish(operands, p, known, &share, End::Nan);
            return;
        }
        let softmax = total.normaliser(total, p);
        if ending.stores() {
            let end = E::normaliser(known, softmax);
            let mut column = lane as i32;
            while column < row.end {
                let mut result = 0.0;
                if row.low <= column && column < row.high {
                    let score = Element::<T, Wide>::read(true, operands, p, &row, column).score(p);
                    result = p.exponent.exp(score - end.maximum) * end.inverse_sum;
                }
                let at = (row.y + column as i64) as usize;
                ending.sink(operands).set(true, at, T::from_f32(end.signed(result)));
                column += warp::SIZE as i32;
            }
        }
        ending.finish(operands, p, known, &share, End::Number(softmax));
    }
}
