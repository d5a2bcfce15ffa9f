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

/// The step of a token: its number in its sequence. Where boundaries are wrong, any number.
///
/// # Safety
/// As [`sequence_of`].
#[inline(always)]
pub(crate) unsafe fn step(starts: Global<u32>, sequences: u32, token: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { token.wrapping_sub(starts.get(sequence_of(starts, sequences, token) as usize)) }
}

/// [`step`] of a token that is no earlier than the first of sequence `near`, found from there: one load where it is in that sequence.
///
/// # Safety
/// As [`sequence_of`]; `near` is a sequence.
#[inline(always)]
pub(crate) unsafe fn step_from(starts: Global<u32>, sequences: u32, near: u32, token: u32) -> u32 {
    let (mut low, mut stride) = (near, 1);
    // SAFETY: the caller's contract; what is read is below the sequences.
    unsafe {
        while low + stride < sequences && starts.get((low + stride) as usize) <= token {
            low += stride;
            stride *= 2;
        }
        let high = (low + stride).min(sequences);
        token.wrapping_sub(starts.get(between(starts, low, high, token) as usize))
    }
}

/// [`sequence_of`] for a token that all lanes of the warp have in common.
///
/// # Safety
/// As [`sequence_of`]; all lanes of the warp call.
#[inline(always)]
pub(crate) unsafe fn sequence_of_warp(starts: Global<u32>, sequences: u32, token: u32) -> u32 {
    // SAFETY: the caller's contract; what is read is below the sequences.
    last_of_warp(0, sequences, |at| unsafe { starts.get(at as usize) } <= token)
}

/// The last of `low..high` for which `holds`, as it does for all before that one, or else `low`: each lane looks at one of 32 at a time.
/// All lanes of the warp call.
#[inline(always)]
pub(crate) fn last_of_warp(mut low: u32, mut high: u32, holds: impl Fn(u32) -> bool) -> u32 {
    while high - low > 1 {
        let stride = (high - low).div_ceil(warp::SIZE);
        let at = low + warp::lane_id() * stride;
        let votes = warp::warp_vote_ballot(warp::FULL, at < high && holds(at));
        low += votes.trailing_ones().saturating_sub(1) * stride;
        high = high.min(low + stride);
    }
    low
}

/// The sequence of a token: the last that begins no later. Where boundaries are wrong, any.
///
/// # Safety
/// `starts` has `sequences` elements, at least one, and one more.
#[inline(always)]
unsafe fn sequence_of(starts: Global<u32>, sequences: u32, token: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { between(starts, 0, sequences, token) }
}

/// The sequence of a token that is one of `low..high`, which are not empty.
///
/// # Safety
/// As [`sequence_of`]; `high` is at most the number of sequences.
#[inline(always)]
unsafe fn between(starts: Global<u32>, mut low: u32, mut high: u32, token: u32) -> u32 {
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
    }
    low
}

/// What rows of scores, one for each token of packed sequences, keep of their columns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KeptColumns {
    /// Tokens.
    pub tokens: u32,
    /// Sequences, at least one.
    pub sequences: u32,
    /// Columns of a row.
    pub cols: u32,
    /// 1 where the columns are all sequences' tokens, 0 where they are the steps of the row's own sequence.
    pub packed: u32,
    /// 1 where step q keeps the columns of the steps up to q + `offset` alone.
    pub causal: u32,
    /// See `causal`.
    pub offset: i32,
}
cuda_std::plain_parameter!(KeptColumns);

/// The first column that the row of each token keeps, and one past the last: those of its sequence. Where boundaries are
/// wrong, some columns of the row.
///
/// # Safety
/// `starts` are the boundaries that [`read_boundaries()`](fn@read_boundaries) gave; `firsts` and `ends` have an element for
/// each token, and the grid covers them.
#[kernel(family = "embedding", instances = [{ ; threads: 256 }])]
pub unsafe fn kept_columns(
    starts: Global<u32>,
    firsts: GlobalMut<i32>,
    ends: GlobalMut<i32>,
    p: KeptColumns,
) {
    let token = thread::index_1d() as u32;
    if token < p.tokens {
        // SAFETY: the caller's contract.
        unsafe {
            let sequence = sequence_of(starts, p.sequences, token) as usize;
            let (begin, end) = (starts.get(sequence), starts.get(sequence + 1));
            let mut count = end.saturating_sub(begin) as i64;
            if p.causal != 0 {
                let limit = token.saturating_sub(begin) as i64 + p.offset as i64 + 1;
                count = count.min(limit).max(0);
            }
            let first = if p.packed != 0 { begin as i64 } else { 0 };
            let (first, end) = (first.min(p.cols as i64), (first + count).min(p.cols as i64));
            firsts.set(token as usize, first as i32);
            ends.set(token as usize, end as i32);
        }
    }
}
