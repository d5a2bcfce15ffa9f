//! Global memory: allocations, and the windows through which kernels see them.

use std::alloc::Layout;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::clock::{self, SyncCells};
use crate::pages;
use crate::race::Space;
use crate::shadow::{self, Shadow};

/// Alignment of an allocation's first byte, as `cuMemAlloc` gives.
pub const ALIGNMENT: usize = 256;
/// Fill of memory that nothing has written: NaN as f32, f16 and bf16, -1 as an integer.
pub const POISON: u8 = 0xff;

/// One allocation of global memory. Bytes, which of them were written, and who touched them last.
///
/// Reads and writes of the host are ordered with every launch: do not make them during one.
#[repr(transparent)]
pub struct Memory {
    inner: NonNull<Inner>,
}

/// What a `Memory` owns. It starts with a `Memory` that points to it, so that `View::memory` stays good when
/// the owner's handle moves.
#[repr(C)]
pub(crate) struct Inner {
    handle: ManuallyDrop<Memory>,
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
    /// One byte a byte, 1 where written; null when all was written from the start.
    init: *mut u8,
    shadow: AtomicPtr<Shadow>,
    all_written: AtomicBool,
    pub(crate) has_sync: AtomicBool,
    pub(crate) sync: Mutex<SyncCells>,
    retired: Mutex<Vec<*mut Shadow>>,
    name: Mutex<String>,
}

// SAFETY: bytes are reached through raw pointers only, and all else is atomic or behind a lock.
unsafe impl Send for Memory {}
// SAFETY: as above; races on the bytes are the kernel's, and what the checker reports.
unsafe impl Sync for Memory {}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_next_multiple_of(ALIGNMENT)?.max(ALIGNMENT), ALIGNMENT).ok()
}

impl Memory {
    /// Memory that nothing has written, filled with [`POISON`].
    ///
    /// # Panics
    /// When there is no memory; see [`Memory::try_uninit`].
    pub fn uninit(bytes: usize) -> Memory {
        Memory::try_uninit(bytes).unwrap_or_else(|| panic!("out of memory: {bytes} bytes"))
    }

    /// As [`Memory::uninit`], `None` when there is no memory.
    pub fn try_uninit(bytes: usize) -> Option<Memory> {
        if bytes > 1 << 28 && available().is_some_and(|free| bytes > free / 2) {
            return None;
        }
        let memory = Memory::allocate(bytes, true)?;
        // SAFETY: `base` has `len` bytes.
        unsafe { memory.inner().base.write_bytes(POISON, bytes) };
        Some(memory)
    }

    /// Initialised memory.
    ///
    /// # Panics
    /// When there is no memory.
    pub fn from_bytes(data: &[u8]) -> Memory {
        let memory = Memory::allocate(data.len(), false);
        let memory = memory.unwrap_or_else(|| panic!("out of memory: {} bytes", data.len()));
        // SAFETY: a new allocation of this length.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), memory.inner().base, data.len()) };
        memory
    }

