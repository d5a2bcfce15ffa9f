//! y = x·Φ(x), by erf or with tanh's approximation of Φ, and dx = dy·d/dx x·Φ(x).
//!
//! `FORM` is one of [`super::form`]. NaN gives NaN; gelu(+∞) = +∞, gelu(−∞) = −0, the limit. Instructions for
//! each element: docs/PERFORMANCE.md.

use super::dense::{self, Dense, Operands};
use super::strided::{self, Strided};
use super::{Function, form};
use crate::normal;
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// GELU, accurate enough for results of type `T`.
#[derive(Clone, Copy)]
pub(super) struct Gelu<T, const FORM: usize>(pub PhantomData<T>);

impl<T: Float, const FORM: usize> Gelu<T, FORM> {
    #[inline(always)]
    pub fn value(self, x: f32) -> f32 {
        match const { (FORM, T::PER_WORD) } {
            (form::ERF, 1) => normal::gelu_erf::<true>(x),
            (form::ERF, _) => normal::gelu_erf::<false>(x),
            (_, 1) => normal::gelu_tanh::<true>(x),
            (_, _) => normal::gelu_tanh::<false>(x),
        }
    }

    #[inline(always)]
    pub fn slope(self, x: f32) -> f32 {
        match const { (FORM, T::PER_WORD) } {
            (form::ERF, 1) => normal::gelu_erf_slope::<true>(x),
            (form::ERF, _) => normal::gelu_erf_slope::<false>(x),
            (_, 1) => normal::gelu_tanh_slope::<true>(x),
            (_, _) => normal::gelu_tanh_slope::<false>(x),
        }
    }
}

impl<T: Float, const FORM: usize> Function for Gelu<T, FORM> {
    #[inline(always)]
    fn one(self, _: u64, x: f32, _: f32, _: f32) -> f32 {
        self.value(x)
    }
}

/// a = x, b = dy.
#[derive(Clone, Copy)]
struct Backward<T, const FORM: usize>(Gelu<T, FORM>);

impl<T: Float, const FORM: usize> Function for Backward<T, FORM> {
    const SECOND: bool = true;

    #[inline(always)]
    fn one(self, _: u64, x: f32, dy: f32, _: f32) -> f32 {
        dy * self.0.slope(x)
    }
}

/// y = gelu(a).
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [
        { FORM: 0, PACKS: 2; threads: 256, min_blocks: 6 }, { FORM: 0, PACKS: 4; threads: 256, min_blocks: 4 },
        { FORM: 1, PACKS: 2; threads: 256, min_blocks: 6 }, { FORM: 1, PACKS: 4; threads: 256, min_blocks: 4 },
    ],
)]
pub unsafe fn gelu_dense<T: Float, const FORM: usize, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { dense::run::<T, T, _, PACKS>(Gelu::<T, FORM>(PhantomData), operands, &p) }
}

/// y = gelu(a), of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ FORM: 0; threads: 256 }, { FORM: 1; threads: 256 }],
)]
pub unsafe fn gelu_strided<T: Float, const FORM: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(Gelu::<T, FORM>(PhantomData), operands, &p) }
}

/// y = b·gelu′(a).
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [
        { FORM: 0, PACKS: 1; threads: 512, min_blocks: 3 }, { FORM: 1, PACKS: 1; threads: 512, min_blocks: 3 },
    ],
)]
pub unsafe fn gelu_backward_dense<T: Float, const FORM: usize, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { dense::run::<T, T, _, PACKS>(Backward(Gelu::<T, FORM>(PhantomData)), operands, &p) }
}

/// y = b·gelu′(a), of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ FORM: 0; threads: 256 }, { FORM: 1; threads: 256 }],
)]
pub unsafe fn gelu_backward_strided<T: Float, const FORM: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(Backward(Gelu::<T, FORM>(PhantomData)), operands, &p) }
}
