//! From problem and plan to launches.

use super::plan::{Alignment, Choice, Plan, Target};
use super::problem::{MaskForm, Problem, RowDimension};
use super::{Mask, MaskedSoftmax, mask_bits, packed};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use cuda_std::divide::Divisor;
use cuda_std::global::RawView;
use cuda_std::kernel::Kernel;
use cuda_std::{Float, Global, GlobalMut};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::masked_softmax::{self as kernels, Exponent, MAX_ROW_DIMS, Params, RowDim, mask_kind};

/// Rows of one launch: row numbers are divided as 31-bit numbers.
const MAX_ROWS: u64 = (1 << 31) - 1;

/// What is computed: y, and what dropout leaves of it.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    /// The softmax.
    pub y: &'a Tensor,
    /// Where kernels with dropout serve: its result, and what it drops.
    pub dropped: Option<(&'a Tensor, Dropping)>,
}

/// Computes the results by the plan's kernel, or by `choice` where that can serve. The arguments are checked, and the
/// results match x.
pub fn run(
    problem: &Problem,
    x: &Tensor,
    parameters: &MaskedSoftmax,
    results: Results,
    choice: Option<Choice>,
) -> Result<()> {
    if let Some(bounds) = packed::bounds(x, parameters)? {
        let parameters = bounds.instead(parameters);
        let range = Problem { kernels: problem.kernels, ..Problem::new(problem.op, x.desc(), &parameters)? };
        return run(&range, x, &parameters, results, choice);
    }
    match problem.dtype {
        DType::F16 => typed::<half::f16>(problem, x, parameters, results, choice),
        DType::BF16 => typed::<half::bf16>(problem, x, parameters, results, choice),
        _ => typed::<f32>(problem, x, parameters, results, choice),
    }
}

/// What every kernel takes, without dropout and with it.
type Args<T> = kernels::row::Args<T>;
type DropoutArgs<T> = kernels::dropout_row::Args<T>;
type SpreadArgs<T> = kernels::spread_row::Args<T>;

