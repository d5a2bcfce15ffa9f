//! The gradients of a product: two products.

use super::launch::{Behind, run};
use super::problem::{Epilogue, Factors, Problem};
use super::{Matmul, problem};
use crate::error::Result;
use crate::ops::masked_softmax::Described;
use crate::ops::permute::reshaped;
use crate::ops::pointwise::{float, same};
use crate::ops::rows;
use crate::tensor::{Desc, Tensor};

const OP: &str = "matmul_backward";

/// What [`matmul_backward`] gives. The gradient of c is beta·dy, summed over the dimensions along which c repeats.
#[derive(Debug)]
pub struct MatmulGradients<T = Tensor> {
    /// Of a's shape.
    pub da: T,
    /// Of b's shape.
    pub db: T,
}

/// The gradients of [`matmul`](super::matmul()) with respect to a and b, for dy of the result's shape and the operands' type.
///
/// da = alpha·dy·bᵀ and db = alpha·aᵀ·dy, as a and b lie: transposed where these are. Where an operand repeats along a dimension
/// in front, its gradient is the sum over it, which goes into the product as more terms. `c`, `beta` and `out` of the parameters are
/// not looked at. The same input gives the same bits.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Matmul}};
///
/// let device = Device::cpu();
/// let a = Tensor::from_slice(&device, &[1, 2], &[3.0f32, 4.0])?;
/// let b = Tensor::from_slice(&device, &[2, 1], &[10.0f32, 20.0])?;
/// let dy = Tensor::from_slice(&device, &[1, 1], &[2.0f32])?;
/// let gradients = ops::matmul_backward(&a, &b, &dy, &Matmul::default())?;
/// assert_eq!(gradients.da.to_vec::<f32>()?, [20.0, 40.0]);
/// assert_eq!(gradients.db.to_vec::<f32>()?, [6.0, 8.0]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`matmul`](super::matmul()); [`TooLarge`](crate::Error::TooLarge) also where a gradient is a sum over more than 2³⁰ terms, those of all products to
/// which an operand is broadcast.
pub fn matmul_backward(a: &Tensor, b: &Tensor, dy: &Tensor, parameters: &Matmul) -> Result<MatmulGradients> {
    let shapes = checked(a.desc(), b.desc(), dy.desc(), &described(parameters))?;
    let gradients = MatmulGradients { da: rows::uninit(&shapes.da)?, db: rows::uninit(&shapes.db)? };
    backward(a, b, dy, parameters, &gradients)?;
    Ok(gradients)
}

/// [`matmul_backward`] into contiguous tensors of the gradients' shapes and types, on a's device, which must not overlap the
/// operands or one another.
pub fn matmul_backward_into(
    a: &Tensor,
    b: &Tensor,
    dy: &Tensor,
    parameters: &Matmul,
    gradients: &MatmulGradients,
) -> Result<()> {
    let shapes = checked(a.desc(), b.desc(), dy.desc(), &described(parameters))?;
    let outputs = [("da", &gradients.da, &shapes.da), ("db", &gradients.db, &shapes.db)];
    rows::into(OP, &[a, b, dy], outputs, |[da, db]| {
        backward(a, b, dy, parameters, &MatmulGradients { da, db })
    })
}

/// Checks the arguments of [`matmul_backward`] without computing; gives da and db.
pub fn matmul_backward_shape<D: Described>(
    a: &D,
    b: &D,
    dy: &D,
    parameters: &Matmul<D>,
) -> Result<MatmulGradients<Desc>> {
    checked(a.described(), b.described(), dy.described(), &described(parameters))
}

/// What the gradients depend on.
fn described<D>(parameters: &Matmul<D>) -> Matmul<'static, Desc> {
    let Matmul { transpose_a, transpose_b, alpha, tf32, .. } = *parameters;
    Matmul { transpose_a, transpose_b, alpha, tf32, ..Matmul::default() }
}

fn checked(a: &Desc, b: &Desc, dy: &Desc, parameters: &Matmul<Desc>) -> Result<MatmulGradients<Desc>> {
    let y = problem(OP, a, b, parameters)?.y;
    float(OP, "dy", dy)?;
    same(OP, "dy", dy, &y)?;
    let of = |desc: &Desc| Desc::contiguous(OP, a.device(), desc.dtype(), desc.shape());
    Ok(MatmulGradients { da: of(a)?, db: of(b)? })
}

