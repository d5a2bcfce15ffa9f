//! Typed views of the block's shared memory.

use crate::barrier::Barrier;
use crate::imp::shared as imp;
use crate::packed::Pack;
use core::marker::PhantomData;

/// An array in shared memory: on the GPU a 32-bit shared address.
pub struct Shared<T> {
    raw: imp::RawShared,
    element: PhantomData<*mut T>,
}

impl<T> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Wraps a raw array; what [`shared_array!`](crate::shared_array) expands to.
    ///
    /// # Safety
    /// `raw` must be an array of `T`.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_raw(raw: imp::RawShared) -> Self {
        Shared { raw, element: PhantomData }
    }

    /// `length` elements of the launch's dynamic shared memory, from byte `offset`.
    ///
    /// # Safety
    /// The launch must provide that many bytes; `offset` must be a multiple of `T`'s size.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dynamic(offset: u32, length: u32) -> Self {
        Shared { raw: imp::dynamic(offset, length, size_of::<T>() as u32), element: PhantomData }
    }

    /// As [`Self::dynamic`], of memory that begins at a multiple of 1024 bytes.
    ///
    /// # Safety
    /// As [`Self::dynamic`].
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn dynamic_slabs(offset: u32, length: u32) -> Self {
        Shared { raw: imp::dynamic_slabs(offset, length, size_of::<T>() as u32), element: PhantomData }
    }

    /// The raw array.
    #[inline(always)]
    pub(crate) fn raw(self) -> imp::RawShared {
        self.raw
    }

    /// Reads element `index`.
    ///
    /// # Safety
    /// The element must exist, be initialised and have no unsynchronised writer.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get(self, index: u32) -> T {
        // SAFETY: the caller's contract.
        unsafe { imp::get::<T>(self.raw, index) }
    }

    /// Writes element `index`.
    ///
    /// # Safety
    /// The element must exist and have no other unsynchronised access.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(self, index: u32, value: T) {
        // SAFETY: the caller's contract.
        unsafe { imp::set::<T>(self.raw, index, value) }
    }

    /// Reads the 16 bytes that start at element `index`.
    ///
    /// # Safety
    /// As [`Self::get`], for each element, starting at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_pack(self, index: u32) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::get_pack::<T>(self.raw, index) }
    }

    /// Writes the 16 bytes that start at element `index`.
    ///
    /// # Safety
    /// As [`Self::set`], for each element, starting at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_pack(self, index: u32, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_pack::<T>(self.raw, index, pack) }
    }

    /// Reads the eight bytes that start at element `index`.
    ///
    /// # Safety
    /// As [`Self::get`], for each element, starting at a multiple of 8 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_8(self, index: u32) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe { imp::get_8::<T>(self.raw, index) }
    }

    /// Writes the eight bytes that start at element `index`.
    ///
    /// # Safety
    /// As [`Self::set`], for each element, starting at a multiple of 8 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_8(self, index: u32, words: [u32; 2]) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_8::<T>(self.raw, index, words) }
    }

    /// Reads element `index` of the same array in block `rank` of the cluster.
    ///
    /// # Safety
    /// As [`Self::get`]; the block must still be running.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_remote(self, rank: u32, index: u32) -> T {
        // SAFETY: the caller's contract.
        unsafe { imp::get_remote::<T>(self.raw, rank, index) }
    }

    /// Reads the bits of element `index`, of four bytes, of the same array in block `rank` of the cluster, or gives zeros.
    ///
    /// # Safety
    /// Where `when` holds, as [`Self::get_remote`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_bits_remote_if(self, when: bool, rank: u32, index: u32) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { imp::get_bits_remote_if::<T>(self.raw, when, rank, index) }
    }

    /// Reads the pack that starts at element `index` of the same array in block `rank` of the cluster, or gives zeros.
    ///
    /// # Safety
    /// Where `when` holds, as [`Self::get_pack`]; the block must still be running.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_pack_remote_if(self, when: bool, rank: u32, index: u32) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::get_pack_remote_if::<T>(self.raw, when, rank, index) }
    }

    /// Writes element `index` of the same array in block `rank` of the cluster.
    ///
    /// # Safety
    /// As [`Self::set`]; the block must be running already and still.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_remote(self, rank: u32, index: u32, value: T) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_remote::<T>(self.raw, rank, index, value) }
    }

    /// Starts to copy `count` elements from element `index` on to element `at` of the array `to` in block `rank` of the cluster, and counts their
    /// bytes at the same barrier there (`cp.async.bulk`): whoever has waited for the barrier's phase finds them.
    ///
    /// # Safety
    /// The elements exist, here and there, from multiples of 16 bytes on, and are as many bytes. Those here are initialised, every thread that
    /// wrote them has called [`fence_writes`](crate::tma::fence_writes), and a barrier has followed; nothing writes to them, and the block does not end,
    /// before they have arrived. The block there is running, has made the barrier, and announced the bytes to its phase, which it waits for before it
    /// ends.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn send(self, index: u32, count: u32, to: Shared<T>, rank: u32, at: u32, barrier: Barrier) {
        // SAFETY: the caller's contract.
        unsafe { imp::send::<T>(self.raw, index, count, to.raw, rank, at, barrier) }
    }
}

