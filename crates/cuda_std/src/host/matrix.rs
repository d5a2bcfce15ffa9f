use super::shared::RawShared;
use simt::matrix::{
    Widen, load_matrices as load, multiply_16x8x8, multiply_16x8x16, store_matrices as store,
};

pub(super) struct F16;
impl Widen for F16 {
    fn widen(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

pub(super) struct Bf16;
impl Widen for Bf16 {
    fn widen(bits: u16) -> f32 {
        half::bf16::from_bits(bits).to_f32()
    }
}

#[inline(always)]
#[track_caller]
pub fn multiply_f16(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    multiply_16x8x16::<F16>(a, b, c)
}
#[inline(always)]
#[track_caller]
pub fn multiply_bf16(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    multiply_16x8x16::<Bf16>(a, b, c)
}
#[inline(always)]
#[track_caller]
pub fn multiply_tf32(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    multiply_16x8x8(a, b, c)
}
#[inline(always)]
#[track_caller]
pub unsafe fn load_matrices<T: Copy, const COUNT: usize, const TRANSPOSED: bool>(
    raw: RawShared,
    index: u32,
) -> [u32; COUNT] {
    // SAFETY: the checker tests the accesses.
    unsafe { load::<COUNT, TRANSPOSED>(raw.bytes(), index as usize * size_of::<T>()) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_matrices<T: Copy, const TRANSPOSED: bool>(raw: RawShared, index: u32, words: [u32; 4]) {
    // SAFETY: the checker tests the accesses.
    unsafe { store::<TRANSPOSED>(raw.bytes(), index as usize * size_of::<T>(), words) }
}
