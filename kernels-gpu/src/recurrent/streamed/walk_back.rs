//! All steps of a sequence backwards whose recurrent weights do not fit on chip, in one launch, of 16-bit numbers.
//!
//! As in [`stream_product()`](fn@super::stream_product) a block has rows of the weights, which are units, a split of the terms, and all rows of the batch; but it keeps
//! them for all steps, and with them as many of its weights as it has room for ([`Slots`]). A round is the product of what the round before has
//! left, and the gates of a step: the first has no product, and one behind the last step gathers what comes to the initial state.
//! The blocks of the same units leave one another their shares of the sums in memory, as accumulators lie, and each does the gates of some rows of the
//! batch. The terms of the next product go through memory, too.
//!
//! Warps that multiply do the gates of units of their own, and wait for none of their block but where the first says that terms are there. A pack of a share is
//! its own flag (`exchange`), poisoned again by whom it is for. Terms are read by copies, which cannot look for flags: a counter says how often the blocks of
//! a block of units have left theirs, and who reads them waits for it by loads that acquire. A split for which no rows of the batch are left over does no gates;
//! but it leaves rounds as the others do.
//!
//! No block leaves round r before all have left round r − 1: so counters count whole rounds, and there are two buffers of either, since terms of round r − 2 have
//! been multiplied then, and shares of round r − 1 been added up. The producer waits for all blocks behind the round's copies, and tells the others at a barrier.
//!
//! Launch: cooperative, grid (blocks of units, splits), [`walk_shared_bytes`](super::walk_shared_bytes) of dynamic shared memory; shares poisoned and counters 0.
//!
//! Floor of a step: the turns of weights beyond those held, and the block's terms, from L2; products; two exchanges through L2.

use super::four::{FOUR, Four, To, store_four};
use super::gates_back::OfGatesBack;
use super::product::{SUMS, WARPS};
use super::slots::{CONSUMERS, Parities, Reader, Slots, Sweep, WALK_CHUNKS, WALK_ROWS};
use super::{StreamStep, Streamed, TERMS};
use crate::recurrent::bias::OfBias;
use crate::recurrent::exchange::{self, COLUMNS, POISON, ask, receive_or_report};
use crate::recurrent::{GRU, has};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::bits;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, Operand, WarpgroupHalf};

/// The barrier at which terms have been written.
const LEFT: u32 = 1;
/// Words from a counter to the next: a sector each.
pub const COUNTER_WORDS: u32 = 8;
/// Numbers of a split's sums of a block of units.
pub const WALK_SHARE: u32 = WALK_ROWS * super::STREAM_COLUMNS;

/// What a walk is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StreamWalk {
    /// A step, but for its time.
    pub step: StreamStep,
    /// Elements from a time of dy to the next.
    pub y_time: i64,
    /// Steps, at least 1.
    pub steps: u32,
    /// Whether the last step's time is the first.
    pub reverse: u32,
    /// Terms over [`TERMS`].
    pub chunks: u32,
    /// Turns of a split, of [`WALK_CHUNKS`] chunks each.
    pub turns: u32,
    /// Rows of the batch whose gates a block does, over [`COLUMNS`].
    pub own: u32,
    /// Splits, whose blocks are all waited for.
    pub arrivals: u32,
    /// Polls after which a warp gives up.
    pub patience: u32,
}
plain_parameter!(StreamWalk);

/// What blocks give one another.
#[derive(Clone, Copy)]
struct Exchange {
    /// The terms, `[2, chunks, batch, TERMS]`, two a word.
    terms: GlobalMut<u32>,
    /// `[2, blocks of units, splits, WALK_SHARE]`.
    sums: GlobalMut<u32>,
    /// One for each block of units, [`COUNTER_WORDS`] apart.
    counters: GlobalMut<u32>,
    fault: GlobalMut<u64>,
}

