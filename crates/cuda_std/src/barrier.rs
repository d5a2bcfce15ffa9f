//! Barriers in shared memory that count arrivals and bytes (sm_90): `mbarrier`.
//!
//! A phase ends when all its arrivals have come and all bytes that they announced have been copied; the next begins at
//! once. Phases are told apart by their parity, 0 for the first. What a thread did before it arrived is visible to
//! whoever has waited for the phase, and so is what was copied.

use crate::Shared;
use crate::imp::barrier as imp;

/// Barriers in a row.
#[derive(Clone, Copy)]
pub struct Barriers(Shared<u64>);

impl Barriers {
    /// Bytes of a barrier.
    pub const BYTES: u32 = 8;

    /// `count` barriers from byte `offset` of the launch's dynamic shared memory on, a multiple of 8.
    ///
    /// # Safety
    /// The launch must provide that many bytes, and nothing else uses them.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dynamic(offset: u32, count: u32) -> Barriers {
        // SAFETY: the caller's contract.
        Barriers(unsafe { Shared::dynamic(offset, count) })
    }

    /// Barriers in the words of an array that serves for nothing else.
    #[inline(always)]
    pub const fn of(words: Shared<u64>) -> Barriers {
        Barriers(words)
    }

    /// Barrier `index`.
    #[inline(always)]
    pub fn at(self, index: u32) -> Barrier {
        Barrier { of: self.0, index }
    }
}

/// One barrier.
#[derive(Clone, Copy)]
pub struct Barrier {
    of: Shared<u64>,
    index: u32,
}

impl Barrier {
    /// Makes a barrier whose phases have so many arrivals. [`fence_init`] and a barrier of the block follow, before
    /// others use it.
    ///
    /// # Safety
    /// One thread makes it, once; `arrivals` is between 1 and 2^20 − 1.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::init(self.of.raw(), self.index, arrivals) }
    }

    /// Arrives where `when` holds.
    ///
    /// # Safety
    /// The barrier has been made, and its phase has an arrival left.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_if(self, when: bool) {
        // SAFETY: the caller's contract.
        unsafe { imp::arrive_if(self.of.raw(), self.index, when) }
    }

    /// Arrives and announces so many bytes that copies will bring in this phase.
    ///
    /// # Safety
    /// As [`Self::arrive_if`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::arrive_expecting(self.of.raw(), self.index, bytes) }
    }

    /// Waits until the phase of this parity has ended. On a new barrier the phase of parity 1 has. A wait without end
    /// becomes an error of the launch.
    ///
    /// # Safety
    /// The barrier has been made; the phase is the present one or the last.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait(self, parity: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::wait(self.of.raw(), self.index, parity) }
    }

    /// The array and the place in it.
    #[inline(always)]
    pub(crate) fn raw(self) -> (crate::imp::RawShared, u32) {
        (self.of.raw(), self.index)
    }
}

/// Makes the barriers that the thread has made visible to copies.
#[inline(always)]
pub fn fence_init() {
    imp::fence_init();
}
