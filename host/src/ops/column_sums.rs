//! The second step of a sum over rows: the first leaves partial results, a row for each group of rows.

use super::pointwise::with_float;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;
use cuda_std::warp;
use kernels_gpu::column_sums::column_sums as kernels;

/// `out[j]` = Σ over g of `partials[g, j]`, for a contiguous partials `[groups, cols]` of f32 and a contiguous out `[cols]`
/// of f32, f16 or bf16 on the same stream; fewer than 2^31 groups and columns. Without groups: zeros.
///
/// The order of additions depends on `groups` alone.
pub(super) fn column_sums(partials: &Tensor, out: &Tensor) -> Result<()> {
    let (groups, cols) = (partials.shape()[0] as u32, out.len() as u32);
    let grid = Grid::covering(u64::from(cols), u64::from(warp::SIZE))?;
    with_float!(out.dtype(), T => {
        let args = (partials.view::<f32>()?, out.view_mut::<T>()?, groups, cols);
        // SAFETY: the tensors have these sizes, and the grid covers the columns.
        unsafe { out.device().launch(&kernels::kernels::<T>()[0], grid, args) }
    })
}
