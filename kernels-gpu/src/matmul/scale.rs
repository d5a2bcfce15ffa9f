//! What numbers are divided by before they are taken apart into f16, which has few exponents.
//!
//! A row of an operand (the numbers that one row, or column, of the result is made of) and a split of k have one scale, s = r², a power of two
//! that brings the largest number into 2^13..2^15. Products of scaled numbers are below 2^30, and what a row of a and one of b make of them is
//! to be multiplied by s·s′ = (r·r′)²: r·r′ is always an f32 number, s·s′ is not.
//!
//! Numbers that the scale brings below 2^-14, the least normal number of f16, are *faint*: their parts are off by up to 2^-36, so that those of a row
//! make a sum wrong by up to 2^-36 times the total of the other row's numbers, without signs. A sum is *sure* if it is at least 2^-14 times that total, or of both rows where
//! both have faint numbers, and thus right to 2^-22. Almost all are: it takes numbers of 2^27 times the others' size in their row, and zeros, or faint
//! numbers, of the other operand that keep them out of the sum.

use super::place::Place;
use cuda_std::plain_parameter;

/// Bits of an f32 that is not finite: at least these, without the sign.
const INFINITE: u32 = 0x7f80_0000;
/// The exponents that the largest number gets: this or one more, as s is a square.
const EXPONENT: i32 = 13;
/// Scaled numbers below this are faint, and sums below as many times the other rows' totals not sure.
pub(super) const FAINT: f32 = 1.0 / 16384.0;
/// Bits of a word that has a scale: of a row with faint numbers, of r, which is a power of two, and the upper ones of the total.
pub(super) const HAS_FAINT: u32 = 1 << 31;
const ROOT: u32 = 0xff << 23;
const TOTAL: u32 = (1 << 23) - 1;
const TOTAL_SHIFT: u32 = 8;
/// What numbers are multiplied by in totals, so that none overflows; the bits of the least largest number of which that leaves enough, 2^-60; and by how much
/// totals are off at most.
const OF_TOTAL: f32 = 1.0 / 16777216.0;
const LEAST_TOTALLED: u32 = (127 - 60) << 23;
const ROUNDED: f32 = 1.0 + 1.0 / 64.0;
const MOST: f32 = 1e30;

/// What is to be known of a row: the largest number, as bits without its sign, and the total of all, without theirs.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub largest: u32,
    pub total: f32,
}

impl Sizes {
    pub const NONE: Sizes = Sizes { largest: 0, total: 0.0 };

    /// And one number more.
    #[inline(always)]
    pub fn with(self, number: f32) -> Sizes {
        let number = number.abs();
        self.and(Sizes { largest: number.to_bits(), total: number * OF_TOTAL })
    }

    /// Of both.
    #[inline(always)]
    pub fn and(self, other: Sizes) -> Sizes {
        let largest = if other.largest > self.largest { other.largest } else { self.largest };
        Sizes { largest, total: self.total + other.total }
    }
}

/// The exponent of r, of numbers of which the bits of the largest are `largest`.
#[inline(always)]
fn exponent(largest: u32) -> i32 {
    let of_normal = (largest >> 23) as i32 - 127;
    let of_subnormal = 31 - 149 - largest.leading_zeros() as i32;
    let exponent = if largest >> 23 == 0 { of_subnormal } else { of_normal };
    // Zeros stay what they are, and so does what is not finite.
    if largest == 0 || largest >= INFINITE { 0 } else { (exponent - EXPONENT) >> 1 }
}

/// 2^`exponent`, of a normal number.
#[inline(always)]
fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// 1 / r.
#[inline(always)]
pub(super) fn inverse_root(largest: u32) -> f32 {
    power(-exponent(largest))
}

/// The word of a row of `terms` numbers, none of them faint.
#[inline(always)]
pub(super) fn word(sizes: Sizes, terms: u32) -> u32 {
    let (largest, inverse) = (sizes.largest, inverse_root(sizes.largest));
    let sum = sizes.total * inverse * inverse * (ROUNDED / OF_TOTAL);
    // Of very small numbers, and of what is not finite, as much as there can be.
    let most = terms as f32 * (1 << (EXPONENT + 2)) as f32;
    let total = if largest >= LEAST_TOTALLED && sum < MOST { sum } else { most };
    let total = (total.to_bits() >> TOTAL_SHIFT) + 1;
    power(exponent(largest)).to_bits() | if largest == 0 { 0 } else { total }
}

/// A row's scale in a split.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// r.
    root: f32,
    /// The total of the scaled numbers, or more.
    total: f32,
    has_faint: bool,
}

impl Scale {
    #[inline(always)]
    pub fn of_word(word: u32) -> Scale {
        Scale {
            root: f32::from_bits(word & ROOT),
            total: f32::from_bits((word & TOTAL) << TOTAL_SHIFT),
            has_faint: word & HAS_FAINT != 0,
        }
    }

    /// A sum of products of two rows' scaled numbers, as of the numbers themselves; NaN if it is not sure.
    #[inline(always)]
    pub fn undo(self, other: Scale, sum: f32) -> f32 {
        let root = self.root * other.root;
        let of_other = if self.has_faint { other.total } else { 0.0 };
        let own = if other.has_faint { self.total } else { 0.0 };
        if sum.abs() >= (of_other + own) * FAINT { sum * root * root } else { f32::NAN }
    }
}

/// Where the words of an operand's scales lie, one for each row, `[splits, outer, inner, rows]`: steps in elements, 0 where the batch repeats
/// the operand.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// From one split to the next.
    pub split: i64,
    /// From one of the batch's outer dimension to the next.
    pub outer: i64,
    /// From one of the batch's inner dimension to the next.
    pub inner: i64,
}
plain_parameter!(Scales);

impl Scales {
    /// Where those of a matrix begin.
    #[inline(always)]
    pub(super) fn at(self, split: u32, outer: u32, inner: u32) -> i64 {
        split as i64 * self.split + outer as i64 * self.outer + inner as i64 * self.inner
    }

    /// Where those of a block's matrix begin.
    #[inline(always)]
    pub(super) fn of(self, place: Place) -> i64 {
        self.at(place.split, place.outer, place.inner)
    }
}
