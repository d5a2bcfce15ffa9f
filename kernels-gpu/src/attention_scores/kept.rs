//! The range of keys that a row keeps, by lengths, starts and the causal limit.

use super::{Params, start};
use crate::masked_softmax::bound;
use cuda_std::prelude::*;

/// Where ranges come from.
#[derive(Clone, Copy)]
pub(super) struct Ranges {
    pub lengths: Global<i32>,
    pub starts: Global<i32>,
    pub lengths_fault: GlobalMut<u64>,
    pub starts_fault: GlobalMut<u64>,
    /// The product of the batch.
    pub outer: u32,
    pub inner: u32,
}

/// One row's.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub low: i32,
    /// One past the last kept key.
    pub high: i32,
}

impl Range {
    #[inline(always)]
    pub fn keeps(self, key: u32) -> bool {
        self.low <= key as i32 && (key as i32) < self.high
    }
}

impl Ranges {
    /// # Safety
    /// The row is one of y's, and the operands are as `p` says.
    #[inline(always)]
    unsafe fn length(&self, p: &Params, row: u32) -> i32 {
        let at = start(p.lengths, self.outer, self.inner) + row as i64 * p.lengths.row;
        // SAFETY: the caller's contract.
        unsafe { bound(self.lengths, at, p.keys as i32, self.lengths_fault) }
    }

    /// That of row `row`.
    ///
    /// # Safety
    /// As [`Self::length`].
    #[inline(always)]
    pub unsafe fn of(&self, p: &Params, row: u32) -> Range {
        let mut range = Range { low: 0, high: p.keys as i32 };
        // SAFETY: the caller's contract.
        unsafe {
            if p.has_lengths != 0 {
                range.high = self.length(p, row);
            }
            if p.has_starts != 0 {
                let at = start(p.starts, self.outer, self.inner) + row as i64 * p.starts.row;
                range.low = bound(self.starts, at, p.keys as i32, self.starts_fault);
            }
        }
        range.high = range.high.min(past(p, row));
        range
    }

    /// One past the last key that any row can keep by its length, where that is the same for all.
    ///
    /// # Safety
    /// As [`Self::length`].
    #[inline(always)]
    pub unsafe fn reach(&self, p: &Params) -> i32 {
        if p.has_lengths != 0 && p.lengths.row == 0 {
            // SAFETY: the caller's contract.
            unsafe { self.length(p, 0) }
        } else {
            p.keys as i32
        }
    }
}

/// One past the last key that a row keeps by the causal limit; it grows with the row.
#[inline(always)]
pub(super) fn past(p: &Params, row: u32) -> i32 {
    if p.causal == 0 {
        return p.keys as i32;
    }
    // 64 bits: the offset may be any i32, and the sum is clamped.
    (row as i64 + p.causal_offset as i64 + 1).max(0).min(p.keys as i64) as i32
}

/// The ranges of a tile's rows in shared memory, where rows have any.
#[derive(Clone, Copy)]
pub(super) struct TileRanges(Shared<i32>);

impl TileRanges {
    /// Bytes of shared memory of `rows` rows.
    pub const fn bytes(rows: u32) -> u32 {
        rows * 2 * 4
    }

    /// Those at byte `offset` of dynamic shared memory.
    ///
    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    pub unsafe fn at(offset: u32, rows: u32) -> Self {
        // SAFETY: the caller's contract.
        TileRanges(unsafe { Shared::dynamic(offset, 2 * rows) })
    }

    /// Looks at rows `first`..`end`, a thread each, of a tile of `rows`.
    ///
    /// # Safety
    /// As [`Ranges::length`]; nobody else has unsynchronised access.
    #[inline(always)]
    pub unsafe fn fill(self, p: &Params, ranges: &Ranges, first: u32, end: u32, rows: u32) {
        let thread = thread::thread_idx_x();
        if p.has_range() && thread < rows && first + thread < end {
            // SAFETY: the caller's contract.
            unsafe {
                let range = ranges.of(p, first + thread);
                self.0.set(2 * thread, range.low);
                self.0.set(2 * thread + 1, range.high);
            }
        }
    }

    /// That of the tile's row `row`, which exists.
    ///
    /// # Safety
    /// It was filled in, and synchronised.
    #[inline(always)]
    pub unsafe fn get(self, p: &Params, row: u32) -> Range {
        if !p.has_range() {
            return Range { low: 0, high: p.keys as i32 };
        }
        // SAFETY: the caller's contract.
        unsafe { Range { low: self.0.get(2 * row), high: self.0.get(2 * row + 1) } }
    }
}
