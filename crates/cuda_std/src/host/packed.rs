//! Packed arithmetic. What asks whether the processor has the instructions takes more code than a call, so that it is not inlined.

use super::float::max_nan;
use crate::{bf16, f16};

pub fn widen_f16(word: u32) -> (f32, f32) {
    (f16::from_bits(word as u16).to_f32(), f16::from_bits((word >> 16) as u16).to_f32())
}
#[inline(always)]
pub fn widen_bf16(word: u32) -> (f32, f32) {
    (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000))
}
pub fn pair_f16(low: f32, high: f32) -> u32 {
    f16::from_f32(low).to_bits() as u32 | (f16::from_f32(high).to_bits() as u32) << 16
}
#[inline(always)]
pub fn pair_bf16(low: f32, high: f32) -> u32 {
    bf16::from_f32(low).to_bits() as u32 | (bf16::from_f32(high).to_bits() as u32) << 16
}
pub fn max_f16x2(a: u32, b: u32) -> u32 {
    let ((a0, a1), (b0, b1)) = (widen_f16(a), widen_f16(b));
    pair_f16(max_nan(a0, b0), max_nan(a1, b1))
}
#[inline(always)]
pub fn max_bf16x2(a: u32, b: u32) -> u32 {
    let ((a0, a1), (b0, b1)) = (widen_bf16(a), widen_bf16(b));
    pair_bf16(max_nan(a0, b0), max_nan(a1, b1))
}
