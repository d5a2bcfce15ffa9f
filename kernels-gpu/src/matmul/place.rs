//! Which tile of which product a block computes.

use cuda_std::bits;
use cuda_std::divide::ShortDivisor;
use cuda_std::thread;

use super::Matrix;

/// Rows of tiles of a band.
pub const BAND: u32 = 8;

/// How the blocks of a grid share the work: tiles in bands, then splits, then the batch's inner and outer dimension,
/// the first fastest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Tiles of a product.
    pub tiles: ShortDivisor,
    /// Tiles of a band.
    pub band: ShortDivisor,
    /// Rows of tiles of the last band.
    pub last: ShortDivisor,
    /// Parts of a sum.
    pub splits: ShortDivisor,
    /// Products of the batch's inner dimension.
    pub inner: ShortDivisor,
    /// Rows of tiles.
    pub rows: u32,
    /// Tiles of all splits of all products.
    pub total: u32,
    /// Blocks of the grid, which may be fewer where each takes several tiles.
    pub blocks: u32,
}

/// A block's work.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub tile_row: u32,
    pub tile_col: u32,
    pub split: u32,
    pub outer: u32,
    pub inner: u32,
}

impl Blocks {
    /// The running block's.
    #[inline(always)]
    pub(super) fn place(&self) -> Place {
        self.at(thread::block_idx_x())
    }

    /// Number `index` of the total.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> Place {
        let (rest, tile) = self.tiles.div_rem(index);
        let (rest, split) = self.splits.div_rem(rest);
        let (outer, inner) = self.inner.div_rem(rest);
        let (band, in_band) = self.band.div_rem(tile);
        let first = band * BAND;
        let (tile_col, row) = if self.rows - first >= BAND {
            (in_band / BAND, in_band % BAND)
        } else {
            self.last.div_rem(in_band)
        };
        Place { tile_row: first + row, tile_col, split, outer, inner }
    }
}

impl Place {
    /// Where the block's matrix of a batch begins.
    #[inline(always)]
    pub fn of(self, matrix: Matrix) -> i64 {
        // Opaque, so that no multiples of the steps are kept for it in registers of kernels that stay for several tiles.
        bits::opaque_64((self.outer as i64 * matrix.outer + self.inner as i64 * matrix.inner) as u64) as i64
    }
}

impl Blocks {
    /// The product of number `batch` of the batch.
    #[inline(always)]
    pub(super) fn of_batch(&self, batch: u32) -> Place {
        let (outer, inner) = self.inner.div_rem(batch);
        Place { tile_row: 0, tile_col: 0, split: 0, outer, inner }
    }
}
