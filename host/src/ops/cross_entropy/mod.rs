//! Cross entropy: the loss of a classification, and its gradient. See [`cross_entropy`] and
//! [`cross_entropy_backward`].

mod launch;
mod problem;

use super::masked_softmax::Described;
use super::rows;
use crate::error::Result;
use crate::tensor::{Desc, Tensor};
use launch::Results;
use problem::Problem;

/// How the losses of rows become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean over the rows that count; NaN where none does.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Not at all: a loss for each row.
    None,
}

/// The parameters of [`cross_entropy`] and [`cross_entropy_backward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropy {
    /// The target of rows that do not count.
    pub ignore_index: i64,
    /// How the losses of rows become one.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    /// −100 is ignored, and the loss is a mean, as in PyTorch.
    fn default() -> Self {
        CrossEntropy { ignore_index: -100, reduction: Reduction::Mean }
    }
}

/// What [`cross_entropy_backward`] gives, contiguous.
#[derive(Clone, Debug)]
pub struct CrossEntropyGradient<D = Tensor> {
    /// What [`cross_entropy`] gives.
    pub loss: D,
    /// The gradient of the logits, of their shape and type.
    pub dx: D,
}

const OP: &str = "cross_entropy";
const BACKWARD: &str = "cross_entropy_backward";

/// −log softmax(x)\[target\] along the last axis of the logits `x` `[.., V]` (f32, f16 or bf16) with a class `target`
/// `[..]` (i32 or i64) for each row; f32, of the target's shape, or `[]` for a mean or a sum.
///
/// Rows whose target is `ignore_index` have loss 0 and are not read. A NaN or +∞ in a row makes its loss NaN, as do
/// logits that are all −∞; a target whose logit is −∞ beside others has loss +∞. Exponentials and their sum are f32; the
/// same input gives the same bits on the same device. Any strides of x are accepted; target must be contiguous.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, CrossEntropy}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[3, 2], &[0.0f32, 0.0, 3.0, 3.0, 9.0, 1.0])?;
/// let target = Tensor::from_slice(&device, &[3], &[1i32, 0, -100])?;
/// let loss = ops::cross_entropy(&x, &target, &CrossEntropy::default())?;
/// assert!((loss.to_vec::<f32>()?[0] - 2f32.ln()).abs() < 1e-6);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and [`DeviceMismatch`](crate::Error::DeviceMismatch) for
/// tensors that do not fit, [`Value`](crate::Error::Value) for a target that is neither a class nor `ignore_index`: at once
/// on the CPU, and on a GPU by the next read-back or synchronisation; until then it counts as ignored.
/// [`Strides`](crate::Error::Strides) for negative strides, [`TooLarge`](crate::Error::TooLarge) for 2³¹ rows and more,
/// [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn cross_entropy(x: &Tensor, target: &Tensor, parameters: &CrossEntropy) -> Result<Tensor> {
    let problem = Problem::new(OP, x, target, None, *parameters)?;
    let loss = rows::uninit(&problem.loss)?;
    launch::run(&problem, x, target, None, Results { loss: &loss, dx: None })?;
    Ok(loss)
}

/// [`cross_entropy`] into a contiguous tensor on x's device, which must not overlap the inputs.
pub fn cross_entropy_into(
    x: &Tensor,
    target: &Tensor,
    parameters: &CrossEntropy,
    loss: &Tensor,
) -> Result<()> {
    let problem = Problem::new(OP, x, target, None, *parameters)?;
    rows::into(OP, &[x, target], [("loss", loss, &problem.loss)], |[loss]| {
        launch::run(&problem, x, target, None, Results { loss: &loss, dx: None })
    })
}

/// Checks the arguments of [`cross_entropy`] without computing; gives the loss.
pub fn cross_entropy_shape<D: Described>(x: &D, target: &D, parameters: &CrossEntropy) -> Result<Desc> {
    Ok(Problem::new(OP, x, target, None, *parameters)?.loss)
}

/// The loss of [`cross_entropy`] and the gradient of the logits, dx = g·(softmax(x) − one_hot(target)), from one reading
/// of the logits: forward and backward at once.
///
/// g is the gradient of the row's loss: `dloss` (f32, of the loss's shape; 1 where absent), over the number of rows that
/// count for a mean. Ignored rows have gradient 0, rows whose loss is NaN gradient NaN.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, CrossEntropy}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[1, 2], &[0.0f32, 0.0])?;
/// let target = Tensor::from_slice(&device, &[1], &[1i64])?;
/// let gradient = ops::cross_entropy_backward(&x, &target, None, &CrossEntropy::default())?;
/// assert_eq!(gradient.dx.to_vec::<f32>()?, [0.5, -0.5]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_backward(
    x: &Tensor,
    target: &Tensor,
    dloss: Option<&Tensor>,
    parameters: &CrossEntropy,
) -> Result<CrossEntropyGradient> {
    let problem = Problem::new(BACKWARD, x, target, dloss, *parameters)?;
    let gradient =
        CrossEntropyGradient { loss: rows::uninit(&problem.loss)?, dx: rows::uninit(&problem.dx)? };
    launch::run(&problem, x, target, dloss, Results { loss: &gradient.loss, dx: Some(&gradient.dx) })?;
    Ok(gradient)
}

/// [`cross_entropy_backward`] into contiguous tensors on x's device, which must not overlap the inputs or one another.
pub fn cross_entropy_backward_into(
    x: &Tensor,
    target: &Tensor,
    dloss: Option<&Tensor>,
    parameters: &CrossEntropy,
    gradient: &CrossEntropyGradient,
) -> Result<()> {
    let problem = Problem::new(BACKWARD, x, target, dloss, *parameters)?;
    let inputs: Vec<&Tensor> = [Some(x), Some(target), dloss].into_iter().flatten().collect();
    let outputs = [("loss", &gradient.loss, &problem.loss), ("dx", &gradient.dx, &problem.dx)];
    rows::into(BACKWARD, &inputs, outputs, |[loss, dx]| {
        launch::run(&problem, x, target, dloss, Results { loss: &loss, dx: Some(&dx) })
    })
}

/// Checks the arguments of [`cross_entropy_backward`] without computing; gives loss and dx.
pub fn cross_entropy_backward_shape<D: Described>(
    x: &D,
    target: &D,
    dloss: Option<&D>,
    parameters: &CrossEntropy,
) -> Result<CrossEntropyGradient<Desc>> {
    let Problem { loss, dx, .. } = Problem::new(BACKWARD, x, target, dloss, *parameters)?;
    Ok(CrossEntropyGradient { loss, dx })
}
