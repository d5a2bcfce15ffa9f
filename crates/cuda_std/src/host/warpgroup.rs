use simt::warpgroup::{Product, commit_products, multiply, take_sums, wait_products};

use super::matrix::{Bf16, F16};
use super::shared::RawShared;
use crate::warpgroup::Operand;

/// The address in the block's shared memory.
#[inline(always)]
pub fn address(raw: RawShared) -> u32 {
    raw.bytes().byte_offset()
}

#[inline(always)]
pub fn fence_copies() {
    simt::bulk::fence_proxy();
}

#[inline(always)]
pub fn shrink_registers<const COUNT: u32>() {}

#[inline(always)]
pub fn grow_registers<const COUNT: u32>() {}

#[inline(always)]
#[track_caller]
pub fn wait<const PENDING: u32>() {
    wait_products(PENDING as usize);
}

macro_rules! products {
    ($($name:ident: $element:ty;)*) => {$(
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<const SUMS: usize, const A: u32, const B: u32>(
            sums: &mut [f32; SUMS],
            a: Operand,
            b: Operand,
            more: bool,
        ) {
            for (step, descriptors) in a.steps().into_iter().zip(b.steps()).enumerate() {
                let product = Product {
                    columns: 2 * SUMS,
                    descriptors: descriptors.into(),
                    transposed: [A == 1, B == 1],
                    more: more || step > 0,
                };
                multiply::<$element>(product, sums);
            }
            commit_products();
        }
    )*};
}
products! {
    multiply_f16: F16;
    multiply_bf16: Bf16;
}

#[inline(always)]
#[track_caller]
pub unsafe fn finish<const SUMS: usize>(sums: &mut [f32; SUMS]) {
    take_sums(sums);
}
