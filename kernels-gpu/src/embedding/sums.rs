//! dwte: for each row of the table, the sum of dy over the tokens that chose it.
//!
//! Sorted, the tokens of a row are a run; a text's frequent words make runs of some percent of all tokens, so runs are
//! cut. `sum_pieces`: a piece is PIECE sorted tokens, whichever rows they belong to, and a warp sums a strip of columns
//! of it from its first token to its last. A run that lies within the piece is a row of dwte, which it writes. Of a run
//! that goes on beyond it writes the partial sum in f32: partials [pieces, 2, cols], first that of the run that began
//! before the piece, then that of the run that begins in it. `finish_rows`: a row whose run was cut adds up its partial
//! sums, from the first piece to the last; one that no token chose becomes zeros.
//!
//! The order of additions depends on the tokens alone: the same input gives the same bits.

use super::unit::{Elements, Packs, Unit};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Sorted tokens of a piece.
pub const PIECE: u32 = 64;
/// Elements of a lane where rows are not whole packs.
pub const SUM_ELEMENTS: usize = 4;
/// Rows that a warp finishes: most are zeros, and a warp for one store each is soon done, but takes its time to begin. They lie far
/// apart, since the rows of frequent tokens, which take long, are often neighbours.
pub const FINISHED: u32 = 4;
/// Warps of a block.
const WARPS: u32 = 4;
/// Loads of a thread in flight.
const DEPTH: u32 = 4;
const _: () = assert!(PIECE.is_multiple_of(warp::SIZE) && warp::SIZE.is_multiple_of(DEPTH));

/// What a launch of either kernel covers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// Tokens, below 2^31.
    pub tokens: u32,
    /// Rows of dwte, below 2^31 - 1.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Strips of all pieces, or of all groups of rows: a warp each.
    pub strips: u32,
    /// Strips of one.
    pub per_row: Divisor,
}
cuda_std::plain_parameter!(Sums);

/// Sums the pieces; packs.
///
/// # Safety
/// `keys` and `indices` are the sorted tokens, dy has a row for each, dwte `p.rows`, `partials` two for each piece; the
/// grid has a warp for each strip.
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 6 }])]
pub unsafe fn sum_pieces_packs<T: Float>(
    keys: Global<u32>,
    indices: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { sum_pieces::<T, Packs>(keys, indices, dy, dwte, partials, &p) }
}

/// Sums the pieces; elements.
///
/// # Safety
/// As [`sum_pieces_packs()`](fn@sum_pieces_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn sum_pieces_elements<T: Float>(
    keys: Global<u32>,
    indices: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { sum_pieces::<T, Elements<SUM_ELEMENTS>>(keys, indices, dy, dwte, partials, &p) }
}

/// Writes the rows that `sum_pieces` has not; packs.
///
/// # Safety
/// `starts` has where the run of each row begins, and where the last ends; strips are those of [`FINISHED`] rows; the rest as
/// [`sum_pieces_packs()`](fn@sum_pieces_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn finish_rows_packs<T: Float>(
    starts: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { finish_rows::<T, Packs>(starts, partials, dwte, &p) }
}

/// Writes the rows that `sum_pieces` has not; elements.
///
/// # Safety
/// As [`finish_rows_packs()`](fn@finish_rows_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn finish_rows_elements<T: Float>(
    starts: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { finish_rows::<T, Elements<SUM_ELEMENTS>>(starts, partials, dwte, &p) }
}

/// Where a piece's partial sum of a column is: of the run from before it, or of the one that begins in it.
#[inline(always)]
fn partial(p: &Sums, piece: u32, began_before: bool, column: u32) -> usize {
    (2 * piece as usize + !began_before as usize) * p.cols as usize + column as usize
}

/// This warp's strip: which piece or row, and its lane's first column.
#[inline(always)]
fn strip<T: Float, U: Unit<T>>(p: &Sums) -> Option<(u32, u32)> {
    let strip = thread::block_idx_x() * WARPS + warp::warp_id();
    let (row, within) = p.per_row.div_rem(strip);
    let column = U::column(within, warp::lane_id());
    if strip < p.strips { Some((row, column)) } else { None }
}

