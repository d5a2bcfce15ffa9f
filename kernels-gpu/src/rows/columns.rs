//! What belongs to the columns of a thread's [`Share`](super::share::Share): the vectors' elements, and sums along them.

use cuda_std::bits::opaque;
use cuda_std::prelude::*;

/// Vectors that are kept: weight and bias.
pub(super) const VECTORS: usize = 2;

/// A thread's share of the vectors.
#[derive(Clone, Copy)]
pub(super) struct Vectors<const PACKS: usize> {
    pub packs: [[Pack; PACKS]; VECTORS],
    /// At the column of the loose element.
    pub loose: [f32; VECTORS],
}

impl<const PACKS: usize> Vectors<PACKS> {
    /// The same, as the compilers do not know: what was made of the packs is not kept in registers.
    #[inline(always)]
    pub fn renewed(mut self) -> Self {
        for which in 0..VECTORS {
            for i in 0..PACKS {
                for word in 0..4 {
                    self.packs[which][i][word] = opaque(self.packs[which][i][word]);
                }
            }
        }
        self
    }
}

/// A thread's sums along the columns of its share.
#[derive(Clone, Copy)]
pub(super) struct ColumnSums<const PACKS: usize> {
    pub packs: [[[f32; 8]; PACKS]; 2],
    pub loose: [f32; 2],
}

impl<const PACKS: usize> ColumnSums<PACKS> {
    pub const ZERO: Self = ColumnSums { packs: [[[0.0; 8]; PACKS]; 2], loose: [0.0; 2] };
}

/// Whether the vectors stay in registers, which sums along columns may need more; else they are read again, from L1.
pub(super) const fn keeps_vectors<T: Float>(packed: usize, sums: usize, packs: usize) -> bool {
    if sums == 0 {
        T::PER_PACK == 4 || packs <= 4
    } else {
        packed == 0 || packs * (sums * T::PER_PACK + 4) <= 64
    }
}

/// Whether a thread has registers for so many sums along the columns of so many packs. Rows of f32 without sums are not
/// walked: held in registers they are faster.
pub const fn sums_fit(sums: usize, packs: usize, per_pack: usize) -> bool {
    (sums > 0 || per_pack == 8) && sums * packs * per_pack <= 64 && packs * per_pack <= 32
}

/// Sums of columns of a thread that leave registers for the vectors and more.
const ROOM: usize = 32;

/// Whether so many packs leave room in registers.
pub const fn is_roomy(sums: usize, packs: usize, per_pack: usize) -> bool {
    sums * packs * per_pack <= ROOM
}

/// Whether blocks of clusters are made for so many packs: as many as leave room, or half of them. Rows of fewer one block walks.
pub const fn sums_fit_clusters(sums: usize, packs: usize, per_pack: usize) -> bool {
    let sums = sums * packs * per_pack;
    sums == ROOM || sums == ROOM / 2
}

/// Whether a kernel takes a third input: not where sums leave no registers for it.
pub const fn takes_third(sums: usize, packs: usize, per_pack: usize) -> bool {
    !(sums * packs * per_pack == 64 && per_pack == 4)
}

/// How many classes of rows of so many columns there are that begin at the same place of a pack: every so many rows.
pub const fn classes(cols: u32, per_pack: u32) -> u32 {
    let step = cols & cols.wrapping_neg();
    if step == 0 || step >= per_pack { 1 } else { per_pack / step }
}
