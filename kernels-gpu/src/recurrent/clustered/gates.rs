//! What the warps that do the gates do: add up sums, compute gates, send h, write y.

use super::cells::Cells;
use super::inputs::{Inputs, elements};
use super::multiply::Sums;
use super::{CLUSTERED_UNITS, EMPTY, FULL, GRU, Operands, PARTS, WARPS, has, pair_of, threads, total};
use crate::recurrent::math::step_of_half;
use crate::recurrent::operand::Operand;
use crate::recurrent::persistent::Sequence;
use cuda_std::bits;
use cuda_std::cluster;
use cuda_std::prelude::*;

/// Does the gates of a row of all steps: a lane has a unit.
///
/// # Safety
/// As [`clustered_sequence()`](fn@super::clustered_sequence); all lanes of as many warps as the cluster has rows call, behind the first [`WARPS`], which multiply.
#[inline(always)]
pub(super) unsafe fn gates<T: Half, const GATES: usize, const PAIRS: usize>(
    of: Operands<T>,
    p: &Sequence,
    (exchange, sums): (Cells<PAIRS>, Sums),
    inputs: u32,
) {
    let is_lstm = const { GATES != GRU };
    let Operands { gx, bias, h0, c0, lengths, y, h_n, c_n, gh, cells } = of;
    let (lane, of_cluster) = (warp::lane_id(), warp::warp_id() - WARPS);
    let (row, is_row) = p.row((0, 1), of_cluster);
    let rank = cluster::rank();
    let unit = rank * CLUSTERED_UNITS + lane;
    let exists = is_row && unit < p.hidden;
    let writes = exists && lane % 2 == 0;
    let (reverse, keeps) = (p.reverse != 0, p.has & has::KEPT != 0);

    // SAFETY: the caller's contract. Sums are read behind a barrier that those who wrote them arrived at.
    unsafe {
        let of_gx = |gate: u32| Operand {
            from: gx,
            row_elements: GATES as u32 * p.hidden,
            first: gate * p.hidden,
            is_given: true,
        };
        let first = inputs + of_cluster * const { elements(GATES) * 2 };
        let mut inputs =
            Inputs::new((of_gx, GATES), (p, reverse), (row, is_row), rank * CLUSTERED_UNITS, first);
        let mut of_bias = [0.0; GATES];
        for gate in 0..GATES {
            let has = p.has & has::BIAS != 0 && unit < p.hidden;
            let at = gate * p.hidden as usize + unit as usize;
            of_bias[gate] = T::from_bits(bias.get_bits_if(has, at, 0)).to_f32();
        }
        let has_length = p.has & has::LENGTHS != 0 && is_row;
        let length = lengths.get_bits_if(has_length, row as usize, p.steps) as i32;
        let state_at = row as usize * p.hidden as usize + unit as usize;
        let of_state = |from: Global<T>, bit: u32| {
            T::from_bits(from.get_bits_if(exists && p.has & bit != 0, state_at, 0)).to_f32()
        };
        let (mut h, mut c) = (of_state(h0, has::H), if is_lstm { of_state(c0, has::C) } else { 0.0 });
        exchange.send(0, rank, of_cluster, pair_of::<T>(h));

        // Where things of the present time are: to be worked out at each step takes longer.
        let mut time = if reverse { p.steps - 1 } else { 0 };
        let mut of_time = time as usize * p.batch as usize + row as usize;
        let mut y_at = i64::from(row) * p.y_row + i64::from(time) * p.y_time + i64::from(unit);
        let (times, rows, y_time) = if reverse {
            (u32::MAX, (p.batch as usize).wrapping_neg(), -p.y_time)
        } else {
            (1, p.batch as usize, p.y_time)
        };
        let mut now = 0;
        while now < p.steps {
            // What does not depend on the products, before they are waited for.
            inputs.wait();
            let mut of_x = [0.0; GATES];
            for gate in 0..GATES {
                of_x[gate] = inputs.get(gate);
            }
            inputs.advance(reverse);
            let is_active = (time as i32) < length;
            thread::sync_named(FULL + now % 2, threads(exchange));
            let mut parts = [[0.0; PARTS]; GATES];
            for gate in 0..GATES {
                parts[gate] = sums.parts(now, gate, of_cluster);
            }
            // All loads first: they would otherwise wait for one another, and for what is computed of some.
            warp::sync_warp(u32::MAX);
            let mut of_h = [0.0; GATES];
            for gate in 0..GATES {
                of_h[gate] = of_bias[gate] + total(parts[gate]);
            }
            let (next_h, next_c) = step_of_half::<GATES>(of_x, of_h, h, c);
            // Computed in either case: behind a branch, one would wait for the other.
            let next_h = f32::from_bits(bits::pinned(next_h.to_bits()));
            let of_y = if is_active { next_h } else { 0.0 };
            let before = c;
            if is_active {
                (h, c) = (next_h, next_c);
            }
            if now + 1 != p.steps {
                exchange.send(now + 1, rank, of_cluster, pair_of::<T>(h));
            }
            if now + 2 < p.steps {
                thread::arrive_named(EMPTY + now % 2, threads(exchange));
            }
            y.set_4_if(writes, y_at as usize, pair_of::<T>(of_y));
            if keeps {
                for gate in 0..GATES {
                    let at = (of_time * GATES + gate) * p.hidden as usize + unit as usize;
                    gh.set_4_if(writes, at, pair_of::<T>(of_h[gate]));
                }
                if is_lstm {
                    cells.set_4_if(writes, of_time * p.hidden as usize + unit as usize, pair_of::<T>(before));
                }
            }
            now += 1;
            (time, of_time) = (time.wrapping_add(times), of_time.wrapping_add(rows));
            y_at += y_time;
        }
        if exists {
            h_n.set(state_at, T::from_f32(h));
            if is_lstm {
                c_n.set(state_at, T::from_f32(c));
            }
        }
    }
}
