//! Tokens in ascending order, equal ones in the order in which they came: what the gradient sums along.
//!
//! A radix sort from the lowest digit of 8 bits up, each pass stable and without atomics, so that the order depends on
//! the tokens alone:
//!
//! 1. `count_digits`: how often each tile has each digit.
//! 2. `scan_digits`: for each digit, how often it is in the tiles before; and in all.
//! 3. `scatter`: to each key its place, from both and its rank among the tile's.
//!
//! `make_keys` makes the keys, and records tokens that have no row; their key is V, so they come last and belong to no
//! row. It also marks the rows that are chosen, if what is left of the table is to become zeros before the tokens are sorted. Where that has
//! time `mark_runs` does, with a store for each row instead of one for each token.

use super::tokens::Tokens;
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / warp::SIZE;
/// Bits of a digit.
pub const DIGIT_BITS: u32 = 8;
/// Values of a digit: a thread has one each.
pub const DIGITS: u32 = 1 << DIGIT_BITS;
const _: () = assert!(DIGITS == THREADS && WARPS == 8);
/// Keys of a thread.
const KEYS: usize = 4;
/// Keys of a block.
pub const TILE: u32 = THREADS * KEYS as u32;

/// A pass of the sort.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Keys, fewer than 2^31.
    pub count: u32,
    /// The digit's lowest bit.
    pub shift: u32,
    /// 1 where the keys lie in the order of the tokens: they are their own indices.
    pub first: u32,
}
cuda_std::plain_parameter!(Pass);

/// The key of each token: the token, or V for one that has no row. Where `marking` is not 0, `marks[row]` = 1 for the rows that are chosen.
///
/// # Safety
/// `tokens` are as `p` says and have `count`; `keys` has room for them, and `marks` for V if there is marking; `fault` is one
/// word. The grid covers the tokens.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn make_keys(
    tokens: Global<u32>,
    keys: GlobalMut<u32>,
    marks: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    count: u32,
    marking: u32,
    p: Tokens,
) {
    let number = thread::index_1d() as u32;
    if number < count {
        // SAFETY: the caller's contract.
        unsafe {
            let key = p.key(tokens, number, fault);
            if marking != 0 && key != p.vocabulary as u32 {
                marks.atomic_store(key as usize, 1, Ordering::Relaxed, Scope::Device);
            }
            keys.set(number as usize, key);
        }
    }
}

/// `counts[digit, tile]` = how often.
///
/// # Safety
/// `keys` has `p.count`; the grid has a block for each tile.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn count_digits(keys: Global<u32>, counts: GlobalMut<u32>, p: Pass) {
    // SAFETY: the caller's contract; each element has one thread between barriers.
    unsafe {
        let seen = shared_array!(embedding_digits_counted: [u32; 2048]);
        let _ = rank_tile(keys, seen, &p);
        let digit = thread::thread_idx_x();
        let mut total = 0;
        for warp in 0..WARPS {
            total += seen.get(warp * DIGITS + digit);
        }
        counts.set(digit as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize, total);
    }
}

/// Replaces each count of a digit by the sum of those before it; `totals[digit]` = the sum of all.
///
/// # Safety
/// `counts` is `[DIGITS, tiles]`, and the grid has a block for each digit.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn scan_digits(counts: GlobalMut<u32>, totals: GlobalMut<u32>, tiles: u32) {
    let (digit, thread) = (thread::block_idx_x(), thread::thread_idx_x());
    let (mut carry, mut tile) = (0, 0);
    // SAFETY: the caller's contract.
    unsafe {
        while tile < tiles {
            let inside = tile + thread < tiles;
            let at = digit as usize * tiles as usize + (tile + thread) as usize;
            let (before, all) = scan(if inside { counts.get(at) } else { 0 });
            counts.set_if(inside, at, carry + before);
            carry += all;
            tile += THREADS;
        }
        totals.set_if(thread == 0, digit as usize, carry);
    }
}