fn typed<T>(
    problem: &Problem,
    x: &Tensor,
    parameters: &MaskedSoftmax,
    results: Results,
    choice: Option<Choice>,
) -> Result<()>
where
    T: Element
        + Float
        + kernels::row::Instances
        + kernels::long_row::Instances
        + kernels::row_bias::Instances
        + kernels::cluster_row::Instances
        + kernels::cluster_row_bias::Instances
        + kernels::spread_row::Instances
        + kernels::streamed::Instances
        + kernels::streamed_bias::Instances
        + kernels::strided::Instances
        + kernels::dropout_row::Instances
        + kernels::dropout_streamed::Instances
        + kernels::dropout_strided::Instances,
{
    let y = results.y;
    if problem.is_empty() {
        return check_bounds_of_nothing(problem, parameters);
    }
    let device = x.device();
    let on_device =
        |tensor: Option<&Tensor>, arg| tensor.map(|t| t.adopted(device, problem.op, arg)).transpose();
    let (first, starts) =
        (on_device(parameters.mask.first(), "mask")?, on_device(parameters.mask.second(), "starts")?);
    let (mask, lengths) = if problem.has_lengths { (None, first) } else { (first, None) };
    let raw = |tensor: &Option<Tensor>| tensor.as_ref().map_or(Ok(RawView::none()), Tensor::raw_view);
    let slot = |present: bool, arg| {
        present.then(|| device.value_slot(problem.op, arg, 0, problem.cols as i64)).transpose()
    };
    let (lengths_slot, starts_slot) =
        (slot(problem.has_lengths, "lengths")?, slot(problem.has_starts, "starts")?);
    let fault = |slot: &Option<crate::faults::ValueSlot>| match slot {
        Some(slot) => slot.view(),
        // SAFETY: not used by a kernel without these bounds.
        None => unsafe { GlobalMut::from_raw(RawView::none()) },
    };
    let aligned = |tensor: &Tensor| tensor.address().is_multiple_of(16);
    let of_dropped = results.dropped.is_none_or(|(tensor, _)| aligned(tensor));
    let alignment = Alignment {
        x_and_y: aligned(x) && aligned(y) && of_dropped,
        mask: mask.as_ref().is_none_or(aligned),
    };
    let target = Target::of(device);
    let plan = match choice {
        None => Plan::new(problem, alignment, target),
        Some(choice) => *Plan::candidates(problem, alignment, target)
            .iter()
            .find(|plan| plan.choice == choice)
            .ok_or_else(|| Error::Parameter {
                op: problem.op,
                arg: "choice",
                required: "one of the candidates for these operands".to_owned(),
                got: format!("{choice:?}"),
            })?,
    };
    // SAFETY: the views have the types that `Problem` checked.
    let (mask_view, lengths_view, starts_view) = unsafe {
        (Global::from_raw(raw(&mask)?), Global::from_raw(raw(&lengths)?), Global::from_raw(raw(&starts)?))
    };
    let of_bits = plan.mask_bits.then(|| mask_bits::of::<T>(problem, plan, device, mask_view)).transpose()?;
    let (problem, mask_view) = match &of_bits {
        // SAFETY: kernels of this plan read bits where others read bytes.
        Some((bits, problem)) => (problem, unsafe { Global::from_raw(bits.raw_view()?) }),
        None => (problem, mask_view),
    };
    let (x_view, y_view) = (x.view::<T>()?, y.view_mut::<T>()?);
    let faults = (fault(&lengths_slot), fault(&starts_slot));
    for_each_piece(problem, |piece| {
        let params = params::<T>(problem, plan, &piece);
        if let Some((dropped, dropping)) = results.dropped {
            let kernel: &Kernel<DropoutArgs<T>> = match plan.choice {
                Choice::Row { index } => &kernels::dropout_row::kernels::<T>()[index],
                Choice::Streamed => &kernels::dropout_streamed::kernels::<T>()[0],
                Choice::LongRow { .. } | Choice::Cluster { .. } | Choice::Spread { .. } | Choice::Strided => {
                    &kernels::dropout_strided::kernels::<T>()[0]
                }
            };
            let left = dropped.view_mut::<T>()?;
            let args: DropoutArgs<T> = (
                x_view,
                mask_view,
                lengths_view,
                starts_view,
                left,
                y_view,
                faults.0,
                faults.1,
                dropping,
                params,
            );
            let grid = plan.grid(device, piece.rows(), kernel)?;
            // SAFETY: as below.
            return unsafe { device.launch(kernel, grid, args) };
        }
        if let Choice::Spread { index, spread } = plan.choice {
            let kernel = &kernels::spread_row::kernels::<T>()[index];
            let partials = spread.partials(device, piece.rows())?;
            let partials_view = partials.view_mut::<u64>()?;
            let args: SpreadArgs<T> = (
                x_view,
                mask_view,
                lengths_view,
                starts_view,
                y_view,
                partials_view,
                faults.0,
                faults.1,
                params,
            );
            let grid = plan.grid(device, piece.rows(), kernel)?;
            // SAFETY: as below; the partials are as many as the launch has, and zeros.
            return unsafe { device.launch(kernel, grid, args) };
        }
        let args: Args<T> =
            (x_view, mask_view, lengths_view, starts_view, y_view, faults.0, faults.1, params);
        let kernel: &Kernel<Args<T>> = match (plan.choice, problem.has_bias()) {
            (Choice::Row { index }, false) => &kernels::row::kernels::<T>()[index],
            (Choice::Row { index }, true) => &kernels::row_bias::kernels::<T>()[index],
            (Choice::LongRow { index }, _) => &kernels::long_row::kernels::<T>()[index],
            (Choice::Cluster { index, .. }, false) => &kernels::cluster_row::kernels::<T>()[index],
            (Choice::Cluster { index, .. }, true) => &kernels::cluster_row_bias::kernels::<T>()[index],
            (Choice::Spread { .. }, _) => unreachable!("launched above"),
            (Choice::Streamed, false) => &kernels::streamed::kernels::<T>()[0],
            (Choice::Streamed, true) => &kernels::streamed_bias::kernels::<T>()[0],
            (Choice::Strided, _) => &kernels::strided::kernels::<T>()[0],
        };
        let grid = plan.grid(device, piece.rows(), kernel)?;
        // SAFETY: the operands match the parameters by `Problem` and `Plan`; tensors are freed in the order
        // of their streams, which `adopted` has made wait for one another.
        unsafe { device.launch(kernel, grid, args) }
    })?;
    [lengths_slot, starts_slot].into_iter().flatten().try_for_each(|slot| slot.finish())
}

