//! Stacks of the lanes: a warp's 32 in one mapping, committed page by page.
//!
//! The first 8192 lanes of the process get a guard page each. Every guard splits a mapping in two and Linux
//! allows 65530 mappings, so lanes beyond get a canary word, which is looked at when the lane ends.

use corosensei::stack::{Stack, StackPointer};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const GUARDED_LANES: usize = 8192;
pub(crate) const CANARY: u64 = 0x5afe_57ac_c0de_d00d;
/// Lanes start at different offsets in their pages, or their frames would all fall into the same cache sets.
const COLOURS: usize = 8;
const COLOUR_BYTES: usize = 512;

static GUARDED: AtomicUsize = AtomicUsize::new(0);

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Bytes of stack a lane has; `SIMT_STACK_KB` overrides 64 KiB.
fn stack_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let kb = std::env::var("SIMT_STACK_KB").ok().and_then(|v| v.parse::<usize>().ok()).unwrap_or(64);
        (kb.clamp(32, 1 << 20) * 1024).next_multiple_of(page_size())
    })
}

/// One mapping of 32 stacks.
pub(crate) struct Slab {
    start: usize,
    bytes: usize,
    guarded: bool,
}

impl Slab {
    pub(crate) fn new() -> io::Result<Arc<Slab>> {
        let page = page_size();
        let stride = stack_bytes() + page;
        let bytes = 32 * stride;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a fresh anonymous mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut guarded = GUARDED.fetch_add(32, Ordering::Relaxed) + 32 <= GUARDED_LANES;
        // SAFETY: all addresses lie in the mapping just made; a failure leaves it usable with canaries.
        unsafe {
            #[cfg(target_os = "linux")]
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
            for lane in 0..32 {
                if guarded {
                    guarded = libc::mprotect(start.byte_add(lane * stride), page, libc::PROT_NONE) == 0;
                }
            }
            if !guarded {
                GUARDED.fetch_sub(32, Ordering::Relaxed);
                libc::mprotect(start, bytes, prot);
                for lane in 0..32 {
                    start.byte_add(lane * stride).cast::<u64>().write(CANARY);
                }
            }
        }
        Ok(Arc::new(Slab { start: start as usize, bytes, guarded }))
    }

    pub(crate) fn stack(self: &Arc<Slab>, lane: usize) -> LaneStack {
        let stride = self.bytes / 32;
        let limit = self.start + lane * stride;
        let base = limit + stride - lane % COLOURS * COLOUR_BYTES;
        LaneStack { base, limit, slab: self.clone() }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.guarded {
            GUARDED.fetch_sub(32, Ordering::Relaxed);
        }
        // SAFETY: the last stack of the slab is gone, each held the slab alive.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) };
    }
}

/// One lane's stack.
pub(crate) struct LaneStack {
    base: usize,
    limit: usize,
    slab: Arc<Slab>,
}

impl LaneStack {
    /// The guard page (or canary page) of the stack.
    pub(crate) fn guard(&self) -> std::ops::Range<usize> {
        self.limit..self.limit + page_size()
    }

    /// The canary, null where there is a guard page.
    pub(crate) fn canary(&self) -> *const u64 {
        if self.slab.guarded { std::ptr::null() } else { self.limit as *const u64 }
    }

    pub(crate) fn reset_canary(&self) {
        if !self.slab.guarded {
            // SAFETY: as above, and no frame is live there.
            unsafe { (self.limit as *mut u64).write(CANARY) };
        }
    }
}

// SAFETY: base and limit bound memory that the slab keeps mapped; overflows meet the guard page, or, for lanes
// beyond the guarded ones, are found by the canary (the documented limit of this checker).
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.base).expect("a mapping is not at address 0")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.limit).expect("a mapping is not at address 0")
    }
}
