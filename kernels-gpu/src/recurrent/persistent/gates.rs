//! What the warps that do the gates do: add up sums, compute gates, send h, write y.

use super::halves::{EMPTY, FETCHED, FULL, Layout, Operands, SENT, THREADS};
use super::inputs::Inputs;
use super::multiply::place_of;
use super::{Sequence, WARPS, total, units};
use crate::recurrent::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, POISON, send, word};
use crate::recurrent::math::{step, step_of_half};
use crate::recurrent::{GRU, has};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Threads that do gates.
pub(super) const OWNERS: u32 = 128;

/// Rows of a unit that a thread has of each turn of `span` sub-batches.
pub(super) const fn rows_of(units: u32, span: usize) -> usize {
    (units * COLUMNS * span as u32 / OWNERS) as usize
}

/// Whether a sub-batch may have fewer rows than columns: where threads have no second row, of few units. Of more, the registers that it takes cost more.
pub(super) const fn has_few(units: u32, span: usize) -> bool {
    rows_of(units, span) == 1
}

/// Does the gates of all sub-batches of all steps, `SPAN` at a time. A thread has a unit, and `ROWS` neighbouring rows of one of these, as they lie
/// in an accumulator: [`rows_of`] the block's units. `KEEPS` is whether `p` has [`has::KEPT`]: a loop of its own, since the other would be slower for it.
///
/// # Safety
/// As [`sequence()`](fn@super::sequence); all [`OWNERS`] threads behind the first [`WARPS`] warps call, and these warps
/// multiply.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub unsafe fn gates<
    T: Half,
    const GATES: usize,
    const TILES: usize,
    const SPAN: usize,
    const ROWS: usize,
    const KEEPS: bool,
