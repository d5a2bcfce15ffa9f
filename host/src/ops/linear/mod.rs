//! The linear layer: x·wᵀ with what models put behind it. See [`linear`].

mod backward;

pub(super) use backward::bias_gradient;
pub use backward::{
    LinearBackward, LinearGradients, linear_backward, linear_backward_into, linear_backward_shape,
};

use super::gelu::Approximate;
use super::masked_softmax::Described;
use super::matmul::{self, Behind, Choice, Factors, Plan, Problem};
use super::pointwise::{check_output, float, on_device, reach};
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};
use kernels_gpu::matmul::activation;

const OP: &str = "linear";

/// What is applied to each number behind a product and its bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// The larger of the number and 0; NaN stays NaN.
    Relu,
    /// [`gelu`](super::gelu()) in one of its forms.
    Gelu(Approximate),
}

impl Activation {
    /// Its number in kernels.
    fn number(self) -> u32 {
        match self {
            Activation::None => activation::NONE,
            Activation::Relu => activation::RELU,
            Activation::Gelu(Approximate::Tanh) => activation::GELU_TANH,
            Activation::Gelu(Approximate::None) => activation::GELU_ERF,
        }
    }
}

/// The parameters of [`linear`].
#[derive(Debug)]
pub struct Linear<'a, D = Tensor> {
    /// `[N]`, added to each row.
    pub bias: Option<&'a D>,
    /// What is applied then.
    pub activation: Activation,
    /// Added at last; it broadcasts against the result.
    pub residual: Option<&'a D>,
    /// Round operands in f32 to tf32, as [`Matmul::tf32`](super::Matmul::tf32).
    pub tf32: bool,
    /// Write the result by heads of attention, on its way out: x is `[B, S, K]` then, and y `[P, B, H, S, D]`. Not together with a residual, nor
    /// where the activation's operand is kept.
    pub heads: Option<Heads>,
}

/// The heads that the columns of a projection are split into: N is P·H·D, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// P: 3 for queries, keys and values.
    pub parts: usize,
    /// H, of each part.
    pub heads: usize,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for Linear<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Linear<'_, D> {}

impl<D> Default for Linear<'_, D> {
    fn default() -> Self {
        Linear { bias: None, activation: Activation::None, residual: None, tf32: false, heads: None }
    }
}

/// act(x·weightᵀ + bias) + residual for x `[.., K]` and weight `[N, K]` of one type (f32, f16 or bf16): `[.., N]`,
/// contiguous.
///
/// All of it is computed in f32 behind the product, in one pass, and rounded once. Otherwise as
/// [`matmul`](super::matmul()).
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Activation, Linear}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[1, 2], &[1.0f32, 2.0])?;
/// let weight = Tensor::from_slice(&device, &[3, 2], &[1.0f32, 0.0, 0.0, 1.0, -1.0, -1.0])?;
/// let bias = Tensor::from_slice(&device, &[3], &[0.5f32, 0.5, 0.5])?;
/// let layer = Linear { bias: Some(&bias), activation: Activation::Relu, ..Default::default() };
/// assert_eq!(ops::linear(&x, &weight, &layer)?.to_vec::<f32>()?, [1.5, 2.5, 0.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// With [`Linear::heads`] the numbers are those of [`split_heads`](super::split_heads()) of the result viewed as `[B, S, P, H, D]`, and the same
/// bits, but go there in the same pass: `[P, B, H, S, D]`, contiguous, for x `[B, S, K]`. [`merge_heads`](super::merge_heads()) of their gradient is
/// the dy of [`linear_backward`].
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Heads, Linear}};
///
/// let device = Device::cpu();
/// let x = Tensor::from_slice(&device, &[1, 2, 1], &[1.0f32, 10.0])?;
/// let weight = Tensor::from_slice(&device, &[4, 1], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let layer = Linear { heads: Some(Heads { parts: 1, heads: 2 }), ..Default::default() };
/// let y = ops::linear(&x, &weight, &layer)?;
/// assert_eq!(y.shape(), [1, 1, 2, 2, 2]);
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`matmul`](super::matmul()); with heads also [`Parameter`](Error::Parameter) for none, and with a residual.
pub fn linear(x: &Tensor, weight: &Tensor, parameters: &Linear) -> Result<Tensor> {
    let problem = problem(x, weight, parameters)?;
    let y = output(x, &problem)?;
    forward(&problem, x, weight, parameters, None, &y)?;
    Ok(y)
}

