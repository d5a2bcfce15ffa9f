//! Matrix fragments: each way of loading them, and their product.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

use cuda_std::matrix::multiply_tf32;
use cuda_std::prelude::*;

/// Words that a lane writes to `loaded`: one, two and four matrices, each plain and transposed.
pub const LOADED_WORDS: usize = 2 * (1 + 2 + 4);

/// Loads the first one, two and four 8×8 matrices of the 32 rows of eight in `x`, plain and transposed, and
/// multiplies `a` [16, 16] by `b` [8, 16], both with rows along k, on top of `c` [16, 8].
///
/// # Safety
/// One block; the arrays have these sizes, and `loaded` has [`LOADED_WORDS`] words for each lane.
#[kernel(family = "probe", types = [f16, bf16], instances = [{ ; threads: 32 }])]
pub unsafe fn matrix_fragments<T: Half>(
    x: Global<T>,
    loaded: GlobalMut<u32>,
    a: Global<T>,
    b: Global<T>,
    c: GlobalMut<f32>,
) {
    let lane = warp::lane_id();
    // SAFETY: a warp's barrier lies between the writes and the reads of the tile; the rest is the caller's contract.
    unsafe {
        let tile = Shared::<T>::dynamic(0, 256);
        tile.set_pack(8 * lane, x.get_pack_if(true, 8 * lane as usize, 0));
        warp::sync_warp(warp::FULL);
        let [w0] = tile.load_matrices::<1, false>(8 * lane);
        let [w1] = tile.load_matrices::<1, true>(8 * lane);
        let [w2, w3] = tile.load_matrices::<2, false>(8 * lane);
        let [w4, w5] = tile.load_matrices::<2, true>(8 * lane);
        let [w6, w7, w8, w9] = tile.load_matrices::<4, false>(8 * lane);
        let [w10, w11, w12, w13] = tile.load_matrices::<4, true>(8 * lane);
        let words = [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13];
        for i in 0..LOADED_WORDS {
            loaded.set(lane as usize * LOADED_WORDS + i, words[i]);
        }
        let (row, pair) = (lane / 4, lane % 4 * 2);
        let of =
            |matrix: Global<T>, row: u32, column: u32| matrix.get_4_if(true, (row * 16 + column) as usize, 0);
        let of_a = [of(a, row, pair), of(a, row + 8, pair), of(a, row, pair + 8), of(a, row + 8, pair + 8)];
        let of_b = [of(b, row, pair), of(b, row, pair + 8)];
        let at = |i: u32| ((row + i / 2 * 8) * 8 + pair + i % 2) as usize;
        let sums = [c.get(at(0)), c.get(at(1)), c.get(at(2)), c.get(at(3))];
        let sums = T::multiply(of_a, of_b, sums);
        for i in 0..4 {
            c.set(at(i as u32), sums[i]);
        }
    }
}

/// Multiplies `a` [16, 8] by `b` [8, 8] as tf32, both with rows along k, on top of `c` [16, 8]; words of both come from shared
/// memory as [`Shared::load_matrices`] gives those of f32.
///
/// # Safety
/// One block; the arrays have these sizes.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn tf32_fragments(a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>) {
    let lane = warp::lane_id();
    // SAFETY: a warp's barrier lies between the writes and the reads of the tiles; the rest is the caller's contract.
    unsafe {
        let (tile_a, tile_b) = (Shared::<f32>::dynamic(0, 128), Shared::<f32>::dynamic(512, 64));
        tile_a.set_pack(4 * lane, a.get_pack_if(true, 4 * lane as usize, 0));
        if lane < 16 {
            tile_b.set_pack(4 * lane, b.get_pack_if(true, 4 * lane as usize, 0));
        }
        warp::sync_warp(warp::FULL);
        let of_a = tile_a.load_matrices::<4, false>(lane % 16 * 8 + lane / 16 * 4);
        let of_b = tile_b.load_matrices::<2, false>(lane % 8 * 8 + lane / 8 % 2 * 4);
        let at = |i: u32| ((lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2) as usize;
        let sums = [c.get(at(0)), c.get(at(1)), c.get(at(2)), c.get(at(3))];
        let sums = multiply_tf32(of_a, of_b, sums);
        for i in 0..4 {
            c.set(at(i as u32), sums[i]);
        }
    }
}

#[cfg(target_arch = "nvptx64")]
mod expectations {
    core::arch::global_asm!("//@expect probe_matrix_fragments_f16 ==6 ldmatrix.sync.aligned.m8n8");
    core::arch::global_asm!("//@expect probe_matrix_fragments_bf16 ==1 mma.sync.aligned.m16n8k16");
    core::arch::global_asm!("//@expect probe_tf32_fragments ==1 mma.sync.aligned.m16n8k8");
}
