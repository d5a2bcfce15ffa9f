//! Whether rows are walked, by which instance, and by how many blocks. Pure arithmetic.

use super::plan::{Cut, RowShape};
use kernels_gpu::rows::{classes, side_by_side, sums_fit, takes_third, walked_shared_bytes};

/// Rows of a block where there is nothing to add up along columns: enough that reading the vectors costs little, and few
/// enough that multiprocessors that are done early find more. Vectors of rows that are not aligned are read by single elements,
/// which is dear for small ones.
const ROWS: usize = 4;
const RAGGED_ROWS: usize = 12;
/// Packs of f32 from which rows without sums are walked.
const LONG_ROW: usize = 512;
/// Blocks of a grid for few rows.
const FEW_BLOCKS: usize = 264;
/// Rows that are added up along columns in a block, so that partial sums are few beside what is read; fewer where the grid would
/// not have this many blocks.
const ENOUGH_ROWS: usize = 16;
const ENOUGH_BLOCKS: usize = 132;
/// Multiprocessors of the largest GPUs, which the blocks of sums along columns just fill. A constant, since the order of
/// additions depends on it.
const MULTIPROCESSORS: usize = 132;
/// Bytes of shared memory that reductions take.
const SCRATCH: u32 = 1024;

/// An instance of a kernel that walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkShape {
    pub packed: bool,
    pub shape: RowShape,
    /// Packs of a thread that are on their way at once.
    pub depth: usize,
    pub threads: u32,
    pub min_blocks: u32,
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
    /// The first instance that serves, of those by ascending capacity; `shared` is the shared memory that a block may have.
    pub fn instance(&self, mut shapes: impl Iterator<Item = WalkShape>, shared: u32) -> Option<usize> {
        let serves = |shape| self.fits(shape, shared) && (self.sums > 0 || self.pays(shape));
        if self.lies_well() { shapes.position(serves) } else { None }
    }

    /// Blocks of the grid.
    pub fn blocks(&self, shape: WalkShape) -> usize {
        let in_turn = self.rows.div_ceil(shape.side_by_side());
        if self.sums == 0 {
            let rows = if shape.packed || self.per_pack == 4 { ROWS } else { RAGGED_ROWS };
            return in_turn.div_ceil(rows).max(in_turn.min(FEW_BLOCKS)).next_multiple_of(self.classes());
        }
        let least = (in_turn / ENOUGH_BLOCKS).clamp(1, ENOUGH_ROWS);
        let most = MULTIPROCESSORS * shape.min_blocks as usize;
        let blocks = in_turn.div_ceil(least).next_multiple_of(self.classes());
        // Of blocks that stay none may wait for another to end.
        blocks.clamp(1, most - most % self.classes())
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
        shape.packed == (self.cut == Cut::Packs)
            && lanes * packs >= self.packs()
            && sums_fit(self.sums, packs, self.per_pack)
            && (self.inputs < 3 || takes_third(self.sums, packs, self.per_pack))
            && shape.shared_bytes(self.inputs) + SCRATCH <= shared
    }

    /// Whether walking is faster than holding rows in registers. Without sums the vectors gain: those of long rows, those of rows
    /// that are not aligned where elements are small, since each takes a load there, and of a few columns where threads have few
    /// packs at a time.
    fn pays(&self, WalkShape { packed, shape, .. }: WalkShape) -> bool {
        let (packs, small) = (self.packs(), self.per_pack == 8);
        let of_these =
            if packed { small || packs > LONG_ROW } else { small || self.inputs == 1 && packs > LONG_ROW };
        2 * packs > shape.lanes * shape.packs && of_these
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
        WalkShape { packed, shape: RowShape { lanes, packs }, depth: 2 * packs, threads, min_blocks: 2 }
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

    fn instance(walk: Walk) -> Option<usize> {
        walk.instance(SHAPES.into_iter(), 232_448)
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
        let small = |cols| walk(cols).instance(SHAPES.into_iter(), 100 << 10);
        assert_eq!((small(2048), small(4096)), (Some(1), None));
    }

    #[test]
    fn without_sums_an_instance_is_half_filled_at_least() {
        let forward = |cols, per_pack| Walk { sums: 0, inputs: 1, per_pack, ..walk(cols) };
        assert_eq!(instance(forward(128, 8)), None);
        assert_eq!(instance(forward(136, 8)), Some(0));
        assert_eq!(instance(forward(8192, 8)), None);
        assert_eq!(instance(forward(8200, 8)), Some(2));
        assert_eq!((instance(forward(137, 8)), instance(forward(125, 4))), (Some(3), None));
        // Of f32 long ones.
        assert_eq!([4096, 8192].map(|cols| instance(forward(cols, 4))), [None, Some(2)]);
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
