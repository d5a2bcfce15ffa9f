//! Whether rows are walked, by which instance, and by how many blocks. Pure arithmetic.

use super::plan::{Cut, RowShape};
use kernels_gpu::rows::{
    bundles, classes, is_roomy, side_by_side, sums_fit, sums_fit_clusters, takes_third, walked_shared_bytes,
};

/// Rows of a block where there is nothing to add up along columns: enough that reading the vectors costs little, and few
/// enough that multiprocessors that are done early find more. Vectors of rows that are not aligned are read by single elements,
/// which is dear for small ones.
const ROWS: usize = 4;
const RAGGED_ROWS: usize = 12;
/// Most packs of rows of whole packs without sums that are walked.
const SHORT_ROW: usize = 28;
/// Blocks of a grid for few rows.
const FEW_BLOCKS: usize = 264;
/// Rows that are added up along columns in a block, so that partial sums are few beside what is read; fewer where the grid would
/// not have this many blocks.
const ENOUGH_ROWS: usize = 16;
const ENOUGH_BLOCKS: usize = 132;
/// Multiprocessors of the largest GPUs, which the blocks of sums along columns just fill. A constant, since the order of
/// additions depends on it.
const MULTIPROCESSORS: usize = 132;
/// Clusters of four blocks that find room on such a GPU: its multiprocessors are in groups, not all of which four divides.
const CLUSTERS_OF_FOUR: usize = 30;
/// Rows that end with lines have them for themselves.
const LINE_BYTES: usize = 128;
/// Packs of the longest rows that are walked in bundles for the sake of their ends: of whole packs, and those of 16 bits that are not.
const LONGEST_BUNDLED: [usize; 2] = [512, 192];
/// Bundles of a block that stays, so that those that have one less than others matter little.
const ENOUGH_BUNDLES: usize = 4;
/// The numbers of rows behind the last, which are asked for ahead, stay within 32 bits.
const MOST_BUNDLED: usize = 1 << 29;
/// Bytes of shared memory that reductions take, of a block and over a cluster.
const SCRATCH: u32 = 1024;
const ROUNDS: u32 = 2048 + 32;

/// An instance of a kernel that walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkShape {
    pub packed: bool,
    pub shape: RowShape,
    /// Packs of a thread that are on their way at once.
    pub depth: usize,
    pub threads: u32,
    pub min_blocks: u32,
    /// Blocks that share a row, each of which has packs for a part of it; 1 without clusters.
    pub cluster: u32,
}

impl WalkShape {
    fn side_by_side(self) -> usize {
        side_by_side(self.shape.lanes, self.threads) as usize
    }

    /// Bytes of dynamic shared memory for so many inputs.
    pub fn shared_bytes(self, inputs: usize) -> u32 {
        walked_shared_bytes([self.shape.lanes, self.depth], self.threads, inputs)
    }
}

/// Rows that may be walked.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub cut: Cut,
    /// Whether rows lie along one dimension at most.
    pub in_line: bool,
    /// Whether the vectors begin at packs.
    pub packed_vectors: bool,
    pub rows: usize,
    pub cols: usize,
    pub per_pack: usize,
    /// Inputs that are there.
    pub inputs: usize,
    /// Sums along columns.
    pub sums: usize,
}

impl Walk {
    /// The first instance that serves, of those by ascending capacity: of `clusters` where a block has registers for the sums and
    /// little else. `shared` is the shared memory that a block may have.
    pub fn instance<K>(
        &self,
        mut blocks: impl Iterator<Item = (K, WalkShape)>,
        mut clusters: impl Iterator<Item = (K, WalkShape)>,
        shared: u32,
    ) -> Option<(K, WalkShape)> {
        let serves =
            |&(_, shape): &(K, WalkShape)| self.fits(shape, shared) && (self.sums > 0 || self.pays(shape));
        if !self.lies_well() {
            return None;
        }
        match blocks.find(serves) {
            Some(of_block) if is_roomy(self.sums, of_block.1.shape.packs, self.per_pack) => Some(of_block),
            of_block => clusters.find(serves).or(of_block),
        }
    }