    fn allocate(bytes: usize, track: bool) -> Option<Memory> {
        let layout = layout(bytes)?;
        let base = pages::zeroed(layout);
        let init = if track { pages::zeroed(layout) } else { ptr::null_mut() };
        if base.is_null() || (track && init.is_null()) {
            for p in [base, init] {
                if !p.is_null() {
                    // SAFETY: allocated above with this layout.
                    unsafe { pages::free(p, layout) };
                }
            }
            return None;
        }
        let inner = Box::new(Inner {
            handle: ManuallyDrop::new(Memory { inner: NonNull::dangling() }),
            base,
            len: bytes,
            init,
            shadow: AtomicPtr::new(ptr::null_mut()),
            all_written: AtomicBool::new(!track),
            has_sync: AtomicBool::new(false),
            sync: Mutex::default(),
            retired: Mutex::default(),
            name: Mutex::default(),
        });
        let inner = NonNull::from(Box::leak(inner));
        // SAFETY: ours alone so far.
        unsafe { (*inner.as_ptr()).handle = ManuallyDrop::new(Memory { inner }) };
        Some(Memory { inner })
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Inner {
        // SAFETY: lives until the owning handle drops.
        unsafe { self.inner.as_ref() }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.inner().len
    }

    /// True for an allocation of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes to the host, written or not.
    ///
    /// # Panics
    /// When the range is out of bounds.
    pub fn read(&self, offset: usize, dst: &mut [u8]) {
        self.check_range(offset, dst.len());
        // SAFETY: in range, checked above; `dst` is a distinct slice.
        unsafe { ptr::copy(self.inner().base.add(offset), dst.as_mut_ptr(), dst.len()) };
    }

    /// Copies bytes from the host.
    ///
    /// # Panics
    /// When the range is out of bounds.
    pub fn write(&self, offset: usize, src: &[u8]) {
        self.check_range(offset, src.len());
        let inner = self.inner();
        // SAFETY: in range, checked above.
        unsafe { ptr::copy(src.as_ptr(), inner.base.add(offset), src.len()) };
        inner.mark_written(offset, src.len());
    }

    /// Copies bytes from other memory; those that nothing has written there count as such here, too.
    ///
    /// # Panics
    /// When a range is out of bounds.
    pub fn copy_from(&self, offset: usize, source: &Memory, source_offset: usize, bytes: usize) {
        self.check_range(offset, bytes);
        source.check_range(source_offset, bytes);
        let (to, from) = (self.inner(), source.inner());
        // SAFETY: in range, checked above.
        unsafe { ptr::copy(from.base.add(source_offset), to.base.add(offset), bytes) };
        if from.init.is_null() || from.all_written.load(Ordering::Relaxed) {
            to.mark_written(offset, bytes);
        } else if !to.init.is_null() {
            // SAFETY: the maps have a byte for each.
            unsafe { ptr::copy(from.init.add(source_offset), to.init.add(offset), bytes) };
        }
    }

    fn check_range(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|e| e <= self.len()),
            "{offset}+{bytes} is out of {} bytes of memory {:?}",
            self.len(),
            self.name()
        );
    }

    /// Offset of the first byte that nothing has written. A store by a launch without checks counts as having
    /// written all.
    pub fn first_uninitialized(&self) -> Option<usize> {
        let inner = self.inner();
        if inner.init.is_null() || inner.all_written.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the map has `len` bytes.
        let map = unsafe { std::slice::from_raw_parts(inner.init, inner.len) };
        let whole = map.chunks_exact(64).take_while(|c| c.iter().fold(1, |a, b| a & b) == 1).count() * 64;
        map[whole..].iter().position(|&b| b == 0).map(|i| whole + i)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner().base
    }

    /// A name for reports: "x", "y".
    pub fn set_name(&self, name: &str) {
        *self.inner().name.lock().unwrap_or_else(|e| e.into_inner()) = name.into();
    }

    pub(crate) fn name(&self) -> String {
        self.inner().name.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// A window of `len` elements from a byte offset on. Nothing is checked before a kernel uses it.
    pub fn view<T>(&self, byte_offset: usize, len: usize) -> View<T> {
        let inner = self.inner.as_ptr();
        // SAFETY: `inner` is alive; the pointer may lie outside the allocation, so no in-bounds arithmetic.
        let (base, memory) = unsafe { ((*inner).base, &raw const (*inner).handle) };
        View { ptr: base.wrapping_add(byte_offset).cast(), len, memory: memory.cast() }
    }
}

/// Bytes that the system can still give, where it tells.
fn available() -> Option<usize> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<usize>().ok().map(|kb| kb * 1024)
}

