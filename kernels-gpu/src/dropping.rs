//! Which elements dropout drops, and what becomes of the others: the one rule of `dropout` and of what is fused with it.
//!
//! Element i of the result has word i of the stream that seed and offset name (`cuda_std::philox`), whatever its
//! type, strides and the launch are.

use cuda_std::philox::Stream;
use cuda_std::prelude::*;

/// Which elements are dropped, and what the others are multiplied by.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dropping {
    /// The random words.
    pub stream: Stream,
    /// Elements whose word is at most this are dropped.
    pub last_dropped: u32,
    /// 1/(1 − p).
    pub scale: f32,
}
cuda_std::plain_parameter!(Dropping);
const _: () = assert!(size_of::<Dropping>() == 16 + 2 * 4);

impl Dropping {
    /// For operations that drop nothing, and do not ask.
    pub const NOTHING: Dropping =
        Dropping { stream: Stream { seed: 0, offset: 0 }, last_dropped: 0, scale: 1.0 };

    /// What becomes of an element with this word. A choice, not a product: what is dropped is 0 even where x is NaN or
    /// infinite.
    #[inline(always)]
    pub fn apply(self, word: u32, x: f32) -> f32 {
        self.choose(self.keeps(word), x)
    }

    /// Whether an element with this word is kept.
    #[inline(always)]
    pub fn keeps(self, word: u32) -> bool {
        word > self.last_dropped
    }

    /// What becomes of an element that is kept or not.
    #[inline(always)]
    pub fn choose(self, kept: bool, x: f32) -> f32 {
        if kept { x * self.scale } else { 0.0 }
    }

    /// What becomes of element number `at`. Costs as much as four.
    #[inline(always)]
    pub fn one(self, at: u64, x: f32) -> f32 {
        self.apply(self.stream.word(at), x)
    }

    /// The words of the elements of a pack that begins at number `at`, a multiple of 4: whole groups of the stream's
    /// words.
    #[inline(always)]
    pub fn words_of_pack<T: Float>(self, at: u64) -> [u32; 8] {
        let mut words = [0; 8];
        for quad in 0..const { T::PER_PACK / 4 } {
            let four = self.stream.four(at / 4 + quad as u64);
            for i in 0..4 {
                words[4 * quad + i] = four[i];
            }
        }
        words
    }

    /// What becomes of a pack that begins at element number `at`, a multiple of 4.
    #[inline(always)]
    pub fn pack<T: Float>(self, at: u64, x: Pack) -> Pack {
        let (words, mut y) = (self.words_of_pack::<T>(at), [0; 4]);
        for pair in 0..const { T::PER_PACK / 2 } {
            let [a, b] = T::pair(x, pair);
            T::set_pair(&mut y, pair, [self.apply(words[2 * pair], a), self.apply(words[2 * pair + 1], b)]);
        }
        y
    }
}
