//! The gradient of a masked softmax. See [`masked_softmax_backward`].

use super::dropout::{Dropout, dropping};
use super::masked_softmax::Described;
use super::pointwise::with_float;
use super::rows::{self, Operands, Problem, row_kernels};
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};
use kernels_gpu::dropping::Dropping;

const OP: &str = "masked_softmax_backward";

/// dx = scale·y·(dy − Σ dy·y) along the last axis, for the result y of [`masked_softmax`](super::masked_softmax()) with this
/// scale and its gradient dy, of one shape `[.., K]` and type (f32, f16 or bf16); contiguous, computed in f32.
///
/// Where y is 0, as at every masked column, dx is 0 and dy does not count, be it NaN or infinite: no mask is needed. Any
/// strides of y and dy are accepted; fast are rows that lie densely and start alike (modulo 16 bytes) in y, dy and dx. The same
/// input gives the same bits on the same device.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let device = Device::cpu();
/// let y = Tensor::from_slice(&device, &[1, 3], &[0.5f32, 0.5, 0.0])?;
/// let dy = Tensor::from_slice(&device, &[1, 3], &[1.0f32, 3.0, f32::NAN])?;
/// let dx = ops::masked_softmax_backward(&y, &dy, 2.0)?;
/// assert_eq!(dx.to_vec::<f32>()?, [-1.0, 1.0, 0.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](Error::Shape), [`DType`](Error::DType) and [`DeviceMismatch`](Error::DeviceMismatch) for tensors that do not fit,
/// [`Parameter`](Error::Parameter) for a scale that is not finite, [`Strides`](Error::Strides) for negative strides,
/// [`TooLarge`](Error::TooLarge) for 2³¹ rows and more or columns beyond 2³¹ − 2¹⁷, [`OutOfMemory`](Error::OutOfMemory).
pub fn masked_softmax_backward(y: &Tensor, dy: &Tensor, scale: f32) -> Result<Tensor> {
    fresh(y, dy, scale, None)
}

/// [`masked_softmax_backward`] into a contiguous tensor of y's shape, type and device, which must not overlap y or dy.
pub fn masked_softmax_backward_into(y: &Tensor, dy: &Tensor, scale: f32, dx: &Tensor) -> Result<()> {
    into(y, dy, scale, None, dx)
}

/// The gradient of [`masked_softmax_dropout`](super::masked_softmax_dropout()) with this scale and dropout: dx of
/// [`masked_softmax_backward`] for its `probabilities`, with dy 0 where they were dropped and over 1 − p elsewhere (rounded to
/// its type).
///
/// # Errors
/// As [`masked_softmax_backward`]; [`Parameter`](Error::Parameter) for a p outside of 0..=1.
pub fn masked_softmax_dropout_backward(
    probabilities: &Tensor,
    dy: &Tensor,
    scale: f32,
    dropout: Dropout,
) -> Result<Tensor> {
    fresh(probabilities, dy, scale, dropping(OP, Some(dropout))?)
}

/// [`masked_softmax_dropout_backward`] into a contiguous tensor of dy's shape, type and device, which must not overlap the
/// inputs.
pub fn masked_softmax_dropout_backward_into(
    probabilities: &Tensor,
    dy: &Tensor,
    scale: f32,
    dropout: Dropout,
    dx: &Tensor,
) -> Result<()> {
    into(probabilities, dy, scale, dropping(OP, Some(dropout))?, dx)
}

fn fresh(y: &Tensor, dy: &Tensor, scale: f32, dropping: Option<Dropping>) -> Result<Tensor> {
    let problem = problem(y, dy, scale)?;
    let dx = rows::uninit(&problem.y)?;
    backward(&problem, y, dy, scale, dropping, &dx)?;
    Ok(dx)
}

fn into(y: &Tensor, dy: &Tensor, scale: f32, dropping: Option<Dropping>, dx: &Tensor) -> Result<()> {
    let problem = problem(y, dy, scale)?;
    rows::into(OP, &[y, dy], [("dx", dx, &problem.y)], |[dx]| backward(&problem, y, dy, scale, dropping, &dx))
}

/// Checks the arguments of [`masked_softmax_backward`] without computing; gives dx.
pub fn masked_softmax_backward_shape<D: Described>(y: &D, dy: &D, scale: f32) -> Result<Desc> {
    Ok(problem(y, dy, scale)?.y)
}

fn problem<D: Described>(y: &D, dy: &D, scale: f32) -> Result<Problem> {
    if !scale.is_finite() {
        let (required, got) = ("finite".to_owned(), scale.to_string());
        return Err(Error::Parameter { op: OP, arg: "scale", required, got });
    }
    Problem::new(OP, &[("y", y.described()), ("dy", dy.described())])
}

fn backward(
    problem: &Problem,
    y: &Tensor,
    dy: &Tensor,
    scale: f32,
    dropping: Option<Dropping>,
    dx: &Tensor,
) -> Result<()> {
    let operands = Operands {
        inputs: [Some(("y", y)), Some(("dy", dy)), None],
        y: Some(dx),
        number: scale,
        dropping,
        ..Default::default()
    };
    with_float!(problem.dtype, T => {
        let kernels = if dropping.is_some() {
            let kernels = row_kernels!(
                T, softmax_dropout_backward_rows, softmax_dropout_backward_streamed, softmax_dropout_backward_strided
            );
            // Each draws its numbers again.
            rows::Kernels { spread: true, ..kernels }
        } else {
            row_kernels!(T, softmax_backward_rows, softmax_backward_streamed, softmax_backward_strided, softmax_backward_cluster)
        };
        rows::run(problem, kernels, operands)
    })
}
