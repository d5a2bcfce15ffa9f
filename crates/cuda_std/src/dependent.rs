//! Launches that overlap (Hopper and later): a kernel that was launched early starts while the work before it is still
//! running, prepares itself, and waits before it touches memory that others use.
//!
//! A kernel that calls [`wait`] or [`begin`] may be launched either way; the host's loader puts a wait in front of the first
//! instruction of one that calls neither. On the CPU a launch begins when the one before it is done.

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

/// [`wait`] and [`allow_next`] of portable kernels, which have no instructions for them: the place where the host's loader puts
/// them, on GPUs that start kernels early. To be called once, by all threads.
#[inline(always)]
pub fn begin() {
    imp::begin();
}
