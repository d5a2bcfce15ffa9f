//! Boxes with runs of any alignment: the threads gather packs of y from shared memory, element by element.
//!
//! Launch: a block for each box. Runs of y are cut between tiles at multiples of `grain` bytes, and a box has the
//! elements behind its end that this needs: no pack is shared by two blocks but at the ends of a run.

use super::boxes::{Boxes, Level, offsets};
use super::unit::Unit;
use cuda_std::prelude::*;

/// Makes packs of y from elements of x.
pub(crate) trait Form {
    /// An element of x.
    type In: Unit;
    /// Bytes of an element of y.
    const BYTES: usize;

    /// The first elements as a pack of y.
    fn pack(held: &[Self::In; 16]) -> Pack;

    /// Writes one element, at byte `at` of y.
    ///
    /// # Safety
    /// As [`GlobalMut::set`].
    unsafe fn set(element: Self::In, y: GlobalMut<u8>, at: usize);
}

/// Elements as they are.
struct Same<T>(T);

impl<T: Unit> Form for Same<T> {
    type In = T;
    const BYTES: usize = T::BYTES;

    #[inline(always)]
    fn pack(held: &[T; 16]) -> Pack {
        T::pack(held)
    }
    #[inline(always)]
    #[track_caller]
    unsafe fn set(element: T, y: GlobalMut<u8>, at: usize) {
        // SAFETY: the caller's contract.
        unsafe { element.set(y, at) }
    }
}

/// Elements rounded to another type.
struct Cast<A, B>(A, B);

macro_rules! cast_form {
    ($($a:ty: $word:ident),* => $b:ty: $out:ident) => {$(
        impl Form for Cast<$a, $b> {
            type In = $word;
            const BYTES: usize = size_of::<$b>();

            #[inline(always)]
            fn pack(held: &[$word; 16]) -> Pack {
                <$b>::pack_from(|i| <$b>::from_f32(<$a>::from_bits(held[i]).to_f32()))
            }
            #[inline(always)]
            #[track_caller]
            unsafe fn set(element: $word, y: GlobalMut<u8>, at: usize) {
                let value = <$b>::from_f32(<$a>::from_bits(element).to_f32());
                // SAFETY: the caller's contract.
                unsafe { (value.to_bits() as $out).set(y, at) }
            }
        }
    )*};
}
cast_form!(f16: u16, bf16: u16 => f32: u32);
cast_form!(f32: u32, bf16: u16 => f16: u16);
cast_form!(f32: u32, f16: u16 => bf16: u16);

/// y = x permuted. LEVELS: those of `within` that count.
///
/// # Safety
/// x and y hold the boxes of `p`, shared memory has room for one, and the grid has a block for each.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [{ LEVELS: 1; threads: 256 }, { LEVELS: 2; threads: 256 }, { LEVELS: 3; threads: 256 }],
)]
pub unsafe fn staged<T: Unit, const LEVELS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: Boxes) {
    // SAFETY: the caller's contract.
    unsafe { run::<Same<T>, LEVELS>(x, y, &p) }
}

macro_rules! staged_cast {
    ($name:ident, $a:ty, $b:ty, $what:literal) => {
        #[doc = concat!("y = x permuted and cast, ", $what, ", rounded to nearest, ties to even.")]
        ///
        /// # Safety
        /// As [`staged()`](fn@staged).
        #[kernel(family = "permute", instances = [{ LEVELS: 1; threads: 256 }, { LEVELS: 3; threads: 256 }])]
        pub unsafe fn $name<const LEVELS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: Boxes) {
            // SAFETY: the caller's contract.
            unsafe { run::<Cast<$a, $b>, LEVELS>(x, y, &p) }
        }
    };
}
staged_cast!(staged_f32_to_f16, f32, f16, "f32 to f16");
staged_cast!(staged_f32_to_bf16, f32, bf16, "f32 to bf16");
staged_cast!(staged_f16_to_f32, f16, f32, "f16 to f32");
staged_cast!(staged_f16_to_bf16, f16, bf16, "f16 to bf16");
staged_cast!(staged_bf16_to_f32, bf16, f32, "bf16 to f32");
staged_cast!(staged_bf16_to_f16, bf16, f16, "bf16 to f16");

