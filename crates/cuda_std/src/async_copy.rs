//! Copies from global to shared memory without registers in between (sm_80), which go on while their thread
//! does something else.
//!
//! A thread issues copies ([`Shared::copy_pack_async`]), closes them into groups ([`commit`]), and waits until few
//! enough groups are under way ([`wait`]). What it has waited for it may read itself; other threads need a
//! barrier besides.
//!
//! Copies of 16 bytes by neighbouring lanes share the fetch of a sector where its halves go to the same aligned 32 bytes of shared memory, in
//! either order. Otherwise an H100 fetches the sector twice: places that are equal modulo 16 do, but those that are equal modulo 32 load L2 less.

use crate::imp::async_copy as imp;
use crate::{Global, Shared};

/// Closes the thread's copies since the last call into a group.
#[inline(always)]
pub fn commit() {
    imp::commit();
}

/// Waits until at most the last `PENDING` groups of the thread are under way.
#[inline(always)]
#[track_caller]
pub fn wait<const PENDING: u32>() {
    imp::wait::<PENDING>();
}

impl<T: Copy> Shared<T> {
    /// Starts to copy the first `count` elements of the pack at element `from` of `source` to the pack at element
    /// `index`, and to fill the rest of that with zeros.
    ///
    /// # Safety
    /// Both packs start at multiples of 16 bytes; `count` is at most a pack's elements, and these exist and do
    /// not change. Nothing else touches the target before the copy has been waited for.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_pack_async(self, index: u32, source: Global<T>, from: usize, count: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::copy_pack::<T>(self.raw(), index, source.raw(), from, count) }
    }

    /// Where `when` holds, starts to copy the whole pack at element `from` of `source` to the pack at element `index`.
    ///
    /// # Safety
    /// As [`Self::copy_pack_async`], of a whole pack.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_pack_async_if(self, index: u32, source: Global<T>, from: usize, when: bool) {
        // SAFETY: the caller's contract.
        unsafe { imp::copy_pack_if::<T>(self.raw(), index, source.raw(), from, when) }
    }

    /// Starts to copy the whole pack at element `from` of `source` to the pack at element `index`, and has L2 let go of it later than of
    /// what is written, as of what loads read. `zero` is a kernel's parameter, of which compilers do not know that it is 0.
    ///
    /// # Safety
    /// As [`Self::copy_pack_async`], of a whole pack; `zero` is 0.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_pack_kept_async(self, index: u32, source: Global<T>, from: usize, zero: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::copy_pack_kept::<T>(self.raw(), index, source.raw(), from, zero) }
    }

    /// Starts to copy the four bytes at element `from` of `source` to those at element `index`, or zeros where `when`
    /// does not hold; `from` may then be any.
    ///
    /// # Safety
    /// Both start at multiples of 4 bytes; where `when` holds, the source exists and does not change. Element 0 of `source`
    /// can be read. Nothing else touches the target before the copy has been waited for.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_4_async(self, index: u32, source: Global<T>, from: usize, when: bool) {
        // SAFETY: the caller's contract.
        unsafe { imp::copy_4::<T>(self.raw(), index, source.raw(), from, when) }
    }

    /// As [`Self::copy_4_async`], of the pack at element `from` to the one at element `index`.
    ///
    /// # Safety
    /// As [`Self::copy_4_async`], of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_16_async(self, index: u32, source: Global<T>, from: usize, when: bool) {
        // SAFETY: the caller's contract.
        unsafe { imp::copy_16::<T>(self.raw(), index, source.raw(), from, when) }
    }

    /// Starts to copy elements `low..high` of the pack at element `from` of `source` to the same places of the pack at
    /// element `index`. What the others of the target become is not defined: elements in front of `low` may be read, those
    /// from `high` on become zeros, and the checker takes none of them for written. What is not a whole pack is near others that are
    /// wanted as well: L2 fetches all of the aligned `AHEAD` bytes, 64, 128 or 256, and keeps them as [`Self::copy_pack_kept_async`] has it.
    ///
    /// # Safety
    /// As [`Self::copy_pack_async`] for the elements `low..high` of a pack, `low` below `high`. Those in front of `low`
    /// share 16 aligned bytes with one that exists, which makes them readable. `zero` is 0.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_part_async<const AHEAD: u32>(
        self,
        index: u32,
        source: Global<T>,
        from: usize,
        low: u32,
        high: u32,
        zero: u32,
    ) {
        const { assert!(matches!(AHEAD, 64 | 128 | 256)) };
        // SAFETY: the caller's contract.
        unsafe { imp::copy_part::<T, AHEAD>(self.raw(), index, source.raw(), from, low, high, zero) }
    }
}