/// Into contiguous tensors on a's stream.
fn backward(
    a: &Tensor,
    b: &Tensor,
    dy: &Tensor,
    parameters: &Matmul,
    gradients: &MatmulGradients,
) -> Result<()> {
    let here = |tensor: &Tensor, arg| tensor.adopted(a.device(), OP, arg);
    let turned =
        |tensor: &Tensor, when: bool| if when { tensor.transpose(-1, -2) } else { Ok(tensor.clone()) };
    let (b, dy) = (here(b, "b")?, here(dy, "dy")?);
    // [M, K] and [K, N].
    let (rows_of_a, rows_of_b) = (turned(a, parameters.transpose_a)?, turned(&b, parameters.transpose_b)?);
    let (dy_turned, of_a, of_b) = (turned(&dy, true)?, turned(&rows_of_a, true)?, turned(&rows_of_b, true)?);
    let front = &dy.shape()[..dy.rank() - 2];
    match parameters.transpose_a {
        false => gradient([("dy", &dy), ("b", &of_b)], front, parameters, &gradients.da)?,
        true => gradient([("b", &rows_of_b), ("dy", &dy_turned)], front, parameters, &gradients.da)?,
    }
    match parameters.transpose_b {
        false => gradient([("a", &of_a), ("dy", &dy)], front, parameters, &gradients.db),
        true => gradient([("dy", &dy_turned), ("a", &rows_of_a)], front, parameters, &gradients.db),
    }
}

/// alpha times the product of `[.., P, C]` and `[.., C, Q]` into `[.., P, Q]`, summed over the dimensions of `front`, those of the whole
/// product, that `out` has not.
fn gradient(
    [(left_name, left), (right_name, right)]: [(&'static str, &Tensor); 2],
    front: &[usize],
    parameters: &Matmul,
    out: &Tensor,
) -> Result<()> {
    let rank = front.len();
    let (left, right, out) = (padded(left, rank)?, padded(right, rank)?, padded(out, rank)?);
    let is_summed = |&dim: &usize| out.shape()[dim] == 1 && front[dim] != 1;
    let (summed, kept): (Vec<usize>, Vec<usize>) = (0..rank).partition(is_summed);
    // Dimensions that are summed become terms.
    let order =
        |dims: &[&[usize]]| -> Vec<isize> { dims.concat().into_iter().map(|dim| dim as isize).collect() };
    let left = folded(
        &left.permute(&order(&[&kept, &[rank], &summed, &[rank + 1]]))?,
        kept.len() + 1,
        summed.len(),
    )?;
    let right =
        folded(&right.permute(&order(&[&kept, &summed, &[rank], &[rank + 1]]))?, kept.len(), summed.len())?;
    let shape: Vec<usize> =
        kept.iter().map(|&dim| out.shape()[dim]).chain(out.shape()[rank..].iter().copied()).collect();
    let out = out.reshape(&shape)?;

    let factors = Factors::new(OP, (left_name, left.desc(), false), (right_name, right.desc(), true))?;
    let epilogue = Epilogue { alpha: parameters.alpha, ..Epilogue::default() };
    let factors = factors.rounded(OP, parameters.tf32)?;
    let problem = Problem::new(OP, factors, epilogue, out.dtype(), out.device())?;
    run(&problem, &left, &right, &Behind::default(), &out)
}

/// With as many dimensions in front, the new ones of 1.
fn padded(tensor: &Tensor, front: usize) -> Result<Tensor> {
    let mut padded = tensor.clone();
    while padded.rank() < front + 2 {
        padded = padded.unsqueeze(0)?;
    }
    Ok(padded)
}

/// Dimension `first` and the `more` behind it as one: a view, or of a copy.
fn folded(tensor: &Tensor, first: usize, more: usize) -> Result<Tensor> {
    if more == 0 {
        return Ok(tensor.clone());
    }
    let (shape, end) = (tensor.shape(), first + more + 1);
    let one = shape[first..end].iter().product();
    let shape: Vec<usize> = [&shape[..first], &[one], &shape[end..]].concat();
    reshaped(tensor, &shape)
}
