//! All steps of a sequence in one launch.
//!
//! y\[t\] = h\[t + 1\] = step(gx\[t\], h\[t\]·w_hhᵀ + bias), for f16 and bf16 with sums, gates and the carried h and c in f32; h is
//! rounded where it is multiplied and where it leaves.
//!
//! The batch is dealt to groups of blocks that never talk. A group's blocks own UNITS hidden units each, and hold all rows of
//! w_hh of these in registers, as A fragments: each of the eight warps a slice of the columns, `PAIRS`·32 of them. A step of a
//! *sub-batch* of eight rows is: receive h (`exchange`) straight into B fragments, multiply, add up the warps' sums through
//! shared memory behind one barrier, and then a thread for each unit and row does the gates and sends its unit's new h. The
//! order of the terms of a sum is free, so a lane's 16 bytes are eight neighbouring units.
//!
//! Rows of the batch beyond their length keep h, and have y 0. In reverse, the steps are taken from the last time to
//! the first.
//!
//! Launch: cooperative, grid (blocks of a group, groups), [`sequence_shared_bytes`] of dynamic shared memory; the
//! exchange poisoned.
//!
//! Floor of a step: each block reads its group's h from L2.
//!
//! Source: persistent recurrent kernels (Diamos et al., 2016), as a technique.

use super::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, POISON, Ring, ask, receive, send, word};
use super::math::step;
use super::{GRU, has};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::bits;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Warps of a block.
pub const WARPS: u32 = 8;
/// Steps that gx is fetched ahead: memory takes longer than a step.
pub(super) const AHEAD: u32 = 2;
/// Packs of h that a lane receives at a time, the first so many a sub-batch ahead: more do not fit beside the weights.
pub(super) const ROUND: usize = 4;
/// Whether the first round of the next sub-batch is asked for before the gates of this one: where products are long, there
/// is more than one, and who sends it has done so.
const fn is_early(pairs: usize) -> bool {
    pairs >= ROUND
}

/// Packs that have not been asked for: who receives them asks.
pub(super) const NOT_YET: [Pack; ROUND] = [[POISON; 4]; ROUND];

/// What a sequence is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Steps, at least 1.
    pub steps: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// Hidden units, an even number.
    pub hidden: u32,
    /// Elements from a row of the weight to the next, a multiple of 8: zeros behind the units.
    pub weight_row: u32,
    /// Sub-batches of a group.
    pub subs: u32,
    /// Whether the steps begin at the last time.
    pub reverse: u32,
    /// Bits of [`has`].
    pub has: u32,
    /// Elements from a time of y to the next, and from a row to the next.
    pub y_time: i64,
    /// See `y_time`.
    pub y_row: i64,
    /// The exchange.
    pub ring: Ring,
}
plain_parameter!(Sequence);

/// Hidden units of a block with so many tiles of 16 rows.
pub const fn units(gates: usize, tiles: usize) -> u32 {
    (tiles * 16 / gates) as u32
}

/// Floats between columns of a warp's sums: a lane's 8 rows and 4 pairs of columns lie in 32 banks.
pub(super) const fn pitch(tiles: usize) -> u32 {
    tiles as u32 * 16 + 4
}

/// Bytes of shared memory.
pub const fn sequence_shared_bytes(gates: usize, tiles: usize, subs: u32) -> u32 {
    Layout::new(gates, tiles, subs).end
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    from: u32,
    h: u32,
    c: u32,
    bias: u32,
    lengths: u32,
    patience: u32,
    words: u32,
    gx: u32,
    end: u32,
}

impl Layout {
    /// Two buffers of sums first.
    #[inline(always)]
    const fn new(gates: usize, tiles: usize, subs: u32) -> Layout {
        let (units, gates) = (units(gates, tiles), gates as u32);
        let state = subs * COLUMNS * units * 4;
        let from = 2 * WARPS * COLUMNS * pitch(tiles) * 4;
        let h = from + 2 * COLUMNS * units * 8;
        let c = h + state;
        let bias = c + if gates == GRU as u32 { 0 } else { state };
        let lengths = bias + gates * units * 4;
        let patience = lengths + subs * COLUMNS * 4;
        let words = patience + WARPS * 4;
        let gx = words + COLUMNS * units * 4;
        Layout {
            from,
            h,
            c,
            bias,
            lengths,
            patience,
            words,
            gx,
            end: gx + AHEAD * subs * gates * COLUMNS * units * 2,
        }
    }
}

/// The A fragments of a warp.
pub(super) type Weights<const TILES: usize, const PAIRS: usize> = [[[[u32; 4]; 2]; PAIRS]; TILES];

