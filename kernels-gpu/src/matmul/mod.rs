//! Products of matrices with what models do behind them in the same pass.
//!
//! out[m,n] = act(alpha·Σ_k a[m,k]·b[n,k] + bias[n]) + beta·addend[m,n], or with the slope of an activation at
//! aux[m,n] in place of its value, for each product of a batch; columns may go out by the head of attention that they are of ([`Heads`]). Sums are in f32, of f16, bf16 or f32 operands. Here b has
//! its rows along n, as the weight of a linear layer has; strides make any other matrix of it.
//!
//! | kernel | operands | for |
//! | --- | --- | --- |
//! | [`tensor_cores()`](fn@tensor_cores) | 16-bit, rows along k or across it | everything that is not below |
//! | [`pipelined()`](fn@pipelined) | the same | the same, on Hopper: a family of its own |
//! | [`turned()`](fn@turned) | the same | the same, where tiles of 192 rows and 128 columns fit, on Hopper |
//! | [`alternating()`](fn@alternating) | the same | several tiles a multiprocessor, on Hopper: one is finished while the next is multiplied |
//! | [`clustered()`](fn@clustered) | the same | few tiles, on Hopper: in small ones, and clusters share out k |
//! | [`loose()`](fn@loose) | 16-bit, any alignment | few tiles of what would be copied first |
//! | [`narrow()`](fn@narrow) | 16-bit, a's rows along k, m ≤ 32 | decoding, on Hopper |
//! | [`thin()`](fn@thin) | 16-bit, rows along k, m ≤ 16 | decoding: b is read once, 16 bytes at a time |
//! | [`thin_f32()`](fn@thin_f32) | f32, rows along k, m ≤ 8 | the same in f32, in three products of tf32 |
//! | [`narrow_f32()`](fn@narrow_f32) | f32, a's rows along k, m ≤ 32 | the same on Hopper; of more than 16 rows rounded to tf32 if asked |
//! | [`short()`](fn@short) | all types, rows along k, m ≤ 16 | few terms: a warp multiplies columns by itself |
//! | [`small()`](fn@small), [`small_f32()`](fn@small_f32) | any strides | small matrices, and few terms, without GELU: a warp multiplies a tile by itself |
//! | [`tf32_cores()`](fn@tf32_cores) | f32, rows along k or across it | f32 in three products of tf32, or rounded to it if asked |
//! | [`parted()`](fn@parted) | f32 in parts of f16, which [`part_rows()`](fn@part_rows) and [`part_columns()`](fn@part_columns) make | the same on Hopper, where it is not small |
//! | [`tf32_pipelined()`](fn@tf32_pipelined) | f32, rows along k | f32 rounded to tf32, if asked, on Hopper |
//! | [`cuda_cores()`](fn@cuda_cores) | f32, any strides | f32 where tensor cores are slow, and what would be copied for little |
//! | [`reduce()`](fn@reduce) | f32 partial sums | adding up the splits of k, in their order |
//! | [`repack()`](fn@repack) | any strides | rows that do not start at multiples of 16 bytes; of f32, that are not whole packs either |
//! | [`behind()`](fn@behind) | contiguous | the gradients of the activation and of the bias |
//!
//! Kernels of few rows serve few columns, too: operands change places then, and rows of their tiles are [columns of the result](flag::BY_COLUMNS).
//!
//! Tiles are dealt out in bands of [`BAND`] rows of tiles, column by column, so that the blocks that run at a time
//! share operands in L2. A product of few tiles is split along k: blocks write partial sums, in f32, and
//! `reduce` adds them up. Nothing is added atomically: the same input gives the same bits.
//!
//! Floor: 2·m·n·k operations at the rate of the multiplier, or the operands and the result once at the copy rate.
//! Sources: NVIDIA's CUTLASS (multistage pipelines, swizzled tiles), as techniques.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]
// Each family uses a part of what both share.
#![cfg_attr(not(all(feature = "matmul", feature = "matmul_hopper")), allow(dead_code))]

