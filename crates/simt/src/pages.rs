//! Zeroed memory, committed page by page where it is large.
//!
//! The allocator clears aligned memory at once; shared memory and shadow tables are mostly not touched at all.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

/// From this size on memory is mapped, and from the second on in huge pages.
const MAPPED: usize = 1 << 16;
const HUGE: usize = 2 << 20;

/// Zeroed memory, null when there is none. The alignment is at most a page.
pub(crate) fn zeroed(layout: Layout) -> *mut u8 {
    debug_assert!(layout.size() > 0 && layout.align() <= 4096);
    if layout.size() < MAPPED {
        // SAFETY: the layout is not empty.
        return unsafe { alloc_zeroed(layout) };
    }
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping.
    let p = unsafe { libc::mmap(ptr::null_mut(), layout.size(), prot, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    #[cfg(target_os = "linux")]
    if layout.size() >= HUGE {
        // SAFETY: advice on the mapping just made.
        unsafe { libc::madvise(p, layout.size(), libc::MADV_HUGEPAGE) };
    }
    p.cast()
}

/// Gives memory back.
///
/// # Safety
/// `p` must come from `zeroed` with the same layout.
pub(crate) unsafe fn free(p: *mut u8, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe {
        if layout.size() < MAPPED {
            dealloc(p, layout);
        } else {
            libc::munmap(p.cast(), layout.size());
        }
    }
}
