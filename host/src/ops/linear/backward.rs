//! The gradients of a linear layer. See [`linear_backward`].

use super::{Activation, factors};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::launch::Grid;
use crate::ops::column_sums::column_sums;
use crate::ops::masked_softmax::Described;
use crate::ops::matmul::{self, Behind, Epilogue, Factors, Problem};
use crate::ops::permute::{dense, reshaped};
use crate::ops::pointwise::{check_output, float, same, with_float};
use crate::tensor::{Desc, Tensor};
use cuda_std::Float;
use cuda_std::divide::Divisor;
use cuda_std::kernel::Kernel;
use kernels_gpu::matmul as kernels;

const OP: &str = "linear_backward";

/// The parameters of [`linear_backward`].
#[derive(Debug)]
pub struct LinearBackward<'a, D = Tensor> {
    /// The layer's activation.
    pub activation: Activation,
    /// What it got, as [`linear_keeping`](super::linear_keeping) gives it: required with an activation.
    pub pre: Option<&'a D>,
    /// Whether the layer has a bias.
    pub bias: bool,
    /// Where x is itself an activation of this, of x's shape: dx becomes the gradient of this.
    pub input: Option<(&'a D, Activation)>,
    /// Round the products' operands in f32 to tf32, as [`Matmul::tf32`](crate::ops::Matmul::tf32).
    pub tf32: bool,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for LinearBackward<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for LinearBackward<'_, D> {}

impl LinearBackward<'_> {
    /// Of the tensors' descriptions.
    fn described(&self) -> LinearBackward<'_, Desc> {
        LinearBackward {
            activation: self.activation,
            pre: self.pre.map(Tensor::desc),
            bias: self.bias,
            input: self.input.map(|(input, activation)| (input.desc(), activation)),
            tf32: self.tf32,
        }
    }
}

impl<D> Default for LinearBackward<'_, D> {
    fn default() -> Self {
        LinearBackward { activation: Activation::None, pre: None, bias: false, input: None, tf32: false }
    }
}

/// What [`linear_backward`] gives. The gradient of a residual is dy itself.
#[derive(Debug)]
pub struct LinearGradients<T = Tensor> {
    /// Of x, or of what x is an activation of.
    pub dx: T,
    /// `[N, K]`.
    pub dweight: T,
    /// `[N]`.
    pub dbias: Option<T>,
}

/// The gradients of [`linear`](super::linear()) for x `[.., K]`, weight `[N, K]` and dy `[.., N]`.
///
/// With d = dy·act′(pre): dx = d·weight, dweight = dᵀ·x, and dbias the sums of d's columns, taken in the pass that makes d,
/// before it is rounded. With `input` the slopes of the activation before are multiplied in behind the first
/// product, so that dx is what the layer before needs. No atomics: the same input gives the same bits.
///
/// # Errors
/// As [`linear`](super::linear()); [`Missing`](Error::Missing) for an activation without `pre`; [`TooLarge`](Error::TooLarge) for more than
/// 2³⁰ rows of x in all, over which the weight's gradient is a sum.
pub fn linear_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    parameters: &LinearBackward,
) -> Result<LinearGradients> {
    let shapes = linear_backward_shape(x.desc(), weight.desc(), dy.desc(), &parameters.described())?;
    let uninit = |desc: &Desc| Tensor::uninit(x.device(), desc.dtype(), desc.shape());
    let gradients = LinearGradients {
        dx: uninit(&shapes.dx)?,
        dweight: uninit(&shapes.dweight)?,
        dbias: shapes.dbias.as_ref().map(uninit).transpose()?,
    };
    backward(x, weight, dy, parameters, &gradients)?;
    Ok(gradients)
}

