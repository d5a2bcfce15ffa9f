//! Lines of L2 that tiles are made of.

use super::product;
use crate::ops::matmul::layout::{LINE, pitch};
use crate::ops::matmul::request::{Request, Side};

/// Lines that L2 looks up in a microsecond, where rows lie across them, and where all begin at one.
pub(super) const LOOKUPS: f64 = 68e3;
const WHOLE_LOOKUPS: f64 = 85e3;

/// Lines that are looked up for the stages of so many tiles down and across.
pub(super) fn lines(request: &Request, tiles: [usize; 2]) -> f64 {
    let Request { m, n, k, batch, dtype, sides, begins, .. } = *request;
    let of_side = |i: usize, rows: usize, times: usize| {
        let begins = match sides[i] {
            Side { copied: true, along_k } => {
                let bytes = pitch(if along_k { k } else { rows }, dtype) * dtype.size();
                1 << bytes.trailing_zeros().min(LINE.trailing_zeros())
            }
            _ => begins[i],
        };
        // Rows of a stage begin at multiples of this within a line, and at all of them alike often.
        let across = 2.0 - begins as f64 / LINE as f64;
        product([rows, times, k.div_ceil(LINE / dtype.size())]) * across
    };
    batch as f64 * (of_side(0, m, tiles[1]) + of_side(1, n, tiles[0]))
}

/// Microseconds that it takes at least to look up so many, which are those of the tiles.
pub(super) fn lookups(looked_up: f64, request: &Request, tiles: [usize; 2]) -> f64 {
    let whole = looked_up <= lines(&Request { begins: [LINE; 2], ..*request }, tiles);
    looked_up / if whole { WHOLE_LOOKUPS } else { LOOKUPS }
}
