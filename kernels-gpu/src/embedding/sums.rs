//! dwte: for each row of the table, the sum of dy over the tokens that chose it.
//!
//! Sorted, the tokens of a row are a run; a text's frequent words make runs of some percent of all tokens, so runs are
//! cut. `sum_pieces`: a piece is some sorted tokens, whichever rows they belong to, and a warp sums a strip of columns
//! of it from its first token to its last. A run that lies within the piece is a row of dwte, which it writes. Of a run
//! that goes on beyond it writes the partial sum in f32: partials [pieces, 2, cols], first that of the run that began
//! before the piece, then that of the run that begins in it. `finish_runs`: where a run that goes on begins, its partial
//! sums are added up, from the first piece to the last. `zero_rows`: the rows that no token chose, which
//! `make_keys` has marked; of a large table most of what is written, beside all the rest.
//!
//! The order of additions depends on the tokens alone: the same input gives the same bits.

use super::boundaries::last_of_warp;
use super::unit::{Elements, Packs, Unit};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Elements of a lane where rows are not whole packs.
pub const SUM_ELEMENTS: usize = 4;
/// Warps of a block.
pub(super) const WARPS: u32 = 4;
/// And of one that writes zeros: as many as can be, so that few multiprocessors write. What else runs on these waits behind their stores.
const ZERO_WARPS: u32 = 32;
/// Strips of zeros of a warp at a time.
pub const ZERO_STRIPS: u32 = 4;
/// Loads of a thread in flight.
const DEPTH: u32 = 4;
/// And of one that adds up partial sums, of which a frequent token has many.
const FINISH_DEPTH: u32 = 8;
const _: () = assert!(warp::SIZE.is_multiple_of(DEPTH));

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
    /// Tokens of a piece.
    pub piece: u32,
    /// Strips of all pieces, or of all rows.
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
    unsafe { sum_pieces::<T, Packs>(keys, indices, dy, dwte, partials, &p, thread::block_idx_x()) }
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
    unsafe {
        sum_pieces::<T, Elements<SUM_ELEMENTS>>(keys, indices, dy, dwte, partials, &p, thread::block_idx_x())
    }
}

/// Writes the rows whose runs were cut; packs.
///
/// # Safety
/// `keys` are the sorted tokens, `partials` what [`sum_pieces_packs()`](fn@sum_pieces_packs) wrote; the grid has a warp for each strip,
/// and the rest is as there.
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn finish_runs_packs<T: Float>(
    keys: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { finish_runs::<T, Packs>(keys, partials, dwte, &p) }
}

/// Writes the rows whose runs were cut; elements.
///
/// # Safety
/// As [`finish_runs_packs()`](fn@finish_runs_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 128, min_blocks: 8 }])]
pub unsafe fn finish_runs_elements<T: Float>(
    keys: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: Sums,
) {
    // SAFETY: the caller's contract.
    unsafe { finish_runs::<T, Elements<SUM_ELEMENTS>>(keys, partials, dwte, &p) }
}

/// Writes zeros in the rows that no token chose; packs.
///
/// # Safety
/// `marks` is not 0 for the others, dwte has `p.rows`; strips are those of the rows, the grid is any.
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 1024 }])]
pub unsafe fn zero_rows_packs<T: Float>(marks: Global<u32>, dwte: GlobalMut<T>, p: Sums) {
    // SAFETY: the caller's contract.
    unsafe { zero_rows::<T, Packs>(marks, dwte, &p, zeroing_warp(), thread::grid_dim_x() * ZERO_WARPS) }
}

/// Writes zeros in the rows that no token chose; elements.
///
/// # Safety
/// As [`zero_rows_packs()`](fn@zero_rows_packs).
#[kernel(family = "embedding", types = [f32, f16, bf16], instances = [{ ; threads: 1024 }])]
pub unsafe fn zero_rows_elements<T: Float>(marks: Global<u32>, dwte: GlobalMut<T>, p: Sums) {
    // SAFETY: the caller's contract.
    unsafe {
        let warps = thread::grid_dim_x() * ZERO_WARPS;
        zero_rows::<T, Elements<SUM_ELEMENTS>>(marks, dwte, &p, zeroing_warp(), warps)
    }
}

