//! Two launches a step, with weights that were taken apart for all of them; forward and backward.

use super::backward::Walked;
use super::layer::{Layer, Results, at};
use super::plan::Plan;
use super::tiling::{Tiling, padded, parts};
use super::walk::wide;
use super::{Kind, carried, dense};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops;
use crate::ops::matmul::map_of_operand;
use crate::ops::pointwise::with_float;
use crate::ops::views::{read, write};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use cuda_std::tma::TensorMap;
use cuda_std::{Float, GlobalMut};
use kernels_gpu::matmul::Matrix;
use kernels_gpu::recurrent::{
    self as kernels, STREAM_COLUMNS, StreamProduct, StreamStep, TERMS, TakeApart, has,
};

/// Units of a thread.
pub const FOUR: usize = 4;

/// A type with all kernels.
pub trait Number:
    Element
    + Float
    + kernels::take_apart::Instances
    + kernels::stream_gates::Instances
    + kernels::stream_gates_back::Instances
{
}
impl<T> Number for T where
    T: Element
        + Float
        + kernels::take_apart::Instances
        + kernels::stream_gates::Instances
        + kernels::stream_gates_back::Instances
{
}

/// Parts of an operand, the weights or what they are multiplied with.
pub struct InParts {
    /// `[parts, chunks, lines, TERMS]`, 16-bit.
    numbers: Tensor,
    /// 1 over the scales, of f32: `[chunks, lines]`.
    scales: Tensor,
}

impl InParts {
    fn uninit(device: &Device, dtype: DType, [lines, terms]: [usize; 2]) -> Result<InParts> {
        let of_part = if dtype == DType::F32 { DType::F16 } else { dtype };
        let chunks = terms / TERMS as usize;
        let numbers = Tensor::uninit(device, of_part, &[parts(dtype), chunks, lines, TERMS as usize])?;
        let scales = if dtype == DType::F32 { lines * chunks } else { 0 };
        Ok(InParts { numbers, scales: Tensor::uninit(device, DType::F32, &[scales])? })
    }

    /// Of a contiguous `[gates, lines, units]`: lines of all gates' units, each gate's padded with zeros.
    pub fn of<T: Number>(whole: &Tensor) -> Result<InParts> {
        let &[gates, lines, units] = whole.shape() else { unreachable!("three dimensions") };
        let of = InParts::uninit(whole.device(), whole.dtype(), [lines, gates * padded(units)])?;
        let fours = padded(units) / FOUR;
        let p = TakeApart {
            fours: divisor(fours)?,
            gates: divisor(gates)?,
            lines: lines as u32,
            hidden: units as u32,
        };
        let together = units.is_multiple_of(FOUR)
            && whole.address().is_multiple_of((FOUR * whole.dtype().size()) as u64);
        let kernel = &kernels::take_apart::kernels::<T>()[usize::from(together)];
        let threads = (lines * gates * fours) as u64;
        if threads >= 1 << 31 {
            let (op, what, got) = ("recurrent layer", "fours of weights", threads.to_string());
            return Err(Error::TooLarge { op, what, limit: (1 << 31) - 1, got });
        }
        let grid = Grid::covering(threads, kernel.bounds.threads.into())?;
        let args = (whole.view()?, of.words()?, of.scales.view_mut()?, p);
        // SAFETY: tensors of these extents, and a thread for each four terms.
        unsafe { whole.device().launch(kernel, grid, args)? };
        Ok(of)
    }

    /// The numbers as words of two.
    fn words(&self) -> Result<GlobalMut<u32>> {
        // SAFETY: lines are whole words, from a multiple of 4 bytes on.
        Ok(unsafe { GlobalMut::from_raw(self.numbers.raw_view()?) })
    }

    pub fn extents(&self) -> [usize; 4] {
        <[usize; 4]>::try_from(self.numbers.shape()).expect("four dimensions")
    }

    /// For boxes of so many lines.
    pub fn map(&self, width: usize) -> Result<TensorMap> {
        map_of_lines(&self.numbers, self.extents(), width)
    }
}

/// A map of a contiguous `[outer, inner, lines, terms]`, for boxes of so many lines of one matrix.
pub fn map_of_lines(
    tensor: &Tensor,
    [outer, inner, lines, terms]: [usize; 4],
    width: usize,
) -> Result<TensorMap> {
    let of_inner = (lines * terms) as i64;
    let matrix = Matrix { row: terms as i64, col: 1, outer: inner as i64 * of_inner, inner: of_inner };
    map_of_operand(tensor, &matrix, [lines, terms], [outer, inner], true, width as u32)
}

fn divisor(value: usize) -> Result<Divisor> {
    u32::try_from(value).ok().and_then(Divisor::new).ok_or_else(|| Error::TooLarge {
        op: "recurrent layer",
        what: "units",
        limit: (1 << 31) - 1,
        got: value.to_string(),
    })
}

