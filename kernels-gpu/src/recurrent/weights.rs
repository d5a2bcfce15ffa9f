//! The recurrent weights of a warp as fragments: in registers, and in shared memory what these have no room for.
//!
//! The order of the terms of a sum is free, so a lane's 16 bytes are eight neighbouring columns.

use super::exchange::CHUNK;
use super::parts::{PARTS, Parts, magnitude, scale};
use super::persistent::{WARPS, units};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Where the rows of a block and the columns of a warp begin.
#[derive(Clone, Copy)]
pub struct Corner {
    /// The block's first unit.
    pub unit: u32,
    /// The warp's first column.
    pub k: u32,
    /// Units of the layer.
    pub hidden: u32,
    /// Columns of the weights: as many as units, or as x has.
    pub columns: u32,
    /// Elements from a row to the next.
    pub weight_row: u32,
}

impl Corner {
    /// Where row `row` of a block of so many units begins, all gates in turn, and whether it exists; the last unit's where not.
    #[inline(always)]
    fn row(self, units: u32, row: u32) -> (usize, bool) {
        let (gate, unit) = (row / units, self.unit + row % units);
        let last = self.hidden - 1;
        let of_unit = (gate * self.hidden + if unit < last { unit } else { last }) as usize;
        (of_unit * self.weight_row as usize, unit <= last)
    }

    /// The element at which the lane's eight columns of a pair begin in a row, and how many exist from there on; the row's first
    /// element where none do.
    #[inline(always)]
    pub fn eight(self, units: u32, row: u32, pair: usize) -> (usize, u32) {
        let k = self.k + pair as u32 * CHUNK + warp::lane_id() % 4 * 8;
        let (row, exists) = self.row(units, row);
        let has = k < self.columns;
        (row + if has { k as usize } else { 0 }, if exists & has { self.columns - k } else { 0 })
    }

    /// As [`Self::eight`], and whether they exist.
    #[inline(always)]
    pub fn pack(self, units: u32, row: u32, pair: usize) -> (usize, bool) {
        let (at, left) = self.eight(units, row, pair);
        (at, left > 0)
    }

    /// Whether so many units and columns from here on exist.
    #[inline(always)]
    pub fn has(self, units: u32, columns: u32) -> bool {
        (self.unit + units <= self.hidden) & (self.k + columns <= self.columns)
    }
}

/// The rows of a tile whose packs a lane holds.
#[inline(always)]
pub fn rows(tile: usize) -> [u32; 2] {
    let upper = tile as u32 * 16 + warp::lane_id() / 4;
    [upper, upper + 8]
}

/// Both fragments of eight columns of the lane's two rows.
#[inline(always)]
pub fn fragments(upper: Pack, lower: Pack) -> [[u32; 4]; 2] {
    [[upper[0], lower[0], upper[1], lower[1]], [upper[2], lower[2], upper[3], lower[3]]]
}

/// A fragment, or zeros for those of its two rows that do not exist.
#[inline(always)]
fn masked(fragment: [u32; 4], exists: [bool; 2]) -> [u32; 4] {
    let [upper, lower] = exists.map(|exists| if exists { u32::MAX } else { 0 });
    [fragment[0] & upper, fragment[1] & lower, fragment[2] & upper, fragment[3] & lower]
}

/// The fragments of a warp, 16-bit and all in registers.
///
/// # Safety
/// As [`Weights::load`].
#[inline(always)]
pub unsafe fn load_weights<T: Half, const GATES: usize, const TILES: usize, const PAIRS: usize>(
    weight: Global<T>,
    of: Corner,
) -> [[[[u32; 4]; 2]; PAIRS]; TILES] {
    let units = const { units(GATES, TILES) };
    let mut held = [[[[0; 4]; 2]; PAIRS]; TILES];
    for tile in 0..TILES {
        for pair in 0..PAIRS {
            let [upper, lower] = rows(tile).map(|row| {
                let (at, left) = of.eight(units, row, pair);
                // SAFETY: a pack of a row that exists.
                unsafe { weight.get_pack_if(left > 0, at, 0) }
            });
            held[tile][pair] = fragments(upper, lower);
        }
    }
    held
}

/// The fragments of a warp: `HELD` pairs of each tile in registers, by part and half, the rest in shared memory.
#[derive(Clone, Copy)]
pub struct Weights<const TILES: usize, const HELD: usize> {
    held: [[[[[u32; 4]; 2]; 2]; HELD]; TILES],
    rest: Shared<u32>,
}

/// Bytes of shared memory of a block's weights that are not in registers.
pub const fn rest_bytes(tiles: usize, pairs: usize, held: usize, parts: usize) -> u32 {
    (tiles * (pairs - held) * parts * 2) as u32 * WARPS * warp::SIZE * 16
}

