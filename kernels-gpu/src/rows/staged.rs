//! A thread's share of a row in shared memory, gone through there as often as need be.
//!
//! Two cuts, by the constant `PACKED`. 1: rows of whole aligned packs. 0: rows that begin and end anywhere, copied as the aligned
//! packs that *cover* them: of the first and last one, the edges, elements may be its neighbours', in whose place come numbers that
//! add nothing to the statistic. Rows of a block begin at the same place of a pack, so that a thread has the same columns of every
//! row. Either way a pack is copied, read and stored
//! by one thread, and no thread waits for another.

use super::held::{ABSENT, splat};
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, given};
use cuda_std::async_copy;
use cuda_std::bits::pinned;
use cuda_std::prelude::*;

/// Vectors that are kept: weight, bias and input bias.
const VECTORS: usize = 3;

/// A thread's share of the vectors.
pub(super) type Vectors<const PACKS: usize> = [[Pack; PACKS]; VECTORS];

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
    pub lane: u32,
    /// Elements of the first pack that lie in front of a row.
    lead: u32,
    /// Which packs are the row's as a whole: a bit for each.
    pub whole: u32,
    /// Which are so in part.
    edges: u32,
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

    #[inline(always)]
    pub fn new(p: &'a Params, lane: u32, lead: u32, ring: Shared<T>) -> Self {
        let mut share = Share { p, lane, lead, whole: 0, edges: 0, count: 0, ring };
        for i in 0..PACKS {
            if (share.column(i, 0) as i32) < p.cols as i32 {
                let (low, high) = share.bounds(i);
                let is_whole = high - low == T::PER_PACK as u32;
                *(if is_whole { &mut share.whole } else { &mut share.edges }) |= 1 << i;
                share.count += high - low;
            }
        }
        share
    }

    /// Whether input number `input` is there: the third may be absent.
    #[inline(always)]
    pub fn is_given(&self, input: usize) -> bool {
        input < 2 || self.p.given & given::THIRD != 0
    }

    /// The column of an element of pack `i`, modulo 2^32 for those in front of the row.
    #[inline(always)]
    pub fn column(&self, i: usize, element: usize) -> u32 {
        let first = self.lane * T::PER_PACK as u32 + (i as u32 * Self::STEP + element as u32);
        if const { PACKED == 1 } { first } else { first.wrapping_sub(self.lead) }
    }

    /// Elements `low..high` of pack `i` are the row's, if anything is.
    #[inline(always)]
    fn bounds(&self, i: usize) -> (u32, u32) {
        let per_pack = T::PER_PACK as u32;
        if const { PACKED == 1 } {
            return (0, per_pack);
        }
        let low = if i == 0 && self.lane == 0 { self.lead } else { 0 };
        (low, (self.p.cols.wrapping_sub(self.column(i, 0))).min(per_pack))
    }

    /// Whether all of pack `i` is the row's.
    #[inline(always)]
    fn is_whole(&self, i: usize) -> bool {
        self.whole & (1 << i) != 0
    }

    /// Whether a part of pack `i` is the row's.
    #[inline(always)]
    fn is_edge(&self, i: usize) -> bool {
        self.edges & if const { PACKED == 0 } { 1 << i } else { 0 } != 0
    }

    /// Whether anything of pack `i` is the row's.
    #[inline(always)]
    fn has_pack(&self, i: usize) -> bool {
        (self.whole | if const { PACKED == 0 } { self.edges } else { 0 }) & (1 << i) != 0
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

    /// The vectors' elements at the share's columns; zeros for those that are not kept.
    ///
    /// # Safety
    /// The operands match `p`; for rows of packs the vectors are aligned.
    #[inline(always)]
    pub unsafe fn vectors<Op: RowOp<T>>(&self, operands: &Operands<T>) -> Vectors<PACKS> {
        let mut vectors = [[[0; 4]; PACKS]; VECTORS];
        if const { keeps_vectors::<T>(PACKED, Op::SUMS, PACKS) } {
            for which in 0..VECTORS {
                for i in 0..PACKS {
                    // SAFETY: the caller's contract.
                    vectors[which][i] = unsafe { self.vector::<Op>(operands, which, i) };
                }
            }
        }
        vectors
    }

    /// Pack `i` of vector number `which`; zeros where the operation has none.
    ///
    /// # Safety
    /// As [`Share::vectors`].
    #[inline(always)]
    unsafe fn vector<Op: RowOp<T>>(&self, operands: &Operands<T>, which: usize, i: usize) -> Pack {
        let has = if which < 2 { which < Op::VECTORS } else { Op::JOINS };
        if !has {
            return [0; 4];
        }
        let [weight, bias] = operands.vectors;
        let (vector, absent) =
            ([weight, bias, operands.input_bias][which], [ABSENT[0], ABSENT[1], 0.0][which]);
        let is_given = self.p.given & (given::WEIGHT << which) != 0;
        // SAFETY: a vector has an element for each column.
        unsafe {
            if const { PACKED == 1 } {
                let when = is_given & self.has_pack(i);
                vector.get_pack_if(when, self.column(i, 0) as usize, splat::<T>(absent))
            } else {
                T::pack_from(|element| {
                    let column = self.column(i, element);
                    // Of columns that are not there nothing may come of zeros.
                    let otherwise = if which < 2 { absent } else { 0.0 };
                    let when = is_given & (column < self.p.cols);
                    if when { vector.get(column as usize) } else { T::from_f32(otherwise) }
                })
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
        // SAFETY: what is not there is not copied.
        unsafe {
            for input in 0..const { Op::INPUTS - ABSENT } {
                let first = row as i64 * self.p.dims[0].inputs[input] + self.column(0, 0) as i32 as i64;
                // A 64-bit sum with a constant, which the copy's address takes.
                let from = (first + (i * LANES * T::PER_PACK) as i64) as usize;
                let (to, when) = (to + input as u32 * Self::OF_INPUT, is_there & self.is_given(input));
                self.ring.copy_pack_async_if(to, operands.inputs[input], from, when & self.is_whole(i));
                if self.is_edge(i) && when {
                    // What is in front of the row may be in front of the operand.
                    let (low, high) = self.bounds(i);
                    self.ring.copy_part_async(to, operands.inputs[input].offset(from as i64), 0, low, high);
                }
            }
        }
        async_copy::commit();
    }

    /// Waits for pack `i` of the row whose turn it is.
    #[inline(always)]
    fn wait(&self, i: usize) {
        wait_for_all_but(DEPTH - 1 - i);
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
    pub vectors: Vectors<PACKS>,
}

impl<T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize, const DEPTH: usize>
    Staged<'_, T, PACKED, LANES, PACKS, DEPTH>
{
    /// Gives elements of pack `i` of an input that are not the row's, but share the pack with some that are, a value.
    ///
    /// # Safety
    /// The pack has arrived, and is one of these.
    #[inline(always)]
    unsafe fn fill(&self, input: usize, i: usize, value: T) {
        let (share, (low, high)) = (&self.share, self.share.bounds(i));
        for element in 0..T::PER_PACK as u32 {
            if element < low || element >= high {
                // SAFETY: the thread's own pack.
                unsafe { share.ring.set(share.slot(self.at, input, i) + element, value) };
            }
        }
    }

    /// Waits for pack `i`, and gives what is not the row's a value that adds nothing, or before joining 0.
    ///
    /// # Safety
    /// The row's packs are being copied.
    #[inline(always)]
    unsafe fn expect<Op: RowOp<T>>(&self, i: usize) {
        self.share.wait(i);
        if self.share.is_edge(i) {
            // SAFETY: it has arrived.
            unsafe {
                let zeros = const { Op::IGNORES_ZEROS || Op::JOINS };
                let value = if zeros { T::from_bits(0) } else { self.sample() };
                for input in 0..Op::INPUTS {
                    if self.share.is_given(input) {
                        self.fill(input, i, value);
                    }
                }
            }
        }
    }

    /// An element of the first input that is the row's, if the share has any.
    ///
    /// # Safety
    /// Pack 0 has arrived.
    #[inline(always)]
    unsafe fn sample(&self) -> T {
        // SAFETY: the caller's contract.
        unsafe { self.share.ring.get(self.share.slot(self.at, 0, 0) + self.share.bounds(0).0) }
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
        unsafe {
            y.set_pack_if(share.is_whole(i), at, pack);
            if share.is_edge(i) {
                // By words, as far as these are the row's.
                let (low, high) = share.bounds(i);
                let has = |element: usize| (element as u32 >= low) & ((element as u32) < high);
                for element in (0..T::PER_PACK).step_by(T::PER_WORD) {
                    let at = at.wrapping_add(element);
                    if const { T::PER_WORD == 1 } {
                        y.set_if(has(element), at, T::element(pack, element));
                    } else {
                        let [first, second] = [has(element), has(element + 1)];
                        y.set_4_if(first & second, at, pack[element / 2]);
                        y.set_if(first & !second, at, T::element(pack, element));
                        y.set_if(second & !first, at.wrapping_add(1), T::element(pack, element + 1));
                    }
                }
            }
        }
    }

    /// Joins the inputs, keeps that in the place of the first, and stores it as the result `joined`.
    ///
    /// # Safety
    /// The row's packs are being copied; `joined` is as [`Staged::put`] wants it.
    #[inline(always)]
    pub unsafe fn join<Op: RowOp<T>>(&self) {
        const { assert!(!Op::DROPS && (!Op::JOINS || Op::JOINED == 0 && Op::KEEPS_JOINED)) };
        // SAFETY: the caller's contract.
        unsafe {
            for i in 0..PACKS {
                self.expect::<Op>(i);
                let (packs, mut joined) = ([self.pack(0, i), self.pack(1, i)], [0; 4]);
                for pair in 0..T::PER_PACK / 2 {
                    let of = packs.map(|pack| T::pair(pack, pair));
                    let bias = T::pair(self.vectors[2][i], pair);
                    let join =
                        |half: usize| Op::join([of[0][half], of[1][half], 0.0], bias[half], |value| value);
                    T::set_pair(&mut joined, pair, [join(0), join(1)]);
                }
                self.share.ring.set_pack(self.share.slot(self.at, 0, i), joined);
                self.put(self.operands.joined, i, joined);
                if self.share.is_edge(i) {
                    self.fill(0, i, self.sample());
                }
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
        sums: &mut [[[f32; 8]; PACKS]; 2],
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
                        let added = Op::add_to_columns(known, [sums[0][i][e], sums[1][i][e]], x[half]);
                        for which in 0..Op::SUMS {
                            // Here, not all of them in the end, which would keep what they come of.
                            sums[which][i][e] = f32::from_bits(pinned(added[which].to_bits()));
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
        let mut vectors = [self.vectors[0][i], self.vectors[1][i]];
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
                    self.0.expect::<Op>(i);
                }
                (self.0.packs::<Op>(Op::STATISTIC_INPUTS, i), self.0.vectors_of::<Op>(i))
            };
            let part = of_pack::<T, K>(packs, vectors, &add);
            let when = const { Op::IGNORES_ZEROS } || share.has_pack(i);
            for k in 0..K {
                total[k] += if when { part[k] } else { 0.0 };
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
