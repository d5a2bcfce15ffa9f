//! From problem to launches.

use super::Reduction;
use super::problem::Problem;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::masked_softmax::{Alignment, Choice, Plan, Target, params_of_all};
use crate::ops::pointwise::with_float;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global};
use kernels_gpu::masked_softmax::{self as kernels, FAULT_BITS, Targets};

/// What is computed.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    pub loss: &'a Tensor,
    pub dx: Option<&'a Tensor>,
}

/// Computes the results, which match the problem; the tensors are those that it was made of. Three launches: the weight
/// of a row's loss, the rows, the loss of all; the second alone where each row has its own.
pub fn run(
    problem: &Problem,
    x: &Tensor,
    target: &Tensor,
    dloss: Option<&Tensor>,
    results: Results,
) -> Result<()> {
    let (op, device) = (problem.op, x.device());
    let rows = problem.rows.row_count() as u32;
    let is_one = problem.parameters.reduction != Reduction::None;
    if rows == 0 && !is_one {
        return Ok(());
    }
    let target = target.adopted(device, op, "target")?;
    let dloss = dloss.map(|dloss| dloss.adopted(device, op, "dloss")).transpose()?;
    let scratch = |count: usize| Tensor::uninit(device, DType::F32, &[count]);
    let losses = if is_one { scratch(rows as usize)? } else { results.loss.adopted(device, op, "loss")? };
    // SAFETY: words of targets, of one or two each.
    let targets = unsafe { Global::from_raw(target.raw_view()?) };
    let mut t = Targets {
        ignored: problem.parameters.ignore_index,
        wide: u32::from(problem.wide_targets),
        gradient_stride: u32::from(dloss.is_some()),
        gradient: u32::from(results.dx.is_some()),
        unused: 0,
    };
    let one_block = Grid::new(1)?;
    // The gradient of each row's loss: its own, or one of all rows'.
    let factors = if is_one || (results.dx.is_some() && dloss.is_none()) {
        let factors = scratch(2)?;
        let mean = u32::from(problem.parameters.reduction == Reduction::Mean);
        let args =
            (targets, read(dloss.as_ref())?, factors.view_mut()?, rows, problem.rows.cols as u32, mean, t);
        // SAFETY: the targets are the problem's, and `factors` has two elements.
        unsafe { device.launch(&kernels::cross_entropy_factors::ALL[0], one_block, args)? };
        t.gradient_stride = 0;
        Some(factors)
    } else {
        None
    };
    if rows > 0 {
        let gradients = read(factors.as_ref().or(dloss.as_ref()))?;
        with_float!(problem.rows.dtype, T => {
            launch_rows::<T>(problem, x, results.dx, Beside { targets, gradients, losses: &losses, t })?
        });
    }
    if let (true, Some(factors)) = (is_one, &factors) {
        let args = (losses.view()?, factors.view()?, results.loss.view_mut()?, rows);
        // SAFETY: a loss for each row, two factors, one result.
        unsafe { device.launch(&kernels::cross_entropy_total::ALL[0], one_block, args)? };
    }
    Ok(())
}

/// The operands of the rows' kernels beside logits and their gradient.
struct Beside<'a> {
    targets: Global<u32>,
    gradients: Global<f32>,
    losses: &'a Tensor,
    t: Targets,
}

fn launch_rows<T>(problem: &Problem, x: &Tensor, dx: Option<&Tensor>, beside: Beside) -> Result<()>
where
    T: Element
        + Float
        + kernels::cross_entropy_row::Instances
        + kernels::cross_entropy_cluster::Instances
        + kernels::cross_entropy_streamed::Instances
        + kernels::cross_entropy_strided::Instances,
{
    let device = x.device();
    let dx = dx.map(|dx| dx.adopted(device, problem.op, "dx")).transpose()?;
    let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(16);
    let alignment = Alignment { x_and_y: aligned(x) && dx.as_ref().is_none_or(aligned), mask: true };
    let plan = Plan::new(&problem.rows, alignment, Target::of(device));
    let kernel: &Kernel<kernels::cross_entropy_row::Args<T>> = match plan.choice {
        Choice::Row { index } => &kernels::cross_entropy_row::kernels::<T>()[index],
        Choice::Cluster { index, .. } => &kernels::cross_entropy_cluster::kernels::<T>()[index],
        Choice::Streamed => &kernels::cross_entropy_streamed::kernels::<T>()[0],
        Choice::LongRow { .. } | Choice::Spread { .. } | Choice::Strided => {
            &kernels::cross_entropy_strided::kernels::<T>()[0]
        }
    };
    let (classes, wider) = (0..=problem.rows.cols as i64 - 1, problem.wide_targets);
    let slot = device.clipped_value_slot(problem.op, "target", classes, FAULT_BITS, wider)?;
    let params = params_of_all::<T>(&problem.rows, plan);
    let args = (
        x.view::<T>()?,
        beside.targets,
        beside.gradients,
        write(dx.as_ref())?,
        beside.losses.view_mut()?,
        slot.view(),
        beside.t,
        params,
    );
    let grid = plan.grid(device, problem.rows.row_count(), kernel)?;
    // SAFETY: the operands match the problem, of which plan and parameters are. Tensors are freed in the order of
    // their streams, which `adopted` has made wait for one another.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()
}
