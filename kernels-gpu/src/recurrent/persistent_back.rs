//! The gradient of all steps of a sequence in one launch: as [`persistent`](super::persistent), backwards.
//!
//! dh\[t\] = dh\[t + 1\]·∂h'/∂h + dgh\[t\]·w_hh + dy\[t − 1\], with sums, slopes and the carried dh and dc in f32; of f16 and bf16
//! dgh is rounded where it is multiplied and where it leaves. f32 is multiplied as tf32 in three products: gradients have any size, for
//! which parts of 16 bits would need a scale.
//!
//! What blocks give one another is dgh of a step: GATES times as much as h. A block's units are the rows of its A fragments, and
//! the columns are those of all gates: of each gate a whole number of chunks, dealt to the warps in turn, `PAIRS` each.
//!
//! Launch: cooperative, grid (blocks of a group, groups), [`BackForm::shared_bytes`] of dynamic shared memory; the exchange
//! poisoned.
//!
//! Floor of a step: each block reads its group's dgh from L2.

use super::exchange::{CHUNK_WORDS, COLUMNS, POISON, ask, not_yet, receive_or_report, send};
use super::math::{FACTORS, Factors};
use super::persistent::{AHEAD, Sequence, WARPS, clean, pitch, total};
use super::weights::{Weights, fragments, rest_bytes};
use super::words::{WORDS, Words};
use super::{GRU, has};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Packs of dgh that a lane receives at a time: more do not fit beside the weights.
const ROUND: usize = 4;

/// Operands of a step: gx and gh of all gates, what the step began with, dy.
const fn operands(gates: usize) -> u32 {
    2 * gates as u32 + 2
}

/// Hidden units of a block with so many tiles of 16 rows.
const fn units_back(tiles: usize) -> u32 {
    tiles as u32 * 16
}

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct BackForm {
    /// Gates of a unit.
    pub gates: usize,
    /// Tiles of 16 units of a block.
    pub tiles: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Those of which the weights are in registers.
    pub held: usize,
    /// Bytes of a number.
    pub size: usize,
}

impl BackForm {
    /// Hidden units of a block.
    pub const fn units(self) -> u32 {
        units_back(self.tiles)
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
    dh: u32,
    dc: u32,
    lengths: u32,
    patience: u32,
    factors: u32,
    operands: u32,
    end: u32,
}

impl Layout {
    /// Two buffers of sums first.
    #[inline(always)]
    const fn new(of: BackForm, subs: u32) -> Layout {
        let BackForm { gates, tiles, pairs, held, size } = of;
        let owners = COLUMNS * units_back(tiles);
        let state = subs * owners * 4;
        let rest = 2 * WARPS * COLUMNS * pitch(tiles) * 4;
        let dh = rest + rest_bytes(tiles, pairs, held, 1);
        let dc = dh + state;
        let lengths = dc + if gates == GRU { 0 } else { state };
        let patience = lengths + subs * COLUMNS * 4;
        let factors = patience + WARPS * 4;
        let first = factors + FACTORS as u32 * owners * 4;
        Layout {
            rest,
            dh,
            dc,
            lengths,
            patience,
            factors,
            operands: first,
            end: first + AHEAD * subs * operands(gates) * owners * size as u32,
        }
    }
}

/// Walks the steps backwards: dgx and dgh of all of them, and the gradients of h and c before the first in place of those after the
/// last. Row (gate, unit) of `weight` is what the unit's h does to the gate of each unit: w_hh with each gate's `[hidden, hidden]`
/// turned over. Of an LSTM dgx is that of gh, too, and dgh is not written. `p` has no y; its ring is used for a step more.
///
/// # Safety
/// gx, gh, dgx, dgh `[steps, batch, GATES·hidden]`, state (h of a GRU, c of an LSTM, before each step) and dy
/// `[steps, batch, hidden]`, dh (and dc) `[batch, hidden]`, contiguous, each starting at a multiple of 4 bytes; all blocks
/// of the grid run at once, blocks of a group own whole chunks that hold all units, groups all rows; the exchange holds
/// `ring.slots` slots, all poisoned.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, TILES: 1, PAIRS: 4, HELD: 4; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 1, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 2, PAIRS: 12, HELD: 12; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 4, HELD: 4; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 16, HELD: 16; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 2, PAIRS: 16, HELD: 11; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_back<
    T: Words,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
>(
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let of = Operands { weight, gx, gh, state, dy, lengths, dgx, dgh, dh, dc, exchange, fault };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, TILES, PAIRS, HELD>(of, p) }
}

