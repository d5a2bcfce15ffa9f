//! dwpe's launches. See the kernels' `positions`.

use super::backward::{Gradients, Kernels};
use crate::cuda::shared::share as share_of_shared;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::column_sums::column_sums_on;
use crate::ops::views::read;
use crate::tensor::Tensor;
use cuda_std::Float;
use kernels_gpu::embedding::{self as kernels, PositionSums};

/// Threads that are wanted for the sums of positions. A constant, since the order of additions depends on it.
const POSITION_THREADS: usize = 1 << 18;
/// Sequences of a group at least, so that partial sums are few beside what is read.
const LEAST_SEQUENCES: usize = 16;
/// Blocks of the positions' sums on a multiprocessor beside the sort. More would leave no registers to the sort's blocks; and
/// all of them run from the start, since a GPU begins no other kernel's blocks before it has begun those of the one ahead.
const BLOCKS_BESIDE: usize = 6;
/// Shared memory that they leave to the sort. Together they take the rest, and do not use it: a multiprocessor that runs only
/// kernels without shared memory has none to give, and the sort's blocks would wait until it is idle.
const SHARED_OF_SORT: u32 = 12 << 10;

/// How the gradient of positions is summed up.
pub struct Groups {
    /// Whether threads have packs; else elements.
    pub packs: bool,
    /// Elements of a thread.
    pub unit: usize,
    pub sequences: usize,
    /// Sequences of a group.
    pub per_group: usize,
    pub count: usize,
    /// The sums of each group, if there are several.
    pub partials: Tensor,
}

impl Gradients {
    /// How the sequences are cut into groups for the positions' sums, and room for these, if there are several.
    pub fn position_groups<T: Float>(&self, packed: bool, dy: &Tensor, dwpe: &Tensor) -> Result<Groups> {
        let (cols, steps) = (self.problem.cols, self.problem.steps());
        // Sequences of one length are rows of their own, of T·C columns.
        let whole =
            [steps * cols, self.offset * cols, dwpe.len()].iter().all(|len| len.is_multiple_of(T::PER_PACK));
        let aligned = [dy, dwpe].iter().all(|tensor| tensor.address().is_multiple_of(16));
        let packs = if packed { self.packs::<T>(&[dy, dwpe]) } else { whole && aligned };
        let unit = if packs { T::PER_PACK } else { 1 };
        let sequences = if steps > 0 { self.problem.sequences() } else { 0 };
        let per_group = sequences_of_a_group(sequences, steps * cols / unit);
        let count = sequences.div_ceil(per_group).max(1);
        let shape = [if count > 1 { count } else { 0 }, steps * cols];
        let partials = Tensor::uninit(dwpe.device(), DType::F32, &shape)?;
        Ok(Groups { packs, unit, sequences, per_group, count, partials })
    }

    pub fn position_params(&self, dwpe: &Tensor, groups: &Groups) -> PositionSums {
        let (cols, steps) = (self.problem.cols, self.problem.steps());
        PositionSums {
            first: (self.offset * cols) as u64,
            sequence: (steps * cols) as u64,
            sequences: groups.sequences as u64,
            per_group: groups.per_group as u64,
            len: dwpe.len() as u64,
            cols: cols as u64,
        }
    }

    /// dwpe, which is not empty, by a stream that sees the tensors.
    pub fn sum_positions<T>(
        &self,
        device: &Device,
        starts: Option<&Tensor>,
        dy: &Tensor,
        dwpe: &Tensor,
        groups: &Groups,
    ) -> Result<()>
    where
        T: Element + Float + Kernels,
    {
        let (cols, steps) = (self.problem.cols, self.problem.steps());
        let kernels =
            [kernels::sum_positions_elements::kernels::<T>(), kernels::sum_positions_packs::kernels::<T>()];
        let kernel = &kernels[usize::from(groups.packs)][usize::from(starts.is_some())];
        let blocks = (dwpe.len() / groups.unit).div_ceil(kernel.bounds.threads as usize);
        let params = self.position_params(dwpe, groups);
        let (starts, partials) = (read::<u32>(starts)?, &groups.partials);
        let args = (starts, dy.view::<T>()?, dwpe.view_mut::<T>()?, partials.view_mut::<f32>()?, params);
        let beside = device.info().filter(|_| !device.same_stream(dwpe.device()));
        let most = beside.map(|gpu| (BLOCKS_BESIDE * gpu.sm_count as usize / groups.count).max(1));
        let blocks = most.map_or(blocks, |most| blocks.min(most));
        let shared = beside
            .map_or(0, |gpu| share_of_shared(gpu.max_shared_per_sm - SHARED_OF_SORT, BLOCKS_BESIDE as u32));
        let grid = Grid::xyz(blocks as u64, groups.count as u64, 1)?.early_if(false).shared(shared);
        // SAFETY: the tensors have the sizes of the problem; the grid has blocks for dwpe's units and the groups.
        unsafe { device.launch(kernel, grid, args)? };
        if groups.count == 1 {
            return Ok(());
        }
        let dwpe = dwpe.narrow(0, self.offset, steps)?.reshape(&[steps * cols])?;
        column_sums_on(device, partials, &dwpe)
    }
}

/// Sequences that a thread sums, of a sequence of so many units.
fn sequences_of_a_group(sequences: usize, units: usize) -> usize {
    let groups = (POSITION_THREADS / units.max(1)).clamp(1, sequences.div_ceil(LEAST_SEQUENCES).max(1));
    sequences.div_ceil(groups.min(Grid::MAX_YZ as usize)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_sequences_fill_a_gpu_and_are_not_empty() {
        for (sequences, units) in [(256, 1024 * 192), (1 << 18, 1), (1 << 18, 192), (5, 3), (0, 8), (1, 1)] {
            let per_group = sequences_of_a_group(sequences, units);
            let groups = sequences.div_ceil(per_group);
            assert!(groups * per_group >= sequences && groups as u64 <= Grid::MAX_YZ, "{sequences} {units}");
            assert!(groups == 0 || (groups - 1) * per_group < sequences, "{sequences} {units}");
        }
        assert_eq!(sequences_of_a_group(256, 1024 * 192), 256);
        assert_eq!(sequences_of_a_group(1 << 18, 192), 193);
    }
}