>(
    of: Operands<T>,
    p: &Sequence,
    layout: Layout,
) {
    let units = const { units(GATES, TILES) };
    let is_lstm = const { GATES != GRU };
    let Operands { gx, bias, h0, c0, lengths, y, h_n, c_n, gh, cells, exchange } = of;
    // Threads of neighbouring units are neighbours, so that what they send and write lies side by side.
    let me = thread::thread_idx_x() - WARPS * warp::SIZE;
    let span = SPAN as u32;
    let (own, column) = (me % units, me / units * ROWS as u32);
    let (of_turn, of_sub) = (column / COLUMNS, column % COLUMNS);
    let number = of_sub * units + own * ROWS as u32;
    let place = own / 16 * 128 + place_of(own % 16, of_sub);
    let first_unit = thread::block_idx_x() * units;
    let unit = first_unit + own;
    let is_odd = own % 2 == 1;
    // Of the units `unit & !1` and the next, a thread has the words of one column; of one row, that of the even unit.
    let (word_column, has_word) =
        if const { ROWS == 2 } { (column + own % 2, true) } else { (column, !is_odd) };
    let sends = has_word && (const { ROWS > 1 } || word_column < p.rows * span);
    let row_of = |sub: u32, column: u32| {
        let (row, exists) = if const { ROWS == 1 } {
            p.row((sub, span), column)
        } else {
            let row = (thread::block_idx_y() * p.subs + sub) * COLUMNS + column;
            (row, row < p.batch)
        };
        (row, exists && unit < p.hidden)
    };

    // SAFETY: the caller's contract. State is a thread's own; sums and gx are read behind a barrier that those who wrote
    // them arrived at, and written again behind another.
    unsafe {
        let sums = Shared::<f32>::dynamic(0, WARPS * (SPAN * TILES) as u32 * warp::SIZE * 4);
        let state = p.subs * COLUMNS * units;
        let of_h = Shared::<f32>::dynamic(layout.h, state);
        let of_c = Shared::<f32>::dynamic(layout.c, if is_lstm { state } else { 0 });
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };
        let next =
            |step: u32, sub: u32| if sub + span == p.subs { (step + 1, 0) } else { (step, sub + span) };
        let mut inputs = Inputs::<T, GATES, TILES, SPAN>::new(gx, p, me, layout.gx);

        let mut of_bias = [0.0; GATES];
        for gate in 0..GATES {
            let has = p.has & has::BIAS != 0 && unit < p.hidden;
            let at = gate * p.hidden as usize + unit as usize;
            of_bias[gate] = T::from_bits(bias.get_bits_if(has, at, 0)).to_f32();
        }
        let mut i = me;
        while i < p.subs * COLUMNS {
            let (row, exists) = p.row((0, p.subs), i);
            let has = p.has & has::LENGTHS != 0 && exists;
            of_lengths.set(i, lengths.get_bits_if(has, row as usize, p.steps) as i32);
            i += OWNERS;
        }

        // An exchange has fewer than 2^32 words.
        let own_word = unit / CHUNK * CHUNK_WORDS + word_column % COLUMNS * (CHUNK / 2) + unit % CHUNK / 2;
        let word_at = |slot: u32, sub: u32| {
            let group = slot * thread::grid_dim_y() + thread::block_idx_y();
            ((group * p.subs + sub + of_turn) * p.ring.words + own_word) as usize
        };
        // Both units' h of the word's column.
        let own_pair = |h: [f32; ROWS]| {
            let given = if const { ROWS == 1 } || is_odd { h[0] } else { h[ROWS - 1] };
            let got = warp::warp_shuffle_xor(u32::MAX, given, 1, warp::SIZE).0;
            if is_odd { [got, h[ROWS - 1]] } else { [h[0], got] }
        };
        let own_state = |sub: u32| (sub + of_turn) * COLUMNS * units + number;
        let state_at = |row: u32| row as usize * p.hidden as usize + unit as usize;
        let mut sub = 0;
        while sub < p.subs {
            let (mut h, mut c) = ([0.0; ROWS], [0.0; ROWS]);
            for j in 0..ROWS {
                let (row, exists) = row_of(sub, column + j as u32);
                let of_state = |from: Global<T>, bit: u32| {
                    T::from_bits(from.get_bits_if(exists && p.has & bit != 0, state_at(row), 0)).to_f32()
                };
                h[j] = of_state(h0, has::H);
                if is_lstm {
                    c[j] = of_state(c0, has::C);
                }
            }
            set(of_h, own_state(sub), h);
            if is_lstm {
                set(of_c, own_state(sub), c);
            }
            let [low, high] = own_pair(h);
            if sends {
                send(exchange, word_at(0, sub), word::<T>(low, high));
            }
            sub += span;
        }

        let (mut slot, mut sub, mut now) = (0, 0, 0);
        while now < p.steps {
            let poison = |slot: u32, sub: u32| {
                if sends {
                    send(exchange, word_at(slot, sub), POISON);
                }
            };
            // Threads with two rows have no registers for it behind each step.
            let poisons_behind = const { ROWS == 1 };
            if poisons_behind {
                if sub == 0 && p.ring.is_fence(slot) {
                    thread::device_fence();
                }
            } else if sub == 0 {
                p.ring.clean_at_once((slot, now), |free| {
                    let mut sub = 0;
                    while sub < p.subs {
                        poison(free, sub);
                        sub += span;
                    }
                });
            }
            // What does not depend on the products, before they are waited for.
            inputs.wait();
            thread::sync_named(FETCHED, OWNERS);
            let mut of_x = [[0.0; GATES]; ROWS];
            let mut is_active = [false; ROWS];
            let time = time_of(now);
            for j in 0..ROWS {
                let column = column + j as u32;
                of_x[j] = inputs.get(column, unit - first_unit);
                is_active[j] = (time as i32) < of_lengths.get(sub * COLUMNS + column);
            }
            let before: [f32; ROWS] = get(of_h, own_state(sub));
            let c = if is_lstm { get(of_c, own_state(sub)) } else { [0.0; ROWS] };
            // Into the buffer of the sub-batch before: behind the barrier all have read it.
            inputs.fetch();
            inputs.advance();

            thread::sync_named(FULL, THREADS);
            let mut of_hidden = [[0.0; GATES]; ROWS];
            for gate in 0..GATES {
                let mut parts = [[0.0; ROWS]; WARPS as usize];
                for part in 0..WARPS as usize {
                    let tiles = ((part * SPAN) as u32 + of_turn) * (TILES * 128) as u32
                        + gate as u32 * COLUMNS * units;
                    parts[part] = get(sums, tiles + place);
                }
                for j in 0..ROWS {
                    let sum = of_bias[gate] + total(|part| parts[part as usize][j]);
                    // All sums first: their loads would otherwise wait for one another.
                    of_hidden[j][gate] = f32::from_bits(bits::pinned(sum.to_bits()));
                }
            }
            let (next_now, next_sub) = next(now, sub);
            if next_now < p.steps {
                thread::arrive_named(EMPTY, THREADS);
            }
            let (mut next_h, mut next_c, mut of_y) = (before, c, [0.0; ROWS]);
            for j in 0..ROWS {
                // With two rows there are no registers for all gates at once.
                let step = if const { ROWS == 1 } { step_of_half::<GATES> } else { step::<GATES> };
                let (h, c) = step(of_x[j], of_hidden[j], before[j], c[j]);
                // Computed in either case: behind a branch, one would wait for the other.
                let h = f32::from_bits(bits::pinned(h.to_bits()));
                if is_active[j] {
                    (next_h[j], next_c[j], of_y[j]) = (h, c, h);
                }
            }
            let [low, high] = own_pair(next_h);
            let next_slot = p.ring.after(slot);
            if sends && now + 1 != p.steps {
                send(exchange, word_at(next_slot, sub), word::<T>(low, high));
            }
            if p.subs == span && next_now < p.steps {
                thread::arrive_named(SENT, THREADS);
            }
            if let (true, Some(free)) = (poisons_behind, p.ring.freed(slot, now)) {
                poison(free, sub);
            }
            set(of_h, own_state(sub), next_h);
            if is_lstm {
                set(of_c, own_state(sub), next_c);
            }
            let [low, high] = own_pair(of_y);
            let (row, exists) = row_of(sub, word_column);
            let at = i64::from(row) * p.y_row + i64::from(time) * p.y_time + i64::from(unit & !1);
            let mut pack = [0; 4];
            T::set_pair(&mut pack, 0, [low, high]);
            y.set_4_if(sends && exists, at as usize, pack[0]);
            if const { KEEPS } {
                for j in 0..ROWS {
                    let (row, exists) = row_of(sub, column + j as u32);
                    let of_time = time as usize * p.batch as usize + row as usize;
                    for gate in 0..GATES {
                        let at = (of_time * GATES + gate) * p.hidden as usize + unit as usize;
                        gh.set_if(exists, at, T::from_f32(of_hidden[j][gate]));
                    }
                    if is_lstm {
                        let at = of_time * p.hidden as usize + unit as usize;
                        cells.set_if(exists, at, T::from_f32(c[j]));
                    }
                }
            }

            if next_sub == 0 {
                slot = next_slot;
            }
            (now, sub) = (next_now, next_sub);
        }
        let mut sub = 0;
        while sub < p.subs {
            let h: [f32; ROWS] = get(of_h, own_state(sub));
            let c = if is_lstm { get(of_c, own_state(sub)) } else { [0.0; ROWS] };
            for j in 0..ROWS {
                let (row, exists) = row_of(sub, column + j as u32);
                if exists {
                    h_n.set(state_at(row), T::from_f32(h[j]));
                    if is_lstm {
                        c_n.set(state_at(row), T::from_f32(c[j]));
                    }
                }
            }
            sub += span;
        }
    }
}

/// One float from element `at` on, or two that start at a multiple of 8 bytes.
///
/// # Safety
/// They exist, and nobody writes them.
#[inline(always)]
unsafe fn get<const ROWS: usize>(from: Shared<f32>, at: u32) -> [f32; ROWS] {
    let mut values = [0.0; ROWS];
    // SAFETY: the caller's contract.
    unsafe {
        if const { ROWS == 2 } {
            let [low, high] = from.get_8(at);
            (values[0], values[ROWS - 1]) = (f32::from_bits(low), f32::from_bits(high));
        } else {
            values[0] = from.get(at);
        }
    }
    values
}

/// Writes what [`get`] reads.
///
/// # Safety
/// As there, and nobody reads them.
#[inline(always)]
unsafe fn set<const ROWS: usize>(to: Shared<f32>, at: u32, values: [f32; ROWS]) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { ROWS == 2 } {
            to.set_8(at, [values[0].to_bits(), values[ROWS - 1].to_bits()]);
        } else {
            to.set(at, values[0]);
        }
    }
}
