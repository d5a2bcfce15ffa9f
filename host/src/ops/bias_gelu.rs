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
/// dbias adds up the f32 values of dx before they are rounded, in an order that depends on the shape alone: the same
/// input gives the same bits.
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
    if dbias.device().same_stream(x.device()) {
        Ok(())
    } else {
        dbias.device().wait_for(x.device(), BACKWARD)
    }
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
        let parts = Part::of::<T>(rows, [x, &dy, dx])?;
        let plans: Vec<RowsPlan> = parts.iter().map(|part| part.plan::<T>(&bias)).collect();
        let sums = |part: &Part, plan: &RowsPlan| plan.groups() * part.fold;
        let all = parts.iter().zip(&plans).map(|(part, plan)| sums(part, plan)).sum();
        let partials = Tensor::uninit(device, DType::F32, &[all, rows.cols()])?;
        let mut first = 0;
        for (part, plan) in parts.iter().zip(&plans) {
            let own = partials.narrow(0, first, sums(part, plan))?;
            let kernel = match plan.packs {
                true => &approximate.among(kernels::bias_gelu_backward_dense::kernels::<T>())[0],
                false => &approximate.among(kernels::bias_gelu_backward_strided::kernels::<T>())[0],
            };
            let bias = part.bias(&bias)?;
            let [x, dy, dx] = &part.operands;
            let (x, dy, bias) = (x.view::<T>()?, dy.view::<T>()?, bias.view::<T>()?);
            let args = (x, dy, bias, dx.view_mut::<T>()?, own.view_mut::<f32>()?, plan.params(&part.rows));
            // SAFETY: the operands match the problem, of which the plan is; `own` has a row for each group. Tensors
            // are freed in the order of their streams, which `adopted` has made wait for one another.
            unsafe { device.launch(kernel, plan.grid()?, args)? };
            first += sums(part, plan);
        }
        column_sums(&partials, dbias)
    })
}

/// Columns of folded rows: kernels count them in 31 bits.
const MAX_FOLDED: usize = (1 << 31) - 1;
/// From so many elements on rows are folded: below, the launches that it adds take longer than it saves.
const FOLD_FROM: usize = 1 << 18;

/// Rows of x, dy and dx, folded or not: `fold` rows that lie one behind the other taken as one, whose columns come `fold`
/// times. Partial sums of its columns are `fold` rows of partial sums.
#[derive(Debug)]
struct Part {
    fold: usize,
    rows: Rows,
    operands: [Tensor; 3],
}

impl Part {
    /// Rows that are no whole packs become whole packs by folding; what is left over is a part of its own.
    fn of<T: Float>(rows: &Rows, operands: [&Tensor; 3]) -> Result<Vec<Part>> {
        let (x, cols) = (operands[0], rows.cols());
        let fold = T::PER_PACK >> cols.trailing_zeros().min(T::PER_PACK.ilog2());
        let foldable = |tensor: &&Tensor| tensor.is_contiguous() && tensor.address().is_multiple_of(16);
        if fold == 1 || x.len() < FOLD_FROM || cols > MAX_FOLDED / fold || !operands.iter().all(foldable) {
            return Ok(vec![Part { fold: 1, rows: rows.clone(), operands: operands.map(Tensor::clone) }]);
        }
        let count = x.len() / cols;
        let main = count / fold * fold;
        let part = |first: usize, rows: usize, fold: usize| -> Result<Part> {
            let of = |tensor: &Tensor| {
                tensor.reshape(&[count, cols])?.narrow(0, first, rows)?.reshape(&[rows / fold, fold * cols])
            };
            let operands = [of(operands[0])?, of(operands[1])?, of(operands[2])?];
            Ok(Part { fold, rows: Rows::new(BACKWARD, operands[0].desc(), operands[1].desc())?, operands })
        };
        let parts = [(0, main, fold), (main, count - main, 1)];
        parts
            .into_iter()
            .filter(|&(_, rows, _)| rows > 0)
            .map(|(at, rows, fold)| part(at, rows, fold))
            .collect()
    }

    fn plan<T: Element + Float>(&self, bias: &Tensor) -> RowsPlan {
        // Of a folded bias, which is an allocation of its own, the place does not matter.
        let [x, dy, dx] = &self.operands;
        self.rows.plan::<T>([x, dy, dx], if self.fold > 1 { x } else { bias })
    }

    /// The bias of all columns.
    fn bias(&self, bias: &Tensor) -> Result<Tensor> {
        if self.fold == 1 {
            return Ok(bias.clone());
        }
        super::cast(&bias.reshape(&[1, bias.len()])?.expand(&[self.fold, bias.len()])?, bias.dtype())
    }
}
