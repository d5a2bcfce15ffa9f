//! What becomes of a row's exponentials: the softmax itself, or a loss and its gradient.

use super::held::Normaliser;
use super::locate::Row;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// What an operation adds to the softmax of a row; by default nothing.
pub(crate) trait Ending<T: Float>: Copy {
    /// What it knows of a row.
    type Known: Copy;
    /// Whether results are 0 at columns that are not kept, without a sign, and nothing follows their stores.
    const ZEROS: bool;

    /// Reads what belongs to row `number`; may leave the row with no kept column.
    ///
    /// # Safety
    /// The operation's operands match `p`; the row is one of theirs.
    unsafe fn begin(&self, p: &Params, number: u32, row: Row) -> (Self::Known, Row);

    /// Whether the results of a row with this sum of exponentials are NaN.
    #[inline(always)]
    fn is_nan(_: Self::Known, sum: f32) -> bool {
        sum.is_nan()
    }

    /// What turns exponentials into results, from what turns them into a softmax.
    #[inline(always)]
    fn normaliser(_: Self::Known, end: Normaliser) -> Normaliser {
        end
    }

    /// Whether results are written.
    #[inline(always)]
    fn stores(&self) -> bool {
        true
    }

    /// Where to.
    fn sink(&self, operands: &Operands<T>) -> impl Sink<T>;

    /// What follows the stores of a thread.
    ///
    /// # Safety
    /// As [`Ending::begin`]; `operands` match `p`, and the thread has written the columns of `share`, as far as anything
    /// was.
    #[inline(always)]
    unsafe fn finish(&self, _: &Operands<T>, _: &Params, _: Self::Known, _: &Share, _: End) {}
}

/// Which elements of a pack are written.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub whole: bool,
    /// Otherwise those from `low` on and before `high`, as far as the pack has them.
    pub low: i32,
    pub high: i32,
}

impl Part {
    /// All of them.
    pub const WHOLE: Part = Part { whole: true, low: 0, high: 0 };

    /// Those that are the row's columns, of the pack at `column`.
    #[inline(always)]
    pub fn of_row<T: Float>(p: &Params, row: &Row, column: i32) -> Part {
        Part {
            whole: p.ragged == 0 || row.has_whole::<T>(column),
            low: row.first - column,
            high: row.end - column,
        }
    }

    /// Writes the part where `when` holds.
    ///
    /// # Safety
    /// As [`Sink::set_pack`].
    #[inline(always)]
    pub unsafe fn set<T: Float>(self, to: GlobalMut<T>, when: bool, at: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe {
            to.set_pack_if(when & self.whole, at, pack);
            if when & !self.whole {
                to.set_pack_part(at, pack, self.low, self.high);
            }
        }
    }
}

/// Where results go.
pub(crate) trait Sink<T: Float>: Copy {
    /// Writes a part of the pack from element `at` on, where `when` holds.
    ///
    /// # Safety
    /// The elements are there to be written, and `at` is a multiple of a pack's elements.
    unsafe fn set_pack(self, when: bool, at: usize, pack: Pack, part: Part);

    /// Writes an element.
    ///
    /// # Safety
    /// The element is there to be written.
    unsafe fn set(self, at: usize, value: T);
}

impl<T: Float> Sink<T> for GlobalMut<T> {
    #[inline(always)]
    unsafe fn set_pack(self, when: bool, at: usize, pack: Pack, part: Part) {
        // SAFETY: the caller's contract.
        unsafe { part.set(self, when, at, pack) };
    }

    #[inline(always)]
    unsafe fn set(self, at: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { GlobalMut::set(self, at, value) };
    }
}

/// The columns of a row that one thread writes: every so many units, in turn with others.
#[derive(Clone, Copy)]
pub(crate) struct Share<'a> {
    pub row: &'a Row,
    /// Columns of a unit: those of a pack, or one.
    pub unit: i32,
    /// First unit of the block's part of the row.
    pub first: u32,
    /// Units of it.
    pub units: u32,
    /// The thread, of the `lanes` that take its units in turn.
    pub lane: u32,
    pub lanes: u32,
}

impl Share<'_> {
    /// Of a row whose packs `lanes` threads of one block share.
    #[inline(always)]
    pub fn of_row<T: Float>(row: &Row, lane: u32, lanes: usize) -> Share<'_> {
        Share { row, unit: T::PER_PACK as i32, first: 0, units: u32::MAX, lane, lanes: lanes as u32 }
    }

    /// Whether the thread is the row's first.
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.first == 0 && self.lane == 0
    }

    /// Whether the thread has a column.
    #[inline(always)]
    pub fn has(&self, column: i32) -> bool {
        let number = (column as u32 / self.unit as u32).wrapping_sub(self.first);
        number < self.units && number % self.lanes == self.lane
    }
}

/// What the whole row came to.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Number(Normaliser),
    Nan,
}

/// The softmax alone.
#[derive(Clone, Copy)]
pub(crate) struct Softmax;

impl<T: Float> Ending<T> for Softmax {
    type Known = ();
    const ZEROS: bool = true;

    #[inline(always)]
    unsafe fn begin(&self, _: &Params, _: u32, row: Row) -> ((), Row) {
        ((), row)
    }

    #[inline(always)]
    fn sink(&self, operands: &Operands<T>) -> impl Sink<T> {
        operands.y
    }
}
