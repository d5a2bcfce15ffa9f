//! Scores held as x has them: no mask, or one of bytes or of bits.

use super::bit_masks::WarpBits;
use super::held::{Held, Normaliser, column};
use super::locate::{Row, whole_columns};
use super::{Exponent, Operands, Params, mask_kind};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Scores as x has them, still to be scaled: 16-bit scores stay packed. Masks are of bytes, or with `BITS` of bits.
#[derive(Clone, Copy)]
pub(crate) struct Packed<const BITS: bool = false>(pub(super) Pack);

impl<T: Float, const BITS: bool> Held<T> for Packed<BITS> {
    /// A byte an element, or the first word's lowest bits.
    type Mask = [u32; 2];
    const EMPTY: Self = Packed([0; 4]);
    const BITS: bool = BITS;
    const BIASED: bool = false;
    const SHIFTS: bool = T::PER_WORD == 2;
    const RECOMPUTES: bool = T::PER_WORD == 2;

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        if p.mask_kind != const { kind(BITS) } {
            return [[0; 2]; PACKS];
        }
        // SAFETY: the operands match.
        unsafe {
            if const { BITS } {
                WarpBits::ask::<T, LANES, PACKS>(operands.mask, row, first).of_packs::<T, PACKS>()
            } else if p.mask_skewed == 0 {
                read_alike::<T, LANES, PACKS>(operands.mask, p, row, first)
            } else {
                read_skewed::<T, LANES, PACKS>(operands.mask, p, row, first)
            }
        }
    }

    #[inline(always)]
    fn prepare<const LANES: usize, const PACKS: usize>(
        mut x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS] {
        // Index loops: array iterators would keep the arrays in local memory.
        if p.flip != 0 {
            for i in 0..PACKS {
                for w in 0..4 {
                    x[i][w] ^= p.flip;
                }
            }
        }
        if p.scale == 0.0 {
            for i in 0..PACKS {
                for w in 0..4 {
                    x[i][w] = T::map(x[i][w], |v| v * 0.0);
                }
            }
        }
        if p.mask_kind == const { kind(BITS) } {
            for i in 0..PACKS {
                let sign = |bytes| bits::nonzero_bytes(bytes) ^ (p.mask_invert & 0x8080_8080);
                let signs = if const { BITS } {
                    [bits::to_bytes(mask[i][0]), bits::to_bytes(mask[i][0] >> 4)]
                } else {
                    [sign(mask[i][0]), sign(mask[i][1])]
                };
                for w in 0..4 {
                    let kept = T::byte_mask(signs, w);
                    x[i][w] = bits::select(kept, x[i][w], T::NEG_INFINITY_WORD);
                }
            }
        }
        // Where a warp has rows of different lengths, some lane has an edge in any pack, and a branch costs more than it
        // saves. Else the edge is in one pack, which one lane has; packs beyond it hold −∞ already, which a scale of 0
        // makes NaN.
        let short = const { LANES < 32 };
        debug_assert!(!short || first < LANES as u32, "a warp's lanes have whole rows");
        let anywhere = p.scale == 0.0 || (short && p.bounds_rows());
        if anywhere || row.splits_packs::<T>() {
            for i in 0..PACKS {
                // Lanes of a warp with the packs of a whole row: the columns of all but the last of these are every row's.
                let has_end = !short || anywhere || (LANES * (i + 1) * T::PER_PACK) as u32 > p.cols;
                let kept = within::<T>(row.high - column::<T, LANES>(first, i));
                if has_end && (anywhere || kept < T::PER_PACK as i32) {
                    for w in 0..4 {
                        x[i][w] = bits::select(T::from_mask(w, kept), T::NEG_INFINITY_WORD, x[i][w]);
                    }
                }
            }
            if row.low & (T::PER_PACK as i32 - 1) != 0 || p.scale == 0.0 {
                for i in 0..PACKS {
                    // Without bounds a row begins in its first pack.
                    let has_begin = !short || anywhere || i == 0;
                    let dropped = within::<T>(row.low - column::<T, LANES>(first, i));
                    if has_begin && (anywhere || dropped > 0) {
                        for w in 0..4 {
                            x[i][w] = bits::select(T::from_mask(w, dropped), x[i][w], T::NEG_INFINITY_WORD);
                        }
                    }
                }
            }
        }
        let mut held = [<Self as Held<T>>::EMPTY; PACKS];
        for i in 0..PACKS {
            held[i] = Packed(x[i]);
        }
        held
    }

    #[inline(always)]
    fn max_words(self, other: Self) -> Self {
        let mut most = self.0;
        for w in 0..4 {
            most[w] = T::max_words(most[w], other.0[w]);
        }
        Packed(most)
    }

    #[inline(always)]
    fn max(self) -> f32 {
        let most = T::max_words(T::max_words(self.0[0], self.0[1]), T::max_words(self.0[2], self.0[3]));
        T::fold(most, f32::NEG_INFINITY, float::max_nan)
    }

    #[inline(always)]
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        let mut sum = start;
        if const { T::PER_WORD == 1 } {
            for w in 0..4 {
                self.0[w] = T::map(self.0[w], |v| exponent.exp(v - maximum));
                sum = T::fold(self.0[w], sum, |sum, e| sum + e);
            }
        } else {
            for w in 0..4 {
                let add = |sum, v| sum + exponent.exp_fast(v - maximum);
                sum = T::fold_again(self.0[w], exponent.zeros[0], sum, add);
            }
        }
        sum
    }

    #[inline(always)]
    fn exponentiate_by(&mut self, exponent: Exponent, shift: f32, start: f32) -> f32 {
        let mut sum = start;
        for w in 0..4 {
            sum = T::fold(self.0[w], sum, |sum, v| sum + exponent.exp_from(v, shift));
        }
        sum
    }

    #[inline(always)]
    fn normalise_by(self, exponent: Exponent, shift: f32) -> Pack {
        let mut pack = self.0;
        for w in 0..4 {
            pack[w] = T::map_again(pack[w], exponent.zeros[1], |v| exponent.exp_from(v, shift));
        }
        pack
    }

    #[inline(always)]
    fn normalise(self, exponent: Exponent, end: &Normaliser) -> Pack {
        let mut pack = self.0;
        for w in 0..4 {
            pack[w] = if const { T::PER_WORD == 1 } {
                T::map(pack[w], |v| v * end.factor)
            } else {
                let power = |v| exponent.exp_over(v - end.maximum, end.log2_sum);
                T::map_again(pack[w], exponent.zeros[2], power)
            };
        }
        pack
    }
}

