//! Where a thread is in the grid, and barriers and fences.

use crate::imp::thread as imp;

macro_rules! index {
    ($($name:ident: $what:literal = $source:ident($dimension:literal);)*) => {$(
        #[doc = $what]
        #[inline(always)]
        pub fn $name() -> u32 {
            imp::$source::<$dimension>()
        }
    )*};
}

index! {
    thread_idx_x: "`threadIdx.x`: this thread's position in its block." = thread_idx(0);
    thread_idx_y: "`threadIdx.y`." = thread_idx(1);
    thread_idx_z: "`threadIdx.z`." = thread_idx(2);
    block_idx_x: "`blockIdx.x`: this block's position in the grid." = block_idx(0);
    block_idx_y: "`blockIdx.y`." = block_idx(1);
    block_idx_z: "`blockIdx.z`." = block_idx(2);
    block_dim_x: "`blockDim.x`: threads of a block." = block_dim(0);
    block_dim_y: "`blockDim.y`." = block_dim(1);
    block_dim_z: "`blockDim.z`." = block_dim(2);
    grid_dim_x: "`gridDim.x`: blocks of the grid." = grid_dim(0);
    grid_dim_y: "`gridDim.y`." = grid_dim(1);
    grid_dim_z: "`gridDim.z`." = grid_dim(2);
}

/// The thread's index in its block, x fastest.
#[inline(always)]
pub fn thread_index() -> u32 {
    (thread_idx_z() * block_dim_y() + thread_idx_y()) * block_dim_x() + thread_idx_x()
}

/// The thread's index in a one-dimensional grid of one-dimensional blocks; 64 bits, since a grid may
/// have more than 2^32 threads.
#[inline(always)]
pub fn index_1d() -> u64 {
    block_idx_x() as u64 * block_dim_x() as u64 + thread_idx_x() as u64
}

/// Waits for all threads of the block; their earlier writes are visible after it. Every thread that
/// has not exited must arrive.
#[inline(always)]
#[track_caller]
pub fn sync_threads() {
    imp::sync_threads();
}

/// [`sync_threads`], returning how many threads passed `true`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: bool) -> u32 {
    imp::sync_threads_count(predicate)
}

/// [`sync_threads`], returning whether every thread passed `true`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: bool) -> bool {
    imp::sync_threads_and(predicate)
}

/// [`sync_threads`], returning whether any thread passed `true`.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: bool) -> bool {
    imp::sync_threads_or(predicate)
}

/// Waits at barrier `id` (1..=15) for `threads` threads, a multiple of 32.
#[inline(always)]
#[track_caller]
pub fn sync_named(id: u32, threads: u32) {
    imp::sync_named(id, threads);
}

/// Arrives at barrier `id` (1..=15) of `threads` threads, a multiple of 32, and goes on: those who wait there see what the
/// thread did before. All lanes of the warp must call.
#[inline(always)]
#[track_caller]
pub fn arrive_named(id: u32, threads: u32) {
    imp::arrive_named(id, threads);
}

/// Orders this thread's memory accesses for the threads of its block.
#[inline(always)]
#[track_caller]
pub fn block_fence() {
    imp::block_fence();
}

/// Orders this thread's memory accesses for the whole device.
#[inline(always)]
#[track_caller]
pub fn device_fence() {
    imp::device_fence();
}

/// Says that the thread polls what others write: the checker lets these run. No instruction on a GPU.
#[inline(always)]
#[track_caller]
pub fn spin_wait() {
    imp::spin_wait();
}

/// Orders this thread's memory accesses for the grid: the same instruction as [`device_fence`], which
/// is the narrowest scope that holds all blocks.
#[inline(always)]
#[track_caller]
pub fn grid_fence() {
    imp::device_fence();
}

/// Orders this thread's memory accesses for the host and other devices too.
#[inline(always)]
#[track_caller]
pub fn system_fence() {
    imp::system_fence();
}
