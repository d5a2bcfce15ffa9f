//! A row whose share is in shared memory, and what an operation sees of it.

use super::columns::{ColumnSums, Vectors, keeps_vectors};
use super::held::splat;
use super::share::Share;
use super::{Elements, MAX_INPUTS, Operands, RowOp};
use cuda_std::bits::pinned;
use cuda_std::prelude::*;

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

    /// The loose element as f32, with −0, which adds nothing, for inputs that are not there.
    #[inline(always)]
    fn loose<Op: RowOp<T>>(&self) -> [f32; MAX_INPUTS] {
        let mut of = [-0.0; MAX_INPUTS];
        for input in 0..Op::INPUTS {
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

    /// Stores the results, adds what the operation adds up along columns, and begins to copy to the places of the row what
    /// comes next: of rows `ahead`, which have their turns `DEPTH / PACKS` turns later and one more. Of the inputs the last `ABSENT` are not
    /// given.
    ///
    /// # Safety
    /// The row has arrived, and the thread needs it no more; y is as [`Staged::put`] wants it.
    #[inline(always)]
    pub unsafe fn results<Op: RowOp<T>, const ABSENT: usize>(
        &self,
        known: Op::Row,
        total: Op::Total,
        sums: &mut ColumnSums<PACKS>,
        ahead: [u32; 2],
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
                let (next, pack) = match const { DEPTH % PACKS } {
                    0 => (ahead[0], i),
                    extra if i + extra < PACKS => (ahead[0], i + extra),
                    extra => (ahead[1], i + extra - PACKS),
                };
                self.share.fetch::<Op, ABSENT>(self.operands, next, pack, self.share.slot(self.at, 0, i));
            }
        }
        if const { PACKED == 0 } {
            let x = self.loose::<Op>();
            let [weight, bias] = self.vectors.loose;
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
        for input in 0..inputs {
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
                if pass == 0 {
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
            let [weight, bias] = self.0.vectors.loose;
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
