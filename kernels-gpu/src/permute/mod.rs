//! Elements in another order of their dimensions: y[i…] = x[i… permuted], bit for bit, for elements of 1, 2, 4, 8 or 16
//! bytes as opaque words; with a cast or a bias on the way where kernels say so.
//!
//! x has any strides that are not negative, y is contiguous. The host drops and merges dimensions and chooses
//! (`ops::permute`); what remains here is addresses.
//!
//! | module | what |
//! | --- | --- |
//! | `fetch` | runs that stay whole, and any strides: each thread fetches what it stores |
//! | `whole` | rows that stay whole, at any alignment: packs of y from the words of x around them |
//! | `packs` | boxes of elements through shared memory, as runs of x in and runs of y out, of any alignment |
//! | `part` | the packs of y that are two runs' |
//! | `boxes` | what the staged kernels share: places, spans, the way in |
//! | `turn` | boxes whose runs are aligned on both sides: words turned in registers |
//! | `tiles` | tiles of two dimensions, aligned on both sides, of fixed shapes |
//! | `in_place` | square matrices, tiles swapped with their mirror images |
//! | `unit` | elements as words |
//!
//! Floor: x once and y once, at the copy rate.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

mod boxes;
mod fetch;
mod in_place;
mod packs;
mod part;
mod tiles;
mod turn;
mod unit;
mod whole;

pub use boxes::{
    Boxes, DIRECT_LEVELS, Digit, ENTRY, Level, MAX_DIGITS, MAX_LEVELS, MAX_WITHIN, OUT_ENTRY, RUN_ENTRY,
    Span, Step, along_row,
};
pub use fetch::*;
pub use in_place::*;
pub use packs::*;
pub use tiles::*;
pub use turn::*;
pub use unit::Unit;
pub use whole::*;
