//! Rows spread over many blocks that stay: read once, written once, whatever their length.
//!
//! A group of blocks takes every so many rows, and each of its blocks the same slice of all of them. A row waits in shared memory while
//! the blocks agree about it through device memory, and meanwhile the next ones come and the ones before leave: unlike a
//! cluster's, whose blocks hold one row and then the next, the memory has loads and stores to do at any time.
//!
//! What a slice comes to is one word, a maximum and a sum, so it needs neither flag nor fence: words are 0 before, which no
//! slice comes to: in the sum beside a maximum of 0 is that score's own exponential.

use super::bit_masks::WarpBits;
use super::held::{Held, Normaliser, column, finite_or_zero};
use super::locate::{Row, locate, whole_columns};
use super::nan_row::store_nan_row;
use super::packed_scores::Packed;
use super::register_rows::{Partial, store_packs};
use super::{Operands, Params, mask_kind};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;
use cuda_std::{async_copy, bits};

/// Places of rows that are kept, a power of two: of those on their way, those that are waited for, and three more, of the row that is
/// gone through and the two that are located ahead.
const PLACES: u32 = 8;

/// Rows that a warp knows the base of.
const BASES: usize = 3;

/// Rows in slices of at most `p.slice` packs, `PACKS` of a thread. While a row is gone through, `AHEAD` are on their way,
/// and it is finished `BEHIND` turns later. Masks are of bits.
///
/// # Safety
/// As [`row()`](fn@super::row), of which rows may be ragged; launched cooperatively, the grid has `x` blocks a row, `LANES` at most and as
/// many as slices cover it, and `y` groups of these. A block has 16·`LANES` bytes of dynamic shared memory for each of a thread's packs of a
/// slice, `AHEAD + BEHIND + 1` times. `partials` are zeros, one for each block of each row.
#[kernel(
    family = "masked_softmax_hopper",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [
        { LANES: 512, PACKS: 4, AHEAD: 3, BEHIND: 2; threads: 512, min_blocks: 1 },
        { LANES: 512, PACKS: 8, AHEAD: 1, BEHIND: 1; threads: 512, min_blocks: 1 },
    ],
)]
pub unsafe fn spread_row<
    T: Float,
    const LANES: usize,
    const PACKS: usize,
    const AHEAD: usize,
    const BEHIND: usize,
>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    partials: GlobalMut<u64>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    const { assert!(AHEAD + BEHIND + 3 <= PLACES as usize && BEHIND >= 1 && BEHIND < BASES) };
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    let (blocks, rank) = (thread::grid_dim_x(), thread::block_idx_x());
    let (groups, group) = (thread::grid_dim_y(), thread::block_idx_y());
    let (thread, warp, lane) = (thread::thread_idx_x(), warp::warp_id(), warp::lane_id());
    let slices = Slices::<T, LANES, PACKS>::of(&operands, &p, rank);
    // One word for each block of a row: a thread for each, and these are whole warps.
    let asks = warp * warp::SIZE < blocks;
    // SAFETY: the caller's contract. Between two barriers each thread touches its own packs, and words and places of a turn that no
    // other warp is at.
    unsafe {
        let own = shared_array!(spread_row_own: [u64; 64]);
        let others = shared_array!(spread_row_others: [u64; 64]);
        let locates = warp == const { LANES as u32 / warp::SIZE - 1 };
        if locates {
            let mut turn = 0;
            while turn < const { AHEAD as u32 + 2 } {
                bits::no_unroll();
                slices.keep_place(turn, group + turn * groups);
                turn += 1;
            }
        }
        thread::sync_threads();
        let mut slot = Slot::<AHEAD, BEHIND>::FIRST;
        let mut turn = 0;
        while turn < const { AHEAD as u32 } {
            bits::no_unroll();
            slices.copy(turn, turn);
            turn += 1;
        }
        let mut masks = slices.ask_masks(0);
        // What the exponentials of this warp are relative to, of this row and of those before it.
        let mut bases = [0.0; BASES];
        // Numbers of the rows that are gone through and finished, of which there may be none yet or no more.
        let (mut now, mut then) = (group as i64, group as i64 - (BEHIND as u32 * groups) as i64);
        turn = 0;
        while then < p.rows as i64 {
            bits::no_unroll();
            let (has_now, has_then) = (now < p.rows as i64, then >= 0);
            let parity = 32 * (turn & 1);
            // Asked for early, the words are here when they are needed.
            let word = (then * blocks as i64 + thread as i64) as usize;
            let is_asked = has_then && asks && thread < blocks;
            let mut seen = 1;
            if is_asked {
                seen = partials.atomic_load(word, Ordering::Relaxed, Scope::Device);
            }
            let mut base = 0.0;
            if has_now {
                slices.copy(turn + AHEAD as u32, slot.ahead);
                wait::<AHEAD>();
                let part = slices.exponentiate(turn, slot.now, masks);
                base = finite_or_zero(part.maximum);
                if lane == 0 {
                    own.set(parity + warp, part.word());
                }
            }
            bases = [base, bases[0], bases[1]];
            if has_then && asks {
                while is_asked && seen == 0 {
                    bits::no_unroll();
                    thread::spin_wait();
                    seen = partials.atomic_load(word, Ordering::Relaxed, Scope::Device);
                }
                warp::sync_warp(u32::MAX);
                let part = if is_asked { Partial::of_word(seen) } else { Partial::EMPTY };
                let part = part.over_warp(&p);
                if lane == 0 {
                    others.set(parity + warp, part.word());
                }
            }
            thread::sync_threads();
            // Known anew: the compiler would give turns without a row that is gone through a barrier of their own, for some warps.
            let has_now = bits::opaque(u32::from(has_now)) != 0;
            if has_now {
                if warp == 0 {
                    let mut part = Partial::EMPTY;
                    if lane < const { LANES as u32 / warp::SIZE } {
                        part = Partial::of_word(own.get(parity + lane));
                    }
                    let part = part.over_warp(&p);
                    if lane == 0 {
                        let word = (now * blocks as i64 + rank as i64) as usize;
                        partials.atomic_store(word, part.word(), Ordering::Relaxed, Scope::Device);
                    }
                }
                masks = slices.ask_masks(turn + 1);
                // For the turn after next, with a barrier in between.
                if locates {
                    let next = turn + const { AHEAD as u32 + 2 };
                    slices.keep_place(next, group + next * groups);
                }
            }
            if has_then {
                let mut part = Partial::EMPTY;
                if lane * warp::SIZE < blocks {
                    part = Partial::of_word(others.get(parity + lane));
                }
                let total = part.over_warp(&p);
                if total.sum.is_nan() {
                    let (row, first) = (locate(&operands, &p, then as u32), rank * LANES as u32 + thread);
                    store_nan_row(y, &operands, &p, &row, first, blocks * LANES as u32, true);
                } else {
                    let (kept, all) = (bases[const { BEHIND }], finite_or_zero(total.maximum));
                    let end = Normaliser::new(p.exponent, kept, all, total.sum);
                    slices.store(turn.wrapping_sub(const { BEHIND as u32 }), slot.then, &end);
                }
            }
            slot = slot.next();
            now += groups as i64;
            then += groups as i64;
            turn += 1;
        }
    }
}

