use core::arch::asm;

#[inline(always)]
pub fn wait() {
    // SAFETY: orders memory (sm_90); returns at once where the launch was not early.
    unsafe { asm!("griddepcontrol.wait;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn allow_next() {
    // SAFETY: lets others start (sm_90).
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack, preserves_flags)) };
}
