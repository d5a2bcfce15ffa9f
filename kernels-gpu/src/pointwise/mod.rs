//! Operations that compute each element of the result from the elements at its place: one engine, and a short
//! file for each operation.
//!
//! y[i] = f(a[i], b[i], bias[i mod N]), where f is a `Function` and uses some of its operands. Computed in f32;
//! a, b and bias have one type, y the same or, for casts, another: f32 | f16 | bf16.
//!
//! | module | what |
//! | --- | --- |
//! | `dense` | the engine for operands that lie densely: packs of 16 bytes |
//! | `strided` | the engine for any strides: element by element |
//! | `bias_gelu_backward` | rows, with the sums of their columns taken on the way |
//! | `gelu`, `bias_gelu`, `add`, `cast`, `dropout` | the functions and their kernels |
//!
//! A launch has fewer than 2^31 elements, so that it divides and compares in 32 bits; larger tensors take
//! several, each with 64-bit places to start at.
//!
//! Floor: each operand and y once, at the copy rate: 2·bytes for one operand, 3·bytes for two. A bias stays in
//! the caches.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]
// Kernels of one shape take the operands of the largest.
#![allow(clippy::too_many_arguments)]

mod add;
mod bias_gelu;
mod bias_gelu_backward;
mod cast;
mod dense;
mod dropout;
mod gelu;
mod strided;

pub use add::*;
pub use bias_gelu::*;
pub use bias_gelu_backward::*;
pub use cast::*;
pub use dense::{Dense, unit};
pub use dropout::*;
pub use gelu::*;
pub use strided::{Dim, MAX_DIMS, Strided, offsets};

/// What the `FORM` of a GELU kernel means.
pub mod form {
    /// x·Φ(x), by erf.
    pub const ERF: usize = 0;
    /// Φ approximated by tanh.
    pub const TANH: usize = 1;
}

/// What an operation does to one element.
pub(crate) trait Function: Copy {
    /// Whether it reads the second operand.
    const SECOND: bool = false;
    /// Whether it reads the bias.
    const BIAS: bool = false;

    /// The result at element `at` of the tensor. Operands that it does not read are 0.
    fn one(self, at: u64, a: f32, b: f32, bias: f32) -> f32;

    /// The results at four neighbours, from element `at` on.
    #[inline(always)]
    fn four(self, at: u64, a: [f32; 4], b: [f32; 4], bias: [f32; 4]) -> [f32; 4] {
        let mut y = [0.0; 4];
        for i in 0..4 {
            y[i] = self.one(at + i as u64, a[i], b[i], bias[i]);
        }
        y
    }

    /// The function for each of a thread's units, which begin at the elements `at`: the unit of the lane above `unit`
    /// elements further on, a thread's own `apart` elements from one another. Asked while operands are on their way, by
    /// all threads of a block, so that the lanes of a warp may find out for one another what they all need; and not
    /// where units share their bias, which lie otherwise.
    #[inline(always)]
    fn of_units<const PACKS: usize>(self, at: [u64; PACKS], unit: u32, apart: u32) -> [Self; PACKS] {
        let _ = (at, unit, apart);
        [self; PACKS]
    }
}

/// Every pack is one load: all of a thread's, in runs and in rows, for `dropout` in runs of either alignment; with a bias one of that
/// in rows; with the sums of columns those of two rows, and the bias.
#[cfg(target_arch = "nvptx64")]
mod expectations {
    macro_rules! expect {
        ($($line:literal)*) => {$(
            core::arch::global_asm!(concat!("//@expect pointwise_", $line, " ld.global.nc.L2::cache_hint.v4"));
        )*};
    }
    expect! {
        "gelu_dense_bf16_0_4 ==8" "gelu_backward_dense_bf16_0_1 ==4" "bias_gelu_dense_bf16_1_2 ==5" "add_dense_f32_1 ==4"
        "dropout_dense_f16_4 ==12" "bias_gelu_backward_dense_bf16_0 ==5"
    }
}
