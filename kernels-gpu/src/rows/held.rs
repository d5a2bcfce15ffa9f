//! A thread's share of a row in registers: packs, and loose elements beside them.

use super::row::Row;
use super::{Elements, MAX_INPUTS, Operands, Params, RowOp, given};
use core::marker::PhantomData;
use core::ops::Range;
use cuda_std::bits::pinned;
use cuda_std::prelude::*;

/// Most loose elements of a thread: those of a row of 16-bit elements in one thread.
const MAX_LOOSE: usize = 14;

/// Loose elements of a thread without packs.
pub(crate) const ELEMENTS: usize = 4;

/// Loose elements of a thread where `lanes` share those of a row.
const fn slots<T: Float>(lanes: usize, packs: usize) -> usize {
    if packs == 0 { ELEMENTS } else { (2 * (T::PER_PACK - 1)).div_ceil(lanes) }
}

/// The packs and loose elements of a row from number `first` on, `LANES` apart: `PACKS` packs, and as many loose
/// elements as the lanes need; without packs [`ELEMENTS`]. Packs stay as they are in memory, so that 16-bit elements
/// take half a register.
pub(crate) struct Held<'a, T, const LANES: usize, const PACKS: usize> {
    p: &'a Params,
    row: Row,
    first: u32,
    inputs: [[Pack; PACKS]; MAX_INPUTS],
    vectors: [[Pack; PACKS]; 2],
    loose: [[f32; MAX_INPUTS]; MAX_LOOSE],
    loose_vectors: [[f32; 2]; MAX_LOOSE],
    element: PhantomData<T>,
}

/// What an absent vector has for its elements: weight, bias.
pub(super) const ABSENT: [f32; 2] = [1.0, 0.0];

/// A word whose every element is `value`.
#[inline(always)]
pub(super) fn splat<T: Float>(value: f32) -> u32 {
    T::from_f32(value).bits() * if const { T::PER_WORD == 2 } { 0x1_0001 } else { 1 }
}

impl<'a, T: Float, const LANES: usize, const PACKS: usize> Held<'a, T, LANES, PACKS> {
    /// Loads a share of a row, all of it in flight before the first use; the vectors are [`Held::with_vectors`]'s.
    ///
    /// # Safety
    /// The operands match `p`, and `row` is a row of theirs.
    #[inline(always)]
    pub unsafe fn load<Op: RowOp<T>>(operands: &Operands<T>, p: &'a Params, row: Row, first: u32) -> Self {
        let mut held = Held {
            p,
            row,
            first,
            inputs: [[[0; 4]; PACKS]; MAX_INPUTS],
            vectors: [[[0; 4]; PACKS]; 2],
            loose: [[0.0; MAX_INPUTS]; MAX_LOOSE],
            loose_vectors: [ABSENT; MAX_LOOSE],
            element: PhantomData,
        };
        // SAFETY: packs and elements inside of the row are inside of the operands.
        unsafe {
            for i in 0..PACKS {
                for input in 0..Op::INPUTS {
                    let when = held.has_pack(i) & is_given(p, input);
                    let at = held.place(row.inputs[input], i);
                    held.inputs[input][i] = operands.inputs[input].get_pack_or(when, at as usize, [0; 4]);
                }
            }
            if p.ragged != 0 {
                for slot in 0..const { slots::<T>(LANES, PACKS) } {
                    let column = held.loose_column(slot);
                    for input in 0..Op::INPUTS {
                        if held.has_loose(slot) && is_given(p, input) {
                            let at = row.inputs[input] + column as i64 * p.steps[input];
                            held.loose[slot][input] = operands.inputs[input].get(at as usize).to_f32();
                        }
                    }
                }
            }
        }
        held
    }

    /// The share of the same row, worked out once more.
    #[inline(always)]
    pub fn of(self, row: Row) -> Self {
        Held { row, ..self }
    }

    /// Loads some vectors' elements at the columns of some packs, and with the first of them of the loose elements.
    ///
    /// # Safety
    /// As [`Held::load`].
    #[inline(always)]
    pub unsafe fn with_vectors(
        mut self,
        operands: &Operands<T>,
        vectors: Range<usize>,
        packs: Range<usize>,
    ) -> Self {
        for vector in vectors {
            let is_given = self.p.given & (given::WEIGHT << vector) != 0;
            // SAFETY: a vector has an element for each column.
            unsafe {
                let of_packs =
                    self.packs_of(operands.vectors[vector], is_given, ABSENT[vector], packs.clone());
                for i in packs.start..packs.end {
                    self.vectors[vector][i] = of_packs[i];
                }
                if packs.start == 0 && self.p.ragged != 0 {
                    for slot in 0..const { slots::<T>(LANES, PACKS) } {
                        if self.has_loose(slot) && is_given {
                            let column = self.loose_column(slot) as usize;
                            self.loose_vectors[slot][vector] = operands.vectors[vector].get(column).to_f32();
                        }
                    }
                }
            }
        }
        self
    }

