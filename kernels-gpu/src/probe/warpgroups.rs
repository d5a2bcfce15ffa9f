//! What products on Hopper are made of: boxes of tensor maps, rings of barriers, tiles and a warpgroup's products.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

use cuda_std::barrier::{self, Barriers};
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile::{self, Tile};
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Extents of the box that [`boxes()`](fn@boxes) copies: elements of a line, which are 128 bytes, and lines.
pub const BOX: [u32; 2] = [64, 16];

/// Copies the box at (`x`, `y`) of one tensor to shared memory, by way of L2, adds 1 to each element's bits, and copies it to the same place
/// of another tensor; `seen` is what the box was like.
///
/// # Safety
/// One block; the boxes of both maps are [`BOX`], and `seen` has as many elements; `x` and `y` are not below 0.
#[kernel(family = "probe", types = [f16, bf16], instances = [{ ; threads: 128 }], requires = "sm_90a")]
pub unsafe fn boxes<T: Half>(from: TensorMap, to: TensorMap, seen: GlobalMut<T>, x: i32, y: i32) {
    let thread = thread::thread_idx_x();
    let at = [x, y, 0, 0];
    // SAFETY: barriers lie between the copies, the changes and the copies; the thread that stores waits before it ends.
    unsafe {
        let tile = Tile::<T>::dynamic_slabs(0, BOX[1], 8);
        let come = Barriers::dynamic(BOX[0] * BOX[1] * 2, 1).at(0);
        tile::expect_slabs();
        if thread == 0 {
            from.prefetch();
            to.prefetch();
            from.prefetch_box(at);
            come.init(1);
            barrier::fence_init();
            come.arrive_expecting(BOX[0] * BOX[1] * 2);
            tile.shared().load_box(0, from, at, come);
        }
        thread::sync_threads();
        come.wait(0);
        let (line, pack) = (thread / 8, thread % 8);
        for element in 0..8 {
            let place = tile.place(line, pack) + element;
            let value = tile.shared().get(place);
            seen.set((line * BOX[0] + pack * 8 + element) as usize, value);
            tile.shared().set(place, T::from_bits((value.bits() + 1) & 0xffff));
        }
        tma::fence_writes();
        thread::sync_threads();
        tile.shared().store_box_if(thread == 0, 0, to, at);
        tma::commit_stores();
        tma::wait_stores_read::<0>();
    }
}

/// Stages of [`rounds()`](fn@rounds).
const STAGES: usize = 3;

/// y = x, word by word: the first warp writes 32 words at a time to the stages of a ring, the second copies them on, lanes reversed.
///
/// # Safety
/// One block with 32 words of shared memory a stage and [`Ring::BYTES`] behind; `x` and `y` have 32 words for each of `turns`.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn rounds(x: Global<u32>, y: GlobalMut<u32>, turns: u32) {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    // SAFETY: a stage is written between the ends of a phase of *empty* and of *full*, and read between those of *full* and of the next of *empty*.
    unsafe {
        let words = Shared::<u32>::dynamic(0, STAGES as u32 * 32);
        let ring = Ring::<STAGES>::dynamic(STAGES as u32 * 128);
        if thread::thread_idx_x() == 0 {
            ring.init(32, 1);
        }
        thread::sync_threads();
        let mut turn = Turn::<STAGES>::first();
        for number in 0..turns {
            let at = (number * 32 + lane) as usize;
            let slot = turn.stage() * 32;
            if warp == 0 {
                ring.empty(turn.stage()).wait(turn.parity() ^ 1);
                words.set(slot + lane, x.get(at));
                ring.full(turn.stage()).arrive_if(true);
            } else {
                ring.full(turn.stage()).wait(turn.parity());
                y.set(at, words.get(slot + 31 - lane));
                warp::sync_warp(warp::FULL);
                ring.empty(turn.stage()).arrive_if(lane == 0);
            }
            turn = turn.next();
        }
    }
}

/// Stores four 8×8 matrices of a warp by `stmatrix`: word i of lane l is 4·l + i twice over, plus 1 in the upper half.
/// `TRANSPOSED` is 1 where rows in memory are columns of these.
///
/// # Safety
/// One block with 512 bytes of shared memory; `y` has 256 elements.
#[kernel(
    family = "probe",
    types = [f16, bf16],
    instances = [{ TRANSPOSED: 0; threads: 32 }, { TRANSPOSED: 1; threads: 32 }],
    requires = "sm_90a",
)]
pub unsafe fn stored_matrices<T: Half, const TRANSPOSED: usize>(y: GlobalMut<T>) {
    let lane = warp::lane_id();
    let word = |i: u32| {
        let number = 2 * (4 * lane + i);
        number | (number + 1) << 16
    };
    // SAFETY: a warp's barrier lies between the writes and the reads.
    unsafe {
        let tile = Shared::<T>::dynamic(0, 256);
        let words = [word(0), word(1), word(2), word(3)];
        if const { TRANSPOSED == 1 } {
            tile.store_matrices::<true>(8 * lane, words);
        } else {
            tile.store_matrices::<false>(8 * lane, words);
        }
        warp::sync_warp(warp::FULL);
        y.set_pack_if(true, 8 * lane as usize, tile.get_pack(8 * lane));
    }
}

