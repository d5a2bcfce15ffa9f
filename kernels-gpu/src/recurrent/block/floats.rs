//! With f32 weights, by plain f32 arithmetic.
//!
//! Four lanes share a unit: each holds a quarter of the columns of its rows of w_hh, packs in turn, so that what the four
//! read of h lies together. Their sums are added up by shuffles; the gates of a row are computed by one of the four.

use super::BlockSequence;
use super::walk::{Operands, Place, shared_bytes, walk};
use crate::recurrent::has;
use cuda_std::prelude::*;

/// Lanes of a unit.
const LANES: u32 = 4;
/// Units of a block.
pub const FLOAT_UNITS: u32 = 128;

/// Elements from a row of h to the next.
const fn pitch(packs: usize) -> u32 {
    packs as u32 * LANES * 4
}

/// Bytes of shared memory.
pub const fn block_sequence_f32_shared_bytes(packs: usize, rows: usize) -> u32 {
    shared_bytes(rows as u32, pitch(packs), 4)
}

/// Runs the sequence, as [`block_sequence()`](fn@super::block_sequence) does.
///
/// Launch: a block for each `ROWS` rows of the batch, [`block_sequence_f32_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// As there; `p.hidden` is at most [`FLOAT_UNITS`] and 16·`PACKS`.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, PACKS: 4, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 3, PACKS: 4, ROWS: 4; threads: 512, min_blocks: 1 },
        { GATES: 3, PACKS: 8, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 4, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 4, ROWS: 4; threads: 512, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn block_sequence_f32<T: Float, const GATES: usize, const PACKS: usize, const ROWS: usize>(
    weight: Global<T>,
    gx: Global<T>,
    bias: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    p: BlockSequence,
) {
    let tid = thread::thread_idx_x();
    let (unit, part) = (tid / LANES, tid % LANES);
    let places = [Place { row: part % ROWS as u32, unit, is_own: part < ROWS as u32 }];
    // SAFETY: the caller's contract; of the lanes of a unit each has one row, or none.
    unsafe {
        let mut held = [[[0.0f32; 4]; PACKS]; GATES];
        let mut biases = [0.0; GATES];
        for gate in 0..GATES {
            let row = gate * p.hidden as usize + unit as usize;
            for pack in 0..PACKS {
                let k = (pack as u32 * LANES + part) * 4;
                let at = row * p.weight_row as usize + k as usize;
                let words = weight.get_pack_if((unit < p.hidden) & (k < p.hidden), at, 0);
                for j in 0..4 {
                    held[gate][pack][j] = f32::from_bits(words[j]);
                }
            }
            let has = (p.has & has::BIAS != 0) & (unit < p.hidden) & (part == 0);
            biases[gate] = T::from_bits(bias.get_bits_if(has, row, 0)).to_f32();
        }
        let product = |h: Shared<T>, from: u32| {
            let mut sums = [[0.0; GATES]; ROWS];
            for row in 0..ROWS {
                sums[row] = biases;
                for pack in 0..PACKS {
                    let at = from + row as u32 * const { pitch(PACKS) } + (pack as u32 * LANES + part) * 4;
                    let h = h.get_pack(at);
                    for j in 0..4 {
                        for gate in 0..GATES {
                            let of_h = f32::from_bits(h[j]);
                            sums[row][gate] = float::fma(held[gate][pack][j], of_h, sums[row][gate]);
                        }
                    }
                }
            }
            let mut own = [0.0; GATES];
            for gate in 0..GATES {
                for row in 0..ROWS {
                    let mut sum = sums[row][gate];
                    sum += warp::warp_shuffle_xor(u32::MAX, sum, 1, warp::SIZE).0;
                    sum += warp::warp_shuffle_xor(u32::MAX, sum, 2, warp::SIZE).0;
                    own[gate] = if part % ROWS as u32 == row as u32 { sum } else { own[gate] };
                }
            }
            [own]
        };
        let of = Operands { gx, h0, c0, lengths, y, h_n, c_n };
        walk(&of, places, (ROWS as u32, const { pitch(PACKS) }), &p, product);
    }
}