/// Waits for all copies but the last `AHEAD` rows'.
#[inline(always)]
fn wait<const AHEAD: usize>() {
    const { assert!(AHEAD == 1 || AHEAD == 3) };
    if const { AHEAD == 1 } {
        async_copy::wait::<1>();
    } else {
        async_copy::wait::<3>();
    }
}

/// Where in shared memory the rows of a turn are, in slices.
#[derive(Clone, Copy)]
struct Slot<const AHEAD: usize, const BEHIND: usize> {
    ahead: u32,
    now: u32,
    then: u32,
}

impl<const AHEAD: usize, const BEHIND: usize> Slot<AHEAD, BEHIND> {
    const ALL: u32 = (AHEAD + BEHIND + 1) as u32;
    /// Of the first turn: what is behind it is in front of it, once around.
    const FIRST: Self = Slot { ahead: AHEAD as u32, now: 0, then: AHEAD as u32 + 1 };

    #[inline(always)]
    fn next(self) -> Self {
        let after = |slot: u32| if slot + 1 == Self::ALL { 0 } else { slot + 1 };
        Slot { ahead: after(self.ahead), now: after(self.now), then: after(self.then) }
    }
}

/// A block's slices of its rows.
struct Slices<'a, T, const LANES: usize, const PACKS: usize> {
    operands: &'a Operands<T>,
    p: &'a Params,
    /// First pack of a row that is the block's.
    begin: u32,
    /// That is the thread's.
    first: u32,
    /// Packs of a slot: whole rounds of all threads.
    slot: u32,
}

impl<'a, T: Float, const LANES: usize, const PACKS: usize> Slices<'a, T, LANES, PACKS> {
    /// Those of block `rank` of a row.
    #[inline(always)]
    fn of(operands: &'a Operands<T>, p: &'a Params, rank: u32) -> Self {
        let begin = rank * p.slice;
        let slot = p.slice.div_ceil(LANES as u32) * LANES as u32;
        Slices { operands, p, begin, first: begin + thread::thread_idx_x(), slot }
    }

