//! What the warps of a gradient do beside those that multiply: some compute what dh and dc are multiplied by (`prepare`), others add up sums, compute slopes,
//! send dgh and write it (`gates`). One warp that does both takes longer than what it would wait for.

use super::cells::{ASIDE_WORDS, Cells};
use super::inputs::{Inputs, elements};
use super::multiply::Sums;
use super::{
    CLUSTERED_ROWS, CLUSTERED_UNITS, EMPTY, FULL, GRU, Layout, OperandsBack, WARPS, has, pairs_of, threads,
    total,
};
use crate::recurrent::math::{FACTORS, Factors};
use crate::recurrent::operand::OfGradient;
use crate::recurrent::persistent::Sequence;
use cuda_std::cluster;
use cuda_std::prelude::*;

/// The first of two barriers at which a step's factors are there, of steps in turn.
const READY: u32 = EMPTY + 2;
/// The first of two at which they have been read.
const TAKEN: u32 = READY + 2;

/// What a lane is given of a step: factors, and dy.
const GIVEN: usize = FACTORS + 1;

/// Bytes of two buffers of what all lanes of a row are given.
pub const GIVEN_BYTES: u32 = 2 * GIVEN as u32 * CLUSTERED_UNITS * 4;

/// Threads that meet where factors are passed on.
#[inline(always)]
fn pairs(p: &Sequence) -> u32 {
    2 * p.rows * warp::SIZE
}

/// The lane's of a step, each a row of lanes further.
///
/// # Safety
/// The launch gives the bytes.
#[inline(always)]
unsafe fn given_of(layout: Layout, row: u32, back: u32) -> Shared<f32> {
    let first = layout.given + row * GIVEN_BYTES + back % 2 * (GIVEN_BYTES / 2) + warp::lane_id() * 4;
    // SAFETY: the caller's contract.
    unsafe { Shared::dynamic(first, (GIVEN as u32 - 1) * CLUSTERED_UNITS + 1) }
}

/// Computes factors of a row of all steps, from the last on: a lane has a unit.
///
/// # Safety
/// As [`clustered_sequence_back()`](fn@super::clustered_sequence_back); all lanes of as many warps as the cluster has rows call, [`CLUSTERED_ROWS`] warps behind
/// those that call [`gates`].
#[inline(always)]
pub(super) unsafe fn prepare<T: Half, const GATES: usize>(of: OperandsBack<T>, p: &Sequence, layout: Layout) {
    let of_cluster = warp::warp_id() - WARPS - CLUSTERED_ROWS;
    // SAFETY: the caller's contract. A buffer is written when it has been read, and read when it has been written.
    unsafe {
        let count = const { OfGradient::<T>::count(GATES) };
        let first = layout.inputs + of_cluster * const { elements(OfGradient::<T>::count(GATES)) * 2 };
        let of_operand = |number: u32| of.given.operand::<GATES>(p, number);
        let (operands, first_unit) = ((of_operand, count), cluster::rank() * CLUSTERED_UNITS);
        let reverse = p.reverse == 0;
        let mut inputs = Inputs::new(operands, (p, reverse), p.row((0, 1), of_cluster), first_unit, first);
        let mut back = 0;
        while back < p.steps {
            inputs.wait();
            let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
            for gate in 0..GATES {
                (gx[gate], gh[gate]) = (inputs.get(gate), inputs.get(GATES + gate));
            }
            let (state, dy) = (inputs.get(2 * GATES), inputs.get(2 * GATES + 1));
            inputs.advance(reverse);
            let factors = Factors::new(gx, gh, (state, state));
            if back >= 2 {
                thread::sync_named(TAKEN + back % 2, pairs(p));
            }
            let given = given_of(layout, of_cluster, back);
            for i in 0..FACTORS {
                given.set(i as u32 * CLUSTERED_UNITS, factors.0[i]);
            }
            given.set(FACTORS as u32 * CLUSTERED_UNITS, dy);
            thread::arrive_named(READY + back % 2, pairs(p));
            back += 1;
        }
    }
}

