//! Rows of probabilities that a warpgroup holds in registers, all keys at once, on Hopper.
//!
//! A block, a warpgroup, takes tiles of [`WARPGROUP_ROWS`] queries of one product, one after the other, with all its keys: their scores are
//! the sums of `wgmma`, and stay where they are. The accelerator brings the keys once, and each tile's queries while the tile before is
//! being finished. Which keys a row keeps is a bit each in shared memory, of masks, lengths, limits and the last key alike; rows that keep
//! the same share them. A row lies in four lanes, so that its maximum and its sum are two shuffles each.
//!
//! Ways out: probabilities go to shared memory as the accelerator wants them, and it writes them while the next tile is multiplied. Rows that
//! are not whole packs lie behind one another there as they do in memory, and threads copy them, in packs.
//!
//! Launch: 1-D grid, for each product the blocks of `Params::blocks`, [`warpgroup_shared_bytes`] of dynamic shared memory.
//!
//! Source: NVIDIA's CUTLASS (products of warpgroups fed by the accelerator), as a technique.

use super::kept::Ranges;
use super::kept_bits::KeptBits;
use super::key_bias::KeyBias;
use super::lying::Lying;
use super::scores::{
    BOX_BYTES, InBatch, LINE_BYTES, OF_BOX, Scores, box_at, exponentiate, factor, keep, largest, leave,
    of_row,
};
use super::{Params, form, start};
use crate::masked_softmax::finite_or_zero;
use cuda_std::barrier::{self, Barriers};
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::tile::{self, Tile};
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Queries of a tile.
pub const WARPGROUP_ROWS: u32 = 64;
/// Keys of a box, if there are as many in an instance's room.
pub const WARPGROUP_KEYS: usize = 128;
/// Terms of a box of queries and keys.
pub const WARPGROUP_TERMS: u32 = warpgroup::TERMS;
/// Columns of a box of results.
pub const WARPGROUP_COLUMNS: u32 = 64;

/// Bytes of the results on their way out. Those that lie as in memory begin at any element of a pack.
const fn room_bytes(form: usize, keys: u32) -> u32 {
    keys * WARPGROUP_ROWS * 2 + if form == form::LOOSE { 16 } else { 0 }
}

/// Bytes of shared memory of an instance of this form with room for so many keys, for sums of `terms`, with a bias or without.
pub const fn warpgroup_shared_bytes(form: usize, keys: u32, terms: u32, biased: bool) -> u32 {
    let boxes = terms.div_ceil(WARPGROUP_TERMS) * (keys + WARPGROUP_ROWS) * LINE_BYTES;
    let bias = if biased { KeyBias::bytes(keys) } else { 0 };
    boxes + room_bytes(form, keys) + KeptBits::bytes(keys) + 2 * Barriers::BYTES + bias
}

