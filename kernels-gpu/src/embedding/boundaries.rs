//! Packed sequences: the tokens of all of them, one behind the other, and where each begins and the last ends.
//!
//! The boundaries come from outside and steer memory access, so they are checked and brought into range before anything
//! else reads them: the first is 0, the last the number of tokens, and none is below the one before it or further from it
//! than there are positions.

use super::tokens::{Tokens, record};
use cuda_std::prelude::*;

/// The boundaries, and what they may be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Boundaries {
    /// How they lie; `vocabulary` is the number of tokens plus 1, `steps` of no meaning.
    pub values: Tokens,
    /// How many there are: one more than sequences.
    pub count: u32,
    /// The most steps of a sequence.
    pub most: u32,
}
cuda_std::plain_parameter!(Boundaries);
const _: () = assert!(size_of::<Boundaries>() == size_of::<Tokens>() + 8);

/// `starts[i]` = boundary i, in 0..=tokens; records a first that is not 0, a last that is not the number of tokens,
/// and lengths that are negative or too large.
///
/// # Safety
/// `cu_seqlens` are as `p` says, seen as words; `starts` has room for as many, the others are one word each, and the
/// grid covers the boundaries.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn read_boundaries(
    cu_seqlens: Global<u32>,
    starts: GlobalMut<u32>,
    first: GlobalMut<u64>,
    last: GlobalMut<u64>,
    lengths: GlobalMut<u64>,
    p: Boundaries,
) {
    let number = thread::index_1d() as u32;
    if number < p.count {
        let tokens = p.values.vocabulary - 1;
        // SAFETY: the caller's contract; the next boundary is read where there is one.
        unsafe {
            let value = p.values.read(cu_seqlens, number).value;
            if number == 0 && value != 0 {
                record(first, number, value);
            }
            if number + 1 == p.count {
                if value != tokens {
                    record(last, number, value);
                }
            } else {
                let length = p.values.read(cu_seqlens, number + 1).value.saturating_sub(value);
                if length < 0 || length > p.most as i64 {
                    record(lengths, number, length);
                }
            }
            starts.set(number as usize, value.max(0).min(tokens) as u32); // not `clamp`, which can panic
        }
    }
}

/// The step of a token: its number in its sequence, the last that begins no later. Where boundaries are wrong, any number.
///
/// # Safety
/// `starts` has `sequences` elements, at least one, and one more.
#[inline(always)]
pub(crate) unsafe fn step(starts: Global<u32>, sequences: u32, token: u32) -> u32 {
    let (mut low, mut high) = (0, sequences);
    // SAFETY: the caller's contract; both stay within the sequences.
    unsafe {
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if starts.get(middle as usize) <= token {
                low = middle;
            } else {
                high = middle;
            }
        }
        token.wrapping_sub(starts.get(low as usize))
    }
}
