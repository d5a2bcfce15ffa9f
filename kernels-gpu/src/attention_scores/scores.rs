//! Scores in registers: the sums of a warpgroup's products of 64 queries and some keys, and how probabilities leave it.

use super::{NEAR, Params, WARPGROUP_ROWS};
use crate::matmul::Matrix;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;

/// Threads of a warpgroup.
pub(super) const THREADS: u32 = 128;
/// Bytes of a line of a box.
pub(super) const LINE_BYTES: u32 = 128;
/// Bytes of a box of queries or results.
pub(super) const BOX_BYTES: u32 = WARPGROUP_ROWS * LINE_BYTES;
/// Scores of a lane in a box of results.
pub(super) const OF_BOX: usize = 32;

/// The scores of a tile in `PIECES` pieces of 2·`N` keys: number i of a lane is that of row 16·w + lane / 4 + 8·(i / 2 % 2), its half, of
/// its warp w and key 8·(i / 4) + 2·(lane % 4) + i % 2 of the piece.
pub(super) type Scores<const PIECES: usize, const N: usize> = [[f32; N]; PIECES];

/// A product of the batch, as maps have it: what repeats is there once.
#[derive(Clone, Copy)]
pub(super) struct InBatch {
    pub outer: u32,
    pub inner: u32,
}

impl InBatch {
    /// The box of a matrix's map at this line and column.
    #[inline(always)]
    pub fn at(self, of: Matrix, line: u32, column: u32) -> [i32; 4] {
        let inner = if of.inner != 0 { self.inner } else { 0 };
        let outer = if of.outer != 0 { self.outer } else { 0 };
        [column as i32, line as i32, inner as i32, outer as i32]
    }
}

/// Replaces the scores of a row by a function of their parity, that of their keys, and of each.
#[inline(always)]
pub(super) fn of_row<const PIECES: usize, const N: usize>(
    scores: &mut Scores<PIECES, N>,
    half: usize,
    mut function: impl FnMut(usize, f32) -> f32,
) {
    for piece in 0..PIECES {
        for i in 0..N {
            if i / 2 % 2 == half {
                scores[piece][i] = function(i % 2, scores[piece][i]);
            }
        }
    }
}

/// Replaces the scores of each eight keys, of which the function gets the first, and pairs of neighbours, of either half.
#[inline(always)]
pub(super) fn of_eights<const PIECES: usize, const N: usize>(
    scores: &mut Scores<PIECES, N>,
    function: impl Fn(u32, [[f32; 2]; 2]) -> [[f32; 2]; 2],
) {
    for piece in 0..PIECES {
        for eight in 0..N / 4 {
            let of = &mut scores[piece];
            let i = 4 * eight;
            let pairs =
                function((piece * 2 * N + 8 * eight) as u32, [[of[i], of[i + 1]], [of[i + 2], of[i + 3]]]);
            [[of[i], of[i + 1]], [of[i + 2], of[i + 3]]] = pairs;
        }
    }
}

/// Makes the scores of a row that it does not keep −∞; `word` gives, of the row, the bits of 32 keys, those of the lane's first at bit 0.
#[inline(always)]
pub(super) fn keep<const PIECES: usize, const N: usize>(
    scores: &mut Scores<PIECES, N>,
    half: usize,
    word: impl Fn(u32) -> u32,
) {
    for piece in 0..PIECES {
        for of_piece in 0..N / 16 {
            let word = word((piece * (N / 16) + of_piece) as u32);
            for j in 0..8 {
                let i = of_piece * 16 + j / 2 * 4 + half * 2 + j % 2;
                let bit = j / 2 * 8 + j % 2;
                scores[piece][i] = if word & (1 << bit) != 0 { scores[piece][i] } else { f32::NEG_INFINITY };
            }
        }
    }
}

/// The largest score of a row that the lane has; NaN wins.
#[inline(always)]
pub(super) fn largest<const PIECES: usize, const N: usize>(scores: &Scores<PIECES, N>, half: usize) -> f32 {
    let mut most = [f32::NEG_INFINITY; 2];
    for piece in 0..PIECES {
        for i in 0..N {
            if i / 2 % 2 == half {
                most[i % 2] = float::max_nan(most[i % 2], scores[piece][i]);
            }
        }
    }
    float::max_nan(most[0], most[1])
}

/// Makes scores exponentials relative to each row's maximum; gives the sums of what the lane has.
#[inline(always)]
pub(super) fn exponentiate<const PIECES: usize, const N: usize>(
    p: &Params,
    scores: &mut Scores<PIECES, N>,
    maxima: [f32; 2],
) -> [f32; 2] {
    let mut shifts = maxima.map(|maximum| p.exponent.power(maximum));
    // One branch for both rows; NaN takes it.
    if !(shifts[0].abs() <= NEAR && shifts[1].abs() <= NEAR) {
        for half in 0..2 {
            of_row(scores, half, |_, score| score - maxima[half]);
        }
        shifts = [0.0; 2];
    }
    // Not by a map, which would be a function of its own, and the scores in memory.
    let mut sums = [0.0; 2];
    for half in 0..2 {
        sums[half] = replace(scores, half, |score| p.exponent.exp_from(score, shifts[half]));
    }
    sums
}

/// Replaces the scores of a row by a function of each; gives the sum.
#[inline(always)]
fn replace<const PIECES: usize, const N: usize>(
    scores: &mut Scores<PIECES, N>,
    half: usize,
    function: impl Fn(f32) -> f32,
) -> f32 {
    let mut sums = [0.0; 2];
    of_row(scores, half, |parity, score| {
        let value = function(score);
        sums[parity] += value;
        value
    });
    sums[0] + sums[1]
}

/// What makes the exponentials of a row with this sum probabilities. A row without a kept key has 0.
#[inline(always)]
pub(super) fn factor(sum: f32) -> f32 {
    if sum == 0.0 { 0.0 } else { float::rcp(sum) }
}

/// Box `number` of what leaves from byte `room` on of shared memory.
///
/// # Safety
/// The launch gives as much.
#[inline(always)]
pub(super) unsafe fn box_at<T: Half>(room: u32, number: u32) -> Tile<T> {
    // SAFETY: the caller's contract.
    unsafe { Tile::dynamic_slabs(room + number * BOX_BYTES, WARPGROUP_ROWS, LINE_BYTES / 16) }
}

/// Leaves a box's part of a warp's results in it: the exponentials from number `first` on of a piece times their rows' factors.
///
/// # Safety
/// Nobody reads the box. All lanes call.
#[inline(always)]
pub(super) unsafe fn leave<T: Half, const N: usize>(
    to: Tile<T>,
    warp: u32,
    piece: &[f32; N],
    first: usize,
    factors: [f32; 2],
) {
    // Of 16×16 numbers the matrices go down before they go along: lane 8·i + r names row r of matrix i.
    let lane = warp::lane_id();
    let (down, along) = (warp * 16 + lane % 16, lane / 16);
    for sixteen in 0..OF_BOX / 8 {
        let mut words = [0; 4];
        for matrix in 0..4 {
            let (i, factor) = (first + sixteen * 8 + matrix * 2, factors[matrix % 2]);
            let mut word = [0; 4];
            T::set_pair(&mut word, 0, [piece[i] * factor, piece[i + 1] * factor]);
            words[matrix] = word[0];
        }
        // SAFETY: the caller's contract.
        unsafe { to.shared().store_matrices::<false>(to.place(down, sixteen as u32 * 2 + along), words) };
    }
}