impl Shared<u64> {
    /// Sends a word to element `index` of the same array in block `rank` of the cluster, and counts its eight bytes at the
    /// same barrier there (`st.async`): whoever has waited for the barrier's phase finds it. No fence is needed.
    ///
    /// # Safety
    /// The element must exist, and the cluster have two blocks at least. The block must be running already, have made the barrier, and announced the bytes to its
    /// phase, which it waits for before it ends.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn post(self, rank: u32, index: u32, value: u64, barrier: Barrier) {
        // SAFETY: the caller's contract.
        unsafe { imp::post(self.raw, rank, index, value, barrier) }
    }
}

/// Declares an array in static shared memory and gives its [`Shared`] view:
/// `shared_array!(NAME: [f32; 64])`. One array for each place in the source, however often it is inlined;
/// `NAME` must be unique in the crate. Needs `unsafe`: the array is shared by the whole block.
#[macro_export]
macro_rules! shared_array {
    (@storage f32) => { ".b32" };
    (@storage u32) => { ".b32" };
    (@storage i32) => { ".b32" };
    (@storage u64) => { ".b64" };
    (@storage i64) => { ".b64" };
    (@storage f64) => { ".b64" };
    (@storage f16) => { ".b16" };
    (@storage bf16) => { ".b16" };
    (@storage u16) => { ".b16" };
    (@storage u8) => { ".b8" };
    ($name:ident: [$ty:ident; $length:literal]) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            // The prefix keeps arrays and entry points apart: PTX has one namespace for both.
            // Declared at module level: declarations local to an `asm!` are duplicated by inlining.
            // A module, since `global_asm!` must stand where an item can.
            const _: () = {
                mod declaration {
                    $crate::__private::global_asm!(concat!(
                        ".shared .align 16 ", $crate::shared_array!(@storage $ty), " shared_",
                        stringify!($name), "[", $length, "];"
                    ));
                }
            };
            let address: u32;
            core::arch::asm!(
                concat!("mov.u32 {}, shared_", stringify!($name), ";"),
                out(reg32) address, options(pure, nomem, nostack, preserves_flags)
            );
            $crate::Shared::<$ty>::from_raw($crate::__private::RawShared::new(address))
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            static ARRAY: $crate::__private::StaticShared =
                $crate::__private::StaticShared::new($length * size_of::<$ty>() as u32, 16);
            $crate::Shared::<$ty>::from_raw($crate::__private::RawShared::from_static::<$ty>(&ARRAY, $length))
        }
    }};
}
