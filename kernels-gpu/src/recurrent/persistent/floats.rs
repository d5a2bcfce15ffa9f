//! All steps of f32, multiplied in two parts (`parts`).
//!
//! A block's eight warps do everything: receive h, multiply, add up the warps' sums through shared memory behind one barrier,
//! and then a thread for each unit and row does the gates and sends its unit's new h.
//!
//! Floor of a step: each block reads its group's h from L2, and does three products for each of f32.

use super::{Sequence, WARPS, total, units};
use crate::recurrent::exchange::{
    CHUNK, CHUNK_WORDS, COLUMNS, POISON, ask, not_yet, receive_or_report, send,
};
use crate::recurrent::math::step;
use crate::recurrent::parts::{LOW, PARTS, Parts, inverse, magnitude, scale};
use crate::recurrent::weights::{Corner, Weights, rest_bytes, scale_rows};
use crate::recurrent::{GRU, has};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Steps that gx is fetched ahead: memory takes longer than a step.
pub(in crate::recurrent) const AHEAD: u32 = 2;
/// Whether the first round of the next sub-batch is asked for before the gates of this one: where products are long, there
/// is more than one, and who sends it has done so.
const fn is_early(pairs: usize) -> bool {
    pairs >= 4
}

/// Floats between columns of a warp's sums: a lane's 8 rows and 4 pairs of columns lie in 32 banks.
pub(in crate::recurrent) const fn pitch(tiles: usize) -> u32 {
    tiles as u32 * 16 + 4
}

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Gates of a unit.
    pub gates: usize,
    /// Tiles of 16 rows of weights of a block.
    pub tiles: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Those of which the weights are in registers.
    pub held: usize,
}

impl Form {
    /// Hidden units of a block.
    pub const fn units(self) -> u32 {
        units(self.gates, self.tiles)
    }

    /// Bytes of shared memory of a block with so many sub-batches.
    pub const fn shared_bytes(self, subs: u32) -> u32 {
        Layout::new(self, subs).end
    }
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    rest: u32,
    from: u32,
    h: u32,
    c: u32,
    bias: u32,
    lengths: u32,
    patience: u32,
    words: u32,
    scales: u32,
    of_state: u32,
    gx: u32,
    end: u32,
}

impl Layout {
    /// Two buffers of sums first.
    #[inline(always)]
    const fn new(of: Form, subs: u32) -> Layout {
        let (units, gates) = (of.units(), of.gates as u32);
        let state = subs * COLUMNS * units * 4;
        let rest = 2 * WARPS * COLUMNS * pitch(of.tiles) * 4;
        let from = rest + rest_bytes(of.tiles, of.pairs, of.held, PARTS);
        let h = from + 2 * COLUMNS * units * 8;
        let c = h + state;
        let bias = c + if of.gates == GRU { 0 } else { state };
        let lengths = bias + gates * units * 4;
        let patience = lengths + subs * COLUMNS * 4;
        let words = patience + WARPS * 4;
        let scales = words + COLUMNS * units * 4;
        let of_state = scales + gates * units * 4;
        let gx = of_state + 2 * WARPS * 4;
        Layout {
            rest,
            from,
            h,
            c,
            bias,
            lengths,
            patience,
            words,
            scales,
            of_state,
            gx,
            end: gx + AHEAD * subs * gates * COLUMNS * units * 4,
        }
    }
}

