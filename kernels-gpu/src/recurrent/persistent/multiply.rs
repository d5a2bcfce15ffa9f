//! What the warps that multiply do: receive h, multiply, leave sums.

use super::halves::{EMPTY, FULL, Layout, SENT, THREADS};
use super::{Sequence, WARPS};
use crate::recurrent::exchange::{CHUNK_WORDS, ask, receive_or_report};
use crate::recurrent::slices::Slices;
use crate::recurrent::weights::Corner;
use cuda_std::bits;
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
        At { slot: if slot + 1 == p.ring.slots { 0 } else { slot + 1 }, sub: 0, step: step + 1 }
    }
}

/// What was asked for: of each sub-batch of a turn, the warp's chunks of h.
type Asked<const PAIRS: usize, const SPAN: usize> = [[Pack; PAIRS]; SPAN];
/// Sums of each sub-batch of a turn, by tiles.
type Sums<const TILES: usize, const SPAN: usize> = [[[f32; 4]; TILES]; SPAN];

/// A warp with its weights.
struct Multiplier<'a, const TILES: usize, const PAIRS: usize, const HELD: usize, const SPAN: usize> {
    weights: Slices<HELD, { WARPS as usize }>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: &'a Sequence,
    sums: Shared<f32>,
    of_patience: Shared<u32>,
}

impl<const TILES: usize, const PAIRS: usize, const HELD: usize, const SPAN: usize>
    Multiplier<'_, TILES, PAIRS, HELD, SPAN>
{
    /// Where a lane's pack of a chunk of h lies. An exchange has fewer than 2^32 words. The index as a whole: the compiler would keep an
    /// address for each pack.
    #[inline(always)]
    fn pack_of(&self, at: At, of_turn: usize, pack: usize) -> usize {
        let group = at.slot * thread::grid_dim_y() + thread::block_idx_y();
        let of_warp = warp::warp_id() * PAIRS as u32 * CHUNK_WORDS + warp::lane_id() * 4;
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
            asked[of_turn] = unsafe { ask(self.exchange, |i| self.pack_of(at, of_turn, i), PAIRS) };
        }
        asked
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

    /// Receives what was asked for of a turn, `ROUND` chunks at a time, and multiplies.
    ///
    /// # Safety
    /// As [`multiply`].
    #[inline(always)]
    unsafe fn products<T: Half, const ROUND: usize>(
        &self,
        asked: &Asked<PAIRS, SPAN>,
        now: At,
    ) -> Sums<TILES, SPAN> {
        let mut sums = [[[0.0f32; 4]; TILES]; SPAN];
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
                            sums[of_turn][tile] = T::multiply(fragment, columns, sums[of_turn][tile]);
                        }
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
        if now.sub == 0 && p.ring.period != 0 && now.slot & (p.ring.period - 1) == 0 {
            // See `Ring`: who has read a slot fences before it may be written again.
            thread::device_fence();
        }
        // SAFETY: the caller's contract. Sums are written once those before are read, and lie in other places for each lane.
        unsafe {
            let sums = self.products::<T, ROUND>(asked, now);
            let next = now.next::<SPAN>(p);
            if now.step != 0 || now.sub != 0 {
                thread::sync_named(EMPTY, THREADS);
            }
            for of_turn in 0..SPAN {
                for tile in 0..TILES {
                    let place = (warp::warp_id() * SPAN as u32 + of_turn as u32) * TILES as u32 + tile as u32;
                    let at = (place * warp::SIZE + warp::lane_id()) * 4;
                    self.sums.set_pack(at, sums[of_turn][tile].map(f32::to_bits));
                }
            }
            thread::arrive_named(FULL, THREADS);
            // Others are about as far as this block: what it has not sent is asked for in vain, which takes as long as asking.
            if p.subs == SPAN as u32 && next.step < p.steps {
                thread::sync_named(SENT, THREADS);
            }
            *asked = self.ask(next);
            next
        }
    }
}

/// Multiplies all sub-batches of all steps, `SPAN` at a time. A warp's sums of a tile lie as accumulators do: 16 bytes for each lane.
///
/// # Safety
/// As [`sequence()`](fn@super::sequence); all lanes of the first [`WARPS`] warps call, and those behind them do the gates.
#[inline(always)]
pub unsafe fn multiply<
    T: Half,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
    const SPAN: usize,
>(
    weight: Global<T>,
    corner: Corner,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: &Sequence,
    layout: Layout,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        if warp::lane_id() == 0 {
            of_patience.set(warp::warp_id(), p.ring.patience);
        }
        warp::sync_warp(u32::MAX);
        let of = Multiplier::<TILES, PAIRS, HELD, SPAN> {
            weights: Slices::load::<T, GATES, TILES, PAIRS>(weight, corner, layout.weights),
            exchange,
            fault,
            p,
            sums: Shared::dynamic(0, WARPS * (SPAN * TILES) as u32 * warp::SIZE * 4),
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
