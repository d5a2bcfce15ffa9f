//! Elements as words of 1 to 16 bytes.

use cuda_std::bits::prmt;
use cuda_std::prelude::*;

/// An element, whatever it means.
pub trait Unit: Copy + Send + Sync + 'static {
    /// Its bytes.
    const BYTES: usize;
    /// Elements of a pack.
    const PER_PACK: usize = 16 / Self::BYTES;
    /// What `held` begins with.
    const ZERO: Self;

    /// Element `index` of the launch's dynamic shared memory.
    ///
    /// # Safety
    /// It exists, and nothing writes it.
    unsafe fn staged(index: u32) -> Self;

    /// Writes element `index` of the launch's dynamic shared memory.
    ///
    /// # Safety
    /// It exists, and nothing else accesses it.
    unsafe fn stage(self, index: u32);

    /// The first elements as a pack.
    fn pack(held: &[Self; 16]) -> Pack;

    /// Writes an element at byte `at`, a multiple of its size.
    ///
    /// # Safety
    /// As [`GlobalMut::set`].
    unsafe fn set(self, y: GlobalMut<u8>, at: usize);

    /// Reads an element at byte `at`, a multiple of its size.
    ///
    /// # Safety
    /// As [`Global::get`].
    unsafe fn get(x: Global<u8>, at: usize) -> Self;
}

macro_rules! unit {
    ($ty:ident, $pack:expr) => {
        impl Unit for $ty {
            const BYTES: usize = size_of::<$ty>();
            const ZERO: Self = 0;

            #[inline(always)]
            #[track_caller]
            unsafe fn staged(index: u32) -> Self {
                // SAFETY: the caller's contract; the view ends behind the element.
                unsafe { Shared::<$ty>::dynamic(0, index + 1).get(index) }
            }
            #[inline(always)]
            #[track_caller]
            unsafe fn stage(self, index: u32) {
                // SAFETY: as above.
                unsafe { Shared::<$ty>::dynamic(0, index + 1).set(index, self) }
            }
            #[inline(always)]
            fn pack(held: &[Self; 16]) -> Pack {
                $pack(held)
            }
            #[inline(always)]
            #[track_caller]
            unsafe fn set(self, y: GlobalMut<u8>, at: usize) {
                // SAFETY: the caller's contract.
                unsafe { GlobalMut::<$ty>::from_raw(y.raw()).set(at / Self::BYTES, self) }
            }
            #[inline(always)]
            #[track_caller]
            unsafe fn get(x: Global<u8>, at: usize) -> Self {
                // SAFETY: the caller's contract.
                unsafe { Global::<$ty>::from_raw(x.raw()).get(at / Self::BYTES) }
            }
        }
    };
}

unit!(u8, |held: &[u8; 16]| {
    let word = |i: usize| four_bytes([held[i], held[i + 1], held[i + 2], held[i + 3]]);
    [word(0), word(4), word(8), word(12)]
});
unit!(u16, |held: &[u16; 16]| {
    let word = |i: usize| held[i] as u32 | (held[i + 1] as u32) << 16;
    [word(0), word(2), word(4), word(6)]
});
unit!(u32, |held: &[u32; 16]| [held[0], held[1], held[2], held[3]]);
unit!(u64, |held: &[u64; 16]| [
    held[0] as u32,
    (held[0] >> 32) as u32,
    held[1] as u32,
    (held[1] >> 32) as u32
]);

/// Three instructions instead of shifts and ors.
#[inline(always)]
fn four_bytes(bytes: [u8; 4]) -> u32 {
    let [a, b, c, d] = [bytes[0] as u32, bytes[1] as u32, bytes[2] as u32, bytes[3] as u32];
    prmt(prmt(a, b, 0x0040), prmt(c, d, 0x0040), 0x5410)
}

impl Unit for Pack {
    const BYTES: usize = 16;
    const ZERO: Self = [0; 4];

    #[inline(always)]
    #[track_caller]
    unsafe fn staged(index: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Shared::<u32>::dynamic(0, 4 * index + 4).get_pack(4 * index) }
    }
    #[inline(always)]
    #[track_caller]
    unsafe fn stage(self, index: u32) {
        // SAFETY: the caller's contract.
        unsafe { Shared::<u32>::dynamic(0, 4 * index + 4).set_pack(4 * index, self) }
    }
    #[inline(always)]
    fn pack(held: &[Self; 16]) -> Pack {
        held[0]
    }
    #[inline(always)]
    #[track_caller]
    unsafe fn set(self, y: GlobalMut<u8>, at: usize) {
        // SAFETY: the caller's contract.
        unsafe { y.set_pack_if(true, at, self) }
    }
    #[inline(always)]
    #[track_caller]
    unsafe fn get(x: Global<u8>, at: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe { x.get_pack_if(true, at, 0) }
    }
}
