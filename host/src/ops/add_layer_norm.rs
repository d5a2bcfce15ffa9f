//! A sum and its layer norm in one pass, and the gradients. See [`add_layer_norm`] and [`add_layer_norm_backward`].

use super::dropout::{self, Dropout};
use super::layer_norm::{self, LayerNorm};
use super::masked_softmax::Described;
use super::norm_backward::{self, LayerNormGradients};
use super::pointwise::with_float;
use super::rows::{self, Backward, Operands, Problem, row_kernels, run_column_sums, uninit};
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};

/// The parameters of [`add_layer_norm`].
#[derive(Debug)]
pub struct AddLayerNorm<'a, D = Tensor> {
    /// What is added to x's columns, of x's type `[N]`; 0 where absent.
    pub input_bias: Option<&'a D>,
    /// What becomes of x + input_bias before the residual is added; nothing where absent. Elements are numbered row-major.
    pub dropout: Option<Dropout>,
    /// The norm of the sum.
    pub norm: LayerNorm<'a, D>,
}

/// The parameters of [`add_layer_norm_backward`].
#[derive(Debug)]
pub struct AddLayerNormBackward<'a, D = Tensor> {
    /// A gradient that the sum gets from elsewhere, as a residual does; 0 where absent.
    pub dsum: Option<&'a D>,
    /// The norm's weight `[N]`; 1 where absent.
    pub weight: Option<&'a D>,
    /// The dropout that [`add_layer_norm`] applied.
    pub dropout: Option<Dropout>,
    /// Whether the gradient of the input's bias is wanted.
    pub input_bias: bool,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for AddLayerNorm<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for AddLayerNorm<'_, D> {}

impl<D> Default for AddLayerNorm<'_, D> {
    fn default() -> Self {
        AddLayerNorm { input_bias: None, dropout: None, norm: LayerNorm::default() }
    }
}

impl<'a, D> From<LayerNorm<'a, D>> for AddLayerNorm<'a, D> {
    /// Neither bias nor dropout.
    fn from(norm: LayerNorm<'a, D>) -> Self {
        AddLayerNorm { norm, ..Default::default() }
    }
}

impl<D> Clone for AddLayerNormBackward<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for AddLayerNormBackward<'_, D> {}

impl<D> Default for AddLayerNormBackward<'_, D> {
    fn default() -> Self {
        AddLayerNormBackward { dsum: None, weight: None, dropout: None, input_bias: false }
    }
}

/// What [`add_layer_norm`] gives, all of it contiguous.
#[derive(Clone, Debug)]
pub struct AddLayerNormed<D = Tensor> {
    /// dropout(x + input_bias) + residual, of x's shape and type.
    pub sum: D,
    /// The layer norm of `sum`.
    pub y: D,
    /// The mean of each row of `sum`: f32.
    pub mean: D,
    /// 1/√(variance + ε) of each row of `sum`: f32.
    pub rstd: D,
}

/// What [`add_layer_norm_backward`] gives, in the sum's type and contiguous.
#[derive(Clone, Debug)]
pub struct AddLayerNormGradients<D = Tensor> {
    /// Of x; of the residual too, without dropout.
    pub dx: D,
    /// Of the residual, with dropout.
    pub dresidual: Option<D>,
    /// Of the input's bias `[N]`, where asked for: the sums of dx's columns.
    pub dinput_bias: Option<D>,
    /// Of the weight `[N]`.
    pub dweight: D,
    /// Of the bias `[N]`.
    pub dbias: D,
}

const OP: &str = "add_layer_norm";
const BACKWARD: &str = "add_layer_norm_backward";

/// The sum dropout(x + input_bias) + residual, rounded to x's type, and its [`layer_norm`](super::layer_norm()): x and
/// residual `[.., N]`, input_bias `[N]`, all of one type. The sum is not rounded in between.
///
/// The same bits as the layer norm of `sum`; the dropout drops what [`dropout`](super::dropout()) of a tensor of this shape
/// would. A transformer's step: dense layer's output, its bias, the residual.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, AddLayerNorm}};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[1, 2], &[1.0f32, 3.0])?;
/// let normed = ops::add_layer_norm(&x, &x, &AddLayerNorm::default())?;
/// assert_eq!((normed.sum.to_vec::<f32>()?, normed.mean.to_vec::<f32>()?), (vec![2.0, 6.0], vec![4.0]));
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`layer_norm`](super::layer_norm()); [`Parameter`](Error::Parameter) for a p of the dropout outside of 0..=1.
pub fn add_layer_norm(x: &Tensor, residual: &Tensor, parameters: &AddLayerNorm) -> Result<AddLayerNormed> {
    let problem = problem(x, residual, parameters)?;
    let normed = AddLayerNormed {
        sum: uninit(&problem.y)?,
        y: uninit(&problem.y)?,
        mean: uninit(&problem.of_rows)?,
        rstd: uninit(&problem.of_rows)?,
    };
    forward(&problem, [x, residual], parameters, &normed)?;
    Ok(normed)
}