mod activations;
#[cfg(feature = "matmul")]
mod alignment;
#[cfg(feature = "matmul_hopper")]
mod alternating_tiles;
#[cfg(feature = "matmul_hopper")]
mod clustered_tiles;
#[cfg(feature = "matmul_hopper")]
mod clusters;
#[cfg(feature = "matmul_hopper")]
mod consumer;
mod epilogue;
#[cfg(feature = "matmul_hopper")]
mod f32_consumer;
#[cfg(feature = "matmul")]
mod f32_tiles;
#[cfg(feature = "matmul_hopper")]
mod feed;
#[cfg(feature = "matmul")]
mod few_rows;
#[cfg(feature = "matmul")]
mod few_terms;
mod finish;
#[cfg(feature = "matmul")]
mod half_tiles;
#[cfg(feature = "matmul_hopper")]
mod loose_tiles;
#[cfg(feature = "matmul_hopper")]
mod narrow_f32_tiles;
#[cfg(feature = "matmul_hopper")]
mod narrow_tiles;
#[cfg(feature = "matmul_hopper")]
mod part;
#[cfg(feature = "matmul_hopper")]
mod parted_tiles;
#[cfg(feature = "matmul_hopper")]
mod parts;
#[cfg(feature = "matmul_hopper")]
mod parts_of_columns;
#[cfg(feature = "matmul_hopper")]
mod parts_of_rows;
#[cfg(feature = "matmul_hopper")]
mod piped_tiles;
mod place;
#[cfg(feature = "matmul_hopper")]
mod ring;
#[cfg(feature = "matmul_hopper")]
mod scale;
#[cfg(feature = "matmul_hopper")]
mod scatter;
#[cfg(any(feature = "attention_scores", feature = "matmul"))]
mod side;
#[cfg(feature = "matmul")]
mod slopes;
#[cfg(feature = "matmul")]
mod small_reads;
#[cfg(feature = "matmul")]
mod small_tiles;
#[cfg(feature = "matmul")]
mod splits;
#[cfg(feature = "matmul_hopper")]
mod staged;
#[cfg(any(feature = "matmul", feature = "matmul_hopper"))]
mod tf32_parts;
#[cfg(feature = "matmul_hopper")]
mod tf32_piped_tiles;
#[cfg(feature = "matmul")]
mod tf32_side;
#[cfg(feature = "matmul")]
mod tf32_tiles;
#[cfg(feature = "matmul_hopper")]
mod turned_tiles;

#[cfg(feature = "matmul")]
pub use alignment::*;
#[cfg(feature = "matmul_hopper")]
pub use alternating_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use clustered_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use clusters::{CLUSTERED_MOST, clustered_shared_bytes};
#[cfg(feature = "matmul_hopper")]
pub use consumer::MOST_SCATTERED;
pub use epilogue::{Epilogue, Heads, activation, flag};
#[cfg(feature = "matmul_hopper")]
pub use f32_consumer::F32_BOX;
#[cfg(feature = "matmul")]
pub use f32_tiles::*;
#[cfg(feature = "matmul")]
pub use few_rows::*;
#[cfg(feature = "matmul")]
pub use few_terms::*;
#[cfg(feature = "matmul")]
pub use half_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use loose_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use narrow_f32_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use narrow_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use part::{PIPELINED_DEPTH, PIPELINED_LINES, TF32_DEPTH, TF32_LINES};
#[cfg(feature = "matmul_hopper")]
pub use parted_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use parts::{PACK_OF_PARTS, PARTS, Parting};
#[cfg(feature = "matmul_hopper")]
pub use parts_of_columns::*;
#[cfg(feature = "matmul_hopper")]
pub use parts_of_rows::*;
#[cfg(feature = "matmul_hopper")]
pub use piped_tiles::*;
pub use place::{BAND, Blocks};
#[cfg(feature = "matmul_hopper")]
pub use scale::Scales;
#[cfg(feature = "attention_scores")]
pub(crate) use side::Side;
#[cfg(feature = "matmul")]
pub use slopes::*;
#[cfg(feature = "matmul")]
pub use small_tiles::*;
#[cfg(feature = "matmul")]
pub use splits::*;
#[cfg(feature = "matmul_hopper")]
pub use tf32_piped_tiles::*;
#[cfg(feature = "matmul")]
pub use tf32_tiles::*;
#[cfg(feature = "matmul_hopper")]
pub use turned_tiles::*;

use cuda_std::plain_parameter;

