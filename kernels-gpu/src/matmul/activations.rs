//! The functions behind a product, and their slopes.

use core::marker::PhantomData;

use cuda_std::float::max_nan;
use cuda_std::prelude::*;

use super::epilogue::activation;
use crate::normal;

/// The activations, accurate enough for results of type `T`.
pub(super) struct Activation<T>(PhantomData<T>);

impl<T: Float> Activation<T> {
    /// Of each value.
    #[inline(always)]
    pub fn apply<const N: usize>(kind: u32, values: [f32; N]) -> [f32; N] {
        match kind {
            activation::RELU => each(values, values, |v, _| max_nan(v, 0.0)),
            activation::GELU_TANH => each(values, values, |v, _| Gelu::<T>::tanh(v)),
            activation::GELU_ERF => each(values, values, |v, _| Gelu::<T>::erf(v)),
            _ => values,
        }
    }

    /// Each value times the slope at each of `at`; relu's at 0 is 0, and at NaN 1.
    #[inline(always)]
    pub fn times_slope<const N: usize>(kind: u32, values: [f32; N], at: [f32; N]) -> [f32; N] {
        match kind {
            activation::RELU => each(values, at, |v, x| if x <= 0.0 { 0.0 } else { v }),
            activation::GELU_TANH => each(values, at, |v, x| v * Gelu::<T>::tanh_slope(x)),
            activation::GELU_ERF => each(values, at, |v, x| v * Gelu::<T>::erf_slope(x)),
            _ => values,
        }
    }
}

#[inline(always)]
fn each<const N: usize>(mut values: [f32; N], aux: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    for i in 0..N {
        values[i] = f(values[i], aux[i]);
    }
    values
}

/// GELU and its slope, accurate enough for results of type `T`.
struct Gelu<T>(PhantomData<T>);

macro_rules! forms {
    ($($name:ident: $function:ident;)*) => {
        impl<T: Float> Gelu<T> {$(
            #[inline(always)]
            fn $name(x: f32) -> f32 {
                if const { T::PER_WORD == 1 } {
                    normal::$function::<true>(x)
                } else {
                    normal::$function::<false>(x)
                }
            }
        )*}
    };
}
forms! {
    tanh: gelu_tanh;
    tanh_slope: gelu_tanh_slope;
    erf: gelu_erf;
    erf_slope: gelu_erf_slope;
}
