//! Rows held in the registers of a thread-block cluster (sm_90a): read once, written once.
//!
//! Each block takes a slice of the row; the warps of all blocks exchange their (maximum, sum) through
//! distributed shared memory.

use super::exchange::Exchange;
use super::held::Held;
use super::locate::locate;
use super::packed_scores::Packed;
use super::register_rows::{Partial, load_packs, store_packs};
use super::store::store_nan_row;
use super::wide_scores::Wide;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// Most blocks of a cluster (beyond 8 the launch must allow it).
pub const MAX_CLUSTER: u32 = 16;

/// Rows of at most `LANES·PACKS` packs times the cluster's size.
///
/// # Safety
/// As [`row()`](fn@super::row); the grid has one cluster a row.
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [
        { LANES: 256, PACKS: 8; threads: 256, min_blocks: 4 },
        { LANES: 512, PACKS: 8; threads: 512, min_blocks: 2 },
        { LANES: 1024, PACKS: 8; threads: 1024, min_blocks: 1 },
    ],
)]
pub unsafe fn cluster_row<T: Float, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { cluster::<T, Packed, LANES, PACKS>(&operands, &p) }
}

/// [`cluster_row()`](fn@cluster_row) with a bias.
///
/// # Safety
/// As [`cluster_row()`](fn@cluster_row).
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [{ LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 }],
)]
pub unsafe fn cluster_row_bias<T: Float, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { cluster::<T, Wide, LANES, PACKS>(&operands, &p) }
}

#[inline(always)]
unsafe fn cluster<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
) {
    let (size, rank) = (cuda_std::cluster::size(), cuda_std::cluster::rank());
    let thread = thread::thread_idx_x();
    let first = rank * (LANES * PACKS) as u32 + thread;
    // SAFETY: the caller's contract.
    unsafe {
        let exchange = Exchange::<LANES>::begin();
        let row = locate(operands, p, cuda_std::cluster::index());
        let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &row, first);
        let mine = Partial::of_held(&mut held, p);
        let total = exchange.agree(mine, p);
        if total.sum.is_nan() {
            store_nan_row(operands, p, &row, rank * LANES as u32 + thread, size * LANES as u32);
        } else {
            let end = mine.normaliser(total, p);
            store_packs::<T, H, LANES, PACKS>(operands.y, p, &row, first, held, &end);
        }
    }
}
