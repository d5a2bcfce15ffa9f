//! The gradient of all steps of a sequence in one launch: as [`persistent`](super::persistent), backwards.
//!
//! dh\[t\] = dh\[t + 1\]·∂h'/∂h + dgh\[t\]·w_hh + dy\[t − 1\], with sums, slopes and the carried dh and dc in f32; of f16 and bf16
//! dgh is rounded where it is multiplied and where it leaves (`halves`). f32 is multiplied as tf32 in three products (`floats`): gradients have
//! any size, for which parts of 16 bits would need a scale.
//!
//! What blocks give one another is dgh of a step: GATES times as much as h. A block's units are the rows of its A fragments, and
//! the columns are those of all gates: of each gate a whole number of chunks, dealt to the warps in turn.
//!
//! Launch: cooperative, grid (blocks of a group, groups), the form's bytes of dynamic shared memory; the exchange poisoned.
//!
//! Floor of a step: each block reads its group's dgh from L2, or of a pair of blocks half of it.

mod floats;
mod gates;
mod halves;
mod inputs;

pub use floats::*;
pub use halves::*;

use super::exchange::COLUMNS;
use super::operand::OfGradient;
use cuda_std::prelude::*;

/// Hidden units of a block: a tile.
pub const UNITS_BACK: u32 = 16;

/// Threads that have a unit of a row of a sub-batch.
const OWNERS: u32 = COLUMNS * UNITS_BACK;

/// Numbers that a unit's gates are computed from.
const fn operands(gates: usize) -> u32 {
    OfGradient::<()>::count(gates) as u32
}

/// The gate of a chunk among those of all gates, `chunks` each, which of them it is there, and whether there is one: a warp's chunks go beyond the last.
#[inline(always)]
pub(super) fn gate_of<const GATES: usize>(chunk: u32, chunks: u32) -> (u32, u32, bool) {
    let (mut gate, mut of_gate) = (0, chunk);
    for _ in 1..GATES {
        if of_gate >= chunks {
            (gate, of_gate) = (gate + 1, of_gate - chunks);
        }
    }
    (gate, of_gate, chunk < GATES as u32 * chunks)
}

/// The operands of a walk.
struct Operands<T> {
    given: OfGradient<T>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    dbias: GlobalMut<f32>,
    exchange: GlobalMut<u32>,
}
