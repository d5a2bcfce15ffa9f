//! One layer in one direction, backward.

use super::layer::{Layer, at, product};
use super::plan::{Choice, Plan};
use super::walk::{Carried, Number, Operands, blocks_of, step_back};
use super::{
    Kept, Kind, LayerGradients, block, carried, clustered, dense, persistent, streamed, streamed_walk,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::column_sums::column_sums;
use crate::ops::linear::bias_gradient;
use crate::ops::pointwise::with_float;
use crate::ops::views::read;
use crate::ops::{self, Linear, Matmul};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use kernels_gpu::recurrent::{self as kernels, COLUMNS, Walk, has};

/// The gradients of what the layer gave.
pub struct Upward {
    /// `[T, B, H]`, of any strides.
    pub dy: Option<Tensor>,
    /// `[B, H]`.
    pub dh: Option<Tensor>,
    pub dc: Option<Tensor>,
}

/// What a layer's gradient is.
pub struct Gradients {
    /// `[T, B, I]`.
    pub dx: Tensor,
    /// f32 `[B, H]`, of the initial states.
    pub dh: Tensor,
    pub dc: Option<Tensor>,
    pub weights: LayerGradients,
}

/// The gradients of a layer that gave y. `dx` is added to that of x.
pub fn run(
    layer: &Layer,
    plan: &Plan,
    (y, kept): (&Tensor, Option<&Kept>),
    upward: Upward,
    dx: Option<&Tensor>,
) -> Result<Gradients> {
    with_float!(layer.x.dtype(), T => typed::<T>(layer, plan, (y, kept), upward, dx))
}

/// What the walk over the steps reads and writes; all but dy contiguous.
pub struct Walked<'a> {
    /// The gates' inputs, `[T, B, G·H]`.
    pub gx: &'a Tensor,
    pub gh: &'a Tensor,
    /// What each step began with, `[T, B, H]`.
    pub h: &'a Tensor,
    pub c: Option<&'a Tensor>,
    /// `[T, B, H]`, with units that are neighbours in memory.
    pub dy: Option<&'a Tensor>,
    /// The gradients of gx and gh, one tensor for an LSTM.
    pub dgx: &'a Tensor,
    pub dgh: &'a Tensor,
    /// Those of the state, f32 `[B, H]`: of the last one before, of the initial one after.
    pub dh: &'a Tensor,
    pub dc: Option<&'a Tensor>,
    /// Where the plan has rows for them, sums of dgx and of dgh over rows and steps, f32 `[of both, rows, G·H]`.
    pub sums: Option<&'a Tensor>,
}

impl Walked<'_> {
    /// The part of what each step began with that gates are computed from: c of an LSTM, h of a GRU.
    pub fn state(&self) -> &Tensor {
        self.c.unwrap_or(self.h)
    }

    /// The bits of what may be absent.
    pub fn has(&self, layer: &Layer) -> u32 {
        let given = [
            (self.dy.is_some(), has::Y),
            (self.sums.is_some(), has::SUMS),
            (layer.lengths.is_some(), has::LENGTHS),
        ];
        given.iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit)
    }
}