/// Computes y.
///
/// # Safety
/// The tensors are as `p` says; the maps are of them, with boxes of [`WARPGROUP_TERMS`] terms of [`WARPGROUP_ROWS`] queries and of
/// 2·`N` keys, and of [`WARPGROUP_COLUMNS`] columns of y; of the [`LOOSE`](form::LOOSE) form rows of y lie behind one another, and its map is not
/// used. There are no more keys than 2·`N`·`PIECES`; a bias is the same for all queries of a product; the grid is `p`'s, with its shared memory.
#[kernel(
    family = "attention_scores_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { FORM: 0, PIECES: 1, N: 32; threads: 128, min_blocks: 7 },
        { FORM: 0, PIECES: 1, N: 64; threads: 128, min_blocks: 4 },
        { FORM: 0, PIECES: 2, N: 64; threads: 128, min_blocks: 3 },
        { FORM: 0, PIECES: 3, N: 64; threads: 128, min_blocks: 2 },
        { FORM: 2, PIECES: 1, N: 32; threads: 128, min_blocks: 6 },
        { FORM: 2, PIECES: 1, N: 64; threads: 128, min_blocks: 4 },
        { FORM: 2, PIECES: 2, N: 64; threads: 128, min_blocks: 3 },
        { FORM: 2, PIECES: 3, N: 64; threads: 128, min_blocks: 2 },
    ],
)]
pub unsafe fn by_warpgroups<T: WarpgroupHalf, const FORM: usize, const PIECES: usize, const N: usize>(
    map_q: TensorMap,
    map_k: TensorMap,
    map_y: TensorMap,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let of_piece = 2 * N as u32;
    let keys = PIECES as u32 * of_piece;
    let (product, block) = p.blocks.div_rem(thread::block_idx_x());
    let (outer, inner) = p.inner.div_rem(product);
    let batch = InBatch { outer, inner };
    let slabs = p.terms.div_ceil(WARPGROUP_TERMS);
    // Known to be the same in all lanes.
    let warp = warp::warp_shuffle_idx(u32::MAX, thread::thread_idx_x() / 32, 0, 32).0;
    let leads = thread::thread_idx_x() == 0;
    let queries_at = slabs * keys * LINE_BYTES;
    let room = queries_at + slabs * BOX_BYTES;
    let bits_at = room + room_bytes(FORM, keys);
    // The block's rows.
    let rows_of_block = p.tiles * WARPGROUP_ROWS;
    let mut first = block * rows_of_block;
    let end = (first + rows_of_block).min(p.queries);
    // SAFETY: the caller's contract; what is overwritten in shared memory has been read by all, by the barriers.
    unsafe {
        let barriers_at = bits_at + KeptBits::bytes(keys);
        let barriers = Barriers::dynamic(barriers_at, 2);
        let (keys_full, queries_full) = (barriers.at(0), barriers.at(1));
        if leads {
            keys_full.init(1);
            queries_full.init(1);
            barrier::fence_init();
            map_q.prefetch();
            map_k.prefetch();
        }
        tile::expect_slabs();
        thread::sync_threads();
        dependent::wait();
        dependent::allow_next();
        let tile_k = |slab: u32, piece: u32| {
            let offset = (slab * keys + piece * of_piece) * LINE_BYTES;
            Tile::<T>::dynamic_slabs(offset, of_piece, LINE_BYTES / 16)
        };
        let load_queries = |first: u32| {
            queries_full.arrive_expecting(slabs * BOX_BYTES);
            for slab in 0..slabs {
                let at = batch.at(p.q, first, slab * WARPGROUP_TERMS);
                box_at::<T>(queries_at, slab).shared().load_box(0, map_q, at, queries_full);
            }
        };
        if leads {
            load_queries(first);
            keys_full.arrive_expecting(slabs * keys * LINE_BYTES);
            for slab in 0..slabs {
                for piece in 0..PIECES as u32 {
                    let at = batch.at(p.k, piece * of_piece, slab * WARPGROUP_TERMS);
                    tile_k(slab, piece).shared().load_box(0, map_k, at, keys_full);
                }
            }
        }
        let ranges = Ranges { lengths, starts, lengths_fault, starts_fault, outer, inner };
        let kept = KeptBits::new(&p, bits_at, keys, mask, &ranges);
        let y = y.offset(start(p.y, outer, inner));
        kept.fill::<FORM, PIECES, N>(&p, first, end);
        let bias = KeyBias::at(&p, barriers_at + 2 * Barriers::BYTES, keys);
        if p.has_bias() {
            bias.fill::<T>(&p, mask, outer, inner, keys);
        }
        let mut parity = 0;
        while first < end {
            let row_of = |half: usize| warp * 16 + (half * 8) as u32 + warp::lane_id() / 4;
            let next = first + WARPGROUP_ROWS;
            queries_full.wait(parity);
            keys_full.wait(0);
            let mut scores: Scores<PIECES, N> = [warpgroup::unset(); PIECES];
            let mut multiply = |slab: u32, more: bool| {
                let of_q = box_at::<T>(queries_at, slab).rows_along_terms(0);
                for piece in 0..PIECES {
                    let of_k = tile_k(slab, piece as u32).rows_along_terms(0);
                    T::multiply_tiles::<N, 0, 0>(&mut scores[piece], of_q, of_k, more);
                }
            };
            // By itself, so that scores need not be set before.
            multiply(0, false);
            let mut slab = 1;
            while slab < slabs {
                multiply(slab, true);
                slab += 1;
            }
            for piece in 0..PIECES {
                warpgroup::finish(&mut scores[piece]);
            }
            // The queries have been read, and the bits are there.
            thread::sync_threads();
            if leads && next < end {
                load_queries(next);
            }
            parity ^= 1;
            if p.has_bias() {
                bias.add(&p, &mut scores);
            } else if p.scale != 1.0 {
                for half in 0..2 {
                    of_row(&mut scores, half, |_, score| score * p.scale);
                }
            }
            if kept.exist(&p) {
                for half in 0..2 {
                    keep(&mut scores, half, |number| kept.word(&p, row_of(half), number));
                }
            }
            let maxima = [0, 1].map(|half| finite_or_zero(warp::max::<f32, 4>(largest(&scores, half))));
            let sums = exponentiate(&p, &mut scores, maxima).map(warp::sum::<f32, 4>);
            let factors = sums.map(factor);
            if const { FORM == form::LOOSE } {
                let rows = if end - first < WARPGROUP_ROWS { end - first } else { WARPGROUP_ROWS };
                let lies = Lying::<T>::new(y, &p, first, rows, room);
                thread::sync_threads();
                lies.leave(&p, row_of, &scores, factors);
                spoil(&p, kept, row_of, factors, |row, key, value: T| lies.set(&p, row, key, value));
                thread::sync_threads();
                lies.copy();
            } else {
                if leads {
                    tma::wait_stores_read::<0>();
                }
                thread::sync_threads();
                for number in 0..PIECES * N / OF_BOX {
                    let (piece, of_piece) = (number / (N / OF_BOX), number % (N / OF_BOX) * OF_BOX);
                    leave(box_at::<T>(room, number as u32), warp, &scores[piece], of_piece, factors);
                }
                spoil(&p, kept, row_of, factors, |row, key, value: T| {
                    let tile = box_at::<T>(room, key / WARPGROUP_COLUMNS);
                    let at = tile.place(row, key % WARPGROUP_COLUMNS / 8) + key % 8;
                    tile.shared().set(at, value);
                });
                tma::fence_writes();
                thread::sync_threads();
                for number in 0..(PIECES * N / OF_BOX) as u32 {
                    let column = number * WARPGROUP_COLUMNS;
                    let at = batch.at(p.y, first, column);
                    box_at::<T>(room, number).shared().store_box_if(leads && column < p.keys, 0, map_y, at);
                }
                tma::commit_stores();
            }
            // While no scores take registers.
            if kept.are_by_row(&p) && next < end {
                kept.fill::<FORM, PIECES, N>(&p, next, end);
            }
            first = next;
        }
        tma::wait_stores_read::<0>();
    }
}

/// Writes rows that are NaN anew: 0 at keys that are masked, which look like what is kept and infinitely small until then.
///
/// # Safety
/// The bits are there, and nobody else writes to these rows. All lanes call.
#[inline(always)]
unsafe fn spoil<T: Half>(
    p: &Params,
    kept: KeptBits,
    row_of: impl Fn(usize) -> u32,
    factors: [f32; 2],
    set: impl Fn(u32, u32, T),
) {
    // Other lanes have written a lane's results.
    warp::sync_warp(u32::MAX);
    for half in 0..2 {
        if factors[half].is_nan() {
            let row = row_of(half);
            let mut key = warp::lane_id() % 4;
            while key < p.keys {
                // SAFETY: the caller's contract.
                let keeps = unsafe { kept.keeps(p, row, key) };
                set(row, key, T::from_f32(if keeps { f32::NAN } else { 0.0 }));
                key += 4;
            }
        }
    }
}
