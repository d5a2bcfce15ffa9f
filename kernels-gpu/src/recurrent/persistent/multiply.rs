//! What the warps that multiply do: receive h, multiply, leave sums.

use super::halves::{EMPTY, FULL, SENT, THREADS, of_set};
use super::{Sequence, WARPS};
use crate::recurrent::exchange::{CHUNK_WORDS, ask, receive_or_report};
use crate::recurrent::slices::Slices;
use cuda_std::bits;
use cuda_std::cluster;
use cuda_std::prelude::*;

/// A turn of a step, of `SPAN` sub-batches from `sub` on, and the slot that their h comes in.
#[derive(Clone, Copy)]
struct At {
    slot: u32,
    sub: u32,
    step: u32,
}

impl At {
    /// What comes behind it. Behind the last step there is a slot, too.
    #[inline(always)]
    fn next<const SPAN: usize>(self, p: &Sequence) -> At {
        let At { slot, sub, step } = self;
        if sub + (SPAN as u32) < p.subs {
            return At { sub: sub + SPAN as u32, ..self };
        }
        At { slot: p.ring.after(slot), sub: 0, step: step + 1 }
    }
}

/// What was asked for: of each sub-batch of a turn, the warp's chunks of h.
type Asked<const PAIRS: usize, const SPAN: usize> = [[Pack; PAIRS]; SPAN];
/// Sums of each sub-batch of a turn, by tiles.
type Sums<const TILES: usize, const SPAN: usize> = [[[f32; 4]; TILES]; SPAN];

/// The weights of a warp.
pub(in crate::recurrent) type Held<const HELD: usize> = Slices<HELD, { WARPS as usize }>;

/// The first chunk of columns of a warp's `PAIRS`, of the `CLUSTER` blocks of a cluster that share out the columns.
#[inline(always)]
pub(in crate::recurrent) fn first_chunk<const PAIRS: usize, const CLUSTER: usize>() -> u32 {
    let before = if const { CLUSTER == 1 } { 0 } else { cluster::rank() * WARPS };
    (before + warp::warp_id()) * PAIRS as u32
}

/// The most sums that a tile's products are dealt to.
const MOST_CHAINS: usize = 4;

/// Sums that the products of each of so many tiles are dealt to.
const fn chains(tiles: usize) -> usize {
    if tiles > 2 { 1 } else { MOST_CHAINS / tiles }
}

/// Whether the next turn is asked for during the products of this one: where these take long, others have sent it by then.
const fn is_early(cluster: usize) -> bool {
    cluster > 1
}

/// Where a lane's pack of an accumulator lies among those of its warp: threads that read those of neighbouring rows in a column find them in different
/// banks, and so do lanes that write.
#[inline(always)]
pub(in crate::recurrent) fn place_of_lane(lane: u32) -> u32 {
    lane ^ (lane / 8 % 4)
}

