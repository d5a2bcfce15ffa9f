//! gelu(x + bias). See [`bias_gelu`].

use super::column_sums::column_sums;
use super::gelu::Approximate;
use super::masked_softmax::Described;
use super::pointwise::{self, Kernels, Operands, Problem, Rows, RowsPlan, with_float};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};
use cuda_std::Float;
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise as kernels;

const OP: &str = "bias_gelu";
const BACKWARD: &str = "bias_gelu_backward";

/// gelu(x + bias) for x `[.., N]` and bias `[N]` of one type (f32, f16 or bf16); in x's shape, contiguous. The sum
/// is not rounded in between.
///
/// As [`gelu`](super::gelu()) otherwise. Any N is fast where x is contiguous, and fastest where rows are whole packs
/// of 16 bytes.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Approximate}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let bias = Tensor::from_slice(&device, &[2], &[-1.0f32, -100.0])?;
/// let y = ops::bias_gelu(&x, &bias, Approximate::Tanh)?.to_vec::<f32>()?;
/// assert!(y[0] == 0.0 && y[1] == 0.0 && (y[2] - 1.954_598).abs() < 1e-5 && y[3] == 0.0);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and
/// [`DeviceMismatch`](crate::Error::DeviceMismatch) for tensors that do not fit, [`TooLarge`](crate::Error::TooLarge)
/// for an N above 2³⁰, [`Strides`](crate::Error::Strides) for negative strides,
/// [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn bias_gelu(x: &Tensor, bias: &Tensor, approximate: Approximate) -> Result<Tensor> {
    let problem = problem(x, bias)?;
    let y = problem.output()?;
    forward(&problem, x, bias, approximate, &y)?;
    Ok(y)
}

/// [`bias_gelu`] into a contiguous tensor of x's shape, type and device, which must not overlap x or the bias.
pub fn bias_gelu_into(x: &Tensor, bias: &Tensor, approximate: Approximate, y: &Tensor) -> Result<()> {
    let problem = problem(x, bias)?;
    pointwise::into(&problem, &[x, bias], y, "y", |y| forward(&problem, x, bias, approximate, y))
}

/// Checks the arguments of [`bias_gelu`] without computing; gives y.
pub fn bias_gelu_shape<D: Described>(x: &D, bias: &D) -> Result<Desc> {
    Ok(problem(x, bias)?.y)
}

fn problem<D: Described>(x: &D, bias: &D) -> Result<Problem> {
    let x = x.described();
    Problem::new(OP, ("x", x), None, Some(bias.described()), x.dtype())
}

fn forward(problem: &Problem, x: &Tensor, bias: &Tensor, approximate: Approximate, y: &Tensor) -> Result<()> {
    with_float!(problem.dtype, T => {
        let kernels = Kernels {
            dense: approximate.among(kernels::bias_gelu_dense::kernels::<T>()),
            strided: &approximate.among(kernels::bias_gelu_strided::kernels::<T>())[0],
        };
        let operands = Operands { a: x, b: None, bias: Some(bias) };
        pointwise::run::<T, T>(problem, kernels, operands, Dropping::NOTHING, y)
    })
}

/// (dx, dbias): dx = dy·gelu′(x + bias), and dbias the sums of its columns, in the operands' type; both contiguous.
///
/// dbias adds up the f32 values of dx before they are rounded, in an order that depends on the shape and on where the operands begin
/// within 16 bytes alone: the same input gives the same bits.
///
/// # Errors
/// As [`bias_gelu`] and [`gelu_backward`](super::gelu_backward()); [`TooLarge`](crate::Error::TooLarge) for 2³¹ rows and
/// more.
pub fn bias_gelu_backward(
    x: &Tensor,
    bias: &Tensor,
    dy: &Tensor,
    approximate: Approximate,
) -> Result<(Tensor, Tensor)> {
    let (problem, rows) = backward_problem(x, bias, dy)?;
    let (dx, dbias) = (problem.output()?, Tensor::uninit(x.device(), x.dtype(), bias.shape())?);
    backward(&problem, &rows, (x, bias, dy), approximate, &dx, &dbias)?;
    Ok((dx, dbias))
}

