//! All steps of a sequence in one launch.
//!
//! y\[t\] = h\[t + 1\] = step(gx\[t\], h\[t\]·w_hhᵀ + bias), with sums, gates and the carried h and c in f32; of f16 and bf16 h is
//! rounded where it is multiplied and where it leaves (`halves`), of f32 it is multiplied in two parts (`floats`).
//!
//! The batch is dealt to groups of blocks that never talk. A group's blocks own units of their own, and hold all rows of
//! w_hh of these as A fragments, in registers and shared memory of eight warps, each a slice of the columns. A step goes
//! by *sub-batches* of eight rows, or fewer where there are blocks enough: h is received (`exchange`) straight into B fragments.
//!
//! Rows of the batch beyond their length keep h, and have y 0. In reverse, the steps are taken from the last time to
//! the first.
//!
//! Launch: cooperative, grid (blocks of a group, groups), the form's bytes of dynamic shared memory; the exchange poisoned.
//!
//! Source: persistent recurrent kernels (Diamos et al., 2016), as a technique.

mod floats;
mod fused;
mod gates;
pub(super) mod halves;
mod inputs;
pub(super) mod multiply;

pub use floats::*;
pub use fused::*;
pub use halves::*;

use super::exchange::Ring;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Warps of a block that multiply.
pub const WARPS: u32 = 8;

/// What a sequence is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Steps, at least 1.
    pub steps: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// Hidden units; of f16 and bf16 an even number.
    pub hidden: u32,
    /// Elements from a row of the weight to the next, whole packs: zeros behind the units.
    pub weight_row: u32,
    /// Sub-batches of a group.
    pub subs: u32,
    /// Rows of a sub-batch: [`COLUMNS`](crate::recurrent::COLUMNS), or, of one sub-batch in 16 bits, a smaller power of two.
    pub rows: u32,
    /// Whether the steps begin at the last time.
    pub reverse: u32,
    /// Bits of [`has`].
    pub has: u32,
    /// Elements from a time of y to the next, and from a row to the next.
    pub y_time: i64,
    /// See `y_time`.
    pub y_row: i64,
    /// The exchange.
    pub ring: Ring,
}
plain_parameter!(Sequence);

impl Sequence {
    /// The row of the batch that a column of `span` sub-batches of the block's group is, from `sub` on, and whether there is one. Those of several
    /// follow one another, as these have [`COLUMNS`](crate::recurrent::COLUMNS) each.
    #[inline(always)]
    pub(super) fn row(&self, (sub, span): (u32, u32), column: u32) -> (u32, bool) {
        let row = (thread::block_idx_y() * self.subs + sub) * self.rows + column;
        (row, (column < self.rows * span) & (row < self.batch))
    }

    /// The lane whose column this one has: beyond the rows of a sub-batch columns are those before again, which nobody looks at, and nothing more
    /// is read for.
    #[inline(always)]
    pub(super) fn lane(&self) -> u32 {
        warp::lane_id() & (self.rows * 4 - 1)
    }
}

/// Hidden units of a block with so many tiles of 16 rows.
pub(in crate::recurrent) const fn units(gates: usize, tiles: usize) -> u32 {
    (tiles * 16 / gates) as u32
}

/// The sum of the warps' parts, by pairs: additions that wait for one another are three, not eight.
#[inline(always)]
pub(in crate::recurrent) fn total(part: impl Fn(u32) -> f32) -> f32 {
    const { assert!(WARPS == 8) };
    let two = |i: u32| part(i) + part(i + 1);
    (two(0) + two(2)) + (two(4) + two(6))
}
