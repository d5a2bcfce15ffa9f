//! What is done with a sum on its way out, in one place for all kernels.

use core::marker::PhantomData;

use cuda_std::float::{fma, max_nan};
use cuda_std::prelude::*;

use super::Matrix;
use super::place::Place;
use crate::normal;

/// The functions behind a product, by number.
pub mod activation {
    /// The number itself.
    pub const NONE: u32 = 0;
    /// The larger of it and 0.
    pub const RELU: u32 = 1;
    /// GELU with tanh's approximation.
    pub const GELU_TANH: u32 = 2;
    /// GELU by erf.
    pub const GELU_ERF: u32 = 3;
}

/// What else an epilogue has to do.
pub mod flag {
    /// Add `bias[n]`.
    pub const BIAS: u32 = 1;
    /// Add beta·`addend[m,n]`, behind the activation.
    pub const ADDEND: u32 = 2;
    /// Write what the activation gets to `aux[m,n]`.
    pub const KEEP: u32 = 4;
    /// Multiply by the activation's slope at `aux[m,n]` instead of applying it.
    pub const SLOPE: u32 = 8;
    /// The result is f32, whatever the operands are.
    pub const WIDE: u32 = 16;
    /// Whole packs of bias, addend, aux and result start at multiples of 16 bytes.
    pub const PACKED: u32 = 32;
    /// There is a tensor map of the result, and nothing to do but alpha, a bias and an activation.
    pub const STORED: u32 = 64;
}

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// The result; its columns are neighbours.
    pub out: Matrix,
    /// What is added.
    pub addend: Matrix,
    /// What is kept, or where slopes are taken; its columns are neighbours.
    pub aux: Matrix,
    /// From the result of a split to that of the next.
    pub split: i64,
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// The factor of the sums.
    pub alpha: f32,
    /// The factor of what is added.
    pub beta: f32,
    /// One of [`activation`].
    pub activation: u32,
    /// Of [`flag`].
    pub flags: u32,
}

/// The tensors.
#[derive(Clone, Copy)]
pub(super) struct Tensors<T> {
    pub bias: Global<T>,
    pub addend: Global<T>,
    pub aux: GlobalMut<T>,
    pub out: GlobalMut<T>,
}

/// Most elements of a pack.
pub(super) const PACK: usize = 8;

/// The epilogue of one product of the batch.
#[derive(Clone, Copy)]
pub(super) struct Finish<T> {
    tensors: Tensors<T>,
    p: Epilogue,
}

impl<T: Float> Finish<T> {
    /// The activation, or its slopes at `aux` times the values.
    #[inline(always)]
    fn activate<const N: usize>(&self, values: [f32; N], aux: [f32; N]) -> [f32; N] {
        if self.has(flag::SLOPE) {
            Activation::<T>::times_slope(self.p.activation, values, aux)
        } else {
            Activation::<T>::apply(self.p.activation, values)
        }
    }

    /// # Safety
    /// The tensors have the matrices of the batch that `place` names.
    #[inline(always)]
    pub unsafe fn new(tensors: Tensors<T>, p: &Epilogue, place: Place) -> Self {
        let out = place.of(p.out) + place.split as i64 * p.split;
        // SAFETY: the caller's contract.
        let tensors = unsafe {
            Tensors {
                bias: tensors.bias,
                addend: tensors.addend.offset(place.of(p.addend)),
                aux: tensors.aux.offset(place.of(p.aux)),
                // An f32 result starts as many f32 further on.
                out: if p.flags & flag::WIDE != 0 {
                    let wide = GlobalMut::<f32>::from_raw(tensors.out.raw()).offset(out);
                    GlobalMut::from_raw(wide.raw())
                } else {
                    tensors.out.offset(out)
                },
            }
        };
        Finish { tensors, p: *p }
    }

    #[inline(always)]
    fn has(&self, flag: u32) -> bool {
        self.p.flags & flag != 0
    }

