//! [`loose()`](fn@loose): small tiles of operands that begin anywhere, which threads fetch; [`clusters`](super::clusters) tells the rest.

use super::clusters::{Room, WARPS, begin, part_of, share_of};
use super::finish::{Finish, Tensors};
use super::part::PIPELINED_DEPTH;
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use super::{Matrix, Product};
use cuda_std::bits;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile::Tile;
use cuda_std::tma;
use cuda_std::warpgroup::WarpgroupHalf;

/// Warps of the block that fetch, and rows of a box that each of them takes.
const FETCHERS: u32 = 4;
const ROWS_OF_FETCHER: usize = (ROWS / FETCHERS) as usize;
/// Numbers of a row of a box: two for each lane.
const BOX: u32 = 64;

/// An operand that a warp of [`loose()`](fn@loose) fetches: `rows` rows, `step` elements apart, of `cols` neighbours.
#[derive(Clone, Copy)]
struct Source<T, const ALONG_K: usize> {
    of: Global<T>,
    step: i64,
    rows: u32,
    cols: u32,
    /// Whether the rows that this warp takes of a box start at multiples of four bytes: each takes every fourth row, so
    /// that they are alike.
    even: bool,
}

impl<T: Half, const ALONG_K: usize> Source<T, ALONG_K> {
    /// `lines` lines of `terms` terms.
    #[inline(always)]
    fn new(of: Global<T>, matrix: Matrix, (lines, terms): (u32, u32), fetcher: u32) -> Self {
        let (step, rows, cols) =
            if const { ALONG_K == 1 } { (matrix.row, lines, terms) } else { (matrix.col, terms, lines) };
        let even = (of.address() / 2 + (step as u64).wrapping_mul(fetcher as u64)).is_multiple_of(2);
        Source { of, step, rows, cols, even }
    }

    /// A lane's pairs of the warp's rows of the box from line `line` and term `term` on, both multiples of 64.
    ///
    /// # Safety
    /// The elements are there.
    #[inline(always)]
    #[track_caller]
    unsafe fn fetch(self, line: u32, term: u32, fetcher: u32) -> [u32; ROWS_OF_FETCHER] {
        let (first_row, first_col) = if const { ALONG_K == 1 } { (line, term) } else { (term, line) };
        // What is compared in each stage anew, and the address that goes on from row to row, take no registers during the
        // others; hence a zero of which the compiler does not know that it is one.
        let zero = bits::opaque(term).wrapping_sub(term);
        let (row, col) = (first_row + fetcher, first_col + warp::lane_id() * 2 + zero);
        let rows = self.rows.saturating_sub(row);
        let of = |when: bool| if when { rows } else { 0 };
        // Up to which row there are both numbers at four bytes, the left one by itself, the right one.
        let both = of(self.even && col + 1 < self.cols);
        let left = of(col < self.cols && !(self.even && col + 1 < self.cols));
        let right = of(col + 1 < self.cols && !self.even);
        let mut at = bits::opaque_64((row as i64 * self.step + col as i64) as u64);
        let mut words = [0; ROWS_OF_FETCHER];
        for i in 0..ROWS_OF_FETCHER {
            let row = i as u32 * FETCHERS;
            // SAFETY: within the rows; four bytes at once where they are aligned.
            words[i] = unsafe {
                let both = self.of.get_4_if(row < both, at as usize, 0);
                let left = self.of.get_bits_if(row < left, at as usize, 0);
                let right = self.of.get_bits_if(row < right, at as usize + 1, 0);
                both | left | right << 16
            };
            at = bits::opaque_64(at.wrapping_add((self.step * FETCHERS as i64) as u64));
        }
        words
    }
}

/// Writes what [`Source::fetch`] gave for box `number` of a tile.
///
/// # Safety
/// The box is there and may be overwritten.
#[inline(always)]
#[track_caller]
unsafe fn put<T: Half>(tile: Tile<T>, offset: u32, fetcher: u32, words: [u32; ROWS_OF_FETCHER]) {
    let lane = warp::lane_id();
    // SAFETY: the caller's contract.
    unsafe {
        let box_words = Shared::<u32>::dynamic(offset, BOX * BOX / 2);
        for i in 0..ROWS_OF_FETCHER {
            let place = tile.place(fetcher + i as u32 * FETCHERS, lane / 4);
            box_words.set(place / 2 + lane % 4, words[i]);
        }
    }
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`; the grid is as the module says, with its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { SUMS: 32, STAGES: 5, A_K: 1, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 32, STAGES: 5, A_K: 1, B_K: 0; threads: 256, min_blocks: 2 },
        { SUMS: 32, STAGES: 5, A_K: 0, B_K: 1; threads: 256, min_blocks: 2 },
        { SUMS: 32, STAGES: 5, A_K: 0, B_K: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn loose<
    T: WarpgroupHalf,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let cols = 2 * SUMS as u32;
    const { assert!(2 * SUMS as u32 == BOX) };
    // SAFETY: as above; a stage is full when all warps that fetch have made what they wrote visible, and arrived.
    unsafe {
        if p.is_nothing() {
            return;
        }
        let (place, k, turns) = part_of::<T>(&p);
        let (first_row, first_col) = (place.tile_row * ROWS, place.tile_col * cols);
        let (share, warps) = (share_of(ROWS, first_row, p.epilogue.m), [FETCHERS, WARPS]);
        let room = Room::<STAGES, A_K, B_K>::new(ROWS, cols, &p, share, warps, || ());
        begin();
        if warp::warp_id() >= WARPS {
            let (fetcher, lane) = (warp::warp_id() - WARPS, warp::lane_id());
            let (m, n) = (p.epilogue.m, p.epilogue.n);
            let of_a = Source::<T, A_K>::new(a.offset(place.of(p.a)), p.a, (m, p.k), fetcher);
            let of_b = Source::<T, B_K>::new(b.offset(place.of(p.b)), p.b, (n, p.k), fetcher);
            let mut turn = Turn::<STAGES>::first();
            let (mut held_a, mut held_b) =
                (of_a.fetch(first_row, k, fetcher), of_b.fetch(first_col, k, fetcher));
            let mut done = 0;
            while done < turns {
                done += 1;
                // Those of the next stage come while these are written; beyond the terms there are none.
                let ahead = k + done * PIPELINED_DEPTH;
                let next = (of_a.fetch(first_row, ahead, fetcher), of_b.fetch(first_col, ahead, fetcher));
                room.ring.empty(turn.stage()).wait(turn.parity() ^ 1);
                let (tile_a, tile_b) = room.tiles::<T>(turn.stage());
                let offset = turn.stage() * room.stage_bytes();
                put(tile_a, offset, fetcher, held_a);
                put(tile_b, offset + room.part_a.bytes(), fetcher, held_b);
                tma::fence_writes();
                warp::sync_warp(u32::MAX);
                room.ring.full(turn.stage()).arrive_if(lane == 0);
                (held_a, held_b) = next;
                turn = turn.next();
            }
            warp::sync_warp(u32::MAX);
        } else {
            room.multiply::<T, SUMS, false>(turns);
        }
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        room.finish::<T, SUMS, false>(finish, (first_row, first_col), (WARPS + FETCHERS) * 32);
    }
}
