//! How rows are divided among blocks where the sums of their columns are wanted too.

use super::launch::{Dimension, dims};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::shape::{self, Merged};
use crate::tensor::{Desc, Tensor};
use cuda_std::Float;
use kernels_gpu::pointwise as kernels;

/// Threads of a block, and columns of a strip at most.
const THREADS: usize = 256;
/// Units of a strip at most: a warp's, side by side.
const LANES_LOG2: u32 = 5;
/// Blocks that are wanted: some sixteen for each multiprocessor of the largest GPUs. A constant, since the order of
/// additions depends on it.
const BLOCKS: usize = 2048;
/// Rows that a thread has at least, so that partial sums are few beside what is read.
const ROWS_OF_A_THREAD: usize = 8;
/// Rows of a launch.
const MAX_ROWS: usize = (1 << 31) - 1;

/// x and dy as rows.
#[derive(Clone, Debug)]
pub struct Rows {
    rows: Merged<2>,
    cols: usize,
    columns: [isize; 2],
}

impl Rows {
    /// Of operands that have been checked, with a last dimension.
    pub fn new(op: &'static str, x: &Desc, dy: &Desc) -> Result<Rows> {
        let (outer, cols) = x.shape().split_at(x.rank().saturating_sub(1));
        let split = |desc: &Desc| desc.strides()[outer.len()..].first().copied().unwrap_or(1);
        let rows = shape::merge(outer, [&x.strides()[..outer.len()], &dy.strides()[..outer.len()]]);
        let count = shape::count(&rows.shape);
        if count > MAX_ROWS {
            let got = count.to_string();
            return Err(Error::TooLarge { op, what: "rows of `x`", limit: MAX_ROWS as u64, got });
        }
        Ok(Rows { rows, cols: cols.first().copied().unwrap_or(1), columns: [split(x), split(dy)] })
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How a kernel for elements of type `T` goes about it, for operands and a result at these addresses.
    pub fn plan<T: Element + Float>(&self, operands: [&Tensor; 3], bias: &Tensor) -> RowsPlan {
        let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(16);
        let whole = |&stride: &isize| stride.unsigned_abs().is_multiple_of(T::PER_PACK);
        let dense = self.rows.shape.len() <= 1 && self.columns == [1, 1];
        let packs = dense
            && self.cols.is_multiple_of(T::PER_PACK)
            && self.rows.strides.iter().all(|strides| strides.iter().all(whole))
            && operands.into_iter().all(aligned)
            && aligned(bias)
            && bias.is_contiguous();
        RowsPlan::new(shape::count(&self.rows.shape), self.cols, if packs { T::PER_PACK } else { 1 })
    }
}

/// Strips of columns and groups of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsPlan {
    /// Whether units are packs; else elements.
    pub packs: bool,
    lanes_log2: u32,
    strips: usize,
    rows: usize,
    rows_per_group: usize,
}

impl RowsPlan {
    fn new(rows: usize, cols: usize, unit: usize) -> RowsPlan {
        let units = cols.div_ceil(unit);
        let lanes_log2 = LANES_LOG2.min(units.next_power_of_two().ilog2());
        let strips = units.div_ceil(1 << lanes_log2);
        let least = ROWS_OF_A_THREAD * (THREADS >> lanes_log2);
        let groups = (BLOCKS / strips).clamp(1, rows.div_ceil(least).max(1));
        RowsPlan { packs: unit > 1, lanes_log2, strips, rows, rows_per_group: rows.div_ceil(groups).max(1) }
    }

    /// Groups of rows; none without rows.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(self.rows_per_group)
    }

    /// A block for each strip of each group.
    pub fn grid(&self) -> Result<Grid> {
        Grid::xyz(self.strips as u64, self.groups() as u64, 1)
    }

    /// What the kernel takes.
    pub fn params(&self, rows: &Rows) -> kernels::Rows {
        let dimensions: Vec<Dimension> = (0..rows.rows.shape.len())
            .map(|dim| {
                let [x, dy] = rows.rows.strides.map(|strides| strides[dim] as i64);
                Dimension { extent: rows.rows.shape[dim], steps: [x, dy, 0] }
            })
            .collect();
        kernels::Rows {
            dims: dims(&dimensions, dimensions.first().map_or(1, |dim| dim.extent)),
            x_column: rows.columns[0] as i64,
            dy_column: rows.columns[1] as i64,
            rows: self.rows as u32,
            cols: rows.cols as u32,
            rows_per_group: self.rows_per_group as u32,
            lanes_log2: self.lanes_log2,
            dim_count: dimensions.len() as u32,
            unused: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cover_the_rows_and_fill_a_gpu() {
        for (rows, cols, unit) in
            [(8192, 3072, 8), (1, 8, 8), (65_536, 64, 4), (100, 1, 1), (7, 5000, 1), (1 << 30, 1, 1)]
        {
            let plan = RowsPlan::new(rows, cols, unit);
            assert!(plan.groups() * plan.rows_per_group >= rows, "{plan:?}");
            assert!((plan.groups() - 1) * plan.rows_per_group < rows, "no group is empty: {plan:?}");
            assert!((plan.strips << plan.lanes_log2) * unit >= cols, "{plan:?}");
            assert!(unit << plan.lanes_log2 <= THREADS, "a thread a column: {plan:?}");
            assert!(plan.groups() as u64 <= Grid::MAX_YZ, "{plan:?}");
        }
        let plan = RowsPlan::new(8192, 3072, 8);
        assert_eq!((plan.strips, plan.groups(), plan.rows_per_group), (12, 128, 64));
        assert_eq!(RowsPlan::new(0, 8, 8).groups(), 0);
    }
}
