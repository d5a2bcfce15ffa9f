//! Rows of a table, chosen by tokens: y[b, t] = wte[tokens[b, t]] + wpe[t].
//!
//! tokens: [B, T] of u32, i32 or i64, with any strides. wte: [V, C], wpe: [P, C], of T = f32 | f16 | bf16. y: [B, T, C],
//! contiguous. The sum is taken in f32 and rounded once; without wpe the bits of wte's rows are copied.
//!
//! | module | what |
//! | --- | --- |
//! | `tokens` | reads a token, and records one that has no row in the table |
//! | `lookup` | the kernels |
//!
//! Floor: y once, and a row of wte for each token, at the copy rate. Rows that repeat, and wpe, are served by L2.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

mod lookup;
mod tokens;

pub use lookup::*;
pub use tokens::{FAULT_BITS, Tokens, token_kind};
