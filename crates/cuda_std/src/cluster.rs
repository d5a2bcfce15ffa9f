//! Thread-block clusters (Hopper and later): blocks that run together and read one another's shared
//! memory.

use crate::imp::cluster as imp;

/// This block's rank in its cluster.
#[inline(always)]
pub fn rank() -> u32 {
    imp::rank()
}

/// This block's cluster in a one-dimensional grid.
#[inline(always)]
pub fn index() -> u32 {
    imp::index()
}

/// Clusters of a one-dimensional grid.
#[inline(always)]
pub fn count() -> u32 {
    imp::count()
}

/// Blocks of the cluster.
#[inline(always)]
pub fn size() -> u32 {
    imp::size()
}

/// The first half of [`sync`]: what the thread has written is visible to those that have waited. The checker
/// takes both halves as one barrier where [`wait`] stands.
#[inline(always)]
pub fn arrive() {
    imp::arrive();
}

/// As [`arrive`], for a thread whose writes since the last barrier nobody waits for at this one: what it has written is not made visible. Such
/// a thread has used what it read from other blocks, or has been told by other means that what it wrote has come. The checker takes it for
/// [`arrive`].
#[inline(always)]
pub fn arrive_relaxed() {
    imp::arrive_relaxed();
}

/// The second half of [`sync`], once after each [`arrive`].
#[inline(always)]
#[track_caller]
pub fn wait() {
    imp::wait();
}

/// Waits for all threads of all blocks of the cluster; their writes, to shared memory too, are visible
/// after it.
#[inline(always)]
#[track_caller]
pub fn sync() {
    imp::sync();
}
