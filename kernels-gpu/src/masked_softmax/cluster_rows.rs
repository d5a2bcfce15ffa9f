//! Rows held by a thread-block cluster (sm_90a), in registers and shared memory: read once, written once.
//!
//! Each block takes a slice of the row; the warps of all blocks exchange their (maximum, sum) through
//! distributed shared memory. A multiprocessor has about as much shared memory as registers for scores, and what it holds
//! decides how long loads, the exchange and stores may take without the memory falling idle.

use super::ending::{End, Ending, Share, Softmax};
use super::held::{Held, finite_or_zero};
use super::locate::locate;
use super::nan_row::store_nan_row;
use super::packed_scores::Packed;
use super::register_rows::{Partial, exponentiate, load_packs, max_of, store_packs};
use super::staged::Staged;
use super::wide_scores::Wide;
use super::{Operands, Params, mask_kind};
use crate::exchange::Exchange;
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Rows of at most `p.slice` packs times the cluster's size; a thread has `PACKS` packs of a slice in registers and up to
/// `STAGED` in shared memory.
///
/// # Safety
/// As [`row()`](fn@super::row); the grid has one cluster a row, and a block 16·`LANES` bytes of dynamic shared memory for
/// each of a thread's packs beyond `PACKS`. Where `STAGED` is 0, slices are `LANES·PACKS` packs, rows not ragged and masks not
/// skewed; else masks are of bits, which [`mask_bits()`](fn@super::mask_bits) writes in a launch ahead, with nothing but launches of this
/// kernel in between.
#[kernel(
    family = "masked_softmax_hopper",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [
        { LANES: 256, PACKS: 8, STAGED: 0; threads: 256, min_blocks: 4 },
        { LANES: 512, PACKS: 8, STAGED: 0; threads: 512, min_blocks: 2 },
        { LANES: 1024, PACKS: 8, STAGED: 0; threads: 1024, min_blocks: 1 },
        { LANES: 256, PACKS: 5, STAGED: 11; threads: 256, min_blocks: 4 },
        { LANES: 512, PACKS: 5, STAGED: 11; threads: 512, min_blocks: 2 },
        { LANES: 1024, PACKS: 5, STAGED: 11; threads: 1024, min_blocks: 1 },
    ],
)]
pub unsafe fn cluster_row<T: Float, const LANES: usize, const PACKS: usize, const STAGED: usize>(
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
    unsafe {
        if const { STAGED > 0 } {
            cluster::<T, Packed<true>, _, LANES, PACKS, STAGED>(&operands, &p, &Softmax);
        } else {
            cluster::<T, Packed, _, LANES, PACKS, STAGED>(&operands, &p, &Softmax);
        }
    }
}

/// [`cluster_row()`](fn@cluster_row) with a bias.
///
/// # Safety
/// As [`cluster_row()`](fn@cluster_row).
#[kernel(
    family = "masked_softmax_hopper",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [{ LANES: 512, PACKS: 4, STAGED: 0; threads: 512, min_blocks: 1 }],
)]
pub unsafe fn cluster_row_bias<T: Float, const LANES: usize, const PACKS: usize, const STAGED: usize>(
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
    unsafe { cluster::<T, Wide, _, LANES, PACKS, STAGED>(&operands, &p, &Softmax) }
}

/// # Safety
/// As [`cluster_row()`](fn@cluster_row), and the ending's.
#[inline(always)]
pub(super) unsafe fn cluster<
    T: Float,
    H: Held<T>,
    E: Ending<T>,
    const LANES: usize,
    const PACKS: usize,
    const STAGED: usize,
>(
    operands: &Operands<T>,
    p: &Params,
    ending: &E,
) {
    let (size, rank) = (cuda_std::cluster::size(), cuda_std::cluster::rank());
    let (number, thread) = (cuda_std::cluster::index(), thread::thread_idx_x());
    // Where all registers are for packs, none is left for what lies crookedly.
    let p =
        &if const { STAGED == 0 && !H::BIASED } { Params { ragged: 0, mask_skewed: 0, ..*p } } else { *p };
    // Without shared memory a slice is what the registers hold.
    let in_registers = (LANES * PACKS) as u32;
    let packs = if const { STAGED == 0 } { in_registers } else { p.slice };
    let first = rank * packs + thread;
    // SAFETY: the caller's contract.
    unsafe {
        // Masks become bits in the launch ahead, which lets this one start when whatever is ahead of itself is done: scores may be on
        // their way while it still runs. Without these the loader would put the wait here.
        let awaits_masks = const { H::BITS } && p.mask_kind == mask_kind::BITS;
        if const { H::BITS } && !awaits_masks {
            dependent::wait();
        }
        let exchange = Exchange::<LANES, 2>::begin();
        let (known, row) = ending.begin(p, number, locate(operands, p, number));
        let slice = if const { STAGED == 0 } { row } else { row.slice::<T>(rank * packs, packs) };
        let beyond = packs.saturating_sub(in_registers);
        let staged = Staged::<T, LANES, STAGED>::begin(operands, p, &slice, first + in_registers, beyond);
        if awaits_masks {
            dependent::wait();
        }
        // While the copies are under way.
        let masks = staged.ask_masks(operands);
        let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &slice, first);
        let mine = if const { STAGED == 0 } {
            Partial::of_held::<T, H, LANES, PACKS>(&mut held, p, &slice, first)
        } else {
            let most = float::max_nan(max_of::<T, H, PACKS>(&held), staged.prepare(masks));
            let maximum = warp::max::<f32, 32>(most);
            let base = finite_or_zero(maximum);
            let sum = exponentiate::<T, H, LANES, PACKS>(&mut held, p, &slice, first, base, 0.0);
            Partial { maximum, sum: warp::sum::<f32, 32>(staged.exponentiate(base, sum)) }
        };
        let total = exchange.agree([mine.maximum, mine.sum], Partial::EMPTY, |total, [maximum, sum]| {
            total.and(Partial { maximum, sum }, p)
        });
        let total = total.over_warp(p);
        let share = Share { first: rank * packs, units: packs, ..Share::of_row::<T>(&row, thread, LANES) };
        if E::is_nan(known, total.sum) {
            if ending.stores() {
                store_nan_row(
                    ending.sink(operands),
                    operands,
                    p,
                    &row,
                    rank * LANES as u32 + thread,
                    size * LANES as u32,
                    H::BITS,
                );
            }
            ending.finish(operands, p, known, &share, End::Nan);
        } else {
            let softmax = mine.normaliser(total, p);
            if ending.stores() {
                let end = E::normaliser(known, softmax);
                store_packs::<T, H, _, LANES, PACKS>(ending.sink(operands), p, &slice, first, held, &end);
                staged.store(ending.sink(operands), &end);
            }
            ending.finish(operands, p, known, &share, End::Number(softmax));
        }
    }
}
