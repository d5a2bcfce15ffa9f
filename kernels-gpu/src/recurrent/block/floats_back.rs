//! The gradient with f32 weights, by plain f32 arithmetic.
//!
//! Eight lanes share four units: each holds an eighth of the columns of their rows of all gates' turned weights, packs in turn, so that what
//! it reads of the gates' gradients serves four sums. These are added up by shuffles, which halve a lane's units until it has one. Few threads
//! with many registers each leave more of these to the weights.

use super::BlockSequence;
use super::floats::FLOAT_UNITS;
use super::shares::{Shares, rest_bytes};
use super::walk::Place;
use super::walk_back::{BackOperands, back_shared_bytes, staged_bytes, walk_back};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Lanes that share [`UNITS`].
const LANES: u32 = 8;
/// Units of a thread.
const UNITS: usize = 4;
/// Threads of a block.
const THREADS: u32 = 256;

/// The most hidden units, where a lane has so many packs of each of its units, of all gates: elements from a gate's gradient to the next.
pub const fn block_backward_f32_units(gates: usize, packs: usize) -> u32 {
    packs as u32 * LANES * 4 / gates as u32
}

/// Where the operands, and the weights that registers do not hold, begin in shared memory.
const fn places(gates: usize, packs: usize) -> [u32; 2] {
    let staged = back_shared_bytes(gates, 1, block_backward_f32_units(gates, packs), 4);
    [staged, staged + staged_bytes(gates, THREADS, 4)]
}

/// Bytes of shared memory.
pub const fn block_backward_f32_shared_bytes(gates: usize, packs: usize, held: usize) -> u32 {
    places(gates, packs)[1] + rest_bytes(UNITS, packs, held, THREADS)
}

/// Walks the steps backwards, as [`block_backward()`](fn@super::block_backward) does.
///
/// Launch: a block for each row of the batch, [`block_backward_f32_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// As there; `p.hidden` is at most [`block_backward_f32_units`].
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, PACKS: 6, HELD: 6; threads: 256, min_blocks: 1 },
        { GATES: 3, PACKS: 12, HELD: 11; threads: 256, min_blocks: 1 },
        { GATES: 4, PACKS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, PACKS: 16, HELD: 10; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn block_backward_f32<T: Float, const GATES: usize, const PACKS: usize, const HELD: usize>(
    weight: Global<T>,
    gx: Global<T>,
    gh: Global<T>,
    state: Global<T>,
    dy: Global<T>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    p: BlockSequence,
) {
    const { assert!(block_backward_f32_units(GATES, PACKS) <= FLOAT_UNITS) };
    let tid = thread::thread_idx_x();
    let (first_unit, part) = (tid / LANES * UNITS as u32, tid % LANES);
    let own = part % UNITS as u32;
    let own_place = Place { row: 0, unit: first_unit + own, is_own: part < UNITS as u32 };
    let pitch = const { block_backward_f32_units(GATES, PACKS) };
    // SAFETY: the caller's contract; of the lanes that have a unit's sum the first has the unit.
    unsafe {
        let [staged, rest] = const { places(GATES, PACKS) };
        // The gates' gradients lie behind one another: packs count through all of them.
        let weights = Shares::<UNITS, HELD, THREADS>::load::<T, PACKS>(weight, rest, |i, pack| {
            let column = (pack as u32 * LANES + part) * 4;
            let (gate, k, unit) = (column / pitch, column % pitch, first_unit + i as u32);
            let row = (gate * p.hidden + unit) as usize * p.weight_row as usize;
            ((unit < p.hidden) & (k < p.hidden), row + k as usize)
        });
        let product = |dgh: Shared<T>, from: u32| {
            let mut sums = [0.0; UNITS];
            weights.each::<PACKS>(bits::opaque(PACKS as u32), |i, pack, weights| {
                let dgh = dgh.get_pack(from + (pack * LANES + part) * 4);
                for j in 0..4 {
                    sums[i] = float::fma(weights[j], f32::from_bits(dgh[j]), sums[i]);
                }
            });
            // The lane's half of its units, and what the other lane has of them.
            let half = |low: f32, high: f32, bit: u32| {
                let (own, given) = if part & bit == 0 { (low, high) } else { (high, low) };
                own + warp::warp_shuffle_xor(u32::MAX, given, bit, warp::SIZE).0
            };
            let [a, b, c, d] = sums;
            let sum = half(half(a, c, 2), half(b, d, 2), 1);
            let sum = sum + warp::warp_shuffle_xor(u32::MAX, sum, 4, warp::SIZE).0;
            [sum]
        };
        let of = BackOperands { gx, gh, state, dy, lengths, dgx, dgh, dh, dc };
        walk_back::<T, GATES, 1>(&of, [own_place], (1, pitch), &p, Some(staged), product);
    }
}