/// Loads the fragments of a warp: rows from a unit on, of all gates in turn, and columns from `first_k` on.
///
/// # Safety
/// `weight` has rows of `weight_row` elements, whole packs with zeros behind the units, for the gates of all `hidden` units.
#[inline(always)]
pub(super) unsafe fn load_weights<T: Half, const GATES: usize, const TILES: usize, const PAIRS: usize>(
    weight: Global<T>,
    first_unit: u32,
    first_k: u32,
    hidden: u32,
    weight_row: u32,
) -> Weights<TILES, PAIRS> {
    let units = const { units(GATES, TILES) };
    let lane = warp::lane_id();
    let mut held = [[[[0; 4]; 2]; PAIRS]; TILES];
    for tile in 0..TILES {
        // Rows of eight lie within a gate, since units are multiples of eight.
        let of = |first: u32| (first / units, first_unit + first % units + lane / 4);
        let (upper, lower) = (of(tile as u32 * 16), of(tile as u32 * 16 + 8));
        for pair in 0..PAIRS {
            let k = first_k + pair as u32 * CHUNK + lane % 4 * 8;
            let pack = |(gate, unit): (u32, u32)| {
                let at = (gate * hidden + unit) as usize * weight_row as usize + k as usize;
                // SAFETY: a pack of a row that exists.
                unsafe { weight.get_pack_if((unit < hidden) & (k < hidden), at, 0) }
            };
            let (a, b) = (pack(upper), pack(lower));
            held[tile][pair][0] = [a[0], b[0], a[1], b[1]];
            held[tile][pair][1] = [a[2], b[2], a[3], b[3]];
        }
    }
    held
}

