//! All steps backwards of f32: each warp receives dgh, multiplies, and then does gates with the others.
//!
//! Floor of a step: each block reads its group's dgh from L2.

use super::{OWNERS, UNITS_BACK, gate_of, operands};
use crate::recurrent::bias::OfBias;
use crate::recurrent::exchange::{CHUNK_WORDS, COLUMNS, POISON, ask, receive_or_report, send, word_of};
use crate::recurrent::math::Factors;
use crate::recurrent::persistent::{AHEAD, Sequence, WARPS, pitch, total};
use crate::recurrent::weights::{Weights, fragments, rest_bytes};
use crate::recurrent::words::{WORDS, Words};
use crate::recurrent::{GRU, has};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Packs of dgh that a lane receives at a time: more do not fit beside the weights.
const ROUND: usize = 4;

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct FloatBackForm {
    /// Gates of a unit.
    pub gates: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Those of which the weights are in registers.
    pub held: usize,
}

impl FloatBackForm {
    /// Bytes of shared memory of a block with so many sub-batches.
    pub const fn shared_bytes(self, subs: u32) -> u32 {
        Layout::new(self, subs).end
    }
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    rest: u32,
    dh: u32,
    dc: u32,
    lengths: u32,
    patience: u32,
    operands: u32,
    end: u32,
}

impl Layout {
    /// Two buffers of sums first.
    #[inline(always)]
    const fn new(of: FloatBackForm, subs: u32) -> Layout {
        let FloatBackForm { gates, pairs, held } = of;
        let state = subs * OWNERS * 4;
        let rest = 2 * WARPS * COLUMNS * pitch(1) * 4;
        let dh = rest + rest_bytes(1, pairs, held, 1);
        let dc = dh + state;
        let lengths = dc + if gates == GRU { 0 } else { state };
        let patience = lengths + subs * COLUMNS * 4;
        let first = patience + WARPS * 4;
        let end = first + AHEAD * subs * operands(gates) * OWNERS * 4;
        Layout { rest, dh, dc, lengths, patience, operands: first, end }
    }
}

