use super::global::{self, RawView};
use super::shared::RawShared;
use core::arch::asm;

#[inline(always)]
pub unsafe fn copy_pack<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, count: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.cg.shared.global [{}], [{}], 16, {};", in(reg32) to.element::<T>(index),
            in(reg64) global::at::<T>(source, from), in(reg32) count * size_of::<T>() as u32,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn copy_part<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, _: u32, high: u32) {
    // SAFETY: the caller's contract.
    unsafe { copy_pack::<T>(to, index, source, from, high) }
}

#[inline(always)]
pub unsafe fn copy_4<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.ca.shared.global [{}], [{}], 4, {};", in(reg32) to.element::<T>(index),
            in(reg64) global::at::<T>(source, from), in(reg32) when as u32 * 4,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn commit() {
    // SAFETY: a barrier to the compiler.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn wait<const PENDING: u32>() {
    // SAFETY: as above.
    unsafe { asm!("cp.async.wait_group {};", const PENDING, options(nostack, preserves_flags)) };
}
