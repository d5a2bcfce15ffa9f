//! y = a in another type, rounded to nearest, ties to even. From a type to itself it is a copy.

use super::Function;
use super::dense::{self, Dense, Operands};
use super::strided::{self, Strided};
use cuda_std::prelude::*;

#[derive(Clone, Copy)]
struct Identity;

impl Function for Identity {
    #[inline(always)]
    fn one(self, _: u64, x: f32, _: f32, _: f32) -> f32 {
        x
    }
}

macro_rules! cast_to {
    ($to:ty, $name:literal, $dense:ident, $strided:ident) => {
        #[doc = concat!("y = a as ", $name, ".")]
        ///
        /// # Safety
        /// As `dense::run`.
        #[kernel(family = "pointwise", types = [f32, f16, bf16], instances = [{ PACKS: 1; threads: 512 }])]
        pub unsafe fn $dense<T: Float, const PACKS: usize>(
            a: Global<T>,
            b: Global<T>,
            bias: Global<T>,
            y: GlobalMut<$to>,
            p: Dense,
        ) {
            let operands = Operands { a, b, bias, y };
            // SAFETY: the caller's contract.
            unsafe { dense::run::<T, $to, _, PACKS>(Identity, operands, &p) }
        }

        #[doc = concat!("y = a as ", $name, ", of any strides.")]
        ///
        /// # Safety
        /// As `strided::run`.
        #[kernel(family = "pointwise", types = [f32, f16, bf16], instances = [{ ; threads: 256 }])]
        pub unsafe fn $strided<T: Float>(
            a: Global<T>,
            b: Global<T>,
            bias: Global<T>,
            y: GlobalMut<$to>,
            p: Strided,
        ) {
            let operands = Operands { a, b, bias, y };
            // SAFETY: the caller's contract.
            unsafe { strided::run::<T, $to, _>(Identity, operands, &p) }
        }
    };
}

cast_to!(f32, "f32", cast_to_f32_dense, cast_to_f32_strided);
cast_to!(f16, "f16", cast_to_f16_dense, cast_to_f16_strided);
cast_to!(bf16, "bf16", cast_to_bf16_dense, cast_to_bf16_strided);
