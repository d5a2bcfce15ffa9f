//! The sum of two tensors, as residual connections have it. See [`add`].

use super::masked_softmax::Described;
use super::pointwise::{self, Kernels, Operands, Problem, with_float};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise as kernels;

const OP: &str = "add";

/// a + b for tensors of one shape and type (f32, f16 or bf16); contiguous. The sum of f32 values, rounded once.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let device = Device::cpu();
/// let a = Tensor::from_slice(&device, &[2], &[1.0f32, 2.0])?;
/// let b = Tensor::from_slice(&device, &[2], &[0.5f32, -2.0])?;
/// assert_eq!(ops::add(&a, &b)?.to_vec::<f32>()?, [1.5, 0.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and
/// [`DeviceMismatch`](crate::Error::DeviceMismatch) for tensors that do not fit, [`Strides`](crate::Error::Strides)
/// for negative strides, [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let problem = problem(a, b)?;
    let y = problem.output()?;
    run(&problem, a, b, &y)?;
    Ok(y)
}

/// [`add`] into a contiguous tensor of the same shape, type and device, which must not overlap a or b.
pub fn add_into(a: &Tensor, b: &Tensor, y: &Tensor) -> Result<()> {
    let problem = problem(a, b)?;
    pointwise::into(&problem, &[a, b], y, "y", |y| run(&problem, a, b, y))
}

/// Checks the arguments of [`add`] without computing; gives y.
pub fn add_shape<D: Described>(a: &D, b: &D) -> Result<Desc> {
    Ok(problem(a, b)?.y)
}

fn problem<D: Described>(a: &D, b: &D) -> Result<Problem> {
    let a = a.described();
    Problem::new(OP, ("a", a), Some(("b", b.described())), None, a.dtype())
}

fn run(problem: &Problem, a: &Tensor, b: &Tensor, y: &Tensor) -> Result<()> {
    with_float!(problem.dtype, T => {
        let kernels = Kernels {
            dense: kernels::add_dense::kernels::<T>(),
            strided: &kernels::add_strided::kernels::<T>()[0],
        };
        pointwise::run::<T, T>(problem, kernels, Operands { a, b: Some(("b", b)), bias: None }, Dropping::NOTHING, y)
    })
}
