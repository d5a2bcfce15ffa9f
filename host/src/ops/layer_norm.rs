//! Layer norm over the last axis. See [`layer_norm`].

use super::masked_softmax::Described;
use super::pointwise::with_float;
use super::rows::{self, Operands, Problem, row_kernels, uninit};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

/// The parameters of [`layer_norm`], and of the norm in [`add_layer_norm`](super::add_layer_norm()).
#[derive(Debug)]
pub struct LayerNorm<'a, D = Tensor> {
    /// What each column is multiplied by, of x's type `[N]`; 1 where absent.
    pub weight: Option<&'a D>,
    /// What is added to each column, of x's type `[N]`; 0 where absent.
    pub bias: Option<&'a D>,
    /// ε, added to the variance: positive, at least 2⁻¹²⁶.
    pub eps: f32,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for LayerNorm<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for LayerNorm<'_, D> {}

impl<D> Default for LayerNorm<'_, D> {
    /// Neither weight nor bias, and 10⁻⁵.
    fn default() -> Self {
        LayerNorm { weight: None, bias: None, eps: 1e-5 }
    }
}

/// What [`layer_norm`] gives, all of it contiguous.
#[derive(Clone, Debug)]
pub struct LayerNormed<D = Tensor> {
    /// The result, of x's shape and type.
    pub y: D,
    /// The mean of each row: f32, of x's shape without its last dimension.
    pub mean: D,
    /// 1/√(variance + ε) of each row, like the mean.
    pub rstd: D,
}

const OP: &str = "layer_norm";

/// (x − mean)·rstd·weight + bias along the last axis of `x` `[.., N]` (f32, f16 or bf16), with mean and variance (of N, not
/// N − 1) of each row in f32.
///
/// The variance comes from differences from the mean, so that it is right where the mean is large. A NaN or an infinity in a
/// row makes the row NaN. Rows without columns have mean 0 and variance 0. The same input gives the same bits on the same device.
///
/// Any strides of x are accepted; fast are rows that lie densely and start alike (modulo 16 bytes) in x and y, fastest rows of
/// whole 16-byte packs.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, LayerNorm}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32, 3.0, 10.0, 10.0])?;
/// let bias = Tensor::from_slice(&device, &[2], &[0.5f32, 0.0])?;
/// let normed = ops::layer_norm(&x, &LayerNorm { bias: Some(&bias), eps: 1e-12, ..Default::default() })?;
/// assert_eq!(normed.mean.to_vec::<f32>()?, [2.0, 10.0]);
/// let y = normed.y.to_vec::<f32>()?;
/// assert!((y[0] + 0.5).abs() < 1e-6 && (y[1] - 1.0).abs() < 1e-6 && y[2..] == [0.5, 0.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](crate::Error::Shape), [`DType`](crate::Error::DType) and [`DeviceMismatch`](crate::Error::DeviceMismatch) for
/// tensors that do not fit, [`Parameter`](crate::Error::Parameter) for an ε that is not positive,
/// [`Strides`](crate::Error::Strides) for negative strides, [`TooLarge`](crate::Error::TooLarge) for 2³¹ rows and more or
/// columns beyond 2³¹ − 2¹⁷, [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn layer_norm(x: &Tensor, parameters: &LayerNorm) -> Result<LayerNormed> {
    let problem = problem(x, parameters)?;
    let normed = LayerNormed {
        y: uninit(&problem.y)?,
        mean: uninit(&problem.of_rows)?,
        rstd: uninit(&problem.of_rows)?,
    };
    forward(&problem, x, parameters, &normed)?;
    Ok(normed)
}

/// [`layer_norm`] into contiguous tensors on x's device, which must not overlap the inputs or one another.
pub fn layer_norm_into(x: &Tensor, parameters: &LayerNorm, normed: &LayerNormed) -> Result<()> {
    let problem = problem(x, parameters)?;
    let inputs: Vec<&Tensor> = [Some(x), parameters.weight, parameters.bias].into_iter().flatten().collect();
    let outputs = [
        ("y", &normed.y, &problem.y),
        ("mean", &normed.mean, &problem.of_rows),
        ("rstd", &normed.rstd, &problem.of_rows),
    ];
    rows::into(OP, &inputs, outputs, |[y, mean, rstd]| {
        forward(&problem, x, parameters, &LayerNormed { y, mean, rstd })
    })
}

/// Checks the arguments of [`layer_norm`] without computing.
pub fn layer_norm_shape<D: Described>(x: &D, parameters: &LayerNorm<D>) -> Result<LayerNormed<Desc>> {
    let Problem { y, of_rows, .. } = problem(x, parameters)?;
    Ok(LayerNormed { y, mean: of_rows.clone(), rstd: of_rows })
}

fn problem<D: Described>(x: &D, parameters: &LayerNorm<D>) -> Result<Problem> {
    let problem = Problem::new(OP, &[("x", x.described())])?;
    check(&problem, parameters)?;
    Ok(problem)
}

pub(super) fn check<D: Described>(problem: &Problem, parameters: &LayerNorm<D>) -> Result<()> {
    problem.check_vector("weight", parameters.weight.map(D::described))?;
    problem.check_vector("bias", parameters.bias.map(D::described))?;
    rows::check_eps(problem.op, parameters.eps)
}

fn forward(problem: &Problem, x: &Tensor, parameters: &LayerNorm, normed: &LayerNormed) -> Result<()> {
    let operands = Operands {
        inputs: [Some(("x", x)), None, None],
        weight: parameters.weight,
        bias: parameters.bias,
        y: Some(&normed.y),
        mean: Some(&normed.mean),
        rstd: Some(&normed.rstd),
        number: parameters.eps,
        ..Default::default()
    };
    with_float!(problem.dtype, T => {
        let kernels = row_kernels!(T, layer_norm_rows, layer_norm_streamed, layer_norm_strided, layer_norm_cluster; layer_norm_walked);
        rows::run(problem, kernels, operands)
    })
}