/// Where a piece's partial sum of a column is: of the run from before it, or of the one that begins in it.
#[inline(always)]
fn partial(p: &Sums, piece: u32, began_before: bool, column: u32) -> usize {
    (2 * piece as usize + !began_before as usize) * p.cols as usize + column as usize
}

/// This warp's strip in a block: which piece or row, and its lane's first column.
#[inline(always)]
fn strip<T: Float, U: Unit<T>>(p: &Sums, block: u32) -> Option<(u32, u32)> {
    let strip = block * WARPS + warp::warp_id();
    let (row, within) = p.per_row.div_rem(strip);
    let column = U::column(within, warp::lane_id());
    if strip < p.strips { Some((row, column)) } else { None }
}

/// A block's strips of pieces.
///
/// # Safety
/// As [`sum_pieces_packs()`](fn@sum_pieces_packs), with one such block for every WARPS strips.
#[inline(always)]
pub(super) unsafe fn sum_pieces<T: Float, U: Unit<T>>(
    keys: Global<u32>,
    indices: Global<u32>,
    dy: Global<T>,
    dwte: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: &Sums,
    block: u32,
) {
    // A whole warp leaves, so the shuffles below are full.
    let Some((piece, column)) = strip::<T, U>(p, block) else { return };
    let left = p.cols.saturating_sub(column);
    let (start, end) = (piece * p.piece, (piece * p.piece + p.piece).min(p.tokens));
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
unsafe fn finish_runs<T: Float, U: Unit<T>>(
    keys: Global<u32>,
    partials: Global<f32>,
    dwte: GlobalMut<T>,
    p: &Sums,
) {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    // A block's strips lie far apart: those of a long run come to different ones.
    let strip_of = |warp: u32| thread::block_idx_x() + warp * thread::grid_dim_x();
    // SAFETY: the caller's contract; columns beyond the last are not accessed. Every piece of a run that was cut has
    // written its partial sum. Shared memory is written and read between barriers.
    unsafe {
        let lengths = shared_array!(embedding_pieces_of_runs: [u32; 4]);
        let of_warps = shared_array!(embedding_sums_of_warps: [f32; 1024]);
        let (piece, within) = p.per_row.div_rem(strip_of(warp));
        let (key, length) = cut_run(keys, p, if strip_of(warp) < p.strips { piece } else { p.tokens });
        if lane == 0 {
            lengths.set(warp, length);
        }
        if length > 0 && length <= FINISH_DEPTH {
            let column = U::column(within, lane);
            let left = p.cols.saturating_sub(column);
            let mut sums = U::load_partials(partials, left, partial(p, piece, false, column));
            add_partials::<T, U>(&mut sums, partials, p, [piece + 1, piece + 1 + length], column);
            U::store(dwte, left, key as usize * p.cols as usize + column as usize, sums);
        }
        thread::sync_threads();
        for run in 0..WARPS {
            let length = lengths.get(run);
            if length > FINISH_DEPTH {
                // Each warp has some of the pieces that the run began before, one behind the other.
                let (piece, within) = p.per_row.div_rem(strip_of(run));
                let column = U::column(within, lane);
                let left = p.cols.saturating_sub(column);
                let of_warp = length.div_ceil(WARPS);
                let first = (piece + 1 + warp * of_warp).min(piece + 1 + length);
                let end = (first + of_warp).min(piece + 1 + length);
                let mut sums = [0.0; 8];
                if warp == 0 {
                    sums = U::load_partials(partials, left, partial(p, piece, false, column));
                }
                add_partials::<T, U>(&mut sums, partials, p, [first, end], column);
                for j in 0..U::COUNT {
                    of_warps.set((warp * 8 + j as u32) * warp::SIZE + lane, sums[j]);
                }
                thread::sync_threads();
                if warp == 0 {
                    for other in 1..WARPS {
                        for j in 0..U::COUNT {
                            sums[j] += of_warps.get((other * 8 + j as u32) * warp::SIZE + lane);
                        }
                    }
                    let key = keys.get((piece * p.piece + p.piece - 1) as usize);
                    U::store(dwte, left, key as usize * p.cols as usize + column as usize, sums);
                }
                thread::sync_threads();
            }
        }
    }
}

/// Adds partial sums of pieces that a run began before, from one up to another.
///
/// # Safety
/// The pieces have written them.
#[inline(always)]
unsafe fn add_partials<T: Float, U: Unit<T>>(
    sums: &mut [f32; 8],
    partials: Global<f32>,
    p: &Sums,
    [mut at, end]: [u32; 2],
    column: u32,
) {
    let left = p.cols.saturating_sub(column);
    while at < end {
        let mut parts = [[0.0; 8]; FINISH_DEPTH as usize];
        for i in 0..FINISH_DEPTH {
            let left = if at + i < end { left } else { 0 };
            // SAFETY: the caller's contract.
            parts[i as usize] = unsafe { U::load_partials(partials, left, partial(p, at + i, true, column)) };
        }
        for i in 0..FINISH_DEPTH as usize {
            for j in 0..U::COUNT {
                sums[j] += parts[i][j]; // what is not there adds 0
            }
        }
        at += FINISH_DEPTH;
    }
}

/// The key of the run that begins in a piece and goes on beyond, and in how many pieces behind it; in none if there is no such run, of a row.
///
/// # Safety
/// All lanes of the warp call; `keys` are the sorted tokens.
#[inline(always)]
unsafe fn cut_run(keys: Global<u32>, p: &Sums, piece: u32) -> (u32, u32) {
    let (start, end) = (piece as u64 * p.piece as u64, piece as u64 * p.piece as u64 + p.piece as u64);
    if end >= p.tokens as u64 {
        return (0, 0);
    }
    // SAFETY: the caller's contract.
    unsafe {
        let key = keys.get(end as usize - 1);
        let goes_on = keys.get(end as usize) == key;
        let began_before = start > 0 && keys.get(start as usize - 1) == key;
        if !goes_on || began_before || key >= p.rows {
            return (0, 0);
        }
        let has_run = |at: u32| at == piece || keys.get((at * p.piece) as usize) == key;
        (key, last_of_warp(piece, p.per_row.div_rem(p.strips).0, has_run) - piece)
    }
}

/// This warp's number among all.
#[inline(always)]
fn zeroing_warp() -> u32 {
    thread::block_idx_x() * ZERO_WARPS + warp::warp_id()
}

/// Zeros in the strips of a warp of so many.
///
/// # Safety
/// As [`zero_rows_packs()`](fn@zero_rows_packs).
#[inline(always)]
pub(super) unsafe fn zero_rows<T: Float, U: Unit<T>>(
    marks: Global<u32>,
    dwte: GlobalMut<T>,
    p: &Sums,
    warp: u32,
    warps: u32,
) {
    let mut first = warp * ZERO_STRIPS;
    while first < p.strips {
        let mut chosen = [0; ZERO_STRIPS as usize];
        // SAFETY: the caller's contract; of strips beyond the last nothing is written, nor of columns.
        unsafe {
            // All in flight at once.
            for i in 0..ZERO_STRIPS as usize {
                let (row, _) = p.per_row.div_rem(first + i as u32);
                chosen[i] = marks.get(row.min(p.rows - 1) as usize);
            }
            for i in 0..ZERO_STRIPS {
                let (row, within) = p.per_row.div_rem(first + i);
                let column = U::column(within, warp::lane_id());
                let left = if first + i < p.strips && chosen[i as usize] == 0 {
                    p.cols.saturating_sub(column)
                } else {
                    0
                };
                U::store(dwte, left, row as usize * p.cols as usize + column as usize, [0.0; 8]);
            }
        }
        first += warps * ZERO_STRIPS;
    }
}