/// [`add_layer_norm`] into contiguous tensors on x's device, which must not overlap the inputs or one another.
pub fn add_layer_norm_into(
    x: &Tensor,
    residual: &Tensor,
    parameters: &AddLayerNorm,
    normed: &AddLayerNormed,
) -> Result<()> {
    let problem = problem(x, residual, parameters)?;
    let LayerNorm { weight, bias, .. } = parameters.norm;
    let inputs = [Some(x), Some(residual), parameters.input_bias, weight, bias];
    let inputs: Vec<&Tensor> = inputs.into_iter().flatten().collect();
    let outputs = [
        ("sum", &normed.sum, &problem.y),
        ("y", &normed.y, &problem.y),
        ("mean", &normed.mean, &problem.of_rows),
        ("rstd", &normed.rstd, &problem.of_rows),
    ];
    rows::into(OP, &inputs, outputs, |[sum, y, mean, rstd]| {
        forward(&problem, [x, residual], parameters, &AddLayerNormed { sum, y, mean, rstd })
    })
}

/// Checks the arguments of [`add_layer_norm`] without computing.
pub fn add_layer_norm_shape<D: Described>(
    x: &D,
    residual: &D,
    parameters: &AddLayerNorm<D>,
) -> Result<AddLayerNormed<Desc>> {
    let Problem { y, of_rows, .. } = problem(x, residual, parameters)?;
    Ok(AddLayerNormed { sum: y.clone(), y, mean: of_rows.clone(), rstd: of_rows })
}

fn problem<D: Described>(x: &D, residual: &D, parameters: &AddLayerNorm<D>) -> Result<Problem> {
    let problem = Problem::new(OP, &[("x", x.described()), ("residual", residual.described())])?;
    problem.check_vector("input_bias", parameters.input_bias.map(D::described))?;
    dropout::dropping(OP, parameters.dropout)?;
    layer_norm::check(&problem, &parameters.norm)?;
    Ok(problem)
}

fn forward(
    problem: &Problem,
    [x, residual]: [&Tensor; 2],
    parameters: &AddLayerNorm,
    normed: &AddLayerNormed,
) -> Result<()> {
    let operands = Operands {
        inputs: [Some(("x", x)), Some(("residual", residual)), None],
        weight: parameters.norm.weight,
        bias: parameters.norm.bias,
        input_bias: parameters.input_bias,
        y: Some(&normed.y),
        joined: Some(&normed.sum),
        mean: Some(&normed.mean),
        rstd: Some(&normed.rstd),
        number: parameters.norm.eps,
        dropping: dropout::dropping(OP, parameters.dropout)?,
    };
    with_float!(problem.dtype, T => {
        let kernels = if operands.dropping.is_some() {
            row_kernels!(
                T, add_layer_norm_dropout_rows, add_layer_norm_dropout_streamed, add_layer_norm_dropout_strided
            )
        } else {
            row_kernels!(T, add_layer_norm_rows, add_layer_norm_streamed, add_layer_norm_strided, add_layer_norm_cluster)
        };
        rows::run(problem, kernels, operands)
    })
}

/// The gradients of [`add_layer_norm`], for the `sum` that it gave, the gradient dy of its y, and its mean and rstd.
///
/// As [`layer_norm_backward`](super::layer_norm_backward()), with dsum added to dx. The gradient of the residual is that of
/// the sum; with dropout, that of x is 0 where x was dropped, and takes a pass of its own, as the gradient of the input's bias
/// does.
///
/// # Errors
/// As [`add_layer_norm`].
pub fn add_layer_norm_backward(
    sum: &Tensor,
    dy: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    parameters: &AddLayerNormBackward,
) -> Result<AddLayerNormGradients> {
    let of = operands(sum, dy, mean, rstd, parameters);
    let problem = norm_backward::problem_of(BACKWARD, &of)?;
    let AddLayerNormGradients { dx, dresidual, dinput_bias, dweight, dbias } = wanted(&problem, parameters)?;
    let gradients = AddLayerNormGradients {
        dx: uninit(&dx)?,
        dresidual: dresidual.as_ref().map(uninit).transpose()?,
        dinput_bias: dinput_bias.as_ref().map(uninit).transpose()?,
        dweight: uninit(&dweight)?,
        dbias: uninit(&dbias)?,
    };
    backward(&problem, of, parameters, &gradients)?;
    Ok(gradients)
}

