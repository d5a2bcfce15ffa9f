//! From a row's number to where its operands are and which of its columns count.

use super::{Operands, Params};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Most row dimensions that remain after merging: a tensor of rank 8 has 7.
pub const MAX_ROW_DIMS: usize = 7;

/// One dimension of the rows: its extent and what a step along it adds to each operand's index.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RowDim {
    /// x, in elements.
    pub x: i64,
    /// y, in elements.
    pub y: i64,
    /// The mask, in elements.
    pub mask: i64,
    /// `lengths`, in elements.
    pub lengths: i64,
    /// `starts`, in elements.
    pub starts: i64,
    /// The query position of the causal limit.
    pub query: i32,
    /// The extent.
    pub extent: Divisor,
}

/// One row, in *window* columns: column 0 is the last element at a multiple of 16 bytes that does not lie behind the row's
/// first. Packs begin there and cover the row; the first and the last of a ragged row have columns of other rows too.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Element index in x of window column 0.
    pub x: i64,
    /// Element index in y of window column 0.
    pub y: i64,
    /// Element index in the mask of window column 0.
    pub mask: i64,
    /// The row's first window column.
    pub first: i32,
    /// One past the row's last window column.
    pub end: i32,
    /// One past the last column whose pack a block has: `end`, but for slices.
    pub stop: i32,
    /// First kept window column.
    pub low: i32,
    /// One past the last kept window column; at least `low`.
    pub high: i32,
}

/// What a row's digits add up to for each operand.
pub(super) struct Indices {
    pub x: i64,
    y: i64,
    pub mask: i64,
    lengths: i64,
    starts: i64,
    query: i64,
}

#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) fn indices(p: &Params, row: u32) -> Indices {
    let mut at = Indices {
        x: p.x_base,
        y: p.y_base,
        mask: p.mask_base,
        lengths: p.lengths_base,
        starts: p.starts_base,
        query: p.query_base,
    };
    let mut rest = row;
    // Constant indices: a run-time index would copy the parameters to local memory.
    macro_rules! step {
        ($($i:literal)*) => {$(
            if $i < p.dim_count {
                let dim = &p.dims[$i];
                let (quotient, digit) = dim.extent.div_rem(rest);
                rest = quotient;
                let digit = digit as i64;
                at.x += digit * dim.x;
                at.y += digit * dim.y;
                at.mask += digit * dim.mask;
                if p.bounds_rows() {
                    at.lengths += digit * dim.lengths;
                    at.starts += digit * dim.starts;
                    at.query += digit * dim.query as i64;
                }
            }
        )*};
    }
    step!(0 1 2 3 4 5 6);
    let _ = rest;
    at
}

/// Reads a bound in 0..=cols; one outside is recorded for the host, lowest index first, and clamped, so that
/// nothing is read or written out of bounds.
///
/// # Safety
/// `index` is within `bounds`; `fault` is one word.
#[inline(always)]
pub(crate) unsafe fn bound(bounds: Global<i32>, index: i64, cols: i32, fault: GlobalMut<u64>) -> i32 {
    // SAFETY: the caller's contract.
    let value = unsafe { bounds.get(index as usize) };
    if value < 0 || value > cols {
        let record = (index as u64) << 32 | value as u32 as u64;
        // SAFETY: as above.
        unsafe { fault.atomic_min(0, record, Ordering::Relaxed, Scope::Device) };
    }
    value.max(0).min(cols) // not `clamp`, which can panic
}

/// Finds row number `row`, which must be below `p.rows`.
///
/// # Safety
/// The operands match the parameters.
#[inline(always)]
pub(crate) unsafe fn locate<T: Float>(operands: &Operands<T>, p: &Params, row: u32) -> Row {
    let at = indices(p, row);
    let cols = p.cols as i32;
    let (mut low, mut high) = (0, cols);
    // SAFETY: the caller's contract.
    unsafe {
        if p.has_lengths != 0 {
            // A row waits for its length before it reads anything, but need not wait for memory.
            let ahead = at.lengths + p.lengths_ahead as i64;
            operands.lengths.prefetch_if(row < p.rows_asking, ahead as usize);
            high = bound(operands.lengths, at.lengths, cols, operands.lengths_fault);
        }
        if p.has_starts != 0 {
            low = bound(operands.starts, at.starts, cols, operands.starts_fault);
        }
    }
    if p.causal != 0 {
        // 64 bits: the offset may be any i32, and the sum is clamped.
        let limit = (at.query + p.causal_offset as i64 + 1).max(0).min(cols as i64) as i32;
        high = high.min(limit);
    }
    high = high.max(low);
    let row = Row { x: at.x, y: at.y, mask: at.mask, first: 0, end: cols, stop: cols, low, high };
    if p.ragged != 0 { row.covered::<T>() } else { row }
}

