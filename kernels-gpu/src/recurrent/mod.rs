//! Recurrent layers: GRU and LSTM, by the step and by the sequence.
//!
//! With gates' inputs gx = x·w_ihᵀ + b_ih and gh = h·w_hhᵀ + b_hh, in PyTorch's order of gates:
//!
//! - GRU: r = σ(gx_r + gh_r), z = σ(gx_z + gh_z), n = tanh(gx_n + r·gh_n), h' = (1 − z)·n + z·h
//! - LSTM: i, f, o = σ(gx + gh), g = tanh(gx_g + gh_g), c' = f·c + i·g, h' = o·tanh(c')
//!
//! | kernel | for |
//! | --- | --- |
//! | [`sequence()`](fn@sequence), [`sequence_f32()`](fn@sequence_f32) | all steps of a sequence in one launch: the recurrent weights stay on chip, spread over blocks |
//! | [`sequence_hopper()`](fn@sequence_hopper) | the first of more than 512 units, on Hopper: of the other family |
//! | [`fused_sequence()`](fn@fused_sequence) | the first with the input's product, of few units and rows |
//! | [`clustered_sequence()`](fn@clustered_sequence), [`clustered_sequence_back()`](fn@clustered_sequence_back) | the first of few units and rows by clusters, and its gradient, on Hopper: of the other family |
//! | [`sequence_back()`](fn@sequence_back), [`sequence_back_f32()`](fn@sequence_back_f32) | the gradient of that |
//! | [`sequence_back_hopper()`](fn@sequence_back_hopper) | the first of more than 512 units, by pairs of blocks, on Hopper: of the other family |
//! | [`block_sequence()`](fn@block_sequence), [`block_sequence_f32()`](fn@block_sequence_f32) | the same for few units: every block holds all recurrent weights |
//! | [`block_backward()`](fn@block_backward), [`block_backward_f32()`](fn@block_backward_f32) | the gradient of that |
//! | [`cell()`](fn@cell) | one step with both products, weights read once |
//! | [`cluster_cell()`](fn@cluster_cell) | the same of 16-bit numbers and many units, by clusters, on Hopper: of the other family |
//! | [`gates()`](fn@gates) | one step for given gx and gh, any type |
//! | [`gates_backward()`](fn@gates_backward) | its gradient, recomputed from gx and gh |
//! | [`cells()`](fn@cells) | an LSTM's c of every step, for the gradient |
//! | [`previous()`](fn@previous) | the h that each step began with, for the gradient |
//! | [`stream_product()`](fn@stream_product), [`stream_product_f32()`](fn@stream_product_f32), [`stream_gates()`](fn@stream_gates), [`stream_gates_back()`](fn@stream_gates_back) | steps of weights that do not fit on chip, on Hopper: a family of its own |
//! | [`poison()`](fn@poison), [`check_lengths()`](fn@check_lengths) | what a sequence needs beforehand |
//!
//! Arithmetic is f32; exponentials are `ex2.approx`, relative error below 2^-20. No atomics take part in sums: the same
//! input gives the same bits.
//!
//! Floor of a step: the products' weights from where they live, and one exchange among all blocks.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]
// Each family uses a part of what both share.
#![cfg_attr(not(all(feature = "recurrent", feature = "recurrent_hopper")), allow(dead_code, unused_imports))]

mod backward;
mod bias;
mod block;
mod cell_clusters;
mod cell_products;
mod cell_stages;
mod clustered;
mod exchange;
mod lengths;
mod math;
mod operand;
mod parts;
mod persistent;
mod persistent_back;
mod quads;
mod slices;
mod step;
mod streamed;
mod weights;
mod whole;
mod words;

pub use backward::*;
pub use block::*;
pub use cell_clusters::*;
pub use cell_products::{FEW_UNITS, MANY_UNITS};
pub use cell_stages::*;
pub use clustered::*;
pub use exchange::*;
pub use lengths::*;
pub use parts::PARTS;
pub use persistent::*;
pub use persistent_back::*;
pub use step::*;
pub use streamed::*;
pub use whole::*;
pub use words::*;

/// Gates of a GRU.
pub const GRU: usize = 3;
/// Gates of an LSTM.
pub const LSTM: usize = 4;

/// Operands that a kernel may go without, and properties of them.
pub mod has {
    /// A bias of the recurrent product.
    pub const BIAS: u32 = 1;
    /// An initial h, or a gradient of it.
    pub const H: u32 = 2;
    /// An initial c, or a gradient of it.
    pub const C: u32 = 4;
    /// Lengths.
    pub const LENGTHS: u32 = 8;
    /// y, or its gradient.
    pub const Y: u32 = 32;
    /// Places for the gates' inputs of the recurrent product, and c, of all steps.
    pub const KEPT: u32 = 256;
    /// Rows of gx of whole packs.
    pub const PACKS: u32 = 128;
    /// What comes through a product.
    pub const PRODUCT: u32 = 64;
    /// A bias of the input's product.
    pub const X_BIAS: u32 = 512;
    /// Places for sums of the gates' gradients.
    pub const SUMS: u32 = 1024;
}
