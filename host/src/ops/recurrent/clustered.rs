//! All steps in one launch, of clusters that each hold all recurrent weights; forward and backward.

use super::Kind;
use super::backward::Walked;
use super::layer::{Layer, Results};
use super::persistent::{aligned, asked, asked_back, in_packs};
use super::plan::{PATIENCE, Plan};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::matmul::packed_rows;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use half::{bf16, f16};
use kernels_gpu::matmul::repack;
use kernels_gpu::recurrent::{clustered_sequence, clustered_sequence_back};

/// Runs the steps of gx `[T, B, G·H]`.
pub fn run(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    let index = plan.index;
    match gx.dtype() {
        DType::F16 => typed(&clustered_sequence::kernels::<f16>()[index], layer, plan, gx, results),
        _ => typed(&clustered_sequence::kernels::<bf16>()[index], layer, plan, gx, results),
    }
}

fn grid(plan: &Plan) -> Result<Grid> {
    let grid = Grid::xyz(plan.blocks as u64, plan.groups as u64, 1)?;
    Ok(grid.shared(plan.shared_bytes).cluster(plan.blocks as u32))
}

fn typed<T: Element + Float + repack::Instances>(
    kernel: &Kernel<clustered_sequence::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    gx: &Tensor,
    results: Results,
) -> Result<()> {
    let (weight, weight_row) = packed_rows::<T>(layer.op, layer.weights.w_hh)?;
    let given = layer.given()?;
    let (gh, cells, kept) = results.kept();
    let p = asked(layer, plan, (results.y, weight_row), given.has | in_packs(layer, &[gx]) | kept, PATIENCE);
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
    // SAFETY: contiguous tensors of the layer's extents; the blocks of a cluster own all units, and clusters all rows.
    unsafe { gx.device().launch(kernel, grid(plan)?, args) }
}

/// Walks the steps backwards.
pub fn walk_back(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    let index = plan.index;
    match walked.gx.dtype() {
        DType::F16 => typed_back(&clustered_sequence_back::kernels::<f16>()[index], layer, plan, walked),
        _ => typed_back(&clustered_sequence_back::kernels::<bf16>()[index], layer, plan, walked),
    }
}

fn typed_back<T: Element + Float + repack::Instances>(
    kernel: &Kernel<clustered_sequence_back::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    walked: &Walked,
) -> Result<()> {
    let (weight, weight_row) = packed_rows::<T>(layer.op, &layer.turned()?)?;
    let dy = walked.dy.map(|dy| aligned(dy, 16)).transpose()?;
    let p = asked_back(layer, plan, walked, weight_row);
    let args = (
        weight.view()?,
        walked.gx.view()?,
        walked.gh.view()?,
        walked.state().view()?,
        read(dy.as_ref())?,
        read(layer.lengths)?,
        walked.dgx.view_mut()?,
        write((layer.kind == Kind::Gru).then_some(walked.dgh))?,
        walked.dh.view_mut()?,
        write(walked.dc)?,
        p,
    );
    // SAFETY: as in `typed`.
    unsafe { walked.gx.device().launch(kernel, grid(plan)?, args) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::ops::recurrent::persistent::tests::{all_give_the_same, all_gradients_are_the_same};
    use crate::ops::recurrent::plan::{Choice, Target};
    use crate::ops::recurrent::problem::Problem;

    /// Plans of either direction for a GPU of so many multiprocessors, of clusters with so many rows.
    fn plans(problem: &Problem, multiprocessors: usize, rows: usize, direction: usize) -> Vec<Plan> {
        let target = Target { multiprocessors, ..Target::of(&Device::cpu()) };
        let [forward, back] = Plan::all_clustered(problem, target);
        let plans = [forward, back][direction].clone();
        assert!(!plans.is_empty());
        for plan in &plans {
            assert_eq!((plan.choice, plan.rows), (Choice::Clustered, rows), "{plan}");
        }
        plans
    }

    /// Clusters of one to four rows, and of as many blocks as there may be; units and rows that do not fill the last.
    #[test]
    fn every_kernel_gives_the_same() -> Result<()> {
        for (multiprocessors, rows) in [(132, 1), (64, 2), (48, 4)] {
            all_give_the_same(&Device::cpu(), [5, 37, 6, 50], |problem| {
                plans(problem, multiprocessors, rows, 0)
            })?;
            let gradients = |problem: &Problem| plans(problem, multiprocessors, rows, 1);
            all_gradients_are_the_same(&Device::cpu(), DType::F16, [5, 37, 6, 50], gradients)?;
        }
        all_give_the_same(&Device::cpu(), [3, 3, 6, 362], |problem| plans(problem, 132, 1, 0))?;
        all_gradients_are_the_same(&Device::cpu(), DType::F16, [3, 3, 6, 250], |problem| {
            plans(problem, 132, 1, 1)
        })
    }

    /// In any order of the clusters' warps.
    #[test]
    fn blocks_may_be_late() -> Result<()> {
        for seed in 1..4 {
            let device = Device::cpu_in_order(seed);
            all_give_the_same(&device, [5, 19, 6, 50], |problem| plans(problem, 64, 1, 0))?;
            all_gradients_are_the_same(&device, DType::F16, [5, 19, 6, 50], |problem| {
                plans(problem, 64, 1, 1)
            })?;
        }
        Ok(())
    }
}
