//! With f16 and bf16 weights, on tensor cores.
//!
//! Each of the eight warps owns 16 units: it holds all columns of their rows of w_hh as A fragments, a tile of 16 rows a gate. h
//! is the B fragments: a lane's 16 bytes are eight neighbouring units, since the order of a sum's terms is free. Tensor cores
//! take eight rows of the batch; where a block has fewer, they repeat, and lanes share the gates of what they all have.

use super::BlockSequence;
use super::walk::{Operands, Place, shared_bytes, walk};
use crate::recurrent::exchange::CHUNK;
use crate::recurrent::has;
use crate::recurrent::persistent::WARPS;
use crate::recurrent::weights::{Corner, load_weights};
use cuda_std::prelude::*;

/// Units of a warp.
pub(super) const UNITS: u32 = 16;
/// Units of a block.
pub const BLOCK_UNITS: u32 = WARPS * UNITS;

/// Elements from a row of h to the next: two rows' 64 bytes lie in 32 banks.
pub(super) const fn pitch(pairs: usize) -> u32 {
    (pairs as u32 / 2 * 2 + 1) * CHUNK
}

/// Bytes of shared memory.
pub const fn block_sequence_shared_bytes(pairs: usize, rows: usize) -> u32 {
    shared_bytes(rows as u32, pitch(pairs), 2)
}

/// The place of a lane's element `i`: of eight rows it has two, of the warp's upper and lower units; of fewer those that
/// are left when lanes with the same share them.
pub(super) const fn place(rows: usize, turn: u32, i: usize) -> (u32, u32) {
    let i = i as u32;
    match rows {
        8 => (i / 2, turn * 2 + i % 2),
        4 => (turn / 2, turn % 2 * 2 + i),
        _ => (turn / 2, turn % 2),
    }
}

/// A lane's element `i` of a tile.
#[inline(always)]
pub(super) fn pick<const ROWS: usize>(tile: [f32; 4], turn: u32, i: usize) -> f32 {
    let halves = |j: usize| if turn < 2 { tile[j] } else { tile[2 + j] };
    match ROWS {
        8 => tile[i],
        4 => halves(i),
        _ => {
            if turn.is_multiple_of(2) {
                halves(0)
            } else {
                halves(1)
            }
        }
    }
}

/// Runs the sequence. gx is `[steps, batch, GATES·hidden]` and contiguous, like h0 and c0; weight is `[GATES·hidden, hidden]`; gh and cells
/// are as in [`sequence()`](fn@super::super::sequence).
///
/// Instances with `KEEPS` 1 are for `p` with [`has::KEPT`], those with 0 without.
///
/// Launch: a block for each `ROWS` rows of the batch, [`block_sequence_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// The tensors that `p.has` names and gx, y, h_n (c_n for an LSTM) are as `p` says; `p.hidden` is at most [`BLOCK_UNITS`] and
/// 32·`PAIRS`; the grid covers the batch.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 2, ROWS: 2, OWN: 1, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 2, ROWS: 8, OWN: 4, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 2, OWN: 1, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 8, OWN: 4, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 2, OWN: 1, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 8, OWN: 4, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, ROWS: 2, OWN: 1, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, ROWS: 4, OWN: 2, KEEPS: 0; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 2, ROWS: 2, OWN: 1, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 2, ROWS: 8, OWN: 4, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 2, OWN: 1, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, ROWS: 8, OWN: 4, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 2, OWN: 1, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, ROWS: 8, OWN: 4, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, ROWS: 2, OWN: 1, KEEPS: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, ROWS: 4, OWN: 2, KEEPS: 1; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn block_sequence<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const ROWS: usize,
    const OWN: usize,
    const KEEPS: usize,
>(
    weight: Global<T>,
    gx: Global<T>,
    bias: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
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
        let mut biases = [[0.0; 2]; GATES];
        for gate in 0..GATES {
            for half in 0..2 {
                let unit = first_unit + half as u32 * 8 + column;
                let has = (p.has & has::BIAS != 0) & (unit < p.hidden);
                let at = gate * p.hidden as usize + unit as usize;
                biases[gate][half] = T::from_bits(bias.get_bits_if(has, at, 0)).to_f32();
            }
        }
        let own_pack = column % ROWS as u32 * const { pitch(PAIRS) } + turn * 8;
        let product = |h: Shared<T>, from: u32| {
            let mut tiles = [[0.0; 4]; GATES];
            for gate in 0..GATES {
                let [upper, lower] = biases[gate];
                tiles[gate] = [upper, upper, lower, lower];
            }
            for pair in 0..PAIRS {
                let h = h.get_pack(from + own_pack + pair as u32 * CHUNK);
                for half in 0..2 {
                    for gate in 0..GATES {
                        let of_h = [h[2 * half], h[2 * half + 1]];
                        tiles[gate] = T::multiply(held[gate][pair][half], of_h, tiles[gate]);
                    }
                }
            }
            let mut own = [[0.0; GATES]; OWN];
            for i in 0..OWN {
                for gate in 0..GATES {
                    own[i][gate] = pick::<ROWS>(tiles[gate], turn, i);
                }
            }
            own
        };
        let of = Operands { gx, h0, c0, lengths, y, h_n, c_n, gh, cells };
        walk(&of, places, (ROWS as u32, const { pitch(PAIRS) }), &p, const { KEEPS != 0 }, product);
    }
}
