//! Warp collectives: shuffles, votes, matches and reductions.
//!
//! `mask` names the lanes that take part: each of them must make the same call. `width` (a power of
//! two up to 32) cuts the warp into independent segments. Reading from a lane outside the mask gives
//! an unspecified value; the checker returns a poison pattern there.

use crate::imp::warp as imp;

/// All 32 lanes.
pub const FULL: u32 = u32::MAX;
/// Lanes of a warp.
pub const SIZE: u32 = 32;

/// This thread's lane, 0..32.
#[inline(always)]
pub fn lane_id() -> u32 {
    imp::lane_id()
}

/// This thread's warp within its block.
#[inline(always)]
pub fn warp_id() -> u32 {
    crate::thread::thread_index() / SIZE
}

/// The lanes that execute this together right now. Not a synchronisation: do not use it as the mask of
/// a collective that all lanes of a branch should reach.
#[inline(always)]
#[track_caller]
pub fn activemask() -> u32 {
    imp::activemask()
}

/// Waits for the lanes of `mask` and orders their memory accesses.
#[inline(always)]
#[track_caller]
pub fn sync_warp(mask: u32) {
    imp::sync_warp(mask);
}

/// Whether `predicate` holds on every lane of `mask`.
#[inline(always)]
#[track_caller]
pub fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    imp::ballot(mask, predicate) & mask == mask
}

/// Whether `predicate` holds on any lane of `mask`.
#[inline(always)]
#[track_caller]
pub fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    imp::ballot(mask, predicate) & mask != 0
}

/// The lanes of `mask` on which `predicate` holds.
#[inline(always)]
#[track_caller]
pub fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    imp::ballot(mask, predicate)
}

/// The lanes of `mask` whose `value` equals this lane's.
#[inline(always)]
#[track_caller]
pub fn warp_match_any_32(mask: u32, value: u32) -> u32 {
    imp::match_any_32(mask, value)
}

/// [`warp_match_any_32`] for 64 bits.
#[inline(always)]
#[track_caller]
pub fn warp_match_any_64(mask: u32, value: u64) -> u32 {
    imp::match_any_64(mask, value)
}

/// `(mask, true)` where all lanes of `mask` hold the same value, else `(0, false)`.
#[inline(always)]
#[track_caller]
pub fn warp_match_all_32(mask: u32, value: u32) -> (u32, bool) {
    let all = imp::match_any_32(mask, value) == mask;
    (if all { mask } else { 0 }, all)
}

/// [`warp_match_all_32`] for 64 bits.
#[inline(always)]
#[track_caller]
pub fn warp_match_all_64(mask: u32, value: u64) -> (u32, bool) {
    let all = imp::match_any_64(mask, value) == mask;
    (if all { mask } else { 0 }, all)
}

/// A value that shuffles can move: it is cut into 32-bit words, one instruction each.
pub trait WarpShuffleValue: Copy {
    /// Applies a 32-bit shuffle to each word.
    #[doc(hidden)]
    fn through(self, shuffle: impl Fn(u32) -> u32) -> Self;
}

macro_rules! shuffle_word {
    ($($ty:ty: $to:expr, $from:expr;)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            #[track_caller]
            fn through(self, shuffle: impl Fn(u32) -> u32) -> Self {
                $from(shuffle($to(self)))
            }
        }
    )*};
}

shuffle_word! {
    u32: |v| v, |w| w;
    i32: |v| v as u32, |w| w as i32;
    f32: f32::to_bits, f32::from_bits;
    u8: |v| v as u32, |w| w as u8;
    i8: |v: i8| v as u8 as u32, |w| w as u8 as i8;
    u16: |v| v as u32, |w| w as u16;
    i16: |v: i16| v as u16 as u32, |w| w as u16 as i16;
    crate::f16: |v: crate::f16| v.to_bits() as u32, |w| crate::f16::from_bits(w as u16);
    crate::bf16: |v: crate::bf16| v.to_bits() as u32, |w| crate::bf16::from_bits(w as u16);
    bool: |v| v as u32, |w| w != 0;
}

macro_rules! shuffle_wide {
    ($($ty:ty: $to:expr, $from:expr;)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            #[track_caller]
            fn through(self, shuffle: impl Fn(u32) -> u32) -> Self {
                let bits: u64 = $to(self);
                let low = shuffle(bits as u32) as u64;
                let high = shuffle((bits >> 32) as u32) as u64;
                $from(high << 32 | low)
            }
        }
    )*};
}

shuffle_wide! {
    u64: |v| v, |w| w;
    i64: |v| v as u64, |w| w as i64;
    f64: f64::to_bits, f64::from_bits;
}

/// PTX's `c` operand: the segment mask in bits 8..13, the clamp in bits 0..5.
#[inline(always)]
const fn control(width: u32, clamp: u32) -> u32 {
    ((32 - width) << 8) | clamp
}

/// The first lane of this lane's segment.
#[inline(always)]
fn segment(width: u32) -> u32 {
    lane_id() & !(width - 1)
}

/// The value of the lane `delta` (below 32) below; true where there is one in the segment, else the lane
/// keeps its own value.
#[inline(always)]
#[track_caller]
pub fn warp_shuffle_up<T: WarpShuffleValue>(mask: u32, value: T, delta: u32, width: u32) -> (T, bool) {
    debug_assert!(delta < SIZE);
    let moved = value.through(|word| imp::shuffle_up(mask, word, delta, control(width, 0)));
    (moved, lane_id() >= segment(width) + delta)
}

