//! The shared memory of a block that multiplies the same weights in each round: slots of weights, which stay from round to round, and stages of x, which
//! go by.
//!
//! A round goes along the turns of the block's terms, and the next one back, so that what it begins with is there from the round before. Turn n is
//! in slot n modulo `HELD`: a round finds the first `HELD` of its turns in place, and fetches the others into the slots of
//! those that it has done with.

use super::STREAM_COLUMNS as COLUMNS;
use super::product::{PACKS, STREAM_ROWS, WARPS, line_bytes};
use cuda_std::barrier::{Barrier, Barriers};
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile::Tile;
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::Operand;

/// Chunks of a turn.
pub const WALK_CHUNKS: u32 = 2;
/// Warpgroups that multiply, each with [`STREAM_ROWS`] rows of the weights.
pub const WALK_CONSUMERS: u32 = 2;
/// Rows of the weights of a block.
pub const WALK_ROWS: u32 = WALK_CONSUMERS * STREAM_ROWS;
/// Warps that multiply.
pub(super) const CONSUMERS: u32 = WALK_CONSUMERS * WARPS;

/// Bytes of a chunk of weights, and of x.
const WEIGHTS: u32 = WALK_ROWS * line_bytes(1);
const X: u32 = COLUMNS * line_bytes(1);

/// Bytes of shared memory of a block with so many slots of weights and stages of x.
pub const fn walk_shared_bytes(held: u32, stages: u32) -> u32 {
    of_barriers(held, stages) + (held + stages) * Ring::<1>::BYTES + Barriers::BYTES + (CONSUMERS + 1) * 4
}

/// Where the barriers begin.
const fn of_barriers(held: u32, stages: u32) -> u32 {
    WALK_CHUNKS * (held * WEIGHTS + stages * X)
}

/// The slots and stages.
#[derive(Clone, Copy)]
pub(super) struct Slots<const HELD: usize, const STAGES: usize> {
    /// Of weights.
    pub held: Ring<HELD>,
    /// Of x.
    pub ring: Ring<STAGES>,
    /// At which the producer says once a round how far other blocks are.
    pub others: Barrier,
}

impl<const HELD: usize, const STAGES: usize> Slots<HELD, STAGES> {
    /// # Safety
    /// The launch gives [`walk_shared_bytes`].
    #[inline(always)]
    pub unsafe fn new() -> Self {
        let first = const { of_barriers(HELD as u32, STAGES as u32) };
        // SAFETY: the caller's contract.
        unsafe {
            let of_ring = first + Ring::<HELD>::BYTES;
            Slots {
                held: Ring::dynamic(first),
                ring: Ring::dynamic(of_ring),
                others: Barriers::dynamic(of_ring + Ring::<STAGES>::BYTES, 1).at(0),
            }
        }
    }

    /// Makes the barriers.
    ///
    /// # Safety
    /// As [`Ring::init`].
    #[inline(always)]
    pub unsafe fn init(self) {
        // SAFETY: the caller's contract.
        unsafe {
            self.held.init(1, CONSUMERS);
            self.ring.init(1, CONSUMERS);
            self.others.init(1);
        }
    }