/// Rows, columns and terms of the product of [`tile_products()`](fn@tile_products).
pub const PRODUCT: u32 = 64;

/// c + 2·A·B in two issues, 64×64×64; `a` is rows by terms where `A` is 0, else terms by rows, and `b` likewise of columns.
///
/// # Safety
/// One block with 16 KB of shared memory; each matrix has its elements.
#[kernel(
    family = "probe",
    types = [f16, bf16],
    instances = [
        { A: 0, B: 0; threads: 128 }, { A: 0, B: 1; threads: 128 },
        { A: 1, B: 0; threads: 128 }, { A: 1, B: 1; threads: 128 },
    ],
    requires = "sm_90a",
)]
pub unsafe fn tile_products<T: WarpgroupHalf, const A: usize, const B: usize>(
    a: Global<T>,
    b: Global<T>,
    c: GlobalMut<f32>,
) {
    let (thread, lane) = (thread::thread_idx_x(), warp::lane_id());
    // SAFETY: copies are waited for and made visible before the products, which are finished before the sums are used.
    unsafe {
        let (tile_a, tile_b) = (
            Tile::<T>::dynamic_slabs(0, PRODUCT, 8),
            Tile::<T>::dynamic_slabs(PRODUCT * PRODUCT * 2, PRODUCT, 8),
        );
        tile::expect_slabs();
        for turn in 0..4 {
            let number = turn * 128 + thread;
            let (row, pack) = (number / 8, number % 8);
            tile_a.copy_async_if(tile_a.place(row, pack), a, 8 * number as usize, true);
            tile_b.copy_async_if(tile_b.place(row, pack), b, 8 * number as usize, true);
        }
        async_copy::commit();
        async_copy::wait::<0>();
        warpgroup::fence_copies();
        thread::sync_threads();
        let of_a = if const { A == 0 } { tile_a.rows_along_terms(0) } else { tile_a.columns_along_lines(0) };
        let of_b = if const { B == 0 } { tile_b.rows_along_terms(0) } else { tile_b.columns_along_lines(0) };
        let mut sums = [0.0f32; PRODUCT as usize / 2];
        multiply::<T, A, B>(&mut sums, of_a, of_b, false);
        multiply::<T, A, B>(&mut sums, of_a, of_b, true);
        warpgroup::wait::<1>();
        warpgroup::finish(&mut sums);
        for i in 0..const { PRODUCT as usize / 2 } {
            let number = i as u32;
            let row = 16 * (thread / 32) + lane / 4 + number / 2 % 2 * 8;
            let column = 8 * (number / 4) + 2 * (lane % 4) + number % 2;
            let at = (row * PRODUCT + column) as usize;
            c.set(at, c.get(at) + sums[i]);
        }
    }
}

/// [`WarpgroupHalf::multiply_tiles`] for constants of another type.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn multiply<T: WarpgroupHalf, const A: usize, const B: usize>(
    sums: &mut [f32; PRODUCT as usize / 2],
    a: warpgroup::Operand,
    b: warpgroup::Operand,
    more: bool,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match const { (A, B) } {
            (0, 0) => T::multiply_tiles::<{ PRODUCT as usize / 2 }, 0, 0>(sums, a, b, more),
            (0, _) => T::multiply_tiles::<{ PRODUCT as usize / 2 }, 0, 1>(sums, a, b, more),
            (_, 0) => T::multiply_tiles::<{ PRODUCT as usize / 2 }, 1, 0>(sums, a, b, more),
            (_, _) => T::multiply_tiles::<{ PRODUCT as usize / 2 }, 1, 1>(sums, a, b, more),
        }
    }
}

/// The first warpgroup gives registers back and hands its numbers, squared, to the second, which takes them and adds 1.
///
/// # Safety
/// One block with 128 words of shared memory; `x` and `y` have 128 words.
#[kernel(
    family = "probe",
    instances = [{ ; threads: 256, min_blocks: 1 }],
    requires = "sm_90a",
)]
pub unsafe fn handed_over(x: Global<u32>, y: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    // SAFETY: a barrier that one half arrives at, and the other waits at, lies between the writes and the reads.
    unsafe {
        let words = Shared::<u32>::dynamic(0, 128);
        if thread / 128 == 0 {
            warpgroup::shrink_registers::<24>();
            let value = x.get(thread as usize);
            words.set(thread, value.wrapping_mul(value));
            thread::arrive_named(1, 256);
        } else {
            warpgroup::grow_registers::<240>();
            thread::sync_named(1, 256);
            y.set(thread as usize - 128, words.get(255 - thread).wrapping_add(1));
        }
    }
}
