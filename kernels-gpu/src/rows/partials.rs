//! Partial sums of dweight and dbias of layer norm and RMS norm, for rows of any length and layout.
//!
//! dweight[j] = Σ dy[r, j]·x̂[r, j] and dbias[j] = Σ dy[r, j] over the rows r of a group: row g of two matrices
//! [groups, cols] of f32, which `column_sums` adds up. No atomics; groups depend on the shape alone.
//!
//! Launch: grid (strips, groups). A strip is 32 elements, or 32 packs, wide; the warps of a block take turns over the rows
//! of the group and are added up in their order. Floor: x and dy once.

use super::norm_backward::Normal;
use super::row::places;
use super::{Params, given};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 8;
/// Rows whose loads are in flight in a thread. More do not help, not even single elements.
const ROWS: usize = 2;

/// `PACKED` 1 takes rows of whole aligned packs, 0 any. `given::MEAN` says that there is a mean, and a
/// dbias with it.
///
/// # Safety
/// The operands match `p`: x is its first input and dy its second. The partials have a row for each block along y, of
/// `rows_per_group` rows, and columns as x.
#[kernel(
    family = "rows",
    types = [f32, f16, bf16],
    instances = [{ PACKED: 0; threads: 256 }, { PACKED: 1; threads: 256 }],
)]
pub unsafe fn column_partials<T: Float, const PACKED: usize>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    rstd: Global<f32>,
    dweight: GlobalMut<f32>,
    dbias: GlobalMut<f32>,
    rows_per_group: u32,
    p: Params,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { PACKED == 0 } {
            run::<T, 1>(x, dy, mean, rstd, [dweight, dbias], rows_per_group, &p);
        } else if const { T::PER_PACK == 8 } {
            run::<T, 8>(x, dy, mean, rstd, [dweight, dbias], rows_per_group, &p);
        } else {
            run::<T, 4>(x, dy, mean, rstd, [dweight, dbias], rows_per_group, &p);
        }
    }
}

/// UNIT is the elements of a pack, or 1.
#[inline(always)]
unsafe fn run<T: Float, const UNIT: usize>(
    x: Global<T>,
    dy: Global<T>,
    mean: Global<f32>,
    rstd: Global<f32>,
    partials: [GlobalMut<f32>; 2],
    rows_per_group: u32,
    p: &Params,
) {
    let (lane, turn) = (warp::lane_id(), warp::warp_id());
    let column = (thread::block_idx_x() * warp::SIZE + lane) * UNIT as u32;
    let inside = column < p.cols;
    let group = thread::block_idx_y();
    let end = (group * rows_per_group + rows_per_group).min(p.rows);
    let mut row = group * rows_per_group + turn;
    let mut sums = [[0.0; UNIT]; 2];
    // SAFETY: rows and columns beyond the last are not accessed.
    unsafe {
        while row < end {
            let (mut xs, mut dys) = ([[0; 4]; ROWS], [[0; 4]; ROWS]);
            let mut normals = [Normal { mean: 0.0, rstd: 0.0 }; ROWS];
            for i in 0..ROWS {
                let row = row + i as u32 * WARPS;
                let when = inside & (row < end);
                let row = if row < end { row } else { end - 1 };
                let at = places(p, row);
                let places = [0, 1].map(|input| at[input] + column as i64 * p.steps[input]);
                xs[i] = load::<T, UNIT>(x, when, places[0]);
                dys[i] = load::<T, UNIT>(dy, when, places[1]);
                normals[i].rstd = rstd.get(row as usize);
                if p.given & given::MEAN != 0 {
                    normals[i].mean = mean.get(row as usize);
                }
            }
            for i in 0..ROWS {
                let when = inside & (row + (i as u32 * WARPS) < end);
                for pair in 0..const { UNIT.div_ceil(2) } {
                    let (x, dy) = (T::pair(xs[i], pair), T::pair(dys[i], pair));
                    for half in 0..const { if UNIT == 1 { 1 } else { 2 } } {
                        let product = dy[half] * normals[i].of(x[half]);
                        sums[0][2 * pair + half] += if when { product } else { 0.0 };
                        sums[1][2 * pair + half] += dy[half];
                    }
                }
            }
            row += ROWS as u32 * WARPS;
        }
        let shared = shared_array!(rows_column_partials: [f32; 4096]);
        for which in 0..2 {
            for i in 0..UNIT {
                let at = (which * UNIT + i) as u32 * (WARPS * warp::SIZE);
                shared.set(at + turn * warp::SIZE + lane, sums[which][i]);
            }
        }
        thread::sync_threads();
        // Each warp adds up some of the elements.
        let mut element = turn;
        while element < 2 * UNIT as u32 {
            let mut total = 0.0;
            for turn in 0..WARPS {
                total += shared.get((element * WARPS + turn) * warp::SIZE + lane);
            }
            let (is_bias, i) = (element >= UNIT as u32, element % UNIT as u32);
            let at = group as usize * p.cols as usize + (column + i) as usize;
            if inside && !is_bias {
                partials[0].set(at, total);
            } else if inside && p.given & given::MEAN != 0 {
                partials[1].set(at, total);
            }
            element += WARPS;
        }
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
