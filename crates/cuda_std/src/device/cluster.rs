use core::arch::asm;

#[inline(always)]
pub fn rank() -> u32 {
    let rank;
    // SAFETY: reads a special register (sm_90).
    unsafe { asm!("mov.u32 {}, %cluster_ctarank;", out(reg32) rank, options(pure, nomem, nostack)) };
    rank
}
#[inline(always)]
pub fn index() -> u32 {
    let index;
    // SAFETY: reads a special register (sm_90).
    unsafe { asm!("mov.u32 {}, %clusterid.x;", out(reg32) index, options(pure, nomem, nostack)) };
    index
}
#[inline(always)]
pub fn count() -> u32 {
    let count;
    // SAFETY: reads a special register (sm_90).
    unsafe { asm!("mov.u32 {}, %nclusterid.x;", out(reg32) count, options(pure, nomem, nostack)) };
    count
}
#[inline(always)]
pub fn size() -> u32 {
    let size;
    // SAFETY: reads a special register (sm_90).
    unsafe { asm!("mov.u32 {}, %cluster_nctarank;", out(reg32) size, options(pure, nomem, nostack)) };
    size
}

unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn llvm_arrive();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn llvm_wait();
}

// Release and acquire by default.
#[inline(always)]
pub fn arrive() {
    // SAFETY: the caller's contract: all threads of the cluster arrive.
    unsafe { llvm_arrive() };
}
#[inline(always)]
pub fn arrive_relaxed() {
    // SAFETY: as above.
    unsafe { asm!("barrier.cluster.arrive.relaxed;", options(nostack, preserves_flags)) };
}
#[inline(always)]
pub fn wait() {
    // SAFETY: as above.
    unsafe { llvm_wait() };
}
#[inline(always)]
pub fn sync() {
    arrive();
    wait();
}
