//! 16-bit products on Hopper's tensor cores in tiles of three times as many rows as a consumer of [`pipelined()`](fn@super::pipelined) has.
//!
//! `pipelined` with its operands' roles changed: each of `CONSUMERS` warpgroups multiplies 64 columns of b by 2·`SUMS` rows of a, so that its sums are
//! those of the result turned, and `stmatrix` turns them back on their way through shared memory. A tile of 192×128 is two consumers' then, whose instructions have
//! 192 columns, where `pipelined` has three with 128 each. For the same products tensor cores read eight ninths of
//! the bytes from shared memory, which is what bounds the latter: with what copies write 149 bytes a cycle are wanted, and there are 128.
//! Tiles of 128 rows and 192 columns would read as little without a turn; but most layers have columns by powers of two, of which 192 is no part, and
//! any number of rows.
//!
//! Operands and launch are those of `pipelined`, with [`turned_shared_bytes`](super::turned_shared_bytes). Results leave by the accelerator or by threads as they lie in
//! shared memory: nothing else is turned back.

use super::Product;
use super::finish::Tensors;
use super::piped_tiles::{pipelined_shared_bytes, stay};
use cuda_std::prelude::*;
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::WarpgroupHalf;

/// Bytes of shared memory of an instance with so many consumers and rows.
pub const fn turned_shared_bytes(consumers: u32, rows: u32, stages: u32) -> u32 {
    pipelined_shared_bytes(consumers, rows, stages)
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// As [`pipelined()`](fn@super::pipelined). `p` says [`flag::STORED`](super::flag::STORED), and there is one split.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { CONSUMERS: 2, SUMS: 96, STAGES: 4, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 96, STAGES: 4, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 96, STAGES: 4, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 96, STAGES: 4, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn turned<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    map_beside: TensorMap,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let maps = [map_a, map_b, map_out, map_beside];
    let tensors = Tensors { bias, addend, aux, out };
    // SAFETY: the caller's contract.
    unsafe { stay::<T, CONSUMERS, SUMS, STAGES, true, A_K, B_K>(maps, b, tensors, &p) }
}
