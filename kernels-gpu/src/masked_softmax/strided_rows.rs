//! Rows whose columns are not neighbours in memory, or whose operands are not aligned alike: a warp a row,
//! element by element. The cost: one load and one store instruction an element, twice read.

use super::held::finite_or_zero;
use super::locate::{Row, locate};
use super::register_rows::Partial;
use super::store::store_nan_row;
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
    let number = thread::block_idx_x() * (thread::block_dim_x() / warp::SIZE) + warp::warp_id();
    if number >= p.rows {
        return; // the whole warp leaves
    }
    let lane = warp::lane_id();
    // SAFETY: the caller's contract.
    unsafe {
        let row = locate(&operands, &p, number);
        let mut mine = Partial::EMPTY;
        let mut column = row.low + lane as i32;
        while column < row.high {
            let score = score(&operands, &p, &row, column);
            let most = float::max_nan(mine.maximum, score);
            let maximum = finite_or_zero(most);
            let before = p.exponent.exp(mine.maximum - maximum);
            mine =
                Partial { maximum: most, sum: float::fma(mine.sum, before, p.exponent.exp(score - maximum)) };
            column += warp::SIZE as i32;
        }
        let total = mine.over_warp(&p);
        if total.sum.is_nan() {
            store_nan_row(&operands, &p, &row, lane, warp::SIZE);
            return;
        }
        let maximum = finite_or_zero(total.maximum);
        let scale = if total.sum == 0.0 { 0.0 } else { float::rcp(total.sum) };
        let mut column = lane as i32;
        while column < row.end {
            let mut result = 0.0;
            if row.low <= column && column < row.high {
                let score = score(&operands, &p, &row, column);
                result = p.exponent.exp(score - maximum) * scale;
            }
            operands.y.set((row.y + column as i64) as usize, T::from_f32(result));
            column += warp::SIZE as i32;
        }
    }
}

/// The scaled, biased score of a column in range; −∞ where the mask drops it.
#[inline(always)]
unsafe fn score<T: Float>(operands: &Operands<T>, p: &Params, row: &Row, column: i32) -> f32 {
    let at = (row.mask + column as i64 * p.mask_stride) as usize;
    // SAFETY: the column is the row's.
    unsafe {
        let drops = p.mask_kind == mask_kind::BYTES && (operands.mask.get(at) != 0) == (p.mask_invert != 0);
        if drops {
            return f32::NEG_INFINITY;
        }
        let bias = match p.mask_kind {
            mask_kind::BIAS => Global::<T>::from_raw(operands.mask.raw()).get(at).to_f32(),
            mask_kind::BIAS_F32 => Global::<f32>::from_raw(operands.mask.raw()).get(at),
            _ => 0.0,
        };
        let x = operands.x.get((row.x + column as i64 * p.x_stride) as usize).to_f32();
        float::fma(x, p.scale, bias)
    }
}
