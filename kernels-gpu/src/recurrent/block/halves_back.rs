//! The gradient with f16 and bf16 weights, on tensor cores: as [`halves`](super::halves), with each gate's weights turned over.

use super::BlockSequence;
use super::halves::{UNITS, pick, pitch, place};
use super::walk::Place;
use super::walk_back::{BackOperands, back_shared_bytes, walk_back};
use crate::recurrent::exchange::CHUNK;
use crate::recurrent::weights::{Corner, load_weights};
use cuda_std::prelude::*;

/// Bytes of shared memory.
pub const fn block_backward_shared_bytes(gates: usize, pairs: usize, rows: usize) -> u32 {
    back_shared_bytes(gates, rows as u32, pitch(pairs), 2)
}

/// Walks the steps backwards: dgx and dgh of all of them, and the gradients of h and c before the first in place of those after the
/// last. Row (gate, unit) of `weight` is what the unit's h does to the gate of each unit: w_hh with each gate's `[hidden, hidden]`
/// turned over. Of an LSTM dgx is that of gh, too, and dgh is not written.
///
/// Launch: a block for each `ROWS` rows of the batch, [`block_backward_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// The tensors are as `p` says: gx, gh, dgx, dgh `[steps, batch, GATES·hidden]`, state `[steps, batch, hidden]`, dh (dc of an LSTM)
/// `[batch, hidden]`, contiguous, and dy as y of the forward pass; otherwise as [`block_sequence()`](fn@super::block_sequence).
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 2, ROWS: 2, OWN: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 2, ROWS: 4, OWN: 2; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 2, OWN: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 4, OWN: 2; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 2, OWN: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 4, OWN: 2; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, ROWS: 2, OWN: 1; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn block_backward<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const ROWS: usize,
    const OWN: usize,
>(
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
    const { assert!(OWN * 2 == ROWS) };
    let (lane, first_unit) = (warp::lane_id(), warp::warp_id() * UNITS);
    let (column, turn) = (lane / 4, lane % 4);
    let mut places = [Place::default(); OWN];
    for i in 0..OWN {
        let (half, row) = place(ROWS, turn, i);
        places[i] = Place { row, unit: first_unit + half * 8 + column, is_own: true };
    }
    // SAFETY: the caller's contract; of the units of a warp's tiles each is one lane's for each row.
    unsafe {
        let corner =
            Corner { unit: first_unit, k: 0, hidden: p.hidden, columns: p.hidden, weight_row: p.weight_row };
        let held = load_weights::<T, GATES, GATES, PAIRS>(weight, corner);
        let pitch = const { pitch(PAIRS) };
        let own_pack = column % ROWS as u32 * pitch + turn * 8;
        let product = |dgh: Shared<T>, from: u32| {
            // A sum for each gate: products that wait for one another are fewer.
            let mut tiles = [[0.0; 4]; GATES];
            for pair in 0..PAIRS {
                for gate in 0..GATES {
                    let of_gate = from + gate as u32 * ROWS as u32 * pitch;
                    let dgh = dgh.get_pack(of_gate + own_pack + pair as u32 * CHUNK);
                    for half in 0..2 {
                        let of_gh = [dgh[2 * half], dgh[2 * half + 1]];
                        tiles[gate] = T::multiply(held[gate][pair][half], of_gh, tiles[gate]);
                    }
                }
            }
            let mut own = [0.0; OWN];
            for i in 0..OWN {
                for gate in 0..GATES {
                    own[i] += pick::<ROWS>(tiles[gate], turn, i);
                }
            }
            own
        };
        let of = BackOperands { gx, gh, state, dy, lengths, dgx, dgh, dh, dc };
        walk_back::<T, GATES, OWN>(&of, places, (ROWS as u32, pitch), &p, None, product);
    }
}
