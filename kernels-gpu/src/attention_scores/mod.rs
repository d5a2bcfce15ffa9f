//! The probabilities of attention: softmax(scale·q·kᵀ + mask) in one kernel that never writes the scores.
//!
//! y[r, j] = exp(s[r, j] − m[r]) / Σ_j exp(s[r, j] − m[r]) over the kept keys, exactly 0 at every other, with s[r, j] =
//! scale·Σ_d q[r, d]·k[j, d] + bias[r, j] and m their maximum. Which keys are kept, and what becomes of rows without any and
//! of NaN and infinities, is as in [`masked_softmax`](crate::masked_softmax). Scores stay in f32 from their sum to the result,
//! which is rounded once.
//!
//! q: [queries, terms], k: [keys, terms], y: [queries, keys] for each of a batch of up to two dimensions, T = f16 | bf16.
//! Rows of q and k start at multiples of 16 bytes.
//!
//! | kernel | rows it serves | launch |
//! | --- | --- | --- |
//! | [`whole_rows()`](fn@whole_rows) | up to 1024 keys, which fit in shared memory | a block for some tiles of queries of one product |
//! | [`by_warpgroups()`](fn@by_warpgroups) | up to 384 keys, on Hopper: a family of its own; a bias that all queries share | the same |
//!
//! Floor: q, k and the mask once and y once, at the copy rate. By warps, keys beyond what a block's rows keep are neither read nor
//! multiplied, where lengths do not differ from row to row and by the causal limit; by warpgroups all are.
//!
//! Source: Milakov and Gimelshein 2018 (maxima and sums of parts); tiles and fragments as in [`matmul`](crate::matmul).

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]
// A kernel takes what it takes.
#![allow(clippy::too_many_arguments)]
// Each family uses a part of what both share.
#![cfg_attr(not(all(feature = "attention_scores", feature = "attention_scores_hopper")), allow(dead_code))]

#[cfg(feature = "attention_scores")]
mod group;
mod kept;
#[cfg(feature = "attention_scores_hopper")]
mod kept_bits;
#[cfg(feature = "attention_scores_hopper")]
mod key_bias;
#[cfg(feature = "attention_scores_hopper")]
mod lying;
#[cfg(feature = "attention_scores")]
mod mask;
#[cfg(feature = "attention_scores_hopper")]
mod scores;
#[cfg(feature = "attention_scores")]
mod tiles;
#[cfg(feature = "attention_scores_hopper")]
mod warpgroups;

#[cfg(feature = "attention_scores")]
pub use tiles::*;
#[cfg(feature = "attention_scores_hopper")]
pub use warpgroups::*;

use crate::masked_softmax::Exponent;
#[cfg(feature = "attention_scores_hopper")]
use crate::masked_softmax::mask_kind;
use crate::matmul::Matrix;
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;

/// Terms of a slice of q or k in shared memory: tiles of rows of 64 bytes.
pub const SLICE: u32 = 32;

/// The largest exponent of 2 of a maximum that scores need not be subtracted from first: the maximum's rounding moves a power by
/// 2^-17.
const NEAR: f32 = 128.0;

/// What a launch needs to know; computed by the host. The columns of lengths and starts have no meaning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Rows are queries, columns terms.
    pub q: Matrix,
    /// Rows are keys, columns terms.
    pub k: Matrix,
    /// Rows are queries, columns keys.
    pub y: Matrix,
    /// As y's.
    pub mask: Matrix,
    /// As y's rows.
    pub lengths: Matrix,
    /// As y's rows.
    pub starts: Matrix,
    /// Blocks that share a product.
    pub blocks: Divisor,
    /// Products of the batch's inner dimension.
    pub inner: Divisor,
    /// How a difference of scores becomes an exponent of 2.
    pub exponent: Exponent,
    /// What sums are multiplied by: the scale beside a bias, its sign otherwise (the exponent then has its magnitude).
    pub scale: f32,
    /// Rows of y.
    pub queries: u32,
    /// Columns of y.
    pub keys: u32,
    /// Terms of a sum.
    pub terms: u32,
    /// Tiles of queries that a block takes, one after the other.
    pub tiles: u32,
    /// One of [`mask_kind`].
    pub mask_kind: u32,
    /// All ones where a non-zero byte drops, else 0.
    pub mask_invert: u32,
    /// 1 where `lengths` is given.
    pub has_lengths: u32,
    /// 1 where `starts` is given.
    pub has_starts: u32,
    /// 1 for a causal limit.
    pub causal: u32,
    /// Added to the query's index to give the last kept column.
    pub causal_offset: i32,
}
plain_parameter!(Params);
// No padding: every byte of the parameter is a field's.
const _: () = assert!(size_of::<Params>() == 6 * 32 + 2 * 12 + 20 + 11 * 4);

/// What a kernel has to know of the masks and of how y and they lie.
pub mod form {
    /// No mask or one of bytes; by warpgroups a bias that all queries share, too. Eight columns of y, and of bytes, start at a multiple of their size.
    pub const PLAIN: usize = 0;
    /// A bias, by warps; as above.
    pub const BIASED: usize = 1;
    /// What is plain, but anywhere, and y anywhere, by warpgroups: masks element by element.
    pub const LOOSE: usize = 2;
}

impl Params {
    /// Whether the mask is a bias.
    #[cfg(feature = "attention_scores_hopper")]
    #[inline(always)]
    fn has_bias(&self) -> bool {
        self.mask_kind == mask_kind::BIAS || self.mask_kind == mask_kind::BIAS_F32
    }

    /// Whether rows keep a range of columns.
    #[inline(always)]
    fn has_range(&self) -> bool {
        (self.has_lengths | self.has_starts | self.causal) != 0
    }
}

/// Where a block's matrix of a batch begins.
#[inline(always)]
fn start(of: Matrix, outer: u32, inner: u32) -> i64 {
    outer as i64 * of.outer + inner as i64 * of.inner
}

/// Instructions that the kernels are made of: the products of the first slice and of all others, a load of a fragment of q
/// and twelve of k for each sixteen terms of both, and a store of a pack for each group and row.
#[cfg(all(target_arch = "nvptx64", feature = "attention_scores"))]
mod expectations {
    macro_rules! expect {
        ($($line:literal),*) => {$(
            core::arch::global_asm!(concat!("//@expect attention_scores_whole_rows_", $line));
        )*};
    }
    expect!(
        "bf16_0_1_6_2_2 ==96 mma.sync.aligned.m16n8k16",
        "bf16_0_1_6_2_2 ==52 ldmatrix.sync.aligned.m8n8.x4",
        "bf16_0_1_6_2_2 ==12 st.global.v4.b32"
    );
}

/// The same of Hopper's: the products of the first 64 terms and of all others, four for each piece, and a store of sixteen columns for each warp.
#[cfg(all(target_arch = "nvptx64", feature = "attention_scores_hopper"))]
mod expectations {
    macro_rules! expect {
        ($($line:literal),*) => {$(
            core::arch::global_asm!(concat!("//@expect attention_scores_hopper_by_warpgroups_", $line));
        )*};
    }
    expect!(
        "bf16_0_3_64 ==24 wgmma.mma_async.sync.aligned.m64n128k16",
        "bf16_0_3_64 ==24 stmatrix.sync.aligned.m8n8.x4",
        "bf16_2_3_64 ==0 stmatrix"
    );
}
