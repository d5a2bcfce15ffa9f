//! Masked softmax over the last axis, forward.
//!
//! y[r, j] = exp(scale·x[r, j] + bias[r, j] − m[r]) / s[r] at kept columns, exactly 0 elsewhere, with m the
//! maximum and s the sum of the exponentials over the row's kept columns. Kept is what `starts[r] ≤ j <
//! lengths[r]`, the causal limit `j ≤ q + causal_offset` and the mask (keep or drop, one byte an element)
//! leave. A row with nothing kept, or with nothing but −∞ kept, is zeros. A NaN or +∞ that is kept makes
//! every kept column of its row NaN.
//!
//! x: [rows, cols], T = f32 | f16 | bf16, rows addressed by up to [`MAX_ROW_DIMS`] strided dimensions.
//! y: the same shape, contiguous. Maximum and sum in f32.
//!
//! Floor: each kept x and mask byte once and each y once, at the copy rate. Packs
//! without a column inside `starts..lengths` and the causal limit are never read, but for masks that become bits first.
//!
//! | kernel | rows it serves | launch |
//! | --- | --- | --- |
//! | [`row()`](fn@row), [`long_row()`](fn@long_row), [`row_bias()`](fn@row_bias) | held in registers | lanes of a warp, a warp or a block a row |
//! | [`cluster_row()`](fn@cluster_row), [`cluster_row_bias()`](fn@cluster_row_bias) | held in the registers and the shared memory of a cluster (sm_90a) | up to 16 blocks a row |
//! | [`spread_row()`](fn@spread_row) | held in the shared memory of blocks that stay (sm_90a), several at a time | up to all multiprocessors a row |
//! | [`streamed()`](fn@streamed), [`streamed_bias()`](fn@streamed_bias) | longer: read twice, the second time partly from L2 | a block a row |
//! | [`mask_bits()`](fn@mask_bits) | a mask's own, turned into bits in front of rows that wait in shared memory | 32 bytes a thread |
//! | [`strided()`](fn@strided) | columns or masks with any stride, unaligned bases | a warp a row, element by element |
//!
//! Rows are read in the aligned 16-byte packs that cover them. Where a row begins or ends inside a pack, the rest of it,
//! elements of a neighbouring row, is read and dropped, and left alone where results are written.
//!
//! Source: Milakov and Gimelshein 2018 (one-pass maximum and sum); the row and cluster layouts follow
//! docs/PERFORMANCE.md's measurements.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]
// Each family uses a part of what both share.
#![cfg_attr(
    not(all(feature = "masked_softmax", feature = "masked_softmax_hopper")),
    allow(dead_code, unused_imports)
)]
// A kernel takes what it takes.
#![allow(clippy::too_many_arguments)]

mod bit_masks;
mod cluster_rows;
mod cross_entropy;
mod dropout;
mod ending;
mod exponent;
mod held;
mod joined_rows;
mod kept_powers;
mod locate;
mod nan_row;
mod packed_scores;
mod register_rows;
mod spread_rows;
mod staged;
mod streamed_rows;
mod strided_rows;
mod wide_scores;

pub use crate::exchange::MAX_CLUSTER;
pub use bit_masks::*;
pub use cluster_rows::*;
pub use cross_entropy::*;
pub use dropout::*;
pub use exponent::Exponent;
pub(crate) use held::finite_or_zero;
pub(crate) use locate::bound;
pub use locate::{MAX_ROW_DIMS, RowDim};
pub use register_rows::*;
pub use spread_rows::*;
pub use streamed_rows::*;
pub use strided_rows::*;

use cuda_std::prelude::*;

/// What the mask operand holds.
pub mod mask_kind {
    /// There is none.
    pub const NONE: u32 = 0;
    /// One byte an element, non-zero keeps (or drops, see `Params::mask_invert`).
    pub const BYTES: u32 = 1;
    /// A number of x's type, added after scaling.
    pub const BIAS: u32 = 2;
    /// An f32, added after scaling.
    pub const BIAS_F32: u32 = 3;
    /// A bit a column, set where it is kept: see [`mask_bits`](fn@super::mask_bits). Places count bits.
    pub const BITS: u32 = 4;
}

/// What a launch of any of the kernels needs to know; computed by the host.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The row dimensions, innermost first; the first `dim_count` count.
    pub dims: [RowDim; MAX_ROW_DIMS],
    /// Element index of row 0 in x.
    pub x_base: i64,
    /// Element index of row 0 in y.
    pub y_base: i64,
    /// Element index of row 0's column 0 in the mask.
    pub mask_base: i64,
    /// Element index of row 0 in `lengths`.
    pub lengths_base: i64,
    /// Element index of row 0 in `starts`.
    pub starts_base: i64,
    /// Query position of row 0.
    pub query_base: i64,
    /// Elements of x from its first; none beyond are read.
    pub x_len: i64,
    /// Elements of the mask from its first; none beyond are read.
    pub mask_len: i64,
    /// Column stride of x; other than 1 in `strided` only.
    pub x_stride: i64,
    /// Column stride of the mask; other than 1 in `strided` only.
    pub mask_stride: i64,
    /// How a difference of scores becomes an exponent of 2.
    pub exponent: Exponent,
    /// What x is multiplied by where scores are computed in f32: the scale beside a bias, its sign
    /// otherwise (the exponent then has its magnitude).
    pub scale: f32,
    /// Row dimensions in use.
    pub dim_count: u32,
    /// Rows of this launch, below 2^31.
    pub rows: u32,
    /// Columns, at most 2^31 − 2^15.
    pub cols: u32,
    /// One of [`mask_kind`].
    pub mask_kind: u32,
    /// All ones where a non-zero byte drops, else 0.
    pub mask_invert: u32,
    /// XORed into each word of x: sign bits for a negative scale (the exponent has its magnitude), else 0.
    pub flip: u32,
    /// 1 where rows may start or end inside a pack.
    pub ragged: u32,
    /// 1 where `lengths` is given.
    pub has_lengths: u32,
    /// How many rows ahead the length is that a row lets come to L2.
    pub lengths_ahead: u32,
    /// Rows that do so: all but the last, where lengths follow one another.
    pub rows_asking: u32,
    /// 1 where `starts` is given.
    pub has_starts: u32,
    /// 1 for a causal limit.
    pub causal: u32,
    /// Added to the query index to give the last kept column.
    pub causal_offset: i32,
    /// Packs of a row that each block of a cluster takes.
    pub slice: u32,
    /// 1 where the mask's packs may begin at any byte.
    pub mask_skewed: u32,
}
cuda_std::plain_parameter!(Params);
// No padding: every byte of the parameter is a field's.
const _: () = assert!(size_of::<Params>() == MAX_ROW_DIMS * 56 + 10 * 8 + 5 * 4 + 17 * 4);

impl Params {
    /// Whether rows may have fewer kept columns than they have.
    #[inline(always)]
    pub(crate) fn bounds_rows(&self) -> bool {
        (self.has_lengths | self.has_starts | self.causal) != 0
    }
}

/// The operands, as every kernel takes them.
#[derive(Clone, Copy)]
pub(crate) struct Operands<T> {
    pub x: Global<T>,
    pub mask: Global<u8>,
    pub lengths: Global<i32>,
    pub starts: Global<i32>,
    pub y: GlobalMut<T>,
    pub lengths_fault: GlobalMut<u64>,
    pub starts_fault: GlobalMut<u64>,
}