/// [`sequence_back()`](fn@sequence_back) of f32.
///
/// # Safety
/// As there.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, TILES: 1, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 1, PAIRS: 12, HELD: 12; threads: 256, min_blocks: 1 },
        { GATES: 3, TILES: 1, PAIRS: 24, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 8, HELD: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 16, HELD: 12; threads: 256, min_blocks: 1 },
        { GATES: 4, TILES: 1, PAIRS: 32, HELD: 12; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_back_f32<
    T: Words,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
>(
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let of = Operands { weight, gx, gh, state, dy, lengths, dgx, dgh, dh, dc, exchange, fault };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, TILES, PAIRS, HELD>(of, p) }
}

/// The operands of a walk.
struct Operands<T> {
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
}

/// Walks the steps backwards.
///
/// # Safety
/// As [`sequence_back()`](fn@sequence_back).
#[inline(always)]
unsafe fn run<T: Words, const GATES: usize, const TILES: usize, const PAIRS: usize, const HELD: usize>(
    of: Operands<T>,
    p: Sequence,
) {
    let Operands { weight, gx, gh, state, dy, lengths, dgx, dgh, dh, dc, exchange, fault } = of;
    const { assert!(PAIRS.is_multiple_of(ROUND)) };
    let units = const { units_back(TILES) };
    let pitch = const { pitch(TILES) };
    let is_lstm = const { GATES != GRU };
    // Of several sub-batches the next one's is asked for before the slopes of this one: who sends it has done so.
    let is_early = const { TILES == 2 };
    let (lane, warp, tid) = (warp::lane_id(), warp::warp_id(), thread::thread_idx_x());
    let (block, group) = (thread::block_idx_x(), thread::block_idx_y());
    // A thread's unit and row of each sub-batch; threads beyond have none.
    let owners = COLUMNS * units;
    let owns = tid < owners;
    let (column, own) = (tid / units, tid % units);
    let unit = block * units + own;
    let first_row = group * p.subs * COLUMNS + column;
    let exists = |row: u32| owns & (unit < p.hidden) & (row < p.batch);
    // Units of a word, and of a chunk.
    let per_word = const { T::PER_WORD as u32 };
    let of_chunk = const { WORDS * T::PER_WORD as u32 };
    let sends = owns & own.is_multiple_of(per_word);
    // Chunks of a gate.
    let chunks = thread::grid_dim_x() * units / of_chunk;

    // SAFETY: the caller's contract. Sums are written to one of two buffers in turn, and read behind the barrier; a buffer is
    // written again behind the next barrier, which readers reach when they are done. What else lies in shared memory is
    // written and read by one thread, or by lanes of one warp with a collective in between.
    unsafe {
        let layout = Layout::new(
            const { BackForm { gates: GATES, tiles: TILES, pairs: PAIRS, held: HELD, size: size_of::<T>() } },
            p.subs,
        );
        let sums = Shared::<f32>::dynamic(0, 2 * WARPS * COLUMNS * pitch);
        let of_dh = Shared::<f32>::dynamic(layout.dh, p.subs * owners);
        let of_dc = Shared::<f32>::dynamic(layout.dc, p.subs * owners);
        let of_lengths = Shared::<i32>::dynamic(layout.lengths, p.subs * COLUMNS);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        let factors = Shared::<f32>::dynamic(layout.factors, FACTORS as u32 * owners);
        let fetched = Shared::<T>::dynamic(layout.operands, AHEAD * p.subs * operands(GATES) * owners);

        // An exchange has fewer than 2^32 words.
        let sub_at = |slot: u32, sub: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.subs + sub) * p.ring.words
        };
        let own_word = unit / of_chunk * CHUNK_WORDS + column * WORDS + unit % of_chunk / per_word;
        let send_all = |slot: u32, sub: u32, words: [u32; GATES]| {
            if sends {
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
            ((back % AHEAD * p.subs + sub) * operands(GATES) + operand) * owners + tid
        };
        // Four bytes of each operand: of 16 bits two units a thread of an even unit; beyond the first step there is nothing to wait for.
        let fetch = |back: u32, sub: u32| {
            if sends & (back < p.steps) {
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
                of_dh.set(sub * owners + tid, given(dh));
                if is_lstm {
                    of_dc.set(sub * owners + tid, given(dc));
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
        let last_chunk = GATES as u32 * chunks - 1;
        // A pair's gate and the lane's first column of it, and whether there is one: a warp's chunks go beyond the last.
        let column_of = |pair: usize| {
            let chunk = first_chunk + pair as u32;
            let (mut gate, mut of_gate) = (0, chunk);
            for _ in 1..GATES {
                if of_gate >= chunks {
                    (gate, of_gate) = (gate + 1, of_gate - chunks);
                }
            }
            let k = of_gate * of_chunk + lane % 4 * (4 * per_word);
            (gate, k, (chunk <= last_chunk) & (k < p.hidden))
        };
        let unit_of = |tile: usize, lower: usize| block * units + (tile * 16 + lower * 8) as u32 + lane / 4;
        let pair_of = |tile: usize, pair: usize| {
            let (gate, k, exists) = column_of(pair);
            let [upper, lower] = [0, 1].map(|lower| {
                let row = gate * p.hidden + unit_of(tile, lower).min(p.hidden - 1);
                let at = row as usize * p.weight_row as usize + k as usize;
                weight.get_pack_if(true, if exists { at } else { 0 }, 0)
            });
            [fragments(upper, lower), [[0; 4]; 2]]
        };
        let held_exists = |tile: usize, pair: usize, _: usize| {
            let (_, _, exists) = column_of(pair);
            [0, 1].map(|lower| exists & (unit_of(tile, lower) < p.hidden))
        };
        let all = (chunks * of_chunk == p.hidden) & (first_chunk + PAIRS as u32 <= GATES as u32 * chunks);
        let held = Weights::<TILES, HELD>::fill::<PAIRS>(layout.rest, 1, pair_of, held_exists, all);
        thread::sync_threads();

        let pack_of = |slot: u32, sub: u32, pair: usize| {
            // What weights of 0 are multiplied by only has to be there.
            let chunk = (bits::opaque(first_chunk) + pair as u32).min(last_chunk);
            (sub_at(slot, sub) + chunk * CHUNK_WORDS + lane * 4) as usize
        };
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let (mut slot, mut sub, mut back, mut buffer) = (0, 0, 0, 0);
        let ask = |slot: u32, sub: u32, round: usize| {
            ask::<ROUND>(exchange, |i| pack_of(slot, sub, round * ROUND + i), ROUND)
        };
        let mut asked = not_yet::<ROUND>();
        let after = |slot: u32| if slot + 1 == p.ring.slots { 0 } else { slot + 1 };
        while back <= p.steps {
            if sub == 0 && p.ring.period != 0 && slot & (p.ring.period - 1) == 0 {
                clean(&p, (slot, back), 1, |slot, sub| send_all(slot, sub, [POISON; GATES]));
                thread::device_fence();
            }
            if !is_early {
                asked = ask(slot, sub, 0);
            }
            // This step's operands have been followed by those of the other sub-batches and of the next step.
            if p.subs == 1 {
                async_copy::wait::<1>();
            } else {
                async_copy::wait::<3>();
            }
            // A lane has copied its neighbour's, too.
            warp::sync_warp(u32::MAX);
            let get = |operand: usize| fetched.get(place_of(back, sub, operand as u32)).to_f32();
            let prepared = || {
                let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
                for gate in 0..GATES {
                    gx[gate] = get(gate);
                    gh[gate] = get(GATES + gate);
                }
                let state = get(2 * GATES);
                Factors::new(gx, gh, (state, state)).0
            };
            // While dgh is on its way: what does not depend on it. Of f32 it is here before.
            let prepares = const { T::PER_WORD == 2 };
            if prepares && owns && back < p.steps {
                let of_unit = prepared();
                for i in 0..FACTORS {
                    factors.set(i as u32 * owners + tid, of_unit[i]);
                }
            }
            let of_warp = (buffer * WARPS + warp) * COLUMNS * pitch + lane % 4 * 2 * pitch + lane / 4;
            // Of a single tile, two sums in turn: products that wait for one another are fewer.
            let chains = const { if TILES == 1 { 2 } else { 1 } };
            let mut products = [[[0.0f32; 4]; 2]; TILES];
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
                        for tile in 0..TILES {
                            let weights = held.get(tile, round * ROUND + i, (0, 1), half);
                            let of_gh = [dgh[i][2 * half], dgh[i][2 * half + 1]];
                            let chain = half % chains;
                            let sum = products[tile][chain];
                            products[tile][chain] = T::multiply(weights, of_gh, sum, zero);
                        }
                    }
                }
            }
            for tile in 0..TILES {
                let mut product = products[tile][0];
                if const { TILES == 1 } {
                    for i in 0..4 {
                        product[i] += products[tile][1][i];
                    }
                }
                let at = of_warp + tile as u32 * 16;
                sums.set(at, product[0]);
                sums.set(at + pitch, product[1]);
                sums.set(at + 8, product[2]);
                sums.set(at + pitch + 8, product[3]);
            }
            let next_sub = if sub + 1 == p.subs { 0 } else { sub + 1 };
            let next_slot = if next_sub == 0 { after(slot) } else { slot };
            if is_early {
                asked = ask(next_slot, next_sub, 0);
            }
            thread::sync_threads();

            if owns {
                let at = buffer * WARPS * COLUMNS * pitch + column * pitch + own;
                let own_state = sub * owners + tid;
                let mut dh = of_dh.get(own_state) + total(|part| sums.get(at + part * COLUMNS * pitch));
                if back < p.steps {
                    let mut of_unit = [0.0; FACTORS];
                    if prepares {
                        for i in 0..FACTORS {
                            of_unit[i] = factors.get(i as u32 * owners + tid);
                        }
                    } else {
                        of_unit = prepared();
                    }
                    let dc = if is_lstm { of_dc.get(own_state) } else { 0.0 };
                    let slopes = Factors(of_unit).slopes::<GATES>((dh + get(2 * GATES + 1), dc));
                    let active = (time_of(back) as i32) < of_lengths.get(sub * COLUMNS + column);
                    dh = if active { slopes.dh } else { dh };
                    if is_lstm && active {
                        of_dc.set(own_state, slopes.dc);
                    }
                    let mut words = [0; GATES];
                    let mut to_h = [0.0; GATES];
                    for gate in 0..GATES {
                        to_h[gate] = if active { slopes.dgh[gate] } else { 0.0 };
                        let next = warp::warp_shuffle_xor(u32::MAX, to_h[gate], 1, warp::SIZE).0;
                        words[gate] = T::word(to_h[gate], next);
                    }
                    send_all(after(slot), sub, words);
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
                // The other lane of a word has read it.
                warp::sync_warp(u32::MAX);
            }
            fetch(back + AHEAD, sub);
            buffer ^= 1;
            back += u32::from(next_sub == 0);
            (slot, sub) = (next_slot, next_sub);
        }
        for sub in 0..p.subs {
            let row = first_row + sub * COLUMNS;
            let at = row as usize * p.hidden as usize + unit as usize;
            if exists(row) {
                dh.set(at, of_dh.get(sub * owners + tid));
                if is_lstm {
                    dc.set(at, of_dc.get(sub * owners + tid));
                }
            }
        }
    }
}