/// The product of each step.
struct Product {
    dtype: DType,
    tiling: Tiling,
    weights: InParts,
    with: InParts,
    maps: [TensorMap; 2],
    /// `[splits, batch, rows]`.
    sums: Tensor,
    p: StreamProduct,
}

impl Product {
    fn new(dtype: DType, tiling: Tiling, weights: InParts, with: InParts) -> Result<Product> {
        let ([_, chunks, rows, _], [_, _, batch, _]) = (weights.extents(), with.extents());
        let maps = [weights.map(tiling.rows)?, with.map(STREAM_COLUMNS as usize)?];
        let sums = Tensor::uninit(with.numbers.device(), DType::F32, &[tiling.splits(), batch, rows])?;
        let p = StreamProduct {
            rows: rows as u32,
            batch: batch as u32,
            chunks: chunks as u32,
            turns: tiling.turns as u32,
            backwards: 0,
        };
        Ok(Product { dtype, tiling, weights, with, maps, sums, p })
    }

    /// Multiplies what `with` holds now. An `early` one may fetch weights before the launch ahead of it is done.
    /// Steps take turns in the direction in which they go along the terms.
    fn launch(&self, early: bool, step: usize) -> Result<()> {
        let [x, y, z] = self.tiling.blocks.map(|blocks| blocks as u64);
        let grid = Grid::xyz(x, y, z)?.shared(self.tiling.shared_bytes).early_if(early);
        let p = StreamProduct { backwards: (step % 2) as u32, ..self.p };
        let [weights, with] = self.maps;
        let (of_weights, of_with) = (self.weights.scales.view()?, self.with.scales.view()?);
        let args = (weights, with, of_weights, of_with, self.sums.view_mut()?, p);
        let (device, index) = (self.sums.device(), self.tiling.index);
        // SAFETY: maps of these parts with the boxes of the tiling's kernel, of which the blocks cover rows, terms and batch.
        unsafe {
            match self.dtype {
                DType::F32 => {
                    device.launch(&kernels::stream_product_f32::kernels::<f32>()[index], grid, args)
                }
                DType::F16 => {
                    device.launch(&kernels::stream_product::kernels::<half::f16>()[index], grid, args)
                }
                _ => device.launch(&kernels::stream_product::kernels::<half::bf16>()[index], grid, args),
            }
        }
    }
}

