//! Source locations, and their 12-bit numbers in shadow words.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A source position of an access, barrier or collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Source file as the compiler names it.
    pub file: String,
    /// Line, from 1; 0 when the position is not known.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Site {
    pub(crate) fn unknown() -> Site {
        Site { file: "<unknown>".into(), line: 0, column: 0 }
    }
}

impl From<&Location<'_>> for Site {
    fn from(at: &Location<'_>) -> Site {
        Site { file: at.file().into(), line: at.line(), column: at.column() }
    }
}

/// The compiler may emit one position several times, so the address alone does not decide.
#[inline]
pub(crate) fn same(a: &'static Location<'static>, b: &'static Location<'static>) -> bool {
    ptr::eq(a, b) || a == b
}

const SLOTS: usize = 1 << 12;
/// Slot 0 stays empty: it is the site of words that have none, and of sites beyond a full table.
static TABLE: [AtomicPtr<Location<'static>>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

/// The number of a position, stable for the life of the process.
#[inline]
pub(crate) fn number(at: &'static Location<'static>) -> u64 {
    known(at).unwrap_or_else(|| insert(at, hash(at)))
}

/// The number of a position that has the first slot it may have.
#[inline(always)]
pub(crate) fn known(at: &'static Location<'static>) -> Option<u64> {
    let slot = hash(at);
    ptr::eq(TABLE[slot].load(Ordering::Relaxed), at).then_some(slot as u64)
}

#[inline]
fn hash(at: &'static Location<'static>) -> usize {
    (ptr::from_ref(at) as usize >> 3) % SLOTS
}

#[cold]
fn insert(at: &'static Location<'static>, first: usize) -> u64 {
    let wanted = ptr::from_ref(at).cast_mut();
    for probe in 0..64 {
        let slot = (first + probe) % SLOTS;
        if slot == 0 {
            continue;
        }
        let found =
            TABLE[slot].compare_exchange(ptr::null_mut(), wanted, Ordering::AcqRel, Ordering::Acquire);
        match found {
            Ok(_) => return slot as u64,
            Err(other) if ptr::eq(other, wanted) => return slot as u64,
            Err(_) => {}
        }
    }
    0
}

/// The position behind a number.
pub(crate) fn lookup(number: u64) -> Site {
    let at = TABLE[number as usize % SLOTS].load(Ordering::Acquire);
    // SAFETY: only `insert` fills the table, with positions of static lifetime.
    unsafe { at.as_ref() }.map_or_else(Site::unknown, Site::from)
}
