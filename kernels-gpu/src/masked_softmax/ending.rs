//! What becomes of a row's exponentials: the softmax itself, or a loss and its gradient.

use super::held::Normaliser;
use super::locate::Row;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// What an operation adds to the softmax of a row; by default nothing.
pub(crate) trait Ending<T: Float>: Copy {
    /// What it knows of a row.
    type Known: Copy;

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

/// Where results go.
pub(crate) trait Sink<T: Float>: Copy {
    /// Writes a pack from element `at` on, where `when` holds.
    ///
    /// # Safety
    /// The elements are there to be written, and `at` is a multiple of a pack's elements.
    unsafe fn set_pack(self, when: bool, at: usize, pack: Pack);

    /// Writes an element, where `when` holds.
    ///
    /// # Safety
    /// The element is there to be written.
    unsafe fn set(self, when: bool, at: usize, value: T);
}

impl<T: Float> Sink<T> for GlobalMut<T> {
    #[inline(always)]
    unsafe fn set_pack(self, when: bool, at: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { self.set_pack_if(when, at, pack) };
    }

    #[inline(always)]
    unsafe fn set(self, when: bool, at: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { self.set_if(when, at, value) };
    }
}

/// The columns of a row that one thread writes.
#[derive(Clone, Copy)]
pub(crate) struct Share<'a> {
    pub row: &'a Row,
    /// First pack of the block's part of the row.
    pub first: u32,
    /// Packs of it.
    pub packs: u32,
    /// Whether the loose elements are in it.
    pub loose: bool,
    /// The thread, of the `lanes` that take its columns in turn.
    pub lane: u32,
    pub lanes: u32,
}

impl Share<'_> {
    /// Of a row that `lanes` threads of one block share.
    #[inline(always)]
    pub fn of_row(row: &Row, lane: u32, lanes: usize) -> Share<'_> {
        Share { row, first: 0, packs: u32::MAX, loose: true, lane, lanes: lanes as u32 }
    }

    /// Whether the thread is the row's first.
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.loose && self.lane == 0
    }

    /// Whether the thread has a column.
    #[inline(always)]
    pub fn has<T: Float>(&self, column: i32) -> bool {
        let row = self.row;
        let (number, is_here) = if column >= 0 && column < row.whole {
            let pack = (column as u32 / T::PER_PACK as u32).wrapping_sub(self.first);
            (pack, pack < self.packs)
        } else {
            let before = column - row.first;
            (if column < 0 { before } else { before - row.whole } as u32, self.loose)
        };
        is_here && number % self.lanes == self.lane
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

    #[inline(always)]
    unsafe fn begin(&self, _: &Params, _: u32, row: Row) -> ((), Row) {
        ((), row)
    }

    #[inline(always)]
    fn sink(&self, operands: &Operands<T>) -> impl Sink<T> {
        operands.y
    }
}
