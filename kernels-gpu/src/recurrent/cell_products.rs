//! What the products of a cell are: operands in words, tiles, and the products of a chunk.
//!
//! The order of a sum's terms is free: a lane's four words of a chunk are neighbours where rows are whole packs, and
//! single words of which four lanes' are neighbours where they are not.

use super::GRU;
use super::words::Words;
use cuda_std::prelude::*;

/// Units of a block: of few a tile is two sums', of many one's.
pub const FEW_UNITS: usize = 8;
/// See [`FEW_UNITS`].
pub const MANY_UNITS: usize = 16;
/// Sums of a unit.
pub const SUMS: usize = 4;

/// The gates of a unit's sums, of x's product or of h's.
pub const fn gates_of(gates: usize, of_h: bool) -> [Option<usize>; SUMS] {
    match (gates == GRU, of_h) {
        (true, false) => [Some(0), Some(1), Some(2), None],
        (true, true) => [Some(0), Some(1), None, Some(2)],
        (false, _) => [Some(0), Some(1), Some(2), Some(3)],
    }
}

/// The gate and the eight units whose rows are the upper and the lower half of each tile, of x's product or of h's.
const fn halves(gates: usize, eights: usize, of_h: bool) -> [[Option<(usize, usize)>; 2]; SUMS] {
    let (of_sum, mut tiles, mut tile) = (gates_of(gates, of_h), [[None; 2]; SUMS], 0);
    while tile < SUMS * eights / 2 {
        let mut half = 0;
        while half < 2 {
            let (sum, eight) = if eights == 1 { (2 * tile + half, 0) } else { (tile, half) };
            tiles[tile][half] = match of_sum[sum] {
                Some(gate) => Some((gate, eight)),
                None => None,
            };
            half += 1;
        }
        tile += 1;
    }
    tiles
}

/// The lane's four words of the chunk from column `k` on of the row that begins at `row`; zeros behind `columns`.
///
/// # Safety
/// The row exists; its columns are whole words, and with `WIDTH` 4 whole packs at multiples of 16 bytes.
#[inline(always)]
pub unsafe fn words<T: Float, const WIDTH: usize>(of: Global<T>, row: usize, k: u32, columns: u32) -> Pack {
    let (turn, word) = (warp::lane_id() % 4, const { T::PER_WORD as u32 });
    // SAFETY: the caller's contract.
    unsafe {
        if const { WIDTH == 4 } {
            let k = k + turn * 4 * word;
            of.get_pack_if(k < columns, row + k as usize, 0)
        } else {
            let mut pack = [0; 4];
            for i in 0..4 {
                let k = k + (i as u32 * 4 + turn) * word;
                pack[i] = of.get_4_if(k < columns, row + k as usize, 0);
            }
            pack
        }
    }
}

/// One of the two products.
#[derive(Clone, Copy)]
pub struct Product<T> {
    /// `[GATES·hidden, columns]`.
    pub weight: Global<T>,
    /// `[batch, columns]`.
    pub of: Global<T>,
    pub columns: u32,
    /// Whether it is that of h.
    pub of_h: bool,
}

/// Adds the products of a chunk. Tiles are of `EIGHTS` times eight units.
#[inline(always)]
pub fn add<T: Words, const GATES: usize, const FRAGMENTS: usize, const EIGHTS: usize, const TILES: usize>(
    sums: &mut [[[f32; 4]; FRAGMENTS]; TILES],
    of_weight: &[[Pack; EIGHTS]; GATES],
    of_rows: &[Pack; FRAGMENTS],
    of_h: bool,
) {
    for tile in 0..TILES {
        let [for_x, for_h] = const { [halves(GATES, EIGHTS, false), halves(GATES, EIGHTS, true)] };
        // Of 16 units a tile is of one gate, or of none.
        if const { EIGHTS == 2 } && (if of_h { for_h } else { for_x })[tile][0].is_none() {
            continue;
        }
        let half = |half: usize| {
            let mut pack = [0; 4];
            for j in 0..4 {
                let word =
                    |of: Option<(usize, usize)>| of.map_or(0, |(gate, eight)| of_weight[gate][eight][j]);
                pack[j] = if of_h { word(for_h[tile][half]) } else { word(for_x[tile][half]) };
            }
            pack
        };
        let (upper, lower) = (half(0), half(1));
        let first = [upper[0], lower[0], upper[1], lower[1]];
        let second = [upper[2], lower[2], upper[3], lower[3]];
        for f in 0..FRAGMENTS {
            let [s, t, u, v] = of_rows[f];
            sums[tile][f] = T::multiply(first, [s, t], sums[tile][f], 0);
            sums[tile][f] = T::multiply(second, [u, v], sums[tile][f], 0);
        }
    }
}
