//! Who is running: indices and sizes.

use crate::ctx::ctx;

/// Index of the thread in its block.
#[inline]
pub fn thread_idx() -> [u32; 3] {
    ctx().lane().idx.get()
}

/// Index of the block in the grid.
#[inline]
pub fn block_idx() -> [u32; 3] {
    ctx().block().idx.get()
}

/// Threads of a block along each axis.
#[inline]
pub fn block_dim() -> [u32; 3] {
    ctx().block_dim.get()
}

/// Blocks of the grid along each axis.
#[inline]
pub fn grid_dim() -> [u32; 3] {
    ctx().grid_dim.get()
}

/// Lane of the thread in its warp.
#[inline]
pub fn lane_id() -> u32 {
    ctx().lane().tid.get() % 32
}

/// Warp of the thread in its block.
#[inline]
pub fn warp_id() -> u32 {
    ctx().lane().tid.get() / 32
}

/// Rank of the block in its cluster, 0 without clusters.
#[inline]
pub fn cluster_rank() -> u32 {
    let ctx = ctx();
    (ctx.block().linear.get() % ctx.cluster.get() as u64) as u32
}

/// Blocks of a cluster, 1 without clusters.
#[inline]
pub fn cluster_size() -> u32 {
    ctx().cluster.get()
}

/// Dynamic shared memory that the launch gave each block.
#[inline]
pub fn dynamic_shared_bytes() -> u32 {
    ctx().launch().shared_bytes
}
