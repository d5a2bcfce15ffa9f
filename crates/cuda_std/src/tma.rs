//! Copies of boxes of a tensor between global and shared memory by a unit of their own (sm_90), which knows the tensor
//! from a map that the host has made: `cp.async.bulk.tensor`.
//!
//! One thread starts a copy of a whole box; no other has to do anything for it. What lies outside of the tensor is read
//! as zeros, and what lies behind its end is not written; no store begins before it. Lines of a box are up to 128 bytes long, permuted as
//! [`Tile::dynamic_slabs`](crate::tile::Tile::dynamic_slabs) has them.

use crate::Shared;
use crate::barrier::Barrier;
use crate::imp::tma as imp;

#[cfg(target_arch = "nvptx64")]
pub use imp::MapBytes;
pub use imp::TensorMap;

impl TensorMap {
    /// Fetches the map ahead of the first copy.
    #[inline(always)]
    pub fn prefetch(self) {
        imp::prefetch(self);
    }

    /// Fetches the box at these coordinates into L2.
    #[inline(always)]
    pub fn prefetch_box(self, coordinates: [i32; 4]) {
        imp::prefetch_box(self, coordinates);
    }
}

impl<T: Copy> Shared<T> {
    /// Starts to copy the box at these coordinates (innermost first) to element `index`, and counts its bytes at
    /// `barrier` when they are there.
    ///
    /// # Safety
    /// The box fits, from a multiple of 128 bytes on; nothing else touches it before the barrier's phase has ended,
    /// which announced its bytes. The map is of elements of this type.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_box(self, index: u32, map: TensorMap, coordinates: [i32; 4], barrier: Barrier) {
        // SAFETY: the caller's contract.
        unsafe { imp::load_box::<T>(self.raw(), index, map, coordinates, barrier) }
    }

    /// Where `when` holds, starts to copy the box at element `index` to these coordinates, as part of the thread's present group. What
    /// is beyond the tensor's end is not written, but for the rest of a line's last 16 bytes: an H100 writes those as a whole, which the
    /// checker does not follow. So lines are to have whole 16 bytes.
    ///
    /// # Safety
    /// The box is initialised, starts at a multiple of 128 bytes, every thread that wrote to it has called
    /// [`fence_writes`], and a barrier has followed. Nothing writes to it before the thread has waited for the group. The
    /// map is of elements of this type; nothing else accesses that part of the tensor. No coordinate is below 0.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_box_if(self, when: bool, index: u32, map: TensorMap, coordinates: [i32; 4]) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_box_if::<T>(self.raw(), when, index, map, coordinates) }
    }
}

/// Makes what the thread has written to shared memory visible to copies that are started behind the next barrier.
#[inline(always)]
pub fn fence_writes() {
    crate::warpgroup::fence_copies();
}

/// Makes what other threads have written to global memory, and this one is ordered behind, visible to copies that it starts from here on. The
/// checker orders copies as it does their thread, and does not ask for this fence.
#[inline(always)]
pub fn fence_loads() {
    imp::fence_loads();
}

/// Closes the thread's stores since the last call into a group.
#[inline(always)]
pub fn commit_stores() {
    imp::commit_stores();
}

/// Waits until all but the last `PENDING` groups of the thread have read shared memory, which may then be written
/// again. A block must not end before.
#[inline(always)]
#[track_caller]
pub fn wait_stores_read<const PENDING: u32>() {
    imp::wait_stores_read::<PENDING>();
}
