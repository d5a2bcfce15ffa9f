//! Products of a warpgroup, four warps, whose operands are tiles of shared memory: `wgmma` (sm_90a).
//!
//! A warpgroup issues products ([`WarpgroupHalf::multiply_tiles`]), which go on while it does something else, and waits
//! for them ([`wait`], [`finish`]). Tiles that were copied by the threads themselves must be made visible to the
//! tensor cores first: each thread waits for its copies, calls [`fence_copies`], and then comes a barrier.

use crate::imp::warpgroup as imp;
use crate::{Half, bf16, f16};

/// Terms of one issue: four instructions of 16.
pub const TERMS: u32 = 64;
/// And of f32 that counts as tf32: four of 8.
pub const TF32_TERMS: u32 = 32;

/// An operand of the terms of an issue: its matrix descriptor, and from an instruction's terms to the next.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The descriptor's words. Addresses, in sixteens of bytes, have 14 bits of the lower, and no sum leaves them: 32 bits are added, not 64.
    low: u32,
    high: u32,
    step: u32,
}

impl Operand {
    /// From addresses and steps in bytes: of 64 lines to the next (for lines that are neighbours in memory), of
    /// eight rows of 128 bytes to the next, of an instruction's terms to the next. Tiles are swizzled in 128 bytes and start at a multiple
    /// of 1024 bytes.
    #[inline(always)]
    pub(crate) fn new(address: u32, leading: u32, stride: u32, step: u32) -> Operand {
        let field = |bytes: u32| (bytes & 0x3_ffff) >> 4;
        let (low, high) = (field(address) | field(leading) << 16, field(stride) | 1 << 30);
        Operand { low, high, step: field(step) }
    }

    /// The same of a tile that lies so many bytes behind, a multiple of 1024.
    #[inline(always)]
    pub fn behind(self, bytes: u32) -> Operand {
        Operand { low: self.low + (bytes >> 4), ..self }
    }

    /// The descriptors of each instruction.
    #[inline(always)]
    pub(crate) fn steps(self) -> [u64; 4] {
        [0, 1, 2, 3].map(|i| u64::from(self.low + i * self.step) | u64::from(self.high) << 32)
    }
}

/// A 16-bit element type that warpgroups multiply.
pub trait WarpgroupHalf: Half {
    /// Starts sums + A·B, or where `more` does not hold A·B, 64 rows by 2·`SUMS` columns (8, 16, 32, 64, 128, 192 or 256), as a group. `A` and `B` are 1 where lines of the operand are
    /// neighbours in memory, 0 where its terms are. All 128 threads of the warpgroup must call.
    ///
    /// Number i of a lane is that of row 16·w + lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2, with w the
    /// warp of its warpgroup. The sums must not be looked at before [`finish`].
    ///
    /// # Safety
    /// The tiles exist and are initialised, and nothing writes to them before the group has been waited for.
    unsafe fn multiply_tiles<const SUMS: usize, const A: u32, const B: u32>(
        sums: &mut [f32; SUMS],
        a: Operand,
        b: Operand,
        more: bool,
    );
}

macro_rules! warpgroup_half {
    ($($ty:ty: $multiply:ident;)*) => {$(
        impl WarpgroupHalf for $ty {
            #[inline(always)]
            #[track_caller]
            unsafe fn multiply_tiles<const SUMS: usize, const A: u32, const B: u32>(
                sums: &mut [f32; SUMS],
                a: Operand,
                b: Operand,
                more: bool,
            ) {
                // SAFETY: the caller's contract.
                unsafe { imp::$multiply::<SUMS, A, B>(sums, a, b, more) }
            }
        }
    )*};
}
warpgroup_half! {
    f16: multiply_f16;
    bf16: multiply_bf16;
}

/// As [`WarpgroupHalf::multiply_tiles`], of [`TF32_TERMS`] terms of f32 that count as tf32, the lower 13 bits left out. Both operands lie along
/// the terms.
///
/// # Safety
/// As there.
#[inline(always)]
#[track_caller]
pub unsafe fn multiply_tf32_tiles<const SUMS: usize>(
    sums: &mut [f32; SUMS],
    a: Operand,
    b: Operand,
    more: bool,
) {
    // SAFETY: the caller's contract.
    unsafe { imp::multiply_tf32::<SUMS>(sums, a, b, more) }
}

/// Makes what the thread has written to shared memory, and copied and waited for, visible to products that are issued
/// behind the next barrier.
#[inline(always)]
pub fn fence_copies() {
    imp::fence_copies();
}

/// Gives registers back, down to `COUNT` (a multiple of 8) a thread. All threads of the warpgroup must call.
#[inline(always)]
pub fn shrink_registers<const COUNT: u32>() {
    imp::shrink_registers::<COUNT>();
}

/// Waits for registers that others have given back, and takes up to `COUNT` (a multiple of 8) a thread. All threads of the
/// warpgroup must call.
#[inline(always)]
pub fn grow_registers<const COUNT: u32>() {
    imp::grow_registers::<COUNT>();
}

/// Sums that have not been computed, for products that take their place: any numbers, and no instructions.
#[inline(always)]
pub fn unset<const SUMS: usize>() -> [f32; SUMS] {
    imp::unset()
}

/// Waits until at most the last `PENDING` groups are under way. All threads of the warpgroup must call.
#[inline(always)]
#[track_caller]
pub fn wait<const PENDING: u32>() {
    imp::wait::<PENDING>();
}

/// Waits for all groups; then the sums are there. All threads of the warpgroup must call.
///
/// # Safety
/// `sums` are those of the products.
#[inline(always)]
#[track_caller]
pub unsafe fn finish<const SUMS: usize>(sums: &mut [f32; SUMS]) {
    // SAFETY: the caller's contract.
    unsafe { imp::finish(sums) }
}

/// Where an array in shared memory begins.
#[inline(always)]
pub(crate) fn address<T: Copy>(shared: crate::Shared<T>) -> u32 {
    imp::address(shared.raw())
}
