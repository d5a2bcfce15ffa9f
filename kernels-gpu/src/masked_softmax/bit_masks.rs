//! Masks of bytes as a bit a column.
//!
//! Rows that wait in shared memory in part leave few registers for masks, and where a mask's rows begin at any byte each pack's mask is
//! put together from two loads and eight registers. As bits it is one or two words wherever it begins, and a mask that is broadcast over
//! the heads comes from memory once.
//!
//! A row of the mask is [`words_of_row`] words: zeros, then columns, of which column 0 is the bit of the second word whose number is that
//! of the column's byte modulo 32, and zeros behind them, a word at least. A word is two packs of the mask then, and whatever covers a
//! row in packs reaches into these words.
//!
//! Floor: each byte once, and an eighth of it written.

use super::Params;
use super::held::column;
use super::locate::{Row, indices};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Columns of a word.
pub const COLUMNS: u32 = 32;

/// Words of a row of the mask, wherever it begins.
pub const fn words_of_row(cols: u32) -> u32 {
    (cols + COLUMNS - 1).div_ceil(COLUMNS) + 2
}

/// Turns the rows of `p`, which are the mask's own, into bits, set where a column is kept; `p` has the places of bits for those in x.
///
/// # Safety
/// The mask matches `p`, and lies densely along columns from a multiple of 16 bytes on. The places of a row's column 0 in the mask and
/// in `bits` are the same modulo 32, and `bits` has `words` words for each row alone, from the one before that column's on; these are
/// fewer than 2^31 together, and the grid covers them.
#[kernel(family = "masked_softmax", instances = [{ ; threads: 256 }])]
pub unsafe fn mask_bits(mask: Global<u8>, bits: GlobalMut<u32>, words: Divisor, p: Params) {
    // Rows come next, and their blocks find room as soon as those of this launch are done.
    dependent::begin();
    let number = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    if number >= p.rows * words.value() {
        return;
    }
    let (row, word) = words.div_rem(number);
    let at = indices(&p, row);
    // Of the word's first byte.
    let skew = at.mask as u32 % COLUMNS;
    let first = (word * COLUMNS).wrapping_sub(COLUMNS + skew) as i32;
    let (before, kept) = ((-first).max(0), (p.cols as i32 - first).min(COLUMNS as i32));
    let mut set = 0;
    if before < kept {
        // SAFETY: the bytes from `before` on and before `kept` are the row's.
        let bytes = unsafe { nonzero(mask, &p, at.mask + first as i64, before, kept) };
        set = (bytes ^ p.mask_invert) & u32::MAX << before & u32::MAX >> (COLUMNS as i32 - kept);
    }
    // SAFETY: each thread has its own word.
    unsafe { bits.set((at.x >> 5) as usize + word as usize - 1, set) };
}

/// Which of the 32 bytes from `at` on are not 0, in those packs of which bytes from number `low` on and before `high` are a part.
///
/// # Safety
/// The mask has these bytes, and `at` is a multiple of 16.
#[inline(always)]
unsafe fn nonzero(mask: Global<u8>, p: &Params, at: i64, low: i32, high: i32) -> u32 {
    const BYTES: i32 = 16;
    let mut set = 0;
    let mut packs = [[0; 4]; 2];
    let end = (p.mask_len - at).min(COLUMNS as i64) as i32;
    for pack in 0..2 {
        let from = pack as i32 * BYTES;
        let is_read = low < from + BYTES && from < high;
        // SAFETY: whole packs are inside the mask.
        packs[pack] =
            unsafe { mask.get_pack_if(is_read && from + BYTES <= end, (at + from as i64) as usize, 0) };
    }
    for pack in 0..2 {
        for word in 0..4 {
            let of_word = bits::of_bytes(bits::nonzero_bytes(packs[pack][word]));
            set |= of_word << (4 * (4 * pack + word));
        }
    }
    if high > end & -BYTES {
        // The last pack of the mask.
        let mut byte = low.max(end & -BYTES);
        while byte < high {
            bits::no_unroll();
            // SAFETY: the caller's contract.
            let is_set = unsafe { mask.get((at + byte as i64) as usize) } != 0;
            set |= (is_set as u32) << byte;
            byte += 1;
        }
    }
    set
}

