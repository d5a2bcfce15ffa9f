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
