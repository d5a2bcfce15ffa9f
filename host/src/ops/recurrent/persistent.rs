//! All steps in one launch.

use super::layer::{Layer, Results};
use super::plan::{PATIENCE, Plan};
use super::{Kind, dense};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{self as kernels, Ring, Sequence, has};

/// Runs the steps of gx `[T, B, G·H]`.
pub fn run(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    match gx.dtype() {
        DType::F16 => typed::<half::f16>(layer, plan, gx, results),
        _ => typed::<half::bf16>(layer, plan, gx, results),
    }
}

fn typed<T: Element + Float + kernels::sequence::Instances>(
    layer: &Layer,
    plan: &Plan,
    gx: &Tensor,
    results: Results,
) -> Result<()> {
    let device = gx.device();
    let [steps, batch, hidden] = layer.extents();
    let exchange = Tensor::uninit(device, DType::U32, &[plan.exchange_words()])?;
    let fill = &kernels::poison::ALL[0];
    let packs = (exchange.len() / 4) as u64;
    let grid = Grid::covering(packs, fill.bounds.threads.into())?;
    // SAFETY: whole packs, since a slot's words are a multiple of four.
    unsafe { device.launch(fill, grid, (exchange.view_mut()?, packs))? };

    let (weight, bias) = (dense(layer.weights.w_hh)?, layer.weights.b_hh.map(dense).transpose()?);
    let (h0, c0) = (layer.h0.map(dense).transpose()?, layer.c0.map(dense).transpose()?);
    let is_packed = hidden.is_multiple_of(8) && weight.address().is_multiple_of(16);
    let given = [
        (bias.is_some(), has::BIAS),
        (h0.is_some(), has::H),
        (c0.is_some(), has::C),
        (layer.lengths.is_some(), has::LENGTHS),
        (is_packed, has::PACKED),
    ];
    let strides = results.y.strides();
    let p = Sequence {
        steps: steps as u32,
        batch: batch as u32,
        hidden: hidden as u32,
        subs: plan.subs as u32,
        reverse: u32::from(layer.reverse),
        has: given.iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit),
        y_time: strides[0] as i64,
        y_row: strides[1] as i64,
        ring: Ring {
            slots: plan.slots as u32,
            period: plan.period(steps),
            words: plan.words as u32,
            patience: PATIENCE,
        },
    };
    let kernel: &Kernel<kernels::sequence::Args<T>> = &kernels::sequence::kernels::<T>()[plan.index];
    let slot = device.wait_slot(layer.op)?;
    let c_n = results.c_n.filter(|_| layer.kind == Kind::Lstm);
    let args = (
        weight.view()?,
        gx.view()?,
        read(bias.as_ref())?,
        read(h0.as_ref())?,
        read(c0.as_ref())?,
        read(layer.lengths)?,
        results.y.view_mut()?,
        results.h_n.view_mut()?,
        write(c_n)?,
        exchange.view_mut()?,
        slot.view(),
        p,
    );
    let grid = Grid::xyz(plan.blocks as u64, plan.groups as u64, 1)?.shared(plan.shared_bytes).cooperative();
    // SAFETY: contiguous tensors of the layer's extents; the plan's blocks own all units and its groups all rows, and the launch
    // is refused where they do not run at once. The exchange is poisoned by the launch before.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()
}
