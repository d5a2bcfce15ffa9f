//! Where a row lies, and how it is cut into packs and loose elements.

use super::{MAX_INPUTS, Params};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Most row dimensions that remain after merging: a tensor of rank 8 has 7.
pub const MAX_ROW_DIMS: usize = 7;

/// One dimension of the rows: its extent and what a step along it adds to the place in each input, in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RowDim {
    /// The inputs.
    pub inputs: [i64; MAX_INPUTS],
    /// The extent.
    pub extent: Divisor,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}

/// A row: `head` loose elements, then whole packs, then the rest of the loose elements.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Its number, or that of the last row for one that is not there.
    pub number: u32,
    /// Element index of its first column in each input.
    pub inputs: [i64; MAX_INPUTS],
    /// And in the results.
    pub output: i64,
    /// Loose elements before the first pack.
    head: u32,
    /// Whole packs.
    pub packs: u32,
    /// Loose elements.
    pub loose: u32,
}

impl Row {
    /// Row number `number`; beyond the last one a row with nothing in it, so that all lanes take part in
    /// collectives.
    #[inline(always)]
    pub fn new<T: Float>(p: &Params, number: u32) -> Row {
        let per_pack = T::PER_PACK as u32;
        let row = Row::of_elements(p, number);
        if p.ragged == 0 {
            return Row { head: 0, packs: row.loose / per_pack, loose: 0, ..row };
        }
        let phase = (p.phase + row.output as u32) & (per_pack - 1);
        let head = ((per_pack - phase) & (per_pack - 1)).min(row.loose);
        let packs = (row.loose - head) / per_pack;
        Row { head, packs, loose: row.loose - packs * per_pack, ..row }
    }

    /// As [`Row::new`], with loose elements only.
    #[inline(always)]
    pub fn of_elements(p: &Params, number: u32) -> Row {
        let cols = if number < p.rows { p.cols } else { 0 };
        let number = number.min(p.rows - 1);
        let output = number as i64 * p.cols as i64;
        Row { number, inputs: places(p, number), output, head: cols, packs: 0, loose: cols }
    }

    /// The column of pack number `pack`.
    #[inline(always)]
    pub fn column_of_pack<T: Float>(&self, pack: u32) -> u32 {
        self.head + pack * T::PER_PACK as u32
    }

    /// The column of loose element number `element`.
    #[inline(always)]
    pub fn column_of_loose<T: Float>(&self, element: u32) -> u32 {
        if element < self.head { element } else { element + self.packs * T::PER_PACK as u32 }
    }
}

/// Where row number `row` begins in each input.
#[inline(always)]
pub(super) fn places(p: &Params, row: u32) -> [i64; MAX_INPUTS] {
    let (mut at, mut rest) = ([0; MAX_INPUTS], row);
    // Constant indices: a run-time index would copy the parameters to local memory.
    macro_rules! step {
        ($($i:literal)*) => {$(
            if $i < p.dim_count {
                let dim = &p.dims[$i];
                let (quotient, digit) = dim.extent.div_rem(rest);
                rest = quotient;
                for input in 0..MAX_INPUTS {
                    at[input] += digit as i64 * dim.inputs[input];
                }
            }
        )*};
    }
    step!(0 1 2 3 4 5 6);
    let _ = rest;
    at
}
