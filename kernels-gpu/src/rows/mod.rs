//! Operations along rows that need a statistic of the row first: layer norm, RMS norm, the gradients of both and
//! of softmax. One engine, and a short file for each operation.
//!
//! An operation is a `RowOp`: a statistic of a row's elements (a few sums, combined over lanes, warps and blocks
//! in an order that depends on the plan alone), and a result for each element. Inputs: up to three of shape
//! [rows, cols], T = f32 | f16 | bf16, whose rows lie anywhere; vectors of `cols` elements of the same type beside
//! them. Results: [rows, cols] of T, contiguous, and f32 numbers of each row. Arithmetic in f32.
//!
//! | module | rows it serves | launch |
//! | --- | --- | --- |
//! | `register_rows` | held in registers: read once, written once | lanes of a warp, a warp or a block a row |
//! | `walked_rows` | through shared memory: read once, written once, by blocks that stay, with vectors and sums along columns in registers | lanes of a warp or a block a row, as many blocks as the GPU has room for |
//! | `walked_clusters` | those whose sums along columns leave a block's threads no registers (sm_90a): as `walked_rows`, by slices | 2 or 4 blocks a row |
//! | `cluster_rows` | longer ones, held by a thread-block cluster (sm_90a): read once, written once | up to 16 blocks a row |
//! | `streamed_rows` | longer ones: read twice, the second time partly from L2 | a block a row |
//! | `strided_rows` | columns with any stride, operands not aligned alike | a warp a row, element by element |
//!
//! A row is cut into the whole 16-byte packs that lie inside of it, and the *loose* elements before and behind
//! them, which are read and written one by one. So rows may begin at any element and end anywhere, as long as all
//! operands do alike (modulo 16 bytes), and nothing of a neighbouring row is read.
//!
//! Floor: each input and result once, at the copy rate; vectors stay in the caches.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]
// Each family uses a part of what both share.
#![cfg_attr(not(all(feature = "rows", feature = "rows_hopper")), allow(dead_code, unused_imports))]
// Kernels of one shape take the operands of the largest.
#![allow(clippy::too_many_arguments)]

mod add_layer_norm;
mod cluster_rows;
mod columns;
mod held;
mod layer_norm;
mod norm_backward;
mod partials;
mod register_rows;
mod rms_norm;
mod rounds;
mod row;
mod share;
mod softmax_backward;
mod staged;
mod statistic;
mod streamed_rows;
mod strided_rows;
mod walked_clusters;
mod walked_rows;

pub use crate::exchange::MAX_CLUSTER;
pub use add_layer_norm::*;
pub use columns::{classes, is_roomy, sums_fit, sums_fit_clusters, takes_third};
pub use layer_norm::*;
pub use norm_backward::*;
pub use partials::*;
pub use register_rows::rows_per_block;
pub use rms_norm::*;
pub use rounds::MOST_WALKING;
pub use row::{MAX_ROW_DIMS, RowDim};
pub use softmax_backward::*;
pub use walked_rows::{bundles, side_by_side, walked_shared_bytes};

use crate::dropping::Dropping;
use cuda_std::prelude::*;
use statistic::Statistic;

/// Most inputs of shape [rows, cols].
pub const MAX_INPUTS: usize = 3;

/// What a launch of any of the kernels needs to know; computed by the host.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The row dimensions, innermost first; the first `dim_count` count.
    pub dims: [RowDim; MAX_ROW_DIMS],
    /// Elements from column to column of each input; other than 1 in the strided form only.
    pub steps: [i64; MAX_INPUTS],
    /// What an operation that says so drops while it joins; elements are counted along the result, of whose packs each
    /// begins at a multiple of 4.
    pub dropping: Dropping,
    /// Row dimensions in use.
    pub dim_count: u32,
    /// Rows, below 2^31.
    pub rows: u32,
    /// Columns, from 1 to below 2^31.
    pub cols: u32,
    /// 1/cols.
    pub inverse_cols: f32,
    /// Elements by which row 0 begins behind a multiple of 16 bytes, in every operand.
    pub phase: u32,
    /// 1 where rows may have loose elements.
    pub ragged: u32,
    /// 1 where the vectors begin at a multiple of 16 bytes, and packs of the rows at whole packs of them.
    pub packed_vectors: u32,
    /// Which operands that may be absent are there: bits of [`given`].
    pub given: u32,
    /// The operation's own number: ε, or a scale.
    pub number: f32,
    /// Zeros, which the compilers do not know: see `packed::renew`. One for each time after the first that
    /// a row is gone through.
    pub zeros: [u32; 2],
    /// Neighbouring rows, of those that begin alike, which a block that walks has one behind the other: a power of two; see [`bundles`].
    pub log_bundle: u32,
}
cuda_std::plain_parameter!(Params);
const _: () = assert!(size_of::<Params>() == MAX_ROW_DIMS * 40 + 3 * 8 + size_of::<Dropping>() + 12 * 4);