/// Runs the sequence. gx is `[steps, batch, GATES·hidden]` and contiguous, like h0 and c0; weight is `[GATES·hidden, hidden]`.
///
/// # Safety
/// The tensors that `p.has` names and gx, y, h_n (c_n for an LSTM) are as `p` says, each starting at a multiple of 4 bytes; all
/// blocks of the grid run at once, blocks of a group own all units, groups all rows; the exchange holds `ring.slots`
/// slots, all poisoned.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, TILES: 3, PAIRS: 1; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 2; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 6, PAIRS: 4; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 1; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 2; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 6, PAIRS: 4; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence<T: Half, const GATES: usize, const TILES: usize, const PAIRS: usize>(
    weight: Global<T>,
    gx: Global<T>,
    bias: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
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
    let sends = owns && own % 2 == 0;

    // SAFETY: the caller's contract. Sums are written to one of two buffers in turn, and read behind the barrier; a buffer is
    // written again behind the next barrier, which readers reach when they are done. What else lies in shared memory is
    // written and read by one thread, or by lanes of one warp with a collective in between.
    unsafe {
        let layout = Layout::new(GATES, TILES, p.subs);
        let sums = Shared::<f32>::dynamic(0, 2 * WARPS * COLUMNS * pitch);
        let from = Shared::<u64>::dynamic(layout.from, 2 * owners);
        let of_h = Shared::<f32>::dynamic(layout.h, p.subs * owners);
        let of_c = Shared::<f32>::dynamic(layout.c, p.subs * owners);
        let of_bias = Shared::<f32>::dynamic(layout.bias, GATES as u32 * units);
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        let of_words = Shared::<u32>::dynamic(layout.words, owners);
        let of_gx = Shared::<T>::dynamic(layout.gx, AHEAD * p.subs * GATES as u32 * owners);

        // An exchange has fewer than 2^32 words.
        let sub_at = |slot: u32, sub: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.subs + sub) * p.ring.words
        };
        // Where a thread's own things begin in the exchange, in y and in gx: the weights leave no registers for that.
        if owns {
            of_words.set(tid, unit / CHUNK * CHUNK_WORDS + column * (CHUNK / 2) + unit % CHUNK / 2);
            let of_row = first_row as usize * GATES * p.hidden as usize;
            from.set(tid, (i64::from(first_row) * p.y_row) as u64 + u64::from(unit));
            from.set(owners + tid, (of_row + unit as usize) as u64);
        }
        let own_word_at = |slot: u32, sub: u32| (sub_at(slot, sub) + of_words.get(tid)) as usize;
        let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };
        let place_of_gx = |step: u32, sub: u32, gate: usize| {
            ((step % AHEAD * p.subs + sub) * GATES as u32 + gate as u32) * owners + tid
        };
        // Two units of each gate a thread of an even unit; beyond the last step there is nothing to wait for.
        let fetch = |step: u32, sub: u32| {
            if sends && step < p.steps {
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
            if sends {
                send(exchange, own_word_at(0, sub), word::<T>(h, next));
            }
        }
        for step in 0..AHEAD {
            for sub in 0..p.subs {
                fetch(step, sub);
            }
        }
        // Last: what comes before is done with its registers.
        let first_k = warp * PAIRS as u32 * CHUNK;
        let held =
            load_weights::<T, GATES, TILES, PAIRS>(weight, block * units, first_k, p.hidden, p.weight_row);
        thread::sync_threads();

        // The index as a whole: the compiler would keep an address for each pack.
        let pack_of = |slot: u32, sub: u32, pair: usize| {
            let first = sub_at(slot, sub) + warp * PAIRS as u32 * CHUNK_WORDS + lane * 4;
            (bits::opaque(first) + pair as u32 * CHUNK_WORDS) as usize
        };
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let (mut slot, mut sub, mut step_index, mut buffer) = (0, 0, 0, 0);
        let ask = |slot: u32, sub: u32, round: usize| {
            ask::<ROUND>(exchange, |i| pack_of(slot, sub, round * ROUND + i), PAIRS - round * ROUND)
        };
        let mut asked = NOT_YET;
        let after = |slot: u32| if slot + 1 == p.ring.slots { 0 } else { slot + 1 };
        while step_index < p.steps {
            if sub == 0 && p.ring.period != 0 && slot & (p.ring.period - 1) == 0 {
                clean(&p, slot, step_index, |slot, sub| {
                    if sends {
                        send(exchange, own_word_at(slot, sub), POISON);
                    }
                });
                thread::device_fence();
            }
            if const { !is_early(PAIRS) } {
                asked = ask(slot, sub, 0);
            }
            let of_warp = (buffer * WARPS + warp) * COLUMNS * pitch + lane % 4 * 2 * pitch + lane / 4;
            let mut products = [[0.0f32; 4]; TILES];
            for round in 0..const { PAIRS.div_ceil(ROUND) } {
                let at = |i| pack_of(slot, sub, round * ROUND + i);
                let (h, received) = receive(exchange, at, asked, || of_patience.get(warp));
                if !received {
                    // All lanes know how patient they were.
                    warp::sync_warp(u32::MAX);
                    // Once is enough: the launch ends soon, with results that the error makes void.
                    if lane == 0 {
                        let seen = (u64::from(step_index) << 32) | u64::from(block);
                        fault.atomic_min(0, seen, Ordering::Relaxed, Scope::Device);
                        of_patience.set(warp, 0);
                    }
                    warp::sync_warp(u32::MAX);
                }
                if round + 1 < const { PAIRS.div_ceil(ROUND) } {
                    asked = ask(slot, sub, round + 1);
                }
                for i in 0..const { if PAIRS < ROUND { PAIRS } else { ROUND } } {
                    for half in 0..2 {
                        for tile in 0..TILES {
                            let weights = held[tile][round * ROUND + i][half];
                            let of_h = [h[i][2 * half], h[i][2 * half + 1]];
                            products[tile] = T::multiply(weights, of_h, products[tile]);
                        }
                    }
                }
            }
            for tile in 0..TILES {
                let at = of_warp + tile as u32 * 16;
                sums.set(at, products[tile][0]);
                sums.set(at + pitch, products[tile][1]);
                sums.set(at + 8, products[tile][2]);
                sums.set(at + pitch + 8, products[tile][3]);
            }
            // The next sub-batch's h was sent before this one's: its way is behind the gates.
            let next_sub = if sub + 1 == p.subs { 0 } else { sub + 1 };
            let next_slot = if next_sub == 0 { after(slot) } else { slot };
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
                    of_hidden[gate] += total(|part| sums.get(at + part * COLUMNS * pitch));
                }
                let own_state = sub * owners + tid;
                let (before, c) = (of_h.get(own_state), if is_lstm { of_c.get(own_state) } else { 0.0 });
                let time = time_of(step_index);
                let active = (time as i32) < of_lengths.get(sub * COLUMNS + column);
                let (next_h, next_c) = step(of_x, of_hidden, before, c);
                let next_h = if active { next_h } else { before };
                let next = warp::warp_shuffle_xor(u32::MAX, next_h, 1, warp::SIZE).0;
                let last = step_index + 1 == p.steps;
                if sends && !last {
                    let at = own_word_at(after(slot), sub);
                    send(exchange, at, word::<T>(next_h, next));
                }
                of_h.set(own_state, next_h);
                if is_lstm && active {
                    of_c.set(own_state, next_c);
                }
                let rounded = T::from_f32(if active { next_h } else { 0.0 });
                let at =
                    from.get(tid) as i64 + i64::from(time) * p.y_time + i64::from(sub * COLUMNS) * p.y_row;
                y.set_if(exists(row), at as usize, rounded);
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

/// The sum of the warps' parts, by pairs: additions that wait for one another are three, not eight.
#[inline(always)]
pub(super) fn total(part: impl Fn(u32) -> f32) -> f32 {
    const { assert!(WARPS == 8) };
    let two = |i: u32| part(i) + part(i + 1);
    (two(0) + two(2)) + (two(4) + two(6))
}

/// Has the thread's words poisoned, by `poison(slot, sub)`, of the slots that became free in the last period: those up to two
/// before `slot`. Whoever has received all of the slot before has seen all blocks past the one before that.
#[inline(always)]
pub(super) fn clean(p: &Sequence, slot: u32, step: u32, poison: impl Fn(u32, u32)) {
    let mut back = 2;
    while back < p.ring.period + 2 {
        let free = if slot >= back { slot - back } else { slot + p.ring.slots - back };
        let mut sub = 0;
        while sub < p.subs {
            if step >= back {
                poison(free, sub);
            }
            sub += 1;
        }
        back += 1;
    }
}