/// [`linear_backward`] into contiguous tensors of the gradients' shapes and types, on x's device, which must not overlap
/// the operands or one another; of a layer without a bias `dbias` is none. Allocates room for d and for partial sums.
pub fn linear_backward_into(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    parameters: &LinearBackward,
    gradients: &LinearGradients,
) -> Result<()> {
    let shapes = linear_backward_shape(x.desc(), weight.desc(), dy.desc(), &parameters.described())?;
    let (pre, input) = (parameters.pre, parameters.input.map(|(input, _)| input));
    let mut apart: Vec<&Tensor> = [x, weight, dy].into_iter().chain(pre).chain(input).collect();
    check_output(OP, "dx", &gradients.dx, &shapes.dx, &apart)?;
    apart.push(&gradients.dx);
    check_output(OP, "dweight", &gradients.dweight, &shapes.dweight, &apart)?;
    apart.push(&gradients.dweight);
    match (&gradients.dbias, &shapes.dbias) {
        (Some(dbias), Some(shape)) => check_output(OP, "dbias", dbias, shape, &apart)?,
        (None, Some(_)) => {
            let required = "the layer has a bias";
            return Err(Error::Missing { op: OP, arg: "dbias".to_owned(), required });
        }
        (Some(dbias), None) => {
            let (required, got) =
                ("absent, since the layer has no bias".to_owned(), format!("{:?}", dbias.shape()));
            return Err(Error::Parameter { op: OP, arg: "dbias", required, got });
        }
        (None, None) => {}
    }
    let here = |tensor: &Tensor, arg| tensor.adopted(x.device(), OP, arg);
    let adopted = LinearGradients {
        dx: here(&gradients.dx, "dx")?,
        dweight: here(&gradients.dweight, "dweight")?,
        dbias: gradients.dbias.as_ref().map(|dbias| here(dbias, "dbias")).transpose()?,
    };
    backward(x, weight, dy, parameters, &adopted)?;
    for out in [&gradients.dx, &gradients.dweight].into_iter().chain(&gradients.dbias) {
        out.device().wait_for(x.device(), OP)?;
    }
    Ok(())
}

/// Into contiguous tensors on x's stream.
fn backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    parameters: &LinearBackward,
    gradients: &LinearGradients,
) -> Result<()> {
    let (front, k) = x.shape().split_at(x.rank() - 1);
    let (m, k): (usize, usize) = (front.iter().product(), k[0]);
    let device = x.device();
    let adopt = |tensor: &Tensor, arg| tensor.adopted(device, OP, arg)?.as_rows(m);
    let (rows, dy) = (x.as_rows(m)?, adopt(dy, "dy")?);
    let pre = parameters.pre.map(|pre| adopt(pre, "pre")).transpose()?;
    let d = behind(&dy, pre.as_ref(), parameters.activation, gradients.dbias.as_ref())?;

    let dx = gradients.dx.reshape(&[m, k])?;
    let input = parameters.input.map(|(input, _)| adopt(input, "input")).transpose()?;
    let behind_dx = Behind { aux: input.as_ref(), ..Behind::default() };
    let slope = parameters.input.map(|(_, activation)| activation.number());
    let epilogue = Epilogue {
        activation: slope.unwrap_or(kernels::activation::NONE),
        slope: slope.is_some(),
        ..Epilogue::default()
    };
    let rounded = |factors: Factors| factors.rounded(OP, parameters.tf32);
    let of_dx = rounded(Factors::new(OP, ("dy", d.desc(), false), ("weight", weight.desc(), true))?)?;
    let problem = Problem::new(OP, of_dx, epilogue, x.dtype(), device)?;
    matmul::run(&problem, &d, weight, &behind_dx, &dx)?;

    let of_dweight = rounded(Factors::new(OP, ("dy", d.desc(), true), ("x", rows.desc(), true))?)?;
    let problem = Problem::new(OP, of_dweight, Epilogue::default(), x.dtype(), device)?;
    matmul::run(&problem, &d, &rows, &Behind::default(), &gradients.dweight)
}

/// Checks the arguments of [`linear_backward`] without computing; gives dx, dweight and dbias.
pub fn linear_backward_shape<D: Described>(
    x: &D,
    weight: &D,
    dy: &D,
    parameters: &LinearBackward<D>,
) -> Result<LinearGradients<Desc>> {
    let request = Request::new(x, weight, dy, parameters)?;
    let x = x.described();
    let of = |shape: &[usize]| Desc::contiguous(OP, x.device(), x.dtype(), shape);
    Ok(LinearGradients {
        dx: of(x.shape())?,
        dweight: of(&[request.n, request.k])?,
        dbias: parameters.bias.then(|| of(&[request.n])).transpose()?,
    })
}

/// Checked extents.
struct Request {
    n: usize,
    k: usize,
}

