//! Rows of a table, chosen by tokens: y[b, t] = wte[tokens[b, t]] + wpe[t].
//!
//! tokens: [B, T] of u32, i32 or i64, with any strides. wte: [V, C], wpe: [P, C], of T = f32 | f16 | bf16. y: [B, T, C],
//! contiguous. The sum is taken in f32 and rounded once; without wpe the bits of wte's rows are copied. Sequences of different
//! lengths are packed: tokens [total], cu_seqlens [sequences + 1] of i32 or i64, and t begins again with each.
//!
//! | module | what |
//! | --- | --- |
//! | `tokens` | reads a token, and records one that has no row in the table |
//! | `boundaries` | where packed sequences begin |
//! | `lookup` | the kernels of the forward pass |
//! | `strips` | what the next two have in common |
//! | `windows` | the forward pass for rows of 16-bit elements that packs do not fit |
//! | `words` | and of f32 |
//! | `few` | both gradients of few tokens |
//! | `sort` | sorts the tokens, for the gradient of wte |
//! | `merge` | sorts few tokens |
//! | `sums` | dwte: sums of dy over the tokens of each row |
//! | `positions` | dwpe: sums of dy over the sequences |
//! | `together` | the last two, and zeros, of few tokens |
//!
//! Floor: y once, and a row of wte for each token, at the copy rate. Rows that repeat, and wpe, are served by L2.
//! Backward: dy once for dwte, again for dwpe, and both gradients once; no floating-point atomics.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

mod boundaries;
mod few;
mod lookup;
mod merge;
mod positions;
mod sort;
mod strips;
mod sums;
mod together;
mod tokens;
mod unit;
mod windows;
mod words;

pub use boundaries::{Boundaries, KeptColumns, kept_columns, read_boundaries};
pub use few::*;
pub use lookup::*;
pub use merge::{MERGE_KEYS, MERGE_TILE, merge_tiles, sort_tiles};
pub use positions::{PositionSums, sum_positions_elements, sum_positions_packs};
pub use sort::*;
pub use strips::Strips;
pub use sums::{
    SUM_ELEMENTS, Sums, ZERO_STRIPS, finish_runs_elements, finish_runs_packs, sum_pieces_elements,
    sum_pieces_packs, zero_rows_elements, zero_rows_packs,
};
pub use together::{Together, sum_together};
pub use tokens::{FAULT_BITS, Tokens, token_kind};
pub use windows::lookup_windows;
pub use words::{lookup_words, strips};

/// Every pack is one load: with positions two for each unit, of which L2 is asked to keep that of wpe, and of dy as many as are in flight.
#[cfg(target_arch = "nvptx64")]
mod expectations {
    macro_rules! expect {
        ($($line:literal)*) => {$(
            core::arch::global_asm!(concat!("//@expect embedding_", $line));
        )*};
    }
    expect! {
        "lookup_packs_f32_1_2 ==2 ld.global.nc.L2::cache_hint.v4"
        "lookup_packs_f32_1_2 ==2 ld.global.nc.v4"
        "lookup_packs_bf16_0_2 ==2 ld.global.nc.L2::cache_hint.v4"
        "sum_positions_packs_f16_0 ==8 ld.global.nc.L2::cache_hint.v4"
        "sum_few_packs_bf16 ==8 ld.global.nc.L2::cache_hint.v4"
    }
}
