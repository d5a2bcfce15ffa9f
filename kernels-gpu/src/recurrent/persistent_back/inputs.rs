//! What the gates of a turn are computed from, on its way from memory to the warps that do them.

use super::{OWNERS, Operands, UNITS_BACK, operands};
use crate::recurrent::exchange::COLUMNS;
use crate::recurrent::has;
use crate::recurrent::operand::Operand;
use crate::recurrent::persistent::Sequence;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Turns fetched ahead: memory takes longer than one.
const AHEAD: u32 = 3;

/// Elements of all buffers.
pub const fn elements(gates: usize) -> u32 {
    (AHEAD + 1) * operands(gates) * OWNERS
}

/// What a unit's gates are computed from.
pub struct OfUnit<const GATES: usize> {
    pub gx: [f32; GATES],
    pub gh: [f32; GATES],
    pub state: f32,
    pub dy: f32,
}

/// Packs that a thread copies of a turn.
const MOST_PACKS: usize = 2;

/// Where a pack or a word of every turn comes from.
#[derive(Clone, Copy)]
struct Source<T> {
    from: Global<T>,
    /// Elements from a row to the next, and from the start of the turn's first row.
    row_elements: u32,
    first: u32,
    /// Whether it is one of a turn's, and whether it exists in memory.
    is_there: bool,
    exists: bool,
}

/// The row of pack or word number `i`, of `WIDTH` units.
#[inline(always)]
fn column_of<const WIDTH: u32>(i: u32) -> u32 {
    i / const { UNITS_BACK / WIDTH } % COLUMNS
}

impl<T: Half> Source<T> {
    /// Pack or word number `i` of a turn, of `WIDTH` units.
    #[inline(always)]
    fn new<const GATES: usize, const WIDTH: u32>(of: &Operands<T>, p: &Sequence, i: u32) -> Self {
        let number = i / const { OWNERS / WIDTH };
        let unit = thread::block_idx_x() * UNITS_BACK + i % const { UNITS_BACK / WIDTH } * WIDTH;
        let Operand { from, row_elements, first, is_given } = of.given.operand::<GATES>(p, number);
        Source {
            from,
            row_elements,
            first: column_of::<WIDTH>(i) * row_elements + first + unit,
            is_there: number < operands(GATES),
            exists: is_given & (unit < p.hidden),
        }
    }
}

/// Buffers in shared memory, each of all operands of a turn, and which are next.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T, const GATES: usize, const SETS: usize> {
    of: &'a Operands<T>,
    buffers: Shared<T>,
    p: &'a Sequence,
    /// Among the sets of threads that do gates, and among the threads of one.
    set: u32,
    thread: u32,
    /// What the thread copies by packs.
    packs: [Source<T>; MOST_PACKS],
    /// Step, from the last on, and sub-batch to be fetched next, and where to.
    next: (u32, u32),
    target: u32,
    /// The buffer to be read.
    present: u32,
}

impl<'a, T: Half, const GATES: usize, const SETS: usize> Inputs<'a, T, GATES, SETS> {
    /// With the first turns on their way.
    ///
    /// # Safety
    /// As [`Self::fetch`]; the launch gives [`elements`] of each set from byte `first` on.
    #[inline(always)]
    pub unsafe fn new(of: &'a Operands<T>, p: &'a Sequence, (set, thread): (u32, u32), first: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let count = const { elements(GATES) };
            let buffers = Shared::dynamic(first + set * count * 2, count);
            let source = |turn: u32| Source::new::<GATES, 8>(of, p, thread + turn * OWNERS);
            let packs = [source(0), source(1)];
            let mut inputs =
                Inputs { of, buffers, p, set, thread, packs, next: (0, set), target: 0, present: 0 };
            // A loop that stays one: it is long.
            let end = bits::opaque(AHEAD);
            while inputs.target < end {
                bits::no_unroll();
                inputs.fetch();
            }
            inputs
        }
    }

    /// The element at which a buffer begins.
    #[inline(always)]
    fn first_of(buffer: u32) -> u32 {
        buffer * const { operands(GATES) * OWNERS }
    }

    /// Starts to fetch the next turn, by packs or words, as a group of copies; behind the last step an empty group.
    ///
    /// # Safety
    /// The operands are as [`sequence_back()`](fn@super::sequence_back) says, and start in whole packs where `p` has that; all threads that do gates
    /// call, and have read the turn before the present one.
    #[inline(always)]
    pub unsafe fn fetch(&mut self) {
        let (step, sub) = self.next;
        if step < self.p.steps {
            // SAFETY: the caller's contract.
            unsafe {
                let time = if self.p.reverse == 0 { self.p.steps - 1 - step } else { step };
                let first_row = self.p.row((sub, 1), 0).0;
                if self.p.has & has::PACKS != 0 {
                    for turn in 0..MOST_PACKS {
                        let pack = self.thread + turn as u32 * OWNERS;
                        self.copy::<8>(pack, self.packs[turn], time, first_row);
                    }
                } else {
                    let mut word = self.thread;
                    while word < const { operands(GATES) * OWNERS / 2 } {
                        let source = Source::new::<GATES, 2>(self.of, self.p, word);
                        self.copy::<2>(word, source, time, first_row);
                        word += OWNERS;
                    }
                }
            }
        }
        async_copy::commit();
        let next = sub + SETS as u32;
        self.next = if next >= self.p.subs { (step + 1, self.set) } else { (step, next) };
        self.target = if self.target == AHEAD { 0 } else { self.target + 1 };
    }

    /// Copies pack or word number `i`, of `WIDTH` units, of the rows of a time from `first_row` on.
    ///
    /// # Safety
    /// As [`Self::fetch`].
    #[inline(always)]
    unsafe fn copy<const WIDTH: u32>(&self, i: u32, of: Source<T>, time: u32, first_row: u32) {
        let column = column_of::<WIDTH>(i);
        let exists = of.exists & (column < self.p.rows) & (first_row + column < self.p.batch);
        let row = time as usize * self.p.batch as usize + first_row as usize;
        let from = row * of.row_elements as usize + of.first as usize;
        let to = Self::first_of(self.target) + i * WIDTH;
        // SAFETY: the caller's contract.
        unsafe {
            if const { WIDTH == 2 } {
                self.buffers.copy_4_async(to, of.from, from, exists);
            } else if of.is_there {
                self.buffers.copy_16_async(to, of.from, from, exists);
            }
        }
    }

    /// Waits for what this thread has fetched of the present turn; the other threads' is behind a barrier.
    #[inline(always)]
    pub fn wait(&self) {
        // Of turns ahead, all but the next.
        async_copy::wait::<{ AHEAD - 1 }>();
    }

    /// What a row and a unit of the block have, or zeros where nothing was fetched, and is done with the present turn.
    ///
    /// # Safety
    /// All threads have waited; `is_there` is whether something was fetched.
    #[inline(always)]
    pub unsafe fn take(&mut self, is_there: bool, column: u32, own: u32) -> OfUnit<GATES> {
        let get = |operand: usize| {
            let at = Self::first_of(self.present) + operand as u32 * OWNERS + column * UNITS_BACK + own;
            // SAFETY: the caller's contract.
            if is_there { unsafe { self.buffers.get(at).to_f32() } } else { 0.0 }
        };
        let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
        for gate in 0..GATES {
            (gx[gate], gh[gate]) = (get(gate), get(GATES + gate));
        }
        let (state, dy) = (get(2 * GATES), get(2 * GATES + 1));
        self.present = if self.present == AHEAD { 0 } else { self.present + 1 };
        OfUnit { gx, gh, state, dy }
    }
}