#[inline(always)]
unsafe fn run<F: Form, const LEVELS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: &Boxes) {
    let place = p.place();
    // SAFETY: the caller's contract; every pack of y has one thread, and of those in part each element.
    unsafe {
        p.stage(x, place);
        let y = y.offset(-(p.y_phase as i64));
        let first_element = (place.x & 15) as u32 / F::In::BYTES as u32;
        let bytes = p.out_bytes.of(place.w) as i64;
        let rest = p.out_bytes.rest(place.w) as i64;
        let outs = p.out_count.of(place.u);
        let grain = p.grain as i64;
        let (lane, side_by_side) = (thread::thread_idx_x() % warp::SIZE, 1 << p.log_lanes);
        let at_once = warp::SIZE >> p.log_lanes;
        let count = ((outs + at_once - 1) >> (5 - p.log_lanes)) * p.strides.value();
        let mut turn = thread::thread_idx_x() / warp::SIZE;
        while turn < count {
            let (group, stride) = p.strides.div_rem(turn);
            let out = group * at_once + (lane >> p.log_lanes);
            let pack = stride * side_by_side + (lane & (side_by_side - 1));
            if out < outs {
                let (global, staged) = offsets(&p.outs, p.out_levels, out);
                let first = place.y + global;
                let low = if place.w == 0 { first } else { up(first, grain) };
                let high = up(first + bytes, grain).min(first + rest);
                let begin = (low & !15) + 16 * pack as i64;
                let number = |at: i64| (at - first) as u32 / F::BYTES as u32;
                if begin >= low && begin + 16 <= high {
                    let mut held = [F::In::ZERO; 16];
                    let mut walk = Walk::<LEVELS>::begin(p, number(begin));
                    for i in 0..const { 16 / F::BYTES } {
                        held[i] = F::In::staged(first_element + staged + walk.at);
                        if i + 1 < const { 16 / F::BYTES } {
                            walk.step(&p.within);
                        }
                    }
                    y.set_pack_if(true, begin as usize, F::pack(&held));
                } else {
                    let mut at = begin.max(low);
                    let end = (begin + 16).min(high);
                    while at < end {
                        let walk = Walk::<LEVELS>::begin(p, number(at));
                        F::set(F::In::staged(first_element + staged + walk.at), y, at as usize);
                        at += F::BYTES as i64;
                    }
                }
            }
            turn += thread::block_dim_x() / warp::SIZE;
        }
    }
}

/// The next multiple of a power of two.
#[inline(always)]
fn up(at: i64, grain: i64) -> i64 {
    (at + grain - 1) & -grain
}

/// A place in shared memory that goes along a run of y.
struct Walk<const LEVELS: usize> {
    at: u32,
    /// Steps left on the inner levels.
    left: [u32; 2],
}

impl<const LEVELS: usize> Walk<LEVELS> {
    /// At element `number` of a run.
    #[inline(always)]
    fn begin(p: &Boxes, number: u32) -> Self {
        let levels = &p.within;
        let mut walk = Walk { at: 0, left: [0; 2] };
        let mut rest = number;
        for i in 0..LEVELS {
            let digit = if i + 1 < LEVELS {
                let (next, digit) = levels[i].count.div_rem(rest);
                walk.left[i] = levels[i].count.value() - digit;
                rest = next;
                digit
            } else {
                rest
            };
            walk.at += digit * levels[i].staged;
        }
        walk
    }

    /// One further.
    #[inline(always)]
    fn step(&mut self, levels: &[Level; 3]) {
        self.at += levels[0].staged;
        if const { LEVELS > 1 } {
            self.left[0] -= 1;
            let carry = self.left[0] == 0;
            let count = levels[0].count.value();
            self.left[0] = if carry { count } else { self.left[0] };
            // Back to the first of the inner level, and one up.
            let back = levels[1].staged.wrapping_sub(count.wrapping_mul(levels[0].staged));
            self.at = self.at.wrapping_add(if carry { back } else { 0 });
            if const { LEVELS > 2 } {
                self.left[1] -= carry as u32;
                let carry = self.left[1] == 0;
                let count = levels[1].count.value();
                self.left[1] = if carry { count } else { self.left[1] };
                let back = levels[2].staged.wrapping_sub(count.wrapping_mul(levels[1].staged));
                self.at = self.at.wrapping_add(if carry { back } else { 0 });
            }
        }
    }
}
