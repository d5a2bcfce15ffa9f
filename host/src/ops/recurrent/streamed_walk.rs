//! All steps of a gradient in one launch, with recurrent weights of which shared memory holds some and the others are streamed.

use super::Kind;
use super::backward::Walked;
use super::layer::{Layer, at};
use super::persistent::aligned;
use super::plan::{PATIENCE, Plan};
use super::streamed::{FOUR, InParts, Number, Step, map_of_lines, tiling};
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::GlobalMut;
use cuda_std::kernel::Kernel;
use kernels_gpu::recurrent::{
    self as kernels, COLUMNS, COUNTER_WORDS, POISON, STREAM_COLUMNS, StreamWalk, TERMS, WALK_CHUNKS,
    WALK_SHARE,
};

/// Walks the steps backwards.
pub fn walk_back(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    patiently((PATIENCE, 0), layer, plan, walked)
}

/// With blocks that give up after so many polls, and wait for so many others that are not there.
fn patiently(patience: (u32, u32), layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    let index = tiling(plan).index;
    if walked.gx.dtype() == DType::F16 {
        let kernel = &kernels::stream_walk_back::kernels::<half::f16>()[index];
        return typed::<half::f16>(patience, kernel, layer, plan, walked);
    }
    let kernel = &kernels::stream_walk_back::kernels::<half::bf16>()[index];
    typed::<half::bf16>(patience, kernel, layer, plan, walked)
}

/// Whether rows and times of dy begin at whole fours.
fn in_fours(dy: &Tensor) -> bool {
    dy.address().is_multiple_of((FOUR * dy.dtype().size()) as u64)
        && dy.strides()[..2].iter().all(|stride| stride.unsigned_abs().is_multiple_of(FOUR))
}

