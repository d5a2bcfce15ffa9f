//! y = gelu(x + bias), with a bias for each column.

use super::Function;
use super::dense::{self, Dense, Operands};
use super::gelu::Gelu;
use super::strided::{self, Strided};
use core::marker::PhantomData;
use cuda_std::prelude::*;

#[derive(Clone, Copy)]
struct BiasGelu<T, const FORM: usize>(Gelu<T, FORM>);

impl<T: Float, const FORM: usize> Function for BiasGelu<T, FORM> {
    const BIAS: bool = true;

    #[inline(always)]
    fn one(self, _: u64, x: f32, _: f32, bias: f32) -> f32 {
        self.0.value(x + bias)
    }
}

/// y = gelu(a + bias).
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [
        { FORM: 0, PACKS: 2; threads: 256, min_blocks: 6 }, { FORM: 1, PACKS: 2; threads: 256, min_blocks: 6 },
    ],
)]
pub unsafe fn bias_gelu_dense<T: Float, const FORM: usize, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { dense::run::<T, T, _, PACKS>(BiasGelu(Gelu::<T, FORM>(PhantomData)), operands, &p) }
}

/// y = gelu(a + bias), of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ FORM: 0; threads: 256 }, { FORM: 1; threads: 256 }],
)]
pub unsafe fn bias_gelu_strided<T: Float, const FORM: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(BiasGelu(Gelu::<T, FORM>(PhantomData)), operands, &p) }
}
