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

use super::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, POISON, Ring, receive, send, word};
use super::math::step;
use super::{GRU, has};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Warps of a block.
pub const WARPS: u32 = 8;
/// Steps that gx is fetched ahead: memory takes longer than a step.
const AHEAD: u32 = 2;

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
const fn pitch(tiles: usize) -> u32 {
    tiles as u32 * 16 + 4
}

/// Bytes of shared memory.
pub const fn sequence_shared_bytes(gates: usize, tiles: usize, subs: u32) -> u32 {
    Layout::new(gates, tiles, subs).end
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    h: u32,
    c: u32,
    bias: u32,
    lengths: u32,
    patience: u32,
    gx: u32,
    end: u32,
}

impl Layout {
    /// Two buffers of sums first.
    #[inline(always)]
    const fn new(gates: usize, tiles: usize, subs: u32) -> Layout {
        let (units, gates) = (units(gates, tiles), gates as u32);
        let state = subs * COLUMNS * units * 4;
        let h = 2 * WARPS * COLUMNS * pitch(tiles) * 4;
        let c = h + state;
        let bias = c + if gates == GRU as u32 { 0 } else { state };
        let lengths = bias + gates * units * 4;
        let patience = lengths + subs * COLUMNS * 4;
        let gx = patience + WARPS * 4;
        Layout { h, c, bias, lengths, patience, gx, end: gx + AHEAD * subs * gates * COLUMNS * units * 2 }
    }
}

/// The A fragments of a warp.
type Weights<const TILES: usize, const PAIRS: usize> = [[[[u32; 4]; 2]; PAIRS]; TILES];

/// Eight terms of a row, zeros beyond the last.
///
/// # Safety
/// Where `exists`, the row begins at element `row` and has `hidden` columns.
#[inline(always)]
unsafe fn eight<T: Half>(
    weight: Global<T>,
    exists: bool,
    packed: bool,
    row: usize,
    k: u32,
    hidden: u32,
) -> Pack {
    let mut pack = [0; 4];
    // SAFETY: within the row.
    unsafe {
        if packed {
            pack = weight.get_pack_if(exists && k < hidden, row + k as usize, 0);
        } else {
            for i in 0..4 {
                let at = k + 2 * i as u32;
                let low = weight.get_bits_if(exists && at < hidden, row + at as usize, 0);
                let high = weight.get_bits_if(exists && at + 1 < hidden, row + at as usize + 1, 0);
                pack[i] = low | high << 16;
            }
        }
    }
    pack
}

/// Loads the fragments of the block's rows and the warp's columns.
///
/// # Safety
/// `weight` is `[GATES·hidden, hidden]`.
#[inline(always)]
unsafe fn load_weights<T: Half, const GATES: usize, const TILES: usize, const PAIRS: usize>(
    weight: Global<T>,
    first_unit: u32,
    first_k: u32,
    p: &Sequence,
) -> Weights<TILES, PAIRS> {
    let units = const { units(GATES, TILES) };
    let lane = warp::lane_id();
    let packed = p.has & has::PACKED != 0;
    let mut held = [[[[0; 4]; 2]; PAIRS]; TILES];
    for tile in 0..TILES {
        // Rows of eight lie within a gate, since units are multiples of eight.
        let of = |first: u32| (first / units, first_unit + first % units + lane / 4);
        let (upper, lower) = (of(tile as u32 * 16), of(tile as u32 * 16 + 8));
        for pair in 0..PAIRS {
            let k = first_k + pair as u32 * CHUNK + lane % 4 * 8;
            let row = |(gate, unit): (u32, u32)| (gate * p.hidden + unit) as usize * p.hidden as usize;
            // SAFETY: rows of units that exist.
            let (a, b) = unsafe {
                (
                    eight(weight, upper.1 < p.hidden, packed, row(upper), k, p.hidden),
                    eight(weight, lower.1 < p.hidden, packed, row(lower), k, p.hidden),
                )
            };
            held[tile][pair][0] = [a[0], b[0], a[1], b[1]];
            held[tile][pair][1] = [a[2], b[2], a[3], b[3]];
        }
    }
    held
}

