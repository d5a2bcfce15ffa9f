//! Tokens in ascending order, as `sort` has them, where they are so few that each may be looked for in all the others: two
//! launches instead of seven.
//!
//! 1. `sort_tiles` does what `make_keys` does, and puts each key behind those of its tile that are smaller, or equal and before it.
//! 2. `merge_tiles`: a key's place is that in its tile, and for each other tile the number of keys that come before it, by a binary
//!    search. Equal keys of tiles before come before, those of tiles behind do not, so that the sort is stable.

use super::tokens::Tokens;
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;

/// Keys of a tile.
pub const MERGE_TILE: u32 = 256;
/// Threads of a block.
const THREADS: u32 = 256;
/// Lanes that look for a key, each in its own tiles.
const PARTS: u32 = 4;
/// Keys that a block of `merge_tiles` puts in their places.
pub const MERGE_KEYS: u32 = THREADS / PARTS;
/// Tiles that it has in shared memory at a time.
const TILES: u32 = 32;
/// Tiles in which a lane searches at once.
const SEARCHES: usize = 4;
/// Words from tile to tile in shared memory: the lanes of a key read from banks of their own.
const STRIDE: u32 = MERGE_TILE + 4;
/// The key of places behind the last token.
const NO_KEY: u32 = u32::MAX - 1;
const _: () = assert!(THREADS == MERGE_TILE && STRIDE * TILES == 8320);

/// The keys of each tile in order, `indices` their tokens' numbers. Keys, and marks, are those of [`make_keys()`](fn@super::make_keys).
///
/// # Safety
/// As there; `keys` and `indices` have room for whole tiles, and the grid has a block for each.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sort_tiles(
    tokens: Global<u32>,
    keys: GlobalMut<u32>,
    indices: GlobalMut<u32>,
    marks: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    count: u32,
    rows: u32,
    p: Tokens,
) {
    let (thread, number) = (thread::thread_idx_x(), thread::index_1d() as u32);
    // SAFETY: the caller's contract; shared memory is written before the barrier, and read behind it.
    unsafe {
        let tile = shared_array!(embedding_tile: [u32; 256]);
        let mut key = NO_KEY;
        if number < count {
            key = p.key(tokens, number, fault);
        }
        tile.set(thread, key);
        let mut row = thread::index_1d();
        while row < rows as u64 {
            marks.set(row as usize, 0);
            row += thread::grid_dim_x() as u64 * THREADS as u64;
        }
        thread::sync_threads();
        let (mut rank, mut at) = (0, 0);
        while at < MERGE_TILE {
            let others = tile.get_pack(at);
            for i in 0..4 {
                rank += (others[i] < key + (at + (i as u32) < thread) as u32) as u32;
            }
            at += 4;
        }
        let place = (thread::block_idx_x() * MERGE_TILE + rank) as usize;
        keys.set(place, key);
        indices.set(place, number);
    }
}

/// Puts the keys of sorted tiles, and their indices, in their places among all.
///
/// # Safety
/// `keys` and `indices` are what [`sort_tiles()`](fn@sort_tiles) wrote of so many tokens, the results have room for these; the grid has
/// a block for each [`MERGE_KEYS`] places of the tiles.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn merge_tiles(
    keys: Global<u32>,
    indices: Global<u32>,
    sorted_keys: GlobalMut<u32>,
    sorted_indices: GlobalMut<u32>,
    marks: GlobalMut<u32>,
    count: u32,
    rows: u32,
) {
    let tiles = count.div_ceil(MERGE_TILE);
    let (thread, part) = (thread::thread_idx_x(), thread::thread_idx_x() % PARTS);
    let at = thread::block_idx_x() * MERGE_KEYS + thread / PARTS;
    let own = at / MERGE_TILE;
    // SAFETY: the caller's contract; shared memory is written and read between barriers.
    unsafe {
        let seen = shared_array!(embedding_tiles: [u32; 8320]);
        let key = keys.get(at as usize);
        let index = indices.get(at as usize);
        let mut rank = if part == 0 { at % MERGE_TILE } else { 0 };
        let mut first = 0;
        while first < tiles {
            let here = (tiles - first).min(TILES);
            if first > 0 {
                thread::sync_threads();
            }
            let mut pack = thread;
            while pack < TILES * (MERGE_TILE / 4) {
                let (tile, within) = (pack / (MERGE_TILE / 4), pack % (MERGE_TILE / 4));
                let place = (first + tile) * MERGE_TILE + 4 * within;
                let words = keys.get_pack_if(tile < here, place as usize, NO_KEY);
                seen.set_pack(tile * STRIDE + 4 * within, words);
                pack += THREADS;
            }
            thread::sync_threads();
            let mut tile = part;
            while tile < here {
                rank += keys_before(seen, key, first, tile, own);
                tile += PARTS * SEARCHES as u32;
            }
            first += TILES;
        }
        rank += warp::warp_shuffle_xor(warp::FULL, rank, 1, warp::SIZE).0;
        rank += warp::warp_shuffle_xor(warp::FULL, rank, 2, warp::SIZE).0;
        let placed = part == 0 && index < count;
        sorted_keys.set_if(placed, rank as usize, key);
        sorted_indices.set_if(placed, rank as usize, index);
        // The first of each tile for all.
        let first = at.is_multiple_of(MERGE_TILE) || keys.get(at as usize - 1) != key;
        if placed && first && key < rows {
            marks.atomic_store(key as usize, 1, Ordering::Relaxed, Scope::Device);
        }
    }
}

/// How many keys come before this one in tile `tile` and in each PARTS-th behind it, SEARCHES in all, of those in shared memory, the first
/// of which is tile `first`; in its own tile none.
///
/// # Safety
/// `seen` has TILES sorted tiles.
#[inline(always)]
unsafe fn keys_before(seen: Shared<u32>, key: u32, first: u32, tile: u32, own: u32) -> u32 {
    let (mut bounds, mut places) = ([0; SEARCHES], [0; SEARCHES]);
    for i in 0..SEARCHES {
        let tile = tile + PARTS * i as u32;
        let bound = key + (first + tile < own) as u32;
        bounds[i] = if first + tile == own { 0 } else { bound };
        places[i] = tile * STRIDE;
    }
    let base = places;
    let mut step = MERGE_TILE / 2;
    // SAFETY: the caller's contract; places stay within their tiles.
    unsafe {
        while step > 0 {
            for i in 0..SEARCHES {
                let before = seen.get(places[i] + step - 1) < bounds[i];
                places[i] += if before { step } else { 0 };
            }
            step /= 2;
        }
        let mut count = 0;
        for i in 0..SEARCHES {
            count += places[i] - base[i] + (seen.get(places[i]) < bounds[i]) as u32;
        }
        count
    }
}
