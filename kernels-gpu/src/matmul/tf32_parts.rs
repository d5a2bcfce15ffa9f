//! f32 as two numbers of tf32, which tensor cores multiply: three products instead of one.
//!
//! x = h + l: h is x rounded to tf32, l = x − h is exact and has at most 12 bits, of which tensor cores leave out the last. Of
//! (h + l)·(h′ + l′) all but l·l′ is added up. What is left out is at most 2^-21 of each product, of either sign. Beyond
//! that x counts in multiples of 2^-136: numbers below 2^-113 lose bits.
//! Tensor cores cut off the bits of a sum that do not fit, always towards zero, which would add up over k: so they
//! add up few terms, 32 in [`tf32_cores()`](fn@super::tf32_cores) and 16 in [`narrow_f32()`](fn@super::narrow_f32) and [`thin_f32()`](fn@super::thin_f32), and these sums
//! are added by additions that round. On normal numbers and 4096 terms the error of `tf32_cores` was 0.3 of that of cuBLAS's SGEMM.
//!
//! Infinities have no remainder: with them, NaN, and numbers that round to infinity, sums become NaN. Sums that are not finite are computed
//! [again](Again), one by one, by ordinary f32 operations: NaN and infinities are what they are there.

use super::Product;
use cuda_std::float::fma;
use cuda_std::matrix::multiply_tf32;
use cuda_std::prelude::*;

/// Bits of an f32 that tf32 has not, and half of the last that it has.
const LEFT_OUT: u32 = 0x1fff;
const HALF: u32 = 0x1000;

/// The nearest tf32, away from 0 if there are two. Infinity beyond the largest; some NaN become 0.
#[inline(always)]
pub(super) fn high(word: u32) -> u32 {
    word.wrapping_add(HALF) & !LEFT_OUT
}

/// What that leaves, exactly; NaN of infinities and NaN.
#[inline(always)]
pub(super) fn low(word: u32) -> u32 {
    (f32::from_bits(word) - f32::from_bits(high(word))).to_bits()
}

/// The nearest tf32, with bits behind it that tensor cores leave out; NaN stays NaN.
#[inline(always)]
pub(super) fn nearest(word: u32) -> u32 {
    if f32::from_bits(word).abs() < f32::INFINITY { word.wrapping_add(HALF) } else { word }
}

/// Adds the three products of a fragment of b and one of a to `large` and `small` sums: by themselves, so that the tensor cores do not wait for each
/// other's as long. All lanes call.
#[inline(always)]
#[track_caller]
pub(super) fn add_three(of_b: [u32; 4], of_a: [u32; 2], large: &mut [f32; 4], small: &mut [f32; 4]) {
    let [s, t, u, v] = of_b;
    let [x, y] = of_a;
    let (high_b, low_b) = ([high(s), high(t), high(u), high(v)], [low(s), low(t), low(u), low(v)]);
    let (high_a, low_a) = ([high(x), high(y)], [low(x), low(y)]);
    *large = multiply_tf32(high_b, high_a, *large);
    *small = multiply_tf32(high_b, low_a, multiply_tf32(low_b, high_a, *small));
}

/// Whether none of the sums is NaN or infinite.
#[inline(always)]
pub(super) fn are_finite<const N: usize>(sums: &[f32; N]) -> bool {
    // 0, or NaN.
    let mut zero = 0.0;
    for i in 0..N {
        zero = fma(sums[i], 0.0, zero);
    }
    zero == 0.0
}

/// What sums are computed from again: the operands of one product of the batch, and which of their terms.
#[derive(Clone, Copy)]
pub(super) struct Again<'a> {
    pub a: Global<f32>,
    pub b: Global<f32>,
    pub p: &'a Product,
    pub terms: (u32, u32),
}

impl Again<'_> {
    /// `sum`, that of a row and a column of tiles' matrix, or where that is not finite what it is by ordinary operations.
    ///
    /// # Safety
    /// The operands have them, and these terms.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn mended(self, sum: f32, (row, col): (u32, u32)) -> f32 {
        if sum.is_finite() {
            return sum;
        }
        let Again { a, b, p, terms: (mut term, end) } = self;
        let at_a = |term: u32| row as i64 * p.a.row + term as i64 * p.a.col;
        let at_b = |term: u32| col as i64 * p.b.row + term as i64 * p.b.col;
        let mut sum = 0.0f32;
        // What is NaN stays NaN.
        while term < end && !sum.is_nan() {
            // SAFETY: the caller's contract.
            sum = unsafe { fma(a.get(at_a(term) as usize), b.get(at_b(term) as usize), sum) };
            term += 1;
        }
        sum
    }

    /// [`Self::mended`] for number `at` of `sums`, that of a row and a column of tiles' matrix, if that has them.
    ///
    /// # Safety
    /// The operands have these terms; nobody else has this sum.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn repair(self, sums: Shared<f32>, at: u32, (row, col): (u32, u32)) {
        // What lies beyond the result are products of zeros, which with infinities are NaN too.
        let (rows, cols) = self.p.extents_of_few();
        let exists = row < rows && col < cols;
        // SAFETY: the caller's contract.
        unsafe {
            if exists {
                sums.set(at, self.mended(sums.get(at), (row, col)));
            }
        }
    }
}
