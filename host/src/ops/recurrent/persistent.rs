//! All steps in one launch, of blocks that wait for one another; forward and backward.

use super::backward::Walked;
use super::forms::{half_sequence, half_sequence_back};
use super::layer::{Layer, Results};
use super::plan::{PATIENCE, Plan};
use super::{Kind, dense};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::matmul::packed_rows;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::Float;
use cuda_std::kernel::Kernel;
use kernels_gpu::matmul::repack;
use kernels_gpu::recurrent::{self as kernels, Ring, Sequence, has};

/// Runs the steps of gx `[T, B, G·H]`.
pub fn run(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    patiently(PATIENCE, layer, plan, gx, results)
}

/// With blocks that give up after so many polls.
fn patiently(patience: u32, layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    use kernels::sequence_f32;
    match gx.dtype() {
        DType::F32 => {
            let kernel = &sequence_f32::kernels::<f32>()[plan.index];
            typed::<f32>(patience, kernel, layer, plan, gx, results)
        }
        DType::F16 => {
            let kernel = half_sequence::<half::f16>(plan.index);
            typed::<half::f16>(patience, kernel, layer, plan, gx, results)
        }
        _ => {
            let kernel = half_sequence::<half::bf16>(plan.index);
            typed::<half::bf16>(patience, kernel, layer, plan, gx, results)
        }
    }
}

/// An exchange in which nothing is received yet, of so many columns that blocks own and numbers of 2^`parts` parts.
pub fn poisoned(device: &Device, plan: &Plan, columns: usize, parts: u32) -> Result<Tensor> {
    let exchange = Tensor::uninit(device, DType::U32, &[plan.exchange_words()])?;
    let fill = &kernels::poison::ALL[0];
    let packs = plan.words as u64 / 4;
    let grid =
        Grid::xyz((exchange.len() / plan.words) as u64, packs.div_ceil(fill.bounds.threads.into()), 1)?;
    let args = (exchange.view_mut()?, packs as u32, columns as u32, parts);
    // SAFETY: whole sub-batches of whole packs.
    unsafe { device.launch(fill, grid, args)? };
    Ok(exchange)
}

/// The exchange of a plan for so many times, as kernels see it.
fn ring(plan: &Plan, times: usize, patience: u32) -> Ring {
    Ring { slots: plan.slots as u32, period: plan.period(times), words: plan.words as u32, patience }
}

/// [`has::PACKS`] where units of a gate are whole packs in each of these, which are contiguous.
pub fn in_packs(layer: &Layer, of: &[&Tensor]) -> u32 {
    let [_, _, hidden] = layer.extents();
    let whole = (hidden * layer.x.dtype().size()).is_multiple_of(16)
        && of.iter().all(|tensor| tensor.address().is_multiple_of(16));
    if whole { has::PACKS } else { 0 }
}

/// What the kernel of a forward pass is asked for, with rows of w_hh so many elements apart, and what there `has` to be.
pub fn asked(
    layer: &Layer,
    plan: &Plan,
    (y, weight_row): (&Tensor, usize),
    has: u32,
    patience: u32,
) -> Sequence {
    let [steps, batch, hidden] = layer.extents();
    Sequence {
        steps: steps as u32,
        batch: batch as u32,
        hidden: hidden as u32,
        weight_row: weight_row as u32,
        subs: plan.subs as u32,
        rows: (plan.rows / plan.subs) as u32,
        reverse: u32::from(layer.reverse),
        has,
        y_time: y.strides()[0] as i64,
        y_row: y.strides()[1] as i64,
        ring: ring(plan, steps, patience),
    }
}