/// The bits of `Params::given`.
pub mod given {
    /// The factors of the columns; 1 otherwise.
    pub const WEIGHT: u32 = 1;
    /// What is added to the columns; 0 otherwise.
    pub const BIAS: u32 = 2;
    /// What is added to the columns of the input; 0 otherwise.
    pub const INPUT_BIAS: u32 = 4;
    /// The third input; 0 otherwise.
    pub const THIRD: u32 = 8;
    /// The means of the rows; 0 otherwise. Of interest to `column_partials` alone.
    pub const MEAN: u32 = 16;
}

/// The operands, as every kernel takes them; an operation looks at those that it has.
#[derive(Clone, Copy)]
pub(crate) struct Operands<T> {
    /// Of shape [rows, cols].
    pub inputs: [Global<T>; MAX_INPUTS],
    /// Weight and bias.
    pub vectors: [Global<T>; 2],
    pub input_bias: Global<T>,
    /// The result.
    pub y: GlobalMut<T>,
    /// What [`RowOp::join`] gives.
    pub joined: GlobalMut<T>,
    /// For each row; results forward, operands backward.
    pub mean: GlobalMut<f32>,
    pub rstd: GlobalMut<f32>,
}

/// What an operation does with a row. Its methods see elements as f32: `x` those of the inputs at one place, `v`
/// those of weight and bias at its column.
pub(crate) trait RowOp<T: Float> {
    /// Inputs of shape [rows, cols].
    const INPUTS: usize;
    /// Vectors that it uses: none, the weight, or weight and bias.
    const VECTORS: usize;
    /// Whether the inputs are joined first: what they are joined into is rounded, takes the place of input `JOINED`, and
    /// is a result of its own if `KEEPS_JOINED` holds.
    const JOINS: bool = false;
    /// See [`RowOp::JOINS`].
    const JOINED: usize = 0;
    /// See [`RowOp::JOINS`].
    const KEEPS_JOINED: bool = true;
    /// Whether joining drops elements.
    const DROPS: bool = false;
    /// Whether the statistic looks at the vectors, as the results do.
    const WEIGHS: bool = false;
    /// Inputs that the statistic looks at: the first so many.
    const STATISTIC_INPUTS: usize = Self::INPUTS;
    /// Whether elements that are 0 in all inputs add nothing to the statistic; else those that are as the sample.
    const IGNORES_ZEROS: bool = false;
    /// Sums along columns that it gives besides, at most 2, where rows are walked.
    const SUMS: usize = 0;
    /// What a part of a row contributes.
    type Statistic: Statistic;
    /// What the operation knows of a row before it looks at it.
    type Row: Copy;
    /// What it knows of a row when all parts are combined.
    type Total: Copy;

    /// Reads what belongs to row number `row`.
    ///
    /// # Safety
    /// The operands match `p`, and the row is one of them.
    unsafe fn begin(operands: &Operands<T>, row: u32) -> Self::Row;

    /// Joins the inputs, for operations that say so; `drop` is what becomes of a number by dropout.
    fn join(x: [f32; MAX_INPUTS], _input_bias: f32, _drop: impl Fn(f32) -> f32) -> f32 {
        x[0]
    }

    /// The statistic of some elements of a row.
    fn statistic<E: Elements>(row: Self::Row, elements: &E) -> Self::Statistic;

    /// What the results need; `leader` is true in one of the row's threads, which writes what is a result itself.
    ///
    /// # Safety
    /// As [`RowOp::begin`], where `leader` holds.
    unsafe fn finish(
        operands: &Operands<T>,
        p: &Params,
        row: u32,
        leader: bool,
        known: Self::Row,
        statistic: Self::Statistic,
    ) -> Self::Total;

    /// Adds an element to the sums of its column.
    fn add_to_columns(_row: Self::Row, sums: [f32; 2], _x: [f32; MAX_INPUTS]) -> [f32; 2] {
        sums
    }

    /// The result.
    fn result(total: Self::Total, x: [f32; MAX_INPUTS], v: [f32; 2]) -> f32;
}

/// Some elements of a row, gone through as often as a statistic needs.
pub(crate) trait Elements {
    /// How many.
    fn count(&self) -> f32;

    /// The first input's, or what was joined, at one of them; 0 if there are none.
    fn sample(&self) -> f32;

    /// Sums over the elements: `add(sums, x, v)` adds an element to some sums, of which there are several that
    /// begin at 0 and are added up in the end. `pass` is how often the elements have been gone through.
    fn sums<const K: usize>(
        &self,
        pass: usize,
        add: impl Fn([f32; K], [f32; MAX_INPUTS], [f32; 2]) -> [f32; K],
    ) -> [f32; K];
}

