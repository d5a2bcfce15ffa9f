//! The forward pass for rows that packs do not fit: 767 columns, or tables whose rows lie at any distance.
//!
//! A warp has a strip of one row, and its lanes neighbouring words of y: a word of f32 lies in a word of the table wherever the row
//! begins, one of 16-bit elements in one or across two. Strips begin at multiples of 128 bytes of y, so that a warp stores whole
//! lines but at a row's ends; there words may belong to two rows, and go by elements.
//!
//! Launch: 1-D grid, a warp for each strip; larger results take several launches.

use super::lookup::added;
use super::strips::Strips;
use cuda_std::bits::funnel_right;
use cuda_std::prelude::*;

/// Strips of a row of so many columns, wherever it begins, at so many words a lane of as many elements.
pub const fn strips(cols: usize, words: usize, per_word: usize) -> usize {
    let line = warp::SIZE as usize * per_word;
    (cols + line - 1).div_ceil(line).div_ceil(words)
}

/// Rows of any number of elements.
///
/// # Safety
/// As [`lookup_packs()`](fn@super::lookup_packs), with units of 32·WORDS words of y: the grid has a warp for each; tables and y
/// begin at multiples of 4 bytes.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [
        { WPE: 0, WORDS: 4; threads: 128, min_blocks: 12 },
        { WPE: 1, WORDS: 4; threads: 128, min_blocks: 9 },
        { WPE: 2, WORDS: 4; threads: 128, min_blocks: 8 },
        { WPE: 0, WORDS: 8; threads: 128, min_blocks: 8 },
        { WPE: 1, WORDS: 8; threads: 128, min_blocks: 6 },
        { WPE: 2, WORDS: 8; threads: 128, min_blocks: 6 },
    ],
)]
pub unsafe fn lookup_words<T: Float, const WPE: usize, const WORDS: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Strips,
) {
    let (per_word, lane) = (const { T::PER_WORD as u32 }, warp::lane_id());
    let line = const { warp::SIZE * T::PER_WORD as u32 };
    // SAFETY: the caller's contract; elements beyond the row are not accessed, and of a token that has no row nothing is
    // read.
    unsafe {
        let Some(strip) = p.strip::<WPE>(tokens, starts) else { return };
        let y_at = strip.y_at as i64;
        let first =
            (strip.within * WORDS as u32 * line + lane * per_word) as i32 - (y_at as u32 & (line - 1)) as i32;
        let of_row = Source::<T>::new(wte, strip.row_at + first as i64, p.wte_len);
        let of_step = Source::<T>::new(wpe, strip.step_at + first as i64, p.wpe_len);
        let (mut a, mut b) = ([[0; 2]; WORDS], [[0; 2]; WORDS]);
        for i in 0..WORDS {
            let has = there::<T>(first + (i as u32 * line) as i32, p.cols);
            a[i] = of_row.load(has.map(|has| has & strip.token.valid), i * line as usize);
            if const { WPE != added::NOTHING } {
                b[i] = of_step.load(has, i * line as usize);
            }
        }
        for i in 0..WORDS {
            let has = there::<T>(first + (i as u32 * line) as i32, p.cols);
            let mut word = of_row.cut(a[i]);
            if const { WPE != added::NOTHING } {
                word = sum::<T>(word, of_step.cut(b[i]));
            }
            let at = (y_at + first as i64 + (i as u32 * line) as i64) as usize;
            if const { T::PER_WORD == 1 } {
                y.set_4_if(has[0], at, word);
            } else {
                y.set_4_if(has[0] & has[1], at, word);
                y.set_if(has[0] & !has[1], at, T::from_bits(word & 0xffff));
                y.set_if(has[1] & !has[0], at.wrapping_add(1), T::from_bits(word >> 16));
            }
        }
        strip.record(fault);
    }
}

/// Which elements of the word that begins at `column` are in the row.
#[inline(always)]
fn there<T: Float>(column: i32, cols: u32) -> [bool; 2] {
    [(column as u32) < cols, const { T::PER_WORD == 2 } && ((column + 1) as u32) < cols]
}

/// The sum of the elements of two words.
#[inline(always)]
fn sum<T: Float>(a: u32, b: u32) -> u32 {
    if const { T::PER_WORD == 1 } {
        return (f32::from_bits(a) + f32::from_bits(b)).to_bits();
    }
    let (a, b, mut sum) = (T::pair([a, 0, 0, 0], 0), T::pair([b, 0, 0, 0], 0), [0; 4]);
    T::set_pair(&mut sum, 0, [a[0] + b[0], a[1] + b[1]]);
    sum[0]
}

/// A row of a table, from where a lane's first word is.
#[derive(Clone, Copy)]
struct Source<T> {
    table: Global<T>,
    at: i64,
    /// Where the table ends.
    len: i64,
}

impl<T: Float> Source<T> {
    #[inline(always)]
    fn new(table: Global<T>, at: i64, len: i64) -> Source<T> {
        Source { table, at, len }
    }

    /// Elements by which words of y lie behind those of the table: the same for all of a row.
    #[inline(always)]
    fn shift(self) -> u32 {
        self.at as u32 & (T::PER_WORD as u32 - 1)
    }

    /// The words that the word `ahead` elements from the first lies in; zeros of what is not there, or not wanted.
    ///
    /// # Safety
    /// Elements that are there are the table's.
    #[inline(always)]
    unsafe fn load(self, has: [bool; 2], ahead: usize) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            if const { T::PER_WORD == 1 } {
                return [self.table.get_4_if(has[0], (self.at + ahead as i64) as usize, 0), 0];
            }
            let shift = self.shift() as i64;
            let at = self.at + ahead as i64;
            // In one word, or the first element in the high half of one and the second in the low half of the next. The
            // table's last element may have a word without another.
            let (low, high) = (at - shift, at + shift);
            let wanted = if shift == 0 { has[0] | has[1] } else { has[1] };
            let is_whole = high + 1 < self.len;
            let next = self.table.get_4_if(wanted & is_whole, high as usize, 0)
                | self.table.get_bits_if(wanted & !is_whole, high as usize, 0);
            [if shift == 0 { next } else { self.table.get_4_if(has[0], low as usize, 0) }, next]
        }
    }

    /// The word itself, from what `load` gave.
    #[inline(always)]
    fn cut(self, [low, high]: [u32; 2]) -> u32 {
        if const { T::PER_WORD == 1 } { low } else { funnel_right(low, high, 16 * self.shift()) }
    }
}
