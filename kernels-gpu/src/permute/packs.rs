//! Boxes with runs of any alignment: the threads gather packs of y from shared memory, element by element.
//!
//! Launch: a block for each box. Runs of y are cut between tiles at multiples of `grain` bytes, and a box has the
//! elements behind its end that this needs: no pack is shared by two blocks but at the ends of a run.

use core::ops::Range;

use super::boxes::{Boxes, Tables, along_entry};
use super::part::set_part;
use super::unit::Unit;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Makes packs of y from elements of x.
pub(crate) trait Form {
    /// An element of x.
    type In: Unit;
    /// Bytes of an element of y.
    const BYTES: usize;

    /// The first elements as a pack of y.
    fn pack(held: &[Self::In; 16]) -> Pack;
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
}

/// Elements rounded to another type.
struct Cast<A, B>(A, B);

macro_rules! cast_form {
    ($($a:ty: $word:ident),* => $b:ty) => {$(
        impl Form for Cast<$a, $b> {
            type In = $word;
            const BYTES: usize = size_of::<$b>();

            #[inline(always)]
            fn pack(held: &[$word; 16]) -> Pack {
                <$b>::pack_from(|i| <$b>::from_f32(<$a>::from_bits(held[i]).to_f32()))
            }
        }
    )*};
}
cast_form!(f16: u16, bf16: u16 => f32);
cast_form!(f32: u32, bf16: u16 => f16);
cast_form!(f32: u32, f16: u16 => bf16);

/// y = x permuted. LEVELS: 1 where `within` has no more; with more, places along a run of y are from a table, which has rows where ROWS is 1:
/// see [`along_row`](super::along_row).
///
/// # Safety
/// x and y hold the boxes of `p`, shared memory has room for one, and the grid has a block for each.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [
        { LEVELS: 1, ROWS: 0; threads: 256 },
        { LEVELS: 4, ROWS: 0; threads: 256 },
        { LEVELS: 4, ROWS: 1; threads: 256, min_blocks: 6 },
    ],
)]
pub unsafe fn staged<T: Unit, const LEVELS: usize, const ROWS: usize>(
    x: Global<u8>,
    y: GlobalMut<u8>,
    p: Boxes,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<Same<T>, LEVELS, ROWS>(x, y, &p) }
}