fn typed<T: Number>(
    (patience, absent): (u32, u32),
    kernel: &Kernel<kernels::stream_walk_back::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    walked: &Walked,
) -> Result<()> {
    let [steps, batch, hidden] = layer.extents();
    let (device, gates, tiling) = (walked.gx.device(), layer.kind.gates(), tiling(plan));
    let (blocks, splits) = (tiling.blocks[0], tiling.splits());
    let weights = InParts::of::<T>(&layer.turned()?.reshape(&[gates, hidden, hidden])?)?;
    let chunks = weights.extents()[1];
    let of_terms = [2, chunks, batch, TERMS as usize];
    let terms = Tensor::uninit(device, T::DTYPE, &of_terms)?;
    let of_terms = map_of_lines(&terms, of_terms, STREAM_COLUMNS as usize)?;
    // All of it poisoned.
    let sums = [2 * blocks * splits, WALK_SHARE as usize];
    let sums = Tensor::full_bytes(layer.op, device, DType::U32, &sums, POISON as u8)?;
    let counters = Tensor::zeros(device, DType::U32, &[blocks, COUNTER_WORDS as usize])?;
    // Each begins with a whole four, as what is allocated for results does.
    let from_fours = |tensor: &Tensor| aligned(tensor, FOUR * tensor.dtype().size());
    let [gx, gh, h] = [from_fours(walked.gx)?, from_fours(walked.gh)?, from_fours(walked.h)?];
    let c = walked.c.map(from_fours).transpose()?;
    let dy = walked.dy.map(|dy| if in_fours(dy) { Ok(dy.clone()) } else { from_fours(dy) }).transpose()?;
    let first = dy.as_ref().map(|dy| at(dy, 0)).transpose()?;
    let p = StreamWalk {
        step: Step::back(layer, walked, splits)?.at(0, first.as_ref(), splits),
        y_time: dy.as_ref().map_or(0, |dy| dy.strides()[0] as i64),
        steps: steps as u32,
        reverse: u32::from(layer.reverse),
        chunks: chunks as u32,
        turns: tiling.turns as u32 / WALK_CHUNKS,
        own: batch.div_ceil(COLUMNS as usize).div_ceil(splits) as u32,
        arrivals: splits as u32 + absent,
        patience,
    };
    let slot = device.wait_slot(layer.op)?;
    let args = (
        weights.map(tiling.rows)?,
        of_terms,
        gx.view()?,
        gh.view()?,
        h.view()?,
        read(c.as_ref())?,
        read(dy.as_ref())?,
        read(layer.lengths)?,
        walked.dgx.view_mut()?,
        write((layer.kind == Kind::Gru).then_some(walked.dgh))?,
        walked.dh.view_mut()?,
        write(walked.dc)?,
        write(walked.sums)?,
        // SAFETY: lines are whole words, from a multiple of 4 bytes on.
        unsafe { GlobalMut::from_raw(terms.raw_view()?) },
        sums.view_mut()?,
        counters.view_mut()?,
        slot.view(),
        p,
    );
    let grid = Grid::xyz(blocks as u64, splits as u64, 1)?.shared(tiling.shared_bytes).cooperative();
    // SAFETY: tensors of the layer's extents in whole fours; the tiling's blocks cover units and chunks, and the launch is refused where they do
    // not run at once. Sums are poisoned, counters 0.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::error::Error;
    use crate::ops::recurrent::RecurrentWeights;
    use crate::ops::recurrent::persistent::tests::all_gradients_are_the_same;
    use crate::ops::recurrent::plan::{Choice, Target};
    use crate::ops::recurrent::problem::Problem;
    use crate::ops::{Recurrent, recurrent::Kind};

    /// A plan by this way, for a GPU of so many multiprocessors.
    fn planned(problem: &Problem, multiprocessors: usize) -> Plan {
        let target = Target { multiprocessors, ..Target::of(&Device::cpu()) };
        let plan = Plan::streamed_walk_back(problem, target);
        assert_eq!(plan.choice, Choice::StreamedWalk, "{plan}");
        plan
    }

    /// Every block waits for one that was never started.
    #[test]
    fn blocks_that_wait_in_vain_give_up() -> Result<()> {
        let gpu = Device::cuda(0).and_then(|device| device.on_stream(&device.new_stream()?));
        for device in [Device::cpu()].into_iter().chain(gpu.ok()) {
            let zeros = |shape: &[usize]| Tensor::zeros(&device, DType::F16, shape);
            let (x, w_ih, w_hh) = (zeros(&[3, 2, 8])?, zeros(&[384, 8])?, zeros(&[384, 128])?);
            let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None };
            let layers = [weights];
            let problem = Problem::new("gru_backward", Kind::Gru, &x, &Recurrent::new(&layers))?;
            let layer = Layer::new("gru_backward", Kind::Gru, &x, weights);
            let (gates, state) = (zeros(&[3, 2, 384])?, zeros(&[3, 2, 128])?);
            let (dgx, dgh) = (zeros(&[3, 2, 384])?, zeros(&[3, 2, 384])?);
            let plan = planned(&problem, 1);
            // dh, by blocks that wait for so many that are not there.
            let walk = |patience: u32, absent: u32| {
                let dh = Tensor::zeros(&device, DType::F32, &[2, 128])?;
                let walked = Walked {
                    gx: &gates,
                    gh: &gates,
                    h: &state,
                    c: None,
                    dy: None,
                    dgx: &dgx,
                    dgh: &dgh,
                    dh: &dh,
                    dc: None,
                    sums: None,
                };
                patiently((patience, absent), &layer, &plan, &walked)?;
                dh.to_vec::<f32>()
            };
            // Fewer polls than after which the checker reports a spin.
            let patience = if device.is_cuda() { PATIENCE } else { 2 };
            let error = walk(patience, 1).expect_err("nobody sends what one block more would");
            assert!(matches!(error, Error::Stalled { op: "gru_backward", step: 1, .. }), "{device}: {error}");
            // The device is as good as before.
            assert!(walk(PATIENCE, 0)?.iter().all(|dh| *dh == 0.0));
        }
        Ok(())
    }

    /// Fewer turns than slots and more, which are filled again, in one split and in several, of which the last has fewer, or a turn of one chunk; rows of
    /// the batch that splits do not share out evenly, and too few for all of them.
    #[test]
    fn every_split_gives_the_same() -> Result<()> {
        for (batch, hidden, multiprocessors, splits) in [
            (9, 52, 1, [1, 1]),
            (19, 260, 3, [1, 1]),
            (37, 260, 8, [2, 2]),
            (49, 388, 17, [4, 4]),
            (40, 132, 10, [5, 3]),
            (3, 260, 17, [2, 2]),
            (17, 260, 17, [3, 3]),
        ] {
            all_gradients_are_the_same(&Device::cpu(), DType::F16, [3, batch, 6, hidden], |problem| {
                let plan = planned(problem, multiprocessors);
                let which = usize::from(problem.kind == Kind::Lstm);
                assert_eq!(tiling(&plan).splits(), splits[which], "{plan}");
                vec![plan]
            })?;
        }
        Ok(())
    }

    /// In any order of the blocks' warps: splits without rows, which wait for no sums, do not run ahead of the others.
    #[test]
    fn blocks_may_be_late() -> Result<()> {
        for seed in 1..9 {
            let device = Device::cpu_in_order(seed);
            let (batch, hidden, multiprocessors) = if seed % 2 == 0 { (3, 260, 17) } else { (19, 132, 7) };
            all_gradients_are_the_same(&device, DType::F16, [5, batch, 6, hidden], |problem| {
                vec![planned(problem, multiprocessors)]
            })?;
        }
        Ok(())
    }
}
