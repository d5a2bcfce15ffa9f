//! Launches that overlap (Hopper and later): a kernel that was launched early starts while the work before it is still
//! running, prepares itself, and waits before it touches memory that others use.
//!
//! A kernel that calls [`wait`] may be launched either way; one that does not must not be launched early. On the CPU a
//! launch begins when the one before it is done.

use crate::imp::dependent as imp;

/// Waits until all work before this launch is done and what it wrote is visible.
#[inline(always)]
pub fn wait() {
    imp::wait();
}

/// Lets the launch behind this one start as soon as all blocks have called this or ended; it will wait for this one's
/// end by itself. To be called behind [`wait`], so that no more than two launches are under way.
#[inline(always)]
pub fn allow_next() {
    imp::allow_next();
}
