//! Dropout behind a masked softmax. See [`masked_softmax_dropout`].

use super::launch::{self, Results};
use super::problem::{KernelSet, Problem};
use super::{Described, MaskedSoftmax, OP, inputs};
use crate::error::Result;
use crate::ops::dropout::{Dropout, dropout_into, dropping};
use crate::ops::rows;
use crate::tensor::{Desc, Tensor};

/// What [`masked_softmax_dropout`] gives, of x's shape and type and contiguous.
#[derive(Clone, Debug)]
pub struct DroppedSoftmax<D = Tensor> {
    /// The probabilities after dropout.
    pub y: D,
    /// The probabilities: what [`masked_softmax`](super::masked_softmax()) gives, for the gradient.
    pub probabilities: D,
}

/// [`masked_softmax`](super::masked_softmax()) and [`dropout`](crate::ops::dropout()) of its result in one pass: what a
/// transformer multiplies its values with while it is trained.
///
/// y is what `dropout` makes of `probabilities`, bit by bit: elements are numbered row-major. With a bias, or where nothing is
/// dropped, it takes a pass of its own.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Dropout, MaskedSoftmax}};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[1, 4], &[1.0f32; 4])?;
/// let dropout = Dropout { p: 0.5, seed: 1, offset: 0 };
/// let of = ops::masked_softmax_dropout(&x, &MaskedSoftmax::default(), dropout)?;
/// assert_eq!(of.y.to_vec::<f32>()?, ops::dropout(&of.probabilities, dropout)?.to_vec::<f32>()?);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`masked_softmax`](super::masked_softmax()) and [`dropout`](crate::ops::dropout()).
pub fn masked_softmax_dropout(
    x: &Tensor,
    parameters: &MaskedSoftmax,
    dropout: Dropout,
) -> Result<DroppedSoftmax> {
    let shape = masked_softmax_dropout_shape(x, parameters, dropout)?;
    let of =
        DroppedSoftmax { y: rows::uninit(&shape.y)?, probabilities: rows::uninit(&shape.probabilities)? };
    run(x, parameters, dropout, &of)?;
    Ok(of)
}

/// [`masked_softmax_dropout`] into contiguous tensors of x's shape, type and device, which must not overlap x, the mask or one
/// another.
pub fn masked_softmax_dropout_into(
    x: &Tensor,
    parameters: &MaskedSoftmax,
    dropout: Dropout,
    of: &DroppedSoftmax,
) -> Result<()> {
    let shape = masked_softmax_dropout_shape(x, parameters, dropout)?;
    let outputs = [("y", &of.y, &shape.y), ("probabilities", &of.probabilities, &shape.probabilities)];
    rows::into(OP, &inputs(x, parameters), outputs, |[y, probabilities]| {
        run(x, parameters, dropout, &DroppedSoftmax { y, probabilities })
    })
}

/// Checks the arguments of [`masked_softmax_dropout`] without computing.
pub fn masked_softmax_dropout_shape<D: Described>(
    x: &D,
    parameters: &MaskedSoftmax<D>,
    dropout: Dropout,
) -> Result<DroppedSoftmax<Desc>> {
    let x = x.described();
    Problem::new(OP, x, parameters)?;
    dropping(OP, Some(dropout))?;
    let y = Desc::new(x.device(), x.dtype(), x.shape())?;
    Ok(DroppedSoftmax { probabilities: y.clone(), y })
}

fn run(x: &Tensor, parameters: &MaskedSoftmax, dropout: Dropout, of: &DroppedSoftmax) -> Result<()> {
    let problem = Problem::new(OP, x.desc(), parameters)?;
    let y = &of.probabilities;
    match dropping(OP, Some(dropout))? {
        Some(dropping) if !problem.has_bias() => {
            let problem = Problem { kernels: KernelSet::Dropout, ..problem };
            launch::run(&problem, x, parameters, Results { y, dropped: Some((&of.y, dropping)) }, None)
        }
        _ => {
            launch::run(&problem, x, parameters, Results { y, dropped: None }, None)?;
            dropout_into(y, dropout, &of.y)
        }
    }
}
