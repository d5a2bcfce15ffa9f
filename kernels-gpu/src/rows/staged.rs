//! A thread's share of a row in shared memory, gone through there as often as need be.
//!
//! Three cuts, by the constant `PACKED`. 1: rows of whole aligned packs. 2: slices of such rows, and a row ahead of the one whose results
//! come. 0: rows that begin and end anywhere, of whose whole packs
//! the share is made, and of the loose elements in front of them and behind one at most: these come to registers, and those of the
//! next row while this one is computed. Rows of a block begin at the same place of a pack, so that a thread has the same columns of
//! every row. Either way a pack is copied, read and stored by one thread, and no thread waits for another.

use super::held::{ABSENT, splat};
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, given};
use cuda_std::async_copy;
use cuda_std::bits::{no_unroll, opaque, pinned};
use cuda_std::prelude::*;

/// Vectors that are kept: weight, bias and input bias.
const VECTORS: usize = 3;

/// A thread's share of the vectors.
#[derive(Clone, Copy)]
pub(super) struct Vectors<const PACKS: usize> {
    packs: [[Pack; PACKS]; VECTORS],
    /// At the column of the loose element.
    loose: [f32; VECTORS],
}

impl<const PACKS: usize> Vectors<PACKS> {
    /// The same, as the compilers do not know: what was made of the packs is not kept in registers.
    #[inline(always)]
    pub fn renewed(mut self) -> Self {
        for which in 0..VECTORS {
            for i in 0..PACKS {
                for word in 0..4 {
                    self.packs[which][i][word] = opaque(self.packs[which][i][word]);
                }
            }
        }
        self
    }
}

/// A thread's sums along the columns of its share.
#[derive(Clone, Copy)]
pub(super) struct ColumnSums<const PACKS: usize> {
    pub packs: [[[f32; 8]; PACKS]; 2],
    pub loose: [f32; 2],
}

impl<const PACKS: usize> ColumnSums<PACKS> {
    pub const ZERO: Self = ColumnSums { packs: [[[0.0; 8]; PACKS]; 2], loose: [0.0; 2] };
}

/// Whether the vectors stay in registers, which sums along columns may need more; else they are read again, from L1.
const fn keeps_vectors<T: Float>(packed: usize, sums: usize, packs: usize) -> bool {
    if sums == 0 {
        T::PER_PACK == 4 || packs <= 4
    } else {
        packed == 0 || packs * (sums * T::PER_PACK + 4) <= 64
    }
}

/// Whether a thread has registers for so many sums along the columns of so many packs.
pub const fn sums_fit(sums: usize, packs: usize, per_pack: usize) -> bool {
    sums * packs * per_pack <= 64 && packs * per_pack <= 32
}

/// Sums of columns of a thread that leave registers for the vectors and more.
const ROOM: usize = 32;

/// Whether so many packs leave room in registers.
pub const fn is_roomy(sums: usize, packs: usize, per_pack: usize) -> bool {
    sums * packs * per_pack <= ROOM
}

/// Whether blocks of clusters are made for so many packs: as many as leave room. Rows of fewer one block walks.
pub const fn sums_fit_clusters(sums: usize, packs: usize, per_pack: usize) -> bool {
    sums * packs * per_pack == ROOM
}

/// Whether a kernel takes a third input: not where sums leave no registers for it.
pub const fn takes_third(sums: usize, packs: usize, per_pack: usize) -> bool {
    !(sums * packs * per_pack == 64 && per_pack == 4)
}

