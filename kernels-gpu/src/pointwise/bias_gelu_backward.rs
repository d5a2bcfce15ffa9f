//! dx = dy·gelu′(x + bias), and the sums of its columns for dbias, without atomics.
//!
//! x, dy, dx: [rows, cols]. A block has a strip of columns and a group of rows: `1 << lanes_log2` units of the
//! strip side by side, and its other threads on other rows of the group. A thread sums the f32 results of its
//! columns before they are rounded; the block adds them up in the order of the threads and writes one row of
//! `partials` [groups, cols] f32. `column_sums` adds the groups up. Groups depend on the shape alone, so the same
//! input gives the same bits.
//!
//! Launch: grid (strips, groups). Floor: x, dy and dx once; the partials are a row of f32 for each group.

use super::gelu::Gelu;
use super::strided::{Dim, MAX_DIMS, offsets};
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 256;
/// Rows whose loads are in flight in a thread.
const ROWS: usize = 2;

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The dimensions of the rows, innermost first: a is x and b is dy. Packs take the first alone.
    pub dims: [Dim; MAX_DIMS],
    /// Elements of x from column to column; 1 with packs.
    pub x_column: i64,
    /// And of dy.
    pub dy_column: i64,
    /// Rows, below 2^31.
    pub rows: u32,
    /// Columns, below 2^31; with packs whole units.
    pub cols: u32,
    /// Rows of a group.
    pub rows_per_group: u32,
    /// Units of a strip, as a power of 2; a strip has at most a block's threads as columns.
    pub lanes_log2: u32,
    /// Dimensions in use.
    pub dim_count: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(Rows);
const _: () = assert!(size_of::<Rows>() == MAX_DIMS * 40 + 2 * 8 + 6 * 4);

/// Packs: rows of whole units, aligned alike.
///
/// # Safety
/// The operands hold what `p` says; partials has a row for each block along y.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ FORM: 0; threads: 256, min_blocks: 4 }, { FORM: 1; threads: 256, min_blocks: 4 }],
)]
pub unsafe fn bias_gelu_backward_dense<T: Float, const FORM: usize>(
    x: Global<T>,
    dy: Global<T>,
    bias: Global<T>,
    dx: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Rows,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { T::PER_PACK == 8 } {
            run::<T, FORM, 8>(x, dy, bias, dx, partials, &p)
        } else {
            run::<T, FORM, 4>(x, dy, bias, dx, partials, &p)
        }
    }
}

/// Any strides, element by element.
///
/// # Safety
/// As [`bias_gelu_backward_dense()`](fn@bias_gelu_backward_dense).
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ FORM: 0; threads: 256 }, { FORM: 1; threads: 256 }],
)]
pub unsafe fn bias_gelu_backward_strided<T: Float, const FORM: usize>(
    x: Global<T>,
    dy: Global<T>,
    bias: Global<T>,
    dx: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Rows,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, FORM, 1>(x, dy, bias, dx, partials, &p) }
}

/// UNIT is the elements of a pack, or 1.
#[inline(always)]
unsafe fn run<T: Float, const FORM: usize, const UNIT: usize>(
    x: Global<T>,
    dy: Global<T>,
    bias: Global<T>,
    dx: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: &Rows,
) {
    let gelu = Gelu::<T, FORM>(PhantomData);
    let thread = thread::thread_idx_x();
    let (lanes, step) = (1 << p.lanes_log2, THREADS >> p.lanes_log2);
    let (lane, first) = (thread & (lanes - 1), thread >> p.lanes_log2);
    let strip = thread::block_idx_x() * lanes * UNIT as u32;
    let column = strip + lane * UNIT as u32;
    let inside = column < p.cols;
    let group = thread::block_idx_y();
    let end = (group * p.rows_per_group + p.rows_per_group).min(p.rows);
    let mut row = group * p.rows_per_group + first;
    let mut sums = [0.0; UNIT];
    // SAFETY: rows and columns beyond the last are not accessed; each row has one thread a column.
    unsafe {
        let bias = load::<T, UNIT>(bias, inside, column as i64);
        while row < end {
            let (mut xs, mut dys) = ([[0; 4]; ROWS], [[0; 4]; ROWS]);
            for i in 0..ROWS {
                let row = row + i as u32 * step;
                let when = inside & (row < end);
                let (x_at, dy_at) = place::<UNIT>(p, if when { row } else { 0 }, column);
                xs[i] = load::<T, UNIT>(x, when, x_at);
                dys[i] = load::<T, UNIT>(dy, when, dy_at);
            }
            for i in 0..ROWS {
                let row = row + i as u32 * step;
                let when = inside & (row < end);
                let mut result = [0; 4];
                for pair in 0..const { UNIT.div_ceil(2) } {
                    let (x, dy) = (T::pair(xs[i], pair), T::pair(dys[i], pair));
                    let bias = T::pair(bias, pair);
                    let grads = [dy[0] * gelu.slope(x[0] + bias[0]), dy[1] * gelu.slope(x[1] + bias[1])];
                    T::set_pair(&mut result, pair, grads);
                    for half in 0..const { if UNIT == 1 { 1 } else { 2 } } {
                        sums[2 * pair + half] += if when { grads[half] } else { 0.0 };
                    }
                }
                let at = row as u64 * p.cols as u64 + column as u64;
                if const { UNIT == 1 } {
                    dx.set_if(when, at as usize, T::from_bits(result[0]));
                } else {
                    dx.set_pack_if(when, at as usize, result);
                }
            }
            row += ROWS as u32 * step;
        }
        // Element by element, so that neighbouring threads have neighbouring words.
        let shared = shared_array!(pointwise_column_partials: [f32; 2048]);
        for i in 0..UNIT {
            shared.set(i as u32 * THREADS + thread, sums[i]);
        }
        thread::sync_threads();
        // A thread for each column of the strip: the host makes strips of at most THREADS columns.
        if thread < lanes * UNIT as u32 && strip + thread < p.cols {
            let (lane, element) = (thread / UNIT as u32, thread % UNIT as u32);
            let mut total = 0.0;
            let mut at = element * THREADS + lane;
            let mut turn = 0;
            while turn < step {
                total += shared.get(at);
                at += lanes;
                turn += 1;
            }
            partials.set(group as usize * p.cols as usize + (strip + thread) as usize, total);
        }
    }
}

/// Where a row's column is in x and in dy.
#[inline(always)]
fn place<const UNIT: usize>(p: &Rows, row: u32, column: u32) -> (i64, i64) {
    if const { UNIT == 1 } {
        let (x, dy, _) = offsets(&p.dims, p.dim_count, row);
        (x + column as i64 * p.x_column, dy + column as i64 * p.dy_column)
    } else {
        let (row, column) = (row as i64, column as i64);
        (row * p.dims[0].a + column, row * p.dims[0].b + column)
    }
}

/// A pack, or an element in the low bits of its first word.
#[inline(always)]
unsafe fn load<T: Float, const UNIT: usize>(x: Global<T>, when: bool, at: i64) -> Pack {
    // SAFETY: the caller's contract.
    unsafe {
        if const { UNIT == 1 } {
            [if when { x.get(at as usize).bits() } else { 0 }, 0, 0, 0]
        } else {
            x.get_pack_or(when, at as usize, [0; 4])
        }
    }
}