impl Exchange {
    /// Waits until all `arrivals` of `count` blocks of units, `of(0)` and so on, have left the terms that a round reads; or gives up, for good, and gives
    /// false: then `fault` gets the round and the block, unless it has an earlier one. A warp calls, and all its lanes are ordered behind.
    ///
    /// # Safety
    /// The counters exist; the warp's patience is its own.
    #[inline(always)]
    unsafe fn wait(
        self,
        (count, of): (u32, impl Fn(u32) -> u32),
        arrivals: u32,
        round: u32,
        patience: Shared<u32>,
    ) -> bool {
        let (warp, lane) = (warp::warp_id(), warp::lane_id());
        let target = round * arrivals;
        let (mut first, mut in_time) = (0, true);
        while first < count {
            let waits = first + lane < count;
            let at = counter_of(of(if waits { first + lane } else { first }));
            let mut polls = 0;
            // SAFETY: the caller's contract.
            unsafe {
                loop {
                    let left = self.counters.atomic_load(at, Ordering::Acquire, Scope::Device);
                    if warp::warp_vote_all(u32::MAX, left >= target) {
                        break;
                    }
                    if polls >= patience.get(warp) {
                        exchange::give_up(round, (lane, warp), patience, self.fault);
                        in_time = false;
                        break;
                    }
                    polls += 1;
                    thread::spin_wait();
                }
            }
            first += warp::SIZE;
        }
        warp::sync_warp(u32::MAX);
        in_time
    }

    /// The sum of the packs of all splits, each at `at(split)`, as soon as they are there: they are poisoned again. All lanes call.
    ///
    /// # Safety
    /// The packs exist, and are for this lane; the warp's patience is its own.
    #[inline(always)]
    unsafe fn receive(
        self,
        splits: u32,
        at: impl Fn(u32) -> usize,
        round: u32,
        patience: Shared<u32>,
    ) -> [f32; 4] {
        const FLIGHT: usize = 8;
        let (mut sum, mut first) = ([0.0; 4], 0);
        // SAFETY: the caller's contract.
        unsafe {
            while first < splits {
                // Beyond the last, that one again.
                let of = |i: usize| at((first + i as u32).min(splits - 1));
                let asked = ask::<FLIGHT>(self.sums, of, FLIGHT);
                let packs = receive_or_report(self.sums, of, asked, round, patience, self.fault);
                for i in 0..FLIGHT {
                    if first + (i as u32) < splits {
                        self.sums.store_pack_relaxed(of(i), [POISON; 4]);
                        for j in 0..4 {
                            sum[j] += f32::from_bits(packs[i][j]);
                        }
                    }
                }
                first += FLIGHT as u32;
            }
        }
        sum
    }

    /// Says that the terms that the block's consumers have written are there. Their first warp waits for the others.
    ///
    /// # Safety
    /// The counter exists; all consumers' warps call.
    #[inline(always)]
    unsafe fn leave(self, warp: u32, block: u32) {
        if warp > 0 {
            thread::arrive_named(LEFT, CONSUMERS * warp::SIZE);
            return;
        }
        thread::sync_named(LEFT, CONSUMERS * warp::SIZE);
        if warp::lane_id() == 0 {
            // SAFETY: the caller's contract.
            unsafe { self.counters.atomic_add(counter_of(block), 1, Ordering::Release, Scope::Device) };
        }
    }
}

/// Where the counter of a block of units is.
#[inline(always)]
fn counter_of(block: u32) -> usize {
    (block * COUNTER_WORDS) as usize
}

/// A block's part of the work.
#[derive(Clone, Copy)]
struct Part {
    /// Among the blocks of units.
    block: u32,
    split: u32,
    /// The first chunk of the split, and its turns.
    first: u32,
    turns: u32,
}

impl Part {
    #[inline(always)]
    fn of_block(p: &StreamWalk) -> Part {
        let (block, split) = (thread::block_idx_x(), thread::block_idx_y());
        let first = split * p.turns * WALK_CHUNKS;
        // Chunks beyond the last are zeros.
        let turns = p.turns.min((p.chunks - first).div_ceil(WALK_CHUNKS));
        Part { block, split, first, turns }
    }
}

