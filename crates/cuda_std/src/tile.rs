//! Tiles of a matrix in shared memory, laid out so that rows and columns of packs are free of bank conflicts.

use crate::warpgroup::{self, Operand};
use crate::{Float, Global, Half, Shared};

/// Packs of a row of a slab: the 128 bytes that are swizzled as a whole.
const SLAB: u32 = 8;

/// Rows of whole packs (16 bytes) in shared memory, swizzled: within a row the packs are permuted, so that eight
/// rows' packs of one column, which `ldmatrix` reads at once, lie in different banks, and so do eight packs of a row,
/// which a copy writes.
#[derive(Clone, Copy)]
pub struct Tile<T> {
    shared: Shared<T>,
    /// Packs of a row, a power of two of at least 4.
    packs: u32,
    /// Rows of a slab, where rows are cut into slabs of `packs`; else 0.
    rows: u32,
}

impl<T: Float> Tile<T> {
    /// `rows` rows of `packs` packs (a power of two of at least 4) from byte `offset` of the launch's dynamic shared
    /// memory on, a multiple of 128.
    ///
    /// # Safety
    /// The launch must provide that many bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dynamic(offset: u32, rows: u32, packs: u32) -> Self {
        // SAFETY: the caller's contract.
        let shared = unsafe { Shared::dynamic(offset, rows * packs * T::PER_PACK as u32) };
        Tile { shared, packs, rows: 0 }
    }

    /// As [`Self::dynamic`] in slabs of eight columns of packs, one behind the other: what a warpgroup's products read.
    /// `packs` is a multiple of 8, `offset` of 1024.
    ///
    /// # Safety
    /// As [`Self::dynamic`]; the kernel has no other shared memory.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dynamic_slabs(offset: u32, rows: u32, packs: u32) -> Self {
        // SAFETY: the caller's contract.
        let shared = unsafe { Shared::dynamic_slabs(offset, rows * packs * T::PER_PACK as u32) };
        Tile { shared, packs: SLAB, rows }
    }

    /// The operand of a warpgroup's products whose lines are the tile's rows from `first` on, along the terms.
    #[inline(always)]
    pub fn rows_along_terms(self, first: u32) -> Operand {
        // An instruction's terms are two packs.
        Operand::new(warpgroup::address(self.shared) + first * 16 * SLAB, 16, 8 * 16 * SLAB, 2 * 16)
    }

    /// The element at which pack `pack` of row `row` begins.
    #[inline(always)]
    pub fn place(self, row: u32, pack: u32) -> u32 {
        let (slab, pack) = if self.rows > 0 { (pack / SLAB, pack % SLAB) } else { (0, pack) };
        (slab * self.rows * SLAB + swizzled(row, pack, self.packs)) * T::PER_PACK as u32
    }

    /// The tile's array.
    #[inline(always)]
    pub fn shared(self) -> Shared<T> {
        self.shared
    }

    /// Where `when` holds, starts a copy of the whole pack from `from` on.
    ///
    /// # Safety
    /// As [`Shared::copy_pack_async_if`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_async_if(self, place: u32, source: Global<T>, from: usize, when: bool) {
        // SAFETY: the caller's contract.
        unsafe { self.shared.copy_pack_async_if(place, source, from, when) }
    }

    /// Four matrices of 8×8 elements: lane 8·i + r names row r of matrix i by the place of its pack. All 32 lanes must
    /// call.
    ///
    /// # Safety
    /// As [`Shared::load_matrices`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_matrices<const TRANSPOSED: bool>(self, place: u32) -> [u32; 4] {
        // SAFETY: the caller's contract.
        unsafe { self.shared.load_matrices::<4, TRANSPOSED>(place) }
    }
}

impl<T: Half> Tile<T> {
    /// The operand whose lines are the tile's columns from `first` on, a multiple of 64; the terms are its rows.
    #[inline(always)]
    pub fn columns_along_lines(self, first: u32) -> Operand {
        let slab = self.rows * 16 * SLAB;
        let start = warpgroup::address(self.shared) + first / 64 * slab;
        Operand::new(start, slab, 8 * 16 * SLAB, 16 * 16 * SLAB)
    }
}

/// Ends the launch where dynamic shared memory does not begin at a multiple of 1024 bytes, as [`Tile::dynamic_slabs`]
/// takes for granted: a kernel with slabs calls it once.
#[inline(always)]
pub fn expect_slabs() {
    crate::imp::shared::expect_slabs();
}

/// Where pack `pack` of row `row` lies, in packs, among rows of `packs`. Rows eight apart are permuted alike.
#[inline(always)]
pub const fn swizzled(row: u32, pack: u32, packs: u32) -> u32 {
    // Two rows of four packs share the 128 bytes of all banks.
    let turn = if packs == 4 { row / 2 % 4 } else { row % 8 };
    row * packs + (pack ^ turn)
}

#[cfg(test)]
mod tests {
    use super::swizzled;

    /// Packs of which the banks hold one each.
    const BANKS: u32 = 8;

    fn all_different(places: impl Iterator<Item = u32>) -> bool {
        places.fold(0u32, |seen, place| seen | 1 << (place % BANKS)) == (1 << BANKS) - 1
    }

    #[test]
    fn a_tile_has_a_place_for_each_pack() {
        for packs in [4, 8, 16, 32] {
            let mut places: Vec<u32> =
                (0..16).flat_map(|row| (0..packs).map(move |pack| swizzled(row, pack, packs))).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..16 * packs), "{packs}");
        }
    }

    #[test]
    fn eight_rows_of_a_column_and_eight_packs_of_a_copy_are_in_different_banks() {
        for packs in [4, 8, 16, 32] {
            for pack in 0..packs {
                for first in [0, 8, 16] {
                    assert!(
                        all_different((first..first + 8).map(|row| swizzled(row, pack, packs))),
                        "{packs}"
                    );
                }
            }
            // Eight neighbouring threads copy eight packs of a row, or four of each of two.
            for first in (0..16 * packs).step_by(8) {
                let neighbours = (first..first + 8).map(|i| swizzled(i / packs, i % packs, packs));
                assert!(all_different(neighbours), "{packs}");
            }
        }
    }
}