macro_rules! staged_cast {
    ($name:ident, $a:ty, $b:ty, $what:literal) => {
        #[doc = concat!("y = x permuted and cast, ", $what, ", rounded to nearest, ties to even.")]
        ///
        /// # Safety
        /// As [`staged()`](fn@staged).
        #[kernel(family = "permute", instances = [{ LEVELS: 1; threads: 256 }, { LEVELS: 4; threads: 256 }])]
        pub unsafe fn $name<const LEVELS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: Boxes) {
            // SAFETY: the caller's contract.
            unsafe { run::<Cast<$a, $b>, LEVELS, 0>(x, y, &p) }
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
unsafe fn run<F: Form, const LEVELS: usize, const ROWS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: &Boxes) {
    let (place, keep) = (p.place(), Keep::when(p.keep != 0));
    // SAFETY: the caller's contract; every pack of y has one thread, and of those in part each element.
    unsafe {
        let first = place.staged() / F::In::BYTES as u32;
        // What is asked of L2 ahead: 8191×8193 gains 0.009 by 256 bytes, but short runs of single bytes lose 0.02.
        if const { LEVELS == 1 && F::In::BYTES > 1 } {
            p.stage::<false, 256, ROWS>(x, place, first, const { F::BYTES.trailing_zeros() });
        } else {
            p.stage::<false, 128, ROWS>(x, place, first, const { F::BYTES.trailing_zeros() });
        }
        let (tables, y) = (p.tables(), p.origin(y, place));
        let outs = p.out_count.of(place.u);
        let (lane, side_by_side) = (thread::thread_idx_x() % warp::SIZE, 1 << p.log_lanes);
        let at_once = warp::SIZE >> p.log_lanes;
        let mut turn = thread::thread_idx_x() / warp::SIZE;
        let mut along = Along::<LEVELS, ROWS>::none();
        while turn < p.turns {
            let (outer, inner) = p.inner.div_rem(turn);
            let (group, stride) = if const { LEVELS == 1 } { (outer, inner) } else { (inner, outer) };
            let out = group * at_once + (lane >> p.log_lanes);
            let pack = stride * side_by_side + (lane & (side_by_side - 1));
            if out < outs {
                let [begin, staged, end, lead] = tables.outs.get_pack(4 * out);
                let at = 16 * pack;
                // Those in part are written at the end.
                let number = (pack * const { 16 / F::BYTES as u32 }) as i32 + lead as i32;
                if number >= 0 && at + 16 <= end {
                    along.go::<F>(p, &tables, number as u32);
                    let mut held = [F::In::ZERO; 16];
                    for i in 0..const { 16 / F::BYTES } {
                        held[i] = F::In::staged(staged + along.of(p, i));
                    }
                    y.set_pack_keeping(keep, (begin + pack) as usize * 16, F::pack(&held));
                }
            }
            turn += thread::block_dim_x() / warp::SIZE;
        }
        ends::<F, LEVELS, ROWS>(y, keep, p, &tables, outs);
    }
}

/// Writes the first and the last pack of each run of y that is not whole: afterwards, so that no warp waits for the few lanes
/// that have one.
///
/// # Safety
/// The tables and the box are there; no thread wrote these packs.
#[inline(always)]
unsafe fn ends<F: Form, const LEVELS: usize, const ROWS: usize>(
    y: GlobalMut<u8>,
    keep: Keep,
    p: &Boxes,
    tables: &Tables,
    outs: u32,
) {
    let bytes = const { F::BYTES as u32 };
    let mut item = thread::thread_idx_x();
    // SAFETY: the caller's contract; each pack has one thread.
    unsafe {
        while item < 2 * outs {
            let (out, behind) = (item >> 1, item & 1 != 0);
            let [begin, staged, end, lead] = tables.outs.get_pack(4 * out);
            let last = end.saturating_sub(1) / 16;
            let at = if behind { 16 * last } else { 0 };
            let number = (at / bytes) as i32 + lead as i32;
            // The run's own elements of the pack; a run of a single pack has it in front.
            let own = number.min(0).unsigned_abs()..end.saturating_sub(at).min(16) / bytes;
            if (own.start > 0 || at + 16 > end) && !(behind && last == 0) && own.start < own.end {
                let number = number.max(0) as u32;
                let (turns, rest) =
                    if const { LEVELS == 1 } { (0, number) } else { p.period.div_rem(number) };
                let (staged, rest) = match const { LEVELS == 1 } {
                    true => (staged, rest),
                    false => (staged + turns * p.period_step, entry::<F, ROWS>(rest)),
                };
                // One half after the other: all elements at once would take registers of other blocks.
                let (mut half, halves) = (0, bits::opaque(2));
                while half < halves {
                    let held = Along::<LEVELS, ROWS>::half::<F>(p, tables, staged, rest, half, &own);
                    let [first, second, ..] = F::pack(&held);
                    let of_half = |element: u32| (element * bytes).saturating_sub(8 * half).min(8);
                    let at = begin as usize * 16 + (at + 8 * half) as usize;
                    set_part(y, keep, at, [first, second], of_half(own.start)..of_half(own.end), bytes);
                    half += 1;
                }
            }
            item += thread::block_dim_x();
        }
    }
}

/// The entry of the table where the places from element `number` on are.
#[inline(always)]
fn entry<F: Form, const ROWS: usize>(number: u32) -> u32 {
    if const { ROWS == 1 } { along_entry(number, const { F::BYTES.trailing_zeros() }) } else { number }
}

/// Where the elements of a pack are in shared memory, behind the first of the run.
struct Along<const LEVELS: usize, const ROWS: usize> {
    /// The number of the pack's first element.
    number: u32,
    at: [u32; 16],
}

impl<const LEVELS: usize, const ROWS: usize> Along<LEVELS, ROWS> {
    /// Of no pack.
    #[inline(always)]
    fn none() -> Self {
        Along { number: u32::MAX, at: [0; 16] }
    }

    /// Of the pack that begins with element `number`.
    ///
    /// # Safety
    /// The tables are those of `p`, and the run has the elements.
    #[inline(always)]
    unsafe fn go<F: Form>(&mut self, p: &Boxes, tables: &Tables, number: u32) {
        if const { LEVELS == 1 } {
            self.at[0] = number * p.within[0].staged;
        } else if const { ROWS == 1 } || number != self.number {
            // Tables with rows are of packs that do not repeat.
            self.number = number;
            let (turns, rest) = p.period.div_rem(number);
            let entry = entry::<F, ROWS>(rest);
            for i in 0..const { 16 / F::BYTES } {
                // SAFETY: the caller's contract.
                self.at[i] = turns * p.period_step + unsafe { tables.along.get(entry + i as u32) };
            }
        }
    }

    /// Of the pack's element `i`.
    #[inline(always)]
    fn of(&self, p: &Boxes, i: usize) -> u32 {
        if const { LEVELS == 1 } { self.at[0] + i as u32 * p.within[0].staged } else { self.at[i] }
    }

    /// The elements of a pack's half as far as they are among its elements `own`; the others are any of these. The first of `own` has
    /// entry `rest` of the table.
    ///
    /// # Safety
    /// As [`Self::go`]; places are counted from word `staged` on, and the run has those elements.
    #[inline(always)]
    unsafe fn half<F: Form>(
        p: &Boxes,
        tables: &Tables,
        staged: u32,
        rest: u32,
        half: u32,
        own: &Range<u32>,
    ) -> [F::In; 16] {
        let mut held = [F::In::ZERO; 16];
        let first = half * const { 8 / F::BYTES as u32 };
        for i in 0..const { 8 / F::BYTES } {
            let entry = rest + (first + i as u32).max(own.start).min(own.end - 1) - own.start;
            // SAFETY: the caller's contract; the table goes on for a pack's elements.
            held[i] = unsafe {
                let along =
                    if const { LEVELS == 1 } { entry * p.within[0].staged } else { tables.along.get(entry) };
                F::In::staged(staged + along)
            };
        }
        held
    }
}