/// How many classes of rows of so many columns there are that begin at the same place of a pack: every so many rows.
pub const fn classes(cols: u32, per_pack: u32) -> u32 {
    let step = cols & cols.wrapping_neg();
    if step == 0 || step >= per_pack { 1 } else { per_pack / step }
}

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
    p: &'a Params,
    /// The number of its first pack.
    pub lane: u32,
    /// Loose elements in front of a row's first pack.
    head: u32,
    /// Which packs there are: a bit for each.
    pub present: u32,
    /// The column of the loose element, from the number of columns on if there is none; of a slice where it ends.
    loose: u32,
    /// Elements of the share.
    count: u32,
    /// The thread's first pack of the ring.
    ring: Shared<T>,
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
    fn has_loose(&self) -> bool {
        self.loose < self.p.cols
    }

    /// Where pack `i` of an input is in the ring, for a row whose first is at `at`.
    #[inline(always)]
    fn slot(&self, at: u32, input: usize, i: usize) -> u32 {
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
        let mut vectors = Vectors { packs: [[[0; 4]; PACKS]; VECTORS], loose: [ABSENT[0], ABSENT[1], 0.0] };
        for which in 0..VECTORS {
            // SAFETY: the caller's contract.
            unsafe {
                if const { keeps_vectors::<T>(PACKED, Op::SUMS, PACKS) } {
                    for i in 0..PACKS {
                        vectors.packs[which][i] = self.vector::<Op>(operands, which, i);
                    }
                }
                if const { PACKED == 0 }
                    && has_vector::<T, Op>(which)
                    && self.is_vector_given(which)
                    && self.has_loose()
                {
                    vectors.loose[which] = vector_of(operands, which).get(self.loose as usize).to_f32();
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
    unsafe fn vector<Op: RowOp<T>>(&self, operands: &Operands<T>, which: usize, i: usize) -> Pack {
        if !has_vector::<T, Op>(which) {
            return [0; 4];
        }
        let (vector, absent) = (vector_of(operands, which), splat::<T>([ABSENT[0], ABSENT[1], 0.0][which]));
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
    fn wait(&self, i: usize) {
        wait_for_all_but(DEPTH - 1 - i - const { if PACKED == 2 { PACKS } else { 0 } });
    }
}

/// Whether an operation has vector number `which`: weight, bias, input bias.
#[inline(always)]
const fn has_vector<T: Float, Op: RowOp<T>>(which: usize) -> bool {
    if which < 2 { which < Op::VECTORS } else { Op::JOINS }
}

#[inline(always)]
fn vector_of<T: Float>(operands: &Operands<T>, which: usize) -> Global<T> {
    [operands.vectors[0], operands.vectors[1], operands.input_bias][which]
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

/// A share of one row.
#[derive(Clone, Copy)]
pub(super) struct Staged<
    'a,
    T,
    const PACKED: usize,
    const LANES: usize,
    const PACKS: usize,
    const DEPTH: usize,
> {
    pub share: Share<'a, T, PACKED, LANES, PACKS, DEPTH>,
    pub operands: &'a Operands<T>,
    /// The row's number; there is one.
    pub row: u32,
    /// Where its first pack is in the ring.
    pub at: u32,
    /// Its loose element.
    pub loose: [T; MAX_INPUTS],
    pub vectors: Vectors<PACKS>,
}

impl<T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize, const DEPTH: usize>
    Staged<'_, T, PACKED, LANES, PACKS, DEPTH>
{
    /// An element of the first input, if the share has any.
    ///
    /// # Safety
    /// Pack 0 has arrived.
    #[inline(always)]
    unsafe fn sample(&self) -> T {
        if const { PACKED == 0 } && !self.share.has_pack(0) {
            return self.loose[0];
        }
        // SAFETY: the caller's contract.
        unsafe { self.share.ring.get(self.share.slot(self.at, 0, 0)) }
    }

    /// The loose element as f32, with −0, which adds nothing, for inputs that are not there or were joined.
    #[inline(always)]
    fn loose<Op: RowOp<T>>(&self) -> [f32; MAX_INPUTS] {
        let mut of = [-0.0; MAX_INPUTS];
        for input in 0..if const { Op::JOINS } { 1 } else { Op::INPUTS } {
            of[input] = self.loose[input].to_f32();
        }
        of
    }

    /// Pack `i` of an input; of columns and inputs that are not there zeros, by a choice: a branch would keep the assembler from
    /// ordering what is around it.
    ///
    /// # Safety
    /// The pack has arrived.
    #[inline(always)]
    unsafe fn pack(&self, input: usize, i: usize) -> Pack {
        let is_given = self.share.is_given(input);
        let place = self.share.slot(self.at, if is_given { input } else { 0 }, i);
        // SAFETY: the caller's contract.
        let mut pack = unsafe { self.share.ring.get_pack(place) };
        for word in 0..4 {
            pack[word] = if is_given { pack[word] } else { 0 };
        }
        pack
    }

    /// Stores pack `i` of a result.
    ///
    /// # Safety
    /// `y` has the inputs' shape and is contiguous.
    #[inline(always)]
    unsafe fn put(&self, y: GlobalMut<T>, i: usize, pack: Pack) {
        let share = &self.share;
        let first = self.row as i64 * share.p.cols as i64 + share.column(0, 0) as i32 as i64;
        let at = (first + (i * LANES * T::PER_PACK) as i64) as usize;
        // SAFETY: the caller's contract.
        unsafe { y.set_pack_if(share.has_pack(i), at, pack) }
    }

    /// Stores the loose element of a result.
    ///
    /// # Safety
    /// As [`Staged::put`].
    #[inline(always)]
    unsafe fn put_loose(&self, y: GlobalMut<T>, value: T) {
        let at = self.row as i64 * self.share.p.cols as i64 + self.share.loose as i64;
        // SAFETY: the caller's contract.
        unsafe { y.set_if(self.share.has_loose(), at as usize, value) }
    }

    /// Joins the inputs, keeps that in the place of the first, and stores it as the result `joined`.
    ///
    /// # Safety
    /// The row's packs are being copied; `joined` is as [`Staged::put`] wants it.
    #[inline(always)]
    pub unsafe fn join<Op: RowOp<T>>(&mut self) {
        const { assert!(!Op::DROPS && (!Op::JOINS || Op::JOINED == 0 && Op::KEEPS_JOINED)) };
        // SAFETY: the caller's contract.
        unsafe {
            for i in 0..PACKS {
                self.share.wait(i);
                let (packs, mut joined) = ([self.pack(0, i), self.pack(1, i)], [0; 4]);
                for pair in 0..T::PER_PACK / 2 {
                    let of = packs.map(|pack| T::pair(pack, pair));
                    let bias = T::pair(self.vectors.packs[2][i], pair);
                    let join =
                        |half: usize| Op::join([of[0][half], of[1][half], 0.0], bias[half], |value| value);
                    T::set_pair(&mut joined, pair, [join(0), join(1)]);
                }
                self.share.ring.set_pack(self.share.slot(self.at, 0, i), joined);
                self.put(self.operands.joined, i, joined);
            }
            if const { PACKED == 0 } {
                let of = self.loose.map(T::to_f32);
                let joined = T::from_f32(Op::join(of, self.vectors.loose[2], |value| value));
                self.put_loose(self.operands.joined, joined);
                self.loose[0] = joined;
            }
        }
    }

    /// Stores the results, adds what the operation adds up along columns, and begins to copy to the places of the row what
    /// comes next, from row `row` + `step` on. Of the inputs the last `ABSENT` are not given.
    ///
    /// # Safety
    /// The row has arrived, and the thread needs it no more; y is as [`Staged::put`] wants it.
    #[inline(always)]
    pub unsafe fn results<Op: RowOp<T>, const ABSENT: usize>(
        &self,
        known: Op::Row,
        total: Op::Total,
        sums: &mut ColumnSums<PACKS>,
        step: u32,
    ) {
        for i in 0..PACKS {
            // SAFETY: the caller's contract.
            unsafe {
                let (packs, mut results) = (self.packs::<Op>(const { Op::INPUTS - ABSENT }, i), [0; 4]);
                let vectors = self.vectors_of::<Op>(i);
                for pair in 0..T::PER_PACK / 2 {
                    let (x, v) = pairs::<T>(packs, vectors, pair);
                    for half in 0..const { if Op::SUMS > 0 { 2 } else { 0 } } {
                        let e = 2 * pair + half;
                        let so_far = [sums.packs[0][i][e], sums.packs[1][i][e]];
                        let added = Op::add_to_columns(known, so_far, x[half]);
                        for which in 0..Op::SUMS {
                            // Here, not all of them in the end, which would keep what they come of.
                            sums.packs[which][i][e] = f32::from_bits(pinned(added[which].to_bits()));
                        }
                    }
                    let of = [Op::result(total, x[0], v[0]), Op::result(total, x[1], v[1])];
                    T::set_pair(&mut results, pair, of);
                }
                self.put(self.operands.y, i, results);
                let next = self.row + step * const { (DEPTH / PACKS) as u32 };
                let (next, ahead) = match const { DEPTH % PACKS } {
                    0 => (next, i),
                    extra if i + extra < PACKS => (next, i + extra),
                    extra => (next + step, i + extra - PACKS),
                };
                self.share.fetch::<Op, ABSENT>(self.operands, next, ahead, self.share.slot(self.at, 0, i));
            }
        }
        if const { PACKED == 0 } {
            let x = self.loose::<Op>();
            let [weight, bias, _] = self.vectors.loose;
            if const { Op::SUMS > 0 } {
                sums.loose = Op::add_to_columns(known, sums.loose, x);
            }
            // SAFETY: the caller's contract.
            unsafe { self.put_loose(self.operands.y, T::from_f32(Op::result(total, x, [weight, bias]))) };
        }
    }

    /// Pack `i` of the first `inputs` inputs.
    ///
    /// # Safety
    /// As [`Staged::pack`].
    #[inline(always)]
    unsafe fn packs<Op: RowOp<T>>(&self, inputs: usize, i: usize) -> [Pack; MAX_INPUTS] {
        // −0 adds nothing.
        let mut packs = [[splat::<T>(-0.0); 4]; MAX_INPUTS];
        // What was joined is one.
        for input in 0..if const { Op::JOINS } { 1 } else { inputs } {
            // SAFETY: the caller's contract.
            packs[input] = unsafe { self.pack(input, i) };
        }
        packs
    }

    /// Weight and bias at pack `i`.
    ///
    /// # Safety
    /// As [`Share::vectors`].
    #[inline(always)]
    unsafe fn vectors_of<Op: RowOp<T>>(&self, i: usize) -> [Pack; 2] {
        let mut vectors = [self.vectors.packs[0][i], self.vectors.packs[1][i]];
        if const { !keeps_vectors::<T>(PACKED, Op::SUMS, PACKS) } {
            for which in 0..2 {
                // SAFETY: the caller's contract.
                vectors[which] = unsafe { self.share.vector::<Op>(self.operands, which, i) };
            }
        }
        vectors
    }
}

/// The inputs and vectors at elements 2·`pair` and 2·`pair` + 1 of a pack.
#[inline(always)]
fn pairs<T: Float>(
    packs: [Pack; MAX_INPUTS],
    vectors: [Pack; 2],
    pair: usize,
) -> ([[f32; MAX_INPUTS]; 2], [[f32; 2]; 2]) {
    let (mut x, mut v) = ([[0.0; MAX_INPUTS]; 2], [[0.0; 2]; 2]);
    for input in 0..MAX_INPUTS {
        let of = T::pair(packs[input], pair);
        (x[0][input], x[1][input]) = (of[0], of[1]);
    }
    for vector in 0..2 {
        let of = T::pair(vectors[vector], pair);
        (v[0][vector], v[1][vector]) = (of[0], of[1]);
    }
    (x, v)
}

/// [`Elements`] for an operation, which says what inputs it looks at.
pub(super) struct Of<
    'a,
    'b,
    T,
    Op,
    const PACKED: usize,
    const LANES: usize,
    const PACKS: usize,
    const DEPTH: usize,
>(pub &'a Staged<'b, T, PACKED, LANES, PACKS, DEPTH>, pub core::marker::PhantomData<Op>);

impl<T: Float, Op: RowOp<T>, const PACKED: usize, const LANES: usize, const PACKS: usize, const DEPTH: usize>
    Elements for Of<'_, '_, T, Op, PACKED, LANES, PACKS, DEPTH>
{
    #[inline(always)]
    fn count(&self) -> f32 {
        self.0.share.count as f32
    }

    #[inline(always)]
    fn sample(&self) -> f32 {
        self.0.share.wait(0);
        // SAFETY: pack 0 has arrived.
        unsafe { self.0.sample().to_f32() }
    }

    #[inline(always)]
    fn sums<const K: usize>(
        &self,
        pass: usize,
        add: impl Fn([f32; K], [f32; MAX_INPUTS], [f32; 2]) -> [f32; K],
    ) -> [f32; K] {
        let share = &self.0.share;
        let mut total = [0.0; K];
        for i in 0..PACKS {
            // SAFETY: the row's packs are being copied; this one has arrived.
            let (packs, vectors) = unsafe {
                if pass == 0 && !Op::JOINS {
                    share.wait(i);
                }
                (self.0.packs::<Op>(Op::STATISTIC_INPUTS, i), self.0.vectors_of::<Op>(i))
            };
            let part = of_pack::<T, K>(packs, vectors, &add);
            let when = const { Op::IGNORES_ZEROS } || share.has_pack(i);
            for k in 0..K {
                total[k] += if when { part[k] } else { 0.0 };
            }
        }
        if const { PACKED == 0 } {
            let [weight, bias, _] = self.0.vectors.loose;
            let with = add(total, self.0.loose::<Op>(), [weight, bias]);
            let when = const { Op::IGNORES_ZEROS } || share.has_loose();
            for k in 0..K {
                total[k] = if when { with[k] } else { total[k] };
            }
        }
        total
    }
}

/// Sums over the elements of a pack.
#[inline(always)]
fn of_pack<T: Float, const K: usize>(
    packs: [Pack; MAX_INPUTS],
    vectors: [Pack; 2],
    add: &impl Fn([f32; K], [f32; MAX_INPUTS], [f32; 2]) -> [f32; K],
) -> [f32; K] {
    // Two sums at once, so that an addition need not wait for the last. −0 + x is x, which 0 + x is not.
    let mut sums = [[-0.0; K]; 2];
    for pair in 0..T::PER_PACK / 2 {
        let (x, v) = pairs::<T>(packs, vectors, pair);
        sums[0] = add(sums[0], x[0], v[0]);
        sums[1] = add(sums[1], x[1], v[1]);
    }
    let mut both = [0.0; K];
    for k in 0..K {
        both[k] = sums[0][k] + sums[1][k];
    }
    both
}