    /// A vector's elements at the columns of some packs.
    ///
    /// # Safety
    /// The vector has an element for each column, where it is given.
    #[inline(always)]
    unsafe fn packs_of(
        &self,
        vector: Global<T>,
        is_given: bool,
        absent: f32,
        range: Range<usize>,
    ) -> [Pack; PACKS] {
        let mut packs = [[splat::<T>(absent); 4]; PACKS];
        // SAFETY: the columns of a pack inside of the row are columns.
        unsafe {
            if self.p.packed_vectors != 0 {
                for i in range.start..range.end {
                    let when = self.has_pack(i) & is_given;
                    packs[i] = vector.get_pack_if(when, self.place(0, i) as usize, packs[i][0]);
                }
            } else if is_given {
                for i in range.start..range.end {
                    if self.has_pack(i) {
                        let column = self.place(0, i) as usize;
                        packs[i] = T::pack_from(|element| vector.get(column + element));
                    }
                }
            }
        }
        packs
    }

    /// Joins the inputs of some packs, and with the first of them of the loose elements, and stores what comes of it where `stores` holds.
    ///
    /// # Safety
    /// As [`Held::load`].
    #[inline(always)]
    pub unsafe fn join<Op: RowOp<T>>(
        mut self,
        operands: &Operands<T>,
        stores: bool,
        packs: Range<usize>,
    ) -> Self {
        let is_given = self.p.given & given::INPUT_BIAS != 0;
        // SAFETY: as in `load`.
        unsafe {
            let bias = self.packs_of(operands.input_bias, is_given, 0.0, packs.clone());
            for i in packs.start..packs.end {
                let (at, mut joined) = (self.place(self.row.output, i), [0; 4]);
                // Random words cost more than the rest: none for a pack that is not there.
                let mut words = [0; 8];
                if const { Op::DROPS } && self.has_pack(i) {
                    words = self.p.dropping.words_of_pack::<T>(at as u64);
                }
                if const { Op::DROPS && PACKS < 4 } {
                    // As words: comparisons in the branch would take their results apart and put them together again. Four packs
                    // leave no registers for them.
                    words = words.map(pinned);
                }
                for pair in 0..T::PER_PACK / 2 {
                    let (x, bias) = (self.pairs(i, pair, 0), T::pair(bias[i], pair));
                    let join = |of: usize| {
                        let drop = |value| self.p.dropping.apply(words[2 * pair + of], value);
                        Op::join(x[of], bias[of], drop)
                    };
                    T::set_pair(&mut joined, pair, [join(0), join(1)]);
                }
                self.inputs[const { Op::JOINED }][i] = joined;
                if const { Op::KEEPS_JOINED } {
                    operands.joined.set_pack_if(stores & self.has_pack(i), at as usize, joined);
                }
            }
            if packs.start == 0 && self.p.ragged != 0 {
                for slot in 0..const { slots::<T>(LANES, PACKS) } {
                    if self.has_loose(slot) {
                        let column = self.loose_column(slot);
                        let bias =
                            if is_given { operands.input_bias.get(column as usize).to_f32() } else { 0.0 };
                        let at = self.row.output + column as i64;
                        let drop = |value| self.p.dropping.one(at as u64, value);
                        let joined = T::from_f32(Op::join(self.loose[slot], bias, drop));
                        self.loose[slot][const { Op::JOINED }] = joined.to_f32();
                        if const { Op::KEEPS_JOINED } && stores {
                            operands.joined.set(at as usize, joined);
                        }
                    }
                }
            }
        }
        self
    }

    /// Stores the results of some packs, and with the first of them of the loose elements.
    ///
    /// # Safety
    /// As [`Held::load`].
    #[inline(always)]
    pub unsafe fn store<Op: RowOp<T>>(&self, y: GlobalMut<T>, total: Op::Total, packs: Range<usize>) {
        // SAFETY: as in `load`; each element has one thread.
        unsafe {
            for i in packs.start..packs.end {
                let mut results = [0; 4];
                for pair in 0..T::PER_PACK / 2 {
                    // Without a part in the statistic the vectors are seen for the first time.
                    let pass = const { if Op::WEIGHS { 2 } else { 0 } };
                    let (x, v) = (self.pairs(i, pair, 2), self.vector_pairs(i, pair, pass));
                    let of = [Op::result(total, x[0], v[0]), Op::result(total, x[1], v[1])];
                    T::set_pair(&mut results, pair, of);
                }
                let at = self.place(self.row.output, i);
                y.set_pack_if(self.has_pack(i), at as usize, results);
            }
            if packs.start == 0 && self.p.ragged != 0 {
                for slot in 0..const { slots::<T>(LANES, PACKS) } {
                    let result = Op::result(total, self.loose[slot], self.loose_vectors[slot]);
                    let at = self.row.output + self.loose_column(slot) as i64;
                    y.set_if(self.has_loose(slot), at as usize, T::from_f32(result));
                }
            }
        }
    }

