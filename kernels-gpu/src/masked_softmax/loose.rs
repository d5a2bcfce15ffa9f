//! The loose elements of ragged rows: those before and behind the whole packs, one by one.

use super::ending::Sink;
use super::held::{Held, Normaliser};
use super::{Exponent, Operands, Params, locate::Row, mask_kind};
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// Most loose elements of a thread: all of a row of 16-bit elements.
const MAX_LOOSE: usize = 14;

/// A thread's loose elements on their way, `LANES` apart. Rows that are not ragged have none, and pay a branch.
#[derive(Clone, Copy)]
pub(super) struct Loose<'a, T, H, const LANES: usize> {
    p: &'a Params,
    row: &'a Row,
    first: i32,
    elements: [Element<T, H>; MAX_LOOSE],
}

/// Their scores, with scale and bias applied; −∞ where there is none or the mask drops it.
#[derive(Clone, Copy)]
pub(super) struct Scores<'a, T, H, const LANES: usize> {
    loose: Loose<'a, T, H, LANES>,
    scores: [f32; MAX_LOOSE],
}

/// What is read of a column; a bias only where `H` says so.
#[derive(Clone, Copy)]
pub(super) struct Element<T, H> {
    x: T,
    /// The mask's byte, or the bits of the bias.
    mask: u32,
    held: PhantomData<H>,
}

impl<'a, T: Float, H: Held<T>, const LANES: usize> Loose<'a, T, H, LANES> {
    /// Loose elements of a thread where `LANES` share those of a row.
    const SLOTS: usize = (2 * (T::PER_PACK - 1)).div_ceil(LANES);

    /// Those from number `first` on; nothing waits for them yet.
    ///
    /// # Safety
    /// The operands match `p`, and `row` came from `locate`.
    #[inline(always)]
    pub unsafe fn load(operands: &Operands<T>, p: &'a Params, row: &'a Row, first: u32) -> Self {
        let none = Element { x: T::from_bits(0), mask: 0, held: PhantomData };
        let mut loose = Loose { p, row, first: first as i32, elements: [none; MAX_LOOSE] };
        if p.ragged != 0 {
            for slot in 0..const { Self::SLOTS } {
                let (when, column) = (loose.keeps(slot), loose.column(slot));
                // SAFETY: the column is the row's where it is kept.
                loose.elements[slot] = unsafe { Element::read(when, operands, p, row, column) };
            }
        }
        loose
    }

    /// The scores.
    #[inline(always)]
    pub fn scores(self) -> Scores<'a, T, H, LANES> {
        let mut scores = [f32::NEG_INFINITY; MAX_LOOSE];
        if self.p.ragged != 0 {
            for slot in 0..const { Self::SLOTS } {
                let score = self.elements[slot].score(self.p);
                scores[slot] = if self.keeps(slot) { score } else { f32::NEG_INFINITY };
            }
        }
        Scores { loose: self, scores }
    }

    #[inline(always)]
    fn number(&self, slot: usize) -> i32 {
        self.first + (slot * LANES) as i32
    }

    #[inline(always)]
    fn has(&self, slot: usize) -> bool {
        self.number(slot) < self.row.loose()
    }

    #[inline(always)]
    fn column(&self, slot: usize) -> i32 {
        self.row.column_of_loose(self.number(slot))
    }

    #[inline(always)]
    fn keeps(&self, slot: usize) -> bool {
        self.has(slot) && self.row.keeps(self.column(slot))
    }
}

impl<T: Float, H: Held<T>, const LANES: usize> Scores<'_, T, H, LANES> {
    /// Where `again` holds read once more, for kernels whose registers are all in use in the meantime.
    ///
    /// # Safety
    /// As [`Loose::load`].
    #[inline(always)]
    pub unsafe fn renewed(self, operands: &Operands<T>, again: bool) -> Self {
        let Loose { p, row, first, .. } = self.loose;
        // SAFETY: the caller's contract.
        if again { unsafe { Loose::load(operands, p, row, first as u32).scores() } } else { self }
    }

    /// The largest score, or `most`; NaN wins.
    #[inline(always)]
    pub fn max(&self, most: f32) -> f32 {
        let mut most = most;
        if self.loose.p.ragged != 0 {
            for slot in 0..const { Loose::<T, H, LANES>::SLOTS } {
                most = float::max_nan(most, self.scores[slot]);
            }
        }
        most
    }

    /// `start` and the exponentials relative to a maximum.
    #[inline(always)]
    pub fn sum(&self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        let mut sum = start;
        if self.loose.p.ragged != 0 {
            for slot in 0..const { Loose::<T, H, LANES>::SLOTS } {
                sum += exponent.exp(self.scores[slot] - maximum);
            }
        }
        sum
    }

    /// Writes the results.
    ///
    /// # Safety
    /// The sink takes the row.
    #[inline(always)]
    pub unsafe fn store(&self, sink: impl Sink<T>, end: &Normaliser) {
        if self.loose.p.ragged != 0 {
            for slot in 0..const { Loose::<T, H, LANES>::SLOTS } {
                let (exponent, below) = (self.loose.p.exponent, self.scores[slot] - end.maximum);
                let result = if const { T::PER_WORD == 2 } {
                    exponent.exp_over(below, end.log2_sum)
                } else {
                    exponent.exp(below) * end.inverse_sum
                };
                let at = self.loose.row.y + self.loose.column(slot) as i64;
                // SAFETY: the caller's contract; each element has one thread.
                unsafe { sink.set(self.loose.has(slot), at as usize, T::from_f32(end.signed(result))) };
            }
        }
    }
}

impl<T: Float, H: Held<T>> Element<T, H> {
    /// Reads a column, where `when` holds.
    ///
    /// # Safety
    /// The operands match `p`, and `row` came from `locate`; where `when` holds the column is one of its own.
    #[inline(always)]
    pub unsafe fn read(when: bool, operands: &Operands<T>, p: &Params, row: &Row, column: i32) -> Self {
        let at = (row.mask + column as i64 * p.mask_stride) as usize;
        // SAFETY: the caller's contract. Predicated loads of each kind rather than branches.
        unsafe {
            let x = operands.x.get_bits_if(when, (row.x + column as i64 * p.x_stride) as usize, 0);
            let of_kind = |kind| when & (p.mask_kind == kind);
            let mut mask = operands.mask.get_bits_if(of_kind(mask_kind::BYTES), at, 0);
            if const { H::BIASED } {
                let like_x = Global::<T>::from_raw(operands.mask.raw());
                let wide = Global::<f32>::from_raw(operands.mask.raw());
                mask = like_x.get_bits_if(of_kind(mask_kind::BIAS), at, mask);
                mask = wide.get_bits_if(of_kind(mask_kind::BIAS_F32), at, mask);
            }
            Element { x: T::from_bits(x), mask, held: PhantomData }
        }
    }

    /// The scaled, biased score; −∞ where the mask drops it.
    #[inline(always)]
    pub fn score(self, p: &Params) -> f32 {
        let bias = match p.mask_kind {
            mask_kind::BIAS if const { H::BIASED } => T::from_bits(self.mask).to_f32(),
            mask_kind::BIAS_F32 if const { H::BIASED } => f32::from_bits(self.mask),
            _ => 0.0,
        };
        let drops = p.mask_kind == mask_kind::BYTES && (self.mask != 0) == (p.mask_invert != 0);
        if drops { f32::NEG_INFINITY } else { float::fma(self.x.to_f32(), p.scale, bias) }
    }
}