impl Row {
    /// A row with nothing in it, for lanes beyond the last row.
    pub const NONE: Row = Row { x: 0, y: 0, mask: 0, first: 0, end: 0, stop: 0, low: 0, high: 0 };

    /// A row that begins at column 0 and may do so anywhere, in window columns.
    #[inline(always)]
    fn covered<T: Float>(self) -> Row {
        let first = self.x as i32 & (T::PER_PACK as i32 - 1);
        let end = self.end + first;
        Row {
            x: self.x - first as i64,
            y: self.y - first as i64,
            mask: self.mask - first as i64,
            first,
            end,
            stop: end,
            low: self.low + first,
            high: self.high + first,
        }
    }

    /// Writes the row to three packs of shared memory from word `at` on.
    ///
    /// # Safety
    /// They are there, from a multiple of 16 bytes on, and nothing else touches them.
    #[inline(always)]
    pub unsafe fn keep(&self, words: Shared<u32>, at: u32) {
        let halves = |number: i64| [number as u32, (number >> 32) as u32];
        let ([x, x_high], [y, y_high], [mask, mask_high]) =
            (halves(self.x), halves(self.y), halves(self.mask));
        // SAFETY: the caller's contract.
        unsafe {
            words.set_pack(at, [x, x_high, y, y_high]);
            words.set_pack(at + 4, [mask, mask_high, self.first as u32, self.end as u32]);
            words.set_pack(at + 8, [self.stop as u32, self.low as u32, self.high as u32, 0]);
        }
    }

    /// The row that [`Row::keep`] wrote.
    ///
    /// # Safety
    /// It has, and nothing else writes.
    #[inline(always)]
    pub unsafe fn kept(words: Shared<u32>, at: u32) -> Row {
        // SAFETY: the caller's contract.
        let [places, more, bounds] =
            unsafe { [words.get_pack(at), words.get_pack(at + 4), words.get_pack(at + 8)] };
        let number = |low: u32, high: u32| (low as u64 | (high as u64) << 32) as i64;
        Row {
            x: number(places[0], places[1]),
            y: number(places[2], places[3]),
            mask: number(more[0], more[1]),
            first: more[2] as i32,
            end: more[3] as i32,
            stop: bounds[0] as i32,
            low: bounds[1] as i32,
            high: bounds[2] as i32,
        }
    }

    /// The row with no kept column.
    #[inline(always)]
    pub fn emptied(self) -> Row {
        Row { low: 0, high: 0, ..self }
    }

    /// The row with no packs but `count` from number `first` on.
    #[inline(always)]
    pub fn slice<T: Float>(&self, first: u32, count: u32) -> Row {
        let per_pack = T::PER_PACK as i32;
        let (begin, stop) = (first as i32 * per_pack, (first + count) as i32 * per_pack);
        Row { stop: self.end.min(stop), low: self.low.max(begin), high: self.high.min(stop), ..*self }
    }

    /// Whether the kept columns end or begin inside a pack.
    #[inline(always)]
    pub fn splits_packs<T: Float>(&self) -> bool {
        (self.low | self.high) & (T::PER_PACK as i32 - 1) != 0
    }

    /// Whether the pack at `column` has kept columns.
    #[inline(always)]
    pub fn keeps_some<T: Float>(&self, column: i32) -> bool {
        column < self.high && column + T::PER_PACK as i32 > self.low
    }

    /// Whether `column` is kept.
    #[inline(always)]
    pub fn keeps(&self, column: i32) -> bool {
        self.low <= column && column < self.high
    }

    /// Whether all columns of the pack at `column`, the first of which is not behind the row, are the row's.
    #[inline(always)]
    pub fn has_whole<T: Float>(&self, column: i32) -> bool {
        column >= self.first && column + T::PER_PACK as i32 <= self.end
    }
}

/// One past the last column of whole packs that an operand of `len` elements has, whose element at window column 0 is `at`.
/// Packs that cover a row may pass the operand's end.
#[inline(always)]
pub(super) fn whole_columns<T: Float>(len: i64, at: i64) -> i32 {
    (len - at).min(i32::MAX as i64) as i32 & -(T::PER_PACK as i32)
}
