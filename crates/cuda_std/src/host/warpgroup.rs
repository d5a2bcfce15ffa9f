use simt::warpgroup::{
    Product, commit_products, multiply, multiply_tf32 as start_tf32, take_sums, wait_products,
};

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
pub fn unset<const SUMS: usize>() -> [f32; SUMS] {
    [f32::NAN; SUMS]
}

#[inline(always)]
#[track_caller]
pub fn wait<const PENDING: u32>() {
    wait_products(PENDING as usize);
}

/// The instructions of an issue.
#[inline(always)]
fn of_issue(columns: usize, a: Operand, b: Operand, transposed: [bool; 2], more: bool) -> [Product; 4] {
    let (a, b) = (a.steps(), b.steps());
    std::array::from_fn(|step| Product {
        columns,
        descriptors: [a[step], b[step]],
        transposed,
        more: more || step > 0,
    })
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
            for product in of_issue(2 * SUMS, a, b, [A == 1, B == 1], more) {
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
pub unsafe fn multiply_tf32<const SUMS: usize>(sums: &mut [f32; SUMS], a: Operand, b: Operand, more: bool) {
    for product in of_issue(2 * SUMS, a, b, [false; 2], more) {
        start_tf32(product, sums);
    }
    commit_products();
}

#[inline(always)]
#[track_caller]
pub unsafe fn finish<const SUMS: usize>(sums: &mut [f32; SUMS]) {
    take_sums(sums);
}