/// Which number of a warp's accumulators is that of a row of its tile and a column.
#[inline(always)]
pub(in crate::recurrent) fn place_of(row: u32, column: u32) -> u32 {
    place_of_lane(row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2
}

/// A warp with its weights.
struct Multiplier<
    'a,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const SPAN: usize,
    const CLUSTER: usize,
    const FEW: bool,
> {
    weights: Held<HELD>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: &'a Sequence,
    sums: Shared<f32>,
    of_patience: Shared<u32>,
}

impl<
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const SPAN: usize,
    const CLUSTER: usize,
    const FEW: bool,
> Multiplier<'_, TILES, PAIRS, HELD, SPAN, CLUSTER, FEW>
{
    /// Where a lane's pack of a chunk of h lies. An exchange has fewer than 2^32 words. The index as a whole: the compiler would keep an
    /// address for each pack.
    #[inline(always)]
    fn pack_of(&self, at: At, of_turn: usize, pack: usize) -> usize {
        let group = at.slot * thread::grid_dim_y() + thread::block_idx_y();
        let lane = if const { FEW } { self.p.lane() } else { warp::lane_id() };
        let of_warp = first_chunk::<PAIRS, CLUSTER>() * CHUNK_WORDS + lane * 4;
        let first = (group * self.p.subs + at.sub + of_turn as u32) * self.p.ring.words + of_warp;
        (bits::opaque(first) + pack as u32 * CHUNK_WORDS) as usize
    }

    /// Asks for h of a turn.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn ask(&self, at: At) -> Asked<PAIRS, SPAN> {
        let mut asked = [[[0; 4]; PAIRS]; SPAN];
        for of_turn in 0..SPAN {
            // SAFETY: the caller's contract.
            asked[of_turn] = unsafe { self.ask_chunks(at, (of_turn, 0)) };
        }
        asked
    }

    /// Asks for chunks of h of a sub-batch, from `first` on.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn ask_chunks<const CHUNKS: usize>(
        &self,
        at: At,
        (of_turn, first): (usize, usize),
    ) -> [Pack; CHUNKS] {
        // SAFETY: the caller's contract.
        unsafe { ask(self.exchange, |i| self.pack_of(at, of_turn, first + i), CHUNKS) }
    }

    /// Receives chunks of h of a sub-batch, from `first` on, which were asked for.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn receive<const CHUNKS: usize>(
        &self,
        asked: [Pack; CHUNKS],
        now: At,
        (of_turn, first): (usize, usize),
    ) -> [Pack; CHUNKS] {
        let at = |i| self.pack_of(now, of_turn, first + i);
        // SAFETY: the caller's contract.
        unsafe { receive_or_report(self.exchange, at, asked, now.step, self.of_patience, self.fault) }
    }

    /// Receives what was asked for of a turn, `ROUND` chunks at a time, and multiplies. With [`is_early`] it asks for as much of the next when a
    /// round's products are under way.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn products<T: Half, const ROUND: usize>(
        &self,
        asked: &mut Asked<PAIRS, SPAN>,
        [now, next]: [At; 2],
    ) -> Sums<TILES, SPAN> {
        // Of few tiles a chunk's products have sums of their own, which are added up at the end: fewer wait for one another.
        let chains = const { chains(TILES * SPAN) };
        let mut parts = [[[[0.0f32; 4]; TILES]; SPAN]; MOST_CHAINS];
        for round in 0..const { PAIRS / ROUND } {
            let mut h = [[[0; 4]; ROUND]; SPAN];
            for of_turn in 0..SPAN {
                let mut packs = [[0; 4]; ROUND];
                for i in 0..ROUND {
                    packs[i] = asked[of_turn][round * ROUND + i];
                }
                // SAFETY: the caller's contract.
                h[of_turn] = unsafe { self.receive(packs, now, (of_turn, round * ROUND)) };
            }
            for i in 0..ROUND {
                let pair = round * ROUND + i;
                for half in 0..2 {
                    for tile in 0..TILES {
                        // SAFETY: the caller's contract.
                        let fragment = unsafe { self.weights.get(tile * PAIRS + pair, half) };
                        for of_turn in 0..SPAN {
                            let columns = [h[of_turn][i][2 * half], h[of_turn][i][2 * half + 1]];
                            let chain = (2 * pair + half) % chains;
                            let sum = parts[chain][of_turn][tile];
                            parts[chain][of_turn][tile] = T::multiply(fragment, columns, sum);
                        }
                    }
                }
            }
            if const { is_early(CLUSTER) } {
                for of_turn in 0..SPAN {
                    // SAFETY: the caller's contract.
                    let packs: [Pack; ROUND] = unsafe { self.ask_chunks(next, (of_turn, round * ROUND)) };
                    for i in 0..ROUND {
                        asked[of_turn][round * ROUND + i] = packs[i];
                    }
                }
            }
        }
        let mut sums = parts[0];
        for chain in 1..chains {
            for of_turn in 0..SPAN {
                for tile in 0..TILES {
                    for i in 0..4 {
                        sums[of_turn][tile][i] += parts[chain][of_turn][tile][i];
                    }
                }
            }
        }
        sums
    }

    /// Goes about a turn with what was asked for of it, then asks for the next, and gives it.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn turn<T: Half, const ROUND: usize>(&self, asked: &mut Asked<PAIRS, SPAN>, now: At) -> At {
        let p = self.p;
        if now.sub == 0 && p.ring.is_fence(now.slot) {
            // See `Ring`: who has read a slot fences before it may be written again.
            thread::device_fence();
        }
        // SAFETY: the caller's contract. Sums are written once those before are read, and lie in other places for each lane.
        unsafe {
            let next = now.next::<SPAN>(p);
            let sums = self.products::<T, ROUND>(asked, [now, next]);
            // Of a pair of blocks every second turn's sums are for other threads.
            let set = if const { CLUSTER == 1 } { 0 } else { now.sub % CLUSTER as u32 };
            if now.step != 0 || now.sub >= CLUSTER as u32 {
                thread::sync_named(of_set(EMPTY, set), THREADS);
            }
            for of_turn in 0..SPAN {
                for tile in 0..TILES {
                    let of_warp = (set * WARPS + warp::warp_id()) * SPAN as u32 + of_turn as u32;
                    let place = of_warp * TILES as u32 + tile as u32;
                    let at = (place * warp::SIZE + place_of_lane(warp::lane_id())) * 4;
                    self.sums.set_pack(at, sums[of_turn][tile].map(f32::to_bits));
                }
            }
            thread::arrive_named(of_set(FULL, set), THREADS);
            // Others are about as far as this block: what it has not sent is asked for in vain, which takes as long as asking.
            if const { CLUSTER == 1 } && p.subs == SPAN as u32 && next.step < p.steps {
                thread::sync_named(SENT, THREADS);
            }
            if const { !is_early(CLUSTER) } {
                *asked = self.ask(next);
            }
            next
        }
    }
}

/// Multiplies all sub-batches of all steps, `SPAN` at a time, with the weights that `load` gives; the blocks of a cluster share out the columns,
/// and have as many sets of threads for gates, in turn for a sub-batch each. A warp's sums of a tile lie as accumulators do: 16 bytes for each lane, from the
/// first byte of shared memory on; `patience` is where [`WARPS`] words are. `FEW` is whether sub-batches may have fewer rows than columns.
///
/// # Safety
/// As [`sequence()`](fn@super::sequence); all lanes of the first [`WARPS`] warps call, and those behind them do the gates.
#[inline(always)]
pub(in crate::recurrent) unsafe fn multiply<
    T: Half,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
    const SPAN: usize,
    const CLUSTER: usize,
    const FEW: bool,
>(
    load: impl FnOnce() -> Held<HELD>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: &Sequence,
    patience: u32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let of_patience = Shared::<u32>::dynamic(patience, WARPS);
        if warp::lane_id() == 0 {
            of_patience.set(warp::warp_id(), p.ring.patience);
        }
        warp::sync_warp(u32::MAX);
        let sums = Shared::dynamic(0, WARPS * (CLUSTER * SPAN * TILES) as u32 * warp::SIZE * 4);
        let of = Multiplier::<TILES, PAIRS, HELD, SPAN, CLUSTER, FEW> {
            weights: load(),
            exchange,
            fault,
            p,
            sums,
            of_patience,
        };
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let mut now = At { slot: 0, sub: 0, step: 0 };
        let mut asked = of.ask(now);
        while now.step < p.steps {
            now = of.turn::<T, ROUND>(&mut asked, now);
        }
    }
}
