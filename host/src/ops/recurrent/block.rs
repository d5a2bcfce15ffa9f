//! All steps in one launch, of blocks that hold all weights; forward and backward.

use super::Kind;
use super::backward::Walked;
use super::layer::{Layer, Results};
use super::plan::Plan;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::matmul::packed_rows;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::matmul::repack;
use kernels_gpu::recurrent::{
    BlockSequence, block_backward, block_backward_f32, block_sequence, block_sequence_f32, has,
};

/// Runs the steps of gx `[T, B, G·H]`.
pub fn run(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    match gx.dtype() {
        DType::F32 => {
            let kernel = &block_sequence_f32::kernels::<f32>()[plan.index];
            typed::<f32>(kernel, layer, plan, gx, results)
        }
        DType::F16 => halves::<half::f16>(layer, plan, gx, results),
        _ => halves::<half::bf16>(layer, plan, gx, results),
    }
}

/// By the plan's kernel or, where something is kept, by that which does so and is otherwise alike.
fn halves<T: Element + Float + repack::Instances + block_sequence::Instances>(
    layer: &Layer,
    plan: &Plan,
    gx: &Tensor,
    results: Results,
) -> Result<()> {
    let kernels: &[Kernel<block_sequence::Args<T>>] = block_sequence::kernels::<T>();
    let form = |kernel: &Kernel<_>| ["GATES", "PAIRS", "ROWS"].map(|name| kernel.constant(name));
    let keeps = usize::from(results.kept().2 != 0);
    let serves =
        |kernel: &&Kernel<_>| kernel.constant("KEEPS") == keeps && form(kernel) == form(&kernels[plan.index]);
    let kernel = kernels.iter().find(serves).expect("each form has both instances");
    typed::<T>(kernel, layer, plan, gx, results)
}

fn typed<T: Element + Float + repack::Instances>(
    kernel: &Kernel<block_sequence::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    gx: &Tensor,
    results: Results,
) -> Result<()> {
    let [steps, batch, hidden] = layer.extents();
    let (weight, weight_row) = packed_rows::<T>(layer.op, layer.weights.w_hh)?;
    let given = layer.given()?;
    let strides = results.y.strides();
    let (gh, cells, kept) = results.kept();
    let p = BlockSequence {
        steps: steps as u32,
        batch: batch as u32,
        hidden: hidden as u32,
        weight_row: weight_row as u32,
        reverse: u32::from(layer.reverse),
        has: given.has | kept,
        y_time: strides[0] as i64,
        y_row: strides[1] as i64,
    };
    let args = (
        weight.view()?,
        gx.view()?,
        read(given.bias.as_ref())?,
        read(given.h0.as_ref())?,
        read(given.c0.as_ref())?,
        read(layer.lengths)?,
        results.y.view_mut()?,
        results.h_n.view_mut()?,
        write(results.c_n)?,
        write(gh)?,
        write(cells)?,
        p,
    );
    let grid = Grid::new(plan.groups as u64)?.shared(plan.shared_bytes);
    // SAFETY: contiguous tensors of the layer's extents, a kernel that holds so many units, and blocks for all rows.
    unsafe { gx.device().launch(kernel, grid, args) }
}

/// Walks the steps backwards.
pub fn walk_back(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    match walked.gx.dtype() {
        DType::F32 => {
            typed_back::<f32>(&block_backward_f32::kernels::<f32>()[plan.index], layer, plan, walked)
        }
        DType::F16 => {
            typed_back::<half::f16>(&block_backward::kernels::<half::f16>()[plan.index], layer, plan, walked)
        }
        _ => typed_back::<half::bf16>(
            &block_backward::kernels::<half::bf16>()[plan.index],
            layer,
            plan,
            walked,
        ),
    }
}

fn typed_back<T: Element + Float + repack::Instances>(
    kernel: &Kernel<block_backward::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    walked: &Walked,
) -> Result<()> {
    let [steps, batch, hidden] = layer.extents();
    let (device, dtype) = (walked.gx.device(), walked.gx.dtype());
    let (weight, weight_row) = packed_rows::<T>(layer.op, &layer.turned()?)?;
    // Without dy, a row of zeros is that of all rows and times.
    let (dy, y_time, y_row) = match walked.dy {
        Some(dy) => (dy.clone(), dy.strides()[0] as i64, dy.strides()[1] as i64),
        None => (Tensor::zeros(device, dtype, &[hidden])?, 0, 0),
    };
    let p = BlockSequence {
        steps: steps as u32,
        batch: batch as u32,
        hidden: hidden as u32,
        weight_row: weight_row as u32,
        reverse: u32::from(layer.reverse),
        has: if layer.lengths.is_some() { has::LENGTHS } else { 0 },
        y_time,
        y_row,
    };
    let args = (
        weight.view()?,
        walked.gx.view()?,
        walked.gh.view()?,
        walked.c.unwrap_or(walked.h).view()?,
        dy.view()?,
        read(layer.lengths)?,
        walked.dgx.view_mut()?,
        write((layer.kind == Kind::Gru).then_some(walked.dgh))?,
        walked.dh.view_mut()?,
        write(walked.dc)?,
        p,
    );
    let grid = Grid::new(plan.groups as u64)?.shared(plan.shared_bytes);
    // SAFETY: as in `typed`; the gradients are contiguous tensors of the layer's extents, too.
    unsafe { device.launch(kernel, grid, args) }
}