/// Runs the sequence. gx is `[steps, batch, GATES·hidden]` and contiguous, like weight, h0 and c0.
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
    let covered = thread::grid_dim_x() * units;
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
        let of_h = Shared::<f32>::dynamic(layout.h, p.subs * owners);
        let of_c = Shared::<f32>::dynamic(layout.c, p.subs * owners);
        let of_bias = Shared::<f32>::dynamic(layout.bias, GATES as u32 * units);
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        let of_gx = Shared::<T>::dynamic(layout.gx, AHEAD * p.subs * GATES as u32 * owners);

        // An exchange has fewer than 2^32 words.
        let sub_at = |slot: u32, sub: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.subs + sub) * p.ring.words
        };
        let own_word = unit / CHUNK * CHUNK_WORDS + column * (CHUNK / 2) + unit % CHUNK / 2;
        let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };
        let place_of_gx = |step: u32, sub: u32, gate: usize| {
            ((step % AHEAD * p.subs + sub) * GATES as u32 + gate as u32) * owners + tid
        };
        // Two units of each gate a thread of an even unit; beyond the last step there is nothing to wait for.
        let fetch = |step: u32, sub: u32| {
            // Steps are fewer than 2^31. Otherwise the compiler keeps what it computes from the unit in registers that the
            // weights need.
            let unit = unit ^ (step >> 31);
            let row = first_row + sub * COLUMNS;
            if sends && step < p.steps {
                let from = time_of(step) as usize * p.batch as usize + row as usize;
                for gate in 0..GATES {
                    let from = (from * GATES + gate) * p.hidden as usize + unit as usize;
                    of_gx.copy_4_async(place_of_gx(step, sub, gate), gx, from, exists(row));
                }
            }
            async_copy::commit();
        };

        let held =
            load_weights::<T, GATES, TILES, PAIRS>(weight, block * units, warp * PAIRS as u32 * CHUNK, &p);
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
                send(exchange, (sub_at(0, sub) + own_word) as usize, word::<T>(h, next));
            }
        }
        for step in 0..AHEAD {
            for sub in 0..p.subs {
                fetch(step, sub);
            }
        }
        thread::sync_threads();

        let (mut slot, mut buffer, mut step_index) = (0, 0, 0);
        let after = |slot: u32| if slot + 1 == p.ring.slots { 0 } else { slot + 1 };
        while step_index < p.steps {
            if p.ring.period != 0 && slot & (p.ring.period - 1) == 0 {
                clean(
                    exchange,
                    &p,
                    slot,
                    |slot, sub| (sub_at(slot, sub) + own_word) as usize,
                    sends,
                    step_index,
                );
                thread::device_fence();
            }
            let mut sub = 0;
            while sub < p.subs {
                let first = sub_at(slot, sub) + warp * PAIRS as u32 * CHUNK_WORDS + lane * 4;
                let first_k = warp * PAIRS as u32 * CHUNK + lane % 4 * 8;
                let (h, received) = receive::<PAIRS>(
                    exchange,
                    |pair| first as usize + pair * CHUNK_WORDS as usize,
                    |pair| first_k + (pair as u32 * CHUNK) < covered,
                    || of_patience.get(warp),
                );
                if !received {
                    // Once is enough: the launch ends soon, with results that the error makes void.
                    if lane == 0 {
                        let seen = (u64::from(step_index) << 32) | u64::from(block);
                        fault.atomic_min(0, seen, Ordering::Relaxed, Scope::Device);
                        of_patience.set(warp, 0);
                    }
                    warp::sync_warp(u32::MAX);
                }
                let mut products = [[0.0f32; 4]; TILES];
                for pair in 0..PAIRS {
                    for tile in 0..TILES {
                        products[tile] =
                            T::multiply(held[tile][pair][0], [h[pair][0], h[pair][1]], products[tile]);
                    }
                    for tile in 0..TILES {
                        products[tile] =
                            T::multiply(held[tile][pair][1], [h[pair][2], h[pair][3]], products[tile]);
                    }
                }
                let of_warp = (buffer * WARPS + warp) * COLUMNS * pitch;
                let at = of_warp + lane % 4 * 2 * pitch + lane / 4;
                for tile in 0..TILES {
                    let at = at + tile as u32 * 16;
                    sums.set(at, products[tile][0]);
                    sums.set(at + pitch, products[tile][1]);
                    sums.set(at + 8, products[tile][2]);
                    sums.set(at + pitch + 8, products[tile][3]);
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
                    // All gates at a time: the loads stay in this order, and no gate waits for another's.
                    for part in 0..WARPS {
                        for gate in 0..GATES {
                            of_hidden[gate] += sums.get(at + part * COLUMNS * pitch + gate as u32 * units);
                        }
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
                        let at = (sub_at(after(slot), sub) + own_word) as usize;
                        send(exchange, at, word::<T>(next_h, next));
                    }
                    of_h.set(own_state, next_h);
                    if is_lstm && active {
                        of_c.set(own_state, next_c);
                    }
                    let rounded = T::from_f32(if active { next_h } else { 0.0 });
                    let unit = unit ^ (time >> 31);
                    let at = i64::from(time) * p.y_time + i64::from(row) * p.y_row + i64::from(unit);
                    y.set_if(exists(row), at as usize, rounded);
                    if last {
                        let at = row as usize * p.hidden as usize + unit as usize;
                        h_n.set_if(exists(row), at, T::from_f32(next_h));
                        if is_lstm {
                            c_n.set_if(exists(row), at, T::from_f32(of_c.get(own_state)));
                        }
                    }
                    // The other lane of a word has read it.
                    warp::sync_warp(u32::MAX);
                }
                fetch(step_index + AHEAD, sub);
                buffer ^= 1;
                sub += 1;
            }
            slot = after(slot);
            step_index += 1;
        }
    }
}

/// Poisons the thread's words of the slots that became free in the last period: those up to two before `slot`. Whoever has
/// received all of the slot before has seen all blocks past the one before that.
///
/// # Safety
/// `at(slot, sub)` is the thread's own word.
#[inline(always)]
unsafe fn clean(
    exchange: GlobalMut<u32>,
    p: &Sequence,
    slot: u32,
    at: impl Fn(u32, u32) -> usize,
    sends: bool,
    step: u32,
) {
    let mut back = 2;
    while back < p.ring.period + 2 {
        let free = if slot >= back { slot - back } else { slot + p.ring.slots - back };
        let mut sub = 0;
        while sub < p.subs {
            if sends && step >= back {
                // SAFETY: the caller's contract.
                unsafe { send(exchange, at(free, sub), POISON) };
            }
            sub += 1;
        }
        back += 1;
    }
}
