//! GELU: x·Φ(x), with Φ the distribution function of the normal distribution. See [`gelu`].

use super::masked_softmax::Described;
use super::pointwise::{self, Kernels, Operands, Problem, with_float};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise as kernels;

/// How Φ is computed. The two differ by up to 5e-4: a model wants the one that it was trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approximate {
    /// By erf: x/2·(1 + erf(x/√2)).
    None,
    /// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), as BERT and GPT-2 have it.
    Tanh,
}

impl Approximate {
    /// The instances of this form among a kernel's, which come form by form.
    pub(super) fn among<K>(self, instances: &'static [K]) -> &'static [K] {
        let (erf, tanh) = instances.split_at(instances.len() / 2);
        match self {
            Approximate::None => erf,
            Approximate::Tanh => tanh,
        }
    }
}

const OP: &str = "gelu";
const BACKWARD: &str = "gelu_backward";

/// gelu(x) in x's shape and type (f32, f16 or bf16), contiguous; computed in f32.
///
/// NaN gives NaN, +∞ +∞, and −∞ −0, the limit. In f32 the relative error is below 2⁻¹⁹ wherever |y| is above 2⁻¹²⁰,
/// in the tail on the left too; below that y may be 0. 16-bit results are within 0.7 ulp. Any strides of x are
/// accepted: dense views and rows of whole 16-byte packs are read at the speed of a copy, others element by element.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Approximate}};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[3], &[-1.0f32, 0.0, 1.0])?;
/// let y = ops::gelu(&x, Approximate::None)?.to_vec::<f32>()?;
/// assert!((y[0] + 0.158_655_26).abs() < 1e-6 && y[1] == 0.0 && (y[2] - 0.841_344_7).abs() < 1e-6);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`DType`](crate::Error::DType) for an x that is not a float, [`Strides`](crate::Error::Strides) for negative
/// strides, [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn gelu(x: &Tensor, approximate: Approximate) -> Result<Tensor> {
    let problem = problem(x)?;
    let y = problem.output()?;
    forward(&problem, x, approximate, &y)?;
    Ok(y)
}

/// [`gelu`] into a contiguous tensor of x's shape, type and device, which must not overlap x.
pub fn gelu_into(x: &Tensor, approximate: Approximate, y: &Tensor) -> Result<()> {
    let problem = problem(x)?;
    pointwise::into(&problem, &[x], y, "y", |y| forward(&problem, x, approximate, y))
}

/// Checks the arguments of [`gelu`] without computing; gives y.
pub fn gelu_shape<D: Described>(x: &D) -> Result<Desc> {
    Ok(problem(x)?.y)
}

fn problem<D: Described>(x: &D) -> Result<Problem> {
    let x = x.described();
    Problem::new(OP, ("x", x), None, None, x.dtype())
}

fn forward(problem: &Problem, x: &Tensor, approximate: Approximate, y: &Tensor) -> Result<()> {
    with_float!(problem.dtype, T => {
        let kernels = Kernels {
            dense: approximate.among(kernels::gelu_dense::kernels::<T>()),
            strided: &approximate.among(kernels::gelu_strided::kernels::<T>())[0],
        };
        pointwise::run::<T, T>(problem, kernels, Operands { a: x, b: None, bias: None }, Dropping::NOTHING, y)
    })
}

/// dx = dy·gelu′(x), for x and dy of one shape and type; contiguous.
///
/// gelu′ is finite everywhere: 1 at +∞ and 0 at −∞. Its absolute error is below 2⁻²⁰ in f32.
///
/// # Errors
/// As [`gelu`]; [`Shape`](crate::Error::Shape) and [`DeviceMismatch`](crate::Error::DeviceMismatch) for a dy that does
/// not fit x.
pub fn gelu_backward(x: &Tensor, dy: &Tensor, approximate: Approximate) -> Result<Tensor> {
    let problem = backward_problem(x, dy)?;
    let dx = problem.output()?;
    backward(&problem, x, dy, approximate, &dx)?;
    Ok(dx)
}

/// [`gelu_backward`] into a contiguous tensor of x's shape, type and device, which must not overlap x or dy.
pub fn gelu_backward_into(x: &Tensor, dy: &Tensor, approximate: Approximate, dx: &Tensor) -> Result<()> {
    let problem = backward_problem(x, dy)?;
    pointwise::into(&problem, &[x, dy], dx, "dx", |dx| backward(&problem, x, dy, approximate, dx))
}

/// Checks the arguments of [`gelu_backward`] without computing; gives dx.
pub fn gelu_backward_shape<D: Described>(x: &D, dy: &D) -> Result<Desc> {
    Ok(backward_problem(x, dy)?.y)
}

fn backward_problem<D: Described>(x: &D, dy: &D) -> Result<Problem> {
    let x = x.described();
    Problem::new(BACKWARD, ("x", x), Some(("dy", dy.described())), None, x.dtype())
}

fn backward(problem: &Problem, x: &Tensor, dy: &Tensor, approximate: Approximate, dx: &Tensor) -> Result<()> {
    with_float!(problem.dtype, T => {
        let kernels = Kernels {
            dense: approximate.among(kernels::gelu_backward_dense::kernels::<T>()),
            strided: &approximate.among(kernels::gelu_backward_strided::kernels::<T>())[0],
        };
        let operands = Operands { a: x, b: Some(("dy", dy)), bias: None };
        pointwise::run::<T, T>(problem, kernels, operands, Dropping::NOTHING, dx)
    })
}