fn typed<T: Number>(
    layer: &Layer,
    plan: &Plan,
    (y, kept): (&Tensor, Option<&Kept>),
    upward: Upward,
    sum: Option<&Tensor>,
) -> Result<Gradients> {
    let [steps, batch, hidden] = layer.extents();
    let (kind, device, dtype) = (layer.kind, layer.x.device(), layer.x.dtype());
    let is_lstm = kind == Kind::Lstm;
    let rows = kind.gates() * hidden;
    let uninit = |shape: &[usize]| Tensor::uninit(device, dtype, shape);
    let all = [steps, batch, rows];

    let starts = match kept.and_then(|kept| kept.c.as_ref()) {
        Some(cells) => Starts::of_results(layer, y, cells)?,
        None => None,
    };
    let starts = starts.map_or_else(|| Starts::laid_out::<T>(layer, y), Ok)?;
    let before = &starts.all;
    let tf32 = layer.tf32;
    let again = || {
        let with_bias = Linear { bias: layer.weights.b_hh, tf32, ..Linear::default() };
        let gx = layer.gx()?;
        let flat = before.reshape(&[steps * batch, hidden])?;
        let gh = ops::linear(&flat, layer.weights.w_hh, &with_bias)?.reshape(&all)?;
        let c = if is_lstm { Some(uninit(&[steps, batch, hidden])?) } else { None };
        if let Some(c) = &c {
            cells_into::<T>(layer, &gx, &gh, c)?;
        }
        Ok(Kept { gx, gh, c })
    };
    let Kept { gx, gh, c: cells } = kept.cloned().map_or_else(again, Ok)?;

    // The gradients of gx and gh, which are the same for an LSTM.
    let dgx = uninit(&all)?;
    let dgh = if is_lstm { dgx.clone() } else { uninit(&all)? };
    let or_zeros = |given: Option<&Tensor>| match given {
        Some(given) => carried(given),
        None => Tensor::zeros(device, DType::F32, &[batch, hidden]),
    };
    let dh = or_zeros(upward.dh.as_ref())?;
    let dc = if is_lstm { Some(or_zeros(upward.dc.as_ref())?) } else { None };
    let dy = upward.dy.as_ref().map(rows_of_units).transpose()?;
    let has_bias = layer.weights.b_ih.is_some() || layer.weights.b_hh.is_some();
    let row_count = rows_of_sums(layer, plan).filter(|_| has_bias && !gx.is_empty());
    let of_sums = |count| Tensor::uninit(device, DType::F32, &[if is_lstm { 1 } else { 2 }, count, rows]);
    let sums = row_count.map(of_sums).transpose()?;
    let walked = Walked {
        gx: &gx,
        gh: &gh,
        h: before,
        c: cells.as_ref(),
        dy: dy.as_ref(),
        dgx: &dgx,
        dgh: &dgh,
        dh: &dh,
        dc: dc.as_ref(),
        sums: sums.as_ref(),
    };
    // The parts of the weights take as much memory as these, and are made by one launch.
    let or_by_steps = |done: Result<()>| match done {
        Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => {
            step_by_step::<T>(layer, &walked).map(|()| false)
        }
        done => done.map(|()| true),
    };
    // Whether sums are there.
    let mut summed = sums.is_some();
    if !walked.gx.is_empty() {
        match plan.choice {
            Choice::Block => block::walk_back(layer, plan, &walked)?,
            Choice::Clustered => clustered::walk_back(layer, plan, &walked)?,
            Choice::Persistent => persistent::walk_back(layer, plan, &walked)?,
            Choice::StreamedWalk => summed &= or_by_steps(streamed_walk::walk_back(layer, plan, &walked))?,
            Choice::Streamed => summed &= or_by_steps(streamed::walk_back(layer, plan, &walked))?,
            Choice::Steps | Choice::Fused => step_by_step::<T>(layer, &walked)?,
        }
    }
    let flat_of = |tensor: &Tensor| tensor.reshape(&[steps * batch, rows]);
    let (dgx, dgh) = (flat_of(&dgx)?, flat_of(&dgh)?);
    let addend = sum.map(|sum| sum.reshape(&[steps * batch, layer.x.shape()[2]])).transpose()?;
    let dx =
        ops::matmul(&dgx, layer.weights.w_ih, &Matmul { c: addend.as_ref(), tf32, ..Matmul::default() })?;
    let weight = |d: &Tensor, of: &Tensor| {
        ops::matmul(d, of, &Matmul { transpose_a: true, tf32, ..Matmul::default() })
    };
    let of_bias = |which: usize, d: &Tensor| match sums.as_ref().filter(|_| summed) {
        None => bias_gradient(d),
        Some(sums) => {
            let dbias = uninit(&[rows])?;
            column_sums(&at(sums, which)?, &dbias)?;
            Ok(dbias)
        }
    };
    let db_ih = layer.weights.b_ih.map(|_| of_bias(0, &dgx)).transpose()?;
    let db_hh = match (&layer.weights.b_hh, &db_ih) {
        (None, _) => None,
        (Some(_), Some(same)) if is_lstm => Some(ops::contiguous(same)?),
        _ => Some(of_bias(usize::from(!is_lstm), &dgh)?),
    };
    let dw_ih = weight(&dgx, &layer.rows()?)?;
    let [first, last] = starts.of_steps.map(|step| step * batch);
    let dw_hh = weight(&dgh.narrow(0, first, last - first)?, &starts.rows)?;
    let weights = LayerGradients { dw_ih, dw_hh, db_ih, db_hh };
    Ok(Gradients { dx: dx.reshape(layer.x.shape())?, dh, dc, weights })
}