    /// Blocks of the grid, or its clusters.
    pub fn blocks(&self, shape: WalkShape) -> usize {
        let in_turn = self.rows.div_ceil(shape.side_by_side());
        if self.sums == 0 {
            let rows = if shape.packed { ROWS } else { RAGGED_ROWS };
            return in_turn.div_ceil(rows).max(in_turn.min(FEW_BLOCKS)).next_multiple_of(self.classes());
        }
        let of_cluster = shape.cluster as usize;
        let least = (in_turn * of_cluster / ENOUGH_BLOCKS).clamp(1, ENOUGH_ROWS);
        let most = match of_cluster {
            1 | 2 => MULTIPROCESSORS / of_cluster,
            _ => CLUSTERS_OF_FOUR,
        } * shape.min_blocks as usize;
        let blocks = in_turn.div_ceil(least).next_multiple_of(self.classes());
        // Of blocks that stay none may wait for another to end.
        blocks.clamp(1, most - most % self.classes())
    }

    /// How many neighbours a block has one behind the other, as a power of two, where there are so many blocks. Where sums keep the blocks for
    /// many rows, bundles cost up to 4 % by themselves, and pay where a row's ends share what memory moves at once with its neighbours.
    pub fn log_bundle(&self, shape: WalkShape, blocks: usize) -> u32 {
        let bytes = self.cols * 16 / self.per_pack;
        let shares_ends = match shape.packed {
            true => !bytes.is_multiple_of(LINE_BYTES) && self.packs() <= LONGEST_BUNDLED[0],
            false => self.per_pack == 8 && self.packs() <= LONGEST_BUNDLED[1],
        };
        let (log, least) = match self.sums {
            0 => (1, 1),
            _ if shares_ends && shape.side_by_side() == 1 => (2, ENOUGH_BUNDLES),
            _ => (0, 0),
        };
        let turns = self.rows / (blocks * shape.side_by_side());
        let enough = turns >= least << log && self.rows < MOST_BUNDLED;
        if shape.cluster == 1 && bundles(shape.shape.packs) && enough { log } else { 0 }
    }

    /// How many places of a pack rows begin at; a block has those of one.
    fn classes(&self) -> usize {
        if self.cut == Cut::Packs { 1 } else { classes(self.cols as u32, self.per_pack as u32) as usize }
    }

    /// Whether copies and vectors find what they want.
    fn lies_well(&self) -> bool {
        let lies = match self.cut {
            Cut::Packs => self.in_line && self.packed_vectors,
            Cut::Ragged { .. } => self.in_line && self.cols >= 2 * self.per_pack,
            Cut::Strided => false,
        };
        lies && self.rows > 0
    }

    fn fits(&self, shape: WalkShape, shared: u32) -> bool {
        let RowShape { lanes, packs } = shape.shape;
        let (has_registers, scratch) = match shape.cluster {
            1 => (sums_fit(self.sums, packs, self.per_pack), SCRATCH),
            _ => (sums_fit_clusters(self.sums, packs, self.per_pack), ROUNDS),
        };
        shape.packed == (self.cut == Cut::Packs)
            && lanes * packs * shape.cluster as usize >= self.packs()
            && has_registers
            && (self.inputs < 3 || takes_third(self.sums, packs, self.per_pack))
            && shape.shared_bytes(self.inputs) + scratch <= shared
    }

    /// Whether walking is faster than holding rows in registers. Without sums the vectors of 16-bit rows gain: of those that
    /// are not aligned, since each element takes a load there, and of a few columns, which no instance for registers fits well.
    fn pays(&self, WalkShape { packed, shape, .. }: WalkShape) -> bool {
        let of_these = self.per_pack == 8 && (!packed || self.packs() <= SHORT_ROW);
        2 * self.packs() > shape.lanes * shape.packs && of_these
    }