    /// A chunk of a slot's weights.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn weights<T: Half>(self, slot: u32, chunk: u32) -> Tile<T> {
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs((slot * WALK_CHUNKS + chunk) * WEIGHTS, WALK_ROWS, PACKS) }
    }

    /// A chunk of a stage's x.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn of_x<T: Half>(self, stage: u32, chunk: u32) -> Tile<T> {
        let first = const { HELD as u32 * WALK_CHUNKS * WEIGHTS };
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(first + (stage * WALK_CHUNKS + chunk) * X, COLUMNS, PACKS) }
    }

    /// The first chunks' operands, of a consumer's rows and of x.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    pub unsafe fn operands<T: Half>(self, consumer: u32) -> [Operand; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let of_w = self.weights::<T>(0, 0).rows_along_terms(consumer * STREAM_ROWS);
            [of_w, self.of_x::<T>(0, 0).rows_along_terms(0)]
        }
    }

    /// Those of a slot and a stage, and of one of their chunks.
    #[inline(always)]
    pub fn chunk([of_w, of_x]: [Operand; 2], slot: u32, stage: u32, chunk: u32) -> [Operand; 2] {
        [of_w.behind((slot * WALK_CHUNKS + chunk) * WEIGHTS), of_x.behind((stage * WALK_CHUNKS + chunk) * X)]
    }

    /// How often each warp polls before it gives up.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    pub unsafe fn patience(self) -> Shared<u32> {
        let end = const { walk_shared_bytes(HELD as u32, STAGES as u32) };
        // SAFETY: the caller's contract.
        unsafe { Shared::dynamic(end - (CONSUMERS + 1) * 4, CONSUMERS + 1) }
    }

    /// Asks for a turn's weights, which begin with chunk `number` of all, from row `row` on.
    ///
    /// # Safety
    /// One thread calls, the slot is empty; the map is of the weights, with boxes of [`WALK_ROWS`] rows.
    #[inline(always)]
    pub unsafe fn fetch_weights<T: Half>(self, slot: u32, map: TensorMap, number: u32, row: u32) {
        let full = self.held.full(slot);
        // SAFETY: the caller's contract.
        unsafe {
            full.arrive_expecting(WALK_CHUNKS * WEIGHTS);
            for chunk in 0..WALK_CHUNKS {
                let at = [0, row as i32, (number + chunk) as i32, 0];
                self.weights::<T>(slot, chunk).shared().load_box(0, map, at, full);
            }
        }
    }

    /// Asks for a turn's x, which begins with chunk `number` of all, of a matrix.
    ///
    /// # Safety
    /// One thread calls, the stage is empty; the map is of x, with boxes of [`STREAM_COLUMNS`](super::STREAM_COLUMNS) rows, which this thread is ordered behind.
    #[inline(always)]
    pub unsafe fn fetch_x<T: Half>(self, stage: u32, map: TensorMap, number: u32, matrix: u32) {
        let full = self.ring.full(stage);
        // SAFETY: the caller's contract.
        unsafe {
            full.arrive_expecting(WALK_CHUNKS * X);
            for chunk in 0..WALK_CHUNKS {
                let at = [0, 0, (number + chunk) as i32, matrix as i32];
                self.of_x::<T>(stage, chunk).shared().load_box(0, map, at, full);
            }
        }
    }
}

/// Turns of a round, one after the other, and the slots of their weights.
#[derive(Clone, Copy)]
pub(super) struct Sweep<const HELD: usize> {
    /// The present one's number among the block's.
    pub number: u32,
    pub slot: u32,
    backwards: bool,
}

impl<const HELD: usize> Sweep<HELD> {
    /// Of so many turns; every other round goes back.
    #[inline(always)]
    pub fn new(turns: u32, round: u32) -> Self {
        let backwards = round.is_multiple_of(2);
        let number = if backwards { turns - 1 } else { 0 };
        Sweep { number, slot: number % HELD as u32, backwards }
    }

    /// The next one.
    #[inline(always)]
    pub fn next(self) -> Self {
        let last = HELD as u32 - 1;
        let (number, slot) = if self.backwards {
            (self.number.wrapping_sub(1), if self.slot == 0 { last } else { self.slot - 1 })
        } else {
            (self.number + 1, if self.slot == last { 0 } else { self.slot + 1 })
        };
        Sweep { number, slot, ..self }
    }

    /// The number of the turn so many behind.
    #[inline(always)]
    pub fn number_behind(self, turns: u32) -> u32 {
        if self.backwards { self.number - turns } else { self.number + turns }
    }
}

/// What a warp that multiplies keeps from round to round.
#[derive(Clone, Copy)]
pub(super) struct Reader<const STAGES: usize> {
    /// The next stage of x.
    pub place: Turn<STAGES>,
    pub slots: Parities,
}

/// A bit for each slot: the parity of the next phase of one of its barriers.
#[derive(Clone, Copy)]
pub(super) struct Parities(u32);

impl Parities {
    #[inline(always)]
    pub fn new() -> Self {
        Parities(0)
    }

    /// That of a slot, which then is the other.
    #[inline(always)]
    pub fn next(&mut self, slot: u32) -> u32 {
        let parity = self.0 >> slot & 1;
        self.0 ^= 1 << slot;
        parity
    }
}
