//! The engine for operands with any strides: element by element, four a thread. The cost: a load and a store
//! instruction for each element, and a division for each dimension that remains after merging.

use super::Function;
use super::dense::Operands;
use crate::dropping::Dropping;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Most dimensions that remain after merging.
pub const MAX_DIMS: usize = 8;
/// Elements of a thread.
const ELEMENTS: usize = 4;

/// A dimension: its extent and what a step along it adds to the place in each operand, in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dim {
    /// a.
    pub a: i64,
    /// b.
    pub b: i64,
    /// The bias.
    pub bias: i64,
    /// The extent.
    pub extent: Divisor,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}

/// A launch on strided operands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Strided {
    /// Innermost first; the first `dim_count` count.
    pub dims: [Dim; MAX_DIMS],
    /// Where the first element is in a.
    pub a_base: i64,
    /// And in b.
    pub b_base: i64,
    /// And in the bias.
    pub bias_base: i64,
    /// And in y, which is contiguous: also its number in the whole tensor.
    pub y_base: u64,
    /// What `dropout` drops; no other function looks at it.
    pub dropping: Dropping,
    /// Elements of the launch, from 1 to below 2^31.
    pub count: u32,
    /// Dimensions in use.
    pub dim_count: u32,
}
cuda_std::plain_parameter!(Strided);
const _: () = assert!(size_of::<Strided>() == MAX_DIMS * 40 + 4 * 8 + size_of::<Dropping>() + 2 * 4);

/// Where element `number` of a launch is in a, b and the bias, from the launch's first.
#[inline(always)]
pub fn offsets(dims: &[Dim; MAX_DIMS], dim_count: u32, number: u32) -> (i64, i64, i64) {
    let (mut a, mut b, mut bias, mut rest) = (0, 0, 0, number);
    // Constant indices: a run-time index would copy the parameters to local memory.
    macro_rules! step {
        ($($i:literal)*) => {$(
            if $i < dim_count {
                let dim = &dims[$i];
                let (quotient, digit) = dim.extent.div_rem(rest);
                rest = quotient;
                let digit = digit as i64;
                a += digit * dim.a;
                b += digit * dim.b;
                bias += digit * dim.bias;
            }
        )*};
    }
    step!(0 1 2 3 4 5 6 7);
    let _ = rest;
    (a, b, bias)
}

impl Strided {
    /// How many blocks of `threads` a launch of `count` elements needs.
    pub fn blocks(count: u64, threads: u32) -> u64 {
        count.div_ceil(u64::from(threads) * ELEMENTS as u64)
    }
}

/// Computes the launch `p`.
///
/// # Safety
/// The operands that `F` reads hold what `p` says, `y` too; the grid has [`Strided::blocks`].
#[inline(always)]
pub(crate) unsafe fn run<A: Float, B: Float, F: Function>(f: F, operands: Operands<A, B>, p: &Strided) {
    let width = thread::block_dim_x();
    let first = thread::block_idx_x() * width * ELEMENTS as u32 + thread::thread_idx_x();
    let (mut a, mut b, mut bias) = ([0.0; ELEMENTS], [0.0; ELEMENTS], [0.0; ELEMENTS]);
    // SAFETY: the caller's contract; a thread beyond the last element reads that one.
    unsafe {
        for i in 0..ELEMENTS {
            let number = (first + i as u32 * width).min(p.count - 1);
            let (a_at, b_at, bias_at) = offsets(&p.dims, p.dim_count, number);
            a[i] = operands.a.get((p.a_base + a_at) as usize).to_f32();
            if const { F::SECOND } {
                b[i] = operands.b.get((p.b_base + b_at) as usize).to_f32();
            }
            if const { F::BIAS } {
                bias[i] = operands.bias.get((p.bias_base + bias_at) as usize).to_f32();
            }
        }
        for i in 0..ELEMENTS {
            let number = first + i as u32 * width;
            let at = p.y_base + number as u64;
            let y = B::from_f32(f.one(at, a[i], b[i], bias[i]));
            operands.y.set_if(number < p.count, at as usize, y);
        }
    }
}