/// Does the gates of a row of all steps, from the last on: a lane has a unit.
///
/// # Safety
/// As [`clustered_sequence_back()`](fn@super::clustered_sequence_back); all lanes of as many warps as the cluster has rows call, behind the first
/// [`WARPS`], which multiply.
#[inline(always)]
pub(super) unsafe fn gates<T: Half, const GATES: usize, const PAIRS: usize>(
    of: OperandsBack<T>,
    p: &Sequence,
    (exchange, sums): (Cells<PAIRS>, Sums),
    layout: Layout,
) {
    let is_lstm = const { GATES != GRU };
    let (lane, of_cluster) = (warp::lane_id(), warp::warp_id() - WARPS);
    let (row, is_row) = p.row((0, 1), of_cluster);
    let rank = cluster::rank();
    let unit = rank * CLUSTERED_UNITS + lane;
    let exists = is_row && unit < p.hidden;
    let writes = exists && lane % 2 == 0;
    // From the last step on.
    let reverse = p.reverse == 0;

    // SAFETY: the caller's contract. Sums are read behind a barrier that those who wrote them arrived at.
    unsafe {
        let has_length = p.has & has::LENGTHS != 0 && is_row;
        let length = of.lengths.get_bits_if(has_length, row as usize, p.steps) as i32;
        let state_at = row as usize * p.hidden as usize + unit as usize;
        let given = |from: GlobalMut<f32>| if exists { from.get(state_at) } else { 0.0 };
        let (mut dh, mut dc) = (given(of.dh), if is_lstm { given(of.dc) } else { 0.0 });
        let aside = Shared::<u32>::dynamic(layout.aside + of_cluster * ASIDE_WORDS * 4, ASIDE_WORDS);
        let send = |back: u32, words: [u32; GATES]| exchange.send_gates(back, of_cluster, words, aside);
        // Nothing comes from behind the last step.
        send(0, [0; GATES]);

        // Where things of the present time are: to be worked out at each step takes longer.
        let mut time = if reverse { p.steps - 1 } else { 0 };
        let of_time = time as usize * p.batch as usize + row as usize;
        let of_row = GATES * p.hidden as usize;
        let mut at = of_time * of_row + unit as usize;
        let per_time = p.batch as usize * of_row;
        let (times, per_time) = if reverse { (u32::MAX, per_time.wrapping_neg()) } else { (1, per_time) };
        let mut back = 0;
        while back <= p.steps {
            // What does not depend on the products, before they are waited for. Behind the last step there is nothing.
            let (mut factors, mut dy) = (Factors([0.0; FACTORS]), 0.0);
            if back < p.steps {
                thread::sync_named(READY + back % 2, pairs(p));
                let given = given_of(layout, of_cluster, back);
                for i in 0..FACTORS {
                    factors.0[i] = given.get(i as u32 * CLUSTERED_UNITS);
                }
                dy = given.get(FACTORS as u32 * CLUSTERED_UNITS);
                if back + 2 < p.steps {
                    thread::arrive_named(TAKEN + back % 2, pairs(p));
                }
            }
            let is_active = (time as i32) < length;

            thread::sync_named(FULL + back % 2, threads(exchange));
            let parts = sums.parts(back, 0, of_cluster);
            dh += total(parts);
            if back < p.steps {
                let slopes = factors.slopes::<GATES>((dh + dy, dc));
                let given = |value: f32| if is_active { value } else { 0.0 };
                let (dgh, last) = (slopes.dgh.map(given), given(slopes.dgx[GATES - 1]));
                let first = pairs_of::<T>([dgh[0], dgh[1]]);
                // Those of a GRU differ in the last gate.
                let second = pairs_of::<T>(if is_lstm { [dgh[2], dgh[GATES - 1]] } else { [dgh[2], last] });
                let mut words = [0; GATES];
                (words[0], words[1], words[2]) = (first[0], first[1], second[0]);
                let last = second[1];
                if is_lstm {
                    words[GATES - 1] = last;
                }
                send(back + 1, words);
                if back + 2 <= p.steps {
                    thread::arrive_named(EMPTY + back % 2, threads(exchange));
                }
                if is_active {
                    (dh, dc) = (slopes.dh, slopes.dc);
                }
                for gate in 0..GATES {
                    let at = at.wrapping_add(gate * p.hidden as usize);
                    of.dgx.set_4_if(writes, at, if gate + 1 < GATES { words[gate] } else { last });
                    if !is_lstm {
                        of.dgh.set_4_if(writes, at, words[gate]);
                    }
                }
            }
            back += 1;
            (time, at) = (time.wrapping_add(times), at.wrapping_add(per_time));
        }
        if exists {
            of.dh.set(state_at, dh);
            if is_lstm {
                of.dc.set(state_at, dc);
            }
        }
    }
}
