//! With f32 weights, by plain f32 arithmetic.
//!
//! Four lanes share a unit: each holds a quarter of the columns of its rows of w_hh, packs in turn, so that what the four
//! read of h lies together. Their sums are added up by shuffles; the gates of a row are computed by one of the four.

use super::BlockSequence;
use super::shares::{Shares, rest_bytes};
use super::walk::{Operands, Place, shared_bytes, walk};
use crate::recurrent::has;
use cuda_std::prelude::*;

/// Lanes of a unit.
const LANES: u32 = 4;
/// Threads of a block.
const THREADS: u32 = 512;
/// Units of a block.
pub const FLOAT_UNITS: u32 = THREADS / LANES;

/// Columns of the four lanes' packs.
pub const PACK_UNITS: u32 = LANES * 4;

/// Elements from a row of h to the next.
pub(super) const fn pitch(packs: usize) -> u32 {
    packs as u32 * PACK_UNITS
}

/// Bytes of shared memory.
pub const fn block_sequence_f32_shared_bytes(gates: usize, packs: usize, held: usize, rows: usize) -> u32 {
    shared_bytes(rows as u32, pitch(packs), 4) + rest_bytes(gates, packs, held, THREADS)
}

/// Runs the sequence, as [`block_sequence()`](fn@super::block_sequence) does.
///
/// Launch: a block for each `ROWS` rows of the batch, [`block_sequence_f32_shared_bytes`] of dynamic shared memory.
///
/// # Safety
/// As there; `p.hidden` is at most [`FLOAT_UNITS`] and [`PACK_UNITS`]·`PACKS`.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, PACKS: 4, HELD: 4, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 3, PACKS: 4, HELD: 4, ROWS: 4; threads: 512, min_blocks: 1 },
        { GATES: 3, PACKS: 8, HELD: 8, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 4, HELD: 4, ROWS: 1; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 4, HELD: 4, ROWS: 4; threads: 512, min_blocks: 1 },
        { GATES: 4, PACKS: 8, HELD: 4, ROWS: 1; threads: 512, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn block_sequence_f32<
    T: Float,
    const GATES: usize,
    const PACKS: usize,
    const HELD: usize,
    const ROWS: usize,
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
    let tid = thread::thread_idx_x();
    let (unit, part) = (tid / LANES, tid % LANES);
    let places = [Place { row: part % ROWS as u32, unit, is_own: part < ROWS as u32 }];
    // SAFETY: the caller's contract; of the lanes of a unit each has one row, or none.
    unsafe {
        let first = const { shared_bytes(ROWS as u32, pitch(PACKS), 4) };
        let weights = Shares::<GATES, HELD, THREADS>::load::<T, PACKS>(weight, first, |gate, pack| {
            let k = (pack as u32 * LANES + part) * 4;
            let row = (gate * p.hidden as usize + unit as usize) * p.weight_row as usize;
            ((unit < p.hidden) & (k < p.hidden), row + k as usize)
        });
        let mut biases = [0.0; GATES];
        for gate in 0..GATES {
            let has = (p.has & has::BIAS != 0) & (unit < p.hidden) & (part == 0);
            let at = gate * p.hidden as usize + unit as usize;
            biases[gate] = T::from_bits(bias.get_bits_if(has, at, 0)).to_f32();
        }
        let product = |h: Shared<T>, from: u32| {
            let mut sums = [[0.0; GATES]; ROWS];
            for row in 0..ROWS {
                sums[row] = biases;
                let of_row = from + row as u32 * const { pitch(PACKS) } + part * 4;
                weights.each::<PACKS>(p.hidden.div_ceil(PACK_UNITS), |gate, pack, weights| {
                    let h = h.get_pack(of_row + pack * PACK_UNITS);
                    for j in 0..4 {
                        sums[row][gate] = float::fma(weights[j], f32::from_bits(h[j]), sums[row][gate]);
                    }
                });
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
        let of = Operands { gx, h0, c0, lengths, y, h_n, c_n, gh, cells };
        walk(&of, places, (ROWS as u32, const { pitch(PACKS) }), &p, p.has & has::KEPT != 0, product);
    }
}
