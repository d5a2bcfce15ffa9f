//! Rows spread over many blocks: how many blocks take a row, and how many rows go on side by side.

use super::plan::Target;
use crate::cuda::shared::{OF_SYSTEM, blocks_that_fit};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;
use cuda_std::kernel::Kernel;

/// Packs that a slice has a multiple of: slices begin at lines of memory where rows do.
const LINE: usize = 8;

/// Fewest packs of a slice, so that what is said about a row stays little beside it.
const FEWEST: usize = 64;

/// There is at most a group of blocks for every so many rows: with fewer, one behind the other, little would overlap.
const ROWS_OF_GROUP: u64 = 4;

/// One past the most blocks of all rows together, each with a word of 8 bytes.
const MAX_WORDS: u64 = 1 << 31;

/// Static shared memory of a block, at most.
const FIXED: u32 = 2 << 10;

/// What is looked at of an instance of `spread_row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    lanes: usize,
    /// Most packs of a thread.
    packs: usize,
    /// Slices that are in shared memory at a time.
    rows: usize,
    min_blocks: usize,
}

impl Shape {
    /// Of a kernel.
    pub const fn of<A>(kernel: &Kernel<A>) -> Shape {
        Shape {
            lanes: kernel.constant("LANES"),
            packs: kernel.constant("PACKS"),
            rows: kernel.constant("AHEAD") + kernel.constant("BEHIND") + 1,
            min_blocks: kernel.bounds.min_blocks as usize,
        }
    }

    /// Bytes of dynamic shared memory for slices of so many packs.
    fn shared_bytes(&self, slice: usize) -> u32 {
        (slice.div_ceil(self.lanes) * self.lanes * 16 * self.rows) as u32
    }
}

/// How rows are dealt out to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Blocks of a row.
    pub blocks: u32,
    /// Packs of a row that each takes.
    pub slice: u32,
    /// Groups of blocks, each of which takes every so many rows.
    pub groups: u32,
    shared_bytes: u32,
}

impl Spread {
    /// That of `rows` rows of so many packs, where the blocks that are needed are resident at once.
    pub(super) fn of(shape: &Shape, packs: usize, rows: u64, target: Target) -> Option<Spread> {
        let at_once = target.multiprocessors as usize * shape.min_blocks;
        let fewest = packs.div_ceil(shape.lanes * shape.packs).max(1);
        if fewest > at_once {
            return None;
        }
        let groups = (at_once / fewest).min(rows.div_ceil(ROWS_OF_GROUP).max(1) as usize);
        // All blocks of a group that there are; each warp of a block asks for the words of as many others.
        let blocks = (at_once / groups).min(shape.lanes);
        let slice = packs.div_ceil(blocks).next_multiple_of(LINE).max(FEWEST);
        let blocks = packs.div_ceil(slice).max(1);
        let shared_bytes = shape.shared_bytes(slice);
        // One block can have all but what the system keeps of it.
        let resident = blocks_that_fit(target.shared_bytes + OF_SYSTEM, shared_bytes + FIXED) as usize;
        let fits = slice <= shape.lanes * shape.packs
            && resident >= shape.min_blocks
            && rows.saturating_mul(blocks as u64) < MAX_WORDS;
        let (blocks, slice, groups) = (blocks as u32, slice as u32, groups as u32);
        fits.then_some(Spread { blocks, slice, groups, shared_bytes })
    }

    /// The launch for so many of the rows.
    pub fn grid(&self, rows: u64) -> Result<Grid> {
        let groups = rows.min(u64::from(self.groups));
        Ok(Grid::xyz(u64::from(self.blocks), groups, 1)?.shared(self.shared_bytes).cooperative())
    }

    /// The words of so many rows, which nobody has written.
    pub fn partials(&self, device: &Device, rows: u64) -> Result<Tensor> {
        Tensor::zeros(device, DType::U64, &[rows as usize * self.blocks as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { lanes: 512, packs: 4, rows: 6, min_blocks: 1 };
    const TARGET: Target = Target { clusters: true, multiprocessors: 132, shared_bytes: 227 << 10 };

    #[test]
    fn slices_cover_the_row_and_fit_the_device() {
        for packs in [0, 1, 63, 64, 65, 1000, 6283, 12565, 131_072, 262_144, 132 * 2048] {
            for rows in [1, 3, 9, 64, 2656, 1 << 20] {
                let Some(spread) = Spread::of(&SHAPE, packs, rows, TARGET) else { panic!("{packs} {rows}") };
                let (blocks, slice) = (spread.blocks as usize, spread.slice as usize);
                assert!(blocks * slice >= packs && (blocks - 1) * slice < packs.max(1), "{spread:?}");
                assert!(blocks * spread.groups as usize <= 132, "{spread:?}");
                assert!(spread.shared_bytes + FIXED <= 227 << 10);
            }
        }
        assert_eq!(Spread::of(&SHAPE, 132 * 2048 + 1, 64, TARGET), None);
        let smaller = Target { shared_bytes: 99 << 10, ..TARGET };
        assert_eq!(Spread::of(&SHAPE, 262_144, 64, smaller), None, "six slices do not fit");
    }

    #[test]
    fn long_rows_take_all_multiprocessors_and_short_ones_a_part() {
        let of = |packs, rows| {
            let spread = Spread::of(&SHAPE, packs, rows, TARGET).unwrap();
            [spread.blocks, spread.slice, spread.groups]
        };
        assert_eq!(of(262_144, 64), [132, 1992, 1]);
        assert_eq!(of(131_072, 128), [66, 1992, 2]);
        assert_eq!(of(6283, 2656), [4, 1576, 33]);
        assert_eq!(of(12565, 4), [131, 96, 1]);
        assert_eq!(of(12565, 9), [44, 288, 3]);
        assert_eq!(of(500, 3), [8, 64, 1]);
    }
}
