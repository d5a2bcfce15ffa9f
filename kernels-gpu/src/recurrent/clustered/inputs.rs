//! What a row of the batch is given at each step, on its way from memory to the warp that does its gates.

use super::super::has;
use super::super::operand::Operand;
use super::super::persistent::Sequence;
use super::CLUSTERED_UNITS;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Steps fetched ahead: memory takes longer than one.
const AHEAD: u32 = 4;

/// Elements of a warp's buffers.
pub const fn elements(operands: usize) -> u32 {
    (AHEAD + 1) * operands as u32 * CLUSTERED_UNITS
}

/// Packs of an operand.
const PACKS: u32 = CLUSTERED_UNITS / 8;

/// A lane's pack of every time.
#[derive(Clone, Copy)]
struct OfPack<T> {
    from: Global<T>,
    /// Its first element at the time that is fetched next, and the distance to that of the time behind.
    at: usize,
    per_time: usize,
    exists: bool,
}

/// The warp's buffers, each of all operands of a step, and which are next. `F` gives the operand of a number.
#[derive(Clone, Copy)]
pub struct Inputs<'a, T, F> {
    source: F,
    operands: u32,
    of_packs: [OfPack<T>; 2],
    buffers: Shared<T>,
    p: &'a Sequence,
    /// The warp's row of the batch, and whether there is one; the block's first unit.
    row: (u32, bool),
    first_unit: u32,
    /// The time that is fetched next, where there are steps left.
    time: u32,
    left: u32,
    /// The elements at which the buffers begin that are written and read next.
    target: u32,
    present: u32,
}

impl<'a, T: Half, F: Fn(u32) -> Operand<T>> Inputs<'a, T, F> {
    /// Of so many operands, a constant, with the first steps on their way, from the last time on where it is `reverse`. `first` is the byte at which the warp's
    /// [`elements`] begin.
    ///
    /// # Safety
    /// As [`Self::fetch`].
    #[inline(always)]
    pub unsafe fn new(
        (source, operands): (F, usize),
        (p, reverse): (&'a Sequence, bool),
        row: (u32, bool),
        first_unit: u32,
        first: u32,
    ) -> Self {
        let time = if reverse { p.steps - 1 } else { 0 };
        let of_pack = |turn: u32| {
            let pack = warp::lane_id() + turn * warp::SIZE;
            let (number, unit) = (pack / PACKS, first_unit + pack % PACKS * 8);
            let of = source(number);
            let elements = p.batch as usize * of.row_elements as usize;
            let of_row = row.0 as usize * of.row_elements as usize + (of.first + unit) as usize;
            OfPack {
                from: of.from,
                at: (time as usize).wrapping_mul(elements) + of_row,
                per_time: if reverse { elements.wrapping_neg() } else { elements },
                exists: (number < operands as u32) & of.is_given & row.1 & (unit < p.hidden),
            }
        };
        let of_packs = [of_pack(0), of_pack(1)];
        // SAFETY: the caller's contract.
        unsafe {
            let buffers = Shared::dynamic(first, elements(operands));
            let (operands, left) = (operands as u32, p.steps);
            let mut inputs = Inputs {
                source,
                operands,
                of_packs,
                buffers,
                p,
                row,
                first_unit,
                time,
                left,
                target: 0,
                present: 0,
            };
            // A loop that stays one: it is long.
            let mut step = 0;
            while step < AHEAD {
                bits::no_unroll();
                inputs.fetch(reverse);
                step += 1;
            }
            inputs
        }
    }

    /// The buffer behind that at an element.
    #[inline(always)]
    fn after(&self, buffer: u32) -> u32 {
        let elements = self.operands * CLUSTERED_UNITS;
        if buffer == AHEAD * elements { 0 } else { buffer + elements }
    }

    /// Starts to fetch what comes next as a group of copies, behind the last step zeros.
    ///
    /// # Safety
    /// Operands hold all rows of all times, in whole packs where `p` has that; the launch gives the bytes; all lanes of the warp call, and have read what
    /// came [`AHEAD`] steps before what they read last.
    #[inline(always)]
    unsafe fn fetch(&mut self, reverse: bool) {
        let is_left = self.left > 0;
        // SAFETY: the caller's contract.
        unsafe {
            if self.p.has & has::PACKS != 0 {
                for turn in 0..2 {
                    let (pack, of) = (warp::lane_id() + turn as u32 * warp::SIZE, &mut self.of_packs[turn]);
                    if pack < self.operands * PACKS {
                        self.buffers.copy_16_async(
                            self.target + pack * 8,
                            of.from,
                            of.at,
                            of.exists & is_left,
                        );
                        of.at = of.at.wrapping_add(of.per_time);
                    }
                }
            } else {
                let row = (self.time as usize).wrapping_mul(self.p.batch as usize) + self.row.0 as usize;
                let mut word = warp::lane_id();
                while word < self.operands * (CLUSTERED_UNITS / 2) {
                    let of = (self.source)(word / (CLUSTERED_UNITS / 2));
                    let unit = self.first_unit + word % (CLUSTERED_UNITS / 2) * 2;
                    let at = row * of.row_elements as usize + (of.first + unit) as usize;
                    let exists = of.is_given & self.row.1 & is_left & (unit < self.p.hidden);
                    self.buffers.copy_4_async(self.target + word * 2, of.from, at, exists);
                    word += warp::SIZE;
                }
            }
        }
        async_copy::commit();
        self.time = if reverse { self.time.wrapping_sub(1) } else { self.time + 1 };
        self.left = self.left.saturating_sub(1);
        self.target = self.after(self.target);
    }

    /// Waits for what was fetched for the present step.
    #[inline(always)]
    pub fn wait(&self) {
        async_copy::wait::<{ AHEAD - 1 }>();
        warp::sync_warp(u32::MAX);
    }

    /// What operand number `operand` has for the lane's unit at the present step.
    ///
    /// # Safety
    /// Something was fetched for it, which has been waited for.
    #[inline(always)]
    pub unsafe fn get(&self, operand: usize) -> f32 {
        let at = self.present + operand as u32 * CLUSTERED_UNITS + warp::lane_id();
        // SAFETY: the caller's contract.
        unsafe { self.buffers.get(at).to_f32() }
    }

    /// Is done with the present step, and starts to fetch what comes [`AHEAD`] steps on.
    ///
    /// # Safety
    /// As [`Self::fetch`]; all lanes have passed [`Self::wait`] of the present step, and so have read that before it, whose place this takes.
    #[inline(always)]
    pub unsafe fn advance(&mut self, reverse: bool) {
        self.present = self.after(self.present);
        // SAFETY: the caller's contract.
        unsafe { self.fetch(reverse) };
    }
}
