//! Both gradients of few tokens, in one launch: dwte and dwpe, of which most rows are zeros.
//!
//! A warp has a strip of a row of either table. It looks through all tokens for those that chose the row, 32 at a time, and adds
//! their rows of dy, the first token first. Nothing is sorted: with few tokens the launches of a sort would take longer.
//!
//! Launch: 1-D grid, a warp for each strip of dwte and then of dwpe. Floor: dy and both gradients once; each warp
//! reads all tokens, from L1.

use super::boundaries::step;
use super::tokens::{Tokens, record};
use super::unit::{Elements, Packs, Unit};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// The most tokens for which this is meant: each warp looks at all of them.
pub const FEW: u32 = 128;
/// Elements of a lane where rows are not whole packs.
pub const FEW_ELEMENTS: usize = 4;
/// Loads of a thread in flight.
const DEPTH: usize = 8;
/// Warps of a block.
const WARPS: u32 = 4;

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FewSums {
    /// The tokens.
    pub tokens: Tokens,
    /// How many.
    pub count: u32,
    /// Rows of dwte.
    pub rows: u32,
    /// The first step's row of dwpe.
    pub offset: u32,
    /// Columns.
    pub cols: u32,
    /// Strips of both gradients.
    pub strips: u32,
    /// How many packed sequences there are; 0 where sequences are of one length.
    pub sequences: u32,
    /// Strips of a row.
    pub per_row: Divisor,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(FewSums);
const _: () = assert!(size_of::<FewSums>() == size_of::<Tokens>() + 6 * 4 + 12 + 4);

/// Packs: rows of whole packs, aligned.
///
/// # Safety
/// The operands hold what `p` says, `starts` the boundaries of packed sequences, dwpe what the strips beyond dwte's cover;
/// `fault` is one word, and the grid has a warp for each strip.
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn sum_few_packs<T: Float>(
    tokens: Global<u32>,
    starts: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    dwpe: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: FewSums,
) {
    // SAFETY: the caller's contract.
    unsafe { sum_few::<T, Packs>(tokens, starts, dy, [dwte, dwpe], fault, &p) }
}

/// Elements.
///
/// # Safety
/// As [`sum_few_packs()`](fn@sum_few_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn sum_few_elements<T: Float>(
    tokens: Global<u32>,
    starts: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    dwpe: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: FewSums,
) {
    // SAFETY: the caller's contract.
    unsafe { sum_few::<T, Elements<FEW_ELEMENTS>>(tokens, starts, dy, [dwte, dwpe], fault, &p) }
}

#[inline(always)]
unsafe fn sum_few<T: Float, U: Unit<T>>(
    tokens: Global<u32>,
    starts: Global<u32>,
    dy: Global<T>,
    gradients: [GlobalMut<T>; 2],
    fault: GlobalMut<u64>,
    p: &FewSums,
) {
    let (strip, lane) = (thread::block_idx_x() * WARPS + warp::warp_id(), warp::lane_id());
    // A whole warp leaves, so that the votes below are full.
    if strip >= p.strips {
        return;
    }
    let (row, within) = p.per_row.div_rem(strip);
    let column = U::column(within, lane);
    let (inside, of_positions) = (p.cols.saturating_sub(column), row >= p.rows);
    let mut sums = [0.0; 8];
    let mut first = 0;
    // SAFETY: the caller's contract; tokens and columns beyond the last are not accessed.
    unsafe {
        while first < p.count {
            let number = first + lane;
            let mut chosen = false;
            if number < p.count {
                let token = p.tokens.read(tokens, number);
                if strip == 0 && !token.valid {
                    record(fault, number, token.value);
                }
                chosen = if of_positions {
                    let step = if p.sequences > 0 { step(starts, p.sequences, number) } else { token.step };
                    step.wrapping_add(p.offset) == row - p.rows
                } else {
                    token.value == row as i64
                };
            }
            let mut left = warp::warp_vote_ballot(warp::FULL, chosen);
            while left != 0 {
                let mut units = [U::NOTHING; DEPTH];
                for i in 0..DEPTH {
                    let place =
                        (first + (left.trailing_zeros() & 31)) as usize * p.cols as usize + column as usize;
                    units[i] = U::load(dy, if left != 0 { inside } else { 0 }, place);
                    left &= left.wrapping_sub(1);
                }
                for i in 0..DEPTH {
                    U::add(&mut sums, units[i]);
                }
            }
            first += warp::SIZE;
        }
        let [dwte, dwpe] = gradients;
        let (gradient, row) = if of_positions { (dwpe, row - p.rows) } else { (dwte, row) };
        U::store(gradient, inside, row as usize * p.cols as usize + column as usize, sums);
    }
}