    /// Locates the slice of row `number`, which need not be there, and keeps it for its turn.
    ///
    /// # Safety
    /// The operands match, and one warp calls, which no other one's reading of the place meets.
    #[inline(always)]
    unsafe fn keep_place(&self, turn: u32, number: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            let mut row = Row::NONE;
            if number < self.p.rows {
                row = locate(self.operands, self.p, number).slice::<T>(self.begin, self.p.slice);
            }
            if warp::lane_id() == 0 {
                row.keep(places(), 12 * (turn % PLACES));
            }
        }
    }

    /// The slice of a turn's row.
    ///
    /// # Safety
    /// It has been kept, with a barrier in between.
    #[inline(always)]
    unsafe fn place(&self, turn: u32) -> Row {
        // SAFETY: the caller's contract.
        unsafe { Row::kept(places(), 12 * (turn % PLACES)) }
    }

    /// The thread's pack `i` of a slot.
    ///
    /// # Safety
    /// The launch has the slot.
    #[inline(always)]
    unsafe fn at(&self, slot: u32, i: usize) -> (Shared<T>, u32) {
        let pack = slot * self.slot + thread::thread_idx_x() + (LANES * i) as u32;
        // SAFETY: the caller's contract.
        (
            unsafe { Shared::dynamic(0, (slot + 1) * self.slot * T::PER_PACK as u32) },
            pack * T::PER_PACK as u32,
        )
    }

    /// Begins to copy what a turn's row has of kept columns into a slot.
    ///
    /// # Safety
    /// As [`Self::place`] and [`Self::at`]; nothing else touches the thread's packs of the slot.
    #[inline(always)]
    unsafe fn copy(&self, turn: u32, slot: u32) {
        // SAFETY: the caller's contract; packs with kept columns are inside x, the last perhaps in part.
        unsafe {
            let row = self.place(turn);
            let whole = if self.p.ragged != 0 { whole_columns::<T>(self.p.x_len, row.x) } else { i32::MAX };
            for i in 0..PACKS {
                let column = column::<T, LANES>(self.first, i);
                let (slots, to) = self.at(slot, i);
                let (when, from) = (row.keeps_some::<T>(column), (row.x + column as i64) as usize);
                slots.copy_pack_async_if(to, self.operands.x, from, when && column < whole);
                if when && column >= whole {
                    let count = (self.p.x_len - row.x) as i32 - whole;
                    slots.copy_pack_async(to, self.operands.x, from, count as u32);
                }
            }
            async_copy::commit();
        }
    }

    /// Asks for the masks of a turn's row.
    ///
    /// # Safety
    /// As [`Self::place`]; the operands match.
    #[inline(always)]
    unsafe fn ask_masks(&self, turn: u32) -> WarpBits {
        if self.p.mask_kind != mask_kind::BITS {
            return WarpBits::NONE;
        }
        // SAFETY: the caller's contract.
        unsafe {
            let row = self.place(turn);
            WarpBits::ask::<T, LANES, PACKS>(self.operands.mask, &row, self.first)
        }
    }

    /// What the thread's warp has of a turn's row, with `otherwise` in packs without kept columns.
    ///
    /// # Safety
    /// As [`Self::place`]; the slot has the row.
    #[inline(always)]
    unsafe fn load(&self, row: &Row, slot: u32, otherwise: u32) -> [Pack; PACKS] {
        let mut packs = [[otherwise; 4]; PACKS];
        for i in 0..PACKS {
            if row.keeps_some::<T>(column::<T, LANES>(self.first, i)) {
                // SAFETY: the caller's contract.
                packs[i] = unsafe {
                    let (slots, at) = self.at(slot, i);
                    slots.get_pack(at)
                };
            }
        }
        packs
    }

    /// Goes through a turn's row, which has come: what it comes to in the thread's warp. Leaves exponentials of f32, and masked scores of
    /// 16 bits.
    ///
    /// # Safety
    /// As [`Self::load`].
    #[inline(always)]
    unsafe fn exponentiate(&self, turn: u32, slot: u32, masks: WarpBits) -> Partial {
        let (p, first) = (self.p, self.first);
        // SAFETY: the caller's contract.
        unsafe {
            let row = self.place(turn);
            let x = self.load(&row, slot, T::NEG_INFINITY_WORD ^ p.flip);
            let masks =
                if p.mask_kind == mask_kind::BITS { masks.of_packs::<T, PACKS>() } else { [[0; 2]; PACKS] };
            let mut held = <Packed<true> as Held<T>>::prepare::<LANES, PACKS>(x, masks, p, &row, first);
            let part = Partial::of_held::<T, Packed<true>, LANES, PACKS>(&mut held, p, &row, first);
            for i in 0..PACKS {
                if row.keeps_some::<T>(column::<T, LANES>(first, i)) {
                    let (slots, at) = self.at(slot, i);
                    slots.set_pack(at, held[i].0);
                }
            }
            part
        }
    }

    /// Writes the results of a turn's row.
    ///
    /// # Safety
    /// As [`Self::load`], after [`Self::exponentiate`].
    #[inline(always)]
    unsafe fn store(&self, turn: u32, slot: u32, end: &Normaliser) {
        let nothing = if const { T::PER_WORD == 1 } { 0 } else { T::NEG_INFINITY_WORD };
        // SAFETY: the caller's contract.
        unsafe {
            let row = self.place(turn);
            let packs = self.load(&row, slot, nothing);
            let mut held = [<Packed<true> as Held<T>>::EMPTY; PACKS];
            for i in 0..PACKS {
                held[i] = Packed(packs[i]);
            }
            let y = self.operands.y;
            store_packs::<T, Packed<true>, _, LANES, PACKS>(y, self.p, &row, self.first, held, end);
        }
    }
}

/// Rows' places, 12 words each.
#[inline(always)]
fn places() -> Shared<u32> {
    // SAFETY: an array for places alone.
    unsafe { shared_array!(spread_row_places: [u32; 96]) }
}
const _: () = assert!(PLACES == 96 / 12);
