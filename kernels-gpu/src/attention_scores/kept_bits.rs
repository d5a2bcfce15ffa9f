//! Which keys the rows of a tile keep, a bit each in shared memory.

use super::kept::{Range, Ranges};
use super::scores::THREADS;
use super::{Params, WARPGROUP_ROWS, form, start};
use crate::masked_softmax::mask_kind;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Keys of a word.
const WORD: u32 = 32;

/// The bits of a tile's rows, which a block of one warpgroup makes: of a mask of bytes, of ranges, and of the last key.
#[derive(Clone, Copy)]
pub(super) struct KeptBits<'a> {
    words: Shared<u32>,
    /// Words of a row.
    of_row: u32,
    mask: Global<u8>,
    mask_start: i64,
    ranges: &'a Ranges,
}

impl<'a> KeptBits<'a> {
    /// Bytes of shared memory of a tile with so many keys.
    pub const fn bytes(keys: u32) -> u32 {
        WARPGROUP_ROWS * keys / 8
    }

    /// Those of tiles of `keys` keys, at byte `offset` of dynamic shared memory.
    ///
    /// # Safety
    /// The launch gives as much; the mask is as `p` says.
    #[inline(always)]
    pub unsafe fn new(p: &Params, offset: u32, keys: u32, mask: Global<u8>, ranges: &'a Ranges) -> Self {
        let of_row = keys / WORD;
        // SAFETY: the caller's contract.
        let words = unsafe { Shared::dynamic(offset, WARPGROUP_ROWS * of_row) };
        KeptBits { words, of_row, mask, mask_start: start(p.mask, ranges.outer, ranges.inner), ranges }
    }

    /// Whether some keys may not be kept.
    #[inline(always)]
    pub fn exist(self, p: &Params) -> bool {
        p.mask_kind == mask_kind::BYTES || p.has_range() || self.of_row * WORD > p.keys
    }

    /// Whether rows of a product may keep different keys.
    #[inline(always)]
    pub fn are_by_row(self, p: &Params) -> bool {
        (p.mask_kind == mask_kind::BYTES && p.mask.row != 0)
            || (p.has_lengths != 0 && p.lengths.row != 0)
            || (p.has_starts != 0 && p.starts.row != 0)
            || p.causal != 0
    }

    /// If there are bits, makes those of a tile's rows from `first` on, or of the one that stands for all, of 2·`N`·`PIECES` keys; rows from
    /// `end` on keep nothing. A barrier of the block follows.
    ///
    /// # Safety
    /// As [`Self::new`]; all threads call, and nobody reads bits before the barrier.
    #[inline(always)]
    pub unsafe fn fill<const FORM: usize, const PIECES: usize, const N: usize>(
        self,
        p: &Params,
        first: u32,
        end: u32,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            // All words of a thread, so that their loads are under way together, but where these are of single bytes.
            if const { FORM == form::LOOSE || N < 64 } {
                self.fill_by::<FORM, 1>(p, first, end);
            } else if const { PIECES == 1 } {
                self.fill_by::<FORM, 2>(p, first, end);
            } else if const { PIECES == 2 } {
                self.fill_by::<FORM, 4>(p, first, end);
            } else {
                self.fill_by::<FORM, 6>(p, first, end);
            }
        }
    }

    /// [`Self::fill`], by `BATCH` words of each thread at a time.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn fill_by<const FORM: usize, const BATCH: usize>(self, p: &Params, first: u32, end: u32) {
        if !self.exist(p) {
            return;
        }
        let count = self.of_row * if self.are_by_row(p) { WARPGROUP_ROWS } else { 1 };
        let masked = p.mask_kind == mask_kind::BYTES;
        let mut number = thread::thread_idx_x();
        while number < count {
            let place = |i: usize| {
                let number = number + i as u32 * THREADS;
                (number, first + number / self.of_row, number % self.of_row * WORD)
            };
            let mut words = [0; BATCH];
            // SAFETY: the caller's contract; rows and keys that exist.
            unsafe {
                for i in 0..BATCH {
                    let (number, row, key) = place(i);
                    if number < count && row < end {
                        words[i] = in_range(self.ranges.of(p, row), key);
                    }
                }
                if masked {
                    let mut bytes = [[[0; 2]; (WORD / 8) as usize]; BATCH];
                    for i in 0..BATCH {
                        let (_, row, key) = place(i);
                        for eight in 0..(WORD / 8) as usize {
                            bytes[i][eight] =
                                self.eight_bytes::<FORM>(p, words[i] != 0, row, key + eight as u32 * 8);
                        }
                    }
                    for i in 0..BATCH {
                        let mut set = 0;
                        for eight in 0..(WORD / 8) as usize {
                            let [low, high] =
                                bytes[i][eight].map(|word| bits::of_bytes(bits::nonzero_bytes(word)));
                            set |= (low | high << 4) << (8 * eight);
                        }
                        words[i] &= set ^ p.mask_invert;
                    }
                }
                for i in 0..BATCH {
                    let (number, _, _) = place(i);
                    if number < count {
                        self.words.set(number, words[i]);
                    }
                }
            }
            number += BATCH as u32 * THREADS;
        }
    }

    /// Where `when` holds, the bytes of a mask for the eight keys from `key` on; any beyond the last.
    #[inline(always)]
    unsafe fn eight_bytes<const FORM: usize>(self, p: &Params, when: bool, row: u32, key: u32) -> [u32; 2] {
        let at = self.mask_start + row as i64 * p.mask.row;
        // SAFETY: the caller's contract; keys that exist.
        unsafe {
            if const { FORM == form::LOOSE } {
                let mut bytes = [0; 2];
                for i in 0..8 {
                    let at = at + (key + i) as i64 * p.mask.col;
                    let byte = self.mask.get_bits_if(when && key + i < p.keys, at as usize, 0);
                    bytes[i as usize / 4] |= byte << (8 * (i % 4));
                }
                bytes
            } else {
                self.mask.get_8_if(when && key < p.keys, (at + key as i64) as usize, 0)
            }
        }
    }

    /// Word `number` of a row, the bit of the lane's first key first.
    ///
    /// # Safety
    /// It was made, and a barrier has followed.
    #[inline(always)]
    pub unsafe fn word(self, p: &Params, row: u32, number: u32) -> u32 {
        let row = if self.are_by_row(p) { row } else { 0 };
        // SAFETY: the caller's contract.
        unsafe { self.words.get(row * self.of_row + number) >> (warp::lane_id() % 4 * 2) }
    }

    /// Whether a row keeps a key.
    ///
    /// # Safety
    /// As [`Self::word`].
    #[inline(always)]
    pub unsafe fn keeps(self, p: &Params, row: u32, key: u32) -> bool {
        if !self.exist(p) {
            return true;
        }
        let row = if self.are_by_row(p) { row } else { 0 };
        // SAFETY: the caller's contract.
        let word = unsafe { self.words.get(row * self.of_row + key / WORD) };
        word >> (key % WORD) & 1 != 0
    }
}

/// The bits of a range for the 32 keys from `key` on.
#[inline(always)]
fn in_range(range: Range, key: u32) -> u32 {
    let below =
        |bound: i32| bits::shift_left(1, (bound - key as i32).max(0).min(WORD as i32) as u32).wrapping_sub(1);
    below(range.high) & !below(range.low)
}