/// [`bias_gelu_backward`] into contiguous tensors of the shapes and types of x and bias, on x's device, which must not
/// overlap the inputs or one another. Allocates room for partial sums.
pub fn bias_gelu_backward_into(
    x: &Tensor,
    bias: &Tensor,
    dy: &Tensor,
    approximate: Approximate,
    dx: &Tensor,
    dbias: &Tensor,
) -> Result<()> {
    let (problem, rows) = backward_problem(x, bias, dy)?;
    let of_bias = Desc::contiguous(BACKWARD, x.device(), x.dtype(), bias.shape())?;
    pointwise::check_output(BACKWARD, "dbias", dbias, &of_bias, &[x, bias, dy, dx])?;
    pointwise::into(&problem, &[x, bias, dy], dx, "dx", |dx| {
        let here = dbias.adopted(x.device(), BACKWARD, "dbias")?;
        backward(&problem, &rows, (x, bias, dy), approximate, dx, &here)
    })?;
    dbias.device().wait_for(x.device(), BACKWARD)
}

/// Checks the arguments of [`bias_gelu_backward`] without computing; gives dx and dbias.
pub fn bias_gelu_backward_shape<D: Described>(x: &D, bias: &D, dy: &D) -> Result<(Desc, Desc)> {
    let (problem, _) = backward_problem(x, bias, dy)?;
    let (x, bias) = (x.described(), bias.described());
    Ok((problem.y, Desc::contiguous(BACKWARD, x.device(), x.dtype(), bias.shape())?))
}

fn backward_problem<D: Described>(x: &D, bias: &D, dy: &D) -> Result<(Problem, Rows)> {
    let (x, dy) = (x.described(), dy.described());
    let problem = Problem::new(BACKWARD, ("x", x), Some(("dy", dy)), Some(bias.described()), x.dtype())?;
    let rows = Rows::new(BACKWARD, x, dy)?;
    Ok((problem, rows))
}

fn backward(
    problem: &Problem,
    rows: &Rows,
    (x, bias, dy): (&Tensor, &Tensor, &Tensor),
    approximate: Approximate,
    dx: &Tensor,
    dbias: &Tensor,
) -> Result<()> {
    if dbias.is_empty() {
        return Ok(());
    }
    let device = x.device();
    let (dy, bias) = (dy.adopted(device, BACKWARD, "dy")?, bias.adopted(device, BACKWARD, "bias")?);
    // A bias is read by its columns.
    let bias = if bias.is_contiguous() { bias } else { super::cast(&bias, bias.dtype())? };
    with_float!(problem.dtype, T => {
        let parts = Part::of::<T>(rows, [x, &dy, dx], &bias)?;
        let plans: Vec<RowsPlan> = parts.iter().map(Part::plan::<T>).collect();
        let sums = |part: &Part, plan: &RowsPlan| plan.groups() * part.rows.cols();
        let all: usize = parts.iter().zip(&plans).map(|(part, plan)| sums(part, plan)).sum();
        let partials = Tensor::uninit(device, DType::F32, &[all])?;
        let mut first = 0;
        for (part, plan) in parts.iter().zip(&plans) {
            let own = partials.narrow(0, first, sums(part, plan))?;
            let kernel = match plan.packs {
                true => &approximate.among(kernels::bias_gelu_backward_dense::kernels::<T>())[0],
                false => &approximate.among(kernels::bias_gelu_backward_strided::kernels::<T>())[0],
            };
            let [x, dy, dx] = &part.operands;
            let (x, dy, bias) = (x.view::<T>()?, dy.view::<T>()?, part.bias.view::<T>()?);
            let args = (x, dy, bias, dx.view_mut::<T>()?, own.view_mut::<f32>()?, plan.params(&part.rows));
            // SAFETY: the operands match the problem, of which the plan is; `own` has a row for each group. Tensors
            // are freed in the order of their streams, which `adopted` has made wait for one another.
            unsafe { device.launch(kernel, plan.grid()?, args)? };
            first += sums(part, plan);
        }
        column_sums(&partials.reshape(&[all / rows.cols(), rows.cols()])?, dbias)
    })
}

