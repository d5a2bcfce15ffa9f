//! Runs that stay whole, and whatever else: a thread fetches the units that it stores, from anywhere.
//!
//! Launch: 1-D grid over fewer than 2^31 units; larger results take several launches. A thread has `UNITS` units, a
//! block's width apart.

use super::boxes::advanced;
use super::unit::Unit;
use cuda_std::divide::{Quotient, ShortDivisor};
use cuda_std::prelude::*;

/// Dimensions of a gather.
pub const MAX_DIMS: usize = 8;

/// A dimension, the innermost first.
///
/// A unit's place is the sum of its digits times the dimensions' steps, and each digit is what is left of one quotient by the next:
/// dᵢ = qᵢ - qᵢ₊₁·eᵢ with qᵢ = number / (e₀·…·eᵢ₋₁). So the place is also the sum of the quotients times sᵢ - eᵢ₋₁·sᵢ₋₁, and no quotient
/// waits for another: a thread with one pack has little else to wait for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Units of the dimensions within it.
    pub within: Quotient,
    /// Bytes of x from one to the next, beyond all of the dimension before.
    pub x: i64,
}

impl Dim {
    /// One that does not count.
    pub const NONE: Dim = Dim { within: Quotient::ONE, x: 0 };
}

/// A launch. What all kernels read comes first: a kernel with little to do waits for its parameters, 64 bytes at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Units of the launch.
    pub units: u32,
    /// Dimensions that count.
    pub dim_count: u32,
    /// The byte of x to begin at.
    pub x: i64,
    /// The unit of y.
    pub y: u64,
    /// The dimensions; of rows those of their numbers.
    pub dims: [Dim; MAX_DIMS],
    /// Elements of the bias from one to the next, likewise; 0 without a bias.
    pub biases: [i64; MAX_DIMS],
    /// The element of the bias.
    pub bias: i64,
    /// Units of a row, for kernels of rows.
    pub row: ShortDivisor,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(Gather);
const _: () = assert!(size_of::<Gather>() == 24 * MAX_DIMS + 32 + 16);

/// Where a unit is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) x: i64,
    bias: i64,
}

impl Gather {
    /// Number `number` in the launch's dimensions, at most DIMS; without BIAS that has no place.
    #[inline(always)]
    pub(super) fn at<const DIMS: usize, const BIAS: bool>(&self, number: u32) -> At {
        let mut at = At { x: self.x, bias: self.bias };
        for i in 0..DIMS {
            // Few are not worth a branch: those that do not count have no steps.
            if const { DIMS > 4 } && i as u32 >= self.dim_count {
                break;
            }
            let dim = &self.dims[i];
            let quotient = if i == 0 { number } else { dim.within.of(number) };
            at.x = advanced(at.x, dim.x, quotient);
            if const { BIAS } {
                at.bias = advanced(at.bias, self.biases[i], quotient);
            }
        }
        at
    }
}

/// y = x permuted. DIMS: dimensions that a launch may have. Packs are one to a thread: BERT's heads (8×384×16×64 by (0,2,1,3)) in L2 took 4.97
/// instead of 5.25 us in f32 and 3.22 instead of 3.62 in f16, by four to a thread 6.1 and 3.75 (and take 4.74 and 2.96 since places are sums of
/// quotients).
///
/// # Safety
/// x holds the units of `p`, aligned to their size, y the launch's; the grid covers them at UNITS a thread.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [{ DIMS: 4, UNITS: 1; threads: 256 }, { DIMS: 8, UNITS: 2; threads: 256 }],
)]
pub unsafe fn gather<T: Unit, const DIMS: usize, const UNITS: usize>(
    x: Global<u8>,
    y: GlobalMut<u8>,
    p: Gather,
) {
    let width = thread::block_dim_x();
    let first = thread::block_idx_x() * width * UNITS as u32 + thread::thread_idx_x();
    let mut held = [T::ZERO; UNITS];
    // SAFETY: the caller's contract; units beyond the last are not accessed.
    unsafe {
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            if number < p.units {
                held[i] = T::get(x, p.at::<DIMS, false>(number).x as usize);
            }
        }
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            if number < p.units {
                held[i].set(y, (p.y + number as u64) as usize * T::BYTES);
            }
        }
    }
}

/// y = x permuted, plus a bias, by packs of x and of the bias; in f32, rounded once.
///
/// # Safety
/// As [`gather()`](fn@gather), with packs for units, aligned in the bias too, which holds what `p` says.
#[kernel(family = "permute", types = [f32, f16, bf16], instances = [{ UNITS: 2; threads: 256 }])]
pub unsafe fn gather_bias_packs<T: Float, const UNITS: usize>(
    x: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Gather,
) {
    let width = thread::block_dim_x();
    let first = thread::block_idx_x() * width * UNITS as u32 + thread::thread_idx_x();
    let (mut held, mut added) = ([[0; 4]; UNITS], [[0; 4]; UNITS]);
    // SAFETY: as above.
    unsafe {
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            let when = number < p.units;
            let at = p.at::<MAX_DIMS, true>(if when { number } else { 0 });
            held[i] = x.get_pack_if(when, at.x as usize / size_of::<T>(), 0);
            added[i] = bias.get_pack_if(when, at.bias as usize, 0);
        }
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            for pair in 0..const { T::PER_PACK / 2 } {
                let (value, bias) = (T::pair(held[i], pair), T::pair(added[i], pair));
                T::set_pair(&mut held[i], pair, [value[0] + bias[0], value[1] + bias[1]]);
            }
            y.set_pack_if(number < p.units, (p.y + number as u64) as usize * T::PER_PACK, held[i]);
        }
    }
}

/// As [`gather_bias_packs()`](fn@gather_bias_packs), by elements.
///
/// # Safety
/// As there, with elements for units.
#[kernel(family = "permute", types = [f32, f16, bf16], instances = [{ UNITS: 2; threads: 256 }])]
pub unsafe fn gather_bias_elements<T: Float, const UNITS: usize>(
    x: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Gather,
) {
    let width = thread::block_dim_x();
    let first = thread::block_idx_x() * width * UNITS as u32 + thread::thread_idx_x();
    let mut sums = [0.0; UNITS];
    // SAFETY: as above.
    unsafe {
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            if number < p.units {
                let at = p.at::<MAX_DIMS, true>(number);
                let value = x.get(at.x as usize / size_of::<T>()).to_f32();
                sums[i] = value + bias.get(at.bias as usize).to_f32();
            }
        }
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            y.set_if(number < p.units, (p.y + number as u64) as usize, T::from_f32(sums[i]));
        }
    }
}
