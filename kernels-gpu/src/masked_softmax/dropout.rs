//! Softmax with dropout behind it: the probabilities, and what is left of them, from one reading of the scores.
//!
//! y[r, j] = dropout(softmax(x)[r, j]), of the probability as it was rounded: what `dropout` makes of the probabilities. Whether an
//! element is dropped is told by its number in y.
//!
//! Floor: kept x and mask bytes once, y once, and the probabilities, which the gradient needs, once.

use super::ending::{Ending, Part, Sink};
use super::locate::Row;
use super::packed_scores::Packed;
use super::{Operands, Params, register_rows, streamed_rows, strided_rows};
use crate::dropping::Dropping;
use cuda_std::prelude::*;

/// What is beside the softmax's operands.
#[derive(Clone, Copy)]
struct Dropout<T> {
    probabilities: GlobalMut<T>,
    dropping: Dropping,
}

/// y, and the probabilities.
#[derive(Clone, Copy)]
struct Both<T> {
    y: GlobalMut<T>,
    of: Dropout<T>,
}

impl<T: Float> Sink<T> for Both<T> {
    #[inline(always)]
    unsafe fn set_pack(self, when: bool, at: usize, pack: Pack, part: Part) {
        // SAFETY: the caller's contract. Packs begin at whole packs of y, which are whole groups of words.
        unsafe {
            if when {
                part.set(self.of.probabilities, true, at, pack);
                part.set(self.y, true, at, self.of.dropping.pack::<T>(at as u64, pack));
            }
        }
    }

    #[inline(always)]
    unsafe fn set(self, at: usize, value: T) {
        let left = self.of.dropping.one(at as u64, value.to_f32());
        // SAFETY: the caller's contract.
        unsafe {
            self.of.probabilities.set(at, value);
            self.y.set(at, T::from_f32(left));
        }
    }
}

impl<T: Float> Ending<T> for Dropout<T> {
    type Known = ();
    const ZEROS: bool = true;

    #[inline(always)]
    unsafe fn begin(&self, _: &Params, _: u32, row: Row) -> ((), Row) {
        ((), row)
    }

    #[inline(always)]
    fn sink(&self, operands: &Operands<T>) -> impl Sink<T> {
        Both { y: operands.y, of: *self }
    }
}

/// A kernel over rows of scores.
macro_rules! dropout_kernel {
    ($(#[$doc:meta])* $name:ident [$($const:ident)*] $instances:tt, $run:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The operands match `p`; `probabilities` lie as y does; the launch is as for the softmax's kernel of the same
        /// form.
        #[kernel(family = "masked_softmax", types = [f32, f16, bf16], instances = $instances)]
        pub unsafe fn $name<T: Float $(, const $const: usize)*>(
            x: Global<T>,
            mask: Global<u8>,
            lengths: Global<i32>,
            starts: Global<i32>,
            y: GlobalMut<T>,
            probabilities: GlobalMut<T>,
            lengths_fault: GlobalMut<u64>,
            starts_fault: GlobalMut<u64>,
            dropping: Dropping,
            p: Params,
        ) {
            let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
            // SAFETY: the caller's contract.
            unsafe { $run(&operands, &p, &Dropout { probabilities, dropping }) }
        }
    };
}

dropout_kernel!(
    /// Rows held in registers, without a bias.
    dropout_row [LANES PACKS] [
        { LANES: 1, PACKS: 2; threads: 128 },
        { LANES: 8, PACKS: 3; threads: 128 },
        { LANES: 16, PACKS: 4; threads: 128 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 32, PACKS: 4; threads: 128 },
        { LANES: 64, PACKS: 4; threads: 64 },
        { LANES: 128, PACKS: 4; threads: 128 },
        { LANES: 256, PACKS: 4; threads: 256, min_blocks: 4 },
        { LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 },
    ],
    register_rows::rows::<T, Packed, _, LANES, PACKS>
);
dropout_kernel!(
    /// Rows of any length, without a bias.
    dropout_streamed [LANES PACKS] [{ LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 }],
    streamed_rows::stream::<T, Packed, _, LANES, PACKS>
);
dropout_kernel!(
    /// Rows of any layout, with or without a bias.
    dropout_strided [] [{ ; threads: 128 }],
    strided_rows::stride::<T, _>
);
