//! Four neighbouring units of a row, of which as many as `left` exist; and what a thread has of parts.

use super::super::parts::{Parts, inverse, magnitude, scale};
use super::super::quads::{load, store};
use super::{StreamStep, TERMS};
use cuda_std::prelude::*;

/// Units of a thread.
pub const FOUR: u32 = 4;
/// Lanes that share a scale.
const LANES: usize = (TERMS / FOUR) as usize;

/// Four neighbouring units of a row, with a thread of their own.
#[derive(Clone, Copy)]
pub struct Four {
    pub row: u32,
    /// The first.
    pub unit: u32,
    /// How many exist.
    pub left: u32,
    /// Whether they are among a row's padded units.
    pub inside: bool,
}

impl Four {
    /// From a unit of a row on; none exist where they are not `inside`.
    #[inline(always)]
    pub fn new(p: &StreamStep, (row, unit): (u32, u32), inside: bool) -> Four {
        let left = p.hidden.saturating_sub(unit).min(FOUR);
        Four { row, unit, left: if inside { left } else { 0 }, inside }
    }

    /// Those of the thread, in a launch with one for each four padded units of all rows.
    #[inline(always)]
    pub fn of_thread(p: &StreamStep) -> Four {
        let index = thread::index_1d();
        let inside = index < u64::from(p.batch) * u64::from(p.fours.value());
        let (row, four) = p.fours.div_rem(if inside { index as u32 } else { 0 });
        Four::new(p, (row, four * FOUR), inside)
    }

    /// Where they begin among those of gate `gate` of `gates` of all rows.
    #[inline(always)]
    pub fn of_gate(self, p: &StreamStep, gates: usize, gate: usize) -> usize {
        (self.row as usize * gates + gate) * p.hidden as usize + self.unit as usize
    }

    /// Where they begin in y, or in its gradient.
    #[inline(always)]
    pub fn of_y(self, p: &StreamStep) -> usize {
        (i64::from(self.row) * p.y_row + i64::from(self.unit)) as usize
    }
}

/// Those from `at` on, as they lie in memory; zeros for those that do not exist. `WIDE` is 1 where rows are whole packs of four. They are read once: L2
/// may let go of them first.
///
/// # Safety
/// As [`load_four`].
#[inline(always)]
pub unsafe fn load_words_once<T: Float, const WIDE: usize>(from: Global<T>, left: u32, at: usize) -> Pack {
    let mut words = [0; 4];
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDE == 1 && T::PER_WORD == 1 } {
            return from.get_pack_if(left > 0, at, 0);
        }
        if const { WIDE == 1 } {
            [words[0], words[1]] = from.get_8_once_if(left > 0, at, 0);
            return words;
        }
        for i in 0..4 {
            let bits = from.get_bits_if((i as u32) < left, at + i, 0);
            if const { T::PER_WORD == 1 } {
                words[i] = bits;
            } else {
                words[i / 2] |= bits << (i % 2 * 16);
            }
        }
    }
    words
}

/// What [`load_words_once`] gives, widened.
#[inline(always)]
pub fn widened<T: Float>(words: Pack) -> [f32; 4] {
    if const { T::PER_WORD == 1 } {
        return words.map(f32::from_bits);
    }
    let [a, b] = [0, 1].map(|i| T::pair(words, i));
    [a[0], a[1], b[0], b[1]]
}

/// Those from `at` on, widened; zeros for those that do not exist. `WIDE` is 1 where rows are whole packs of four.
///
/// # Safety
/// The first `left` exist; with `WIDE` four start at a multiple of their size.
#[inline(always)]
pub unsafe fn load_four<T: Float, const WIDE: usize>(from: Global<T>, left: u32, at: usize) -> [f32; 4] {
    let mut values = [0.0; 4];
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDE == 1 } {
            return load::<T, 4>(from, left > 0, at);
        }
        for i in 0..4 {
            [values[i]] = load::<T, 1>(from, (i as u32) < left, at + i);
        }
    }
    values
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

/// Shares that are asked for at a time.
const fn flight(gates: usize) -> usize {
    if gates == 1 { 8 } else { 4 }
}

/// Adds `splits` shares of `step` elements each, from `at(gate)` on, to each gate's sums; a few are asked for at a time.
///
/// # Safety
/// As [`load_four`], of each share.
#[inline(always)]
pub unsafe fn add_shares<const WIDE: usize, const GATES: usize>(
    all: &mut [[f32; 4]; GATES],
    sums: Global<f32>,
    left: u32,
    at: impl Fn(usize) -> usize,
    (splits, step): (u32, usize),
) {
    let mut first = 0;
    while first < splits {
        let mut shares = [[[0.0; 4]; GATES]; 8];
        for i in 0..const { flight(GATES) } {
            let split = first + i as u32;
            let left = if split < splits { left } else { 0 };
            for gate in 0..GATES {
                // SAFETY: the caller's contract.
                shares[i][gate] =
                    unsafe { load_four::<f32, WIDE>(sums, left, at(gate) + split as usize * step) };
            }
        }
        for i in 0..const { flight(GATES) } {
            for gate in 0..GATES {
                for j in 0..4 {
                    all[gate][j] += shares[i][gate][j];
                }
            }
        }
        first += const { flight(GATES) } as u32;
    }
}

/// Where parts and their scales go, chunk by chunk of [`TERMS`] terms.
#[derive(Clone, Copy)]
pub struct To {
    /// `[PARTS, chunks, lines, TERMS]`, two terms a word.
    pub parts: GlobalMut<u32>,
    /// 1 over the scale, `[chunks, lines]`; nothing for types that are multiplied as they are.
    pub scales: GlobalMut<f32>,
    /// Lines.
    pub lines: u32,
    /// Chunks of a line.
    pub chunks: u32,
}

/// Writes the thread's four numbers as parts of a line from a term on, and their scale.
///
/// # Safety
/// All lanes call, those of a chunk together; where `when` holds, line and term exist.
#[inline(always)]
pub unsafe fn store_parts<T: Parts>(to: To, when: bool, (line, term): (u32, u32), values: [f32; 4]) {
    let chunk = (term / TERMS) as usize * to.lines as usize + line as usize;
    let of_part = to.chunks as usize * to.lines as usize * TERMS as usize;
    // SAFETY: the caller's contract.
    unsafe {
        let mut left = values;
        if const { T::PARTS == 2 } {
            let [a, b, c, d] = values.map(magnitude);
            let most = warp::max::<f32, LANES>(a.max(b).max(c.max(d)));
            let by = scale(most);
            left = left.map(|value| value * by);
            let first = warp::lane_id().is_multiple_of(LANES as u32);
            to.scales.set_if(when && first, chunk, inverse(by));
        }
        for part in 0..const { T::PARTS } {
            let mut pack = [0; 4];
            for i in 0..2 {
                T::Part::set_pair(&mut pack, i, [left[2 * i], left[2 * i + 1]]);
                let [low, high] = T::Part::pair(pack, i);
                left[2 * i] -= low;
                left[2 * i + 1] -= high;
            }
            let at = part * of_part + chunk * TERMS as usize + (term % TERMS) as usize;
            to.parts.set_8_if(when, at / 2, [pack[0], pack[1]]);
        }
    }
}
