//! A cell of 16-bit numbers and many units in one launch, by clusters of blocks: on Hopper.

use super::Kind;
use super::fused::{Operands, biases, rows_of};
use super::plan::Target;
use super::streamed::map_of_lines;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::{Grid, LEFT_OVER_BY_CLUSTERS};
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{
    CLUSTER_BLOCKS, CLUSTER_ROWS, ClusterCell, TERMS, cluster_cell, cluster_cell_shared_bytes,
};

/// Units, and columns of x and h together, below which a block by itself reads little enough of the rows; of 64 rows, and so may be otherwise
/// for few.
const LEAST_UNITS: usize = 256;
const LEAST_TERMS: usize = 512;

/// Whether it pays, and the accelerator can copy the operands: rows of whole packs at multiples of 16 bytes.
pub fn serves(of: &Operands) -> bool {
    let (input, hidden) = (of.x.shape()[1], of.h.shape()[1]);
    Target::of(of.x.device()).warpgroups
        && of.x.dtype() != DType::F32
        && (hidden >= LEAST_UNITS && input + hidden >= LEAST_TERMS && input > 0)
        && [of.x, of.h, of.weights.w_ih, of.weights.w_hh].into_iter().all(|tensor| rows_of(tensor, 16))
}

/// h' and, of an LSTM, c'.
pub fn launch<T: Element + Float + cluster_cell::Instances>(
    kind: Kind,
    of: &Operands,
    h_next: &Tensor,
    c_next: Option<&Tensor>,
) -> Result<()> {
    let kernels: &[Kernel<cluster_cell::Args<T>>] = cluster_cell::kernels::<T>();
    let hidden = of.h.shape()[1];
    let groups = of.x.shape()[0].div_ceil(CLUSTER_ROWS as usize);
    let multiprocessors = Target::of(of.x.device()).multiprocessors;
    let at_once = multiprocessors.saturating_sub(LEFT_OVER_BY_CLUSTERS as usize) / CLUSTER_BLOCKS as usize;
    // The lines of weights and rows that the last cluster to end, and those that its blocks had before, take in.
    let lines = |kernel: &&Kernel<cluster_cell::Args<T>>| {
        let units = kernel.constant("UNITS");
        let rounds = (hidden.div_ceil(units) * groups).div_ceil(at_once.max(1));
        rounds * (kind.gates() * units + CLUSTER_ROWS as usize)
    };
    let kernel = kernels.iter().filter(|kernel| kernel.constant("GATES") == kind.gates()).min_by_key(lines);
    let kernel = kernel.expect("each number of gates has instances");
    let [batch, input] = [of.x.shape()[0], of.x.shape()[1]];
    let weights = of.weights;
    let [units, stages] = ["UNITS", "STAGES"].map(|name| kernel.constant(name));
    let of_weights = |weight, columns| map_of_lines(weight, [1, kind.gates(), hidden, columns], units);
    let of_rows = |rows, columns| map_of_lines(rows, [1, 1, batch, columns], CLUSTER_ROWS as usize);
    let p = ClusterCell {
        batch: batch as u32,
        input: input as u32,
        hidden: hidden as u32,
        has: biases(&weights),
        chunks: [input, hidden].map(|columns| columns.div_ceil(TERMS as usize) as u32),
    };
    let args = (
        of_weights(weights.w_ih, input)?,
        of_rows(of.x, input)?,
        of_weights(weights.w_hh, hidden)?,
        of_rows(of.h, hidden)?,
        weights.w_ih.view()?,
        weights.w_hh.view()?,
        of.h.view()?,
        read(of.c)?,
        read(weights.b_ih)?,
        read(weights.b_hh)?,
        h_next.view_mut()?,
        write(c_next)?,
        p,
    );
    let grid = Grid::xyz(hidden.div_ceil(units) as u64 * u64::from(CLUSTER_BLOCKS), groups as u64, 1)?
        .cluster(CLUSTER_BLOCKS)
        .shared(cluster_cell_shared_bytes(kind.gates(), units, stages));
    // SAFETY: `serves` holds: maps of the kernel's boxes over contiguous tensors of these extents; the grid covers units and rows.
    unsafe { of.x.device().launch(kernel, grid, args) }
}