    /// Most whole packs of a row, wherever it begins.
    fn packs(&self) -> usize {
        self.cols / self.per_pack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn shape(packed: bool, lanes: usize, packs: usize) -> WalkShape {
        let threads = if lanes < 128 { 128 } else { lanes as u32 };
        WalkShape {
            packed,
            shape: RowShape { lanes, packs },
            depth: 2 * packs,
            threads,
            min_blocks: 2,
            cluster: 1,
        }
    }

    const SHAPES: [WalkShape; 5] = [
        shape(true, 32, 1),
        shape(true, 128, 2),
        shape(true, 512, 4),
        shape(false, 32, 1),
        shape(false, 128, 2),
    ];

    /// Gradients of bf16 rows.
    fn walk(cols: usize) -> Walk {
        let cut = if cols.is_multiple_of(8) { Cut::Packs } else { Cut::Ragged { phase: 0 } };
        Walk { cut, in_line: true, packed_vectors: true, rows: 10_000, cols, per_pack: 8, inputs: 2, sums: 1 }
    }

    fn of_blocks(walk: Walk, shared: u32) -> Option<usize> {
        walk.instance(SHAPES.into_iter().enumerate(), [].into_iter(), shared).map(|(index, _)| index)
    }

    fn instance(walk: Walk) -> Option<usize> {
        of_blocks(walk, 232_448)
    }

    #[test]
    fn the_first_instance_of_the_cut_that_holds_a_row_serves() {
        for (cols, want) in [
            (8, Some(0)),
            (256, Some(0)),
            (264, Some(1)),
            (2048, Some(1)),
            (2056, Some(2)),
            (16_384, Some(2)),
            (16_392, None),
            (15, None),
            (17, Some(3)),
            (263, Some(3)),
            (265, Some(4)),
            (2055, Some(4)),
            (2057, None),
        ] {
            assert_eq!(instance(walk(cols)), want, "{cols}");
        }
    }

    #[test]
    fn operands_that_lie_otherwise_are_not_walked() {
        for other in [
            Walk { cut: Cut::Strided, ..walk(64) },
            Walk { in_line: false, ..walk(64) },
            Walk { packed_vectors: false, ..walk(64) },
            Walk { rows: 0, ..walk(64) },
            Walk { in_line: false, ..walk(65) },
        ] {
            assert_eq!(instance(other), None, "{other:?}");
        }
        assert_eq!(instance(Walk { packed_vectors: false, ..walk(65) }), Some(3));
        assert_eq!(instance(Walk { cut: Cut::Ragged { phase: 3 }, ..walk(65) }), Some(3));
    }

    #[test]
    fn registers_and_shared_memory_limit_the_instances() {
        assert_eq!(instance(Walk { sums: 2, ..walk(4096) }), Some(2), "64 sums a thread");
        assert_eq!(instance(Walk { sums: 3, ..walk(4096) }), None, "96");
        assert_eq!(instance(Walk { inputs: 3, ..walk(4096) }), Some(2));
        assert_eq!(instance(Walk { inputs: 4, ..walk(4096) }), None, "256 KB");
        let small = |cols| of_blocks(walk(cols), 100 << 10);
        assert_eq!((small(2048), small(4096)), (Some(1), None));
    }

    #[test]
    fn clusters_walk_what_leaves_a_block_no_room() {
        let of_block = || SHAPES.into_iter().enumerate();
        let clusters =
            || [2, 4].into_iter().map(|cluster| (10, WalkShape { cluster, depth: 8, ..shape(true, 512, 2) }));
        let chosen = |walk: Walk| {
            let (index, shape) = walk.instance(of_block(), clusters(), 232_448)?;
            Some((index, shape.cluster))
        };
        let walk = |cols| Walk { sums: 2, ..walk(cols) };
        for (cols, want) in [
            (2048, Some((1, 1))),
            (2056, Some((10, 2))),
            (16_384, Some((10, 2))),
            (16_392, Some((10, 4))),
            (32_768, Some((10, 4))),
            (32_776, None),
            (2055, Some((4, 1))),
            (2057, None),
        ] {
            assert_eq!(chosen(walk(cols)), want, "{cols}");
        }
        assert_eq!(chosen(Walk { inputs: 3, ..walk(4096) }), Some((10, 2)));
        assert_eq!(chosen(Walk { sums: 1, ..walk(4096) }), Some((2, 1)), "32 sums in a block");
        // Where there are no clusters a block does without room.
        assert_eq!(instance(walk(4096)), Some(2));
        let blocks = |rows, cluster| {
            Walk { rows, ..walk(4096) }.blocks(WalkShape { cluster, min_blocks: 1, ..shape(true, 512, 2) })
        };
        assert_eq!([1, 66, 67, 150, 1000, 100_000].map(|rows| blocks(rows, 2)), [1, 66, 66, 66, 66, 66]);
        assert_eq!([3, 40, 1000].map(|rows| blocks(rows, 4)), [3, 30, 30]);
    }

    #[test]
    fn neighbours_that_share_lines_are_walked_in_bundles() {
        let bundle = |walk: Walk, shape: WalkShape| walk.log_bundle(shape, walk.blocks(shape));
        let rows = |rows, walk: Walk| Walk { rows, ..walk };
        // 2000 bytes, 2048, and 8208.
        let of_packs = [1000, 1024, 4104].map(|cols| bundle(rows(100_000, walk(cols)), SHAPES[1]));
        assert_eq!(of_packs, [2, 0, 0]);
        assert_eq!([769, 4095].map(|cols| bundle(rows(100_000, walk(cols)), SHAPES[4])), [2, 0]);
        assert_eq!(bundle(Walk { per_pack: 4, ..rows(100_000, walk(769)) }, SHAPES[4]), 0);
        // Rows side by side are neighbours already; of few rows each block has some; and clusters share rows.
        assert_eq!(bundle(rows(100_000, walk(200)), SHAPES[0]), 0);
        assert_eq!(bundle(rows(4223, walk(1000)), SHAPES[1]), 0);
        assert_eq!(bundle(rows(4224, walk(1000)), SHAPES[1]), 2);
        assert_eq!(bundle(rows(100_000, walk(1000)), WalkShape { cluster: 2, ..SHAPES[1] }), 0);
        // Blocks that end early have pairs of rows.
        let forward = |count| Walk { sums: 0, ..rows(count, walk(1024)) };
        assert_eq!([264, 100_000, 1 << 29].map(|count| bundle(forward(count), SHAPES[1])), [0, 1, 0]);
    }

    #[test]
    fn without_sums_an_instance_is_half_filled_at_least() {
        let forward = |cols, per_pack| Walk { sums: 0, inputs: 1, per_pack, ..walk(cols) };
        let of_packs = [128, 136, 224, 232, 4096, 16_384].map(|cols| instance(forward(cols, 8)));
        assert_eq!(of_packs, [None, Some(0), Some(0), None, None, None]);
        assert_eq!([65, 137, 1023].map(|cols| instance(forward(cols, 8))), [None, Some(3), None]);
        // Of f32 none.
        assert_eq!([100, 125, 4096, 8191, 8192].map(|cols| instance(forward(cols, 4))), [None; 5]);
    }

    #[test]
    fn blocks_of_sums_fill_the_gpu_and_no_more() {
        let (walk, shape) = (walk(256), SHAPES[0]);
        let blocks = |rows| Walk { rows, ..walk }.blocks(shape);
        assert_eq!([1, 4, 5, 528, 10_000, 1_000_000].map(blocks), [1, 1, 2, 132, 157, 264]);
        let forward = |rows| Walk { rows, sums: 0, ..walk }.blocks(SHAPES[2]);
        assert_eq!([1, 264, 300, 4000].map(forward), [1, 264, 264, 1000]);
        // Blocks of each place that a row may begin at.
        let ragged = |rows| Walk { rows, sums: 0, ..self::walk(257) }.blocks(SHAPES[4]);
        assert_eq!([1, 100, 8000].map(ragged), [8, 104, 672]);
        let ragged = |rows| Walk { rows, ..self::walk(258) }.blocks(SHAPES[4]);
        assert_eq!([1, 100, 8000].map(ragged), [4, 100, 264]);
    }
}