/// Steps from which on sums that a walk leaves are fewer than what they are sums of.
const SUMMED_STEPS: usize = 4;

/// The rows of sums over steps that the walk of a plan leaves, if it does: each of what a thread has of units.
fn rows_of_sums(layer: &Layer, plan: &Plan) -> Option<usize> {
    let [steps, ..] = layer.extents();
    let columns = COLUMNS as usize;
    match plan.choice {
        _ if steps < SUMMED_STEPS => None,
        // There are no registers for them.
        Choice::Persistent if layer.x.dtype() == DType::F32 && layer.kind == Kind::Lstm => None,
        Choice::Persistent => Some(plan.groups * plan.cluster * columns),
        Choice::StreamedWalk => Some(streamed::tiling(plan).splits() * columns),
        _ => None,
    }
}

/// The gates' gradient and a product for each step.
fn step_by_step<T: Number>(layer: &Layer, walked: &Walked) -> Result<()> {
    let [steps, batch, hidden] = layer.extents();
    let through = Tensor::uninit(layer.x.device(), DType::F32, &[batch, hidden])?;
    let is_lstm = layer.kind == Kind::Lstm;
    for now in (0..steps).rev() {
        let time = layer.time(now);
        let of = |tensor: &Tensor| at(tensor, time);
        let (gx, gh, h) = (of(walked.gx)?, of(walked.gh)?, of(walked.h)?);
        let (c, y) = (walked.c.map(of).transpose()?, walked.dy.map(of).transpose()?);
        let (to_x, to_h) = (of(walked.dgx)?, of(walked.dgh)?);
        let (c, y, lengths) = (c.as_ref(), y.as_ref(), layer.lengths);
        let operands = Operands { op: layer.op, gx: &gx, gh: &gh, h: &h, c, lengths, y, time };
        let product_of_next = (now + 1 < steps).then_some(&through);
        let carried =
            Carried { dh: walked.dh, dc: walked.dc, product: product_of_next, begun: true, dc_begun: true };
        step_back::<T>(layer.kind, &operands, carried, &to_x, (!is_lstm).then_some(&to_h))?;
        product(&to_h, layer.weights.w_hh, false, &through)?;
    }
    walked.dh.copy_from(&ops::add(walked.dh, &through)?)
}

/// dy with units that are neighbours in memory.
fn rows_of_units(dy: &Tensor) -> Result<Tensor> {
    let together = dy.strides()[2] == 1 || dy.shape()[2] == 1;
    if together { Ok(dy.clone()) } else { dense(dy) }
}

/// Over `[T, B, units]` from the first time to the last, with `width` units a thread; rows and times of y as far apart as they are.
fn walk_over([steps, batch, units]: [usize; 3], y: Option<&Tensor>, width: usize) -> Walk {
    Walk {
        units: Divisor::new((units / width) as u32).expect("units are between 1 and 2^30"),
        steps: steps as u32,
        batch: batch as u32,
        hidden: units as u32,
        reverse: 0,
        has: 0,
        y_time: y.map_or(0, |y| y.strides()[0] as i64),
        y_row: y.map_or(0, |y| y.strides()[1] as i64),
    }
}