/// Walks the steps backwards, and adds to dh what comes to the initial state.
///
/// # Safety
/// gx, gh, h, c, dgx and dgh as those of [`stream_gates_back()`](fn@super::stream_gates_back) at all times, one behind the other, dy's `p.y_time`
/// apart; of an LSTM dgh is not written. The maps are of the weights `[1, chunks, hidden, TERMS]` and of `terms` `[2, chunks, batch, TERMS]`, with boxes of
/// a chunk and [`WALK_ROWS`] and [`STREAM_COLUMNS`](super::STREAM_COLUMNS) rows. Units come in whole fours, each tensor starts at a multiple of four numbers; the batch has at most
/// [`STREAM_COLUMNS`](super::STREAM_COLUMNS) rows. With `has::SUMS` dbias gets sums of dgx and dgh (`bias`), eight rows for each split. `sums` are as [`WALK_SHARE`] says. Blocks cover units and chunks, own rows times splits the batch, and all
/// run at once.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, HELD: 5, STAGES: 4; threads: 288, min_blocks: 1 },
        { GATES: 4, HELD: 5, STAGES: 4; threads: 288, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn stream_walk_back<T: Streamed, const GATES: usize, const HELD: usize, const STAGES: usize>(
    map_w: TensorMap,
    map_x: TensorMap,
    gx: Global<T>,
    gh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    dy: Global<T>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    dbias: GlobalMut<f32>,
    terms: GlobalMut<u32>,
    sums: GlobalMut<u32>,
    counters: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: StreamWalk,
) {
    let exchange = Exchange { terms, sums, counters, fault };
    let of = OfGatesBack { gx, gh, h, c, dy, lengths, dgx, dgh, dh, dc };
    // Known to be the same in all lanes.
    let warp = warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0;
    let is_producer = warp >= CONSUMERS;
    let part = Part::of_block(&p);
    // SAFETY: the caller's contract. A slot or stage is written between the ends of a phase of *empty* and of *full*, and read between the
    // ends of *full* and of the next phase of *empty*; at first all are empty.
    unsafe {
        let slots = Slots::<HELD, STAGES>::new();
        if warp::lane_id() == 0 {
            if is_producer {
                slots.init();
            }
            slots.patience().set(warp, p.patience);
        }
        tile::expect_slabs();
        thread::sync_threads();
        if is_producer {
            produce::<T, GATES, HELD, STAGES>(slots, [map_w, map_x], part, exchange, &p);
        } else {
            consume::<T, GATES, HELD, STAGES>(slots, (of, dbias), part, exchange, &p);
        }
    }
}

/// Fills slots and stages, of all rounds. A warp calls.
///
/// # Safety
/// As [`stream_walk_back()`](fn@stream_walk_back).
#[inline(always)]
unsafe fn produce<T: Streamed, const GATES: usize, const HELD: usize, const STAGES: usize>(
    slots: Slots<HELD, STAGES>,
    [map_w, map_x]: [TensorMap; 2],
    part: Part,
    of: Exchange,
    p: &StreamWalk,
) {
    let Part { first, turns, block, .. } = part;
    let (lane, held) = (warp::lane_id(), HELD as u32);
    let chunks_of_gate = p.step.fours.value() / const { TERMS / FOUR };
    // The block of units whose blocks leave a chunk of terms.
    let block_of = |chunk: u32| {
        let mut of_gate = chunk;
        for _ in 1..GATES {
            of_gate = if of_gate >= chunks_of_gate { of_gate - chunks_of_gate } else { of_gate };
        }
        of_gate / const { WALK_ROWS / TERMS }
    };
    // SAFETY: the caller's contract.
    unsafe {
        let fetch_weights = |slot: u32, number: u32| {
            slots.fetch_weights::<T::Part>(slot, map_w, first + number * WALK_CHUNKS, block * WALK_ROWS);
        };
        if lane == 0 {
            map_x.prefetch();
            let mut number = 0;
            while number < turns.min(held) {
                fetch_weights(number, number);
                number += 1;
            }
        }
        let (mut place, mut empties, mut in_time) = (Turn::<STAGES>::first(), Parities::new(), true);
        let mut round = 1;
        while round <= p.steps {
            let chunks = (turns * WALK_CHUNKS).min(p.chunks - first);
            let of_chunks = (chunks, |chunk| block_of(first + chunk));
            in_time &= of.wait(of_chunks, p.arrivals, round, slots.patience());
            if lane == 0 {
                tma::fence_loads();
                // As far as x is asked for, and as far as consumers are followed.
                let (mut ahead, mut behind) =
                    (Sweep::<HELD>::new(turns, round), Sweep::<HELD>::new(turns, round));
                let (mut asked, mut turn) = (0, 0);
                while turn < turns {
                    while asked < turns.min(turn + STAGES as u32) {
                        // Who has given up reads nothing of others, only zeros beyond the last chunk.
                        let number = if in_time { first + ahead.number * WALK_CHUNKS } else { p.chunks };
                        slots.ring.empty(place.stage()).wait(place.parity() ^ 1);
                        slots.fetch_x::<T::Part>(place.stage(), map_x, number, round % 2);
                        (place, ahead, asked) = (place.next(), ahead.next(), asked + 1);
                    }
                    if turn + held < turns {
                        slots.held.empty(behind.slot).wait(empties.next(behind.slot));
                        fetch_weights(behind.slot, behind.number_behind(held));
                    }
                    (behind, turn) = (behind.next(), turn + 1);
                }
            }
            warp::sync_warp(u32::MAX);
            // Behind the last round nobody writes.
            if round < p.steps {
                in_time &=
                    of.wait((thread::grid_dim_x(), |block| block), p.arrivals, round, slots.patience());
                slots.others.arrive_if(lane == 0);
            }
            round += 1;
        }
    }
}

/// Multiplies and does gates, in all rounds.
///
/// # Safety
/// As [`stream_walk_back()`](fn@stream_walk_back).
#[inline(always)]
unsafe fn consume<T: Streamed, const GATES: usize, const HELD: usize, const STAGES: usize>(
    slots: Slots<HELD, STAGES>,
    (of, dbias): (OfGatesBack<T>, GlobalMut<f32>),
    part: Part,
    shared: Exchange,
    p: &StreamWalk,
) {
    let (warp, lane) = (warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0, warp::lane_id());
    let (batch, splits) = (p.step.batch, p.step.splits);
    let sets = batch.div_ceil(COLUMNS);
    // The lane's pack of a set of columns in a split's sums, in a round.
    let share = |round: u32, split: u32, set: u32| {
        let of_split = (round % 2 * thread::grid_dim_x() + part.block) * splits + split;
        (of_split * WALK_SHARE) as usize + ((set * CONSUMERS + warp) * warp::SIZE + lane) as usize * 4
    };
    // Four of the warp's units, and a row of a set of columns.
    let four_of = |set: u32| {
        let (row, unit) = (set * COLUMNS + lane / 4, part.block * WALK_ROWS + warp * 16 + lane % 4 * FOUR);
        Four::new(&p.step, (row, unit), (row < batch) & (unit < p.step.fours.value() * FOUR))
    };
    // The operands of a round's step; those of the last step for the round behind it.
    let of_round = |round: u32| {
        let back = p.steps - 1 - round.min(p.steps - 1);
        let step = StreamStep { time: if p.reverse == 0 { back } else { p.steps - 1 - back }, ..p.step };
        // SAFETY: there is such a time.
        (step, unsafe { of.at::<GATES>(&step, p.y_time) })
    };
    let first = part.split * p.own;
    let end = sets.min(first + p.own);
    let mut reader = Reader::<STAGES> { place: Turn::first(), slots: Parities::new() };
    let mut round = 0;
    let mut of_bias = [OfBias::<GATES>::new(); FOUR as usize];
    // SAFETY: the caller's contract.
    unsafe {
        let operands = slots.operands::<T::Part>(warp / WARPS);
        while round <= p.steps {
            let (step, of) = of_round(round);
            // What depends on it is worked out again: there are no registers for it.
            let mut set = bits::pinned(first);
            // While the terms are on their way.
            let mut ahead = of.load::<GATES, 1>(&step, four_of(set)).ahead::<T>();
            let (next_step, next) = of_round(round + 1);
            next.prefetch::<GATES>(&next_step, four_of(set));
            if round > 0 {
                let own = multiply::<T, HELD, STAGES>(slots, operands, &mut reader, part.turns, round);
                for set in 0..SUMS / 4 {
                    if (set as u32) < sets {
                        let pack = [0, 1, 2, 3].map(|i| exchange::word_of(own[4 * set + i]));
                        shared.sums.store_pack_relaxed(share(round, part.split, set as u32), pack);
                    }
                }
            }
            let to = To {
                parts: shared
                    .terms
                    .offset(i64::from((round + 1) % 2 * p.chunks * const { TERMS / 2 }) * i64::from(batch)),
                // None of 16 bits.
                scales: of.dh,
                lines: batch,
                chunks: p.chunks,
            };
            if round > 0 && round < p.steps {
                slots.others.wait((round - 1) % 2);
            }
            loop {
                let four = four_of(set);
                let mut slopes = None;
                if set < end {
                    let at = four.of_gate(&step, 1, 0);
                    let carried = |from: GlobalMut<f32>, left: u32| {
                        let words = GlobalMut::<u32>::from_raw(from.raw());
                        words.load_pack_relaxed_or(left > 0, at, [0; 4]).map(f32::from_bits)
                    };
                    let mut of_h = carried(of.dh, four.left);
                    let of_c = carried(of.dc, if const { GATES != GRU } { four.left } else { 0 });
                    if round > 0 {
                        let through =
                            shared.receive(splits, |split| share(round, split, set), round, slots.patience());
                        let through = by_rows(through);
                        for i in 0..4 {
                            of_h[i] += through[i];
                        }
                    }
                    if round < p.steps {
                        let of_four = ahead.slopes(four.left, (of_h, of_c));
                        of.store_terms(&step, four, &of_four, to);
                        of_four.add_to(&mut of_bias);
                        slopes = Some(of_four);
                    } else {
                        store_four::<f32, 1>(of.dh, four.left, at, of_h);
                    }
                }
                if round < p.steps && set + 1 >= end {
                    shared.leave(warp, part.block);
                }
                if let Some(slopes) = slopes {
                    of.store::<GATES, 1>(&step, four, &slopes);
                }
                set += 1;
                if set >= end {
                    break;
                }
                ahead = of.load::<GATES, 1>(&step, four_of(set)).ahead::<T>();
            }
            round += 1;
        }
        let Four { unit, .. } = four_of(0);
        for i in 0..FOUR {
            if p.step.has & has::SUMS != 0 && unit + i < p.step.hidden {
                let (row, rows) = (part.split * COLUMNS + lane / 4, splits * COLUMNS);
                of_bias[i as usize].store(dbias, (row, rows), (unit + i, p.step.hidden));
            }
        }
    }
}

/// A round's sums of a warp of a consumer.
///
/// # Safety
/// All consumers' warps call; slots and stages are filled.
#[inline(always)]
unsafe fn multiply<T: Streamed, const HELD: usize, const STAGES: usize>(
    slots: Slots<HELD, STAGES>,
    operands: [Operand; 2],
    reader: &mut Reader<STAGES>,
    turns: u32,
    round: u32,
) -> [f32; SUMS] {
    let (held, lane) = (HELD as u32, warp::lane_id());
    let mut sweep = Sweep::<HELD>::new(turns, round);
    let mut sums = [0.0; SUMS];
    // SAFETY: the caller's contract; products are waited for before their slot and stage are empty.
    unsafe {
        let release = |turn: u32, slot: u32, stage: u32| {
            slots.ring.empty(stage).arrive_if(lane == 0);
            slots.held.empty(slot).arrive_if(turn + held < turns && lane == 0);
        };
        let (mut turn, mut slot_before) = (0, 0);
        while turn < turns {
            let (slot, stage) = (sweep.slot, reader.place.stage());
            if round == 1 || turn >= held {
                slots.held.full(slot).wait(reader.slots.next(slot));
            }
            slots.ring.full(stage).wait(reader.place.parity());
            for chunk in 0..WALK_CHUNKS {
                let [of_w, of_x] = Slots::<HELD, STAGES>::chunk(operands, slot, stage, chunk);
                T::Part::multiply_tiles::<SUMS, 0, 0>(&mut sums, of_w, of_x, turn > 0 || chunk > 0);
            }
            // The products of the turn before are done.
            warpgroup::wait::<WALK_CHUNKS>();
            if turn > 0 {
                release(turn - 1, slot_before, reader.place.stage_before());
            }
            slot_before = slot;
            (sweep, reader.place, turn) = (sweep.next(), reader.place.next(), turn + 1);
        }
        warpgroup::finish(&mut sums);
        release(turns - 1, slot_before, reader.place.stage_before());
    }
    sums
}

/// Four neighbouring units of a row, lane / 4 of eight, from what accumulators hold of them: numbers `[unit, unit + 8][row, row + 1]` of the unit lane / 4 and the row
/// 2·(lane % 4). All lanes call.
#[inline(always)]
fn by_rows(held: [f32; 4]) -> [f32; 4] {
    let (row, four) = (warp::lane_id() / 4, warp::lane_id() % 4);
    let mut own = [0.0; 4];
    for i in 0..4 {
        let unit = four * FOUR + i as u32;
        let from = unit % 8 * 4 + row / 2;
        let got = held.map(|number| warp::warp_shuffle_idx(u32::MAX, number, from, warp::SIZE).0);
        let [low, high] = if row % 2 == 0 { [got[0], got[2]] } else { [got[1], got[3]] };
        own[i] = if unit < 8 { low } else { high };
    }
    own
}