/// Checks the bounds of rows without columns, for which no kernel runs: each must be 0.
fn check_bounds_of_nothing(problem: &Problem, parameters: &MaskedSoftmax) -> Result<()> {
    let Mask::Range { lengths, starts } = parameters.mask else { return Ok(()) };
    if problem.row_count() == 0 {
        return Ok(());
    }
    for (arg, bounds) in [("lengths", lengths), ("starts", starts)] {
        let values = bounds.map(|bounds| bounds.to_vec::<i32>()).transpose()?.unwrap_or_default();
        if let Some((index, &got)) = values.iter().enumerate().find(|&(_, &value)| value != 0) {
            return Err(Error::Value {
                op: problem.op,
                arg,
                index: index as u64,
                min: 0,
                max: 0,
                got: i64::from(got),
                clipped: false,
            });
        }
    }
    Ok(())
}

/// Rows that one launch takes: all of them, unless their number passes 31 bits.
struct Piece<'a> {
    /// Outermost first.
    dims: &'a [RowDimension],
    /// How many of the outermost dimension.
    outer: usize,
    /// The first row's place in each operand.
    base: Base,
}

#[derive(Clone, Copy, Default)]
struct Base {
    x: i64,
    y: i64,
    mask: i64,
    lengths: i64,
    starts: i64,
    query: i64,
}

impl Piece<'_> {
    fn rows(&self) -> u64 {
        self.outer as u64 * self.dims.iter().skip(1).map(|dim| dim.extent as u64).product::<u64>()
    }
}

/// Cuts the rows along their outermost dimensions into pieces of fewer than 2^31.
fn for_each_piece(problem: &Problem, mut launch: impl FnMut(Piece) -> Result<()>) -> Result<()> {
    cut(&problem.rows, MAX_ROWS, Base::default(), &mut launch)
}

fn cut(
    dims: &[RowDimension],
    max_rows: u64,
    base: Base,
    launch: &mut impl FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let Some((outer, inner)) = dims.split_first() else {
        return launch(Piece { dims, outer: 1, base });
    };
    let inner_rows: u64 = inner.iter().map(|dim| dim.extent as u64).product();
    let step = (max_rows / inner_rows).min(outer.extent as u64) as usize;
    let at = |index: usize| {
        let index = index as i64;
        Base {
            x: base.x + index * outer.x as i64,
            y: base.y + index * outer.y as i64,
            mask: base.mask + index * outer.mask as i64,
            lengths: base.lengths + index * outer.lengths as i64,
            starts: base.starts + index * outer.starts as i64,
            query: base.query + index * outer.query as i64,
        }
    };
    if step == 0 {
        return (0..outer.extent).try_for_each(|index| cut(inner, max_rows, at(index), launch));
    }
    (0..outer.extent)
        .step_by(step)
        .try_for_each(|index| launch(Piece { dims, outer: step.min(outer.extent - index), base: at(index) }))
}

/// The parameters of one launch for all rows, which must be fewer than 2^31.
pub fn params_of_all<T: Float>(problem: &Problem, plan: Plan) -> Params {
    let outer = problem.rows.first().map_or(1, |dim| dim.extent);
    params::<T>(problem, plan, &Piece { dims: &problem.rows, outer, base: Base::default() })
}