/// How a matrix, and the matrices of a batch, lie in memory: steps in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// From row to row: along m, or for b along n.
    pub row: i64,
    /// From column to column: along k, or for the result along n.
    pub col: i64,
    /// From one of the batch's outer dimension to the next.
    pub outer: i64,
    /// From one of the batch's inner dimension to the next.
    pub inner: i64,
}

/// What a product is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The first operand: rows along m, columns along k.
    pub a: Matrix,
    /// The second: rows along n, columns along k.
    pub b: Matrix,
    /// Who does what.
    pub blocks: Blocks,
    /// What is done with the sums.
    pub epilogue: Epilogue,
    /// Terms of a sum.
    pub k: u32,
    /// Terms of a split, a multiple of every tile's depth.
    pub k_of_split: u32,
    /// Whether blocks of `pipelined` and `clustered` let the first lines of b come to L2 before what is ahead of the launch is done.
    pub asks: u32,
}
plain_parameter!(Product);

impl Product {
    /// Whether there is nothing to do, of which there is no launch: a look at each 64 bytes of what the end of a tile needs. Parameters are
    /// far away the first time, and before [`cuda_std::dependent::wait`] nobody waits for them.
    #[cfg(feature = "matmul_hopper")]
    #[inline(always)]
    fn is_nothing(&self) -> bool {
        let Epilogue { out, addend, aux, m, flags, .. } = self.epilogue;
        let steps = out.row | out.inner | addend.row | aux.row | self.a.row | self.b.row;
        steps as u32 | (steps >> 32) as u32 | self.blocks.total | self.k | flags | m == 0
    }

    /// Rows and columns that tiles are of, in kernels of few rows: the result's or, [by columns](flag::BY_COLUMNS), those of the result turned.
    #[cfg(any(feature = "matmul", feature = "matmul_hopper"))]
    #[inline(always)]
    fn extents_of_few(&self) -> (u32, u32) {
        let Epilogue { m, n, flags, .. } = self.epilogue;
        if flags & flag::BY_COLUMNS != 0 { (n, m) } else { (m, n) }
    }

    /// Where the terms of a split begin and end.
    #[inline(always)]
    fn terms(&self, split: u32) -> (u32, u32) {
        let first = split * self.k_of_split;
        // Splits cover k, so that `first` is at most k rounded up to one.
        let end = first.wrapping_add(self.k_of_split);
        (first, if end < self.k { end } else { self.k })
    }
}

/// Instructions that the kernels are made of: a step's products of each fragment, and the loads of fragments of the
/// first step and of each.
#[cfg(all(target_arch = "nvptx64", feature = "matmul"))]
mod expectations {
    macro_rules! expect {
        ($($line:literal),*) => {$(
            core::arch::global_asm!(concat!("//@expect matmul_", $line));
        )*};
    }
    expect!(
        "tensor_cores_bf16_4_8_2_2_2_4_1_1 ==64 mma.sync.aligned.m16n8k16",
        "tensor_cores_bf16_4_8_2_2_2_4_0_0 ==24 ldmatrix.sync.aligned.m8n8.x4.trans",
        "tensor_cores_f16_2_4_2_2_4_3_1_1 ==32 mma.sync.aligned.m16n8k16",
        "thin_bf16_1_1_8 ==16 mma.sync.aligned.m16n8k16",
        "thin_f32_8 ==48 mma.sync.aligned.m16n8k8",
        "short_bf16_1_2_2 ==8 mma.sync.aligned.m16n8k16",
        "short_f32_2_1_2 ==24 mma.sync.aligned.m16n8k8",
        "small_bf16_2_1 ==16 mma.sync.aligned.m16n8k16",
        "small_f32_0 ==24 mma.sync.aligned.m16n8k8",
        "tf32_cores_3_2_8_2_2_3_1_1 ==48 mma.sync.aligned.m16n8k8",
        "tf32_cores_3_2_4_2_2_3_0_0 ==24 mma.sync.aligned.m16n8k8",
        "tf32_cores_1_4_8_2_2_3_1_1 ==32 mma.sync.aligned.m16n8k8"
    );
}

