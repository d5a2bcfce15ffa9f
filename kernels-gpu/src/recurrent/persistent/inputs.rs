//! gx on its way from memory to the warps that do the gates.

use super::gates::has_few;
use super::{Sequence, units};
use crate::recurrent::exchange::COLUMNS;
use crate::recurrent::has;
use cuda_std::prelude::*;

/// Turns of so many sub-batches that gx is fetched ahead: memory takes longer than one.
const fn ahead(span: usize) -> u32 {
    if span == 1 { 3 } else { 2 }
}

/// Elements from a row of a buffer to the next: whole packs, and threads of a warp read other banks in each row.
const fn row_of(units: u32) -> u32 {
    units + 8
}

/// Elements of all buffers.
pub const fn elements(gates: usize, units: u32, span: usize) -> u32 {
    (ahead(span) + 1) * gates as u32 * span as u32 * COLUMNS * row_of(units)
}

/// Buffers in shared memory, each of all gates and rows of a turn, `SPAN` sub-batches, and which are next.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T, const GATES: usize, const TILES: usize, const SPAN: usize> {
    gx: Global<T>,
    buffers: Shared<T>,
    p: &'a Sequence,
    /// Among the threads that do gates.
    thread: u32,
    /// Step and first sub-batch to be fetched next, and where to.
    next: (u32, u32),
    target: u32,
    /// The buffer to be read.
    present: u32,
}

impl<'a, T: Half, const GATES: usize, const TILES: usize, const SPAN: usize>
    Inputs<'a, T, GATES, TILES, SPAN>
{
    /// The last buffer.
    const LAST: u32 = ahead(SPAN);
    /// Rows of a turn.
    const ROWS: u32 = SPAN as u32 * COLUMNS;

    /// With the first turns on their way.
    ///
    /// # Safety
    /// As [`Self::fetch`]; the launch gives [`elements`] from byte `first` on.
    #[inline(always)]
    pub unsafe fn new(gx: Global<T>, p: &'a Sequence, thread: u32, first: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let buffers = Shared::dynamic(first, const { elements(GATES, units(GATES, TILES), SPAN) });
            let mut inputs = Inputs { gx, buffers, p, thread, next: (0, 0), target: 0, present: 0 };
            while inputs.target < Self::LAST {
                inputs.fetch();
            }
            inputs
        }
    }

    #[inline(always)]
    fn place(buffer: u32, gate: u32, column: u32) -> u32 {
        ((buffer * GATES as u32 + gate) * Self::ROWS + column) * row_of(units(GATES, TILES))
    }

    /// Starts to fetch the next turn, a pack a thread or a word of each gate, as a group of copies; behind the last step an
    /// empty group.
    ///
    /// # Safety
    /// gx is as [`sequence()`](fn@super::sequence) says, and in whole packs where `p` has that; all threads that do gates call, and have
    /// read the turn before the present one.
    #[inline(always)]
    pub unsafe fn fetch(&mut self) {
        let (units, p) = (const { units(GATES, TILES) }, self.p);
        let (step, sub) = self.next;
        if step < p.steps {
            let time = if p.reverse == 0 { step } else { p.steps - 1 - step };
            let first_unit = thread::block_idx_x() * units;
            let batch_row = |column: u32| {
                if has_few(units, SPAN) {
                    return p.row((sub, SPAN as u32), column);
                }
                let row = (thread::block_idx_y() * p.subs + sub) * COLUMNS + column;
                (row, row < p.batch)
            };
            let from = |column: u32, gate: u32, unit: u32| {
                let row = time as usize * p.batch as usize + batch_row(column).0 as usize;
                (row * GATES + gate as usize) * p.hidden as usize + (first_unit + unit) as usize
            };
            let exists = |column: u32, unit: u32| first_unit + unit < p.hidden && batch_row(column).1;
            let to = |column: u32, gate: u32, unit: u32| Self::place(self.target, gate, column) + unit;
            // SAFETY: the caller's contract.
            unsafe {
                if p.has & has::PACKS != 0 {
                    let packs = units / 8;
                    let (unit, column) = (self.thread % packs * 8, self.thread / packs % Self::ROWS);
                    let gate = self.thread / packs / Self::ROWS;
                    if gate < GATES as u32 {
                        let (to, from) = (to(column, gate, unit), from(column, gate, unit));
                        self.buffers.copy_16_async(to, self.gx, from, exists(column, unit));
                    }
                } else {
                    let words = units / 2;
                    let (unit, column) = (self.thread % words * 2, self.thread / words);
                    if column < Self::ROWS {
                        for gate in 0..GATES as u32 {
                            let (to, from) = (to(column, gate, unit), from(column, gate, unit));
                            self.buffers.copy_4_async(to, self.gx, from, exists(column, unit));
                        }
                    }
                }
            }
        }
        async_copy::commit();
        self.next = if sub + (SPAN as u32) == p.subs { (step + 1, 0) } else { (step, sub + SPAN as u32) };
        self.target = if self.target == Self::LAST { 0 } else { self.target + 1 };
    }

    /// Waits for what this thread has fetched of the present turn; the other threads' is behind a barrier.
    #[inline(always)]
    pub fn wait(&self) {
        // Of turns ahead, all but the next.
        if const { SPAN == 1 } {
            async_copy::wait::<{ ahead(1) - 1 }>();
        } else {
            async_copy::wait::<{ ahead(2) - 1 }>();
        }
    }

    /// All gates of a row and a unit of the block.
    ///
    /// # Safety
    /// All threads have waited.
    #[inline(always)]
    pub unsafe fn get(&self, column: u32, unit: u32) -> [f32; GATES] {
        let mut gates = [0.0; GATES];
        for gate in 0..GATES {
            let at = Self::place(self.present, gate as u32, column) + unit;
            // SAFETY: the caller's contract.
            gates[gate] = unsafe { self.buffers.get(at).to_f32() };
        }
        gates
    }

    /// Is done with the present turn.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.present = if self.present == Self::LAST { 0 } else { self.present + 1 };
    }
}
