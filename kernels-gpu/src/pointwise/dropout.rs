//! y = x·scale where a random word keeps the element, else 0; forward and backward alike.
//!
//! Which words are whose is [`dropping`](crate::dropping)'s to say. Ten wide multiplications and ten xors for two
//! elements: less than what moving them costs, as long as no group of words is computed twice.

use super::Function;
use super::dense::{self, Dense, Operands};
use super::strided::{self, Strided};
use crate::dropping::Dropping;
use cuda_std::bits;
use cuda_std::prelude::*;

/// For units that are whole groups of the stream's words, and for loose elements.
#[derive(Clone, Copy)]
struct Dropout(Dropping);

impl Function for Dropout {
    #[inline(always)]
    fn one(self, at: u64, x: f32, _: f32, _: f32) -> f32 {
        self.0.one(at, x)
    }

    #[inline(always)]
    fn four(self, at: u64, x: [f32; 4], _: [f32; 4], _: [f32; 4]) -> [f32; 4] {
        let words = self.0.stream.four(at / 4);
        let mut y = [0.0; 4];
        for i in 0..4 {
            y[i] = self.0.apply(words[i], x[i]);
        }
        y
    }
}

/// For units that begin within a group of the stream's words, all at the same of its four.
///
/// A unit then has words of one group more than it has quads, and the last of these is the first of the unit that the
/// lane above has. So each lane computes as many groups as if units were whole groups, a bit for each word, and gets the
/// bits behind its own from that lane: one shuffle for all its units. For the last lane the first lanes compute one
/// group more, each of another of the units.
#[derive(Clone, Copy)]
struct Skewed {
    dropping: Dropping,
    /// The upper word of the number of every group, computed with once instead of with each group.
    high: u32,
    /// Of a unit: the element it begins with, and a bit for each that is kept.
    first: u64,
    kept: u32,
}

impl Skewed {
    /// Of a launch whose elements all have one number but for the lower 34 bits.
    #[inline(always)]
    fn new(dropping: Dropping, element: u64) -> Self {
        Skewed { dropping, high: (element >> 34) as u32, first: 0, kept: 0 }
    }

    /// A bit for each of the four words of the group that element `at` is of.
    #[inline(always)]
    fn kept_of_group(self, at: u64) -> u32 {
        let group = (self.high as u64) << 32 | (at / 4) as u32 as u64;
        let words = self.dropping.stream.four(group);
        let mut bits = 0;
        for i in 0..4 {
            bits |= (self.dropping.keeps(words[i]) as u32) << i;
        }
        bits
    }
}

impl Function for Skewed {
    #[inline(always)]
    fn one(self, at: u64, x: f32, _: f32, _: f32) -> f32 {
        self.dropping.one(at, x)
    }

    #[inline(always)]
    fn four(self, at: u64, x: [f32; 4], _: [f32; 4], _: [f32; 4]) -> [f32; 4] {
        let bits = self.kept >> (at - self.first) as u32;
        let mut y = [0.0; 4];
        for i in 0..4 {
            y[i] = self.dropping.choose(bits & 1 << i != 0, x[i]);
        }
        y
    }

    /// A unit has a byte of the words that lanes exchange.
    #[inline(always)]
    fn of_units<const PACKS: usize>(self, at: [u64; PACKS], unit: u32, apart: u32) -> [Self; PACKS] {
        const { assert!(PACKS <= 4) };
        let (lane, skew) = (warp::lane_id(), (at[0] % 4) as u32);
        let (mut own, mut i) = (0, 0);
        // Not unrolled: words of all units side by side want more registers than there are.
        while i < bits::opaque(PACKS as u32) {
            for quad in 0..unit / 4 {
                let group = self.kept_of_group(at[0] + (i * apart + 4 * quad) as u64);
                own |= group << (8 * i + 4 * quad);
            }
            i += 1;
        }
        // What follows unit number `lane` of the last lane.
        let behind = at[0] + (warp::SIZE - lane) as u64 * unit as u64 + lane as u64 * apart as u64;
        let group = self.kept_of_group(behind);
        let last =
            warp::warp_reduce_or(warp::FULL, if lane < PACKS as u32 { group << (8 * lane) } else { 0 });
        let (above, there) = warp::warp_shuffle_down(warp::FULL, own, 1, warp::SIZE);
        let above = if there { above } else { last };
        let whole = u32::MAX >> (32 - unit);
        let (low, each) = (whole >> skew, 0x0101_0101);
        let kept = ((own >> skew) & (low * each)) | ((above << (unit - skew)) & ((whole ^ low) * each));
        let mut units = [self; PACKS];
        for i in 0..PACKS {
            units[i] = Skewed { first: at[i], kept: kept >> (8 * i), ..self };
        }
        units
    }
}

/// y = dropout(a).
///
/// # Safety
/// As `dense::run`.
#[kernel(
    family = "pointwise",
    types = [f32, f16, bf16],
    instances = [{ PACKS: 2; threads: 256 }, { PACKS: 4; threads: 256, min_blocks: 3 }],
)]
pub unsafe fn dropout_dense<T: Float, const PACKS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Dense,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe {
        // Units have whole quads, so that all of them begin alike. Rows are whole units, and begin with whole groups.
        if p.rows != 0 || (p.first as u32 + p.head).is_multiple_of(4) {
            dense::run::<T, T, _, PACKS>(Dropout(p.dropping), operands, &p)
        } else {
            dense::run::<T, T, _, PACKS>(Skewed::new(p.dropping, p.first), operands, &p)
        }
    }
}

/// y = dropout(a), of any strides.
///
/// # Safety
/// As `strided::run`.
#[kernel(family = "pointwise", types = [f32, f16, bf16], instances = [{ ; threads: 256 }])]
pub unsafe fn dropout_strided<T: Float>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    y: GlobalMut<T>,
    p: Strided,
) {
    let operands = Operands { a, b, bias, y };
    // SAFETY: the caller's contract.
    unsafe { strided::run::<T, T, _>(Dropout(p.dropping), operands, &p) }
}
