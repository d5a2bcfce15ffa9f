//! Tokens of every type, read and checked.

use cuda_std::atomic::{Ordering, Scope};
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// What the `kind` of [`Tokens`] means.
pub mod token_kind {
    /// u32.
    pub const U32: u32 = 0;
    /// i32.
    pub const I32: u32 = 1;
    /// i64.
    pub const I64: u32 = 2;
}

/// Bits of the value in the record of a bad token; above them stands its index. Room for every u32 and i32; an i64 is
/// brought to the nearest number that fits.
pub const FAULT_BITS: u32 = 33;

/// How tokens lie, and what they may be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// Tokens from sequence to sequence.
    pub sequence: i64,
    /// Tokens from step to step.
    pub step: i64,
    /// Rows of the table: tokens are below it.
    pub vocabulary: i64,
    /// Steps of a sequence.
    pub steps: Divisor,
    /// One of [`token_kind`].
    pub kind: u32,
}
cuda_std::plain_parameter!(Tokens);
const _: () = assert!(size_of::<Tokens>() == 3 * 8 + 12 + 4);

/// A token.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    /// What came.
    pub value: i64,
    /// Whether the table has this row.
    pub valid: bool,
    /// The number of its step.
    pub step: u32,
}

impl Tokens {
    /// The words that so many tokens take which follow one another.
    #[inline(always)]
    pub fn words_of(&self, tokens: u32) -> usize {
        (tokens as usize) << (self.kind / token_kind::I64)
    }

    /// Reads token `number`, counted through the sequences.
    ///
    /// # Safety
    /// `tokens` are as these parameters say, seen as words, and have one of this number.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, tokens: Global<u32>, number: u32) -> Token {
        // SAFETY: the caller's contract.
        unsafe { self.read_by(number, |at| tokens.get(at), |at| tokens.get_8_if(true, at, 0)) }
    }

    /// The key of token `number`: the token, or V for one that has no row, which is recorded.
    ///
    /// # Safety
    /// As [`Self::read`]; `fault` is one word.
    #[inline(always)]
    pub(super) unsafe fn key(&self, tokens: Global<u32>, number: u32, fault: GlobalMut<u64>) -> u32 {
        // SAFETY: the caller's contract.
        unsafe {
            let token = self.read(tokens, number);
            if !token.valid {
                record(fault, number, token.value);
            }
            if token.valid { token.value as u32 } else { self.vocabulary as u32 }
        }
    }

    /// What token `number` is at this moment, as in [`Global::glimpse`].
    ///
    /// # Safety
    /// As [`Self::read`].
    #[inline(always)]
    pub(crate) unsafe fn glimpse(&self, tokens: Global<u32>, number: u32) -> Token {
        // SAFETY: the caller's contract.
        let word = |at: usize| unsafe { tokens.glimpse(at) };
        self.read_by(number, word, |at| [word(at), word(at + 1)])
    }

    /// Token `number`, from a word or from two.
    #[inline(always)]
    fn read_by(
        &self,
        number: u32,
        one: impl FnOnce(usize) -> u32,
        two: impl FnOnce(usize) -> [u32; 2],
    ) -> Token {
        let (sequence, step) = self.steps.div_rem(number);
        let at = (sequence as i64 * self.sequence + step as i64 * self.step) as usize;
        let value = if self.kind == token_kind::I64 {
            let [low, high] = two(2 * at);
            ((high as u64) << 32 | low as u64) as i64
        } else {
            let word = one(at);
            if self.kind == token_kind::I32 { word as i32 as i64 } else { word as i64 }
        };
        Token { value, valid: value >= 0 && value < self.vocabulary, step }
    }
}

/// Records a bad token for the host, which learns of that with the lowest index.
///
/// # Safety
/// `fault` is one word.
#[inline(always)]
pub(crate) unsafe fn record(fault: GlobalMut<u64>, index: u32, value: i64) {
    const HALF: i64 = 1 << (FAULT_BITS - 1);
    let value = value.max(-HALF); // not `clamp`, which can panic
    let value = value.min(HALF - 1) as u64 & ((1 << FAULT_BITS) - 1);
    let record = (index as u64) << FAULT_BITS | value;
    // SAFETY: the caller's contract.
    unsafe { fault.atomic_min(0, record, Ordering::Relaxed, Scope::Device) };
}
