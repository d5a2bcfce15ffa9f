//! Four neighbouring units of a row, of which as many as `left` exist; and what a thread has of parts.

use super::super::parts::{Parts, inverse, magnitude, scale};
use super::super::quads::{load, store};
use super::{StreamStep, TERMS};
use cuda_std::prelude::*;

/// Units of a thread.
pub const FOUR: u32 = 4;
/// Lanes that share a scale.
const LANES: usize = (TERMS / FOUR) as usize;

/// The thread's row and first unit, and how many of its units exist.
#[inline(always)]
pub fn place(p: &StreamStep) -> (u32, u32, u32) {
    let index = thread::index_1d();
    let inside = index < u64::from(p.batch) * u64::from(p.fours.value());
    let (row, four) = p.fours.div_rem(if inside { index as u32 } else { 0 });
    let unit = four * FOUR;
    let left = if unit < p.hidden { p.hidden - unit } else { 0 };
    (row, unit, if inside { left.min(FOUR) } else { 0 })
}

/// Those from `at` on, widened; zeros for those that do not exist. `WIDE` is 1 where rows are whole packs of four.
///
/// # Safety
/// The first `left` exist; with `WIDE` four start at a multiple of their size.
#[inline(always)]
pub unsafe fn load_four<T: Float, const WIDE: usize>(from: Global<T>, left: u32, at: usize) -> [f32; 4] {
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDE == 1 } {
            return load::<T, 4>(from, left > 0, at);
        }
        let mut values = [0.0; 4];
        for i in 0..4 {
            [values[i]] = load::<T, 1>(from, (i as u32) < left, at + i);
        }
        values
    }
}

/// Writes those that exist from `at` on, rounded.
///
/// # Safety
/// As [`load_four`].
#[inline(always)]
pub unsafe fn store_four<T: Float, const WIDE: usize>(
    to: GlobalMut<T>,
    left: u32,
    at: usize,
    values: [f32; 4],
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDE == 1 } {
            return store::<T, 4>(to, left > 0, at, values);
        }
        for i in 0..4 {
            store::<T, 1>(to, (i as u32) < left, at + i, [values[i]]);
        }
    }
}

/// The sums of `splits` shares of `step` elements each, from `at` on.
///
/// # Safety
/// As [`load_four`], of each share.
#[inline(always)]
pub unsafe fn total<const WIDE: usize>(
    sums: Global<f32>,
    left: u32,
    at: usize,
    (splits, step): (u32, usize),
) -> [f32; 4] {
    let (mut all, mut split) = ([0.0; 4], 0);
    while split < splits {
        // SAFETY: the caller's contract.
        let share = unsafe { load_four::<f32, WIDE>(sums, left, at + split as usize * step) };
        for i in 0..4 {
            all[i] += share[i];
        }
        split += 1;
    }
    all
}

/// Where parts and their scales go.
#[derive(Clone, Copy)]
pub struct To {
    /// A matrix for each part, two terms a word.
    pub parts: GlobalMut<u32>,
    /// Terms of a matrix.
    pub terms: usize,
    /// 1 over the scale of each [`TERMS`] neighbours; nothing for types that are multiplied as they are.
    pub scales: GlobalMut<f32>,
}

/// Writes the thread's four numbers as parts from term `at` on, and their scale at `at_scale`.
///
/// # Safety
/// All lanes call, [`TERMS`] neighbours' together; where `when` holds, the terms exist.
#[inline(always)]
pub unsafe fn store_parts<T: Parts>(to: To, when: bool, at: usize, at_scale: usize, values: [f32; 4]) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut left = values;
        if const { T::PARTS == 2 } {
            let [a, b, c, d] = values.map(magnitude);
            let most = warp::max::<f32, LANES>(a.max(b).max(c.max(d)));
            let by = scale(most);
            left = left.map(|value| value * by);
            let first = warp::lane_id() % LANES as u32 == 0;
            to.scales.set_if(when && first, at_scale, inverse(by));
        }
        for part in 0..const { T::PARTS } {
            let mut pack = [0; 4];
            for i in 0..2 {
                T::Part::set_pair(&mut pack, i, [left[2 * i], left[2 * i + 1]]);
                let [low, high] = T::Part::pair(pack, i);
                left[2 * i] -= low;
                left[2 * i + 1] -= high;
            }
            to.parts.set_8_if(when, (part * to.terms + at) / 2, [pack[0], pack[1]]);
        }
    }
}
