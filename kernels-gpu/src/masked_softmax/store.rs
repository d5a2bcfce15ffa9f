//! Results on their way to y.

use super::{Operands, Params, locate::Row, mask_kind};
use cuda_std::prelude::*;

/// Writes the pack of results at window column `column`: whole where the row fills it, else the row's
/// elements alone.
///
/// # Safety
/// `row` came from `locate`, and y holds it.
#[inline(always)]
pub(crate) unsafe fn store<T: Float>(y: GlobalMut<T>, p: &Params, row: &Row, column: i32, pack: Pack) {
    let at = row.y + column as i64;
    let whole = row.first <= column && column + T::PER_PACK as i32 <= row.end;
    // SAFETY: the elements written are the row's.
    unsafe {
        y.set_pack_if(whole, at as usize, pack);
        if p.ragged != 0 && !whole && column < row.end {
            let from = (row.first - column).max(0);
            let to = (row.end - column).min(T::PER_PACK as i32);
            store_part(y, at as usize, pack, from as u32, to as u32);
        }
    }
}

/// Writes elements `from..to` of a pack: its end, its beginning, or some in between.
///
/// A beginning or an end of n elements goes out in one store for each binary digit of n, each aligned to
/// its size.
///
/// # Safety
/// y holds the elements, and `at` is a multiple of a pack.
#[inline(always)]
unsafe fn store_part<T: Float>(y: GlobalMut<T>, at: usize, pack: Pack, from: u32, to: u32) {
    let full = T::PER_PACK as u32;
    let is_end = to == full;
    let count = to - from;
    // SAFETY: the caller's contract.
    unsafe {
        if from != 0 && !is_end {
            for i in 0..T::PER_PACK {
                y.set_if((from <= i as u32) & ((i as u32) < to), at + i, T::element(pack, i));
            }
            return;
        }
        // Elements per word, so that digits count words first.
        let per_word = T::PER_WORD as u32;
        let words = count / per_word;
        let half = if is_end { [pack[2], pack[3]] } else { [pack[0], pack[1]] };
        let half_at = if is_end { 2 * T::PER_WORD } else { 0 };
        y.set_8_if(words & 2 != 0, at + half_at, half);
        // The odd word lies inside of the half that is written, or at the edge.
        let word = if is_end { 4 - words } else { words & 2 };
        let odd = if word >= 2 {
            if word == 3 { pack[3] } else { pack[2] }
        } else if word == 1 {
            pack[1]
        } else {
            pack[0]
        };
        y.set_4_if(words & 1 != 0, at + (word * per_word) as usize, odd);
        if const { T::PER_WORD == 2 } {
            // The odd element is the upper one of its word at an end, the lower one at a beginning.
            let word = if is_end { 3u32.wrapping_sub(words) } else { words };
            let mut value = pack[0];
            for i in 1..4 {
                value = if word == i as u32 { pack[i] } else { value };
            }
            let value = if is_end { value >> 16 } else { value };
            let element = if is_end { from } else { to.wrapping_sub(1) };
            y.set_if(count & 1 != 0, at + element as usize, T::from_bits(value & 0xffff));
        }
    }
}

/// Overwrites a row whose sum is NaN: NaN at every kept column, 0 elsewhere. Reads the mask again, since
/// a masked column and a kept −∞ look the same in registers.
///
/// # Safety
/// As [`Held::read_mask`]; the threads `thread` of `threads` of the row all call.
#[inline(always)]
pub(crate) unsafe fn store_nan_row<T: Float>(
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    thread: u32,
    threads: u32,
) {
    let mut column = row.first + thread as i32;
    while column < row.end {
        let mut kept = row.keeps(column);
        // SAFETY: the columns are the row's.
        unsafe {
            if kept && p.mask_kind == mask_kind::BYTES {
                let index = row.mask + row.first as i64 + (column - row.first) as i64 * p.mask_stride;
                kept = (operands.mask.get(index as usize) != 0) != (p.mask_invert != 0);
            }
            let value = T::from_f32(if kept { f32::NAN } else { 0.0 });
            operands.y.set((row.y + column as i64) as usize, value);
        }
        column += threads as i32;
    }
}
