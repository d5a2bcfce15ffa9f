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

#[inline(always)]
pub fn begin() {
    // A declaration that nothing reads; the host's loader knows it by its name. It orders memory, as what takes its place does.
    // SAFETY: nothing happens.
    unsafe { asm!("{{ .reg .pred begins_behind_what_is_ahead; }}", options(nostack, preserves_flags)) };
}