fn typed<T: Element + Float + repack::Instances>(
    patience: u32,
    kernel: &Kernel<kernels::sequence::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    gx: &Tensor,
    results: Results,
) -> Result<()> {
    let device = gx.device();
    let parts = u32::from(gx.dtype() == DType::F32);
    let exchange = poisoned(device, plan, plan.blocks * plan.units, parts)?;
    let (weight, weight_row) = packed_rows::<T>(layer.op, layer.weights.w_hh)?;
    let given = layer.given()?;
    let (gh, cells, kept) = results.kept();
    let p = asked(layer, plan, (results.y, weight_row), given.has | in_packs(layer, &[gx]) | kept, patience);
    let slot = device.wait_slot(layer.op)?;
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

/// What the kernel of a gradient is asked for, with rows of the weights so many elements apart, and dy, if any, in whole packs.
pub fn asked_back(layer: &Layer, plan: &Plan, walked: &Walked, weight_row: usize) -> Sequence {
    let [steps, batch, hidden] = layer.extents();
    let packs = in_packs(layer, &[walked.gx, walked.gh, walked.state()]);
    Sequence {
        steps: steps as u32,
        batch: batch as u32,
        hidden: hidden as u32,
        weight_row: weight_row as u32,
        subs: plan.subs as u32,
        rows: (plan.rows / plan.subs) as u32,
        reverse: u32::from(layer.reverse),
        has: walked.has(layer) | packs,
        y_time: 0,
        y_row: 0,
        ring: ring(plan, steps + 1, PATIENCE),
    }
}

/// Walks the steps backwards.
pub fn walk_back(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    use kernels::sequence_back_f32;
    match walked.gx.dtype() {
        DType::F32 => {
            typed_back::<f32>(&sequence_back_f32::kernels::<f32>()[plan.index], layer, plan, walked)
        }
        DType::F16 => {
            typed_back::<half::f16>(half_sequence_back::<half::f16>(plan.index), layer, plan, walked)
        }
        _ => typed_back::<half::bf16>(half_sequence_back::<half::bf16>(plan.index), layer, plan, walked),
    }
}

fn typed_back<T: Element + Float + repack::Instances>(
    kernel: &Kernel<kernels::sequence_back::Args<T>>,
    layer: &Layer,
    plan: &Plan,
    walked: &Walked,
) -> Result<()> {
    let device = walked.gx.device();
    // Columns that blocks own, of 16 bits; of f32 a chunk has half as many.
    let columns = layer.kind.gates() * plan.blocks * plan.units * T::DTYPE.size() / 2;
    let exchange = poisoned(device, plan, columns, 0)?;
    let (weight, weight_row) = packed_rows::<T>(layer.op, &layer.turned()?)?;
    let dy = walked.dy.map(|dy| aligned(dy, 16)).transpose()?;
    let p = asked_back(layer, plan, walked, weight_row);
    let slot = device.wait_slot(layer.op)?;
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
        write(walked.sums)?,
        exchange.view_mut()?,
        slot.view(),
        p,
    );
    let grid = Grid::xyz(plan.blocks as u64, plan.groups as u64, 1)?.shared(plan.shared_bytes).cooperative();
    let grid = if plan.cluster > 1 { grid.cluster(plan.cluster as u32) } else { grid };
    // SAFETY: as in `typed`; the plan's blocks own whole chunks.
    unsafe { device.launch(kernel, grid, args)? };
    slot.finish()
}

