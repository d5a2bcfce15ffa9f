//! Masks of bytes as a bit a column.
//!
//! Rows that wait in shared memory in part leave few registers for masks, and where a mask's rows begin at any byte each pack's mask is
//! put together from two loads and eight registers. As bits it is one or two words wherever it begins, and a mask that is broadcast over
//! the heads comes from memory once.
//!
//! A row of the mask is [`words_of_row`] words: one of zeros, columns from the lowest bit of the next on, and zeros behind them, one
//! word at least. Packs that cover the row reach into these.
//!
//! Floor: each byte once, and an eighth of it written.

use super::Params;
use super::held::column;
use super::locate::{Row, indices};
use cuda_std::bits;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Columns of a word.
const COLUMNS: u32 = 32;

/// The bit of a row of the mask at which its column 0 is.
pub const FIRST_BIT: u32 = COLUMNS;

/// Words of a row of the mask.
pub const fn words_of_row(cols: u32) -> u32 {
    cols.div_ceil(COLUMNS) + 2
}

/// Turns the rows of `p`, which are the mask's own, into bits, set where a column is kept.
///
/// # Safety
/// The mask matches `p`, and lies densely along columns from a multiple of 16 bytes on. `bits` has `words` words for each row, fewer
/// than 2^31 together; the grid covers them.
#[kernel(family = "masked_softmax", instances = [{ ; threads: 256 }])]
pub unsafe fn mask_bits(mask: Global<u8>, bits: GlobalMut<u32>, words: Divisor, p: Params) {
    let number = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    if number >= p.rows * words.value() {
        return;
    }
    let (row, word) = words.div_rem(number);
    let column = (word * COLUMNS).wrapping_sub(FIRST_BIT) as i32;
    let columns = (p.cols as i32 - column).min(COLUMNS as i32);
    let mut kept = 0;
    if column >= 0 && columns > 0 {
        // SAFETY: the columns are the row's.
        let set = unsafe { nonzero(mask, &p, indices(&p, row).mask + column as i64, columns) };
        kept = (set ^ p.mask_invert) & u32::MAX >> (COLUMNS as i32 - columns);
    }
    // SAFETY: each thread has its own word.
    unsafe { bits.set(number as usize, kept) };
}

/// Which of `count` bytes from `at` on are not 0; behind them any bits. At least one, and 32 at most.
///
/// # Safety
/// The mask has the bytes.
#[inline(always)]
unsafe fn nonzero(mask: Global<u8>, p: &Params, at: i64, count: i32) -> u32 {
    const BYTES: i64 = 16;
    let skew = at & (BYTES - 1);
    let end = at + count as i64;
    let mut set = 0u64;
    for pack in 0..3 {
        let from = at - skew + pack * BYTES;
        let whole = from + BYTES <= p.mask_len;
        let mut of_pack = 0;
        // SAFETY: whole packs are inside the mask, and so are the bytes.
        unsafe {
            let bytes = mask.get_pack_if(from < end && whole, from as usize, 0);
            for word in 0..4 {
                of_pack |= bits::of_bytes(bits::nonzero_bytes(bytes[word])) << (4 * word);
            }
            if from < end && !whole {
                // The last pack of the mask.
                let mut byte = 0;
                while from + (byte as i64) < end {
                    bits::no_unroll();
                    let is_set = from + byte as i64 >= at && mask.get((from + byte as i64) as usize) != 0;
                    of_pack |= (is_set as u32) << byte;
                    byte += 1;
                }
            }
        }
        set |= (of_pack as u64) << (pack * BYTES);
    }
    (set >> skew) as u32
}

/// The bits of packs `LANES` apart, the first at pack `first`, each from the lowest bit of a word on; those behind it are others'.
///
/// # Safety
/// As [`Held::read_mask`](super::held::Held::read_mask), with the mask's bits for the mask.
#[inline(always)]
pub(super) unsafe fn read<T: Float, const LANES: usize, const PACKS: usize>(
    mask: Global<u8>,
    row: &Row,
    first: u32,
) -> [[u32; 2]; PACKS] {
    let step = const { LANES * T::PER_PACK / COLUMNS as usize };
    debug_assert!(
        step * COLUMNS as usize == LANES * T::PER_PACK,
        "all packs of a thread begin at the same bit"
    );
    let column = |i: usize| column::<T, LANES>(first, i);
    let at = row.mask + column(0) as i64;
    let (word, shift) = ((at >> 5) as usize, at as u32 % COLUMNS);
    let is_in_two = shift + T::PER_PACK as u32 > COLUMNS;
    let mut masks = [[0; 2]; PACKS];
    for i in 0..PACKS {
        let (when, word) = (row.keeps_some::<T>(column(i)), word + i * step);
        // SAFETY: the mask has a word on both sides of a row's columns.
        unsafe {
            let words = Global::<u32>::from_raw(mask.raw());
            let (low, high) =
                (words.get_bits_if(when, word, 0), words.get_bits_if(when & is_in_two, word + 1, 0));
            masks[i][0] = bits::funnel_right(low, high, shift);
        }
    }
    masks
}

/// Whether a column is kept.
///
/// # Safety
/// The column is the row's.
#[inline(always)]
pub(super) unsafe fn keeps(mask: Global<u8>, row: &Row, column: i32) -> bool {
    let at = row.mask + column as i64;
    // SAFETY: the caller's contract.
    let word = unsafe { Global::<u32>::from_raw(mask.raw()).get((at >> 5) as usize) };
    word >> (at as u32 % COLUMNS) & 1 != 0
}