/// Over a layer.
fn walk(layer: &Layer, y: Option<&Tensor>, has: u32, width: usize) -> Walk {
    let has = has | if layer.lengths.is_some() { has::LENGTHS } else { 0 };
    Walk { reverse: u32::from(layer.reverse), has, ..walk_over(layer.extents(), y, width) }
}

/// The h that steps began with.
struct Starts {
    /// `[T, B, H]`: of all steps; of an LSTM, whose walk has no use for them, anything.
    all: Tensor,
    /// `[steps·B, H]`: of those times whose h is not zero.
    rows: Tensor,
    /// The first of these, and the one behind the last.
    of_steps: [usize; 2],
}

impl Starts {
    fn laid_out<T: Number>(layer: &Layer, y: &Tensor) -> Result<Starts> {
        let [steps, batch, hidden] = layer.extents();
        let all = previous::<T>(layer, y)?;
        let rows = all.reshape(&[steps * batch, hidden])?;
        Ok(Starts { all, rows, of_steps: [0, steps] })
    }

    /// As they lie in y, where each step but the first begins with what the one before it gave.
    fn of_results(layer: &Layer, y: &Tensor, cells: &Tensor) -> Result<Option<Starts>> {
        let [steps, batch, hidden] = layer.extents();
        let rows_follow = y.strides()[0] == batch as isize * y.strides()[1];
        if steps < 2 || layer.h0.is_some() || layer.lengths.is_some() || !rows_follow {
            return Ok(None);
        }
        let (first, of_steps) = if layer.reverse { (1, [0, steps - 1]) } else { (0, [1, steps]) };
        let rows = y.narrow(0, first, steps - 1)?.reshape(&[(steps - 1) * batch, hidden])?;
        Ok(Some(Starts { all: cells.clone(), rows, of_steps }))
    }
}

/// The h that each step began with, `[T, B, H]`.
fn previous<T: Number>(layer: &Layer, y: &Tensor) -> Result<Tensor> {
    let [steps, batch, hidden] = layer.extents();
    let before = Tensor::uninit(y.device(), y.dtype(), &[steps, batch, hidden])?;
    if before.is_empty() {
        return Ok(before);
    }
    let y = rows_of_units(y)?;
    let h0 = layer.h0.map(dense).transpose()?;
    let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(4 * tensor.dtype().size() as u64);
    let together = fours_together(&y) && h0.as_ref().is_none_or(aligned);
    let kernel = &kernels::previous::kernels::<T>()[usize::from(together)];
    let width = kernel.constant("WIDTH");
    let p = walk(layer, Some(&y), if h0.is_some() { has::H } else { 0 }, width);
    let blocks = blocks_of(layer.op, [batch, hidden / width], kernel.bounds.threads)?;
    over_times(steps, blocks, |grid, first| {
        let args = (y.view::<T>()?, read(h0.as_ref())?, read(layer.lengths)?, before.view_mut()?, p, first);
        // SAFETY: tensors of the layer's extents, aligned where units go together, and threads for all units of each row and time.
        unsafe { y.device().launch(kernel, grid, args) }
    })?;
    Ok(before)
}

/// x `[T, B, I]` with zeros behind the lengths: there gradients are 0, and x anything, by which the product for w_ih multiplies them.
pub fn within_lengths(op: &'static str, x: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    with_float!(x.dtype(), T => within::<T>(op, x, lengths))
}

