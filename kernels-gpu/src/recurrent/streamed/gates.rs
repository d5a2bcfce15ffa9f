//! The gates of a step, behind the product of its state.
//!
//! h' (c') from gx `[batch, GATES·hidden]`, sums `[splits, batch, GATES·hidden]`, the bias, and h (c) `[batch, hidden]`, f32, which they
//! replace; y as well, whose rows lie apart, and the parts of h'. With `has::KEPT` gh, as gx, gets the sums with the bias, and of an LSTM cells the c before. Rows of the batch that are at their end keep h and c and have y 0.
//!
//! Launch: 1-D grid, a thread for each four units of a row, up to a multiple of [`TERMS`]; it may be early.
//!
//! Floor: its operands once, which lie in L2.

use super::super::math::step;
use super::super::step::of_unit;
use super::super::{GRU, has};
use super::four::{FOUR, Four, To, add_shares, load_four, store_four, store_parts};
use super::{StreamStep, Streamed, TERMS};
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Takes the step. A launch ahead of the product has left gx.
///
/// # Safety
/// The operands that `p.has` names and the others are as the module says, `parts` and `scales` as those of
/// [`take_apart()`](fn@super::take_apart); with `WIDE` four units go together. The grid covers them.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f32, f16, bf16],
    instances = [
        { GATES: 3, WIDE: 0; threads: 128, min_blocks: 3 }, { GATES: 3, WIDE: 1; threads: 128, min_blocks: 3 },
        { GATES: 4, WIDE: 0; threads: 128, min_blocks: 3 }, { GATES: 4, WIDE: 1; threads: 128, min_blocks: 3 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn stream_gates<T: Streamed, const GATES: usize, const WIDE: usize>(
    gx: Global<T>,
    sums: Global<f32>,
    bias: Global<T>,
    lengths: Global<i32>,
    h: GlobalMut<f32>,
    c: GlobalMut<f32>,
    y: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
    parts: GlobalMut<u32>,
    scales: GlobalMut<f32>,
    p: StreamStep,
) {
    let four = Four::of_thread(&p);
    let Four { row, unit, left, inside } = four;
    let is_lstm = const { GATES != GRU };
    let (hidden, padded) = (p.hidden as usize, p.fours.value() * FOUR);
    let at_gate = |gate: usize| four.of_gate(&p, GATES, gate);
    let (mut of_x, mut of_h) = ([[0.0; 4]; GATES], [[0.0; 4]; GATES]);
    // SAFETY: the caller's contract.
    unsafe {
        for gate in 0..GATES {
            of_x[gate] = load_four::<T, WIDE>(gx, left, at_gate(gate));
            let left = if p.has & has::BIAS != 0 { left } else { 0 };
            of_h[gate] = load_four::<T, WIDE>(bias, left, gate * hidden + unit as usize);
        }
        let ends = left > 0 && p.has & has::LENGTHS != 0;
        let length = lengths.get_bits_if(ends, row as usize, i32::MAX as u32) as i32;
        let active = (p.time as i32) < length;
        dependent::wait();
        dependent::allow_next();
        let of_split = p.batch as usize * GATES * hidden;
        let at = four.of_gate(&p, 1, 0);
        let mut after = load_four::<f32, WIDE>(Global::from_raw(h.raw()), left, at);
        let left_of_c = if is_lstm { left } else { 0 };
        let mut after_c = load_four::<f32, WIDE>(Global::from_raw(c.raw()), left_of_c, at);
        add_shares::<WIDE, GATES>(&mut of_h, sums, left, at_gate, (p.splits, of_split));
        let left_of_kept = if p.has & has::KEPT != 0 { left } else { 0 };
        for gate in 0..GATES {
            store_four::<T, WIDE>(gh, left_of_kept, at_gate(gate), of_h[gate]);
        }
        if is_lstm {
            store_four::<T, WIDE>(cells, left_of_kept, at, after_c);
        }
        let mut out = [0.0; 4];
        for i in 0..4 {
            let (next, next_c) = step(of_unit(&of_x, i), of_unit(&of_h, i), after[i], after_c[i]);
            if active && (i as u32) < left {
                after[i] = next;
                after_c[i] = next_c;
                out[i] = next;
            }
        }
        store_four::<f32, WIDE>(h, left, at, after);
        store_four::<f32, WIDE>(c, left_of_c, at, after_c);
        store_four::<T, WIDE>(y, left, four.of_y(&p), out);
        let to = To { parts, scales, lines: p.batch, chunks: padded / TERMS };
        store_parts::<T>(to, inside, (row, unit), after);
    }
}