/// [`add_layer_norm_backward`] into contiguous tensors on the sum's device, which must not overlap the inputs or one another.
/// Allocates room for partial sums.
///
/// # Errors
/// As there; [`Missing`](Error::Missing) for a gradient that is asked for and not given.
pub fn add_layer_norm_backward_into(
    sum: &Tensor,
    dy: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    parameters: &AddLayerNormBackward,
    gradients: &AddLayerNormGradients,
) -> Result<()> {
    let of = operands(sum, dy, mean, rstd, parameters);
    let problem = norm_backward::problem_of(BACKWARD, &of)?;
    let wanted = wanted(&problem, parameters)?;
    let given = |arg: &'static str, given: &Option<Tensor>, is_wanted: bool| match (given, is_wanted) {
        (None, true) => {
            let required = "a tensor, since the parameters ask for it";
            Err(Error::Missing { op: BACKWARD, arg: arg.to_owned(), required })
        }
        (given, true) => Ok(given.clone()),
        (_, false) => Ok(None),
    };
    let dresidual = given("dresidual", &gradients.dresidual, wanted.dresidual.is_some())?;
    let dinput_bias = given("dinput_bias", &gradients.dinput_bias, wanted.dinput_bias.is_some())?;
    let optional =
        [("dresidual", &dresidual, &wanted.dresidual), ("dinput_bias", &dinput_bias, &wanted.dinput_bias)];
    let optional = optional
        .into_iter()
        .filter_map(|(arg, given, wanted)| Some((arg, given.as_ref()?, wanted.as_ref()?)));
    let outputs: Vec<(&'static str, &Tensor, &Desc)> = [
        ("dx", &gradients.dx, &wanted.dx),
        ("dweight", &gradients.dweight, &wanted.dweight),
        ("dbias", &gradients.dbias, &wanted.dbias),
    ]
    .into_iter()
    .chain(optional)
    .collect();
    rows::into_all(BACKWARD, &norm_backward::inputs_of(&of), &outputs, |here| {
        let mut here = here.into_iter();
        let mut next = || here.next().expect("as many as outputs");
        let (dx, dweight, dbias) = (next(), next(), next());
        let dresidual = dresidual.is_some().then(&mut next);
        let dinput_bias = dinput_bias.is_some().then(&mut next);
        let gradients = AddLayerNormGradients { dx, dresidual, dinput_bias, dweight, dbias };
        backward(&problem, of, parameters, &gradients)
    })
}

/// Checks the arguments of [`add_layer_norm_backward`] without computing.
pub fn add_layer_norm_backward_shape<D: Described>(
    sum: &D,
    dy: &D,
    mean: &D,
    rstd: &D,
    parameters: &AddLayerNormBackward<D>,
) -> Result<AddLayerNormGradients<Desc>> {
    let inputs = [Some(("sum", sum)), Some(("dy", dy)), parameters.dsum.map(|dsum| ("dsum", dsum))];
    let inputs: Vec<(&'static str, &D)> = inputs.into_iter().flatten().collect();
    let of_rows = [("mean", mean), ("rstd", rstd)];
    wanted(&norm_backward::problem(BACKWARD, &inputs, parameters.weight, &of_rows)?, parameters)
}

fn operands<'a>(
    sum: &'a Tensor,
    dy: &'a Tensor,
    mean: &'a Tensor,
    rstd: &'a Tensor,
    parameters: &AddLayerNormBackward<'a>,
) -> Backward<'a> {
    let AddLayerNormBackward { dsum, weight, .. } = *parameters;
    Backward { x: ("sum", sum), dy, dsum, weight, mean: Some(mean), rstd }
}

fn wanted<D>(problem: &Problem, parameters: &AddLayerNormBackward<D>) -> Result<AddLayerNormGradients<Desc>> {
    let drops = dropout::dropping(BACKWARD, parameters.dropout)?.is_some();
    let of_columns = problem.of_columns()?;
    Ok(AddLayerNormGradients {
        dx: problem.y.clone(),
        dresidual: drops.then(|| problem.y.clone()),
        dinput_bias: parameters.input_bias.then(|| of_columns.clone()),
        dweight: of_columns.clone(),
        dbias: of_columns,
    })
}

fn backward(
    problem: &Problem,
    of: Backward,
    parameters: &AddLayerNormBackward,
    gradients: &AddLayerNormGradients,
) -> Result<()> {
    let AddLayerNormGradients { dx, dresidual, dinput_bias, dweight, dbias } = gradients;
    let of_sum = dresidual.as_ref().unwrap_or(dx);
    let of_norm = LayerNormGradients { dx: of_sum.clone(), dweight: dweight.clone(), dbias: dbias.clone() };
    norm_backward::layer_run(problem, of, &of_norm)?;
    if let (Some(dresidual), Some(dropout)) = (dresidual, parameters.dropout) {
        super::dropout_backward_into(dresidual, dropout, dx)?;
    }
    match dinput_bias {
        Some(dinput_bias) => {
            with_float!(problem.dtype, T => run_column_sums::<T>(problem, of, dx, dinput_bias))
        }
        None => Ok(()),
    }
}
