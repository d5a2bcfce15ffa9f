//! What tensor cores multiply, by words: two 16-bit numbers each, or an f32.
//!
//! The order of a sum's terms is free, so that a chunk is [`WORDS`] words of a row, neighbours of which each of four lanes has
//! four, and makes two products of them whatever they are.

use cuda_std::matrix::multiply_tf32;
use cuda_std::prelude::*;

/// Words of a chunk: four of each of four lanes.
pub const WORDS: u32 = 16;

/// A type of which a fragment's words are multiplied.
pub trait Words: Float {
    /// c + a·b for fragments of two words of each lane's columns. All 32 lanes must call.
    ///
    /// `zero` is 0. Of an `a` that a loop does not change, compilers would keep what f32's leading bits leave beside it, in twice the
    /// registers: a zero of which they do not know the highest bit, and that changes with the loop, keeps them from it, at no instruction.
    fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4], zero: u32) -> [f32; 4];
}

macro_rules! half {
    ($type:ty) => {
        impl Words for $type {
            #[inline(always)]
            fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4], _: u32) -> [f32; 4] {
                <$type as Half>::multiply(a, b, c)
            }
        }
    };
}
half!(f16);
half!(bf16);

impl Words for f32 {
    /// In three products of tf32: that of what the leading bits leave is left out, an error of 2⁻²¹.
    #[inline(always)]
    fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4], zero: u32) -> [f32; 4] {
        let rest = |word: u32| (f32::from_bits(word) - f32::from_bits((word ^ zero) & 0xffff_e000)).to_bits();
        let c = multiply_tf32([rest(a[0]), rest(a[1]), rest(a[2]), rest(a[3])], b, c);
        let c = multiply_tf32(a, [rest(b[0]), rest(b[1])], c);
        // Tensor cores cut off the rest by themselves.
        multiply_tf32(a, b, c)
    }
}
