//! Sums of gradients over rows and steps: what those of biases are made of.
//!
//! dbias\[gate, unit\] = Σ over steps and rows of dgx, or of dgh. Who computes them adds up what it computes of a unit, in f32 and not rounded, and leaves that as a row of partial
//! sums, which `column_sums` adds up. So dgx and dgh need not be read again.

use super::GRU;
use cuda_std::prelude::*;

/// A thread's sums of one unit.
#[derive(Clone, Copy)]
pub struct OfBias<const GATES: usize> {
    /// Of each gate of gx.
    of_x: [f32; GATES],
    /// Of the last gate of gh, which of a GRU is another.
    last_of_h: f32,
}

impl<const GATES: usize> OfBias<GATES> {
    /// Of nothing.
    #[inline(always)]
    pub const fn new() -> Self {
        OfBias { of_x: [0.0; GATES], last_of_h: 0.0 }
    }

    /// Adds those of a step, dgx and dgh.
    #[inline(always)]
    pub fn add(&mut self, dgx: [f32; GATES], dgh: [f32; GATES]) {
        for gate in 0..GATES {
            self.of_x[gate] += dgx[gate];
        }
        if const { GATES == GRU } {
            self.last_of_h += dgh[GATES - 1];
        }
    }

    /// Writes row `row` of `rows` partial sums to `to`: `[rows, GATES·hidden]` of gx, behind which of a GRU those of gh lie.
    ///
    /// # Safety
    /// They have room, nobody else writes that unit's of the row, and the unit is one of `hidden`.
    #[inline(always)]
    pub unsafe fn store(self, to: GlobalMut<f32>, (row, rows): (u32, u32), (unit, hidden): (u32, u32)) {
        let at = |row: u32, gate: usize| (row as usize * GATES + gate) * hidden as usize + unit as usize;
        // SAFETY: the caller's contract.
        unsafe {
            for gate in 0..GATES {
                to.set(at(row, gate), self.of_x[gate]);
                if const { GATES == GRU } {
                    let of_h = if gate + 1 < GATES { self.of_x[gate] } else { self.last_of_h };
                    to.set(at(rows + row, gate), of_h);
                }
            }
        }
    }
}
