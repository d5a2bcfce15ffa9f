//! A thread's share of a row in shared memory, gone through there as often as need be.
//!
//! Two cuts, by the constant `PACKED`. 1: rows of whole aligned packs, each of which is copied and read by one thread. 0: rows
//! that begin and end anywhere, one behind the other. They are copied by the aligned packs that they touch, their *windows*, and
//! read by single elements, so that a thread has the same columns of every row wherever it begins. Elements of a thread come in
//! packs here, too: of elements that are `LANES` apart.

use super::held::{ABSENT, splat};
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, given};
use cuda_std::prelude::*;

/// Vectors that are kept: weight, bias and input bias.
const VECTORS: usize = 3;

/// A thread's share of the vectors.
pub(super) type Vectors<const PACKS: usize> = [[Pack; PACKS]; VECTORS];

/// Packs of shared memory that a row of an input takes: without alignment it may touch one more than its elements fill.
pub(super) const fn pitch(packed: usize, lanes: usize, packs: usize) -> usize {
    lanes * packs + 1 - packed
}

/// Whether the vectors stay in registers, which sums along columns may need more; else they are read again, from L1.
const fn keeps_vectors<T: Float>(sums: usize, packs: usize) -> bool {
    if sums == 0 { T::PER_PACK == 4 || packs <= 4 } else { packs * (sums * T::PER_PACK + 4) <= 64 }
}

/// Whether what was read by single elements, which is dear, is kept; not beside sums along columns.
const fn holds(packed: usize, sums: usize) -> bool {
    packed == 0 && sums == 0
}

/// Whether a thread has registers for so many sums along the columns of so many packs.
pub const fn sums_fit(sums: usize, packs: usize, per_pack: usize) -> bool {
    sums * packs * per_pack <= 48
}

/// Whether a kernel for so many packs of a thread takes a third input: for more there are no registers.
pub const fn takes_third(packs: usize) -> bool {
    packs < 4
}

/// What a thread does with any row: its place among the `LANES` threads of a row, and `PACKS` packs of columns.
#[derive(Clone, Copy)]
pub(super) struct Share<'a, T, const PACKED: usize, const LANES: usize, const PACKS: usize> {
    pub p: &'a Params,
    pub lane: u32,
    /// The ring of rows.
    pub slots: Shared<T>,
}

