//! What a step's gates are computed from, as it lies in memory.

use super::has;
use super::persistent::Sequence;
use cuda_std::prelude::*;

/// An operand of a step: of each row of all of its times so many elements, of which those from `first` on are the hidden units.
#[derive(Clone, Copy)]
pub struct Operand<T> {
    pub from: Global<T>,
    pub row_elements: u32,
    pub first: u32,
    /// Whether there is such an operand.
    pub is_given: bool,
}

/// What the gates of a gradient are computed from: the inputs of each gate by x and by h, what the step began with, the gradient of y.
#[derive(Clone, Copy)]
pub struct OfGradient<T> {
    pub gx: Global<T>,
    pub gh: Global<T>,
    pub state: Global<T>,
    pub dy: Global<T>,
}

impl<T> OfGradient<T> {
    /// How many operands they are.
    pub const fn count(gates: usize) -> usize {
        2 * gates + 2
    }

    /// Number `number` of them, in that order; behind the last anything.
    #[inline(always)]
    pub fn operand<const GATES: usize>(&self, p: &Sequence, number: u32) -> Operand<T> {
        let gates = const { GATES as u32 };
        let of_gate = |from, gate: u32| (from, gates * p.hidden, gate * p.hidden, true);
        let (from, row_elements, first, is_given) = if number < gates {
            of_gate(self.gx, number)
        } else if number < 2 * gates {
            of_gate(self.gh, number - gates)
        } else if number == 2 * gates {
            (self.state, p.hidden, 0, true)
        } else {
            (self.dy, p.hidden, 0, p.has & has::Y != 0)
        };
        Operand { from, row_elements, first, is_given }
    }
}
