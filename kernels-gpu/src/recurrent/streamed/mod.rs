//! Sequences whose recurrent weights do not fit on chip: two launches a step, of which the first reads the weights as fast as memory
//! gives them.
//!
//! What tensor cores multiply is made once for all steps: of 16-bit types the weights as they are, of f32 two f16 a number
//! ([`take_apart()`](fn@take_apart)), high and low, for a power of two that takes the largest of each [`TERMS`] neighbours to 2¹⁴..2¹⁵.
//! A number keeps 22 bits, one far below its neighbours' largest counts in multiples of 2⁻³⁹ of that; of the four products of parts that
//! of both lows is left out. Sums of [`TERMS`] terms are scaled back and added up in f32.
//!
//! A step is then [`stream_product()`](fn@stream_product), or [`stream_product_f32()`](fn@stream_product_f32), of the weights and the state, which
//! shares out rows and terms to blocks, and [`stream_gates()`](fn@stream_gates), which adds up the terms' shares, does the gates and leaves the next
//! state as parts. Backwards it is [`stream_gates_back()`](fn@stream_gates_back), which leaves the gradients of the gates' inputs as
//! parts, and their product with the weights turned over. These may be launched early: the product fetches weights while the gates before
//! it are done, the gates their inputs during the product. Of 16-bit types one launch does all steps backwards ([`stream_walk_back()`](fn@stream_walk_back)).
//!
//! Rows of parts are [`TERMS`]·n terms, zeros behind the units: of each gate, where gates are terms.

mod four;
mod gates;
mod gates_back;
mod product;
mod slots;
mod walk_back;
mod whole_parts;

pub use gates::*;
pub use gates_back::*;
pub use product::*;
pub use slots::{WALK_CHUNKS, WALK_ROWS, walk_shared_bytes};
pub use walk_back::*;
pub use whole_parts::*;

use super::parts::Parts;
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::warpgroup;
use cuda_std::warpgroup::WarpgroupHalf;

/// Terms that are scaled alike, and that are multiplied at a time.
pub const TERMS: u32 = warpgroup::TERMS;
/// Rows of the batch of a block.
pub const STREAM_COLUMNS: u32 = 64;

/// A type whose parts warpgroups multiply.
pub trait Streamed: Parts<Part: WarpgroupHalf> {}
impl<T: Parts<Part: WarpgroupHalf>> Streamed for T {}

/// What the gates of a step are asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StreamStep {
    /// Fours of units, up to a multiple of [`TERMS`].
    pub fours: Divisor,
    /// Rows of the batch.
    pub batch: u32,
    /// Hidden units.
    pub hidden: u32,
    /// The step's time.
    pub time: u32,
    /// Bits of [`has`](super::has).
    pub has: u32,
    /// Shares of the terms of a sum.
    pub splits: u32,
    /// Elements from a row of y (or of its gradient) to the next.
    pub y_row: i64,
}
plain_parameter!(StreamStep);
