//! What the warps that multiply do: receive h, multiply, leave sums.

use super::halves::{EMPTY, FULL, Layout, SENT, THREADS};
use super::{Sequence, WARPS};
use crate::recurrent::exchange::{CHUNK_WORDS, ask, receive};
use crate::recurrent::slices::Slices;
use crate::recurrent::weights::Corner;
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Multiplies all sub-batches of all steps. A warp's sums of a tile lie as accumulators do: 16 bytes for each lane.
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
>(
    weight: Global<T>,
    corner: Corner,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: &Sequence,
    layout: Layout,
) {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    // SAFETY: the caller's contract. Sums are written once those before are read, and lie in other places for each lane; the
    // patience of a warp is its own.
    unsafe {
        let sums = Shared::<f32>::dynamic(0, WARPS * TILES as u32 * warp::SIZE * 4);
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS);
        if lane == 0 {
            of_patience.set(warp, p.ring.patience);
        }
        warp::sync_warp(u32::MAX);
        let weights = Slices::<HELD>::load::<T, GATES, TILES, PAIRS>(weight, corner, layout.weights);
        // An exchange has fewer than 2^32 words. The index as a whole: the compiler would keep an address for each pack.
        let pack_of = |slot: u32, sub: u32, pack: usize| {
            let group = slot * thread::grid_dim_y() + thread::block_idx_y();
            let first = (group * p.subs + sub) * p.ring.words + warp * PAIRS as u32 * CHUNK_WORDS + lane * 4;
            (bits::opaque(first) + pack as u32 * CHUNK_WORDS) as usize
        };
        let of_warp = (warp * TILES as u32 * warp::SIZE + lane) * 4;
        // One loop for steps and sub-batches: what an outer one would keep for the inner, the weights leave no registers for.
        let (mut slot, mut sub, mut now) = (0, 0, 0);
        let mut asked: [Pack; PAIRS] = ask(exchange, |i| pack_of(0, 0, i), PAIRS);
        while now < p.steps {
            if sub == 0 && p.ring.period != 0 && slot & (p.ring.period - 1) == 0 {
                // See `Ring`: who has read a slot fences before it may be written again.
                thread::device_fence();
            }
            let mut products = [[0.0f32; 4]; TILES];
            for round in 0..const { PAIRS / ROUND } {
                let mut packs = [[0; 4]; ROUND];
                for i in 0..ROUND {
                    packs[i] = asked[round * ROUND + i];
                }
                let at = |i| pack_of(slot, sub, round * ROUND + i);
                let (h, received) = receive(exchange, at, packs, || of_patience.get(warp));
                if !received {
                    // All lanes know how patient they were.
                    warp::sync_warp(u32::MAX);
                    // Once is enough: the launch ends soon, with results that the error makes void.
                    if lane == 0 {
                        let seen = (u64::from(now) << 32) | u64::from(thread::block_idx_x());
                        fault.atomic_min(0, seen, Ordering::Relaxed, Scope::Device);
                        of_patience.set(warp, 0);
                    }
                    warp::sync_warp(u32::MAX);
                }
                for i in 0..ROUND {
                    let pair = round * ROUND + i;
                    for half in 0..2 {
                        for tile in 0..TILES {
                            let fragment = weights.get(tile * PAIRS + pair, half);
                            let columns = [h[i][2 * half], h[i][2 * half + 1]];
                            products[tile] = T::multiply(fragment, columns, products[tile]);
                        }
                    }
                }
            }
            let first = now == 0 && sub == 0;
            sub += 1;
            if sub == p.subs {
                (sub, now) = (0, now + 1);
                slot = if slot + 1 == p.ring.slots { 0 } else { slot + 1 };
            }
            if !first {
                thread::sync_named(EMPTY, THREADS);
            }
            for tile in 0..TILES {
                sums.set_pack(of_warp + tile as u32 * warp::SIZE * 4, products[tile].map(f32::to_bits));
            }
            thread::arrive_named(FULL, THREADS);
            // Others are about as far as this block: what it has not sent is asked for in vain, which takes as long as asking.
            if p.subs == 1 && now < p.steps {
                thread::sync_named(SENT, THREADS);
            }
            // Behind the last step there is a slot, too.
            asked = ask(exchange, |i| pack_of(slot, sub, i), PAIRS);
        }
    }
}