fn params<T: Float>(problem: &Problem, plan: Plan, piece: &Piece) -> Params {
    let scale = problem.scale;
    // With a bias or a tiny scale the scores are scaled before the maximum; else the exponent scales the
    // differences, and a negative scale flips the signs.
    let bias = problem.has_bias() || problem.has_tiny_scale();
    let factor = if bias || scale == 0.0 { 1.0 } else { f64::from(scale.abs()) };
    let one = Divisor::new(1).expect("1 divides");
    let unused = RowDim { x: 0, y: 0, mask: 0, lengths: 0, starts: 0, query: 0, extent: one };
    let mut dims = [unused; MAX_ROW_DIMS];
    let outermost = piece.dims.len().saturating_sub(1);
    for (slot, (i, dim)) in dims.iter_mut().zip(piece.dims.iter().rev().enumerate()) {
        let extent = if i == outermost { piece.outer } else { dim.extent };
        *slot = RowDim {
            x: dim.x as i64,
            y: dim.y as i64,
            mask: dim.mask as i64,
            lengths: dim.lengths as i64,
            starts: dim.starts as i64,
            query: dim.query as i32,
            extent: u32::try_from(extent).ok().and_then(Divisor::new).unwrap_or(one),
        };
    }
    let (rows, ahead) = (piece.rows() as u32, lengths_ahead(problem, piece));
    Params {
        dims,
        x_base: piece.base.x,
        y_base: piece.base.y,
        mask_base: piece.base.mask + if plan.mask_bits { i64::from(kernels::COLUMNS) } else { 0 },
        lengths_base: piece.base.lengths,
        starts_base: piece.base.starts,
        query_base: piece.base.query,
        x_len: problem.x_reach as i64,
        mask_len: problem.mask_reach as i64,
        x_stride: problem.x_stride as i64,
        mask_stride: problem.mask_stride as i64,
        exponent: Exponent::new(factor),
        scale: if bias || scale == 0.0 { scale } else { scale.signum() },
        dim_count: piece.dims.len() as u32,
        rows,
        cols: problem.cols as u32,
        mask_kind: match problem.mask {
            MaskForm::None => mask_kind::NONE,
            MaskForm::Keep | MaskForm::Drop if plan.mask_bits => mask_kind::BITS,
            MaskForm::Keep | MaskForm::Drop => mask_kind::BYTES,
            MaskForm::Bias(dtype) if dtype == problem.dtype => mask_kind::BIAS,
            MaskForm::Bias(_) => mask_kind::BIAS_F32,
        },
        mask_invert: if problem.mask == MaskForm::Drop { u32::MAX } else { 0 },
        flip: if scale < 0.0 && !bias { T::SIGN_WORD } else { 0 },
        ragged: u32::from(plan.ragged),
        has_lengths: u32::from(problem.has_lengths),
        lengths_ahead: ahead,
        rows_asking: if ahead == 0 { 0 } else { rows.saturating_sub(ahead) },
        has_starts: u32::from(problem.has_starts),
        causal: u32::from(problem.causal_offset.is_some()),
        causal_offset: problem.causal_offset.unwrap_or(0),
        slice: match plan.choice {
            Choice::Cluster { slice, .. } => slice,
            Choice::Spread { spread, .. } => spread.slice,
            _ => 0,
        },
        mask_skewed: u32::from(plan.mask_skewed),
    }
}

/// Bytes of x between a row and the one whose length it lets come to L2. A row waits for its length before it reads anything; it takes
/// these some 2 µs to be read. With 18 MB and more, what came has left L2 again.
const AHEAD: usize = 5 << 20;

/// [`Params::lengths_ahead`], where lengths follow one another.
fn lengths_ahead(problem: &Problem, piece: &Piece) -> u32 {
    match piece.dims {
        [dim] if problem.has_lengths && dim.lengths == 1 => {
            (AHEAD / (problem.cols * problem.dtype.size()).max(1)) as u32
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(extent: usize, x: isize) -> RowDimension {
        RowDimension { extent, x, y: 5 * x, mask: 2 * x, lengths: 3 * x, starts: 4 * x, query: 1 }
    }

    /// Every row's place in x and y, from pieces of at most `max_rows` rows.
    fn rows_by_pieces(dims: &[RowDimension], max_rows: u64) -> Vec<(i64, i64)> {
        let mut rows = Vec::new();
        cut(dims, max_rows, Base::default(), &mut |piece| {
            assert!(piece.rows() <= max_rows && piece.rows() > 0);
            for row in 0..piece.rows() {
                let (mut rest, mut x, mut y) = (row, piece.base.x, piece.base.y);
                for (i, dim) in piece.dims.iter().enumerate().rev() {
                    let extent = if i == 0 { piece.outer } else { dim.extent } as u64;
                    x += (rest % extent) as i64 * dim.x as i64;
                    y += (rest % extent) as i64 * dim.y as i64;
                    rest /= extent;
                }
                rows.push((x, y));
            }
            Ok(())
        })
        .expect("the closure does not fail");
        rows
    }

    #[test]
    fn pieces_of_any_size_are_the_same_rows_in_the_same_order() {
        let dims = [dim(3, 1000), dim(5, 70), dim(4, 9)];
        let whole = rows_by_pieces(&dims, 60);
        assert_eq!(whole.len(), 60);
        assert_eq!(whole[59], (2 * 1000 + 4 * 70 + 3 * 9, 5 * (2 * 1000 + 4 * 70 + 3 * 9)));
        for max_rows in [1, 2, 3, 4, 5, 7, 19, 20, 21, 39, 40, 59, 61] {
            assert_eq!(rows_by_pieces(&dims, max_rows), whole, "{max_rows}");
        }
        assert_eq!(rows_by_pieces(&[], 1), [(0, 0)]);
    }
}
