//! A thread's share of a row in shared memory, gone through there as often as need be.
//!
//! Three cuts, by the constant `PACKED`. 1: rows of whole aligned packs. 2: slices of such rows, and a row ahead of the one whose results
//! come. 0: rows that begin and end anywhere, of whose whole packs
//! the share is made, and of the loose elements in front of them and behind one at most: these come to registers, and those of the
//! next row while this one is computed. Rows of a block begin at the same place of a pack, so that a thread has the same columns of
//! every row. Either way a pack is copied, read and stored by one thread, and no thread waits for another.

use super::columns::{VECTORS, Vectors, keeps_vectors};
use super::held::{ABSENT, splat};
use super::{MAX_INPUTS, Operands, Params, RowOp, given};
use cuda_std::async_copy;
use cuda_std::bits::no_unroll;
use cuda_std::prelude::*;

/// What a thread does with any row of its block: its place among the `LANES` threads of a row, `PACKS` packs of columns, and
/// room for `DEPTH` packs of each input, a ring.
#[derive(Clone, Copy)]
pub(super) struct Share<
    'a,
    T,
    const PACKED: usize,
    const LANES: usize,
    const PACKS: usize,
    const DEPTH: usize,
> {
    pub p: &'a Params,
    /// The number of its first pack.
    pub lane: u32,
    /// Loose elements in front of a row's first pack.
    head: u32,
    /// Which packs there are: a bit for each.
    pub present: u32,
    /// The column of the loose element, from the number of columns on if there is none; of a slice where it ends.
    pub loose: u32,
    /// Elements of the share.
    pub count: u32,
    /// The thread's first pack of the ring.
    pub ring: Shared<T>,
}