/// [`linear`] into a contiguous tensor of the result's shape, type and device, which must not overlap the operands.
pub fn linear_into(x: &Tensor, weight: &Tensor, parameters: &Linear, y: &Tensor) -> Result<()> {
    into(&problem(x, weight, parameters)?, x, weight, parameters, None, y)
}

/// [`linear_into`] by a kernel of the caller's choice, one of [`linear_candidates`], with what its activation got in `pre` where that is wanted: for tests of
/// each kernel, and for tuning the model. Both must be contiguous, of the result's shape, type and device, and overlap nothing.
pub fn linear_into_by(
    choice: Choice,
    x: &Tensor,
    weight: &Tensor,
    parameters: &Linear,
    pre: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let problem = problem(x, weight, parameters)?.by(choice);
    if let (Some(heads), Some(_)) = (parameters.heads, pre) {
        return heads.refused("where the activation's operand is kept");
    }
    into(&problem, x, weight, parameters, pre, y)
}

fn into(
    problem: &Problem,
    x: &Tensor,
    weight: &Tensor,
    parameters: &Linear,
    pre: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let mut inputs: Vec<&Tensor> =
        [x, weight].into_iter().chain(parameters.bias).chain(parameters.residual).collect();
    let result = described(x.desc(), problem)?;
    let adopt = |tensor: &Tensor, arg| tensor.adopted(x.device(), OP, arg);
    let mut kept = None;
    if let Some(pre) = pre {
        check_output(OP, "pre", pre, &result, &inputs)?;
        inputs.push(pre);
        kept = Some(adopt(pre, "pre")?);
    }
    check_output(OP, "y", y, &result, &inputs)?;
    forward(problem, x, weight, parameters, kept.as_ref(), &adopt(y, "y")?)?;
    pre.into_iter().chain([y]).try_for_each(|tensor| tensor.device().wait_for(x.device(), OP))
}

/// (y, pre): [`linear`], and what its activation got, x·weightᵀ + bias, rounded: for [`linear_backward`]. Both come from
/// the same pass.
///
/// # Errors
/// As [`linear`]; [`Parameter`](Error::Parameter) with heads.
pub fn linear_keeping(x: &Tensor, weight: &Tensor, parameters: &Linear) -> Result<(Tensor, Tensor)> {
    let problem = problem(x, weight, parameters)?;
    if let Some(heads) = parameters.heads {
        return heads.refused("where the activation's operand is kept");
    }
    let (y, pre) = (output(x, &problem)?, output(x, &problem)?);
    forward(&problem, x, weight, parameters, Some(&pre), &y)?;
    Ok((y, pre))
}

/// Checks the arguments of [`linear`] without computing; gives y.
pub fn linear_shape<D: Described>(x: &D, weight: &D, parameters: &Linear<D>) -> Result<Desc> {
    described(x.described(), &problem(x, weight, parameters)?)
}

/// How [`linear`] would go about it, for operands that start at lines of L2 of 128 bytes.
pub fn linear_explain<D: Described>(x: &D, weight: &D, parameters: &Linear<D>) -> Result<Plan> {
    problem(x, weight, parameters)?.launchable_plan()
}

/// The ways that [`linear`] could go about it, one for each kernel, the one that it takes first.
pub fn linear_candidates<D: Described>(x: &D, weight: &D, parameters: &Linear<D>) -> Result<Vec<Plan>> {
    problem(x, weight, parameters)?.plans()
}

/// `[.., N]`, or `[P, B, H, S, D]`.
fn described(x: &Desc, problem: &Problem) -> Result<Desc> {
    let shape = match problem.heads {
        Some(of) => vec![of.parts, of.sequences, of.count, of.length, of.width],
        None => x.shape()[..x.rank() - 1].iter().copied().chain([problem.factors.n]).collect(),
    };
    Desc::contiguous(OP, x.device(), x.dtype(), &shape)
}

fn output(x: &Tensor, problem: &Problem) -> Result<Tensor> {
    Tensor::uninit(x.device(), problem.y.dtype(), described(x.desc(), problem)?.shape())
}

impl Heads {
    fn refused<T>(self, when: &str) -> Result<T> {
        let got = format!("parts {}, heads {}", self.parts, self.heads);
        Err(Error::Parameter { op: OP, arg: "heads", required: format!("absent {when}"), got })
    }