/// The value of the lane `delta` (below 32) above; true where there is one in the segment, else the lane
/// keeps its own value.
#[inline(always)]
#[track_caller]
pub fn warp_shuffle_down<T: WarpShuffleValue>(mask: u32, value: T, delta: u32, width: u32) -> (T, bool) {
    debug_assert!(delta < SIZE);
    let moved = value.through(|word| imp::shuffle_down(mask, word, delta, control(width, 31)));
    (moved, lane_id() + delta < segment(width) + width)
}

/// The value of lane `index` of the segment (modulo `width`); always true.
#[inline(always)]
#[track_caller]
pub fn warp_shuffle_idx<T: WarpShuffleValue>(mask: u32, value: T, index: u32, width: u32) -> (T, bool) {
    (value.through(|word| imp::shuffle_idx(mask, word, index & (width - 1), control(width, 31))), true)
}

/// The value of the lane whose index differs by `lane_mask` (below 32); true where that is in the segment or,
/// with a `lane_mask` of `width` or more, in one before it, else the lane keeps its own value.
#[inline(always)]
#[track_caller]
pub fn warp_shuffle_xor<T: WarpShuffleValue>(mask: u32, value: T, lane_mask: u32, width: u32) -> (T, bool) {
    debug_assert!(lane_mask < SIZE);
    let moved = value.through(|word| imp::shuffle_xor(mask, word, lane_mask, control(width, 31)));
    (moved, lane_id() ^ lane_mask < segment(width) + width)
}

/// An associative operation on values that a warp can reduce.
pub trait Reduce: WarpShuffleValue {
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The larger; a NaN on either side wins.
    fn larger(self, other: Self) -> Self;
    /// The smaller; a NaN on either side wins.
    fn smaller(self, other: Self) -> Self;
}

macro_rules! reduce_int {
    ($($ty:ty),*) => {$(
        impl Reduce for $ty {
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { if self > other { self } else { other } }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { if self < other { self } else { other } }
        }
    )*};
}
reduce_int!(u32, i32, u64, i64);

impl Reduce for f32 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        crate::float::max_nan(self, other)
    }
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        crate::float::min_nan(self, other)
    }
}

/// Combines the values of each `width`-lane segment by butterfly; every lane gets the result. All 32
/// lanes must call. One checker event instead of five shuffles on the CPU, in the same order of
/// operations, so sums agree bit for bit.
#[inline(always)]
#[track_caller]
fn butterfly<T: Reduce, const WIDTH: usize>(value: T, op: imp::Op) -> T {
    imp::butterfly::<T, WIDTH>(value, op)
}

/// The sum over each segment of `WIDTH` lanes. All 32 lanes must call.
#[inline(always)]
#[track_caller]
pub fn sum<T: Reduce, const WIDTH: usize>(value: T) -> T {
    butterfly::<T, WIDTH>(value, imp::Op::Add)
}

/// The maximum over each segment of `WIDTH` lanes, NaN if any is. All 32 lanes must call.
#[inline(always)]
#[track_caller]
pub fn max<T: Reduce, const WIDTH: usize>(value: T) -> T {
    butterfly::<T, WIDTH>(value, imp::Op::Max)
}

/// The minimum over each segment of `WIDTH` lanes, NaN if any is. All 32 lanes must call.
#[inline(always)]
#[track_caller]
pub fn min<T: Reduce, const WIDTH: usize>(value: T) -> T {
    butterfly::<T, WIDTH>(value, imp::Op::Min)
}

/// Reduces over the lanes of any mask, each of which gets the result: the full mask by butterfly,
/// another by one shuffle for each of its lanes, in lane order.
#[inline(always)]
#[track_caller]
fn reduce_mask<T: Reduce>(mask: u32, value: T, op: imp::Op) -> T {
    if mask == FULL {
        return butterfly::<T, 32>(value, op);
    }
    let mut rest = mask & (mask - 1);
    let mut total = warp_shuffle_idx(mask, value, mask.trailing_zeros(), 32).0;
    while rest != 0 {
        let (next, _) = warp_shuffle_idx(mask, value, rest.trailing_zeros(), 32);
        total = op.apply(total, next);
        rest &= rest - 1;
    }
    total
}

/// The sum over the lanes of `mask`.
#[inline(always)]
#[track_caller]
pub fn warp_reduce_add<T: Reduce>(mask: u32, value: T) -> T {
    reduce_mask(mask, value, imp::Op::Add)
}

/// The maximum over the lanes of `mask`, NaN if any is.
#[inline(always)]
#[track_caller]
pub fn warp_reduce_max<T: Reduce>(mask: u32, value: T) -> T {
    reduce_mask(mask, value, imp::Op::Max)
}

/// The minimum over the lanes of `mask`, NaN if any is.
#[inline(always)]
#[track_caller]
pub fn warp_reduce_min<T: Reduce>(mask: u32, value: T) -> T {
    reduce_mask(mask, value, imp::Op::Min)
}

/// The bitwise and over the lanes of `mask` (`redux.sync`).
#[inline(always)]
#[track_caller]
pub fn warp_reduce_and(mask: u32, value: u32) -> u32 {
    imp::reduce_and(mask, value)
}

/// The bitwise or over the lanes of `mask` (`redux.sync`).
#[inline(always)]
#[track_caller]
pub fn warp_reduce_or(mask: u32, value: u32) -> u32 {
    imp::reduce_or(mask, value)
}

/// The bitwise exclusive or over the lanes of `mask` (`redux.sync`).
#[inline(always)]
#[track_caller]
pub fn warp_reduce_xor(mask: u32, value: u32) -> u32 {
    imp::reduce_xor(mask, value)
}