impl Inner {
    /// A store nobody tracks.
    #[inline]
    pub(crate) fn untracked_store(&self) {
        if !self.all_written.load(Ordering::Relaxed) {
            self.all_written.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn name(&self) -> String {
        self.handle.name()
    }

    #[cold]
    #[inline(never)]
    fn make_shadow(&self, log: u32, time: u64) -> &Shadow {
        let era = clock::era(time);
        let mut retired = self.retired.lock().unwrap_or_else(|e| e.into_inner());
        let found = self.shadow.load(Ordering::Acquire);
        // SAFETY: tables live until the memory does.
        let new = match unsafe { found.as_ref() } {
            Some(s) if s.era == era && s.log <= log => return s,
            Some(s) if s.era == era => s.split(self.len, log, time),
            _ => Shadow::new(self.len, log, time),
        };
        let new = Box::into_raw(Box::new(new));
        self.shadow.store(new, Ordering::Release);
        if !found.is_null() {
            // Other threads may still be writing to it.
            retired.push(found);
        }
        // SAFETY: just made, and freed with the memory.
        unsafe { &*new }
    }
}

impl Space for Inner {
    const SHARED: bool = false;
    const LIFETIME: &'static str = "";

    fn describe(&self, offset: usize) -> String {
        let name = self.name();
        let name = if name.is_empty() { "global memory".into() } else { format!("`{name}`") };
        format!("byte {offset} of {name} ({} bytes)", self.len)
    }

    fn byte(&self, offset: usize) -> *const u8 {
        self.base.wrapping_add(offset)
    }

    #[inline(always)]
    fn is_written<const B: usize>(&self, offset: usize) -> bool {
        // SAFETY: callers have checked the range.
        self.init.is_null() || unsafe { shadow::all_written::<B>(self.init.add(offset)) }
    }

    #[inline]
    fn unwritten(&self, offset: usize, bytes: usize) -> Option<usize> {
        if self.init.is_null() {
            return None;
        }
        // SAFETY: callers have checked the range.
        let found = unsafe { shadow::first_unwritten(self.init.add(offset), bytes) };
        found.filter(|_| !self.all_written.load(Ordering::Relaxed)).map(|i| offset + i)
    }

    #[inline]
    fn mark_written(&self, offset: usize, bytes: usize) {
        if !self.init.is_null() {
            // SAFETY: callers have checked the range.
            unsafe { shadow::mark(self.init.add(offset), bytes) };
        }
    }

    #[inline(always)]
    fn ready_shadow(&self, bytes: usize, offset: usize, era: u64) -> Option<&Shadow> {
        // SAFETY: tables live until the memory does.
        let shadow = unsafe { self.shadow.load(Ordering::Acquire).as_ref() }?;
        (shadow.bytes == bytes && shadow.era == era && offset & (bytes - 1) == 0).then_some(shadow)
    }

    #[inline]
    fn shadow(&self, log: u32, time: u64) -> &Shadow {
        let found = self.shadow.load(Ordering::Acquire);
        // SAFETY: tables live until the memory does.
        match unsafe { found.as_ref() } {
            Some(s) if s.era == clock::era(time) && s.log <= log => s,
            _ => self.make_shadow(log, time),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the owning handle goes, so this is the last use (views are documented to end before).
        unsafe {
            let inner = Box::from_raw(self.inner.as_ptr());
            let layout = layout(inner.len).expect("checked when allocated");
            pages::free(inner.base, layout);
            if !inner.init.is_null() {
                pages::free(inner.init, layout);
            }
            let mut tables = inner.retired.lock().map(|mut t| std::mem::take(&mut *t)).unwrap_or_default();
            tables.push(inner.shadow.load(Ordering::Acquire));
            for table in tables {
                if !table.is_null() {
                    Box::from_raw(table).retire();
                }
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?}, {} bytes)", self.name(), self.len())
    }
}

/// A window on a [`Memory`], which must outlive every launch that uses the window.
#[repr(C)]
pub struct View<T> {
    /// First element.
    pub ptr: *mut T,
    /// Elements.
    pub len: usize,
    /// The memory it is part of.
    pub memory: *const Memory,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<T> {}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({:p}, {} elements)", self.ptr, self.len)
    }
}

// SAFETY: a view is an address; each use of it is an unsafe call inside a launch, where it is checked.
unsafe impl<T> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for View<T> {}

impl<T> View<T> {
    /// A view of nothing, as a null pointer argument.
    pub const fn null() -> View<T> {
        View { ptr: ptr::null_mut(), len: 0, memory: ptr::null() }
    }
}