    /// Finishes the pack from (row, col) on, as far as it is within the result: from all its `sums`, or element by
    /// element from the `sum` of each.
    ///
    /// # Safety
    /// The tensors are there as the parameters say. One thread takes an element.
    #[inline(always)]
    pub unsafe fn pack(
        &self,
        row: u32,
        col: u32,
        sums: impl FnOnce() -> [f32; PACK],
        sum: impl Fn(u32) -> f32,
    ) {
        let (per_pack, n) = (T::PER_PACK as u32, self.p.n);
        if row >= self.p.m {
            return;
        }
        // SAFETY: the caller's contract; columns are below n.
        unsafe {
            if self.has(flag::PACKED) && col + per_pack <= n {
                self.whole(row, col, sums());
            } else {
                let end = if col + per_pack < n { col + per_pack } else { n };
                let mut next = col;
                while next < end {
                    self.one(row, next, sum(next - col));
                    next += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn whole(&self, row: u32, col: u32, sums: [f32; PACK]) {
        let (p, t) = (&self.p, &self.tensors);
        let at = |matrix: Matrix| (row as i64 * matrix.row + col as i64) as usize;
        // SAFETY: whole packs within the tensors, by the caller's contract.
        unsafe {
            // All loads before the arithmetic.
            let bias = t.bias.get_pack_if(self.has(flag::BIAS), col as usize, 0);
            let added = t.addend.get_pack_if(self.has(flag::ADDEND), at(p.addend), 0);
            // A kept pre-activation is written, not read.
            let slopes = Global::<T>::from_raw(t.aux.raw());
            let aux = unpack::<T>(slopes.get_pack_if(self.has(flag::SLOPE), at(p.aux), 0));
            let (bias, added) = (unpack::<T>(bias), unpack::<T>(added));
            let mut values = [0.0; PACK];
            for i in 0..T::PER_PACK {
                values[i] = fma(p.alpha, sums[i], bias[i]);
            }
            t.aux.set_pack_if(self.has(flag::KEEP), at(p.aux), pack::<T>(values));
            values = self.activate(values, aux);
            if self.has(flag::ADDEND) {
                for i in 0..T::PER_PACK {
                    values[i] = fma(p.beta, added[i], values[i]);
                }
            }
            if self.has(flag::WIDE) {
                let out = GlobalMut::<f32>::from_raw(t.out.raw());
                out.set_pack_if(true, at(p.out), pack::<f32>(values));
                if const { T::PER_PACK == PACK } {
                    let [_, _, _, _, a, b, c, d] = values.map(f32::to_bits);
                    out.set_pack_if(true, at(p.out) + 4, [a, b, c, d]);
                }
            } else {
                t.out.set_pack_if(true, at(p.out), pack::<T>(values));
            }
        }
    }

    /// Finishes the sum of (row, col).
    ///
    /// # Safety
    /// As [`Self::pack`]; (row, col) is within the result.
    #[inline(always)]
    pub unsafe fn one(&self, row: u32, col: u32, sum: f32) {
        let (p, t) = (&self.p, &self.tensors);
        let at = |matrix: Matrix| (row as i64 * matrix.row + col as i64 * matrix.col) as usize;
        // SAFETY: the caller's contract.
        unsafe {
            let bias = if self.has(flag::BIAS) { t.bias.get(col as usize).to_f32() } else { 0.0 };
            let aux = if self.has(flag::SLOPE) { t.aux.get(at(p.aux)).to_f32() } else { 0.0 };
            let value = fma(p.alpha, sum, bias);
            if self.has(flag::KEEP) {
                t.aux.set(at(p.aux), T::from_f32(value));
            }
            let [mut value] = self.activate([value], [aux]);
            if self.has(flag::ADDEND) {
                value = fma(p.beta, t.addend.get(at(p.addend)).to_f32(), value);
            }
            if self.has(flag::WIDE) {
                GlobalMut::<f32>::from_raw(t.out.raw()).set(at(p.out), value);
            } else {
                t.out.set(at(p.out), T::from_f32(value));
            }
        }
    }

    /// Finishes the `rows`×`cols` sums that a block has in shared memory, in rows of `pitch` elements, for the tile
    /// that begins at (first_row, first_col).
    ///
    /// # Safety
    /// As [`Self::pack`]; all `threads` threads of the block call, and the sums have been synchronised.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn tile(
        &self,
        sums: Shared<f32>,
        pitch: u32,
        (rows, cols): (u32, u32),
        (first_row, first_col): (u32, u32),
        threads: u32,
    ) {
        let packs = cols / T::PER_PACK as u32;
        let (mut row, pack) = (thread::thread_idx_x() / packs, thread::thread_idx_x() % packs);
        let col = pack * T::PER_PACK as u32;
        while row < rows {
            let at = row * pitch + col;
            // SAFETY: within the sums; the rest is the caller's contract.
            unsafe {
                let all = || {
                    let [a, b, c, d] = sums.get_pack(at);
                    let wide = const { T::PER_PACK == PACK };
                    let [e, f, g, h] = if wide { sums.get_pack(at + 4) } else { [0; 4] };
                    [a, b, c, d, e, f, g, h].map(f32::from_bits)
                };
                self.pack(first_row + row, first_col + col, all, |i| sums.get(at + i));
            }
            row += threads / packs;
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

#[inline(always)]
pub(super) fn unpack<T: Float>(pack: Pack) -> [f32; PACK] {
    let mut values = [0.0; PACK];
    for i in 0..T::PER_PACK / 2 {
        [values[2 * i], values[2 * i + 1]] = T::pair(pack, i);
    }
    values
}

#[inline(always)]
pub(super) fn pack<T: Float>(values: [f32; PACK]) -> Pack {
    let mut pack = [0; 4];
    for i in 0..T::PER_PACK / 2 {
        T::set_pair(&mut pack, i, [values[2 * i], values[2 * i + 1]]);
    }
    pack
}

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
