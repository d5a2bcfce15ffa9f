//! Elements in 16-byte packs: what one memory instruction moves, and how kernels compute on it.

use crate::imp::packed as imp;
use crate::{bf16, f16};

/// Sixteen bytes as four words: four `f32` or eight 16-bit floats, the first in the lowest bits.
pub type Pack = [u32; 4];

mod sealed {
    pub trait Sealed {}
}

/// A floating-point element type of a kernel.
pub trait Float: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Name in entry points, manifests and messages.
    const NAME: &'static str;
    /// Elements of a 32-bit word.
    const PER_WORD: usize;
    /// Elements of a [`Pack`].
    const PER_PACK: usize = 4 * Self::PER_WORD;
    /// A word whose every element is −∞.
    const NEG_INFINITY_WORD: u32;
    /// A word with every element's sign bit set.
    const SIGN_WORD: u32;

    /// Widens; exact.
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
    /// The bits, in the low end.
    fn bits(self) -> u32;
    /// The value of the low bits.
    fn from_bits(bits: u32) -> Self;
    /// Element `index` of a pack; a constant index costs at most a shift.
    fn element(pack: Pack, index: usize) -> Self;
    /// The pack whose element at each index is `f(index)`.
    fn pack_from(f: impl FnMut(usize) -> Self) -> Pack;
    /// The larger of each pair of elements of two words; NaN wins. One instruction.
    fn max_words(a: u32, b: u32) -> u32;
    /// Combines the elements of a word, lowest first.
    fn fold<A>(word: u32, start: A, f: impl FnMut(A, f32) -> A) -> A;
    /// Replaces each element of a word, lowest first.
    fn map(word: u32, f: impl FnMut(f32) -> f32) -> u32;
    /// [`Float::fold`] of a word that has been widened before, as if it had not been: see [`renew`].
    fn fold_again<A>(word: u32, zero: u32, start: A, f: impl FnMut(A, f32) -> A) -> A;
    /// [`Float::map`] of a word that has been widened before, as if it had not been: see [`renew`].
    fn map_again(word: u32, zero: u32, f: impl FnMut(f32) -> f32) -> u32;
    /// Elements 2·`index` and 2·`index` + 1 of a pack, widened; of four `f32` or eight 16-bit floats.
    fn pair(pack: Pack, index: usize) -> [f32; 2];
    /// Replaces elements 2·`index` and 2·`index` + 1 of a pack, rounded.
    fn set_pair(pack: &mut Pack, index: usize, values: [f32; 2]);
    /// Word `index` of the pack, with a full mask over each element whose byte in `bytes` (one byte an
    /// element, the pack's first in the lowest) has its sign bit set.
    fn byte_mask(bytes: [u32; 2], index: usize) -> u32;
    /// A word with a full mask over each element of word `index` (0..4) that is element `from` of the pack or a
    /// later one; `from` is within ±2^25.
    fn from_mask(index: usize, from: i32) -> u32;
    /// A word with a full mask over each element of word `index` (0..4) that lies in
    /// `low..high`, counted in elements from the start of the pack; both within ±2^25.
    fn range_mask(index: usize, low: i32, high: i32) -> u32;
}

impl sealed::Sealed for f32 {}
impl Float for f32 {
    const NAME: &'static str = "f32";
    const PER_WORD: usize = 1;
    const NEG_INFINITY_WORD: u32 = 0xff80_0000;
    const SIGN_WORD: u32 = 0x8000_0000;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn bits(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        f32::from_bits(bits)
    }
    #[inline(always)]
    fn element(pack: Pack, index: usize) -> Self {
        f32::from_bits(pack[index])
    }
    #[inline(always)]
    fn pack_from(mut f: impl FnMut(usize) -> Self) -> Pack {
        [f(0).to_bits(), f(1).to_bits(), f(2).to_bits(), f(3).to_bits()]
    }
    #[inline(always)]
    fn max_words(a: u32, b: u32) -> u32 {
        crate::float::max_nan(f32::from_bits(a), f32::from_bits(b)).to_bits()
    }
    #[inline(always)]
    fn fold<A>(word: u32, start: A, mut f: impl FnMut(A, f32) -> A) -> A {
        f(start, f32::from_bits(word))
    }
    #[inline(always)]
    fn map(word: u32, mut f: impl FnMut(f32) -> f32) -> u32 {
        f(f32::from_bits(word)).to_bits()
    }
    #[inline(always)]
    fn fold_again<A>(word: u32, zero: u32, start: A, f: impl FnMut(A, f32) -> A) -> A {
        Self::fold(word ^ zero, start, f)
    }
    #[inline(always)]
    fn map_again(word: u32, zero: u32, f: impl FnMut(f32) -> f32) -> u32 {
        Self::map(word ^ zero, f)
    }
    #[inline(always)]
    fn pair(pack: Pack, index: usize) -> [f32; 2] {
        [f32::from_bits(pack[2 * index]), f32::from_bits(pack[2 * index + 1])]
    }
    #[inline(always)]
    fn set_pair(pack: &mut Pack, index: usize, values: [f32; 2]) {
        pack[2 * index] = values[0].to_bits();
        pack[2 * index + 1] = values[1].to_bits();
    }
    #[inline(always)]
    fn byte_mask(bytes: [u32; 2], index: usize) -> u32 {
        // Replicate the sign of byte `index` over the word.
        crate::bits::prmt(bytes[0], 0, 0x8888 + 0x1111 * index as u32)
    }
    #[inline(always)]
    fn range_mask(index: usize, low: i32, high: i32) -> u32 {
        range_bits(32 * index as i32, 32 * low, 32 * high)
    }
    #[inline(always)]
    fn from_mask(index: usize, from: i32) -> u32 {
        bits_from(32 * index as i32, 32 * from)
    }
}

