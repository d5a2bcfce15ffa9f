#![allow(named_asm_labels)] // local to the braces around them

use super::shared::RawShared;
use core::arch::asm;

#[inline(always)]
fn address(raw: RawShared, index: u32) -> u32 {
    raw.element::<u64>(index)
}

#[inline(always)]
pub unsafe fn init(raw: RawShared, index: u32, arrivals: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) address(raw, index), in(reg32) arrivals,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn fence_init() {
    // SAFETY: orders memory.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub unsafe fn arrive_if(raw: RawShared, index: u32, when: bool) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred %when; setp.ne.b32 %when, {}, 0; @%when mbarrier.arrive.shared::cta.b64 _, [{}]; }}",
            in(reg32) when as u32, in(reg32) address(raw, index), options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn arrive_expecting(raw: RawShared, index: u32, bytes: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) address(raw, index),
            in(reg32) bytes, options(nostack, preserves_flags)
        );
    }
}

/// Tries until a wait counts as endless; each sleeps for up to some microseconds.
const TRIES: u32 = 1 << 26;

#[inline(always)]
pub unsafe fn wait(raw: RawShared, index: u32, parity: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{",
            ".reg .pred %over;",
            ".reg .b32 %tries;",
            "mov.b32 %tries, 0;",
            "again:",
            "mbarrier.try_wait.parity.shared::cta.b64 %over, [{address}], {parity};",
            "@%over bra done;",
            "add.s32 %tries, %tries, 1;",
            "setp.ne.s32 %over, %tries, {most};",
            "@%over bra again;",
            "trap;",
            "done:",
            "}}",
            address = in(reg32) address(raw, index), parity = in(reg32) parity, most = const TRIES,
            options(nostack, preserves_flags)
        );
    }
}