/// The kernels of an operation: those for rows in registers, of any length, of any layout; and for rows that a cluster holds.
macro_rules! row_kernels {
    ($op:ident, $rows:ident, $streamed:ident, $strided:ident, $instances:tt, $stream:tt,
     $cluster:ident, $clusters:tt) => {
        $crate::rows::row_kernels!($op, $rows, $streamed, $strided, $instances, $stream);
        $crate::rows::row_kernels!(@kernel "rows_hopper" $op, $cluster, $clusters, [LANES PACKS],
            "Rows held in the registers of a cluster (sm_90a): of at most `LANES·PACKS` whole packs for each of its blocks. \
             The grid has a cluster a row.",
            cluster_rows);
    };
    ($op:ident, $rows:ident, $streamed:ident, $strided:ident, $instances:tt, $stream:tt) => {
        $crate::rows::row_kernels!(@kernel "rows" $op, $rows, $instances, [LANES PACKS],
            "Rows held in registers: of at most `LANES·PACKS` whole packs. The grid covers the rows.",
            register_rows);
        $crate::rows::row_kernels!(@kernel "rows" $op, $streamed, $stream, [LANES PACKS],
            "Rows of any length: a block of `LANES` threads each.",
            streamed_rows);
        $crate::rows::row_kernels!(@kernel "rows" $op, $strided, [{ ; threads: 128 }], [],
            "Rows of any layout: a warp each.",
            strided_rows);
    };
    (@kernel $family:literal $op:ident, $name:ident, $instances:tt, [$($const:ident)*], $doc:literal, $module:ident) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The operands match `p`, and the launch is as said above.
        #[kernel(family = $family, types = [f32, f16, bf16], instances = $instances)]
        pub unsafe fn $name<T: Float $(, const $const: usize)*>(
            a: Global<T>,
            b: Global<T>,
            c: Global<T>,
            weight: Global<T>,
            bias: Global<T>,
            input_bias: Global<T>,
            y: GlobalMut<T>,
            joined: GlobalMut<T>,
            mean: GlobalMut<f32>,
            rstd: GlobalMut<f32>,
            p: Params,
        ) {
            let operands = $crate::rows::Operands {
                inputs: [a, b, c], vectors: [weight, bias], input_bias, y, joined, mean, rstd,
            };
            // SAFETY: the caller's contract.
            unsafe { $crate::rows::$module::run::<T, $op $(, $const)*>(&operands, &p) }
        }
    };
}
pub(crate) use row_kernels;

/// The kernels of an operation that walk: a block's, and a cluster's.
macro_rules! walked_kernel {
    ($op:ident, $name:ident, $instances:tt, $cluster:ident, $clusters:tt) => {
        $crate::rows::walked_kernel!($op, $name, $instances);
        $crate::rows::walked_kernel!(@kernel "rows_hopper" $op, $cluster, $clusters, [PACKED LANES PACKS DEPTH],
            "Rows walked by clusters that stay (sm_90a): of at most `LANES·PACKS` packs for each block of a cluster, whole and \
             aligned (`PACKED` is 2). `DEPTH` packs of a thread are on their way at once. Empty where \
             [`sums_fit_clusters`](fn@crate::rows::sums_fit_clusters) says no.",
            sums_fit_clusters, walked_clusters);
    };
    ($op:ident, $name:ident, $instances:tt) => {
        $crate::rows::walked_kernel!(@kernel "rows" $op, $name, $instances, [PACKED LANES PACKS DEPTH],
            "Rows walked by blocks that stay: of at most `LANES·PACKS` packs, whole and aligned where `PACKED` is 1. `DEPTH` \
             packs of a thread are on their way at once. Empty where [`sums_fit`](fn@crate::rows::sums_fit) says no.",
            sums_fit, walked_rows);
    };
    (@kernel $family:literal $op:ident, $name:ident, $instances:tt, [$($const:ident)*], $doc:literal, $serves:ident,
     $module:ident) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The operands match `p`, and the launch is as the module says.
        #[kernel(family = $family, types = [f32, f16, bf16], instances = $instances)]
        pub unsafe fn $name<T: Float $(, const $const: usize)*>(
            a: Global<T>,
            b: Global<T>,
            c: Global<T>,
            weight: Global<T>,
            bias: Global<T>,
            input_bias: Global<T>,
            y: GlobalMut<T>,
            joined: GlobalMut<T>,
            mean: GlobalMut<f32>,
            rstd: GlobalMut<f32>,
            sums: GlobalMut<f32>,
            p: Params,
        ) {
            let operands = $crate::rows::Operands {
                inputs: [a, b, c],
                vectors: [weight, bias],
                input_bias,
                y,
                joined,
                mean,
                rstd,
            };
            if const { $crate::rows::$serves(<$op as $crate::rows::RowOp<T>>::SUMS, PACKS, T::PER_PACK) } {
                // SAFETY: the caller's contract.
                unsafe { $crate::rows::$module::run::<T, $op $(, $const)*>(&operands, sums, &p) }
            }
        }
    };
}
pub(crate) use walked_kernel;

/// Every pack of an input or a vector is one load.
#[cfg(all(target_arch = "nvptx64", feature = "rows"))]
mod expectations {
    macro_rules! expect {
        ($($line:literal)*) => {$(
            core::arch::global_asm!(concat!("//@expect rows_", $line, " ld.global.nc.L2::cache_hint.v4"));
        )*};
    }
    expect! {
        "layer_norm_rows_bf16_128_4 ==12" "add_layer_norm_rows_f32_128_3 ==15" "rms_norm_rows_f16_32_3 ==6"
        "softmax_backward_rows_bf16_128_3 ==6" "layer_norm_backward_rows_f32_128_3 ==12"
    }
}
