//! The part of a slice of a row that waits in shared memory, beside the part in registers.
//!
//! Each thread copies, waits for and reads its own packs, so there is no barrier. Their masks come while the copies are under way, and
//! wait in registers as a bit a column: read when the copies are there, they would be waited for once more.

use super::bit_masks::WarpBits;
use super::ending::Sink;
use super::held::{Held, Normaliser, column};
use super::locate::Row;
use super::packed_scores::Packed;
use super::register_rows::{exponentiate, max_of, store_packs};
use super::{Operands, Params, mask_kind};
use cuda_std::async_copy;
use cuda_std::prelude::*;

/// At most `PACKS` packs of a thread, `LANES` apart, from number `first` of the row on. They are gone through one by one
/// in loops that are not unrolled: registers are for the other part.
pub(super) struct Staged<'a, T, const LANES: usize, const PACKS: usize> {
    slots: Shared<T>,
    p: &'a Params,
    row: &'a Row,
    first: u32,
    /// Packs of each thread.
    count: u32,
}

impl<'a, T: Float, const LANES: usize, const PACKS: usize> Staged<'a, T, LANES, PACKS> {
    /// Begins to copy those that have kept columns; `packs` are all threads' together.
    ///
    /// # Safety
    /// The operands match `p`, and `row` came from `locate`. The launch has 16 bytes of dynamic shared memory for each
    /// pack, with as many for all threads, and for nothing else.
    #[inline(always)]
    pub unsafe fn begin(operands: &Operands<T>, p: &'a Params, row: &'a Row, first: u32, packs: u32) -> Self {
        // SAFETY: the caller's contract; packs with kept columns are inside x.
        unsafe {
            let count = if const { PACKS == 0 } { 0 } else { packs.div_ceil(LANES as u32) };
            let slots = Shared::dynamic(0, count * (LANES * T::PER_PACK) as u32);
            let staged = Staged { slots, p, row, first, count };
            let mut i = 0;
            while i < staged.count {
                let column = staged.column(i);
                if row.keeps_some::<T>(column) {
                    let from = row.x + column as i64;
                    // The last pack of x may be part of one.
                    let count = if p.ragged != 0 {
                        (p.x_len - from).min(T::PER_PACK as i64)
                    } else {
                        T::PER_PACK as i64
                    };
                    slots.copy_pack_async(staged.slot(i), operands.x, from as usize, count as u32);
                }
                i += 1;
            }
            if const { PACKS > 0 } {
                async_copy::commit();
            }
            staged
        }
    }

    /// Asks for the masks of all packs.
    ///
    /// # Safety
    /// As [`Staged::begin`].
    #[inline(always)]
    pub unsafe fn ask_masks(&self, operands: &Operands<T>) -> WarpBits {
        if const { PACKS == 0 } || self.p.mask_kind != mask_kind::BITS {
            return WarpBits::NONE;
        }
        // SAFETY: the caller's contract; packs beyond the slice have no kept columns.
        unsafe { WarpBits::ask::<T, LANES, PACKS>(operands.mask, self.row, self.first) }
    }

    /// Waits, flips signs, applies masks, and gives the largest score; NaN wins.
    ///
    /// # Safety
    /// As [`Staged::begin`]; once, before the other methods.
    #[inline(always)]
    pub unsafe fn prepare(&self, masks: WarpBits) -> f32 {
        let (p, row) = (self.p, self.row);
        if const { PACKS == 0 } {
            return f32::NEG_INFINITY;
        }
        // SAFETY: the thread's own packs, of which those with kept columns have been copied.
        unsafe {
            async_copy::wait::<0>();
            let [mut word, mut next, mut last] = masks.words();
            let mut most = f32::NEG_INFINITY;
            let (mut i, mut of_word) = (0, 0);
            while i < self.count {
                let mask = [WarpBits::of_pack::<T>(word, of_word), 0];
                of_word += 1;
                if of_word == const { WarpBits::packs_of_word::<T>() as u32 } {
                    (word, next, last, of_word) = (next, last, 0, 0);
                }
                let mut x = [T::NEG_INFINITY_WORD ^ p.flip; 4];
                if row.keeps_some::<T>(self.column(i)) {
                    x = self.slots.get_pack(self.slot(i));
                }
                let held =
                    <Packed<true> as Held<T>>::prepare::<LANES, 1>([x], [mask], p, row, self.number(i));
                most = float::max_nan(most, max_of::<T, Packed<true>, 1>(&held));
                self.slots.set_pack(self.slot(i), held[0].0);
                i += 1;
            }
            most
        }
    }

    /// Adds the exponentials relative to a maximum to `start`.
    ///
    /// # Safety
    /// As [`Staged::begin`], after [`Staged::prepare`]; once.
    #[inline(always)]
    pub unsafe fn exponentiate(&self, maximum: f32, start: f32) -> f32 {
        let (mut sum, mut i) = (start, 0);
        while i < self.count {
            // SAFETY: the thread's own packs.
            unsafe {
                let (first, mut held) = (self.number(i), [Packed::<true>(self.slots.get_pack(self.slot(i)))]);
                sum = exponentiate::<T, Packed<true>, LANES, 1>(
                    &mut held, self.p, self.row, first, maximum, sum,
                );
                // Scores of 16 bits are kept as they are.
                if const { T::PER_WORD == 1 } {
                    self.slots.set_pack(self.slot(i), held[0].0);
                }
            }
            i += 1;
        }
        sum
    }

    /// Writes the results.
    ///
    /// # Safety
    /// As [`Staged::begin`], after [`Staged::exponentiate`]; the sink takes the row.
    #[inline(always)]
    pub unsafe fn store(&self, sink: impl Sink<T>, end: &Normaliser) {
        let mut i = 0;
        while i < self.count {
            // SAFETY: the thread's own packs.
            unsafe {
                let held = [Packed::<true>(self.slots.get_pack(self.slot(i)))];
                store_packs::<T, Packed<true>, _, LANES, 1>(
                    sink,
                    self.p,
                    self.row,
                    self.number(i),
                    held,
                    end,
                );
            }
            i += 1;
        }
    }

    /// Number of pack `i` in the row.
    #[inline(always)]
    fn number(&self, i: u32) -> u32 {
        self.first + i * LANES as u32
    }

    /// Window column of pack `i`.
    #[inline(always)]
    fn column(&self, i: u32) -> i32 {
        column::<T, LANES>(self.number(i), 0)
    }

    /// First element of pack `i`.
    #[inline(always)]
    fn slot(&self, i: u32) -> u32 {
        T::PER_PACK as u32 * (thread::thread_idx_x() + LANES as u32 * i)
    }
}