/// The kind of mask that is read.
const fn kind(bits: bool) -> u32 {
    if bits { mask_kind::BITS } else { mask_kind::BYTES }
}

/// Masks of packs that begin at multiples of as many bytes: one load each.
///
/// # Safety
/// As [`Held::read_mask`].
#[inline(always)]
unsafe fn read_alike<T: Float, const LANES: usize, const PACKS: usize>(
    mask: Global<u8>,
    p: &Params,
    row: &Row,
    first: u32,
) -> [[u32; 2]; PACKS] {
    let mut masks = [[0; 2]; PACKS];
    let whole = if p.ragged != 0 { whole_columns::<T>(p.mask_len, row.mask) } else { i32::MAX };
    let readable = Row { high: row.high.min(whole), ..*row };
    for i in 0..PACKS {
        let column = column::<T, LANES>(first, i);
        // SAFETY: whole packs with kept columns are inside the mask.
        masks[i] =
            unsafe { read_bytes::<T>(mask, readable.keeps_some::<T>(column), row.mask + column as i64) };
    }
    if row.high > whole {
        // The last pack of the mask.
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            if column == whole {
                // SAFETY: the mask has a byte for each kept column.
                masks[i] = unsafe { gather_bytes::<T>(mask, row, column) };
            }
        }
    }
    masks
}

/// Masks of packs that begin at any byte: the two aligned groups of as many bytes that cover each, shifted into place.
///
/// # Safety
/// As [`Held::read_mask`].
#[inline(always)]
unsafe fn read_skewed<T: Float, const LANES: usize, const PACKS: usize>(
    mask: Global<u8>,
    p: &Params,
    row: &Row,
    first: u32,
) -> [[u32; 2]; PACKS] {
    let mut masks = [[0; 2]; PACKS];
    let width = T::PER_PACK as i32;
    let skew = row.mask as i32 & (width - 1);
    let origin = row.mask - skew as i64;
    // The groups that the mask has whole, in window columns; a row's first pack may begin before the mask.
    let begin = (-origin).max(0).min(width as i64) as i32;
    let end = whole_columns::<T>(p.mask_len, origin);
    for i in 0..PACKS {
        let column = column::<T, LANES>(first, i);
        let kept = row.keeps_some::<T>(column);
        // SAFETY: groups between `begin` and `end` are inside the mask.
        let group =
            |at: i32| unsafe { read_bytes::<T>(mask, kept & (at >= begin) & (at < end), origin + at as i64) };
        let (low, high) = (group(column), group(column + width));
        let by = 8 * (skew as u32 & 3);
        masks[i] = if const { T::PER_PACK == 8 } {
            let far = skew & 4 != 0;
            let choose = |near: u32, next: u32| if far { next } else { near };
            let words = [choose(low[0], low[1]), choose(low[1], high[0]), choose(high[0], high[1])];
            [bits::funnel_right(words[0], words[1], by), bits::funnel_right(words[1], words[2], by)]
        } else {
            [bits::funnel_right(low[0], high[0], by), 0]
        };
    }
    // At the ends of the mask, byte by byte.
    if begin > 0 || row.high + 2 * width > end {
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            if row.keeps_some::<T>(column) && (column < begin || column + 2 * width > end) {
                // SAFETY: the mask has a byte for each kept column.
                masks[i] = unsafe { gather_bytes::<T>(mask, row, column) };
            }
        }
    }
    masks
}

/// The bytes of as many elements as a pack has, from `at` on, where `when` holds.
///
/// # Safety
/// They are inside the mask where `when` holds, and `at` is a multiple of their number.
#[inline(always)]
unsafe fn read_bytes<T: Float>(mask: Global<u8>, when: bool, at: i64) -> [u32; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        if const { T::PER_PACK == 8 } {
            mask.get_8_if(when, at as usize, 0)
        } else {
            [mask.get_4_if(when, at as usize, 0), 0]
        }
    }
}

/// A column relative to a pack, clamped to it, so that bit positions do not overflow.
#[inline(always)]
fn within<T: Float>(column: i32) -> i32 {
    column.max(0).min(T::PER_PACK as i32)
}

/// The kept bytes of a pack's mask, read one by one in a loop that is not unrolled; 0 elsewhere.
///
/// # Safety
/// The mask has a byte for each kept column of the row.
#[inline(always)]
unsafe fn gather_bytes<T: Float>(mask: Global<u8>, row: &Row, column: i32) -> [u32; 2] {
    let mut bytes = [0; 2];
    let mut element = 0;
    while element < bits::opaque(T::PER_PACK as u32) {
        let column = column + element as i32;
        if row.keeps(column) {
            // SAFETY: the caller's contract.
            let byte = unsafe { mask.get((row.mask + column as i64) as usize) as u32 } << (8 * (element % 4));
            bytes[0] |= if element < 4 { byte } else { 0 };
            bytes[1] |= if element < 4 { 0 } else { byte };
        }
        element += 1;
    }
    bytes
}
