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

/// One row, in *window* columns: column 0 is the first element at a multiple of 16 bytes. Whole packs begin there;
/// before and behind them lie the *loose* elements of ragged rows.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Element index in x of window column 0.
    pub x: i64,
    /// Element index in y of window column 0.
    pub y: i64,
    /// Element index in the mask of window column 0.
    pub mask: i64,
    /// The row's first window column: at most 0.
    pub first: i32,
    /// One past the last column of a whole pack.
    pub whole: i32,
    /// One past the row's last window column.
    pub end: i32,
    /// First kept window column.
    pub low: i32,
    /// One past the last kept window column; at least `low`.
    pub high: i32,
    /// First kept column of the packs.
    pub low_packed: i32,
    /// One past the last kept column of the packs.
    pub high_packed: i32,
}

/// What a row's digits add up to for each operand.
struct Indices {
    x: i64,
    y: i64,
    mask: i64,
    lengths: i64,
    starts: i64,
    query: i64,
}

#[inline(always)]
fn indices(p: &Params, row: u32) -> Indices {
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
                at.lengths += digit * dim.lengths;
                at.starts += digit * dim.starts;
                at.query += digit * dim.query as i64;
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
    let row = Row {
        x: at.x,
        y: at.y,
        mask: at.mask,
        first: 0,
        whole: cols,
        end: cols,
        low,
        high,
        low_packed: low,
        high_packed: high,
    };
    if p.ragged != 0 { row.cut::<T>() } else { row }
}

impl Row {
    /// A row with nothing in it, for lanes beyond the last row.
    pub const NONE: Row = Row {
        x: 0,
        y: 0,
        mask: 0,
        first: 0,
        whole: 0,
        end: 0,
        low: 0,
        high: 0,
        low_packed: 0,
        high_packed: 0,
    };

    /// A row that begins at column 0 and may do so anywhere, in window columns.
    #[inline(always)]
    fn cut<T: Float>(self) -> Row {
        let inside = T::PER_PACK as i32 - 1;
        let head = (-(self.x as i32) & inside).min(self.end);
        let (end, low, high) = (self.end - head, self.low - head, self.high - head);
        let whole = end & !inside;
        Row {
            x: self.x + head as i64,
            y: self.y + head as i64,
            mask: self.mask + head as i64,
            first: -head,
            whole,
            end,
            low,
            high,
            low_packed: low.max(0),
            high_packed: high.min(whole),
        }
    }

    /// The row with no kept column.
    #[inline(always)]
    pub fn emptied(self) -> Row {
        Row { low: 0, high: 0, low_packed: 0, high_packed: 0, ..self }
    }

    /// The row with no packs but `count` from number `first` on.
    #[inline(always)]
    pub fn slice<T: Float>(&self, first: u32, count: u32) -> Row {
        let per_pack = T::PER_PACK as i32;
        let (begin, end) = (first as i32 * per_pack, (first + count) as i32 * per_pack);
        Row {
            whole: self.whole.min(end),
            low_packed: self.low_packed.max(begin),
            high_packed: self.high_packed.min(end),
            ..*self
        }
    }

    /// How many elements are loose.
    #[inline(always)]
    pub fn loose(&self) -> i32 {
        self.end - self.first - self.whole
    }

    /// The column of loose element number `element`: first those before the packs, then those behind.
    #[inline(always)]
    pub fn column_of_loose(&self, element: i32) -> i32 {
        let column = self.first + element;
        if column < 0 { column } else { self.whole + column }
    }

    /// Whether the kept columns end or begin inside a pack.
    #[inline(always)]
    pub fn splits_packs<T: Float>(&self) -> bool {
        (self.low_packed | self.high_packed) & (T::PER_PACK as i32 - 1) != 0
    }

    /// Whether the pack at `column` has kept columns.
    #[inline(always)]
    pub fn keeps_some<T: Float>(&self, column: i32) -> bool {
        column < self.high_packed && column + T::PER_PACK as i32 > self.low_packed
    }

    /// Whether `column` is kept and in a whole pack.
    #[inline(always)]
    pub fn keeps_in_pack(&self, column: i32) -> bool {
        self.low_packed <= column && column < self.high_packed
    }

    /// Whether `column` is kept.
    #[inline(always)]
    pub fn keeps(&self, column: i32) -> bool {
        self.low <= column && column < self.high
    }
}
