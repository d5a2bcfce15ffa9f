//! The recurrent weights of a warp, 16-bit, as fragments: some in registers, the rest in shared memory.
//!
//! Chunks of 32 columns of a tile of 16 rows are counted through, all of a tile and then of the next: the first `HELD` are in
//! registers. So of each column some fragments come from either, and loads have products in between.

use super::weights::{fragments, rows};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Fragments of one of `WARPS` warps, by chunk of a tile and half of it.
#[derive(Clone, Copy)]
pub struct Slices<const HELD: usize, const WARPS: usize> {
    held: [[[u32; 4]; 2]; HELD],
    rest: Shared<u32>,
}

/// Bytes of shared memory of the weights of so many warps that are not in registers.
pub const fn rest_bytes(warps: usize, tiles: usize, pairs: usize, held: usize) -> u32 {
    (warps * (tiles * pairs - held)) as u32 * 2 * warp::SIZE * 16
}

/// A pack, or zeros where it does not exist.
#[inline(always)]
fn masked(pack: Pack, exists: bool) -> Pack {
    let mask = if exists { u32::MAX } else { 0 };
    pack.map(|word| word & mask)
}

impl<const HELD: usize, const WARPS: usize> Slices<HELD, WARPS> {
    /// Loads all rows of the block, of which shared memory holds the rest from byte `first` on. `eight(row, pair)` is the element at which the
    /// lane's eight columns of a pair begin in a row, and whether they exist, zeros where they do not; with `all` they do everywhere.
    ///
    /// # Safety
    /// `eight` gives packs of `weight`, whether they exist or not. The launch gives `first` and [`rest_bytes`]. What a thread writes there, it
    /// alone reads.
    #[inline(always)]
    pub unsafe fn load<T: Half, const TILES: usize, const PAIRS: usize>(
        weight: Global<T>,
        eight: impl Fn(u32, usize) -> (usize, bool),
        all: bool,
        first: u32,
    ) -> Self {
        // Loads have no conditions of their own: they would be waited for one by one.
        let packs = |tile: usize, pair: usize| {
            rows(tile).map(|row| {
                // SAFETY: the caller's contract.
                unsafe { weight.get_pack_if(true, eight(row, pair).0, 0) }
            })
        };
        let mask = |[upper, lower]: [Pack; 2], tile: usize, pair: usize| {
            let [has_upper, has_lower] = rows(tile).map(|row| eight(row, pair).1);
            fragments(masked(upper, has_upper), masked(lower, has_lower))
        };
        // SAFETY: the caller's contract.
        unsafe {
            let rest = Shared::dynamic(first, const { rest_bytes(WARPS, TILES, PAIRS, HELD) / 4 });
            // A loop that stays one: unrolled, all loads would be in flight, for which there are too few registers.
            let (mut pair, end) = (0, bits::opaque(PAIRS as u32) as usize);
            while pair < end {
                bits::no_unroll();
                let mut loaded = [[[0; 4]; 2]; TILES];
                for tile in const { HELD / PAIRS }..TILES {
                    loaded[tile] = packs(tile, pair);
                }
                for tile in const { HELD / PAIRS }..TILES {
                    let fragments = mask(loaded[tile], tile, pair);
                    let chunk = tile * PAIRS + pair;
                    if tile > const { HELD / PAIRS } || chunk >= HELD {
                        for half in 0..2 {
                            rest.set_pack(Self::place(chunk, half), fragments[half]);
                        }
                    }
                }
                pair += 1;
            }
            let mut held = [[[0; 4]; 2]; HELD];
            for chunk in 0..HELD {
                let [upper, lower] = packs(chunk / PAIRS, chunk % PAIRS);
                held[chunk] = fragments(upper, lower);
            }
            if !all {
                for chunk in 0..HELD {
                    let exists = rows(chunk / PAIRS).map(|row| eight(row, chunk % PAIRS).1);
                    let [upper, lower] = exists.map(|exists| if exists { u32::MAX } else { 0 });
                    for half in 0..2 {
                        let of = held[chunk][half];
                        held[chunk][half] = [of[0] & upper, of[1] & lower, of[2] & upper, of[3] & lower];
                    }
                }
            }
            Slices { held, rest }
        }
    }

    #[inline(always)]
    fn place(chunk: usize, half: usize) -> u32 {
        // Fragments of all warps in turn: the constant part of an address is large, and the rest one for all.
        (((chunk - HELD) * 2 + half) * WARPS) as u32 * warp::SIZE * 4 + thread::thread_idx_x() * 4
    }

    /// A fragment; indices are constants.
    ///
    /// # Safety
    /// It was loaded.
    #[inline(always)]
    pub unsafe fn get(&self, chunk: usize, half: usize) -> [u32; 4] {
        if chunk < HELD {
            self.held[chunk][half]
        } else {
            // SAFETY: the caller's contract.
            unsafe { self.rest.get_pack(Self::place(chunk, half)) }
        }
    }

    /// The product with all of a warp's columns, by tiles. A tile's products are dealt to `CHAINS` sums, which are added up at the end: fewer wait for one
    /// another.
    ///
    /// # Safety
    /// They were loaded.
    #[inline(always)]
    pub unsafe fn times<T: Half, const TILES: usize, const PAIRS: usize, const CHAINS: usize>(
        &self,
        columns: [Pack; PAIRS],
    ) -> [[f32; 4]; TILES] {
        let mut parts = [[[0.0f32; 4]; TILES]; CHAINS];
        for pair in 0..PAIRS {
            for half in 0..2 {
                for tile in 0..TILES {
                    // SAFETY: the caller's contract.
                    let fragment = unsafe { self.get(tile * PAIRS + pair, half) };
                    let of_half = [columns[pair][2 * half], columns[pair][2 * half + 1]];
                    let chain = (2 * pair + half) % CHAINS;
                    parts[chain][tile] = T::multiply(fragment, of_half, parts[chain][tile]);
                }
            }
        }
        let mut sums = parts[0];
        for chain in 1..CHAINS {
            for tile in 0..TILES {
                for i in 0..4 {
                    sums[tile][i] += parts[chain][tile][i];
                }
            }
        }
        sums
    }
}
