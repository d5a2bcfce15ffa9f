//! Part of eight bytes: few stores of 1 to 8 bytes, since each asks L2 for its sector, however little it writes of it.

use core::ops::Range;

use cuda_std::prelude::*;

/// Writes the bytes `range` of eight bytes at byte `at` of y, a multiple of 8, by elements of `element` bytes and multiples of
/// them: at most four stores where one for each byte were eight.
///
/// # Safety
/// As [`GlobalMut::set`] for those bytes.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn set_part(
    y: GlobalMut<u8>,
    keep: Keep,
    at: usize,
    words: [u32; 2],
    range: Range<u32>,
    element: u32,
) {
    let mut part = Part { y, keep, at, words, low: range.start, high: range.end };
    // SAFETY: the caller's contract.
    unsafe {
        // Up to a multiple of ever more bytes, then down by what is left.
        part.write::<1, true>(element);
        part.write::<2, true>(element);
        part.write::<4, true>(element);
        part.write::<8, false>(element);
        part.write::<4, false>(element);
        part.write::<2, false>(element);
        part.write::<1, false>(element);
    }
}

/// What is left of them.
struct Part {
    y: GlobalMut<u8>,
    keep: Keep,
    at: usize,
    words: [u32; 2],
    low: u32,
    high: u32,
}

impl Part {
    /// Writes the next `SIZE` bytes where there are so many; on the way `UP` only where what follows is then at a multiple of
    /// more.
    ///
    /// # Safety
    /// As [`set_part`]; `low` is a multiple of `SIZE`, or fewer bytes than that are left.
    #[inline(always)]
    #[track_caller]
    unsafe fn write<const SIZE: usize, const UP: bool>(&mut self, element: u32) {
        // A constant, once inlined.
        let size = const { SIZE as u32 };
        if size < element {
            return;
        }
        let when = self.low + size <= self.high && (!UP || self.low & size != 0);
        let [first, second] = self.words;
        let word = if self.low & 4 != 0 { second } else { first };
        let words = match SIZE {
            8 => [first, second],
            4 => [word, 0],
            // Of which the low bytes go.
            _ => [word >> (8 * (self.low & 3)), 0],
        };
        // SAFETY: the caller's contract.
        unsafe { self.y.set_piece_keeping::<SIZE>(self.keep, when, self.at + self.low as usize, words) };
        self.low += if when { size } else { 0 };
    }
}
