//! Warpwright's kernels: `no_std` Rust that rustc compiles to PTX, and that runs on the CPU under the
//! checker. One module for each family of operations; each is a PTX file of its own.

#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![deny(missing_docs)]
#![allow(rustdoc::broken_intra_doc_links)] // formulas index with brackets

#[cfg(any(feature = "attention_scores", feature = "attention_scores_hopper"))]
pub mod attention_scores;
#[cfg(feature = "column_sums")]
pub mod column_sums;
#[cfg(any(
    feature = "attention_scores",
    feature = "attention_scores_hopper",
    feature = "masked_softmax",
    feature = "masked_softmax_hopper",
    feature = "pointwise",
    feature = "rows",
    feature = "rows_hopper"
))]
pub mod dropping;
#[cfg(feature = "embedding")]
pub mod embedding;
#[cfg(any(
    feature = "attention_scores",
    feature = "attention_scores_hopper",
    feature = "masked_softmax",
    feature = "masked_softmax_hopper",
    feature = "rows",
    feature = "rows_hopper"
))]
mod exchange;
#[cfg(any(feature = "matmul_hopper", feature = "recurrent", feature = "recurrent_hopper"))]
mod inbox;
#[cfg(any(
    feature = "attention_scores",
    feature = "attention_scores_hopper",
    feature = "masked_softmax",
    feature = "masked_softmax_hopper"
))]
pub mod masked_softmax;
#[cfg(any(
    feature = "attention_scores",
    feature = "attention_scores_hopper",
    feature = "matmul",
    feature = "matmul_hopper"
))]
pub mod matmul;
#[cfg(any(
    feature = "attention_scores",
    feature = "attention_scores_hopper",
    feature = "matmul",
    feature = "matmul_hopper",
    feature = "pointwise"
))]
mod normal;
#[cfg(feature = "permute")]
pub mod permute;
#[cfg(feature = "pointwise")]
pub mod pointwise;
#[cfg(feature = "probe")]
pub mod probe;
#[cfg(any(feature = "recurrent", feature = "recurrent_hopper"))]
pub mod recurrent;
#[cfg(any(feature = "rows", feature = "rows_hopper"))]
pub mod rows;
