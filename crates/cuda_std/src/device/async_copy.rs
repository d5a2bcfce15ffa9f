use super::global::{self, RawView};
use super::shared::RawShared;
use core::arch::asm;

// Copies that L2 is to keep have their places in shared memory XORed with a zero that ptxas does not know. Otherwise it adds the uniform part of
// a place in the copy, and then 13.0 and 13.5 put the policy into a pair of uniform registers that begins with an odd one
// (`LDGSTS [R9+UR4], desc[UR5]`), which is an illegal instruction.
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
pub unsafe fn copy_part<T: Copy, const AHEAD: u32>(
    to: RawShared,
    index: u32,
    source: RawView,
    from: usize,
    _: u32,
    high: u32,
    zero: u32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b32 %to; xor.b32 %to, {to}, {zero};",
            "cp.async.cg.shared.global.L2::cache_hint.L2::{ahead}B [%to], [{from}], 16, {bytes}, {policy}; }}",
            ahead = const AHEAD, to = in(reg32) to.element::<T>(index), zero = in(reg32) zero,
            from = in(reg64) global::at::<T>(source, from), bytes = in(reg32) high * size_of::<T>() as u32,
            policy = in(reg64) global::reads_stay(), options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn copy_pack_kept<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, zero: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b32 %to; xor.b32 %to, {to}, {zero};",
            "cp.async.cg.shared.global.L2::cache_hint [%to], [{from}], 16, {policy}; }}",
            to = in(reg32) to.element::<T>(index), zero = in(reg32) zero,
            from = in(reg64) global::at::<T>(source, from), policy = in(reg64) global::reads_stay(),
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn copy_pack_if<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred %when; setp.ne.b32 %when, {}, 0; @%when cp.async.cg.shared.global [{}], [{}], 16; }}",
            in(reg32) when as u32, in(reg32) to.element::<T>(index), in(reg64) global::at::<T>(source, from),
            options(nostack, preserves_flags)
        );
    }
}

/// Copies of so many bytes, or of zeros.
macro_rules! copy_or_zeros {
    ($($name:ident: $cache:literal $bytes:literal;)*) => {$(
        // A copy of no bytes is one of zeros. memcheck takes it for one of all, so it names an address that may be read.
        #[inline(always)]
        pub unsafe fn $name<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    "{{ .reg .pred %when; .reg .b64 %from; .reg .b32 %bytes;",
                    "setp.ne.b32 %when, {when}, 0; selp.b64 %from, {from}, {base}, %when;",
                    concat!("selp.b32 %bytes, ", $bytes, ", 0, %when;"),
                    concat!("cp.async.", $cache, ".shared.global [{to}], [%from], ", $bytes, ", %bytes; }}"),
                    when = in(reg32) when as u32, to = in(reg32) to.element::<T>(index),
                    from = in(reg64) global::at::<T>(source, from), base = in(reg64) global::at::<T>(source, 0),
                    options(nostack, preserves_flags)
                );
            }
        }
    )*};
}
copy_or_zeros! {
    copy_4: "ca" 4;
    copy_16: "cg" 16;
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