/// The instance for so many gates, and units that go together or do not.
fn instance<A>(kernels: &'static [Kernel<A>], kind: Kind, wide: bool) -> &'static Kernel<A> {
    let is = |kernel: &&Kernel<A>| {
        kernel.constant("GATES") == kind.gates() && kernel.constant("WIDE") == usize::from(wide)
    };
    kernels.iter().find(is).expect("each number of gates has both")
}

/// The tiling of a plan that streams.
pub fn tiling(plan: &Plan) -> Tiling {
    plan.tiling.expect("a plan that streams has a tiling")
}

/// A step's extents, and what the kernels need to know of it.
pub struct Step {
    fours: Divisor,
    extents: [usize; 3],
    has: u32,
    splits: usize,
}

impl Step {
    /// Of a gradient, whose sums have so many shares.
    pub fn back(layer: &Layer, walked: &Walked, splits: usize) -> Result<Step> {
        let extents @ [_, _, hidden] = layer.extents();
        Ok(Step { fours: divisor(padded(hidden) / FOUR)?, extents, has: walked.has(layer), splits })
    }

    pub fn at(&self, time: usize, y: Option<&Tensor>, splits: usize) -> StreamStep {
        let [_, batch, hidden] = self.extents;
        StreamStep {
            fours: self.fours,
            batch: batch as u32,
            hidden: hidden as u32,
            time: time as u32,
            has: self.has,
            splits: splits as u32,
            y_row: y.map_or(0, |y| y.strides()[0] as i64),
        }
    }

    /// A thread for each four units, zeros behind them included.
    fn grid<A>(&self, kernel: &Kernel<A>) -> Result<Grid> {
        let threads = self.extents[1] as u64 * u64::from(self.fours.value());
        Grid::covering(threads, kernel.bounds.threads.into())
    }
}

/// Runs the steps of gx `[T, B, G·H]`.
pub fn run(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    with_float!(gx.dtype(), T => typed::<T>(layer, plan, gx, results))
}

fn typed<T: Number>(layer: &Layer, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
    let extents @ [steps, batch, hidden] = layer.extents();
    let (device, dtype) = (gx.device(), gx.dtype());
    let rows = layer.kind.gates() * hidden;
    let weights = InParts::of::<T>(&dense(layer.weights.w_hh)?.reshape(&[1, rows, hidden])?)?;
    let h0 = layer.state(layer.h0)?;
    let state = InParts::of::<T>(&h0.reshape(&[1, batch, hidden])?)?;
    let product = Product::new(dtype, tiling(plan), weights, state)?;
    let given = layer.given()?;
    let (all_gh, all_c, kept) = results.kept();
    let h = carried(&h0)?;
    let c = match layer.kind {
        Kind::Gru => None,
        Kind::Lstm => Some(carried(&layer.state(layer.c0)?)?),
    };
    let step = Step {
        fours: divisor(padded(hidden) / FOUR)?,
        extents,
        has: given.has & (has::BIAS | has::LENGTHS) | kept,
        splits: product.tiling.splits(),
    };
    for now in 0..steps {
        let time = layer.time(now);
        let (gx, y) = (at(gx, time)?, at(results.y, time)?);
        let kept = |of: Option<&Tensor>| of.map(|of| at(of, time)).transpose();
        let (gh, cells) = (kept(all_gh)?, kept(all_c)?);
        let (bias, sums) = (given.bias.as_ref(), Some(&product.sums));
        let together = [Some(&gx), Some(&h), c.as_ref(), bias, sums, gh.as_ref(), cells.as_ref()];
        let kernel: &Kernel<kernels::stream_gates::Args<T>> =
            instance(kernels::stream_gates::kernels::<T>(), layer.kind, wide(hidden, Some(&y), &together));
        // What is ahead of the first is anything, such as the parts of the weights.
        product.launch(now > 0, now)?;
        let args = (
            gx.view()?,
            product.sums.view()?,
            read(given.bias.as_ref())?,
            read(layer.lengths)?,
            h.view_mut()?,
            write(c.as_ref())?,
            y.view_mut()?,
            write(gh.as_ref())?,
            write(cells.as_ref())?,
            product.with.words()?,
            product.with.scales.view_mut()?,
            step.at(time, Some(&y), step.splits),
        );
        let grid = step.grid(kernel)?;
        // SAFETY: tensors of the step's extents, aligned where four go together; the grid covers them. What is read before the product is done
        // was there before it began.
        unsafe { device.launch(kernel, grid, args)? };
    }
    ops::cast_into(&h, results.h_n)?;
    match (results.c_n, &c) {
        (Some(c_n), Some(c)) => ops::cast_into(c, c_n),
        _ => Ok(()),
    }
}

/// Walks the steps backwards.
pub fn walk_back(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    with_float!(walked.gx.dtype(), T => typed_back::<T>(layer, plan, walked))
}

fn typed_back<T: Number>(layer: &Layer, plan: &Plan, walked: &Walked) -> Result<()> {
    let [steps, batch, hidden] = layer.extents();
    let (device, dtype, gates) = (walked.gx.device(), walked.gx.dtype(), layer.kind.gates());
    let weights = InParts::of::<T>(&layer.turned()?.reshape(&[gates, hidden, hidden])?)?;
    let slopes = InParts::uninit(device, dtype, [batch, gates * padded(hidden)])?;
    let product = Product::new(dtype, tiling(plan), weights, slopes)?;
    let step = Step::back(layer, walked, product.tiling.splits())?;
    for now in (0..steps).rev() {
        let time = layer.time(now);
        let of = |tensor: &Tensor| at(tensor, time);
        let (gx, gh, h) = (of(walked.gx)?, of(walked.gh)?, of(walked.h)?);
        let (c, y) = (walked.c.map(of).transpose()?, walked.dy.map(of).transpose()?);
        let (to_x, to_h) = (of(walked.dgx)?, of(walked.dgh)?);
        let together = [
            Some(&gx),
            Some(&gh),
            Some(&h),
            c.as_ref(),
            Some(walked.dh),
            walked.dc,
            Some(&to_x),
            Some(&to_h),
            Some(&product.sums),
        ];
        let kernel: &Kernel<kernels::stream_gates_back::Args<T>> = instance(
            kernels::stream_gates_back::kernels::<T>(),
            layer.kind,
            wide(hidden, y.as_ref(), &together),
        );
        let is_last = now + 1 == steps;
        let args = (
            gx.view()?,
            gh.view()?,
            h.view()?,
            read(c.as_ref())?,
            read(y.as_ref())?,
            product.sums.view()?,
            read(layer.lengths)?,
            to_x.view_mut()?,
            to_h.view_mut()?,
            walked.dh.view_mut()?,
            write(walked.dc)?,
            product.with.words()?,
            product.with.scales.view_mut()?,
            step.at(time, y.as_ref(), if is_last { 0 } else { step.splits }),
        );
        let grid = step.grid(kernel)?.early_if(!is_last);
        // SAFETY: as in `typed`; before the last step there is no product.
        unsafe { device.launch(kernel, grid, args)? };
        product.launch(true, now)?;
    }
    let kernel = &kernels::stream_collect::ALL[0];
    let grid = Grid::covering((batch * hidden) as u64, kernel.bounds.threads.into())?;
    let args = (product.sums.view()?, walked.dh.view_mut()?, step.splits as u32, (batch * hidden) as u32);
    // SAFETY: sums of each of the state's numbers.
    unsafe { device.launch(kernel, grid, args) }
}
