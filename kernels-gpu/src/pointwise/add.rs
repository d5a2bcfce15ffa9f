//! y = a + b: the sum in f32, rounded once.

use super::Function;
use super::dense::{self, Dense, Operands};
use super::strided::{self, Strided};
use cuda_std::prelude::*;

#[derive(Clone, Copy)]
struct Add;

impl Function for Add {
    const SECOND: bool = true;

    #[inline(always)]
    fn one(self, _: u64, a: f32, b: f32, _: f32) -> f32 {
        a + b
    }
}

/// y = a + b.
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ PACKS: 1; threads: 1024 }],
)]
pub unsafe fn add_dense<T: Float, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { dense::run::<T, T, _, PACKS>(Add, operands, &p) }
}

/// y = a + b, of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(family = "pointwise", types = [f32, f16, bf16], instances = [{ ; threads: 256 }])]
pub unsafe fn add_strided<T: Float>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(Add, operands, &p) }
}