impl<'a, T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize>
    Share<'a, T, PACKED, LANES, PACKS>
{
    /// Whether input number `input` is there: the third may be absent.
    #[inline(always)]
    pub fn is_given(&self, input: usize) -> bool {
        input < 2 || const { takes_third(PACKS) } && self.p.given & given::THIRD != 0
    }

    /// The column of an element of pack `i`.
    #[inline(always)]
    pub fn column(&self, i: usize, element: usize) -> u32 {
        if const { PACKED == 1 } {
            (self.lane + (i * LANES) as u32) * T::PER_PACK as u32 + element as u32
        } else {
            self.lane + ((i * T::PER_PACK + element) * LANES) as u32
        }
    }

    /// Whether pack `i` of a row of packs is there.
    #[inline(always)]
    fn has_pack(&self, i: usize) -> bool {
        self.lane + ((i * LANES) as u32) < self.p.cols / T::PER_PACK as u32
    }

    /// Whether any lane has elements of pack `i` (0).
    #[inline(always)]
    fn has_some(&self, i: usize) -> bool {
        i == 0 || ((i * T::PER_PACK * LANES) as u32) < self.p.cols
    }

    /// Whether all lanes have all elements of pack `i` (0).
    #[inline(always)]
    fn is_whole(&self, i: usize) -> bool {
        ((i + 1) * T::PER_PACK * LANES) as u32 <= self.p.cols
    }

    /// Where input number `input` is in a row's slots, counted in elements.
    #[inline(always)]
    fn of_input(input: usize) -> u32 {
        (input * pitch(PACKED, LANES, PACKS) * T::PER_PACK) as u32
    }

    /// Elements of a row's first window in front of the row.
    #[inline(always)]
    fn lead(&self, row: u32) -> u32 {
        if const { PACKED == 1 } { 0 } else { row.wrapping_mul(self.p.cols) % T::PER_PACK as u32 }
    }

    /// The vectors' elements at the share's columns; zeros for those that are not kept.
    ///
    /// # Safety
    /// The operands match `p`; for rows of packs the vectors are aligned.
    #[inline(always)]
    pub unsafe fn vectors<Op: RowOp<T>>(&self, operands: &Operands<T>) -> Vectors<PACKS> {
        let mut vectors = [[[0; 4]; PACKS]; VECTORS];
        if const { keeps_vectors::<T>(Op::SUMS, PACKS) } {
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
                    let when = is_given & (column < self.p.cols);
                    if when { vector.get(column as usize) } else { T::from_f32(absent) }
                })
            }
        }
    }

    /// Windows of the row that touches most.
    #[inline(always)]
    fn most_windows(&self) -> u32 {
        (self.p.cols + 2 * T::PER_PACK as u32 - 2) / T::PER_PACK as u32
    }

    /// Fills with zeros what no copy ever fills and is read all the same: packs of columns that are not there.
    ///
    /// # Safety
    /// The slots have room for a row from element `at` on.
    #[inline(always)]
    pub unsafe fn clear<Op: RowOp<T>>(&self, at: u32) {
        for input in 0..Op::INPUTS {
            for i in 0..pitch(PACKED, LANES, PACKS).div_ceil(LANES) {
                let pack = self.lane + (i * LANES) as u32;
                let is_copied =
                    if const { PACKED == 1 } { self.has_pack(i) } else { pack < self.most_windows() };
                if self.is_given(input) && !is_copied && pack < pitch(PACKED, LANES, PACKS) as u32 {
                    // SAFETY: the thread's own packs.
                    unsafe {
                        self.slots.set_pack(at + Self::of_input(input) + pack * T::PER_PACK as u32, [0; 4])
                    };
                }
            }
        }
    }

    /// Begins to copy a row's packs or windows to element `at` of the slots, if there is such a row.
    ///
    /// # Safety
    /// The operands match `p` and the cut; nobody reads or writes the slots before the copy has been waited for.
    #[inline(always)]
    pub unsafe fn fetch<Op: RowOp<T>>(&self, operands: &Operands<T>, row: u32, at: u32) {
        let per_pack = T::PER_PACK as u32;
        let is_there = row < self.p.rows;
        // SAFETY: packs and windows that are not there are not copied, and of the last window what is there.
        unsafe {
            if const { PACKED == 1 } {
                for input in 0..Op::INPUTS {
                    let first = row as i64 * self.p.dims[0].inputs[input] + (self.lane * per_pack) as i64;
                    for i in 0..PACKS {
                        let when = is_there & self.has_pack(i) & self.is_given(input);
                        // A 64-bit sum with a constant, which the copy's address takes.
                        let from = first + (i * LANES * T::PER_PACK) as i64;
                        let to = at + Self::of_input(input) + self.column(i, 0);
                        self.slots.copy_pack_async_if(to, operands.inputs[input], from as usize, when);
                    }
                }
            } else if is_there {
                // What lies behind the row becomes zeros.
                let lead = self.lead(row);
                let start = row as u64 * self.p.cols as u64 - lead as u64;
                for i in 0..PACKS + 1 {
                    let window = self.lane + (i * LANES) as u32;
                    if window < self.most_windows() {
                        let count = (lead + self.p.cols).saturating_sub(window * per_pack).min(per_pack);
                        // No elements are copied from where there are some.
                        let from = start + if count > 0 { (window * per_pack) as u64 } else { 0 };
                        for input in 0..Op::INPUTS {
                            if self.is_given(input) {
                                let to = at + Self::of_input(input) + window * per_pack;
                                self.slots.copy_pack_async(to, operands.inputs[input], from as usize, count);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A share of one row, which has arrived.
#[derive(Clone, Copy)]
pub(super) struct Staged<'a, T, const PACKED: usize, const LANES: usize, const PACKS: usize> {
    pub share: Share<'a, T, PACKED, LANES, PACKS>,
    pub operands: &'a Operands<T>,
    /// The row's number; there is one.
    pub row: u32,
    /// The row's first element in the slots.
    pub at: u32,
    pub vectors: Vectors<PACKS>,
    /// What [`Staged::hold`] took hold of.
    pub held: [[Pack; PACKS]; MAX_INPUTS],
}

impl<T: Float, const PACKED: usize, const LANES: usize, const PACKS: usize>
    Staged<'_, T, PACKED, LANES, PACKS>
{
    /// Where column 0 of an input is in the slots.
    #[inline(always)]
    fn slot(&self, input: usize) -> u32 {
        self.at + Share::<T, PACKED, LANES, PACKS>::of_input(input) + self.share.lead(self.row)
    }

    /// Takes hold of what is read by single elements, unless sums along columns have the registers.
    ///
    /// # Safety
    /// The row has arrived.
    #[inline(always)]
    pub unsafe fn hold<Op: RowOp<T>>(&mut self) {
        if const { holds(PACKED, Op::SUMS) } {
            for i in 0..PACKS {
                for input in 0..Op::INPUTS {
                    // SAFETY: the caller's contract.
                    self.held[input][i] = unsafe { self.gathered(input, i) };
                }
            }
        }
    }

    /// Pack `i` of an input by single elements; of columns that are not there zeros.
    ///
    /// # Safety
    /// As [`Staged::hold`].
    #[inline(always)]
    unsafe fn gathered(&self, input: usize, i: usize) -> Pack {
        let (slots, from) = (self.share.slots, self.slot(input));
        if !self.share.is_given(input) || !self.share.has_some(i) {
            return [0; 4];
        }
        // SAFETY: columns, and the zeros behind them.
        unsafe { T::pack_from(|element| slots.get(from + self.share.column(i, element))) }
    }

    /// Pack `i` of an input; of columns that are not there zeros.
    ///
    /// # Safety
    /// The row has arrived, and was taken [hold](Staged::hold) of.
    #[inline(always)]
    unsafe fn pack<Op: RowOp<T>>(&self, input: usize, i: usize, pass: usize) -> Pack {
        if const { holds(PACKED, Op::SUMS) } {
            // 16-bit elements are widened again in each pass, rather than kept widened in twice the registers.
            let held = self.held[input][i];
            if pass > 0 { packed::renew(held, self.share.p.zeros[pass - 1]) } else { held }
        } else if const { PACKED == 0 } {
            // SAFETY: the caller's contract.
            unsafe { self.gathered(input, i) }
        } else if !self.share.is_given(input) {
            [0; 4]
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.share.slots.get_pack(self.slot(input) + self.share.column(i, 0)) }
        }
    }

    /// Puts a pack in the place of pack `i` of an input.
    ///
    /// # Safety
    /// As [`Staged::pack`].
    #[inline(always)]
    unsafe fn replace(&self, input: usize, i: usize, pack: Pack) {
        let (slots, share) = (self.share.slots, &self.share);
        let from = self.slot(input);
        // SAFETY: the thread's own elements.
        unsafe {
            if const { PACKED == 1 } {
                slots.set_pack(from + share.column(i, 0), pack);
                return;
            }
            let is_whole = share.is_whole(i);
            for element in 0..T::PER_PACK {
                if is_whole || share.column(i, element) < share.p.cols {
                    slots.set(from + share.column(i, element), T::element(pack, element));
                }
            }
        }
    }

    /// Stores pack `i` of a result: to memory, or where the cut wants it to the place of input `input`, from where
    /// [`Staged::store`] takes it.
    ///
    /// # Safety
    /// As [`Staged::pack`]; `y` has the inputs' shape and is contiguous.
    #[inline(always)]
    unsafe fn put(&self, y: GlobalMut<T>, input: usize, i: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe {
            if const { PACKED == 1 } {
                let first = self.row as u64 * self.share.p.cols as u64 + self.share.column(0, 0) as u64;
                let at = first + (i * LANES * T::PER_PACK) as u64;
                y.set_pack_if(self.share.has_pack(i), at as usize, pack);
            } else {
                self.replace(input, i, pack);
            }
        }
    }

    /// Stores what lies in the place of an input, as windows and the loose elements before and behind them. Nothing for rows of
    /// packs.
    ///
    /// # Safety
    /// As [`Staged::put`], which all threads of the row have done; there are at least two packs' columns.
    #[inline(always)]
    pub unsafe fn store(&self, y: GlobalMut<T>, input: usize) {
        if const { PACKED == 1 } {
            return;
        }
        let Share { p, lane, slots } = self.share;
        let per_pack = T::PER_PACK as u32;
        let (lead, first) = (self.share.lead(self.row), self.row as u64 * p.cols as u64);
        let (end, from) = (lead + p.cols, self.at + Share::<T, PACKED, LANES, PACKS>::of_input(input));
        // SAFETY: windows inside of the row, and columns; each has one thread.
        unsafe {
            for i in 0..PACKS + 1 {
                let start = (lane + (i * LANES) as u32) * per_pack;
                let when = (start >= lead) & (start + per_pack <= end);
                if when {
                    let pack = slots.get_pack(from + start);
                    y.set_pack_if(when, (first + start as u64 - lead as u64) as usize, pack);
                }
            }
            let (head, tail) = ((per_pack - lead) % per_pack, end % per_pack);
            let column = if lane < head { lane } else { p.cols - tail + (lane - head) };
            if column < p.cols {
                y.set((first + column as u64) as usize, slots.get(from + lead + column));
            }
        }
    }

    /// Joins the inputs, keeps that in the place of the first, and puts it to the result `joined`.
    ///
    /// # Safety
    /// As [`Staged::put`].
    #[inline(always)]
    pub unsafe fn join<Op: RowOp<T>>(&mut self, operands: &Operands<T>) {
        const { assert!(!Op::DROPS && (!Op::JOINS || Op::JOINED == 0 && Op::KEEPS_JOINED)) };
        // SAFETY: the caller's contract.
        unsafe {
            for i in 0..PACKS {
                let (packs, mut joined) = ([self.pack::<Op>(0, i, 0), self.pack::<Op>(1, i, 0)], [0; 4]);
                for pair in 0..T::PER_PACK / 2 {
                    let of = packs.map(|pack| T::pair(pack, pair));
                    let bias = T::pair(self.vectors[2][i], pair);
                    let join =
                        |half: usize| Op::join([of[0][half], of[1][half], 0.0], bias[half], |value| value);
                    T::set_pair(&mut joined, pair, [join(0), join(1)]);
                }
                self.held[0][i] = joined;
                self.replace(0, i, joined);
                if const { PACKED == 1 } {
                    self.put(operands.joined, 0, i, joined);
                }
            }
        }
    }

    /// Puts the results, and adds what the operation adds up along columns.
    ///
    /// # Safety
    /// As [`Staged::put`].
    #[inline(always)]
    pub unsafe fn results<Op: RowOp<T>>(
        &self,
        operands: &Operands<T>,
        known: Op::Row,
        total: Op::Total,
        sums: &mut [[[f32; 8]; PACKS]; 2],
    ) {
        for i in 0..PACKS {
            // SAFETY: the caller's contract.
            unsafe {
                let (packs, mut results) = (self.packs::<Op>(i, 0), [0; 4]);
                let vectors = self.vectors_of::<Op>(i);
                for pair in 0..T::PER_PACK / 2 {
                    let (x, v) = pairs::<T>(packs, vectors, pair);
                    for half in 0..const { if Op::SUMS > 0 { 2 } else { 0 } } {
                        let e = 2 * pair + half;
                        let added = Op::add_to_columns(known, [sums[0][i][e], sums[1][i][e]], x[half]);
                        for which in 0..Op::SUMS {
                            sums[which][i][e] = added[which];
                        }
                    }
                    let of = [Op::result(total, x[0], v[0]), Op::result(total, x[1], v[1])];
                    T::set_pair(&mut results, pair, of);
                }
                self.put(operands.y, const { result_place::<T, Op>() }, i, results);
                // One pack after another: the assembler would hold several at once, and has no registers for them.
                if const { LANES > 32 && (Op::SUMS > 0 && PACKS > 2 || PACKS > 4) } {
                    warp::sync_warp(u32::MAX);
                }
            }
        }
    }

    /// Pack `i` of all inputs.
    ///
    /// # Safety
    /// As [`Staged::pack`].
    #[inline(always)]
    unsafe fn packs<Op: RowOp<T>>(&self, i: usize, pass: usize) -> [Pack; MAX_INPUTS] {
        let mut packs = [[0; 4]; MAX_INPUTS];
        // What was joined is one.
        for input in 0..const { if Op::JOINS { 1 } else { Op::INPUTS } } {
            // SAFETY: the caller's contract.
            packs[input] = unsafe { self.pack::<Op>(input, i, pass) };
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
        if const { !keeps_vectors::<T>(Op::SUMS, PACKS) } {
            // SAFETY: the caller's contract.
            vectors[0] = unsafe { self.share.vector::<Op>(self.operands, 0, i) };
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

/// The input in whose place results wait: what was joined has its own to be stored from.
pub(super) const fn result_place<T: Float, Op: RowOp<T>>() -> usize {
    Op::JOINS as usize
}

/// [`Elements`] for an operation, which says what inputs it looks at.
pub(super) struct Of<'a, 'b, T, Op, const PACKED: usize, const LANES: usize, const PACKS: usize>(
    pub &'a Staged<'b, T, PACKED, LANES, PACKS>,
    pub core::marker::PhantomData<Op>,
);

impl<T: Float, Op: RowOp<T>, const PACKED: usize, const LANES: usize, const PACKS: usize> Elements
    for Of<'_, '_, T, Op, PACKED, LANES, PACKS>
{
    #[inline(always)]
    fn count(&self) -> f32 {
        let Share { p, lane, .. } = self.0.share;
        let (all, unit) = if const { PACKED == 1 } {
            (p.cols / T::PER_PACK as u32, T::PER_PACK as u32)
        } else {
            (p.cols, 1)
        };
        let units = (all + LANES as u32 - 1 - lane) / LANES as u32;
        (units * unit) as f32
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
            // SAFETY: the row has arrived.
            let (packs, vectors) = unsafe { (self.0.packs::<Op>(i, pass), self.0.vectors_of::<Op>(i)) };
            let part = if const { PACKED == 0 } && !share.has_some(i) {
                [0.0; K]
            } else if const { PACKED == 1 || Op::IGNORES_ZEROS } || share.is_whole(i) {
                of_pack::<T, K>(packs, vectors, |_| true, &add)
            } else {
                of_pack::<T, K>(packs, vectors, |element| share.column(i, element) < share.p.cols, &add)
            };
            let when = const { PACKED == 0 } || share.has_pack(i);
            for k in 0..K {
                total[k] += if when { part[k] } else { 0.0 };
            }
            if const { LANES > 32 && PACKS > 4 } {
                warp::sync_warp(u32::MAX);
            }
        }
        total
    }
}

/// Sums over the elements of a pack that are there.
#[inline(always)]
fn of_pack<T: Float, const K: usize>(
    packs: [Pack; MAX_INPUTS],
    vectors: [Pack; 2],
    is_there: impl Fn(usize) -> bool,
    add: &impl Fn([f32; K], [f32; MAX_INPUTS], [f32; 2]) -> [f32; K],
) -> [f32; K] {
    // Two sums at once, so that an addition need not wait for the last. −0 + x is x, which 0 + x is not.
    let mut sums = [[-0.0; K]; 2];
    for pair in 0..T::PER_PACK / 2 {
        let (x, v) = pairs::<T>(packs, vectors, pair);
        for half in 0..2 {
            let (with, when) = (add(sums[half], x[half], v[half]), is_there(2 * pair + half));
            for k in 0..K {
                sums[half][k] = if when { with[k] } else { sums[half][k] };
            }
        }
    }
    let mut both = [0.0; K];
    for k in 0..K {
        both[k] = sums[0][k] + sums[1][k];
    }
    both
}