/// A contiguous tensor that starts at a multiple of so many bytes, 4 to 16.
pub fn aligned(tensor: &Tensor, bytes: usize) -> Result<Tensor> {
    let tensor = dense(tensor)?;
    if tensor.address().is_multiple_of(bytes as _) {
        return Ok(tensor);
    }
    let copy = Tensor::uninit(tensor.device(), tensor.dtype(), tensor.shape())?;
    copy.copy_from(&tensor)?;
    Ok(copy)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::error::Error;
    use crate::ops::recurrent::backward::{self, Upward};
    use crate::ops::recurrent::layer::Aside;
    use crate::ops::recurrent::plan::{Choice, Target};
    use crate::ops::recurrent::{LayerGradients, RecurrentWeights};
    use crate::ops::{self, Recurrent, recurrent::problem::Problem};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Every block waits for units that none owns, as it would for a block that was never started.
    #[test]
    fn blocks_that_wait_in_vain_give_up() -> Result<()> {
        waits_in_vain(Choice::Persistent, |patience, layer, plan, results| {
            patiently(patience, layer, plan, &layer.gx()?, results)
        })
    }

    /// Runs a layer whose blocks wait for units that none owns, and then the same as it should be.
    pub fn waits_in_vain(
        choice: Choice,
        run: impl Fn(u32, &Layer, &Plan, Results) -> Result<()>,
    ) -> Result<()> {
        let gpu = Device::cuda(0).and_then(|device| device.on_stream(&device.new_stream()?));
        for device in [Device::cpu()].into_iter().chain(gpu.ok()) {
            let zeros = |shape: &[usize]| Tensor::zeros(&device, DType::F16, shape);
            let (x, w_ih, w_hh) = (zeros(&[3, 2, 8])?, zeros(&[96, 8])?, zeros(&[96, 32])?);
            let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None };
            let layers = [weights];
            let problem = Problem::new("gru", Kind::Gru, &x, &Recurrent::new(&layers))?;
            let plan = Plan::by(choice, &problem, Target::of(&device));
            let waiting = Plan { units: 2 * plan.units, ..plan };
            let layer = Layer::new("gru", Kind::Gru, &x, weights);
            let (y, h_n) = (zeros(&[3, 2, 32])?, zeros(&[2, 32])?);
            let results = Results { y: &y, h_n: &h_n, c_n: None, aside: None };
            // Fewer polls than after which the checker reports a spin.
            let patience = if device.is_cuda() { PATIENCE } else { 2 };
            let ended =
                run(patience, &layer, &waiting, results).and_then(|()| h_n.to_vec::<half::f16>().map(drop));
            let error = ended.expect_err("nobody sends the units beyond");
            assert!(matches!(error, Error::Stalled { op: "gru", step: 0, .. }), "{device}: {error}");
            // The device is as good as before.
            run(PATIENCE, &layer, &plan, results)?;
            assert!(h_n.to_vec::<half::f16>()?.iter().all(|h| h.to_f32() == 0.0));
        }
        Ok(())
    }

    /// Multiprocessors, and rows of the batch: with few, groups have several sub-batches, an odd number of them as well, and with many
    /// a few rows each, of which the last group has less.
    const SHARES: [(usize, usize); 3] = [(4, 37), (8, 37), (132, 9)];

    /// Whatever is dealt out to blocks and turns, by kernels for more units, too: against a step at a time.
    #[test]
    fn every_kernel_gives_the_same() -> Result<()> {
        for (multiprocessors, batch) in SHARES {
            all_give_the_same(&Device::cpu(), [5, batch, 6, 50], |problem| {
                let plans =
                    Plan::all_spread(problem, Target { multiprocessors, ..Target::of(&Device::cpu()) });
                assert!(plans.len() > 4, "{} kernels", plans.len());
                assert!(plans.iter().all(|plan| plan.choice == Choice::Persistent));
                plans
            })?;
        }
        Ok(())
    }

    /// Runs layers of `[steps, batch, columns, units]` by plans for them, against a step at a time.
    pub fn all_give_the_same(
        device: &Device,
        [steps, batch, input, hidden]: [usize; 4],
        plans: impl Fn(&Problem) -> Vec<Plan>,
    ) -> Result<()> {
        let mut random = StdRng::seed_from_u64(7);
        let mut filled = |shape: &[usize]| {
            let count = shape.iter().product();
            let data: Vec<_> =
                (0..count).map(|_| half::f16::from_f32(random.random_range(-1.0..1.0))).collect();
            Tensor::from_slice(device, shape, &data)
        };
        for kind in [Kind::Gru, Kind::Lstm] {
            let (rows, is_lstm) = (kind.gates() * hidden, kind == Kind::Lstm);
            let op = if is_lstm { "lstm" } else { "gru" };
            let x = filled(&[steps, batch, input])?;
            let (w_ih, w_hh) = (filled(&[rows, input])?, filled(&[rows, hidden])?);
            let (b_ih, b_hh) = (filled(&[rows])?, filled(&[rows])?);
            let (h0, c0) = (filled(&[batch, hidden])?, filled(&[batch, hidden])?);
            let lengths: Vec<i32> = (0..batch as i32).map(|row| 1 + row % steps as i32).collect();
            let lengths = Tensor::from_slice(device, &[batch], &lengths)?;
            let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: Some(&b_ih), b_hh: Some(&b_hh) };
            let layer = Layer {
                op,
                kind,
                x: &x,
                weights,
                h0: Some(&h0),
                c0: is_lstm.then_some(&c0),
                lengths: Some(&lengths),
                reverse: is_lstm,
                tf32: false,
            };
            let gx = layer.gx()?;
            // y, the last states, and what is kept.
            let by = |plan: Option<&Plan>| -> Result<Vec<half::f16>> {
                let zeros = |shape: &[usize]| Tensor::zeros(device, DType::F16, shape);
                let (y, h_n, c_n) =
                    (zeros(&[steps, batch, hidden])?, zeros(&[batch, hidden])?, zeros(&[batch, hidden])?);
                let (gh, c) = (zeros(&[steps, batch, rows])?, zeros(&[steps, batch, hidden])?);
                let aside = Some(Aside { gh: &gh, c: is_lstm.then_some(&c) });
                let results = Results { y: &y, h_n: &h_n, c_n: is_lstm.then_some(&c_n), aside };
                match plan {
                    Some(plan) => layer.walk(plan, &gx, results)?,
                    None => layer.by_steps(&gx, results)?,
                }
                let all = [&y, &h_n, &c_n, &gh, &c].map(|tensor| tensor.to_vec::<half::f16>());
                Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
            };
            let want = by(None)?;
            let layers = [weights];
            let problem = Problem::new(op, kind, &x, &Recurrent::new(&layers))?;
            for plan in plans(&problem) {
                for (at, (got, want)) in by(Some(&plan))?.iter().zip(&want).enumerate() {
                    let (got, want) = (got.to_f32(), want.to_f32());
                    // Sums of so many terms, rounded to f16 on the way.
                    let most = 8e-3 * (hidden as f32 / 50.0).sqrt() * want.abs().max(1.0);
                    assert!((got - want).abs() <= most, "{plan}: {at}: {got}, {want}");
                }
            }
        }
        Ok(())
    }

    /// Whatever is dealt out to blocks, pairs and turns, by kernels for more units, too: against a step at a time.
    #[test]
    fn every_kernel_of_the_gradient_gives_the_same() -> Result<()> {
        for (multiprocessors, batch) in SHARES {
            for dtype in [DType::F16, DType::F32] {
                all_gradients_are_the_same(&Device::cpu(), dtype, [5, batch, 6, 50], |problem| {
                    let target = Target { multiprocessors, ..Target::of(&Device::cpu()) };
                    let plans = Plan::all_spread_back(problem, target);
                    assert!(plans.len() >= 3, "{} kernels", plans.len());
                    assert!(plans.iter().all(|plan| plan.choice == Choice::Persistent));
                    plans
                })?;
            }
        }
        Ok(())
    }

    /// Runs on the CPU, in three orders of the blocks' warps, for a GPU of few multiprocessors.
    fn in_any_order(run: impl Fn(&Device, Target) -> Result<()>) -> Result<()> {
        (1..4).try_for_each(|seed| {
            let device = Device::cpu_in_order(seed);
            run(&device, Target { multiprocessors: 8, ..Target::of(&device) })
        })
    }

    /// Plans of which there are some, all persistent.
    fn checked(plans: Vec<Plan>) -> Vec<Plan> {
        assert!(plans.len() >= 3, "{} kernels", plans.len());
        assert!(plans.iter().all(|plan| plan.choice == Choice::Persistent));
        plans
    }

    const LATE: [usize; 4] = [5, 19, 6, 50];

    #[test]
    fn blocks_may_be_late() -> Result<()> {
        in_any_order(|device, target| {
            all_give_the_same(device, LATE, |problem| checked(Plan::all_spread(problem, target)))
        })
    }

    fn blocks_of_gradients_may_be_late(dtype: DType) -> Result<()> {
        in_any_order(|device, target| {
            let plans = |problem: &Problem| checked(Plan::all_spread_back(problem, target));
            all_gradients_are_the_same(device, dtype, LATE, plans)
        })
    }

    #[test]
    fn blocks_of_f16_gradients_may_be_late() -> Result<()> {
        blocks_of_gradients_may_be_late(DType::F16)
    }

    #[test]
    fn blocks_of_f32_gradients_may_be_late() -> Result<()> {
        blocks_of_gradients_may_be_late(DType::F32)
    }

    /// As [`all_give_the_same`], of gradients.
    pub fn all_gradients_are_the_same(
        device: &Device,
        dtype: DType,
        extents: [usize; 4],
        plans: impl Fn(&Problem) -> Vec<Plan>,
    ) -> Result<()> {
        gradients_are_the_same((device, Kind::Gru), dtype, extents, &plans)?;
        gradients_are_the_same((device, Kind::Lstm), dtype, extents, &plans)
    }

    fn gradients_are_the_same(
        (device, kind): (&Device, Kind),
        dtype: DType,
        [steps, batch, input, hidden]: [usize; 4],
        plans: impl Fn(&Problem) -> Vec<Plan>,
    ) -> Result<()> {
        let mut random = StdRng::seed_from_u64(8);
        let mut filled = |shape: &[usize]| {
            let count = shape.iter().product();
            let data: Vec<f32> = (0..count).map(|_| random.random_range(-1.0..1.0)).collect();
            ops::cast(&Tensor::from_slice(device, shape, &data)?, dtype)
        };
        let (rows, is_lstm) = (kind.gates() * hidden, kind == Kind::Lstm);
        let x = filled(&[steps, batch, input])?;
        let (w_ih, w_hh) = (filled(&[rows, input])?, filled(&[rows, hidden])?);
        let (h0, c0, y) = (filled(&[batch, hidden])?, filled(&[batch, hidden])?, [steps, batch, hidden]);
        let (y, dy, dh, dc) =
            (filled(&y)?, filled(&y)?, filled(&[batch, hidden])?, filled(&[batch, hidden])?);
        let lengths: Vec<i32> = (0..batch as i32).map(|row| 1 + row % steps as i32).collect();
        let lengths = Tensor::from_slice(device, &[batch], &lengths)?;
        let (b_ih, b_hh) = (filled(&[rows])?, filled(&[rows])?);
        let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: Some(&b_ih), b_hh: Some(&b_hh) };
        let layer = Layer {
            h0: Some(&h0),
            c0: is_lstm.then_some(&c0),
            lengths: Some(&lengths),
            reverse: is_lstm,
            ..Layer::new("gru_backward", kind, &x, weights)
        };
        let by = |plan: &Plan| -> Result<Vec<Vec<f32>>> {
            let upward =
                Upward { dy: Some(dy.clone()), dh: Some(dh.clone()), dc: is_lstm.then(|| dc.clone()) };
            let got = backward::run(&layer, plan, (&y, None), upward, None)?;
            let LayerGradients { dw_ih, dw_hh, db_ih, db_hh } = got.weights;
            let all = [Some(got.dx), Some(got.dh), got.dc, Some(dw_ih), Some(dw_hh), db_ih, db_hh];
            let floats = |tensor: Tensor| ops::cast(&tensor, DType::F32)?.to_vec::<f32>();
            all.into_iter().flatten().map(floats).collect()
        };
        let want = by(&Plan::steps(""))?;
        let layers = [weights];
        let problem = Problem::new("gru_backward", kind, &x, &Recurrent::new(&layers))?;
        for plan in plans(&problem) {
            for (which, (got, want)) in by(&plan)?.iter().zip(&want).enumerate() {
                let largest = want.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                let unit = if dtype == DType::F32 { 1e-5 } else { 8e-3 * (hidden as f32 / 50.0).sqrt() };
                for (at, (got, want)) in got.iter().zip(want).enumerate() {
                    let error = (got - want).abs();
                    assert!(error <= unit * largest, "{plan}: {which} {at}: {got}, {want}, {largest}");
                }
            }
        }
        Ok(())
    }
}