/// [`sequence_back()`](fn@sequence_back) of f32.
///
/// # Safety
/// As there.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 12, HELD: 12; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 24, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 16, HELD: 12; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 32, HELD: 12; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_back_f32<T: Words, const GATES: usize, const PAIRS: usize, const HELD: usize>(
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
    dbias: GlobalMut<f32>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    const { assert!(PAIRS.is_multiple_of(ROUND)) };
    let pitch = const { pitch(1) };
    let is_lstm = const { GATES != GRU };
    let (lane, warp, tid) = (warp::lane_id(), warp::warp_id(), thread::thread_idx_x());
    let (block, group) = (thread::block_idx_x(), thread::block_idx_y());
    // A thread's unit and row of each sub-batch; threads beyond have none.
    let owns = tid < OWNERS;
    let (column, own) = (tid / UNITS_BACK, tid % UNITS_BACK);
    let unit = block * UNITS_BACK + own;
    let first_row = group * p.subs * COLUMNS + column;
    let exists = |row: u32| owns & (unit < p.hidden) & (row < p.batch);
    // Chunks of a gate: the units of a block.
    const { assert!(UNITS_BACK == WORDS) };
    let chunks = thread::grid_dim_x();

    // SAFETY: the caller's contract. Sums are written to one of two buffers in turn, and read behind the barrier; a buffer is
    // written again behind the next barrier, which readers reach when they are done. What else lies in shared memory is
    // written and read by one thread, or by lanes of one warp with a collective in between.
    unsafe {
        let layout = Layout::new(const { FloatBackForm { gates: GATES, pairs: PAIRS, held: HELD } }, p.subs);
        let sums = Shared::<f32>::dynamic(0, 2 * WARPS * COLUMNS * pitch);
        let of_dh = Shared::<f32>::dynamic(layout.dh, p.subs * OWNERS);
        let of_dc = Shared::<f32>::dynamic(layout.dc, p.subs * OWNERS);
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        let fetched = Shared::<T>::dynamic(layout.operands, AHEAD * p.subs * operands(GATES) * OWNERS);

        // An exchange has fewer than 2^32 words.
        let sub_at = |slot: u32, sub: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.subs + sub) * p.ring.words
        };
        let own_word = block * CHUNK_WORDS + column * WORDS + own;
        let send_all = |slot: u32, sub: u32, words: [u32; GATES]| {
            if owns {
                let at = sub_at(slot, sub) + bits::opaque(own_word);
                for gate in 0..GATES {
                    send(exchange, (at + gate as u32 * chunks * CHUNK_WORDS) as usize, words[gate]);
                }
            }
        };
        let time_of = |back: u32| if p.reverse == 0 { p.steps - 1 - back } else { back };
        let row_at = |back: u32, sub: u32| {
            time_of(back) as usize * p.batch as usize + (first_row + sub * COLUMNS) as usize
        };
        let place_of = |back: u32, sub: u32, operand: u32| {
            ((back % AHEAD * p.subs + sub) * operands(GATES) + operand) * OWNERS + tid
        };
        // Beyond the first step there is nothing to wait for.
        let fetch = |back: u32, sub: u32| {
            if owns & (back < p.steps) {
                let exists = exists(first_row + sub * COLUMNS);
                let (row, hidden) = (row_at(back, sub), p.hidden as usize);
                for gate in 0..GATES {
                    let from = (row * GATES + gate) * hidden + unit as usize;
                    fetched.copy_4_async(place_of(back, sub, gate as u32), gx, from, exists);
                    fetched.copy_4_async(place_of(back, sub, (GATES + gate) as u32), gh, from, exists);
                }
                let from = row * hidden + unit as usize;
                fetched.copy_4_async(place_of(back, sub, 2 * GATES as u32), state, from, exists);
                let has = exists & (p.has & has::Y != 0);
                fetched.copy_4_async(place_of(back, sub, 2 * GATES as u32 + 1), dy, from, has);
            }
            async_copy::commit();
        };

        if tid < p.subs * COLUMNS {
            let row = group * p.subs * COLUMNS + tid;
            let has = p.has & has::LENGTHS != 0 && row < p.batch;
            of_lengths.set(tid, lengths.get_bits_if(has, row as usize, p.steps) as i32);
        }
        if lane == 0 {
            of_patience.set(warp, p.ring.patience);
        }
        for sub in 0..p.subs {
            let row = first_row + sub * COLUMNS;
            let at = row as usize * p.hidden as usize + unit as usize;
            if owns {
                let given = |from: GlobalMut<f32>| if exists(row) { from.get(at) } else { 0.0 };
                of_dh.set(sub * OWNERS + tid, given(dh));
                if is_lstm {
                    of_dc.set(sub * OWNERS + tid, given(dc));
                }
            }
            // Nothing comes from behind the last step.
            send_all(0, sub, [0; GATES]);
        }
        for back in 0..AHEAD {
            for sub in 0..p.subs {
                fetch(back, sub);
            }
        }
        // Last: what comes before is done with its registers.
        let first_chunk = warp * PAIRS as u32;
        // A pair's gate and the lane's first column of it, and whether there is one.
        let column_of = |pair: usize| {
            let (gate, chunk, exists) = gate_of::<GATES>(first_chunk + pair as u32, chunks);
            let k = chunk * WORDS + lane % 4 * 4;
            (gate, k, exists & (k < p.hidden))
        };
        let unit_of = |lower: usize| block * UNITS_BACK + lower as u32 * 8 + lane / 4;
        let pair_of = |_: usize, pair: usize| {
            let (gate, k, exists) = column_of(pair);
            let [upper, lower] = [0, 1].map(|lower| {
                let row = gate * p.hidden + unit_of(lower).min(p.hidden - 1);
                let at = row as usize * p.weight_row as usize + k as usize;
                weight.get_pack_if(true, if exists { at } else { 0 }, 0)
            });
            [fragments(upper, lower), [[0; 4]; 2]]
        };
        let held_exists = |_: usize, pair: usize, _: usize| {
            let (_, _, exists) = column_of(pair);
            [0, 1].map(|lower| exists & (unit_of(lower) < p.hidden))
        };
        let all = (chunks * WORDS == p.hidden) & (first_chunk + PAIRS as u32 <= GATES as u32 * chunks);
        let held = Weights::<1, HELD>::fill::<PAIRS>(layout.rest, 1, pair_of, held_exists, all);
        thread::sync_threads();

        let pack_of = |slot: u32, sub: u32, pair: usize| {
            let chunk = bits::opaque(first_chunk) + pair as u32;
            (sub_at(slot, sub) + chunk * CHUNK_WORDS + lane * 4) as usize
        };
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let mut of_bias = OfBias::<GATES>::new();
        let (mut slot, mut sub, mut back, mut buffer) = (0, 0, 0, 0);
        let ask = |slot: u32, sub: u32, round: usize| {
            ask::<ROUND>(exchange, |i| pack_of(slot, sub, round * ROUND + i), ROUND)
        };
        while back <= p.steps {
            if sub == 0 && p.ring.is_fence(slot) {
                thread::device_fence();
            }
            let mut asked = ask(slot, sub, 0);
            // This step's operands have been followed by those of the other sub-batches and of the next step.
            if p.subs == 1 {
                async_copy::wait::<1>();
            } else {
                async_copy::wait::<3>();
            }
            let get = |operand: usize| fetched.get(place_of(back, sub, operand as u32)).to_f32();
            let of_warp = (buffer * WARPS + warp) * COLUMNS * pitch + lane % 4 * 2 * pitch + lane / 4;
            // Two sums in turn: products that wait for one another are fewer.
            let mut products = [[0.0f32; 4]; 2];
            // Steps are below 2^30, which the compiler does not know.
            let zero = bits::opaque(back) & (1 << 31);
            for round in 0..const { PAIRS / ROUND } {
                let at = |i| pack_of(slot, sub, round * ROUND + i);
                let dgh = receive_or_report(exchange, at, asked, back, of_patience, fault);
                if round + 1 < const { PAIRS / ROUND } {
                    asked = ask(slot, sub, round + 1);
                }
                for i in 0..ROUND {
                    for half in 0..2 {
                        let weights = held.get(0, round * ROUND + i, (0, 1), half);
                        let of_gh = [dgh[i][2 * half], dgh[i][2 * half + 1]];
                        products[half] = T::multiply(weights, of_gh, products[half], zero);
                    }
                }
            }
            let [mut product, second] = products;
            for i in 0..4 {
                product[i] += second[i];
            }
            sums.set(of_warp, product[0]);
            sums.set(of_warp + pitch, product[1]);
            sums.set(of_warp + 8, product[2]);
            sums.set(of_warp + pitch + 8, product[3]);
            let next_sub = if sub + 1 == p.subs { 0 } else { sub + 1 };
            let next_slot = p.ring.after(slot);
            thread::sync_threads();

            if owns {
                let at = buffer * WARPS * COLUMNS * pitch + column * pitch + own;
                let own_state = sub * OWNERS + tid;
                let mut dh = of_dh.get(own_state) + total(|part| sums.get(at + part * COLUMNS * pitch));
                if back < p.steps {
                    let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
                    for gate in 0..GATES {
                        (gx[gate], gh[gate]) = (get(gate), get(GATES + gate));
                    }
                    let state = get(2 * GATES);
                    let dc = if is_lstm { of_dc.get(own_state) } else { 0.0 };
                    let factors = Factors::new(gx, gh, (state, state));
                    let slopes = factors.slopes::<GATES>((dh + get(2 * GATES + 1), dc));
                    let active = (time_of(back) as i32) < of_lengths.get(sub * COLUMNS + column);
                    dh = if active { slopes.dh } else { dh };
                    if is_lstm && active {
                        of_dc.set(own_state, slopes.dc);
                    }
                    if const { GATES == GRU } && exists(first_row + sub * COLUMNS) && active {
                        of_bias.add(slopes.dgx, slopes.dgh);
                    }
                    let mut words = [0; GATES];
                    let mut to_h = [0.0; GATES];
                    for gate in 0..GATES {
                        to_h[gate] = if active { slopes.dgh[gate] } else { 0.0 };
                        words[gate] = word_of(to_h[gate]);
                    }
                    send_all(next_slot, sub, words);
                    if let Some(free) = p.ring.freed(slot, back) {
                        send_all(free, sub, [POISON; GATES]);
                    }
                    let exists = exists(first_row + sub * COLUMNS);
                    let at = row_at(back, sub) * GATES * p.hidden as usize + unit as usize;
                    for gate in 0..GATES {
                        let at = at + gate * p.hidden as usize;
                        let to_x = if active { slopes.dgx[gate] } else { 0.0 };
                        dgx.set_if(exists, at, T::from_f32(to_x));
                        if !is_lstm {
                            dgh.set_if(exists, at, T::from_f32(to_h[gate]));
                        }
                    }
                }
                of_dh.set(own_state, dh);
            }
            fetch(back + AHEAD, sub);
            buffer ^= 1;
            if next_sub == 0 {
                (slot, back) = (next_slot, back + 1);
            }
            sub = next_sub;
        }
        // Worked out here: kept since what is ahead of the loop, it would be spilled.
        let unit = bits::pinned(unit);
        if const { GATES == GRU } && p.has & has::SUMS != 0 && owns & (unit < p.hidden) {
            let (row, rows) = (group * COLUMNS + column, thread::grid_dim_y() * COLUMNS);
            of_bias.store(dbias, (row, rows), (unit, p.hidden));
        }
        for sub in 0..p.subs {
            let row = first_row + sub * COLUMNS;
            let at = row as usize * p.hidden as usize + unit as usize;
            if exists(row) {
                dh.set(at, of_dh.get(sub * OWNERS + tid));
                if is_lstm {
                    dc.set(at, of_dc.get(sub * OWNERS + tid));
                }
            }
        }
    }
}
