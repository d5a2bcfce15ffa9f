//! A row's scores in registers, `LANES` packs apart.
//!
//! Loading goes in phases, so that all loads of a thread are in flight before the first is used: the words
//! of x ([`read_x`]), the mask's ([`Held::read_mask`]), then arithmetic alone ([`Held::prepare`]). What a
//! phase cannot read as a pack (of a bias that is not aligned with x, at an operand's ends) it reads element by element in a
//! rolled loop behind a branch that aligned rows never take.

use super::locate::{Row, whole_columns};
use super::{Exponent, Operands, Params};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Sixteen bytes of x on their way to y. `p.exponent` turns a difference of held scores into an exponent:
/// the host sets it for the kernel's way of holding.
pub(crate) trait Held<T: Float>: Copy {
    /// The mask of one pack.
    type Mask: Copy;
    /// Nothing yet.
    const EMPTY: Self;
    /// Reads the masks of packs `LANES` apart, the first at pack `first`.
    ///
    /// # Safety
    /// The operands match the parameters, and `row` came from `locate`.
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS];
    /// The scores, −∞ at masked columns.
    fn prepare<const LANES: usize, const PACKS: usize>(
        x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS];
    /// The larger score at each place of two; NaN wins.
    fn max_words(self, other: Self) -> Self;
    /// The largest held score; NaN wins.
    fn max(self) -> f32;
    /// Adds exp(score − maximum) of each score to `start`; may keep the exponentials.
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32;
    /// [`Self::exponentiate`] with `shift` from [`Exponent::shift`], where the type has a shorter way.
    fn exponentiate_by(&mut self, exponent: Exponent, shift: f32, start: f32) -> f32;
    /// Whether a mask is of bits.
    const BITS: bool = false;
    /// Whether there may be a bias.
    const BIASED: bool;
    /// Whether `exponentiate_by` may be used.
    const SHIFTS: bool;
    /// Whether `normalise_by` may be: exponentials are not kept.
    const RECOMPUTES: bool;
    /// The results.
    fn normalise(self, exponent: Exponent, end: &Normaliser) -> Pack;
    /// The results, with the shift of the maximum and of the sum together.
    fn normalise_by(self, exponent: Exponent, shift: f32) -> Pack;
}

/// What turns exponentials into results.
#[derive(Clone, Copy)]
pub(crate) struct Normaliser {
    /// The maximum that recomputed exponentials are relative to.
    pub maximum: f32,
    /// log2 of the sum; +∞ for a sum of 0.
    pub log2_sum: f32,
    /// What kept exponentials are multiplied by.
    pub factor: f32,
    /// What exponentials relative to `maximum` are multiplied by.
    pub inverse_sum: f32,
    /// What is XORed into each word of the results.
    pub signs: u32,
}

impl Normaliser {
    /// `kept_maximum` is what [`Held::exponentiate`] was given, `maximum` and `sum` are the whole row's.
    #[inline(always)]
    pub fn new(exponent: Exponent, kept_maximum: f32, maximum: f32, sum: f32) -> Self {
        let empty = sum == 0.0;
        // A part of the row with nothing kept has 0 for its maximum, perhaps above the row's.
        let below = float::min_nan(kept_maximum - maximum, 0.0);
        let inverse_sum = if empty { 0.0 } else { float::rcp(sum) };
        Normaliser {
            maximum,
            log2_sum: if empty { f32::INFINITY } else { float::log2(sum) },
            factor: if empty { 0.0 } else { exponent.exp(below) * inverse_sum },
            inverse_sum,
            signs: 0,
        }
    }

    /// A single result with its sign.
    #[inline(always)]
    pub fn signed(&self, result: f32) -> f32 {
        f32::from_bits(result.to_bits() ^ (self.signs & 1 << 31))
    }

    /// For results that are multiplied by a number.
    #[inline(always)]
    pub fn times<T: Float>(self, number: f32) -> Self {
        let size = number.abs();
        Normaliser {
            log2_sum: self.log2_sum - float::log2(size),
            factor: self.factor * size,
            inverse_sum: self.inverse_sum * size,
            signs: if number < 0.0 { T::SIGN_WORD } else { 0 },
            ..self
        }
    }
}

/// A maximum that can be subtracted from −∞: a row with nothing but −∞ counts from 0.
#[inline(always)]
pub(crate) fn finite_or_zero(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

/// Window column of pack `first + LANES·i`.
#[inline(always)]
pub(crate) fn column<T: Float, const LANES: usize>(first: u32, i: usize) -> i32 {
    (first + (LANES * i) as u32) as i32 * T::PER_PACK as i32
}

/// The words of x of packs `LANES` apart; −∞, before the flip of signs, where a pack has no kept column. Packs that cover
/// a ragged row's ends are read whole, as far as x goes: with elements of other rows, which [`Held::prepare`] drops.
///
/// # Safety
/// As [`Held::read_mask`].
#[inline(always)]
pub(crate) unsafe fn read_x<T: Float, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    first: u32,
) -> [Pack; PACKS] {
    let mut x = [[0; 4]; PACKS];
    let whole = if p.ragged != 0 { whole_columns::<T>(p.x_len, row.x) } else { i32::MAX };
    let readable = Row { high: row.high.min(whole), ..*row };
    for i in 0..PACKS {
        let column = column::<T, LANES>(first, i);
        let (when, at) = (readable.keeps_some::<T>(column), row.x + column as i64);
        // SAFETY: packs with kept columns are inside x.
        x[i] = unsafe { operands.x.get_pack_or(when, at as usize, [T::NEG_INFINITY_WORD ^ p.flip; 4]) };
    }
    if row.high > whole {
        // The last pack of x.
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            if column == whole {
                // SAFETY: kept elements are inside x.
                let read =
                    |e: u32| unsafe { operands.x.get((row.x + (column + e as i32) as i64) as usize).bits() };
                x[i] = gather::<T>(row, column, read);
            }
        }
    }
    x
}

/// A pack from its kept elements, read one by one in a loop that is not unrolled; 0 elsewhere.
#[inline(always)]
pub(super) fn gather<T: Float>(row: &Row, column: i32, read: impl Fn(u32) -> u32) -> Pack {
    let mut pack = [0; 4];
    let width = 32 / T::PER_WORD as u32;
    let mut element = 0;
    while element < bits::opaque(T::PER_PACK as u32) {
        if row.keeps(column + element as i32) {
            let value = read(element) << (width * (element % T::PER_WORD as u32));
            for w in 0..4 {
                pack[w] |= if w as u32 == element / T::PER_WORD as u32 { value } else { 0 };
            }
        }
        element += 1;
    }
    pack
}
