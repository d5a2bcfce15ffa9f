//! Barriers of a block, and where a thread is in the grid.

use cuda_std::prelude::*;

/// Barriers that vote on whether a thread's value is non-zero: [block, (count, and, or)] by thread.
///
/// # Safety
/// 128 values a block, 384 results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn voting_barriers(values: Global<u32>, out: GlobalMut<u32>) {
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    // SAFETY: a thread's own elements.
    unsafe {
        let predicate = values.get(128 * block + thread) != 0;
        let results = [
            thread::sync_threads_count(predicate),
            thread::sync_threads_and(predicate) as u32,
            thread::sync_threads_or(predicate) as u32,
        ];
        for (i, result) in results.into_iter().enumerate() {
            out.set(128 * (3 * block + i) + thread, result);
        }
    }
}

/// Reverses 128 values twice through shared memory: within each half of the block, past the half's own
/// named barrier, then in the whole block, past `sync_threads`. So `out` is the halves exchanged.
///
/// # Safety
/// One block; 128 values and results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn halves_meet(values: Global<u32>, out: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    let half = thread / 64;
    // SAFETY: a thread's own elements of global memory; shared ones are written and read a barrier apart.
    unsafe {
        let cells = shared_array!(probe_halves: [u32; 128]);
        let whole = shared_array!(probe_whole: [u32; 128]);
        cells.set(thread, values.get(thread as usize));
        thread::sync_named(1 + half, 64);
        let across = cells.get(64 * half + 63 - thread % 64);
        whole.set(thread, across);
        thread::sync_threads();
        out.set(thread as usize, whole.get(127 - thread));
    }
}

/// What [`indices()`](fn@indices) writes for each thread.
pub const INDICES: [&str; 17] = [
    "thread_idx_x",
    "thread_idx_y",
    "thread_idx_z",
    "block_idx_x",
    "block_idx_y",
    "block_idx_z",
    "block_dim_x",
    "block_dim_y",
    "block_dim_z",
    "grid_dim_x",
    "grid_dim_y",
    "grid_dim_z",
    "thread_index",
    "index_1d",
    "index_1d's high half",
    "lane_id",
    "warp_id",
];

/// Every index and extent, as [`INDICES`] names them: [block, thread, what], blocks in x-fastest order.
///
/// # Safety
/// `out` holds 17·96 numbers for each block.
#[kernel(family = "probe", instances = [{ ; threads: 96 }])]
pub unsafe fn indices(out: GlobalMut<u32>) {
    let numbers = [
        thread::thread_idx_x(),
        thread::thread_idx_y(),
        thread::thread_idx_z(),
        thread::block_idx_x(),
        thread::block_idx_y(),
        thread::block_idx_z(),
        thread::block_dim_x(),
        thread::block_dim_y(),
        thread::block_dim_z(),
        thread::grid_dim_x(),
        thread::grid_dim_y(),
        thread::grid_dim_z(),
        thread::thread_index(),
        thread::index_1d() as u32,
        (thread::index_1d() >> 32) as u32,
        warp::lane_id(),
        warp::warp_id(),
    ];
    let row = thread::block_idx_z() * thread::grid_dim_y() + thread::block_idx_y();
    let block = (row * thread::grid_dim_x() + thread::block_idx_x()) as usize;
    // SAFETY: a thread's own elements.
    unsafe {
        for (i, number) in numbers.into_iter().enumerate() {
            out.set((96 * block + thread::thread_idx_x() as usize) * INDICES.len() + i, number);
        }
    }
}
