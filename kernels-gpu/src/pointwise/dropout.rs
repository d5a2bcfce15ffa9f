//! y = x·scale where a random word keeps the element, else 0; forward and backward alike.
//!
//! Which words are whose is [`dropping`](crate::dropping)'s to say. Ten wide multiplications and ten xors for two
//! elements: less than what moving them costs.

use super::Function;
use super::dense::{self, Dense, Operands};
use super::strided::{self, Strided};
use crate::dropping::Dropping;
use cuda_std::prelude::*;

/// ALIGNED: every four elements are one group of the stream's words.
#[derive(Clone, Copy)]
struct Dropout<const ALIGNED: bool>(Dropping);

impl<const ALIGNED: bool> Function for Dropout<ALIGNED> {
    #[inline(always)]
    fn one(self, at: u64, x: f32, _: f32, _: f32) -> f32 {
        self.0.one(at, x)
    }

    #[inline(always)]
    fn four(self, at: u64, x: [f32; 4], _: [f32; 4], _: [f32; 4]) -> [f32; 4] {
        let stream = self.0.stream;
        let words = if const { ALIGNED } { stream.four(at / 4) } else { stream.four_from(at) };
        let mut y = [0.0; 4];
        for i in 0..4 {
            y[i] = self.0.apply(words[i], x[i]);
        }
        y
    }
}

/// y = dropout(a).
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ PACKS: 2; threads: 256 }, { PACKS: 4; threads: 256, min_blocks: 4 }],
)]
pub unsafe fn dropout_dense<T: Float, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe {
        // Units are whole groups of four, so that all of them begin alike. Without a branch for each group their words
        // are computed side by side.
        if (p.first as u32 + p.head).is_multiple_of(4) {
            dense::run::<T, T, _, PACKS>(Dropout::<true>(p.dropping), operands, &p)
        } else {
            dense::run::<T, T, _, PACKS>(Dropout::<false>(p.dropping), operands, &p)
        }
    }
}

/// y = dropout(a), of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(family = "pointwise", types = [f32, f16, bf16], instances = [{ ; threads: 256 }])]
pub unsafe fn dropout_strided<T: Float>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(Dropout::<false>(p.dropping), operands, &p) }
}