/// Columns of folded rows: kernels count them in 31 bits.
const MAX_FOLDED: usize = (1 << 31) - 1;
/// From so many elements on rows are folded or cut elsewhere: below, the launches that it adds take longer than it saves.
const FOLD_FROM: usize = 1 << 18;

/// Rows of x, dy and dx, with the bias of their columns. Their partial sums are rows as long.
#[derive(Debug)]
struct Part {
    rows: Rows,
    operands: [Tensor; 3],
    bias: Tensor,
}

impl Part {
    /// The rows as they are, or cut so that most of them are whole aligned packs: as many taken as one as make whole packs, from the
    /// first element at a multiple of 16 bytes on, in whatever column that is. What is in front of these and behind is a part of its own. One
    /// behind the other, the partial sums of all are whole rows again, each column where it belongs.
    fn of<T: Float>(rows: &Rows, operands: [&Tensor; 3], bias: &Tensor) -> Result<Vec<Part>> {
        let (len, cols) = (operands[0].len(), rows.cols());
        let fold = T::PER_PACK >> cols.trailing_zeros().min(T::PER_PACK.ilog2());
        let behind = |tensor: &Tensor| tensor.address() as usize / size_of::<T>() % T::PER_PACK;
        let phase = behind(operands[0]);
        let lies_alike = |tensor: &&Tensor| tensor.is_contiguous() && behind(tensor) == phase;
        let as_they_are = || {
            let operands = operands.map(Tensor::clone);
            Ok(vec![Part { rows: rows.clone(), operands, bias: bias.clone() }])
        };
        let is_whole = fold == 1 && phase == 0;
        if is_whole || len < FOLD_FROM || cols > MAX_FOLDED / fold || !operands.iter().all(lies_alike) {
            return as_they_are();
        }
        let (head, wide) = ((T::PER_PACK - phase) % T::PER_PACK, fold * cols);
        let main = (len - head) / wide * wide;
        if main == 0 {
            return as_they_are();
        }
        let tail = len - head - main;
        let biases = repeated(bias, (head % cols + wide).max(head))?;
        // Rows of `wide` elements from element `first` on.
        let part = |first: usize, count: usize, wide: usize| -> Result<Part> {
            let of = |tensor: &Tensor| {
                tensor.reshape(&[len])?.narrow(0, first, count)?.reshape(&[count / wide, wide])
            };
            let operands = [of(operands[0])?, of(operands[1])?, of(operands[2])?];
            let rows = Rows::new(BACKWARD, operands[0].desc(), operands[1].desc())?;
            let bias = biases.narrow(0, first % cols, wide)?;
            // A copy lies at a multiple of 16 bytes, which packs want.
            let wants_copy = count == main && !first.is_multiple_of(cols);
            let bias = if wants_copy { super::cast(&bias, bias.dtype())? } else { bias };
            Ok(Part { rows, operands, bias })
        };
        let parts = [(0, head, head), (head, main, wide), (head + main, tail, tail)];
        parts
            .into_iter()
            .filter(|&(_, count, _)| count > 0)
            .map(|(first, count, wide)| part(first, count, wide))
            .collect()
    }

    fn plan<T: Element + Float>(&self) -> RowsPlan {
        let [x, dy, dx] = &self.operands;
        self.rows.plan::<T>([x, dy, dx], &self.bias)
    }
}

/// The bias one time after the other, `count` elements or a few more.
fn repeated(bias: &Tensor, count: usize) -> Result<Tensor> {
    let (len, times) = (bias.len(), count.div_ceil(bias.len()));
    super::cast(&bias.reshape(&[1, len])?.expand(&[times, len])?, bias.dtype())?.reshape(&[times * len])
}