/// The bits of the word that begins at bit `at` that lie in `low..high`, counted from bit 0 of a pack: two
/// shifts that saturate instead of a comparison for each element.
#[inline(always)]
fn range_bits(at: i32, low: i32, high: i32) -> u32 {
    bits_from(at, low) & !bits_from(at, high)
}

/// The bits of the word that begins at bit `at` from bit `low` on: a shift that saturates.
#[inline(always)]
fn bits_from(at: i32, low: i32) -> u32 {
    crate::bits::shift_left(u32::MAX, (low - at).max(0) as u32)
}

macro_rules! half {
    ($ty:ty, $name:literal, $neg_infinity:literal, $widen:ident, $again:ident, $pair:ident, $max:ident) => {
        impl sealed::Sealed for $ty {}
        impl Float for $ty {
            const NAME: &'static str = $name;
            const PER_WORD: usize = 2;
            const NEG_INFINITY_WORD: u32 = $neg_infinity;
            const SIGN_WORD: u32 = 0x8000_8000;

            #[inline(always)]
            fn to_f32(self) -> f32 {
                imp::$widen(self.to_bits() as u32).0
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                <$ty>::from_bits(imp::$pair(value, 0.0) as u16)
            }
            #[inline(always)]
            fn bits(self) -> u32 {
                self.to_bits() as u32
            }
            #[inline(always)]
            fn from_bits(bits: u32) -> Self {
                <$ty>::from_bits(bits as u16)
            }
            #[inline(always)]
            fn element(pack: Pack, index: usize) -> Self {
                <$ty>::from_bits((pack[index / 2] >> (16 * (index % 2))) as u16)
            }
            #[inline(always)]
            fn pack_from(mut f: impl FnMut(usize) -> Self) -> Pack {
                let mut word = |i: usize| f(i).to_bits() as u32 | (f(i + 1).to_bits() as u32) << 16;
                [word(0), word(2), word(4), word(6)]
            }
            #[inline(always)]
            fn max_words(a: u32, b: u32) -> u32 {
                imp::$max(a, b)
            }
            #[inline(always)]
            fn fold<A>(word: u32, start: A, mut f: impl FnMut(A, f32) -> A) -> A {
                let (low, high) = imp::$widen(word);
                let acc = f(start, low);
                f(acc, high)
            }
            #[inline(always)]
            fn map(word: u32, mut f: impl FnMut(f32) -> f32) -> u32 {
                let (low, high) = imp::$widen(word);
                let low = f(low);
                imp::$pair(low, f(high))
            }
            #[inline(always)]
            fn fold_again<A>(word: u32, zero: u32, start: A, mut f: impl FnMut(A, f32) -> A) -> A {
                let (low, high) = $again(word, zero);
                let acc = f(start, low);
                f(acc, high)
            }
            #[inline(always)]
            fn map_again(word: u32, zero: u32, mut f: impl FnMut(f32) -> f32) -> u32 {
                let (low, high) = $again(word, zero);
                let low = f(low);
                imp::$pair(low, f(high))
            }
            #[inline(always)]
            fn pair(pack: Pack, index: usize) -> [f32; 2] {
                imp::$widen(pack[index]).into()
            }
            #[inline(always)]
            fn set_pair(pack: &mut Pack, index: usize, values: [f32; 2]) {
                pack[index] = imp::$pair(values[0], values[1]);
            }
            #[inline(always)]
            fn byte_mask(bytes: [u32; 2], index: usize) -> u32 {
                // Word `index` holds elements 2·index and 2·index + 1.
                let pair = 2 * (index % 2) as u32;
                let selector = 0x1100 * (pair + 9) + 0x11 * (pair + 8);
                crate::bits::prmt(bytes[index / 2], 0, selector)
            }
            #[inline(always)]
            fn range_mask(index: usize, low: i32, high: i32) -> u32 {
                range_bits(32 * index as i32, 16 * low, 16 * high)
            }
            #[inline(always)]
            fn from_mask(index: usize, from: i32) -> u32 {
                bits_from(32 * index as i32, 16 * from)
            }
        }
    };
}

half!(f16, "f16", 0xfc00_fc00, widen_f16, widen_f16_again, pair_f16, max_f16x2);
half!(bf16, "bf16", 0xff80_ff80, widen_bf16, widen_bf16_again, pair_bf16, max_bf16x2);

#[inline(always)]
fn widen_f16_again(word: u32, zero: u32) -> (f32, f32) {
    imp::widen_f16(word ^ zero)
}

/// By a factor and a mask that the compilers do not know, in place of what they know: no instruction more.
#[inline(always)]
fn widen_bf16_again(word: u32, zero: u32) -> (f32, f32) {
    (f32::from_bits(word.wrapping_mul(1 << 16 | zero)), f32::from_bits(word & (0xffff_0000 | zero)))
}

/// Rounds two values to f16, `low` in the low half.
#[inline(always)]
pub fn pair_f16(low: f32, high: f32) -> u32 {
    imp::pair_f16(low, high)
}

/// Rounds two values to bf16, `low` in the low half.
#[inline(always)]
pub fn pair_bf16(low: f32, high: f32) -> u32 {
    imp::pair_bf16(low, high)
}

/// The same pack, as far as `zero` is 0; neither LLVM nor ptxas knows that it is, when it is a kernel
/// parameter. Keeps 16-bit elements packed between two passes over them: otherwise both compilers keep what
/// the first pass widened, in twice the registers. One instruction a word; [`Float::fold_again`] and [`Float::map_again`] take
/// none for bf16.
#[inline(always)]
pub fn renew(pack: Pack, zero: u32) -> Pack {
    [pack[0] ^ zero, pack[1] ^ zero, pack[2] ^ zero, pack[3] ^ zero]
}
