//! Rows whose results are NaN.

use super::ending::Sink;
use super::{Operands, Params, bit_masks, locate::Row, mask_kind};
use cuda_std::prelude::*;

/// Overwrites a row whose sum is NaN: NaN at every kept column, 0 elsewhere. Reads the mask again, since
/// a masked column and a kept −∞ look the same in registers: one of bits, or of bytes.
///
/// # Safety
/// As [`locate`](super::locate::locate); the threads `thread` of `threads` of the row all call.
#[inline(always)]
pub(crate) unsafe fn store_nan_row<T: Float>(
    sink: impl Sink<T>,
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    thread: u32,
    threads: u32,
    of_bits: bool,
) {
    let mut column = row.first + thread as i32;
    while column < row.end {
        let mut kept = row.keeps(column);
        // SAFETY: the columns are the row's.
        unsafe {
            if of_bits {
                kept =
                    kept && (p.mask_kind != mask_kind::BITS || bit_masks::keeps(operands.mask, row, column));
            } else if kept && p.mask_kind == mask_kind::BYTES {
                let index = row.mask + column as i64 * p.mask_stride;
                kept = (operands.mask.get(index as usize) != 0) != (p.mask_invert != 0);
            }
            let value = T::from_f32(if kept { f32::NAN } else { 0.0 });
            sink.set((row.y + column as i64) as usize, value);
        }
        column += threads as i32;
    }
}
