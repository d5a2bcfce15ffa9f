//! Rows of any length, a block each: read once for maximum and sum together, and once more to write.
//!
//! The second reading comes from L2 as far as the rows in flight fit there. Each thread keeps a running
//! maximum and the sum relative to it, and rescales the sum when the maximum grows.

use super::ending::{End, Ending, Share, Softmax};
use super::held::{Held, finite_or_zero};
use super::locate::locate;
use super::nan_row::store_nan_row;
use super::packed_scores::Packed;
use super::register_rows::{Partial, exponentiate, load_packs, store_packs};
use super::wide_scores::Wide;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// Rows without a bias.
///
/// # Safety
/// The operands match `p`; the grid has one block a row.
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    instances = [{ LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 }],
)]
pub unsafe fn streamed<T: Float, const LANES: usize, const PACKS: usize>(
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
    unsafe { stream::<T, Packed, _, LANES, PACKS>(&operands, &p, &Softmax) }
}

/// Rows with a bias.
///
/// # Safety
/// As [`streamed()`](fn@streamed).
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    instances = [{ LANES: 512, PACKS: 2; threads: 512, min_blocks: 1 }],
)]
pub unsafe fn streamed_bias<T: Float, const LANES: usize, const PACKS: usize>(
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
    unsafe { stream::<T, Wide, _, LANES, PACKS>(&operands, &p, &Softmax) }
}

/// # Safety
/// As [`streamed()`](fn@streamed), and the ending's.
#[inline(always)]
pub(super) unsafe fn stream<T: Float, H: Held<T>, E: Ending<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    ending: &E,
) {
    let (number, thread) = (thread::block_idx_x(), thread::thread_idx_x());
    let step = (LANES * PACKS) as i32;
    let per_pack = T::PER_PACK as i32;
    // SAFETY: the caller's contract.
    unsafe {
        let (known, row) = ending.begin(p, number, locate(operands, p, number));
        let mut mine = Partial::EMPTY;
        // Whole strides of the block that have kept columns.
        let mut pack = row.low / per_pack / step * step;
        while pack * per_pack < row.high {
            let first = pack as u32 + thread;
            let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &row, first);
            mine = mine.and_held::<T, H, LANES, PACKS>(&mut held, p, &row, first);
            pack += step;
        }
        let mine = mine.over_warp(p);
        let scratch = shared_array!(masked_softmax_stream_partials: [f32; 64]);
        let total = mine.over_block(p, scratch);
        let share = Share::of_row::<T>(&row, thread, LANES);
        if E::is_nan(known, total.sum) {
            if ending.stores() {
                store_nan_row(ending.sink(operands), operands, p, &row, thread, LANES as u32, false);
            }
            ending.finish(operands, p, known, &share, End::Nan);
            return;
        }
        let softmax = total.normaliser(total, p);
        if ending.stores() {
            let end = E::normaliser(known, softmax);
            let maximum = finite_or_zero(total.maximum);
            let mut pack = 0;
            while pack * per_pack < row.end {
                let first = pack as u32 + thread;
                let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &row, first);
                // Held exponentials are relative to the row's maximum; the sum is not needed again.
                exponentiate::<T, H, LANES, PACKS>(&mut held, p, &row, first, maximum, 0.0);
                store_packs::<T, H, _, LANES, PACKS>(ending.sink(operands), p, &row, first, held, &end);
                pack += step;
            }
        }
        ending.finish(operands, p, known, &share, End::Number(softmax));
    }
}
