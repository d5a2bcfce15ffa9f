//! What the warps that do the gates do: add up sums, compute slopes, send dgh, write what they are.

use super::halves::{Layout, inbox_words};
use super::inputs::Inputs;
use super::{OWNERS, Operands, UNITS_BACK};
use crate::recurrent::bias::OfBias;
use crate::recurrent::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, POISON, send, word, word_of};
use crate::recurrent::math::{FACTORS, Factors};
use crate::recurrent::persistent::halves::{EMPTY, FETCHED, FULL, SENT, THREADS, of_set};
use crate::recurrent::persistent::multiply::place_of;
use crate::recurrent::persistent::{Sequence, WARPS, total};
use crate::recurrent::{GRU, has};
use cuda_std::bits;
use cuda_std::cluster;
use cuda_std::prelude::*;

/// Does the gates of every `CLUSTER`-th sub-batch of all steps, from the last on. A thread has a unit and a row of each: what neighbours send lies side by side.
///
/// # Safety
/// As [`sequence_back()`](fn@super::sequence_back); all threads behind the first [`WARPS`] warps call, [`OWNERS`] for each of `CLUSTER` sets, and these warps
/// multiply. Of a cluster the inboxes are poisoned.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gates<T: Half, const GATES: usize, const CLUSTER: usize>(
    of: Operands<T>,
    p: &Sequence,
    layout: Layout,
) {
    let is_lstm = const { GATES != GRU };
    let behind = thread::thread_idx_x() - WARPS * warp::SIZE;
    let (set, number) = if const { CLUSTER == 1 } { (0, behind) } else { (behind / OWNERS, behind % OWNERS) };
    let (column, own) = (number / UNITS_BACK, number % UNITS_BACK);
    let unit = thread::block_idx_x() * UNITS_BACK + own;
    // Computed where it is needed: kept for behind the loop, it would be spilled.
    let row_of = |sub: u32| {
        let (row, exists) = p.row((sub, 1), bits::opaque(number) / UNITS_BACK);
        (row, exists && unit < p.hidden)
    };
    // Of the units `unit & !1` and the next, a thread of the even one has the words.
    let sends = own % 2 == 0 && column < p.rows;
    let chunks = thread::grid_dim_x() * UNITS_BACK / CHUNK;
    let own_word = unit / CHUNK * CHUNK_WORDS + column * (CHUNK / 2) + unit % CHUNK / 2;

    // SAFETY: the caller's contract. State is a thread's own; sums and operands are read behind a barrier that those who wrote them arrived at, and
    // written again behind another. What the other block of a cluster sends two turns of a set later, it sends when it has what this block sends behind
    // the poison.
    unsafe {
        let place = place_of(own, column);
        let count = const { WARPS * CLUSTER as u32 * warp::SIZE * 4 };
        let sums = Shared::<f32>::dynamic(set * count * 4, count);
        let of_dh = Shared::<f32>::dynamic(layout.dh, p.subs * OWNERS);
        let of_dc = Shared::<f32>::dynamic(layout.dc, if is_lstm { p.subs * OWNERS } else { 0 });
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let inbox = Shared::<u32>::dynamic(layout.inbox, const { inbox_words(CLUSTER) });
        let rank = if const { CLUSTER > 1 } { cluster::rank() } else { 0 };
        // An exchange has fewer than 2^32 words.
        let send_all = |slot: u32, sub: u32, words: [u32; GATES]| {
            if sends {
                let group = slot * thread::grid_dim_y() + thread::block_idx_y();
                let at = (group * p.subs + sub) * p.ring.words + own_word;
                for gate in 0..GATES {
                    send(of.exchange, (at + gate as u32 * chunks * CHUNK_WORDS) as usize, words[gate]);
                }
            }
        };
        let state_at = |row: u32| row as usize * p.hidden as usize + unit as usize;
        let mut inputs = Inputs::<T, GATES, CLUSTER>::new(&of, p, (set, number), layout.inputs);
        let mut i = number;
        while i < p.subs * COLUMNS {
            let (row, exists) = p.row((0, p.subs), i);
            let has = p.has & has::LENGTHS != 0 && exists;
            // Each set those of its own sub-batches. Rows that do not exist have no steps.
            if i / COLUMNS % CLUSTER as u32 == set {
                let otherwise = if exists { p.steps } else { 0 };
                of_lengths.set(i, of.lengths.get_bits_if(has, row as usize, otherwise) as i32);
            }
            i += OWNERS;
        }
        let mut sub = set;
        while sub < p.subs {
            let (row, exists) = row_of(sub);
            let given = |from: GlobalMut<f32>| if exists { from.get(state_at(row)) } else { 0.0 };
            of_dh.set(sub * OWNERS + number, given(of.dh));
            if is_lstm {
                of_dc.set(sub * OWNERS + number, given(of.dc));
            }
            // Nothing comes from behind the last step.
            send_all(0, sub, [0; GATES]);
            sub += CLUSTER as u32;
        }

        let mut of_bias = OfBias::<GATES>::new();
        let (mut slot, mut sub, mut back, mut turn) = (0, set, 0, 0u32);
        while back <= p.steps {
            if sub == set && p.ring.is_fence(slot) {
                thread::device_fence();
            }
            // What does not depend on the products, before they are waited for.
            inputs.wait();
            thread::sync_named(of_set(FETCHED, set), OWNERS);
            // Behind the last step there is nothing.
            let of_unit = inputs.take(back < p.steps, column, own);
            let state = of_unit.state;
            let mut factors = Factors::new(of_unit.gx, of_unit.gh, (state, state));
            for i in 0..FACTORS {
                // Computed here, and not where they are needed.
                factors.0[i] = f32::from_bits(bits::pinned(factors.0[i].to_bits()));
            }
            let time = if p.reverse == 0 { p.steps.wrapping_sub(1 + back) } else { back };
            let is_active = (time as i32) < of_lengths.get(sub * COLUMNS + column);
            let own_state = sub * OWNERS + number;
            let before = of_dh.get(own_state);
            let dc = if is_lstm { of_dc.get(own_state) } else { 0.0 };
            // Into the buffer of the turn before: behind the barrier all have read it.
            inputs.fetch();

            thread::sync_named(of_set(FULL, set), THREADS);
            let of_tile = |tile: u32| {
                total(|part| sums.get((part * CLUSTER as u32 + tile) * const { warp::SIZE * 4 } + place))
            };
            let at = (2 * set + turn % 2) * OWNERS + number;
            if const { CLUSTER > 1 } {
                inbox.store_relaxed_remote(1 - rank, at, word_of(of_tile(1 - rank)));
            }
            let mut product = of_tile(rank);
            let is_last = sub + CLUSTER as u32 >= p.subs;
            if back < p.steps || !is_last {
                thread::arrive_named(of_set(EMPTY, set), THREADS);
            }
            if const { CLUSTER > 1 } {
                // It comes: the other block waits for nobody for good.
                let mut theirs = inbox.load_relaxed(at);
                while theirs == POISON {
                    thread::spin_wait();
                    theirs = inbox.load_relaxed(at);
                }
                product += f32::from_bits(theirs);
                inbox.store_relaxed(at, POISON);
                turn += 1;
            }
            let mut dh = before + product;
            let next_slot = p.ring.after(slot);
            if back < p.steps {
                let slopes = factors.slopes::<GATES>((dh + of_unit.dy, dc));
                dh = if is_active { slopes.dh } else { dh };
                let given = |value: f32| if is_active { value } else { 0.0 };
                let (dgx, dgh) = (slopes.dgx.map(given), slopes.dgh.map(given));
                let pair_of =
                    |value: f32| word::<T>(value, warp::warp_shuffle_xor(u32::MAX, value, 1, warp::SIZE).0);
                let words = dgh.map(pair_of);
                send_all(next_slot, sub, words);
                if const { CLUSTER == 1 } && p.subs == 1 {
                    thread::arrive_named(SENT, THREADS);
                }
                if let Some(free) = p.ring.freed(slot, back) {
                    send_all(free, sub, [POISON; GATES]);
                }
                if is_lstm && is_active {
                    of_dc.set(own_state, slopes.dc);
                }
                let (row, exists) = row_of(sub);
                of_bias.add(dgx, dgh);
                let of_time = time as usize * p.batch as usize + row as usize;
                let at = of_time * GATES * p.hidden as usize + unit as usize;
                let writes = sends && exists;
                // Those of a GRU differ in the last gate.
                let last = if is_lstm { words[GATES - 1] } else { pair_of(dgx[GATES - 1]) };
                for gate in 0..GATES {
                    let at = at + gate * p.hidden as usize;
                    of.dgx.set_4_if(writes, at, if gate + 1 < GATES { words[gate] } else { last });
                    if !is_lstm {
                        of.dgh.set_4_if(writes, at, words[gate]);
                    }
                }
            }
            of_dh.set(own_state, dh);
            sub += CLUSTER as u32;
            if is_last {
                (slot, back, sub) = (next_slot, back + 1, set);
            }
        }
        if p.has & has::SUMS != 0 && unit < p.hidden {
            let first = (thread::block_idx_y() * CLUSTER as u32 + set) * COLUMNS;
            let rows = thread::grid_dim_y() * const { CLUSTER as u32 * COLUMNS };
            of_bias.store(of.dbias, (first + column, rows), (unit, p.hidden));
        }
        let mut sub = set;
        while sub < p.subs {
            let (row, exists) = row_of(sub);
            if exists {
                of.dh.set(state_at(row), of_dh.get(sub * OWNERS + number));
                if is_lstm {
                    of.dc.set(state_at(row), of_dc.get(sub * OWNERS + number));
                }
            }
            sub += CLUSTER as u32;
        }
    }
}