    /// Of x and a weight of `n` rows.
    fn split(self, x: &Desc, weight: &Desc, n: usize) -> Result<matmul::Heads> {
        let Heads { parts, heads } = self;
        for (arg, value) in [("parts", parts), ("heads", heads)] {
            if value == 0 {
                let (required, got) = ("1 or more".to_owned(), value.to_string());
                return Err(Error::Parameter { op: OP, arg, required, got });
            }
        }
        let &[sequences, length, _] = x.shape() else {
            let (required, got) = ("[B, S, K]".to_owned(), x.shape().to_vec());
            return Err(Error::Shape { op: OP, arg: "x", required, got });
        };
        let all = parts.checked_mul(heads).filter(|&all| n.is_multiple_of(all));
        let Some(all) = all else {
            let (required, got) = (format!("[{parts}·{heads}·D, K]"), weight.shape().to_vec());
            return Err(Error::Shape { op: OP, arg: "weight", required, got });
        };
        Ok(matmul::Heads { parts, sequences, count: heads, length, width: n / all })
    }
}

/// The factors of x `[.., K]` and weight `[N, K]`: the last dimension but one of x is that of the rows.
fn factors(op: &'static str, x: &Desc, weight: &Desc) -> Result<Factors> {
    float(op, "x", x)?;
    let shape = |arg, required: &str, desc: &Desc| {
        let (required, got) = (required.to_owned(), desc.shape().to_vec());
        Err(Error::Shape { op, arg, required, got })
    };
    let Some(&k) = x.shape().last() else { return shape("x", "[.., K]", x) };
    if weight.rank() != 2 || weight.shape()[1] != k {
        return shape("weight", &format!("[N, {k}]"), weight);
    }
    let row = (x.rank() == 1).then(|| x.as_row());
    Factors::new(op, ("x", row.as_ref().unwrap_or(x), false), ("weight", weight, false))
}

fn problem<D: Described>(x: &D, weight: &D, parameters: &Linear<D>) -> Result<Problem> {
    let (x, weight) = (x.described(), weight.described());
    let factors = factors(OP, x, weight)?.rounded(OP, parameters.tf32)?;
    if let Some(bias) = parameters.bias {
        check_bias(OP, "bias", bias.described(), factors.n, x)?;
    }
    let epilogue = matmul::Epilogue { activation: parameters.activation.number(), ..Default::default() };
    let heads = parameters.heads.map(|heads| heads.split(x, weight, factors.n)).transpose()?;
    let problem = Problem { heads, ..Problem::new(OP, factors, epilogue, factors.dtype, x.device())? };
    match (parameters.residual, parameters.heads) {
        (Some(_), Some(heads)) => heads.refused("with a residual"),
        // The row that x is taken for is none of the caller's.
        (Some(residual), None) if x.rank() == 1 && residual.described().rank() > 1 => {
            let (required, got) = (format!("[{}]", problem.factors.n), residual.described().shape().to_vec());
            Err(Error::Shape { op: OP, arg: "residual", required, got })
        }
        (Some(residual), None) => problem.with_addend("residual", residual.described()),
        (None, _) => Ok(problem),
    }
}

/// Wants `[n]` of x's type and device.
fn check_bias(op: &'static str, arg: &'static str, bias: &Desc, n: usize, x: &Desc) -> Result<()> {
    if bias.dtype() != x.dtype() {
        return Err(Error::DType { op, arg, required: x.dtype().to_string(), got: bias.dtype() });
    }
    if bias.shape() != [n] {
        let (required, got) = (format!("[{n}]"), bias.shape().to_vec());
        return Err(Error::Shape { op, arg, required, got });
    }
    on_device(op, arg, bias, x)?;
    reach(op, arg, bias)
}

fn forward(
    problem: &Problem,
    x: &Tensor,
    weight: &Tensor,
    parameters: &Linear,
    kept: Option<&Tensor>,
    y: &Tensor,
) -> Result<()> {
    let row = if x.rank() == 1 { Some(x.unsqueeze(0)?) } else { None };
    let behind = Behind { bias: parameters.bias, addend: parameters.residual, aux: kept };
    matmul::run(problem, row.as_ref().unwrap_or(x), weight, &behind, y)
}
