//! RMS norm over the last axis. See [`rms_norm`].

use super::masked_softmax::Described;
use super::pointwise::with_float;
use super::rows::{self, Operands, Problem, row_kernels, uninit};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

/// What [`rms_norm`] gives, all of it contiguous.
#[derive(Clone, Debug)]
pub struct RmsNormed<D = Tensor> {
    /// The result, of x's shape and type.
    pub y: D,
    /// 1/√(mean of x² + ε) of each row: f32, of x's shape without its last dimension.
    pub rstd: D,
}

const OP: &str = "rms_norm";

/// x/√(mean of x² + ε)·weight along the last axis of `x` `[.., N]` (f32, f16 or bf16), computed in f32; weight of x's type
/// `[N]`, 1 where absent.
///
/// A NaN in a row makes the row NaN. Where the squares pass f32's range the row is zeros, but for NaN in the place of an
/// infinity. As [`layer_norm`](super::layer_norm()) otherwise.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[1, 2], &[3.0f32, -3.0])?;
/// let normed = ops::rms_norm(&x, None, 1e-12)?;
/// assert!((normed.rstd.to_vec::<f32>()?[0] - 1.0 / 3.0).abs() < 1e-6);
/// assert!((normed.y.to_vec::<f32>()?[1] + 1.0).abs() < 1e-6);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`layer_norm`](super::layer_norm()).
pub fn rms_norm(x: &Tensor, weight: Option<&Tensor>, eps: f32) -> Result<RmsNormed> {
    let problem = problem(x, weight, eps)?;
    let normed = RmsNormed { y: uninit(&problem.y)?, rstd: uninit(&problem.of_rows)? };
    forward(&problem, x, weight, eps, &normed)?;
    Ok(normed)
}

/// [`rms_norm`] into contiguous tensors on x's device, which must not overlap the inputs or one another.
pub fn rms_norm_into(x: &Tensor, weight: Option<&Tensor>, eps: f32, normed: &RmsNormed) -> Result<()> {
    let problem = problem(x, weight, eps)?;
    let inputs: Vec<&Tensor> = [Some(x), weight].into_iter().flatten().collect();
    let outputs = [("y", &normed.y, &problem.y), ("rstd", &normed.rstd, &problem.of_rows)];
    rows::into(OP, &inputs, outputs, |[y, rstd]| forward(&problem, x, weight, eps, &RmsNormed { y, rstd }))
}

/// Checks the arguments of [`rms_norm`] without computing.
pub fn rms_norm_shape<D: Described>(x: &D, weight: Option<&D>, eps: f32) -> Result<RmsNormed<Desc>> {
    let Problem { y, of_rows, .. } = problem(x, weight, eps)?;
    Ok(RmsNormed { y, rstd: of_rows })
}

fn problem<D: Described>(x: &D, weight: Option<&D>, eps: f32) -> Result<Problem> {
    let problem = Problem::new(OP, &[("x", x.described())])?;
    problem.check_vector("weight", weight.map(D::described))?;
    rows::check_eps(OP, eps)?;
    Ok(problem)
}

fn forward(
    problem: &Problem,
    x: &Tensor,
    weight: Option<&Tensor>,
    eps: f32,
    normed: &RmsNormed,
) -> Result<()> {
    let operands = Operands {
        inputs: [Some(("x", x)), None, None],
        weight,
        y: Some(&normed.y),
        rstd: Some(&normed.rstd),
        number: eps,
        ..Default::default()
    };
    with_float!(problem.dtype, T => {
        rows::run(problem, row_kernels!(T, rms_norm_rows, rms_norm_streamed, rms_norm_strided, rms_norm_cluster), operands)
    })
}
