//! Shadow tables: two words a granule, the last writer and the first unordered reader.
//!
//! The granule is the smallest aligned access made so far: a table is split when a smaller one comes. That is
//! exact, since an access always covers whole granules.

use std::alloc::Layout;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{clock, pages};

/// Widest granule, as a power of two: the widest access.
pub(crate) const WIDEST: u32 = 4;

pub(crate) struct Shadow {
    words: *mut AtomicU64,
    granules: usize,
    /// Logarithm of the granule in bytes.
    pub(crate) log: u32,
    /// The granule.
    pub(crate) bytes: usize,
    /// Clocks of other eras mean nothing here.
    pub(crate) era: u64,
}

// SAFETY: the words are atomics on the heap, owned by the table.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

/// Logarithm of the granule that an access needs.
#[inline]
pub(crate) fn granule_of(offset: usize, bytes: usize) -> u32 {
    (offset | bytes | 1 << WIDEST).trailing_zeros()
}

/// Tables of freed memory, with the time of their retirement: a launch that starts later may use them as they
/// are, since it takes all their words for old. Fresh pages cost more than the checks made on them.
static POOL: Mutex<Vec<(Shadow, u64)>> = Mutex::new(Vec::new());
/// Bytes that the pool keeps, and the smallest table worth keeping.
const POOL_BYTES: usize = 256 << 20;
const POOL_LEAST: usize = 1 << 16;

/// Words that `prefetch` looks ahead.
const AHEAD: usize = 24;

impl Shadow {
    /// A table for a launch that started at `time`.
    ///
    /// # Panics
    /// When there is no memory, which in a kernel stops the launch with a report.
    pub(crate) fn new(bytes: usize, log: u32, time: u64) -> Shadow {
        let era = clock::era(time);
        let granules = (bytes >> log) + 1;
        if let Some(mut found) = Shadow::from_pool(granules, time) {
            (found.log, found.bytes) = (log, 1 << log);
            return found;
        }
        let layout = Shadow::layout(granules);
        let words = pages::zeroed(layout).cast::<AtomicU64>();
        let size = layout.size();
        assert!(
            !words.is_null(),
            "the checker needs {size} bytes to note who accesses {bytes}, and has no memory"
        );
        Shadow { words, granules, log, bytes: 1 << log, era }
    }

    fn layout(granules: usize) -> Layout {
        let layout = Layout::array::<[AtomicU64; 2]>(granules).expect("shadow larger than the address space");
        layout.align_to(64).expect("a power of two")
    }

    /// A retired table of about this size whose words are all older than `time`.
    fn from_pool(granules: usize, time: u64) -> Option<Shadow> {
        if granules * 16 < POOL_LEAST {
            return None;
        }
        let mut pool = POOL.lock().unwrap_or_else(|e| e.into_inner());
        let fits = |s: &Shadow| s.era == clock::era(time) && (granules..=2 * granules).contains(&s.granules);
        let index = pool.iter().position(|(s, retired)| *retired < time && fits(s))?;
        Some(pool.swap_remove(index).0)
    }

    /// Gives a table back that no launch in progress uses.
    pub(crate) fn retire(self) {
        let size = self.granules * 16;
        if size < POOL_LEAST {
            return;
        }
        let mut pool = POOL.lock().unwrap_or_else(|e| e.into_inner());
        pool.push((self, clock::now()));
        let mut total: usize = pool.iter().map(|(s, _)| s.granules * 16).sum();
        while total > POOL_BYTES {
            total -= pool.remove(0).0.granules * 16;
        }
    }

    /// Writer's and reader's word of a granule.
    #[inline]
    pub(crate) fn granule(&self, index: usize) -> (&AtomicU64, &AtomicU64) {
        debug_assert!(index < self.granules);
        // SAFETY: callers have checked the access against the memory, whose size gave the table's.
        unsafe { (&*self.words.add(2 * index), &*self.words.add(2 * index + 1)) }
    }

    /// The word of the last writer of the byte at `offset`.
    pub(crate) fn last_writer(&self, offset: usize) -> u64 {
        self.granule(offset >> self.log).0.load(Ordering::Relaxed)
    }

    /// Marks the last write to the granules of these bytes as a bulk copy's.
    pub(crate) fn mark_bulk(&self, offset: usize, bytes: usize) {
        for index in offset >> self.log..=(offset + bytes - 1) >> self.log {
            self.granule(index).0.fetch_or(crate::word::BULK, Ordering::Relaxed);
        }
    }

    /// Fetches ahead of a granule: lanes walk along rows too short for the hardware to notice.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address is harmless.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.words.wrapping_add(2 * index + AHEAD).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = index;
    }

    /// The same history in granules of `1 << log` bytes.
    pub(crate) fn split(&self, bytes: usize, log: u32, time: u64) -> Shadow {
        let fine = Shadow::new(bytes, log, time);
        for index in 0..(bytes >> log) + 1 {
            let (w, r) = self.granule((index << log) >> self.log);
            let (w, r) = (w.load(Ordering::Relaxed), r.load(Ordering::Relaxed));
            let (fw, fr) = fine.granule(index);
            fw.store(w, Ordering::Relaxed);
            fr.store(r, Ordering::Relaxed);
        }
        fine
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { pages::free(self.words.cast(), Shadow::layout(self.granules)) };
    }
}

/// Are `B` bytes all written?
///
/// # Safety
/// `init..init + B` must be a live initialisation map.
#[inline(always)]
pub(crate) unsafe fn all_written<const B: usize>(init: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match B {
            1 => init.read() == 1,
            2 => init.cast::<u16>().read_unaligned() == 0x0101,
            4 => init.cast::<u32>().read_unaligned() == 0x0101_0101,
            8 => init.cast::<u64>().read_unaligned() == u64::MAX / 255,
            16 => init.cast::<u128>().read_unaligned() == u128::MAX / 255,
            _ => false,
        }
    }
}

/// Marks bytes as written.
///
/// # Safety
/// `init..init + bytes` must be a live initialisation map.
#[inline]
pub(crate) unsafe fn mark(init: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => init.write(1),
            2 => init.cast::<u16>().write_unaligned(0x0101),
            4 => init.cast::<u32>().write_unaligned(0x0101_0101),
            8 => init.cast::<u64>().write_unaligned(u64::MAX / 255),
            16 => init.cast::<u128>().write_unaligned(u128::MAX / 255),
            _ => init.write_bytes(1, bytes),
        }
    }
}

/// The first byte of a range that nothing wrote.
///
/// # Safety
/// `init..init + bytes` must be a live initialisation map.
pub(crate) unsafe fn first_unwritten(init: *const u8, bytes: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe { (0..bytes).find(|&i| *init.add(i) == 0) }
}
