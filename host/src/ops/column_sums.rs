//! The second step of a sum over rows: the first leaves partial results, a row for each group of rows.

use super::pointwise::with_float;
use crate::device::Device;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;
use cuda_std::warp;
use kernels_gpu::column_sums::{FEW_GROUPS, column_sums as kernels, few_groups};

/// Columns from which on a thread for each fills a GPU.
const MANY_COLUMNS: u32 = 1 << 15;

/// `out[j]` = Σ over g of `partials[g, j]`, for a contiguous partials `[groups, cols]` of f32 and a contiguous out `[cols]`
/// of f32, f16 or bf16 on the same stream; fewer than 2^31 groups and columns. Without groups: zeros.
///
/// The order of additions depends on `groups` alone.
pub(super) fn column_sums(partials: &Tensor, out: &Tensor) -> Result<()> {
    column_sums_on(out.device(), partials, out)
}

/// [`column_sums`] on a stream that has been made to wait for what it reads.
pub(super) fn column_sums_on(device: &Device, partials: &Tensor, out: &Tensor) -> Result<()> {
    let (groups, cols) = (partials.shape()[0] as u32, out.len() as u32);
    let few = groups <= FEW_GROUPS && cols >= MANY_COLUMNS;
    with_float!(out.dtype(), T => {
        let kernel = &if few { few_groups::kernels::<T>() } else { kernels::kernels::<T>() }[0];
        let per_block = if few { kernel.bounds.threads } else { warp::SIZE };
        let args = (partials.view::<f32>()?, out.view_mut::<T>()?, groups, cols);
        // SAFETY: the tensors have these sizes, and the grid covers the columns.
        unsafe { device.launch(kernel, Grid::covering(u64::from(cols), u64::from(per_block))?, args) }
    })
}
