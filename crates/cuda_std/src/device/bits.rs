unsafe extern "C" {
    #[link_name = "llvm.nvvm.prmt"]
    fn llvm_prmt(a: u32, b: u32, selector: u32) -> u32;
}

#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    // SAFETY: arithmetic.
    unsafe { llvm_prmt(a, b, selector) }
}

#[inline(always)]
pub fn opaque(mut word: u32) -> u32 {
    // SAFETY: a comment.
    unsafe { core::arch::asm!("// {0}", inout(reg32) word, options(pure, nomem, nostack, preserves_flags)) };
    word
}

/// `word >> by`, 0 from 32 on.
#[inline(always)]
pub fn shift_right(word: u32, by: u32) -> u32 {
    let shifted: u32;
    // SAFETY: arithmetic.
    unsafe {
        core::arch::asm!(
            "shr.u32 {}, {}, {};", out(reg32) shifted, in(reg32) word, in(reg32) by,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    shifted
}

#[inline(always)]
pub fn pinned(mut word: u32) -> u32 {
    // SAFETY: a comment. Not pure, so that it stays where it is.
    unsafe { core::arch::asm!("// {0}", inout(reg32) word, options(nomem, nostack, preserves_flags)) };
    word
}

#[inline(always)]
pub fn no_unroll() {
    // SAFETY: a directive. Not pure, so that it stays.
    unsafe { core::arch::asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) };
}

#[inline(always)]
pub fn opaque_64(mut word: u64) -> u64 {
    // SAFETY: a comment.
    unsafe { core::arch::asm!("// {0}", inout(reg64) word, options(pure, nomem, nostack, preserves_flags)) };
    word
}

#[inline(always)]
pub fn shift_left(word: u32, by: u32) -> u32 {
    let shifted;
    // SAFETY: arithmetic.
    unsafe {
        core::arch::asm!(
            "shl.b32 {}, {}, {};", out(reg32) shifted, in(reg32) word, in(reg32) by,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    shifted
}

#[inline(always)]
pub fn funnel_right(low: u32, high: u32, by: u32) -> u32 {
    let shifted;
    // SAFETY: arithmetic.
    unsafe {
        core::arch::asm!(
            "shf.r.wrap.b32 {}, {}, {}, {};", out(reg32) shifted, in(reg32) low, in(reg32) high, in(reg32) by,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    shifted
}