impl<'a, T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize, const DEPTH: usize>
    Share<'a, T, PACKED, LANES, PACKS, DEPTH>
{
    /// Elements of the ring from pack to pack of a thread.
    const STEP: u32 = (LANES * T::PER_PACK) as u32;
    /// And from input to input.
    const OF_INPUT: u32 = DEPTH as u32 * Self::STEP;

    /// The share, from pack `lane` on, of rows that begin `phase` elements behind a multiple of 16 bytes and end at column `end`.
    #[inline(always)]
    pub fn new(p: &'a Params, lane: u32, end: u32, phase: u32, ring: Shared<T>) -> Self {
        const { assert!(PACKED > 0 || LANES >= 2 * (T::PER_PACK - 1), "one loose element a thread") };
        let per_pack = T::PER_PACK as u32;
        let head = if const { PACKED > 0 } { 0 } else { per_pack.wrapping_sub(phase) & (per_pack - 1) };
        let packs = p.cols.wrapping_sub(head) / per_pack;
        let mut share = Share { p, lane, head, present: 0, loose: end, count: 0, ring };
        for i in 0..PACKS {
            let is_present = if const { PACKED > 0 } {
                (share.column(i, 0) as i32) < end as i32
            } else {
                lane + ((i * LANES) as u32) < packs
            };
            if is_present {
                share.present |= 1 << i;
                share.count += per_pack;
            }
        }
        if const { PACKED == 0 } {
            share.loose = if lane < head { lane } else { lane + packs * per_pack };
            share.count += share.has_loose() as u32;
        }
        share
    }

    /// Whether input number `input` is there: the third may be absent.
    #[inline(always)]
    pub fn is_given(&self, input: usize) -> bool {
        input < 2 || self.p.given & given::THIRD != 0
    }

    /// The column of an element of pack `i`.
    #[inline(always)]
    pub fn column(&self, i: usize, element: usize) -> u32 {
        let first = self.lane * T::PER_PACK as u32 + (i as u32 * Self::STEP + element as u32);
        if const { PACKED > 0 } { first } else { first + self.head }
    }

    /// Whether there is pack `i`.
    #[inline(always)]
    pub fn has_pack(&self, i: usize) -> bool {
        self.present & (1 << i) != 0
    }

    /// Where the columns end, of rows of whole packs.
    #[inline(always)]
    fn end(&self) -> u32 {
        if const { PACKED == 2 } { self.loose } else { self.p.cols }
    }

    /// Whether there is a loose element.
    #[inline(always)]
    pub fn has_loose(&self) -> bool {
        self.loose < self.p.cols
    }

    /// Where pack `i` of an input is in the ring, for a row whose first is at `at`.
    #[inline(always)]
    pub fn slot(&self, at: u32, input: usize, i: usize) -> u32 {
        let mut place = at + i as u32 * Self::STEP;
        if const { !DEPTH.is_multiple_of(PACKS) } && place >= Self::OF_INPUT {
            place -= Self::OF_INPUT;
        }
        place + input as u32 * Self::OF_INPUT
    }

    /// Where the next row's first pack is, after a row whose first is at `at`.
    #[inline(always)]
    pub fn next_place(&self, at: u32) -> u32 {
        if const { DEPTH == PACKS } {
            return at;
        }
        let next = at + PACKS as u32 * Self::STEP;
        if next >= Self::OF_INPUT { next - Self::OF_INPUT } else { next }
    }

    /// The vectors' elements at the share's columns; zeros for packs that are not kept.
    ///
    /// # Safety
    /// The operands match `p`; for rows of packs the vectors are aligned.
    #[inline(always)]
    pub unsafe fn vectors<Op: RowOp<T>>(&self, operands: &Operands<T>) -> Vectors<PACKS> {
        let mut vectors = Vectors { packs: [[[0; 4]; PACKS]; VECTORS], loose: ABSENT };
        for which in 0..VECTORS {
            // SAFETY: the caller's contract.
            unsafe {
                if const { keeps_vectors::<T>(PACKED, Op::SUMS, PACKS) } {
                    for i in 0..PACKS {
                        vectors.packs[which][i] = self.vector::<Op>(operands, which, i);
                    }
                }
                if const { PACKED == 0 }
                    && which < Op::VECTORS
                    && self.is_vector_given(which)
                    && self.has_loose()
                {
                    vectors.loose[which] = operands.vectors[which].get(self.loose as usize).to_f32();
                }
            }
        }
        vectors
    }

    /// Whether vector number `which` is there.
    #[inline(always)]
    fn is_vector_given(&self, which: usize) -> bool {
        self.p.given & (given::WEIGHT << which) != 0
    }

    /// Pack `i` of vector number `which`; zeros where the operation has none.
    ///
    /// # Safety
    /// As [`Share::vectors`].
    #[inline(always)]
    pub unsafe fn vector<Op: RowOp<T>>(&self, operands: &Operands<T>, which: usize, i: usize) -> Pack {
        if which >= Op::VECTORS {
            return [0; 4];
        }
        let (vector, absent) = (operands.vectors[which], splat::<T>(ABSENT[which]));
        let (when, first) = (self.is_vector_given(which) & self.has_pack(i), self.column(i, 0) as usize);
        // SAFETY: a vector has an element for each column.
        unsafe {
            if const { PACKED > 0 } {
                vector.get_pack_plain_if(when, first, absent)
            } else if when {
                T::pack_from(|element| vector.get(first + element))
            } else {
                [absent; 4]
            }
        }
    }

    /// Fills with zeros what no copy ever fills and is read all the same: packs of columns that are not there.
    ///
    /// # Safety
    /// Nothing has been copied.
    #[inline(always)]
    pub unsafe fn clear<Op: RowOp<T>>(&self) {
        // A pack of the ring may be any of a row.
        let everywhere = const { !DEPTH.is_multiple_of(PACKS) };
        for slot in 0..DEPTH {
            for input in 0..Op::INPUTS {
                if self.is_given(input) && (everywhere || !self.has_pack(slot % PACKS)) {
                    let at = slot as u32 * Self::STEP + input as u32 * Self::OF_INPUT;
                    // SAFETY: the thread's own packs.
                    unsafe { self.ring.set_pack(at, [0; 4]) };
                }
            }
        }
    }

    /// Begins to copy pack `i` of a row to the place `to` of the ring, if there is such a row, and closes the group. The last
    /// `ABSENT` inputs are not given.
    ///
    /// # Safety
    /// The operands match `p` and the cut; the thread reads and writes the place only after the copy has been waited for.
    #[inline(always)]
    pub unsafe fn fetch<Op: RowOp<T>, const ABSENT: usize>(
        &self,
        operands: &Operands<T>,
        row: u32,
        i: usize,
        to: u32,
    ) {
        let is_there = row < self.p.rows;
        for input in 0..const { Op::INPUTS - ABSENT } {
            let first = row as i64 * self.p.dims[0].inputs[input] + self.column(0, 0) as i32 as i64;
            // A 64-bit sum with a constant, which the copy's address takes.
            let from = (first + (i * LANES * T::PER_PACK) as i64) as usize;
            let (to, when) = (to + input as u32 * Self::OF_INPUT, is_there & self.is_given(input));
            // SAFETY: what is not there is not copied.
            unsafe {
                self.ring.copy_pack_async_if(to, operands.inputs[input], from, when & self.has_pack(i))
            };
        }
        async_copy::commit();
    }

    /// The loose element of a row in each input; zeros where there is none.
    ///
    /// # Safety
    /// As [`Share::fetch`].
    #[inline(always)]
    pub unsafe fn loose<Op: RowOp<T>>(&self, operands: &Operands<T>, row: u32) -> [T; MAX_INPUTS] {
        let mut loose = [T::from_bits(0); MAX_INPUTS];
        if const { PACKED == 0 } {
            let when = (row < self.p.rows) & self.has_loose();
            for input in 0..Op::INPUTS {
                let at = row as i64 * self.p.dims[0].inputs[input] + self.loose as i64;
                if when && self.is_given(input) {
                    // SAFETY: the row has the element.
                    loose[input] = unsafe { operands.inputs[input].get(at as usize) };
                }
            }
        }
        loose
    }

    /// Adds up the sums along columns of the rows side by side, in their order, and writes them to a row of f32.
    ///
    /// # Safety
    /// All threads of the block call, and none reads the ring any more; `row` has an element for each column.
    #[inline(always)]
    pub unsafe fn write(&self, row: GlobalMut<f32>, mut sums: [[f32; 8]; PACKS], mut loose: f32) {
        let is_first = thread::thread_idx_x() < LANES as u32;
        // SAFETY: each thread has its own elements; those of the first row side by side write theirs.
        unsafe {
            if const { LANES <= 32 } {
                thread::sync_threads();
                for i in 0..PACKS {
                    for e in 0..T::PER_PACK {
                        sums[i][e] = self.over_rows((i * T::PER_PACK + e) as u32, sums[i][e]);
                    }
                }
                if const { PACKED == 0 } {
                    loose = self.over_rows((PACKS * T::PER_PACK) as u32, loose);
                }
            }
            for i in 0..PACKS {
                if const { PACKED > 0 } {
                    // Not by `present`: predicates would be kept from before the loop.
                    let when = is_first & (self.column(i, 0) < self.end());
                    for four in 0..T::PER_PACK / 4 {
                        let mut pack = [0; 4];
                        for e in 0..4 {
                            pack[e] = sums[i][4 * four + e].to_bits();
                        }
                        row.set_pack_if(when, self.column(i, 0) as usize + 4 * four, pack);
                    }
                } else {
                    for e in 0..T::PER_PACK {
                        let when = is_first & self.has_pack(i);
                        row.set_if(when, self.column(i, e) as usize, sums[i][e]);
                    }
                }
            }
            if const { PACKED == 0 } {
                row.set_if(is_first & self.has_loose(), self.loose as usize, loose);
            }
        }
    }

    /// Adds up a number of each of the rows side by side, through place `number` of a thread's numbers in shared memory.
    ///
    /// # Safety
    /// As [`Share::write`]. Two rows of two inputs are room for a pack's elements as f32, and for more.
    #[inline(always)]
    unsafe fn over_rows(&self, number: u32, mine: f32) -> f32 {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let mut total = 0.0;
        // SAFETY: the place is this number's alone.
        unsafe {
            let shared = Shared::<f32>::dynamic(number * threads * 4, threads);
            shared.set(thread, mine);
            thread::sync_threads();
            let mut other = self.lane;
            while other < threads {
                no_unroll();
                total += shared.get(other);
                other += LANES as u32;
            }
        }
        total
    }

    /// Waits for pack `i` of the row whose turn it is.
    #[inline(always)]
    pub fn wait(&self, i: usize) {
        wait_for_all_but(DEPTH - 1 - i - const { if PACKED == 2 { PACKS } else { 0 } });
    }
}

/// Waits until at most so many of the thread's groups are under way.
#[inline(always)]
fn wait_for_all_but(groups: usize) {
    macro_rules! arms {
        ($($n:literal)*) => {
            match groups {
                $($n => async_copy::wait::<$n>(),)*
                _ => async_copy::wait::<0>(),
            }
        };
    }
    arms!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23);
}