/// As above: four products of 16 terms in the first turn and in all others, a load of a box for each operand (four of 64 lines where b's rows are
/// neighbours) and of what lies beside the sums, and 16 stores of fragments in each of eleven epilogues; twelve where sums are turned. Where tiles are taken in turn two times four
/// products, and eight stores for each half of a tile in each of seven. Of parts, three times four products, and a box for each part of both operands.
#[cfg(all(target_arch = "nvptx64", feature = "matmul_hopper"))]
mod expectations_of_pipelines {
    macro_rules! expect {
        ($($line:literal),*) => {$(
            core::arch::global_asm!(concat!("//@expect matmul_hopper_pipelined_", $line));
        )*};
    }
    expect!(
        "bf16_2_128_4_1_1 ==8 wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
        "bf16_2_128_4_1_1 ==3 cp.async.bulk.tensor.4d.shared::cluster",
        "f16_2_128_4_1_0 ==6 cp.async.bulk.tensor.4d.shared::cluster",
        "bf16_2_128_4_1_1 ==176 stmatrix.sync.aligned.m8n8.x4",
        "bf16_2_128_4_1_1 ==2 setmaxnreg"
    );
    macro_rules! expect_of_others {
        ($($line:literal),*) => {$(
            core::arch::global_asm!(concat!("//@expect matmul_hopper_", $line));
        )*};
    }
    expect_of_others!(
        "alternating_bf16_64_6_1_1 ==16 wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
        "alternating_bf16_64_6_1_1 ==2 cp.async.bulk.tensor.4d.shared::cluster",
        "alternating_f16_64_6_1_0 ==112 stmatrix.sync.aligned.m8n8.x4.trans",
        "alternating_bf16_96_4_1_1 ==16 wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16",
        "turned_bf16_2_96_4_1_1 ==8 wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16",
        "turned_bf16_2_96_4_1_1 ==3 cp.async.bulk.tensor.4d.shared::cluster",
        "turned_f16_2_96_4_1_0 ==132 stmatrix.sync.aligned.m8n8.x4.trans",
        "parted_2_64_3_1_1 ==12 wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
        "parted_2_64_3_1_1 ==4 cp.async.bulk.tensor.4d.shared::cluster",
        "tf32_pipelined_2_128_4 ==8 wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32",
        "tf32_pipelined_2_128_4 ==2 cp.async.bulk.tensor.4d.shared::cluster",
        "tf32_pipelined_2_128_4 ==2 setmaxnreg",
        "clustered_bf16_1_32_6_1_1 ==2 barrier.cluster.arrive.relaxed",
        "clustered_bf16_1_32_6_1_1 ==2 barrier.cluster.wait.aligned",
        "clustered_bf16_1_32_6_1_1 ==4 bar.sync",
        "clustered_bf16_1_32_6_1_1 ==1 cp.async.bulk.shared::cluster.shared::cta",
        "narrow_bf16_8_10_1 ==8 wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16",
        "narrow_f16_4_7_1 ==8 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "narrow_f16_16_9_1 ==8 wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16",
        "narrow_bf16_8_10_1 ==2 cp.async.bulk.tensor.4d.shared::cluster",
        "narrow_f32_3_4_11_1 ==6 mma.sync.aligned.m16n8k8",
        "narrow_f32_3_4_11_1 ==3 ldmatrix.sync.aligned.m8n8.x4",
        "narrow_f32_3_4_11_1 ==6 bar.sync",
        "narrow_f32_3_4_11_1 ==1 cp.async.bulk.shared::cluster.shared::cta",
        "narrow_f32_3_4_11_0 ==1 ldmatrix.sync.aligned.m8n8.x4",
        "narrow_f32_3_4_11_0 ==3 cp.async.bulk.tensor.4d.shared::cluster",
        "narrow_f32_3_16_8_1 ==24 mma.sync.aligned.m16n8k8",
        "narrow_f32_3_16_8_1 ==6 bar.sync",
        "narrow_f32_1_16_8_1 ==8 mma.sync.aligned.m16n8k8",
        "loose_bf16_32_5_1_1 ==2 barrier.cluster.arrive.relaxed",
        "loose_bf16_32_5_1_1 ==2 barrier.cluster.wait.aligned",
        "loose_bf16_32_5_1_1 ==4 bar.sync",
        "loose_bf16_32_5_1_1 ==1 cp.async.bulk.shared::cluster.shared::cta"
    );
}