/// The masks of some packs of each lane of a warp, `LANES` apart, of which those of a warp follow one another: a word of 32 columns is
/// several lanes' and comes to one of them, so that one load does for 32 lanes' four packs of 16 bits.
#[derive(Clone, Copy)]
pub(super) struct WarpBits {
    /// Of a lane: where its words begin, and the words behind those.
    words: [[u32; 2]; WORDS],
    /// The bit of a word at which a word's columns begin.
    shift: u32,
}

/// Words of a lane: twelve packs of 16 bits.
const WORDS: usize = 3;

impl WarpBits {
    /// Of no packs.
    pub const NONE: WarpBits = WarpBits { words: [[0; 2]; WORDS], shift: 0 };

    /// Packs of each lane that a word of each is for.
    pub const fn packs_of_word<T: Float>() -> usize {
        COLUMNS as usize / T::PER_PACK
    }

    /// Asks for the masks of `PACKS` packs, the lane's first at pack `first` of the row. Nothing is done with what comes: it
    /// may be under way while something else is waited for.
    ///
    /// # Safety
    /// As [`Held::read_mask`](super::held::Held::read_mask), with the mask's bits for the mask; all lanes call, with consecutive packs of
    /// one row.
    #[inline(always)]
    pub unsafe fn ask<T: Float, const LANES: usize, const PACKS: usize>(
        mask: Global<u8>,
        row: &Row,
        first: u32,
    ) -> Self {
        const { assert!(PACKS * T::PER_PACK <= WORDS * COLUMNS as usize, "a lane has a word for every few packs") };
        let lane = warp::lane_id();
        let (of_lane, words_of_pack) = (Self::packs_of_word::<T>() as u32, T::PER_PACK as u32);
        let begin = column::<T, LANES>(first - lane + LANES as u32 * (lane / words_of_pack), 0)
            + (lane % words_of_pack * COLUMNS) as i32;
        let at = row.mask + begin as i64;
        let (word, shift) = ((at >> 5) as usize, at as u32 % COLUMNS);
        let mut words = [[0; 2]; WORDS];
        for i in 0..WORDS {
            if const { PACKS * T::PER_PACK } > COLUMNS as usize * i {
                let before = of_lane * i as u32;
                let column = column::<T, LANES>(before * LANES as u32, 0);
                let is_pack = before + lane / words_of_pack < PACKS as u32;
                let (low, high) = (begin + column, begin + column + COLUMNS as i32);
                let when = is_pack && low < row.high && high > row.low;
                let word = word + (column as u32 / COLUMNS) as usize;
                // SAFETY: the mask has a word on both sides of a row's columns.
                words[i] = unsafe {
                    let mask = Global::<u32>::from_raw(mask.raw());
                    [mask.get_bits_if(when, word, 0), mask.get_bits_if(when & (shift != 0), word + 1, 0)]
                };
            }
        }
        WarpBits { words, shift }
    }

    /// The words of columns.
    #[inline(always)]
    pub fn words(&self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        for i in 0..WORDS {
            words[i] = bits::funnel_right(self.words[i][0], self.words[i][1], self.shift);
        }
        words
    }

    /// The lane's bits of pack `pack` of those that `word` is for, from the lowest on; those behind them are others'. All lanes
    /// call.
    #[inline(always)]
    pub fn of_pack<T: Float>(word: u32, pack: u32) -> u32 {
        let begin = warp::lane_id() * T::PER_PACK as u32;
        let from = pack * T::PER_PACK as u32 + begin / COLUMNS;
        warp::warp_shuffle_idx(u32::MAX, word, from, warp::SIZE).0 >> (begin % COLUMNS)
    }

    /// [`Self::of_pack`] of each.
    #[inline(always)]
    pub fn of_packs<T: Float, const PACKS: usize>(&self) -> [[u32; 2]; PACKS] {
        let words = self.words();
        let mut masks = [[0; 2]; PACKS];
        for i in 0..PACKS {
            let of_word = Self::packs_of_word::<T>();
            masks[i][0] = Self::of_pack::<T>(words[i / of_word], (i % of_word) as u32);
        }
        masks
    }
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
