//! All steps of a sequence in blocks that need not wait for one another: each holds all of w_hh.
//!
//! y\[t\] = h\[t + 1\] = step(gx\[t\], h\[t\]·w_hhᵀ + bias), with sums, gates and the carried h and c in f32; h is rounded
//! where it is multiplied and where it leaves.
//!
//! A block has rows of the batch for itself. Its threads hold w_hh in registers; h goes from one step to the next through
//! shared memory, behind one barrier. The gates of a unit are in the thread that holds its sums, so that nothing but h is
//! written there. gx is read some steps ahead ([`walk`]); the products are [`halves`] on tensor cores and [`floats`] by plain
//! f32 arithmetic.
//!
//! Rows of the batch beyond their length keep h, and have y 0. In reverse, the steps are taken from the last time to
//! the first.
//!
//! Backwards, a step's gradients of gh go to the step before in the same way: dh\[t\] gets dgh\[t\]·w_hh.
//!
//! Floor of a step: on tensor cores GATES·H² products of eight rows at 1024 a cycle, whether all eight rows exist or not: 0.2 µs
//! for a GRU of 128 units; in f32 GATES·H² products a row at 128 a cycle.

mod floats;
mod floats_back;
mod halves;
mod halves_back;
mod shares;
mod walk;
mod walk_back;

pub use floats::*;
pub use floats_back::*;
pub use halves::*;
pub use halves_back::*;

use cuda_std::plain_parameter;

/// What a sequence is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlockSequence {
    /// Steps, at least 1.
    pub steps: u32,
    /// Rows of the batch, at least 1.
    pub batch: u32,
    /// Hidden units, at least 1.
    pub hidden: u32,
    /// Elements from a row of the weight to the next, whole packs: zeros behind the units.
    pub weight_row: u32,
    /// Whether the steps begin at the last time.
    pub reverse: u32,
    /// Bits of [`has`](super::has); backwards only that of lengths.
    pub has: u32,
    /// Elements from a time of y, or of its gradient, to the next, and from a row to the next.
    pub y_time: i64,
    /// See `y_time`.
    pub y_row: i64,
}
plain_parameter!(BlockSequence);
