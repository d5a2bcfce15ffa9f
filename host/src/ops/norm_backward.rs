//! The gradients of layer norm and RMS norm. See [`layer_norm_backward`] and [`rms_norm_backward`].

use super::masked_softmax::Described;
use super::pointwise::with_float;
use super::rows::{self, Backward, Gradients, Problem, row_kernels, run_backward, uninit};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

/// The gradients of layer norm, in x's type and contiguous.
#[derive(Clone, Debug)]
pub struct LayerNormGradients<D = Tensor> {
    /// Of x.
    pub dx: D,
    /// Of the weight `[N]`.
    pub dweight: D,
    /// Of the bias `[N]`.
    pub dbias: D,
}

/// The gradients of RMS norm, in x's type and contiguous.
#[derive(Clone, Debug)]
pub struct RmsNormGradients<D = Tensor> {
    /// Of x.
    pub dx: D,
    /// Of the weight `[N]`.
    pub dweight: D,
}

const LAYER: &str = "layer_norm_backward";
const RMS: &str = "rms_norm_backward";

/// The gradients of [`layer_norm`](super::layer_norm()) for its x and weight, the gradient dy of its y, and its f32 mean and
/// rstd.
///
/// dweight and dbias add up f32 products in an order that the shape, the layout and whether the GPU has clusters of blocks determine,
/// without atomics: the same input gives the same bits. Any strides of x and dy are accepted; everything comes from one reading
/// where their rows lie at one distance and are whole aligned 16-byte packs, up to 16384 columns, 32768 on Hopper (4096 columns of
/// f32, 8192 of 16 bits where rows begin or end within packs); else from two.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, LayerNorm}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[1, 2], &[1.0f32, 3.0])?;
/// let dy = Tensor::from_slice(&device, &[1, 2], &[5.0f32, 7.0])?;
/// let normed = ops::layer_norm(&x, &LayerNorm { eps: 1e-12, ..Default::default() })?;
/// let gradients = ops::layer_norm_backward(&x, &dy, None, &normed.mean, &normed.rstd)?;
/// assert_eq!(gradients.dbias.to_vec::<f32>()?, [5.0, 7.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`layer_norm`](super::layer_norm()).
pub fn layer_norm_backward(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
) -> Result<LayerNormGradients> {
    layer(Backward { x: ("x", x), dy, dsum: None, weight, mean: Some(mean), rstd })
}

/// [`layer_norm_backward`] into contiguous tensors on x's device, which must not overlap the inputs or one another. Allocates
/// room for partial sums.
pub fn layer_norm_backward_into(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
    gradients: &LayerNormGradients,
) -> Result<()> {
    layer_into(Backward { x: ("x", x), dy, dsum: None, weight, mean: Some(mean), rstd }, gradients)
}

/// Checks the arguments of [`layer_norm_backward`] without computing.
pub fn layer_norm_backward_shape<D: Described>(
    x: &D,
    dy: &D,
    weight: Option<&D>,
    mean: &D,
    rstd: &D,
) -> Result<LayerNormGradients<Desc>> {
    let problem = problem(LAYER, &[("x", x), ("dy", dy)], weight, &[("mean", mean), ("rstd", rstd)])?;
    layer_shape(&problem)
}

/// The gradients of [`rms_norm`](super::rms_norm()) for its x and weight, the gradient dy of its y, and its f32 rstd. As
/// [`layer_norm_backward`] otherwise, from one reading up to 16384 columns on any GPU.
pub fn rms_norm_backward(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    rstd: &Tensor,
) -> Result<RmsNormGradients> {
    let of = Backward { x: ("x", x), dy, dsum: None, weight, mean: None, rstd };
    let problem = problem_of(RMS, &of)?;
    let gradients = RmsNormGradients { dx: uninit(&problem.y)?, dweight: uninit(&problem.of_columns()?)? };
    rms(&problem, of, &gradients)?;
    Ok(gradients)
}

/// [`rms_norm_backward`] into contiguous tensors on x's device, which must not overlap the inputs or one another. Allocates
/// room for partial sums.
pub fn rms_norm_backward_into(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    rstd: &Tensor,
    gradients: &RmsNormGradients,
) -> Result<()> {
    let of = Backward { x: ("x", x), dy, dsum: None, weight, mean: None, rstd };
    let problem = problem_of(RMS, &of)?;
    let of_columns = problem.of_columns()?;
    let outputs = [("dx", &gradients.dx, &problem.y), ("dweight", &gradients.dweight, &of_columns)];
    rows::into(RMS, &inputs_of(&of), outputs, |[dx, dweight]| {
        rms(&problem, of, &RmsNormGradients { dx, dweight })
    })
}