/// As [`sequence()`](fn@super::sequence), of f32.
///
/// # Safety
/// As there.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, TILES: 3, PAIRS: 1, HELD: 1, ROUND: 2; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 2, HELD: 2, ROUND: 4; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 4, HELD: 3, ROUND: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 1, HELD: 1, ROUND: 2; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 2, HELD: 2, ROUND: 4; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 4, HELD: 2, ROUND: 8; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_f32<
    T: Parts,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    // Packs of h of a lane.
    let packs = const { PAIRS * PARTS };
    let units = const { units(GATES, TILES) };
    let pitch = const { pitch(TILES) };
    let is_lstm = const { GATES != GRU };
    let (lane, warp, tid) = (warp::lane_id(), warp::warp_id(), thread::thread_idx_x());
    let (block, group) = (thread::block_idx_x(), thread::block_idx_y());
    // A thread's unit and row of each sub-batch; threads beyond have none.
    let owners = COLUMNS * units;
    let owns = tid < owners;
    let (column, own) = (tid / units, tid % units);
    let unit = block * units + own;
    let first_row = group * p.subs * COLUMNS + column;
    let exists = |row: u32| owns && unit < p.hidden && row < p.batch;
    // Of two units' words, as many as there are parts, each is one's.
    let part = own % 2;
    let corner = Corner {
        unit: block * units,
        k: warp * PAIRS as u32 * CHUNK,
        hidden: p.hidden,
        columns: p.hidden,
        weight_row: p.weight_row,
    };

    // SAFETY: the caller's contract. Sums are written to one of two buffers in turn, and read behind the barrier; a buffer is
    // written again behind the next barrier, which readers reach when they are done. What else lies in shared memory is
    // written and read by one thread, or by lanes of one warp with a collective in between.
    unsafe {
        let layout =
            Layout::new(const { Form { gates: GATES, tiles: TILES, pairs: PAIRS, held: HELD } }, p.subs);
        let sums = Shared::<f32>::dynamic(0, 2 * WARPS * COLUMNS * pitch);
        let from = Shared::<u64>::dynamic(layout.from, 2 * owners);
        let of_h = Shared::<f32>::dynamic(layout.h, p.subs * owners);
        let of_c = Shared::<f32>::dynamic(layout.c, p.subs * owners);
        let of_bias = Shared::<f32>::dynamic(layout.bias, GATES as u32 * units);
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        let of_words = Shared::<u32>::dynamic(layout.words, owners);
        let scales = Shared::<f32>::dynamic(layout.scales, GATES as u32 * units);
        let of_state = Shared::<f32>::dynamic(layout.of_state, 2 * WARPS);
        let of_gx = Shared::<T>::dynamic(layout.gx, AHEAD * p.subs * GATES as u32 * owners);

        // An exchange has fewer than 2^32 words.
        let sub_at = |slot: u32, sub: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.subs + sub) * p.ring.words
        };
        // Where a thread's own things begin in the exchange, in y and in gx: the weights leave no registers for that.
        if owns {
            let chunk = unit / CHUNK * const { PARTS as u32 } + part;
            of_words.set(tid, chunk * CHUNK_WORDS + column * (CHUNK / 2) + unit % CHUNK / 2);
            let of_row = first_row as usize * GATES * p.hidden as usize;
            from.set(tid, (i64::from(first_row) * p.y_row) as u64 + u64::from(unit));
            from.set(owners + tid, (of_row + unit as usize) as u64);
        }
        let own_word_at = |slot: u32, sub: u32| (sub_at(slot, sub) + of_words.get(tid)) as usize;
        let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };
        let place_of_gx = |step: u32, sub: u32, gate: usize| {
            ((step % AHEAD * p.subs + sub) * GATES as u32 + gate as u32) * owners + tid
        };
        // A number of each gate; beyond the last step there is nothing to wait for.
        let fetch = |step: u32, sub: u32| {
            if owns && step < p.steps {
                let of_gates = GATES * p.hidden as usize;
                let skipped = time_of(step) as usize * p.batch as usize + (sub * COLUMNS) as usize;
                let from = from.get(owners + tid) as usize + skipped * of_gates;
                for gate in 0..GATES {
                    let from = from + gate * p.hidden as usize;
                    let exists = exists(first_row + sub * COLUMNS);
                    of_gx.copy_4_async(place_of_gx(step, sub, gate), gx, from, exists);
                }
            }
            async_copy::commit();
        };

        if tid < units {
            for gate in 0..GATES as u32 {
                let at = (gate * p.hidden + block * units + tid) as usize;
                let has = p.has & has::BIAS != 0 && block * units + tid < p.hidden;
                of_bias.set(gate * units + tid, T::from_bits(bias.get_bits_if(has, at, 0)).to_f32());
            }
        }
        if tid < p.subs * COLUMNS {
            let row = group * p.subs * COLUMNS + tid;
            let has = p.has & has::LENGTHS != 0 && row < p.batch;
            of_lengths.set(tid, lengths.get_bits_if(has, row as usize, p.steps) as i32);
        }
        if lane == 0 {
            of_patience.set(warp, p.ring.patience);
        }
        scale_rows::<T, GATES, TILES, PAIRS>(weight, corner, scales);
        let rows = (group * p.subs * COLUMNS, (p.subs * COLUMNS).min(p.batch - group * p.subs * COLUMNS));
        let of_h0 = if p.has & has::H != 0 { most(h0, rows, p.hidden) } else { 0.0 };
        if lane == 0 {
            of_state.set(WARPS + warp, of_h0);
        }
        thread::sync_threads();
        // |h| is at most 1, or that of h0.
        let mut largest = 1.0f32;
        for i in 0..WARPS {
            largest = largest.max(of_state.get(WARPS + i));
        }
        if lane == 0 {
            of_state.set(warp, scale(largest));
        }
        warp::sync_warp(u32::MAX);
        let word_of = |h: f32, next: f32| {
            let scale = of_state.get(warp);
            let (low, high) = if part == 0 { (h, next) } else { (next, h) };
            T::word(low * scale, high * scale, part)
        };
        for sub in 0..p.subs {
            let row = first_row + sub * COLUMNS;
            let at = row as usize * p.hidden as usize + unit as usize;
            let h = T::from_bits(h0.get_bits_if(exists(row) && p.has & has::H != 0, at, 0)).to_f32();
            let next = warp::warp_shuffle_xor(u32::MAX, h, 1, warp::SIZE).0;
            if owns {
                of_h.set(sub * owners + tid, h);
                if is_lstm {
                    let c = T::from_bits(c0.get_bits_if(exists(row) && p.has & has::C != 0, at, 0)).to_f32();
                    of_c.set(sub * owners + tid, c);
                }
            }
            if owns {
                send(exchange, own_word_at(0, sub), word_of(h, next));
            }
        }
        for step in 0..AHEAD {
            for sub in 0..p.subs {
                fetch(step, sub);
            }
        }
        // Last: what comes before is done with its registers.
        let weights = Weights::<TILES, HELD>::load::<T, GATES, PAIRS>(weight, corner, scales, layout.rest);
        thread::sync_threads();

        // The index as a whole: the compiler would keep an address for each pack.
        let pack_of = |slot: u32, sub: u32, pack: usize| {
            let first = sub_at(slot, sub) + warp * packs as u32 * CHUNK_WORDS + lane * 4;
            (bits::opaque(first) + pack as u32 * CHUNK_WORDS) as usize
        };
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let (mut slot, mut sub, mut step_index, mut buffer) = (0, 0, 0, 0);
        let ask = |slot: u32, sub: u32, round: usize| {
            ask::<ROUND>(exchange, |i| pack_of(slot, sub, round * ROUND + i), packs - round * ROUND)
        };
        let mut asked = not_yet::<ROUND>();
        while step_index < p.steps {
            if sub == 0 && p.ring.is_fence(slot) {
                thread::device_fence();
            }
            if const { !is_early(PAIRS) } {
                asked = ask(slot, sub, 0);
            }
            let of_warp = (buffer * WARPS + warp) * COLUMNS * pitch + lane % 4 * 2 * pitch + lane / 4;
            // What is multiplied whole, and what counts `LOW`.
            let mut products = [[[0.0f32; 4]; 2]; TILES];
            for round in 0..const { (PAIRS * PARTS).div_ceil(ROUND) } {
                let at = |i| pack_of(slot, sub, round * ROUND + i);
                let h = receive_or_report(exchange, at, asked, step_index, of_patience, fault);
                if round + 1 < const { (PAIRS * PARTS).div_ceil(ROUND) } {
                    asked = ask(slot, sub, round + 1);
                }
                for i in 0..const { if PAIRS * PARTS < ROUND { PAIRS } else { ROUND / PARTS } } {
                    let pair = round * const { ROUND / PARTS } + i;
                    let of_h = |part: usize, half: usize| {
                        let pack = h[i * const { PARTS } + part];
                        [pack[2 * half], pack[2 * half + 1]]
                    };
                    for half in 0..2 {
                        for tile in 0..TILES {
                            let [mut whole, mut low] = products[tile];
                            let weight = weights.get(tile, pair, (0, const { PARTS }), half);
                            whole = T::Part::multiply(weight, of_h(0, half), whole);
                            low = T::Part::multiply(weight, of_h(1, half), low);
                            let weight = weights.get(tile, pair, (1, PARTS), half);
                            low = T::Part::multiply(weight, of_h(0, half), low);
                            products[tile] = [whole, low];
                        }
                    }
                }
            }
            for tile in 0..TILES {
                let at = of_warp + tile as u32 * 16;
                let [mut product, low] = products[tile];
                for i in 0..4 {
                    product[i] = float::fma(low[i], LOW, product[i]);
                }
                sums.set(at, product[0]);
                sums.set(at + pitch, product[1]);
                sums.set(at + 8, product[2]);
                sums.set(at + pitch + 8, product[3]);
            }
            // The next sub-batch's h was sent before this one's: its way is behind the gates.
            let next_sub = if sub + 1 == p.subs { 0 } else { sub + 1 };
            let next_slot = if next_sub == 0 { p.ring.after(slot) } else { slot };
            if const { is_early(PAIRS) } {
                asked = ask(next_slot, next_sub, 0);
            }
            // This step's have been followed by those of the other sub-batches and of the next step.
            if p.subs == 1 {
                async_copy::wait::<1>();
            } else {
                async_copy::wait::<3>();
            }
            thread::sync_threads();

            if owns {
                let row = first_row + sub * COLUMNS;
                let at = buffer * WARPS * COLUMNS * pitch + column * pitch + own;
                let (mut of_x, mut of_hidden) = ([0.0; GATES], [0.0; GATES]);
                for gate in 0..GATES {
                    of_hidden[gate] = of_bias.get(gate as u32 * units + own);
                    of_x[gate] = of_gx.get(place_of_gx(step_index, sub, gate)).to_f32();
                }
                for gate in 0..GATES {
                    let at = at + gate as u32 * units;
                    let total = total(|part| sums.get(at + part * COLUMNS * pitch));
                    let scaled = total * inverse(of_state.get(warp));
                    let row = gate as u32 * units + own;
                    of_hidden[gate] = float::fma(scaled, inverse(scales.get(row)), of_hidden[gate]);
                }
                let own_state = sub * owners + tid;
                let (before, c) = (of_h.get(own_state), if is_lstm { of_c.get(own_state) } else { 0.0 });
                let time = time_of(step_index);
                let active = (time as i32) < of_lengths.get(sub * COLUMNS + column);
                let (next_h, next_c) = step(of_x, of_hidden, before, c);
                let next_h = if active { next_h } else { before };
                let next = warp::warp_shuffle_xor(u32::MAX, next_h, 1, warp::SIZE).0;
                let last = step_index + 1 == p.steps;
                if !last {
                    let at = own_word_at(p.ring.after(slot), sub);
                    send(exchange, at, word_of(next_h, next));
                }
                if let Some(free) = p.ring.freed(slot, step_index) {
                    send(exchange, own_word_at(free, sub), POISON);
                }
                of_h.set(own_state, next_h);
                if is_lstm && active {
                    of_c.set(own_state, next_c);
                }
                let rounded = T::from_f32(if active { next_h } else { 0.0 });
                let at =
                    from.get(tid) as i64 + i64::from(time) * p.y_time + i64::from(sub * COLUMNS) * p.y_row;
                y.set_if(exists(row), at as usize, rounded);
                if p.has & has::KEPT != 0 {
                    // Where gx began in memory, so does gh.
                    let of_time = time as usize * p.batch as usize;
                    let skipped = (of_time + (sub * COLUMNS) as usize) * GATES * p.hidden as usize;
                    for gate in 0..GATES {
                        let at = from.get(owners + tid) as usize + skipped + gate * p.hidden as usize;
                        gh.set_if(exists(row), at, T::from_f32(of_hidden[gate]));
                    }
                    if is_lstm {
                        let at = (of_time + row as usize) * p.hidden as usize + unit as usize;
                        cells.set_if(exists(row), at, T::from_f32(c));
                    }
                }
                // The other lane of a word has read it.
                warp::sync_warp(u32::MAX);
            }
            fetch(step_index + AHEAD, sub);
            buffer ^= 1;
            step_index += u32::from(next_sub == 0);
            (slot, sub) = (next_slot, next_sub);
        }
        for sub in 0..p.subs {
            let row = first_row + sub * COLUMNS;
            let at = row as usize * p.hidden as usize + unit as usize;
            if exists(row) {
                h_n.set(at, T::from_f32(of_h.get(sub * owners + tid)));
                if is_lstm {
                    c_n.set(at, T::from_f32(of_c.get(sub * owners + tid)));
                }
            }
        }
    }
}

/// The largest finite magnitude of a warp's share of h0's rows, (first, count).
///
/// # Safety
/// They exist. All lanes of all warps call.
#[inline(always)]
unsafe fn most<T: Float>(h0: Global<T>, (first, count): (u32, u32), hidden: u32) -> f32 {
    /// Loads in flight.
    const BATCH: usize = 8;
    let (first, length) = (first as usize * hidden as usize, count as usize * hidden as usize);
    let mut largest = 0.0f32;
    let mut base = thread::thread_idx_x() as usize;
    while base < length {
        let mut values = [0; BATCH];
        for i in 0..BATCH {
            let at = base + i * (WARPS * warp::SIZE) as usize;
            // SAFETY: within the rows.
            values[i] = unsafe { h0.get_bits_if(at < length, first + at, 0) };
        }
        for i in 0..BATCH {
            largest = largest.max(magnitude(T::from_bits(values[i]).to_f32()));
        }
        base += BATCH * (WARPS * warp::SIZE) as usize;
    }
    warp::warp_reduce_max(u32::MAX, largest)
}
