//! The gradient of a step's gates, behind the product of the step after it.
//!
//! The gradient of h' is the sum of dh, dy and what comes through gh of the step after, sums `[splits, batch, hidden]`; see
//! [`gates_backward()`](fn@super::super::gates_backward). dgh also goes out as parts, of which terms are those of all gates in turn, padded.
//!
//! Launch: as [`stream_gates()`](fn@super::stream_gates).
//!
//! Floor: its operands once.

use super::super::math::Factors;
use super::super::step::of_unit;
use super::super::{GRU, has};
use super::four::{FOUR, To, add_shares, load_four, place, store_four, store_parts};
use super::{StreamStep, Streamed, TERMS};
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Takes the step back. Launches ahead of the product have left gx, gh, h, c and dy.
///
/// # Safety
/// gx, gh, dgx, dgh `[batch, GATES·hidden]`, h, c, dh, dc `[batch, hidden]`, contiguous; dgh of a GRU and c and dc of an LSTM alone, sums
/// with `p.splits`. The rest is as [`stream_gates()`](fn@super::stream_gates).
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
pub unsafe fn stream_gates_back<T: Streamed, const GATES: usize, const WIDE: usize>(
    gx: Global<T>,
    gh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    dy: Global<T>,
    sums: Global<f32>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    parts: GlobalMut<u32>,
    scales: GlobalMut<f32>,
    p: StreamStep,
) {
    let (row, unit, left) = place(&p);
    let is_lstm = const { GATES != GRU };
    let (hidden, padded) = (p.hidden as usize, p.fours.value() * FOUR);
    let at_gate = |gate: usize| (row as usize * GATES + gate) * hidden + unit as usize;
    let at = row as usize * hidden + unit as usize;
    let left_of_c = if is_lstm { left } else { 0 };
    let (mut of_x, mut of_h) = ([[0.0; 4]; GATES], [[0.0; 4]; GATES]);
    // SAFETY: the caller's contract.
    unsafe {
        for gate in 0..GATES {
            of_x[gate] = load_four::<T, WIDE>(gx, left, at_gate(gate));
            of_h[gate] = load_four::<T, WIDE>(gh, left, at_gate(gate));
        }
        let before = load_four::<T, WIDE>(h, left, at);
        let before_c = load_four::<T, WIDE>(c, left_of_c, at);
        let ends = left > 0 && p.has & has::LENGTHS != 0;
        let length = lengths.get_bits_if(ends, row as usize, i32::MAX as u32) as i32;
        let active = (p.time as i32) < length;
        let left_of_y = if active && p.has & has::Y != 0 { left } else { 0 };
        let y_at = i64::from(row) * p.y_row + i64::from(unit);
        let of_y = load_four::<T, WIDE>(dy, left_of_y, y_at as usize);
        dependent::wait();
        dependent::allow_next();
        let mut of_h_next = load_four::<f32, WIDE>(Global::from_raw(dh.raw()), left, at);
        let mut of_c_next = load_four::<f32, WIDE>(Global::from_raw(dc.raw()), left_of_c, at);
        let mut all = [of_h_next];
        add_shares::<WIDE, 1>(&mut all, sums, left, |_| at, (p.splits, p.batch as usize * hidden));
        [of_h_next] = all;
        let (mut to_x, mut to_h) = ([[0.0; 4]; GATES], [[0.0; 4]; GATES]);
        for i in 0..4 {
            let given = (of_h_next[i] + of_y[i], of_c_next[i]);
            let of = Factors::new(of_unit(&of_x, i), of_unit(&of_h, i), (before[i], before_c[i]))
                .slopes::<GATES>(given);
            if active && (i as u32) < left {
                for gate in 0..GATES {
                    to_x[gate][i] = of.dgx[gate];
                    to_h[gate][i] = of.dgh[gate];
                }
                of_h_next[i] = of.dh;
                of_c_next[i] = of.dc;
            }
        }
        store_four::<f32, WIDE>(dh, left, at, of_h_next);
        store_four::<f32, WIDE>(dc, left_of_c, at, of_c_next);
        let exists = thread::index_1d() < u64::from(p.batch) * u64::from(p.fours.value());
        let to = To { parts, scales, lines: p.batch, chunks: GATES as u32 * padded / TERMS };
        for gate in 0..GATES {
            store_four::<T, WIDE>(dgx, left, at_gate(gate), to_x[gate]);
            if !is_lstm {
                store_four::<T, WIDE>(dgh, left, at_gate(gate), to_h[gate]);
            }
            store_parts::<T>(to, exists, (row, gate as u32 * padded + unit), to_h[gate]);
        }
    }
}

/// dh += what comes through gh of the first step, sums `[splits, count]`.
///
/// # Safety
/// The tensors have as much; the grid has a thread for each of `count`.
#[kernel(family = "recurrent_hopper", requires = "sm_90a", instances = [{ ; threads: 256 }])]
pub unsafe fn stream_collect(sums: Global<f32>, dh: GlobalMut<f32>, splits: u32, count: u32) {
    let index = thread::index_1d();
    dependent::wait();
    if index < u64::from(count) {
        let at = index as usize;
        // SAFETY: the caller's contract.
        unsafe {
            let mut all = dh.get(at);
            for split in 0..splits as usize {
                all += sums.get(split * count as usize + at);
            }
            dh.set(at, all);
        }
    }
}