/// Puts each key, and the index of its token, in its place.
///
/// # Safety
/// `keys` and, but for the first pass, `indices` have `p.count` elements, the results too; `counts` and `totals` are
/// those of `scan_digits`; the grid has a block for each tile.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn scatter(
    keys: Global<u32>,
    indices: Global<u32>,
    counts: Global<u32>,
    totals: Global<u32>,
    sorted_keys: GlobalMut<u32>,
    sorted_indices: GlobalMut<u32>,
    p: Pass,
) {
    let thread = thread::thread_idx_x();
    // SAFETY: the caller's contract; each element of `seen` has one thread between barriers.
    unsafe {
        let seen = shared_array!(embedding_digits_placed: [u32; 2048]);
        let ranks = rank_tile(keys, seen, &p);
        // A thread a digit: where its keys of each warp begin.
        let (smaller, _) = scan(totals.get(thread as usize));
        let at = thread as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize;
        let mut place = smaller + counts.get(at);
        for warp in 0..WARPS {
            let slot = warp * DIGITS + thread;
            let count = seen.get(slot);
            seen.set(slot, place);
            place += count;
        }
        thread::sync_threads();
        for i in 0..KEYS {
            let number = place_in_tile(i);
            if number < p.count {
                let key = keys.get(number as usize);
                let place = seen.get(warp::warp_id() * DIGITS + digit(key, &p)) + ranks[i];
                sorted_keys.set(place as usize, key);
                let index = if p.first != 0 { number } else { indices.get(number as usize) };
                sorted_indices.set(place as usize, index);
            }
        }
    }
}

/// `marks[row]` = 1 for the rows of sorted keys.
///
/// # Safety
/// `keys` has `count` elements, sorted, `marks` `rows`; the grid covers the keys.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn mark_runs(keys: Global<u32>, marks: GlobalMut<u32>, count: u32, rows: u32) {
    let number = thread::index_1d() as u32;
    if number < count {
        // SAFETY: the caller's contract; a row has one run, and so one thread.
        unsafe {
            let key = keys.get(number as usize);
            let begins = number == 0 || keys.get(number as usize - 1) != key;
            marks.set_if(begins && key < rows, key as usize, 1);
        }
    }
}

#[inline(always)]
fn digit(key: u32, p: &Pass) -> u32 {
    key >> p.shift & (DIGITS - 1)
}

/// The number of this thread's key `i`: a warp has neighbouring keys, the lanes side by side.
#[inline(always)]
fn place_in_tile(i: usize) -> u32 {
    let warp = (warp::warp_id() * KEYS as u32 + i as u32) * warp::SIZE;
    thread::block_idx_x() * TILE + warp + warp::lane_id()
}

/// For each of this thread's keys, how many of its warp before it have the same digit; leaves how often each
/// warp has each digit in `seen`, behind a barrier.
///
/// # Safety
/// `seen` is `[WARPS, DIGITS]`; all threads of the block call.
#[inline(always)]
unsafe fn rank_tile(keys: Global<u32>, seen: Shared<u32>, p: &Pass) -> [u32; KEYS] {
    let (lane, of_warp) = (warp::lane_id(), warp::warp_id() * DIGITS);
    let mut ranks = [0; KEYS];
    // SAFETY: the caller's contract. A warp has its own counters: lanes read them, then one lane of each digit writes.
    unsafe {
        for warp in 0..WARPS {
            seen.set(warp * DIGITS + thread::thread_idx_x(), 0);
        }
        thread::sync_threads();
        for i in 0..KEYS {
            let number = place_in_tile(i);
            let inside = number < p.count;
            // Lanes beyond the last key share a digit that there is not.
            let digit = if inside { digit(keys.get(number as usize), p) } else { DIGITS };
            let alike = warp::warp_match_any_32(warp::FULL, digit);
            let before = if inside { seen.get(of_warp + digit) } else { 0 };
            let rank = (alike & ((1 << lane) - 1)).count_ones();
            ranks[i] = before + rank;
            warp::sync_warp(warp::FULL);
            if inside && rank == 0 {
                seen.set(of_warp + digit, before + alike.count_ones());
            }
            warp::sync_warp(warp::FULL);
        }
        thread::sync_threads();
    }
    ranks
}

/// The sum of the values of the threads before, and that of all threads of the block.
#[inline(always)]
fn scan(value: u32) -> (u32, u32) {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let mut sum = value;
    for step in [1, 2, 4, 8, 16] {
        let (below, there) = warp::warp_shuffle_up(warp::FULL, sum, step, warp::SIZE);
        sum += if there { below } else { 0 };
    }
    // SAFETY: each element has one thread between the barriers.
    unsafe {
        let of_warps = shared_array!(embedding_scan: [u32; 8]);
        if lane == warp::SIZE - 1 {
            of_warps.set(warp, sum);
        }
        thread::sync_threads();
        let (mut before, mut all) = (sum - value, 0);
        for other in 0..WARPS {
            let total = of_warps.get(other);
            before += if other < warp { total } else { 0 };
            all += total;
        }
        thread::sync_threads();
        (before, all)
    }
}
