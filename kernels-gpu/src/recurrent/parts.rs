//! What tensor cores multiply: 16-bit numbers as they are, of f32 two f16.
//!
//! For a power of two s that takes it into f16's range, x·s = high + low·2⁻¹¹ with 22 bits of f32's 24; of the products of two
//! such numbers that of both lows is left out, an error of 2⁻²². Tensor cores multiply f16 twice as fast as tf32, of which
//! f32 takes three products, too.
//!
//! Source: recovering single-precision accuracy from tensor cores (Ootomo and Yokota, 2022).

use super::exchange;
use cuda_std::f16;
use cuda_std::prelude::*;

/// A number of f32's low part counts this much.
pub const LOW: f32 = 1.0 / 2048.0;

/// Parts of a number of f32.
pub const PARTS: usize = <f32 as Parts>::PARTS;

/// A type whose numbers tensor cores multiply in parts.
pub trait Parts: Float {
    /// What they multiply.
    type Part: Half;
    /// How many a number is.
    const PARTS: usize;

    /// Two neighbours' word of a part; no word is [`exchange::POISON`].
    fn word(low: f32, high: f32, part: u32) -> u32;

    /// The packs of eight neighbours from element `at` on, times `scale`, of each part. Packs that begin behind the first `left` are
    /// zeros where numbers have two parts, and anything where they are whole.
    ///
    /// # Safety
    /// The pack at `at` and those with one of the first `left` exist, and start at multiples of 16 bytes.
    unsafe fn eight(from: Global<Self>, left: u32, at: usize, scale: f32) -> [Pack; 2];
}

macro_rules! whole {
    ($type:ty) => {
        impl Parts for $type {
            type Part = Self;
            const PARTS: usize = 1;

            #[inline(always)]
            fn word(low: f32, high: f32, _: u32) -> u32 {
                exchange::word::<Self>(low, high)
            }

            #[inline(always)]
            unsafe fn eight(from: Global<Self>, _: u32, at: usize, _: f32) -> [Pack; 2] {
                // SAFETY: the caller's contract.
                [unsafe { from.get_pack_if(true, at, 0) }, [0; 4]]
            }
        }
    };
}
whole!(f16);
whole!(bf16);

impl Parts for f32 {
    type Part = f16;
    const PARTS: usize = 2;

    #[inline(always)]
    fn word(low: f32, high: f32, part: u32) -> u32 {
        let [whole, rest] = split(low, high);
        let word = if part == 0 { whole } else { rest };
        // As `exchange::word`.
        if word == exchange::POISON { 0x7fff_7fff } else { word }
    }

    #[inline(always)]
    unsafe fn eight(from: Global<Self>, left: u32, at: usize, scale: f32) -> [Pack; 2] {
        let mut parts = [[0; 4]; 2];
        for i in 0..2 {
            let exists = left > 4 * i as u32;
            // Read in either case: a load with a condition is waited for before the next.
            // SAFETY: the caller's contract.
            let pack = unsafe { from.get_pack_if(true, at + if exists { 4 * i } else { 0 }, 0) };
            let pack = pack.map(|word| if exists { word } else { 0 });
            for j in 0..2 {
                let [low, high] = f32::pair(pack, j);
                let words = split(low * scale, high * scale);
                for part in 0..2 {
                    parts[part][2 * i + j] = words[part];
                }
            }
        }
        parts
    }
}

/// Both parts of two neighbours.
#[inline(always)]
fn split(low: f32, high: f32) -> [u32; 2] {
    let (mut whole, mut rest) = ([0; 4], [0; 4]);
    f16::set_pair(&mut whole, 0, [low, high]);
    let rounded = f16::pair(whole, 0);
    f16::set_pair(&mut rest, 0, [(low - rounded[0]) * (1.0 / LOW), (high - rounded[1]) * (1.0 / LOW)]);
    [whole[0], rest[0]]
}

/// The power of two that takes a finite magnitude to 2¹⁴..2¹⁵, or as near as there is one.
#[inline(always)]
pub fn scale(most: f32) -> f32 {
    let exponent = most.to_bits() >> 23;
    f32::from_bits((268 - if exponent < 15 { 15 } else { exponent }) << 23)
}

/// 1 / `scale`, of a power of two.
#[inline(always)]
pub fn inverse(scale: f32) -> f32 {
    f32::from_bits((254 << 23) - scale.to_bits())
}

/// |x|, or 0 where that is not finite.
#[inline(always)]
pub fn magnitude(x: f32) -> f32 {
    let bits = x.to_bits() & 0x7fff_ffff;
    if bits < 0x7f80_0000 { f32::from_bits(bits) } else { 0.0 }
}