fn within<T: Number>(op: &'static str, x: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    let to = Tensor::uninit(x.device(), x.dtype(), x.shape())?;
    if to.is_empty() {
        return Ok(to);
    }
    let x = rows_of_units(x)?;
    let extents @ [steps, batch, columns] = [0, 1, 2].map(|dim| x.shape()[dim]);
    let kernel = &kernels::within_lengths::kernels::<T>()[usize::from(fours_together(&x))];
    let width = kernel.constant("WIDTH");
    let p = walk_over(extents, Some(&x), width);
    let blocks = blocks_of(op, [batch, columns / width], kernel.bounds.threads)?;
    over_times(steps, blocks, |grid, first| {
        let args = (x.view::<T>()?, lengths.view()?, to.view_mut()?, p, first);
        // SAFETY: as in `previous`; a length for each row.
        unsafe { x.device().launch(kernel, grid, args) }
    })?;
    Ok(to)
}

/// Whether four neighbours of `[T, B, ..]` lie together, from a multiple of their size on.
fn fours_together(tensor: &Tensor) -> bool {
    tensor.shape()[2].is_multiple_of(4)
        && tensor.address().is_multiple_of(4 * tensor.dtype().size() as u64)
        && tensor.strides()[..2].iter().all(|stride| stride.unsigned_abs().is_multiple_of(4))
}

/// Launches grids of so many blocks for each time, with the times from the given one on along y.
fn over_times(steps: usize, blocks: u64, launch: impl Fn(Grid, u32) -> Result<()>) -> Result<()> {
    // A grid has 65,535 along y.
    for first in (0..steps).step_by(Grid::MAX_YZ as usize) {
        let times = (steps - first).min(Grid::MAX_YZ as usize);
        launch(Grid::xyz(blocks, times as u64, 1)?, first as u32)?;
    }
    Ok(())
}

/// Writes the c that each step began with into `before`, `[T, B, H]`, contiguous.
pub fn cells_into<T: Number>(layer: &Layer, gx: &Tensor, gh: &Tensor, before: &Tensor) -> Result<()> {
    if before.is_empty() {
        return Ok(());
    }
    let [_, batch, hidden] = layer.extents();
    let c0 = layer.c0.map(dense).transpose()?;
    let p = walk(layer, None, if c0.is_some() { has::C } else { 0 }, 1);
    let kernel = &kernels::cells::kernels::<T>()[0];
    let grid = Grid::new(blocks_of(layer.op, [batch, hidden], kernel.bounds.threads)?)?;
    let args =
        (gx.view::<T>()?, gh.view::<T>()?, read(c0.as_ref())?, read(layer.lengths)?, before.view_mut()?, p);
    // SAFETY: tensors of the layer's extents, and a thread for each unit of each row.
    unsafe { gx.device().launch(kernel, grid, args) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::ops::RecurrentWeights;

    /// Nothing is read behind y, which a GPU would do unnoticed: there lengths are checked beside what goes on.
    #[test]
    fn lengths_that_are_too_large_are_as_good_as_all_steps() {
        let device = Device::cpu();
        let zeros = |shape: &[usize]| Tensor::zeros(&device, DType::F32, shape).unwrap();
        let (x, w_ih, w_hh, h0) = (zeros(&[3, 4, 1]), zeros(&[6, 1]), zeros(&[6, 2]), zeros(&[4, 2]));
        let numbers: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let y = Tensor::from_slice(&device, &[3, 4, 2], &numbers).unwrap();
        let before = |lengths: [i32; 4], reverse| {
            let lengths = Tensor::from_slice(&device, &[4], &lengths).unwrap();
            let layer = Layer {
                op: "gru_backward",
                kind: Kind::Gru,
                x: &x,
                weights: RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: None, b_hh: None },
                h0: Some(&h0),
                c0: None,
                lengths: Some(&lengths),
                reverse,
                tf32: false,
            };
            previous::<f32>(&layer, &y).unwrap().to_vec::<f32>().unwrap()
        };
        for reverse in [false, true] {
            assert_eq!(before([4, i32::MAX, 3, 1], reverse), before([3, 3, 3, 1], reverse));
            assert_eq!(before([-1, i32::MIN, 0, 1], reverse), before([0, 0, 0, 1], reverse));
        }
    }
}