#[inline(always)]
unsafe fn sum_pieces<T: Float, U: Unit<T>>(
    keys: Global<u32>,
    indices: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: &Sums,
) {
    // A whole warp leaves, so the shuffles below are full.
    let Some((piece, column)) = strip::<T, U>(p) else { return };
    let left = p.cols.saturating_sub(column);
    let (start, end) = (piece * PIECE, (piece * PIECE + PIECE).min(p.tokens));
    // SAFETY: the caller's contract; tokens beyond the piece are not looked at, columns beyond the last not accessed.
    // A run that lies within a piece is written by that piece alone.
    unsafe {
        let mut key = keys.get(start as usize);
        let mut began_before = start > 0 && keys.get(start as usize - 1) == key;
        let mut sums = [0.0; 8];
        let mut at = start;
        while at < end {
            // Each lane holds a token of the next 32.
            let mine = (at + warp::lane_id()).min(p.tokens - 1) as usize;
            let (my_key, my_index) = (keys.get(mine), indices.get(mine));
            let mut turn = 0;
            while turn < warp::SIZE && at + turn < end {
                let mut units = [U::NOTHING; DEPTH as usize];
                for i in 0..DEPTH {
                    let (index, _) = warp::warp_shuffle_idx(warp::FULL, my_index, turn + i, warp::SIZE);
                    let left = if at + turn + i < end { left } else { 0 };
                    let place = index as usize * p.cols as usize + column as usize;
                    units[i as usize] = U::load(dy, left, place);
                }
                for i in 0..DEPTH {
                    let (next, _) = warp::warp_shuffle_idx(warp::FULL, my_key, turn + i, warp::SIZE);
                    if at + turn + i < end {
                        if next != key {
                            // The run ends here.
                            let left = if key < p.rows { left } else { 0 };
                            if began_before {
                                U::store_partials(partials, left, partial(p, piece, true, column), sums);
                            } else {
                                let place = key as usize * p.cols as usize + column as usize;
                                U::store(dwte, left, place, sums);
                            }
                            (key, began_before, sums) = (next, false, [0.0; 8]);
                        }
                        U::add(&mut sums, units[i as usize]);
                    }
                }
                turn += DEPTH;
            }
            at += warp::SIZE;
        }
        let goes_on = end < p.tokens && keys.get(end as usize) == key;
        let left = if key < p.rows { left } else { 0 };
        if began_before || goes_on {
            U::store_partials(partials, left, partial(p, piece, began_before, column), sums);
        } else {
            U::store(dwte, left, key as usize * p.cols as usize + column as usize, sums);
        }
    }
}

#[inline(always)]
unsafe fn finish_rows<T: Float, U: Unit<T>>(
    starts: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: &Sums,
) {
    let Some((first, column)) = strip::<T, U>(p) else { return };
    let apart = p.rows.div_ceil(FINISHED);
    // SAFETY: the caller's contract.
    unsafe {
        // All in flight at once.
        let mut runs = [[0; 2]; FINISHED as usize];
        for i in 0..FINISHED {
            let row = (first + i * apart).min(p.rows - 1) as usize;
            runs[i as usize] = [starts.get(row), starts.get(row + 1)];
        }
        for i in 0..FINISHED {
            let row = first + i * apart;
            if row < p.rows {
                finish_row::<T, U>(runs[i as usize], partials, dwte, p, row, column);
            }
        }
    }
}

/// Writes a strip of a row whose tokens are the sorted ones from `start` to `end`, if `sum_pieces` has not.
#[inline(always)]
unsafe fn finish_row<T: Float, U: Unit<T>>(
    [start, end]: [u32; 2],
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: &Sums,
    row: u32,
    column: u32,
) {
    let left = p.cols.saturating_sub(column);
    // SAFETY: the caller's contract; columns beyond the last are not accessed. Every piece of a run that was cut has
    // written its partial sum.
    unsafe {
        let mut sums = [0.0; 8];
        if start < end {
            let (first, last) = (start / PIECE, (end - 1) / PIECE);
            if first == last {
                return; // within a piece
            }
            sums = U::load_partials(partials, left, partial(p, first, false, column));
            let mut piece = first + 1;
            while piece <= last {
                let mut parts = [[0.0; 8]; DEPTH as usize];
                for i in 0..DEPTH {
                    let left = if piece + i <= last { left } else { 0 };
                    parts[i as usize] = U::load_partials(partials, left, partial(p, piece + i, true, column));
                }
                for i in 0..DEPTH as usize {
                    for j in 0..U::COUNT {
                        sums[j] += parts[i][j]; // what is not there adds 0
                    }
                }
                piece += DEPTH;
            }
        }
        U::store(dwte, left, row as usize * p.cols as usize + column as usize, sums);
    }
}
