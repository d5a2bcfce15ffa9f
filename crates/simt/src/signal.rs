//! Stack overflow of a lane: its guard page faults, and the lane ends instead of the process.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod imp {
    use std::mem::MaybeUninit;
    use std::sync::{Once, OnceLock};

    use crate::ctx::current;

    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    pub(crate) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: a zeroed sigaction is valid; the handler below keeps to what handlers may do.
            unsafe {
                let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(libc::SIGSEGV, std::ptr::null(), previous.as_mut_ptr());
                let _ = PREVIOUS.set(previous.assume_init());
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
            }
        });
    }

    unsafe extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid siginfo.
        let address = unsafe { (*info).si_addr() } as usize;
        let ctx = current();
        // SAFETY: non-null means that this thread runs that state; only cells are read.
        if !ctx.is_null() && unsafe { (*ctx).in_lane.get() } {
            // SAFETY: as above.
            let lane = unsafe { (*ctx).lane() };
            let (start, end) = lane.guard.get();
            if (start..end).contains(&address)
                && let Some(trap) = lane.trap.get()
            {
                // SAFETY: the fault happened on this lane's stack, in code that will not be resumed.
                unsafe {
                    let regs = trap.setup_trap_handler(|| ());
                    let context = &mut *context.cast::<libc::ucontext_t>();
                    let gregs = &mut context.uc_mcontext.gregs;
                    gregs[libc::REG_RIP as usize] = regs.rip as i64;
                    gregs[libc::REG_RSP as usize] = regs.rsp as i64;
                    gregs[libc::REG_RBP as usize] = regs.rbp as i64;
                    gregs[libc::REG_RDI as usize] = regs.rdi as i64;
                    gregs[libc::REG_RSI as usize] = regs.rsi as i64;
                }
                return;
            }
        }
        // Not ours: the previous action meets the fault when the instruction runs again.
        if let Some(previous) = PREVIOUS.get() {
            // SAFETY: restores what was there.
            unsafe { libc::sigaction(signal, previous, std::ptr::null_mut()) };
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use imp::install;

/// Elsewhere a stack overflow ends the process, as it does without this crate.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn install() {}