impl Request {
    fn new<D: Described>(x: &D, weight: &D, dy: &D, parameters: &LinearBackward<D>) -> Result<Request> {
        let (x, weight, dy) = (x.described(), weight.described(), dy.described());
        let Factors { n, k, .. } = factors(OP, x, weight)?.rounded(OP, parameters.tf32)?;
        let mut shape = x.shape().to_vec();
        shape.pop();
        let rows: usize = shape.iter().product();
        shape.push(n);
        let y = Desc::contiguous(OP, x.device(), x.dtype(), &shape)?;
        float(OP, "dy", dy)?;
        same(OP, "dy", dy, &y)?;
        match (parameters.activation, parameters.pre) {
            (Activation::None, None) => {}
            (_, Some(pre)) => same(OP, "pre", pre.described(), &y)?,
            (_, None) => {
                let required = "the slope of the activation is taken there";
                return Err(Error::Missing { op: OP, arg: "pre".to_owned(), required });
            }
        }
        if let Some((input, _)) = parameters.input {
            same(OP, "input", input.described(), x)?;
        }
        matmul::within_limit(OP, "rows of `x`", rows)?;
        Ok(Request { n, k })
    }
}

impl Tensor {
    /// The tensor as `[rows, its last dimension]`: itself, or a copy where that is no view.
    fn as_rows(&self, rows: usize) -> Result<Tensor> {
        reshaped(self, &[rows, self.shape().last().copied().unwrap_or(1)])
    }
}

/// The sums of the columns of a contiguous `[rows, n]`, in its type: the gradient of a bias.
pub(in crate::ops) fn bias_gradient(d: &Tensor) -> Result<Tensor> {
    let dbias = Tensor::uninit(d.device(), d.dtype(), &d.shape()[1..])?;
    behind(d, None, Activation::None, Some(&dbias))?;
    Ok(dbias)
}

/// d `[rows, n]`; the sums of its columns go into `dbias`.
fn behind(
    dy: &Tensor,
    pre: Option<&Tensor>,
    activation: Activation,
    dbias: Option<&Tensor>,
) -> Result<Tensor> {
    let plain = activation == Activation::None;
    if plain && dbias.is_none() {
        return Ok(dy.clone());
    }
    let dy = dense(dy)?;
    let pre = dense(pre.filter(|_| !plain).unwrap_or(&dy))?;
    let uninit = |shape: &[usize]| Tensor::uninit(dy.device(), dy.dtype(), shape);
    let d = if plain { dy.clone() } else { uninit(dy.shape())? };
    with_float!(dy.dtype(), T => slopes::<T>(&dy, &pre, &d, dbias, activation)?);
    Ok(d)
}

/// Rows of a group, at most so many groups: a GPU full of blocks.
const GROUP: usize = 64;
const MOST_GROUPS: usize = 512;

fn slopes<T>(
    dy: &Tensor,
    pre: &Tensor,
    d: &Tensor,
    dbias: Option<&Tensor>,
    activation: Activation,
) -> Result<()>
where
    T: crate::dtype::Element + Float + kernels::behind::Instances,
{
    let (device, rows, cols) = (dy.device(), dy.shape()[0], dy.shape()[1]);
    if cols == 0 {
        return Ok(());
    }
    let group = GROUP.max(rows.div_ceil(MOST_GROUPS));
    let groups = rows.div_ceil(group);
    let partials = Tensor::uninit(device, DType::F32, &[groups, cols])?;
    let kernel: &Kernel<kernels::behind::Args<T>> =
        &kernels::behind::kernels::<T>()[usize::from(activation != Activation::None)];
    let strips = cols.div_ceil(kernels::STRIP as usize * T::PER_PACK);
    let whole = |tensor: &Tensor| tensor.address().is_multiple_of(16);
    let p = kernels::Behind {
        strips: Divisor::new(strips as u32).expect("columns are fewer than 2^31"),
        rows: rows as u32,
        cols: cols as u32,
        group: group as u32,
        activation: activation.number(),
        packed: u32::from(cols.is_multiple_of(T::PER_PACK) && [dy, pre, d].into_iter().all(whole)),
    };
    let args = (dy.view::<T>()?, pre.view::<T>()?, d.view_mut::<T>()?, partials.view_mut::<f32>()?, p);
    // SAFETY: contiguous tensors of this shape, of which the groups and strips are made. Without an activation d is
    // not written.
    unsafe { device.launch(kernel, Grid::new((groups * strips) as u64)?, args)? };
    dbias.map_or(Ok(()), |dbias| column_sums(&partials, dbias))
}
