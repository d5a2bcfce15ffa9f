//! Scores held as x has them: no mask or a mask of bytes.

use super::held::{Held, Normaliser, column};
use super::{Exponent, Operands, Params, locate::Row, mask_kind};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Scores as x has them, still to be scaled: 16-bit scores stay packed.
#[derive(Clone, Copy)]
pub(crate) struct Packed(pub(super) Pack);

impl<T: Float> Held<T> for Packed {
    /// A byte an element.
    type Mask = [u32; 2];
    const EMPTY: Self = Packed([0; 4]);
    const BIASED: bool = false;
    const SHIFTS: bool = T::PER_WORD == 2;

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        if p.mask_kind != mask_kind::BYTES {
            return [[0; 2]; PACKS];
        }
        let mut masks = [[0; 2]; PACKS];
        // SAFETY: the mask has a byte for each kept column; words beyond them are read where the mask holds them.
        unsafe {
            if p.mask_skewed == 0 {
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let (when, at) = (row.keeps_some::<T>(column), (row.mask + column as i64) as usize);
                    masks[i] = if const { T::PER_PACK == 8 } {
                        operands.mask.get_8_if(when, at, 0)
                    } else {
                        [operands.mask.get_4_if(when, at, 0), 0]
                    };
                }
                return masks;
            }
            // The aligned words that cover the bytes, shifted into place.
            let skew = (row.mask & 3) as i32;
            let origin = row.mask - skew as i64;
            // In window columns, and as a 32-bit number.
            let end = (p.mask_len - origin).min(i32::MAX as i64 - 64) as i32;
            for i in 0..PACKS {
                let column = column::<T, LANES>(first, i);
                let kept = row.keeps_some::<T>(column);
                let word = |number: i32| {
                    let at = column + 4 * number;
                    operands.mask.get_4_if(kept & (at + 4 <= end), (origin + at as i64) as usize, 0)
                };
                let words = [word(0), word(1), if const { T::PER_PACK == 8 } { word(2) } else { 0 }];
                let by = 8 * skew as u32;
                masks[i][0] = bits::funnel_right(words[0], words[1], by);
                if const { T::PER_PACK == 8 } {
                    masks[i][1] = bits::funnel_right(words[1], words[2], by);
                }
            }
            // At the end of the mask, byte by byte: a rare loop, not unrolled.
            if row.high_packed + 4 > end {
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    if row.keeps_some::<T>(column) && column + T::PER_PACK as i32 + 4 > end {
                        masks[i] = gather_bytes::<T>(row, column, |element| {
                            operands.mask.get((row.mask + (column + element) as i64) as usize) as u32
                        });
                    }
                }
            }
        }
        masks
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
        for i in 0..PACKS {
            for w in 0..4 {
                x[i][w] ^= p.flip;
            }
        }
        if p.scale == 0.0 {
            for i in 0..PACKS {
                for w in 0..4 {
                    x[i][w] = T::map(x[i][w], |v| v * 0.0);
                }
            }
        }
        if p.mask_kind == mask_kind::BYTES {
            for i in 0..PACKS {
                let sign = |bytes| bits::nonzero_bytes(bytes) ^ (p.mask_invert & 0x8080_8080);
                let signs = [sign(mask[i][0]), sign(mask[i][1])];
                for w in 0..4 {
                    let kept = T::byte_mask(signs, w);
                    x[i][w] = bits::select(kept, x[i][w], T::NEG_INFINITY_WORD);
                }
            }
        }
        // Where a warp has rows of different lengths, some lane has an edge in any pack, and a branch costs more than it
        // saves. Else the edge is in one pack, which one lane has; packs beyond it hold −∞ already, which a scale of 0
        // makes NaN.
        let anywhere = p.scale == 0.0 || (const { LANES < 32 } && p.bounds_rows());
        if anywhere || row.splits_packs::<T>() {
            for i in 0..PACKS {
                let kept = within::<T>(row.high_packed - column::<T, LANES>(first, i));
                if anywhere || kept < T::PER_PACK as i32 {
                    for w in 0..4 {
                        x[i][w] = bits::select(T::from_mask(w, kept), T::NEG_INFINITY_WORD, x[i][w]);
                    }
                }
            }
            if row.low_packed & (T::PER_PACK as i32 - 1) != 0 || p.scale == 0.0 {
                for i in 0..PACKS {
                    let dropped = within::<T>(row.low_packed - column::<T, LANES>(first, i));
                    if anywhere || dropped > 0 {
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
            // Not the words that `exponentiate_by` widens: the compilers would widen them before the branch.
            let x = packed::renew(self.0, exponent.zero);
            for w in 0..4 {
                sum = T::fold(x[w], sum, |sum, v| sum + exponent.exp_fast(v - maximum));
            }
            self.0 = packed::renew(self.0, exponent.zero);
        }
        sum
    }

    #[inline(always)]
    fn exponentiate_by(&mut self, exponent: Exponent, shift: f32, start: f32) -> f32 {
        let mut sum = start;
        for w in 0..4 {
            sum = T::fold(self.0[w], sum, |sum, v| sum + exponent.exp_from(v, shift));
        }
        self.0 = packed::renew(self.0, exponent.zero);
        sum
    }

    #[inline(always)]
    fn normalise_by(self, exponent: Exponent, shift: f32) -> Pack {
        let mut pack = self.0;
        for w in 0..4 {
            pack[w] = T::map(pack[w], |v| exponent.exp_from(v, shift));
        }
        pack
    }

    #[inline(always)]
    fn normalise(self, exponent: Exponent, end: &Normaliser) -> Pack {
        let mut pack = if const { T::PER_WORD == 1 } { self.0 } else { packed::renew(self.0, exponent.zero) };
        for w in 0..4 {
            pack[w] = T::map(pack[w], |v| {
                if const { T::PER_WORD == 1 } {
                    v * end.factor
                } else {
                    exponent.exp_over(v - end.maximum, end.log2_sum)
                }
            });
        }
        pack
    }
}

/// A column relative to a pack, clamped to it, so that bit positions do not overflow.
#[inline(always)]
fn within<T: Float>(column: i32) -> i32 {
    column.max(0).min(T::PER_PACK as i32)
}

/// The kept bytes of a pack's mask, read one by one in a loop that is not unrolled; 0 elsewhere.
#[inline(always)]
fn gather_bytes<T: Float>(row: &Row, column: i32, read: impl Fn(i32) -> u32) -> [u32; 2] {
    let mut bytes = [0; 2];
    let mut element = 0;
    while element < bits::opaque(T::PER_PACK as u32) {
        if row.keeps_in_pack(column + element as i32) {
            let byte = read(element as i32) << (8 * (element % 4));
            bytes[0] |= if element < 4 { byte } else { 0 };
            bytes[1] |= if element < 4 { 0 } else { byte };
        }
        element += 1;
    }
    bytes
}
