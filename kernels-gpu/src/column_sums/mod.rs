//! The sums of the columns of a matrix of partial results: the second step of a reduction over rows without
//! atomics.
//!
//! out[j] = Σ over g of partials[g, j], in f32, rounded once to T. The first step is another kernel's: each of its
//! blocks walks a group of rows, keeps the sums of its columns in registers, and writes them as row g of
//! `partials` [groups, cols]. Gradients of biases and of layer_norm's weights come about so: the first step is
//! part of the kernel that computes dx (`pointwise::bias_gelu_backward`), and the host's `ops::column_sums`
//! launches this one behind it. The order of additions depends on `groups` alone, so the same partials give
//! the same bits; `groups` should come from the shape alone as well.
//!
//! Launch: a block for each 32 columns; its 32 warps take turns over the groups, and one warp adds up what they
//! have. Groups 0: zeros. Of up to 32 groups each warp would have one: where columns are many, a thread has a column
//! instead and adds them up itself, in the same order.
//!
//! Floor: partials once; some hundred groups lie in L2.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

use cuda_std::prelude::*;

/// Warps of a block, each a lane of the sum.
const LANES: u32 = 32;
/// Loads of a thread in flight.
const DEPTH: usize = 4;

/// Sums each column.
///
/// # Safety
/// `partials` holds `groups`·`cols` elements and `out` `cols`; the grid has a block for each 32 columns.
#[kernel(family = "column_sums", types = [f32, f16, bf16], instances = [{ ; threads: 1024 }])]
pub unsafe fn column_sums<T: Float>(partials: Global<f32>, out: GlobalMut<T>, groups: u32, cols: u32) {
    let (lane, turn) = (warp::lane_id(), warp::warp_id());
    let column = thread::block_idx_x() * warp::SIZE + lane;
    // Threads beyond the last column sum up that one.
    let read = column.min(cols.wrapping_sub(1));
    // SAFETY: groups and columns are below their numbers; one thread writes a column.
    unsafe {
        let total = sum(partials, groups, cols, read, turn, LANES);
        let shared = shared_array!(column_sums_of_warps: [f32; 1024]);
        shared.set(turn * warp::SIZE + lane, total);
        thread::sync_threads();
        if turn == 0 && column < cols {
            let mut total = 0.0;
            for i in 0..LANES {
                total += shared.get(i * warp::SIZE + lane);
            }
            out.set(column as usize, T::from_f32(total));
        }
    }
}

/// The most groups of [`few_groups()`](fn@few_groups): up to these its sums have the same bits.
pub const FEW_GROUPS: u32 = LANES;

/// Sums each column of few groups.
///
/// # Safety
/// As [`column_sums()`](fn@column_sums), of at most [`FEW_GROUPS`] groups; the grid has a thread for each column.
#[kernel(family = "column_sums", types = [f32, f16, bf16], instances = [{ ; threads: 256 }])]
pub unsafe fn few_groups<T: Float>(partials: Global<f32>, out: GlobalMut<T>, groups: u32, cols: u32) {
    let column = thread::index_1d() as u32;
    // SAFETY: groups and columns are below their numbers; one thread writes a column.
    unsafe {
        // Threads beyond the last column sum up that one.
        let total = sum(partials, groups, cols, column.min(cols.wrapping_sub(1)), 0, 1);
        out.set_if(column < cols, column as usize, T::from_f32(total));
    }
}

/// The sum of a column over every `apart`-th group from `group` on, in order.
///
/// # Safety
/// `partials` holds `groups`·`cols` elements, and there is the column, if there are groups.
#[inline(always)]
unsafe fn sum(partials: Global<f32>, groups: u32, cols: u32, column: u32, mut group: u32, apart: u32) -> f32 {
    let mut total = 0.0;
    while group < groups {
        let mut values = [0.0; DEPTH];
        for i in 0..DEPTH {
            let group = group + i as u32 * apart;
            let at = group as usize * cols as usize + column as usize;
            // SAFETY: the caller's contract.
            values[i] = f32::from_bits(unsafe { partials.get_4_if(group < groups, at, 0) });
        }
        for i in 0..DEPTH {
            total += values[i];
        }
        group += DEPTH as u32 * apart;
    }
    total
}
