//! What the warps that multiply do: receive, multiply, leave sums. Warps of the same part of the columns have a tile of each gate's units each.

use super::cells::Cells;
use super::{CLUSTERED_UNITS, EMPTY, FULL, HALVES, PARTS, threads};
use crate::recurrent::persistent::WARPS;
use crate::recurrent::persistent::multiply::{place_of, place_of_lane};
use crate::recurrent::slices::Slices;
use cuda_std::cluster;
use cuda_std::prelude::*;

/// The weights of a warp.
pub type Held<const HELD: usize> = Slices<HELD, { WARPS as usize }>;

/// Units of a tile.
const TILE: u32 = CLUSTERED_UNITS / HALVES as u32;

/// The warp's part of the columns.
#[inline(always)]
pub fn part() -> u32 {
    warp::warp_id() % PARTS as u32
}

/// The first of the units of a half of the block's.
#[inline(always)]
pub fn first_unit(half: u32) -> u32 {
    cluster::rank() * CLUSTERED_UNITS + half * TILE
}

/// The warp's half of the units.
#[inline(always)]
pub fn half() -> u32 {
    warp::warp_id() / PARTS as u32
}

/// Two buffers, for steps in turn, of the sums of all warps, `tiles` each, by lanes as accumulators are.
#[derive(Clone, Copy)]
pub struct Sums {
    words: Shared<f32>,
    tiles: u32,
}

/// Bytes of them.
pub const fn sums_bytes(tiles: usize) -> u32 {
    2 * WARPS * tiles as u32 * warp::SIZE * 16
}

impl Sums {
    /// From the first byte of shared memory on; those of parts that nobody multiplies are zeros. All threads of the block call, before a barrier.
    ///
    /// # Safety
    /// The launch gives [`sums_bytes`].
    #[inline(always)]
    pub unsafe fn new(tiles: usize, receivers: u32) -> Sums {
        // SAFETY: the caller's contract; warps write their own.
        unsafe {
            let sums = Sums { words: Shared::dynamic(0, sums_bytes(tiles) / 4), tiles: tiles as u32 };
            if warp::warp_id() < WARPS && part() >= receivers {
                for step in 0..2 {
                    for tile in 0..tiles {
                        sums.words.set_pack(
                            sums.first(step, warp::warp_id(), tile as u32) + warp::lane_id() * 4,
                            [0; 4],
                        );
                    }
                }
            }
            sums
        }
    }

    #[inline(always)]
    fn first(&self, step: u32, warp: u32, tile: u32) -> u32 {
        ((step % 2 * WARPS + warp) * self.tiles + tile) * warp::SIZE * 4
    }

    /// Leaves those of the warp, of columns that are rows of the batch. Of the second half these have changed places by twos, so that units of both halves
    /// come from different banks.
    ///
    /// # Safety
    /// Nobody reads those of two steps before any more.
    #[inline(always)]
    unsafe fn leave<const TILES: usize>(&self, step: u32, rows: u32, sums: [[f32; 4]; TILES]) {
        if warp::lane_id() % 4 * 2 < rows {
            for tile in 0..TILES {
                let at = self.first(step, warp::warp_id(), tile as u32) + place_of_lane(warp::lane_id()) * 4;
                // SAFETY: the caller's contract.
                unsafe { self.words.set_pack(at, sums[tile].map(f32::to_bits)) };
            }
        }
    }

    /// Those of all parts for a tile, the lane's unit of the block and a row.
    ///
    /// # Safety
    /// They have been left.
    #[inline(always)]
    pub unsafe fn parts(&self, step: u32, tile: usize, row: u32) -> [f32; PARTS] {
        let (half, of_half) = (warp::lane_id() / TILE, warp::lane_id() % TILE);
        let mut parts = [0.0; PARTS];
        for part in 0..PARTS {
            let first = self.first(step, half * PARTS as u32 + part as u32, tile as u32);
            // SAFETY: the caller's contract.
            parts[part] = unsafe { self.words.get(first + place_of(of_half, row ^ half)) };
        }
        parts
    }
}

/// Multiplies in all steps.
///
/// # Safety
/// As [`clustered_sequence()`](fn@super::clustered_sequence); all lanes of the first [`WARPS`] warps call, and those behind them do the gates.
#[inline(always)]
pub unsafe fn multiply<
    T: Half,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const CHAINS: usize,
>(
    weights: Held<HELD>,
    exchange: Cells<PAIRS>,
    of: Sums,
    steps: u32,
) {
    if part() >= exchange.receivers() {
        return;
    }
    let (of_warp, mut step) = ((part(), half()), 0);
    while step < steps {
        // SAFETY: the caller's contract.
        unsafe {
            // Here it is over long before anything comes; behind the products warps would meet at it on the way of the step.
            if step >= 2 {
                thread::sync_named(EMPTY + step % 2, threads(exchange));
            }
            let received = exchange.receive(step, of_warp);
            let sums = weights.times::<T, TILES, PAIRS, CHAINS>(received);
            exchange.clear(step, of_warp);
            of.leave(step, exchange.rows, sums);
        }
        thread::arrive_named(FULL + step % 2, threads(exchange));
        step += 1;
    }
}