/// Checks the arguments of [`rms_norm_backward`] without computing.
pub fn rms_norm_backward_shape<D: Described>(
    x: &D,
    dy: &D,
    weight: Option<&D>,
    rstd: &D,
) -> Result<RmsNormGradients<Desc>> {
    let problem = problem(RMS, &[("x", x), ("dy", dy)], weight, &[("rstd", rstd)])?;
    Ok(RmsNormGradients { dweight: problem.of_columns()?, dx: problem.y })
}

pub(super) fn problem<D: Described>(
    op: &'static str,
    inputs: &[(&'static str, &D)],
    weight: Option<&D>,
    of_rows: &[(&'static str, &D)],
) -> Result<Problem> {
    let inputs: Vec<(&'static str, &Desc)> =
        inputs.iter().map(|&(arg, input)| (arg, input.described())).collect();
    let problem = Problem::new(op, &inputs)?;
    problem.check_vector("weight", weight.map(D::described))?;
    for &(arg, numbers) in of_rows {
        problem.check_row_numbers(arg, numbers.described())?;
    }
    Ok(problem)
}

pub(super) fn problem_of(op: &'static str, of: &Backward) -> Result<Problem> {
    let inputs: Vec<(&'static str, &Tensor)> =
        [of.x, ("dy", of.dy)].into_iter().chain(of.dsum.map(|dsum| ("dsum", dsum))).collect();
    let of_rows: Vec<(&'static str, &Tensor)> =
        of.mean.map(|mean| ("mean", mean)).into_iter().chain([("rstd", of.rstd)]).collect();
    problem(op, &inputs, of.weight, &of_rows)
}

pub(super) fn inputs_of<'a>(of: &Backward<'a>) -> Vec<&'a Tensor> {
    [Some(of.x.1), Some(of.dy), of.dsum, of.weight, of.mean, Some(of.rstd)].into_iter().flatten().collect()
}

fn layer_shape(problem: &Problem) -> Result<LayerNormGradients<Desc>> {
    let of_columns = problem.of_columns()?;
    Ok(LayerNormGradients { dx: problem.y.clone(), dweight: of_columns.clone(), dbias: of_columns })
}

fn layer(of: Backward) -> Result<LayerNormGradients> {
    let problem = problem_of(LAYER, &of)?;
    let LayerNormGradients { dx, dweight, dbias } = layer_shape(&problem)?;
    let gradients =
        LayerNormGradients { dx: uninit(&dx)?, dweight: uninit(&dweight)?, dbias: uninit(&dbias)? };
    layer_run(&problem, of, &gradients)?;
    Ok(gradients)
}

fn layer_into(of: Backward, gradients: &LayerNormGradients) -> Result<()> {
    let problem = problem_of(LAYER, &of)?;
    let wanted = layer_shape(&problem)?;
    let outputs = [
        ("dx", &gradients.dx, &wanted.dx),
        ("dweight", &gradients.dweight, &wanted.dweight),
        ("dbias", &gradients.dbias, &wanted.dbias),
    ];
    rows::into(LAYER, &inputs_of(&of), outputs, |[dx, dweight, dbias]| {
        layer_run(&problem, of, &LayerNormGradients { dx, dweight, dbias })
    })
}

pub(super) fn layer_run(problem: &Problem, of: Backward, gradients: &LayerNormGradients) -> Result<()> {
    let LayerNormGradients { dx, dweight, dbias } = gradients;
    with_float!(problem.dtype, T => {
        let kernels =
            row_kernels!(T, layer_norm_backward_rows, layer_norm_backward_streamed, layer_norm_backward_strided; layer_norm_backward_walked, layer_norm_backward_walked_cluster);
        run_backward(problem, kernels, of, Gradients { dx, dweight, dbias: Some(dbias) })
    })
}

fn rms(problem: &Problem, of: Backward, gradients: &RmsNormGradients) -> Result<()> {
    let RmsNormGradients { dx, dweight } = gradients;
    with_float!(problem.dtype, T => {
        let kernels = row_kernels!(T, rms_norm_backward_rows, rms_norm_backward_streamed, rms_norm_backward_strided; rms_norm_backward_walked, rms_norm_backward_walked_cluster);
        run_backward(problem, kernels, of, Gradients { dx, dweight, dbias: None })
    })
}
