//! f32 numbers as sums of two f16 numbers, which tensor cores multiply: the operands of [`parted()`](fn@super::parted).
//!
//! Of x, divided by its row's [scale](super::Scales) to y, the first part h is y rounded to f16, the second l is 2^11·(y − h), rounded. y = h + 2^-11·l up to 2^-23 of y, or for
//! *faint* numbers, of less than 2^-14, up to 2^-36; rows that have such are marked. In rows with NaN or infinities all sums are NaN or infinite.
//!
//! Of `[outer, inner, lines, length]` in any strides comes `[outer, parts, inner, lines, pitch]`, contiguous, lines in whole packs with
//! zeros at their ends: what a tensor map can have. [`part_rows()`](fn@super::part_rows) does this where lines are along k, and rows thus, and
//! [`part_columns()`](fn@super::part_columns) where they are across it.
//!
//! Floor: 4 bytes of a number read and 2 of each part written, at the copy rate.

use super::Matrix;
use super::scale::{FAINT, Scales, inverse_root};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Parts of a number, and what the second is multiplied by.
pub const PARTS: usize = 2;
pub(super) const MAGNIFIED: f32 = 2048.0;
/// Numbers of a pack of parts.
pub const PACK_OF_PARTS: usize = 8;
pub(super) const PACK: u32 = PACK_OF_PARTS as u32;

/// The parameters of what takes numbers apart.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parting {
    /// Where the numbers are: rows are lines.
    pub source: Matrix,
    /// Where the words of scales go.
    pub scales: Scales,
    /// Lines of a matrix that are along k, or groups of [`COLUMNS_OF_GROUP`](super::COLUMNS_OF_GROUP) numbers of lines that are not.
    pub across: Divisor,
    /// Splits of k.
    pub splits: Divisor,
    /// Matrices of the batch's inner dimension.
    pub inner: Divisor,
    /// Splits of lines, or of groups, in all.
    pub total: u32,
    /// Terms of a split, a multiple of [`PACK_OF_PARTS`].
    pub k_of_split: u32,
    /// Terms.
    pub k: u32,
    /// Terms of a split that a block of a cluster goes through, of lines across k.
    pub share: u32,
    /// Numbers of a line, and its packs.
    pub length: u32,
    /// As above.
    pub packs_of_line: u32,
    /// Packs of a part of one of the batch's outer dimension, and of its inner one.
    pub packs_of_part: u32,
    /// As above.
    pub packs_of_matrix: u32,
    /// Whether lines are neighbours in memory and start at multiples of 16 bytes.
    pub aligned: u32,
}
plain_parameter!(Parting);

/// What a thread, or all of a row, works on: numbers of a split in one matrix of the batch.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// The line, or the group.
    pub across: u32,
    /// Where its terms begin and end.
    pub first: u32,
    pub end: u32,
    split: u32,
    outer: u32,
    inner: u32,
}

/// Numbers of a pack.
pub(super) type Numbers = [f32; PACK_OF_PARTS];

impl Parting {
    /// Number `index` of the total.
    #[inline(always)]
    pub(super) fn of(&self, index: u32) -> Of {
        let (rest, across) = self.across.div_rem(index);
        let (rest, split) = self.splits.div_rem(rest);
        let (outer, inner) = self.inner.div_rem(rest);
        let first = split * self.k_of_split;
        let end = first + self.k_of_split;
        Of { across, first, end: if end < self.k { end } else { self.k }, split, outer, inner }
    }

    /// Where the word of a row's scale is.
    #[inline(always)]
    pub(super) fn word_of(&self, of: Of, row: u32) -> usize {
        (self.scales.at(of.split, of.outer, of.inner) + row as i64) as usize
    }

    /// The pack of a line from number `at` on, where `when` holds; zeros beyond `end`.
    ///
    /// # Safety
    /// There is such a line of at least `end` numbers, and `at` is a multiple of a pack.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn load(
        &self,
        source: Global<f32>,
        of: Of,
        when: bool,
        line: u32,
        at: u32,
        end: u32,
    ) -> Numbers {
        let start = of.outer as i64 * self.source.outer
            + of.inner as i64 * self.source.inner
            + line as i64 * self.source.row
            + at as i64 * self.source.col;
        let whole = self.aligned != 0 && at + PACK <= end;
        // SAFETY: numbers are below their count; the rest is the caller's contract.
        unsafe {
            let [a, b, c, d] = source.get_pack_if(when && whole, start as usize, 0);
            let [e, f, g, h] = source.get_pack_if(when && whole, start as usize + 4, 0);
            let mut numbers = [a, b, c, d, e, f, g, h].map(f32::from_bits);
            if when && !whole {
                for i in 0..PACK_OF_PARTS {
                    if at + (i as u32) < end {
                        numbers[i] = source.get((start + i as i64 * self.source.col) as usize);
                    }
                }
            }
            numbers
        }
    }

    /// Writes both parts of the pack of a line from number `at` on, where `when` holds; a bit for each that is faint. `largest` are
    /// the bits of the largest number of each number's row.
    ///
    /// # Safety
    /// `out` has room for the parts of all packs.
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn store(
        &self,
        out: GlobalMut<f16>,
        of: Of,
        when: bool,
        line: u32,
        at: u32,
        numbers: Numbers,
        largest: [u32; PACK_OF_PARTS],
    ) -> u32 {
        let mut faint = 0;
        let (mut heads, mut rests) = ([0; 4], [0; 4]);
        for i in 0..PACK_OF_PARTS / 2 {
            let mut scaled = [0.0; 2];
            for j in 0..2 {
                let (number, inverse) = (numbers[2 * i + j], inverse_root(largest[2 * i + j]));
                scaled[j] = number * inverse * inverse;
                let is_faint = number != 0.0 && scaled[j].abs() < FAINT;
                faint |= (is_faint as u32) << (2 * i + j);
            }
            f16::set_pair(&mut heads, i, scaled);
            let head = f16::pair(heads, i);
            f16::set_pair(&mut rests, i, [0, 1].map(|j| (scaled[j] - head[j]) * MAGNIFIED));
        }
        let within = of.inner * self.packs_of_matrix + line * self.packs_of_line + at / PACK;
        for (part, packed) in [heads, rests].into_iter().enumerate() {
            let at = (of.outer as usize * PARTS + part) * self.packs_of_part as usize + within as usize;
            // SAFETY: the caller's contract.
            unsafe { out.set_pack_if(when, at * PACK_OF_PARTS, packed) };
        }
        faint
    }
}