    #[inline(always)]
    fn pack(&self, i: usize) -> u32 {
        self.first + (i * LANES) as u32
    }

    #[inline(always)]
    fn has_pack(&self, i: usize) -> bool {
        self.pack(i) < self.row.packs
    }

    /// Where pack `i` is in an operand whose row begins at `base`: a 64-bit sum with a constant, which the
    /// address of a load or store takes.
    #[inline(always)]
    fn place(&self, base: i64, i: usize) -> i64 {
        base + self.row.column_of_pack::<T>(self.first) as i64 + (i * LANES * T::PER_PACK) as i64
    }

    #[inline(always)]
    fn loose(&self, slot: usize) -> u32 {
        self.first + (slot * LANES) as u32
    }

    #[inline(always)]
    fn has_loose(&self, slot: usize) -> bool {
        self.loose(slot) < self.row.loose
    }

    #[inline(always)]
    fn loose_column(&self, slot: usize) -> u32 {
        self.row.column_of_loose::<T>(self.loose(slot))
    }

    /// 16-bit elements are widened again in each pass, rather than kept widened in twice the registers.
    #[inline(always)]
    fn renewed(&self, pack: Pack, pass: usize) -> Pack {
        if const { T::PER_WORD == 2 } && pass > 0 {
            packed::renew(pack, self.p.zeros[pass - 1])
        } else {
            pack
        }
    }

    /// The inputs at elements 2·`pair` and 2·`pair` + 1 of pack `i`.
    #[inline(always)]
    fn pairs(&self, i: usize, pair: usize, pass: usize) -> [[f32; MAX_INPUTS]; 2] {
        let mut values = [[0.0; MAX_INPUTS]; 2];
        for input in 0..MAX_INPUTS {
            let of = T::pair(self.renewed(self.inputs[input][i], pass), pair);
            values[0][input] = of[0];
            values[1][input] = of[1];
        }
        values
    }

    #[inline(always)]
    fn vector_pairs(&self, i: usize, pair: usize, pass: usize) -> [[f32; 2]; 2] {
        let mut values = [[0.0; 2]; 2];
        for vector in 0..2 {
            let of = T::pair(self.renewed(self.vectors[vector][i], pass), pair);
            values[0][vector] = of[0];
            values[1][vector] = of[1];
        }
        values
    }
}

/// Whether input number `input` is there: the third may be absent.
#[inline(always)]
fn is_given(p: &Params, input: usize) -> bool {
    input < 2 || p.given & given::THIRD != 0
}

impl<T: Float, const LANES: usize, const PACKS: usize> Elements for Held<'_, T, LANES, PACKS> {
    #[inline(always)]
    fn count(&self) -> f32 {
        let mut count = 0;
        for i in 0..PACKS {
            count += if self.has_pack(i) { T::PER_PACK as u32 } else { 0 };
        }
        if self.p.ragged != 0 {
            for slot in 0..const { slots::<T>(LANES, PACKS) } {
                count += self.has_loose(slot) as u32;
            }
        }
        count as f32
    }

    #[inline(always)]
    fn sample(&self) -> f32 {
        let mut sample = self.loose[0][0];
        for i in 0..PACKS {
            if i == 0 && self.has_pack(0) {
                sample = T::pair(self.inputs[0][i], 0)[0];
            }
        }
        sample
    }

    #[inline(always)]
    fn sums<const K: usize>(
        &self,
        pass: usize,
        add: impl Fn([f32; K], [f32; MAX_INPUTS], [f32; 2]) -> [f32; K],
    ) -> [f32; K] {
        let mut total = [0.0; K];
        for i in 0..PACKS {
            // Two sums at once, so that an addition need not wait for the last. −0 + x is x, which 0 + x is not.
            let mut of_pack = [[-0.0; K]; 2];
            for pair in 0..T::PER_PACK / 2 {
                let (x, v) = (self.pairs(i, pair, pass), self.vector_pairs(i, pair, pass));
                of_pack[0] = add(of_pack[0], x[0], v[0]);
                of_pack[1] = add(of_pack[1], x[1], v[1]);
            }
            for k in 0..K {
                total[k] += if self.has_pack(i) { of_pack[0][k] + of_pack[1][k] } else { 0.0 };
            }
        }
        if self.p.ragged != 0 {
            for slot in 0..const { slots::<T>(LANES, PACKS) } {
                let with = add(total, self.loose[slot], self.loose_vectors[slot]);
                for k in 0..K {
                    total[k] = if self.has_loose(slot) { with[k] } else { total[k] };
                }
            }
        }
        total
    }
}