impl<const TILES: usize, const HELD: usize> Weights<TILES, HELD> {
    /// Loads all rows of the block, of which shared memory holds the rest from byte `first` on; numbers of f32 times their
    /// row's scale.
    ///
    /// # Safety
    /// `weight` has rows of `weight_row` elements, whole packs with zeros behind the units, for the gates of all `hidden`
    /// units; `scales` one for each row. The launch gives `first` and [`rest_bytes`].
    #[inline(always)]
    pub unsafe fn load<T: Parts, const GATES: usize, const PAIRS: usize>(
        weight: Global<T>,
        of: Corner,
        scales: Shared<f32>,
        first: u32,
    ) -> Self {
        let units = const { units(GATES, TILES) };
        let pair_of = |tile: usize, pair: usize| {
            let [upper, lower] = rows(tile).map(|row| {
                let (at, left) = of.eight(units, row, pair);
                // SAFETY: the caller's contract.
                unsafe { T::eight(weight, left, at, scales.get(row)) }
            });
            let mut loaded = [[[0; 4]; 2]; 2];
            for part in 0..PARTS {
                loaded[part] = fragments(upper[part], lower[part]);
            }
            loaded
        };
        // A half of a pair is four columns.
        let exists = |tile: usize, pair: usize, half: usize| {
            rows(tile).map(|row| of.eight(units, row, pair).1 > 4 * half as u32)
        };
        // SAFETY: the caller's contract. `eight` gives zeros for what does not exist.
        unsafe { Self::fill::<PAIRS>(first, PARTS, pair_of, exists, true) }
    }

    /// Holds what `pair_of(tile, pair)` gives, in so many parts, but zeros where `exists(tile, pair, half)` of a row does not hold;
    /// with `all` it does everywhere. Loads have no conditions of their own: they would be waited for one by one.
    ///
    /// # Safety
    /// The launch gives `first` and [`rest_bytes`]. What a thread writes there, it alone reads.
    #[inline(always)]
    pub unsafe fn fill<const PAIRS: usize>(
        first: u32,
        parts: usize,
        pair_of: impl Fn(usize, usize) -> [[[u32; 4]; 2]; 2],
        exists: impl Fn(usize, usize, usize) -> [bool; 2],
        all: bool,
    ) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let rest = Shared::dynamic(first, rest_bytes(TILES, PAIRS, HELD, parts) / 4);
            // A loop that stays one: unrolled, all loads would be in flight, for which there are too few registers.
            let (mut pair, end) = (HELD, bits::opaque(PAIRS as u32) as usize);
            while pair < end {
                bits::no_unroll();
                for tile in 0..TILES {
                    let loaded = pair_of(tile, pair);
                    for part in 0..parts {
                        for half in 0..2 {
                            let fragment = masked(loaded[part][half], exists(tile, pair, half));
                            rest.set_pack(Self::place(tile, pair, (part, parts), half), fragment);
                        }
                    }
                }
                pair += 1;
            }
            let mut held = [[[[[0; 4]; 2]; 2]; HELD]; TILES];
            for tile in 0..TILES {
                for pair in 0..HELD {
                    held[tile][pair] = pair_of(tile, pair);
                }
            }
            if !all {
                for tile in 0..TILES {
                    for pair in 0..HELD {
                        for half in 0..2 {
                            let exists = exists(tile, pair, half);
                            for part in 0..parts {
                                held[tile][pair][part][half] = masked(held[tile][pair][part][half], exists);
                            }
                        }
                    }
                }
            }
            Weights { held, rest }
        }
    }

    #[inline(always)]
    fn place(tile: usize, pair: usize, (part, parts): (usize, usize), half: usize) -> u32 {
        let fragment = (pair - HELD) * TILES * parts * 2 + (tile * parts + part) * 2 + half;
        // Fragments of all warps in turn: the constant part of an address is large, and the rest one for all.
        fragment as u32 * WARPS * warp::SIZE * 4 + thread::thread_idx_x() * 4
    }

    /// A fragment, of part (which, of how many); indices are constants.
    ///
    /// # Safety
    /// It was loaded.
    #[inline(always)]
    pub unsafe fn get(&self, tile: usize, pair: usize, part: (usize, usize), half: usize) -> [u32; 4] {
        if pair < HELD {
            self.held[tile][pair][part.0][half]
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.rest.get_pack(Self::place(tile, pair, part, half)) }
        }
    }
}

/// Writes the scale of each of the block's rows, from its largest number. All threads call; others may read behind a barrier.
///
/// # Safety
/// As [`Weights::load`]; columns are at most `PAIRS`·32 of each warp.
#[inline(always)]
pub unsafe fn scale_rows<T: Float, const GATES: usize, const TILES: usize, const PAIRS: usize>(
    weight: Global<T>,
    of: Corner,
    scales: Shared<f32>,
) {
    let mut row = warp::warp_id();
    while row < const { TILES as u32 * 16 } {
        let (at, exists) = of.row(const { units(GATES, TILES) }, row);
        let mut most = 0.0f32;
        for i in 0..const { 2 * PAIRS } {
            let k = (i as u32 * warp::SIZE + warp::lane_id()) * 4;
            // SAFETY: a pack of a row that exists; one writer for each row.
            let pack = unsafe { weight.get_pack_if(exists & (k < of.hidden), at + k as usize, 0) };
            for j in 0..4 {
                most = most.max(magnitude(f32::from_bits(pack[j])));
            }
        }
        most = warp::warp_reduce_max(u32::MAX, most);
        if warp::lane_id() == 0 {
            // SAFETY: the caller's contract.
            unsafe { scales.set(row, scale(most)) };
        }
        row += WARPS;
    }
}
