//! A block's shared memory: bytes, which of them were written in this block, and their shadow.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ptr;

use crate::clock::{self, SyncCells};
use crate::pages;
use crate::race::Space;
use crate::shadow::{self, Shadow};

/// Alignment of shared memory, enough for any swizzle.
const ALIGNMENT: usize = 1024;

pub(crate) struct Arena {
    data: Cell<*mut u8>,
    init: Cell<*mut u8>,
    capacity: Cell<usize>,
    shadow: Cell<*mut Shadow>,
    /// Bytes in use: dynamic ones, then the static arrays met so far.
    pub(crate) used: Cell<usize>,
    pub(crate) sync: RefCell<SyncCells>,
    /// High bits of the last block that ran here: its shadow words do not hold them.
    high: Cell<u64>,
}

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena {
            data: Cell::new(ptr::null_mut()),
            init: Cell::new(ptr::null_mut()),
            capacity: Cell::new(0),
            shadow: Cell::new(ptr::null_mut()),
            used: Cell::new(0),
            sync: RefCell::default(),
            high: Cell::new(0),
        }
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.capacity.get(), ALIGNMENT).expect("shared memory is small")
    }

    fn free(&self) {
        if self.capacity.get() > 0 {
            // SAFETY: allocated with this layout in `start`.
            unsafe {
                pages::free(self.data.get(), self.layout());
                pages::free(self.init.get(), self.layout());
            }
            self.capacity.set(0);
        }
        self.free_shadow();
    }

    /// Forgets all accesses.
    pub(crate) fn free_shadow(&self) {
        let table = self.shadow.replace(ptr::null_mut());
        if !table.is_null() {
            // SAFETY: made by `make_shadow`; no reference to it outlives a check.
            drop(unsafe { Box::from_raw(table) });
        }
    }

    /// Readies the memory for a block. `limit` bounds what it may come to use.
    pub(crate) fn start(&self, dynamic: usize, limit: usize, high: u64) {
        if self.capacity.get() > 0 && self.used.get() > 0 {
            // SAFETY: `used` never passes the capacity.
            unsafe { self.init.get().write_bytes(0, self.used.get()) };
        }
        if self.high.replace(high) != high {
            self.free_shadow();
        }
        self.sync.borrow_mut().clear();
        self.used.set(0);
        if self.capacity.get() < limit && self.capacity.get() > 0 {
            self.free();
        }
        if dynamic > 0 {
            self.extend(dynamic, limit);
        }
    }

    /// Makes the first `bytes` usable.
    pub(crate) fn extend(&self, bytes: usize, limit: usize) {
        if self.capacity.get() == 0 {
            self.capacity.set(limit.max(bytes).next_multiple_of(ALIGNMENT));
            let (data, init) = (pages::zeroed(self.layout()), pages::zeroed(self.layout()));
            if data.is_null() || init.is_null() {
                handle_alloc_error(self.layout());
            }
            self.data.set(data);
            self.init.set(init);
        }
        self.used.set(self.used.get().max(bytes));
    }

    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        self.data.get()
    }

    /// The bytes hold nothing until they are written again.
    #[inline]
    pub(crate) fn mark_unwritten(&self, offset: usize, bytes: usize) {
        // SAFETY: callers have checked the range against `used`.
        unsafe { self.init.get().add(offset).write_bytes(0, bytes) }
    }

    #[cold]
    #[inline(never)]
    fn make_shadow(&self, found: Option<&Shadow>, log: u32, time: u64) -> &Shadow {
        let new = match found {
            Some(s) if s.era == clock::era(time) => s.split(self.capacity.get(), log, time),
            _ => Shadow::new(self.capacity.get(), log, time),
        };
        self.free_shadow();
        let new = Box::into_raw(Box::new(new));
        self.shadow.set(new);
        // SAFETY: just made.
        unsafe { &*new }
    }
}

impl Space for Arena {
    const SHARED: bool = true;
    const LIFETIME: &'static str = " in this block";

    fn describe(&self, offset: usize) -> String {
        format!("byte {offset} of shared memory")
    }

    fn byte(&self, offset: usize) -> *const u8 {
        self.data().wrapping_add(offset)
    }

    #[inline(always)]
    fn is_written<const B: usize>(&self, offset: usize) -> bool {
        // SAFETY: callers have checked the range against `used`.
        unsafe { shadow::all_written::<B>(self.init.get().add(offset)) }
    }

    #[inline]
    fn unwritten(&self, offset: usize, bytes: usize) -> Option<usize> {
        // SAFETY: callers have checked the range against `used`.
        unsafe { shadow::first_unwritten(self.init.get().add(offset), bytes) }.map(|i| offset + i)
    }

    #[inline]
    fn mark_written(&self, offset: usize, bytes: usize) {
        // SAFETY: callers have checked the range against `used`.
        unsafe { shadow::mark(self.init.get().add(offset), bytes) }
    }

    #[inline(always)]
    fn ready_shadow(&self, bytes: usize, offset: usize, era: u64) -> Option<&Shadow> {
        // SAFETY: as for `shadow`.
        let shadow = unsafe { self.shadow.get().as_ref() }?;
        (shadow.bytes == bytes && shadow.era == era && offset & (bytes - 1) == 0).then_some(shadow)
    }

    #[inline]
    fn shadow(&self, log: u32, time: u64) -> &Shadow {
        // SAFETY: the table lives until replaced, and no check keeps a reference over a replacement.
        match unsafe { self.shadow.get().as_ref() } {
            Some(s) if s.log <= log && s.era == clock::era(time) => s,
            found => self.make_shadow(found, log, time),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.free();
    }
}
