//! Rows whose columns are not neighbours in memory, or whose operands are not aligned alike: a warp a row,
//! element by element. The cost: one load and one store instruction an element, twice read.

use super::ending::{End, Ending, Share, Sink, Softmax};
use super::held::finite_or_zero;
use super::locate::{Row, locate};
use super::nan_row::store_nan_row;
use super::register_rows::Partial;
use super::{Operands, Params, mask_kind};
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
        let (known, row) = ending.begin(p, number, locate(operands, p, number));
        let mut mine = Partial::EMPTY;
        let mut column = row.low + lane as i32;
        while column < row.high {
            let score = Element::<T>::read(operands, p, &row, column).score(p);
            let most = float::max_nan(mine.maximum, score);
            let maximum = finite_or_zero(most);
            let before = p.exponent.exp(mine.maximum - maximum);
            mine =
                Partial { maximum: most, sum: float::fma(mine.sum, before, p.exponent.exp(score - maximum)) };
            column += warp::SIZE as i32;
        }
        let total = mine.over_warp(p);
        let share = Share { unit: 1, ..Share::of_row::<T>(&row, lane, warp::SIZE as usize) };
        if E::is_nan(known, total.sum) {
            if ending.stores() {
                store_nan_row(ending.sink(operands), operands, p, &row, lane, warp::SIZE, false);
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
                if row.keeps(column) {
                    let score = Element::<T>::read(operands, p, &row, column).score(p);
                    result = p.exponent.exp(score - end.maximum) * end.inverse_sum;
                }
                let at = (row.y + column as i64) as usize;
                ending.sink(operands).set(at, T::from_f32(end.signed(result)));
                column += warp::SIZE as i32;
            }
        }
        ending.finish(operands, p, known, &share, End::Number(softmax));
    }
}

/// What is read of a column.
#[derive(Clone, Copy)]
struct Element<T> {
    x: T,
    /// The mask's byte, or the bits of the bias.
    mask: u32,
}

impl<T: Float> Element<T> {
    /// Reads a column.
    ///
    /// # Safety
    /// The operands match `p`, and `row` came from `locate`; the column is one of its own.
    #[inline(always)]
    unsafe fn read(operands: &Operands<T>, p: &Params, row: &Row, column: i32) -> Self {
        let at = (row.mask + column as i64 * p.mask_stride) as usize;
        // SAFETY: the caller's contract. Predicated loads of each kind rather than branches.
        unsafe {
            let x = operands.x.get((row.x + column as i64 * p.x_stride) as usize);
            let like_x = Global::<T>::from_raw(operands.mask.raw());
            let wide = Global::<f32>::from_raw(operands.mask.raw());
            let mask = operands.mask.get_bits_if(p.mask_kind == mask_kind::BYTES, at, 0);
            let mask = like_x.get_bits_if(p.mask_kind == mask_kind::BIAS, at, mask);
            let mask = wide.get_bits_if(p.mask_kind == mask_kind::BIAS_F32, at, mask);
            Element { x, mask }
        }
    }

    /// The scaled, biased score; −∞ where the mask drops it.
    #[inline(always)]
    fn score(self, p: &Params) -> f32 {
        let bias = match p.mask_kind {
            mask_kind::BIAS => T::from_bits(self.mask).to_f32(),
            mask_kind::BIAS_F32 => f32::from_bits(self.mask),
            _ => 0.0,
        };
        let drops = p.mask_kind == mask_kind::BYTES && (self.mask != 0) == (p.mask_invert != 0);
        if drops { f32::NEG_INFINITY } else { float::fma(self.x.to_f32(), p.scale, bias) }
    }
}
