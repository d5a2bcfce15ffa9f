//! Scores of 16 bits whose exponentials stay in registers: widened they take twice those of the scores, and save widening
//! and the exponential a second time. For rows of which a thread has few packs.

use super::held::{Held, Normaliser};
use super::packed_scores::Packed;
use super::{Exponent, Operands, Params, locate::Row};
use cuda_std::prelude::*;

/// Most packs of a thread.
pub(super) const MOST: usize = 5;

/// Scores as x has them until they are exponentials in f32.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    scores: Packed,
    powers: [f32; 8],
}

impl<T: Float> Held<T> for Kept {
    type Mask = <Packed as Held<T>>::Mask;
    const EMPTY: Self = Kept { scores: <Packed as Held<T>>::EMPTY, powers: [0.0; 8] };
    const BIASED: bool = false;
    const SHIFTS: bool = true;
    const RECOMPUTES: bool = false;

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        // SAFETY: the caller's contract.
        unsafe { <Packed as Held<T>>::read_mask::<LANES, PACKS>(operands, p, row, first) }
    }

    #[inline(always)]
    fn prepare<const LANES: usize, const PACKS: usize>(
        x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS] {
        let scores = <Packed as Held<T>>::prepare::<LANES, PACKS>(x, mask, p, row, first);
        let mut held = [<Self as Held<T>>::EMPTY; PACKS];
        for i in 0..PACKS {
            held[i].scores = scores[i];
        }
        held
    }

    #[inline(always)]
    fn max_words(self, other: Self) -> Self {
        Kept { scores: <Packed as Held<T>>::max_words(self.scores, other.scores), ..self }
    }

    #[inline(always)]
    fn max(self) -> f32 {
        <Packed as Held<T>>::max(self.scores)
    }

    #[inline(always)]
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        self.each::<T>(start, |score| exponent.exp_fast(score - maximum))
    }

    #[inline(always)]
    fn exponentiate_by(&mut self, exponent: Exponent, shift: f32, start: f32) -> f32 {
        self.each::<T>(start, |score| exponent.exp_from(score, shift))
    }

    #[inline(always)]
    fn normalise(self, _: Exponent, end: &Normaliser) -> Pack {
        let mut pack = [0; 4];
        for pair in 0..T::PER_PACK / 2 {
            let [low, high] = [self.powers[2 * pair], self.powers[2 * pair + 1]];
            T::set_pair(&mut pack, pair, [low * end.factor, high * end.factor]);
        }
        pack
    }

    #[inline(always)]
    fn normalise_by(self, _: Exponent, _: f32) -> Pack {
        [0; 4]
    }
}

impl Kept {
    /// Keeps `power` of each score, and adds them to `start`.
    #[inline(always)]
    fn each<T: Float>(&mut self, start: f32, power: impl Fn(f32) -> f32) -> f32 {
        let mut sum = start;
        for pair in 0..T::PER_PACK / 2 {
            let scores = T::pair(self.scores.0, pair);
            for of in 0..2 {
                let power = power(scores[of]);
                self.powers[2 * pair + of] = power;
                sum += power;
            }
        }
        sum
    }
}
