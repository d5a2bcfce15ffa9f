//! The gradient with f32 weights, by plain f32 arithmetic: as [`floats`](super::floats), with each gate's weights turned over.

use super::BlockSequence;
use super::floats::{LANES, PACK_UNITS, Quarter, pitch, rest_bytes};
use super::walk::Place;
use super::walk_back::{BackOperands, back_shared_bytes, walk_back};
use cuda_std::prelude::*;

/// Bytes of shared memory.
pub const fn block_backward_f32_shared_bytes(gates: usize, packs: usize, held: usize) -> u32 {
    back_shared_bytes(gates, 1, pitch(packs), 4) + rest_bytes(gates, packs, held)
}

/// Walks the steps backwards, as [`block_backward()`](fn@super::block_backward) does.
///
/// Launch: a block for each row of the batch, [`block_backward_f32_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// As there, and as [`block_sequence_f32()`](fn@super::block_sequence_f32).
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, PACKS: 4, HELD: 4; threads: 512, min_blocks: 1 },
        { GATES: 3, PACKS: 8, HELD: 5; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 4, HELD: 4; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 8, HELD: 3; threads: 512, min_blocks: 1 },
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
    let tid = thread::thread_idx_x();
    let (unit, part) = (tid / LANES, tid % LANES);
    let places = [Place { row: 0, unit, is_own: part == 0 }];
    // SAFETY: the caller's contract; the first lane of a unit has it.
    unsafe {
        let first = const { back_shared_bytes(GATES, 1, pitch(PACKS), 4) };
        let weights = Quarter::<GATES, HELD>::load::<T, PACKS>(weight, unit, part, first, &p);
        let product = |dgh: Shared<T>, from: u32| {
            let mut sums = [0.0; GATES];
            weights.each::<PACKS>(p.hidden, |gate, pack, weights| {
                let of_gate = from + gate as u32 * const { pitch(PACKS) } + part * 4;
                let dgh = dgh.get_pack(of_gate + pack * PACK_UNITS);
                for j in 0..4 {
                    sums[gate] = float::fma(weights[j], f32::from_bits(dgh[j]), sums[gate]);
                }
            });
            let mut sum = 0.0;
            for gate in 0..GATES {
                sum += sums[gate];
            }
            sum += warp::warp_shuffle_xor(u32::MAX, sum, 1, warp::SIZE).0;
            sum += warp::warp_shuffle_xor(u32::MAX, sum, 2, warp::SIZE).0;
            [sum]
        };
        let of = BackOperands { gx, gh, state, dy, lengths, dgx, dgh, dh, dc };
        walk_back::<T, GATES, 1, 0>(&of, places, (1, const { pitch(PACKS) }), &p, product);
    }
}
