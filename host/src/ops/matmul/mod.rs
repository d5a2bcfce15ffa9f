//! Products of matrices. See [`matmul`].

mod backward;
mod blocks;
mod choice;
mod copies;
mod counted;
mod epilogue;
mod few_tiles;
mod launch;
mod layout;
mod leaving;
mod maps;
mod model;
mod pace;
mod parted;
mod plan;
mod problem;
mod request;
#[cfg(test)]
mod tests;
mod tiles;
mod tuned;

pub use backward::{MatmulGradients, matmul_backward, matmul_backward_into, matmul_backward_shape};
pub use choice::Choice;
pub use plan::Plan;

pub(super) use copies::packed_rows;
pub(super) use launch::{Behind, run};
pub(super) use layout::{lines, within_limit};
pub(super) use maps::{mappable, operand as map_of_operand, result as map_of_result};
pub(super) use problem::{Epilogue, Factors, Heads, Problem};

use super::masked_softmax::Described;
use super::pointwise::{check_output, float};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape;
use crate::tensor::{Desc, Tensor};

const OP: &str = "matmul";

/// The parameters of [`matmul`].
#[derive(Debug)]
pub struct Matmul<'a, D = Tensor> {
    /// Take a's last two dimensions in the other order.
    pub transpose_a: bool,
    /// Take b's last two dimensions in the other order.
    pub transpose_b: bool,
    /// The factor of the product. Where it is 0, a and b are not read.
    pub alpha: f32,
    /// The factor of c. Where it is 0, c is not read.
    pub beta: f32,
    /// What is added, of the operands' type; it broadcasts against the product.
    pub c: Option<&'a D>,
    /// The type of the result: the operands', which it is where absent, or f32.
    pub out: Option<DType>,
    /// Operands in f32 may be rounded to tf32, which has 11 bits, for the sake of speed; for f32 alone.
    pub tf32: bool,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for Matmul<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Matmul<'_, D> {}

impl<D> Default for Matmul<'_, D> {
    fn default() -> Self {
        Matmul {
            transpose_a: false,
            transpose_b: false,
            alpha: 1.0,
            beta: 1.0,
            c: None,
            out: None,
            tf32: false,
        }
    }
}

/// alpha·a·b + beta·c for a `[.., M, K]` and b `[.., K, N]` of one type (f32, f16 or bf16), either transposed if asked; the
/// result is `[.., M, N]` and contiguous. Dimensions in front broadcast.
///
/// Sums are in f32 and rounded once, behind c. Every extent may be 0; without terms the sums are 0. The order of additions
/// depends on the shapes, strides and the GPU alone: the same input gives the same bits.
///
/// Products of f32 are as exact as f32 sums are, also on tensor cores, which take each number as two of tf32, or on Hopper as two of f16 that its row of a
/// or column of b scales, a product being off by at most 2^-21 of it; sums are rounded every 32 or 64 terms. Numbers of less than 2^-27 of the largest in their row may be
/// less exact there; sums to which that makes a difference are computed again by plain f32, as are those that are not finite. Of two tf32, numbers below 2^-115 keep what they
/// have above 2^-136. NaN and infinities are those of plain f32. With
/// [`Matmul::tf32`] operands are rounded to 11 bits where that is faster, and bits of a sum that do not fit are cut off, as tensor cores do
/// it. The parts take as much memory as the operands for as long as the product, and operands to be rounded that do not lie along k as
/// much as they have, since they are transposed; where there is none, other kernels serve.
///
/// Any strides are accepted. Operands whose rows or columns start at multiples of 16 bytes (in f32: and have them whole) are
/// read as they lie, unless these begin within lines of L2 of 128 bytes and so many blocks read them that a copy is faster; others are copied first by most kernels, which
/// [`explain`] tells: the parts of f32 are copies already, and few terms are read as they lie.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Matmul}};
///
/// let device = Device::cpu();
/// let a = Tensor::from_slice(&device, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// let b = Tensor::from_slice(&device, &[1, 2], &[10.0f32, 1.0])?;
/// let y = ops::matmul(&a, &b, &Matmul { transpose_b: true, ..Default::default() })?;
/// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[2, 1][..], vec![12.0, 34.0]));
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`Shape`](Error::Shape), [`DType`](Error::DType) and [`DeviceMismatch`](Error::DeviceMismatch) for tensors that do
/// not fit, [`Strides`](Error::Strides) for negative strides, [`TooLarge`](Error::TooLarge) for extents of more than 2³⁰
/// and for more than 2³¹ tiles, [`OutOfMemory`](Error::OutOfMemory).
pub fn matmul(a: &Tensor, b: &Tensor, parameters: &Matmul) -> Result<Tensor> {
    let problem = problem(OP, a, b, parameters)?;
    let y = Tensor::uninit(a.device(), problem.y.dtype(), problem.y.shape())?;
    forward(&problem, a, b, parameters, &y)?;
    Ok(y)
}

/// [`matmul`] into a contiguous tensor of the result's shape, type and device, which must not overlap the operands.
pub fn matmul_into(a: &Tensor, b: &Tensor, parameters: &Matmul, y: &Tensor) -> Result<()> {
    into(a, b, parameters, y, None)
}

/// [`matmul_into`] by a kernel of the caller's choice, one of [`candidates`]: for tests of each kernel, and for tuning
/// the model.
pub fn matmul_into_by(choice: Choice, a: &Tensor, b: &Tensor, parameters: &Matmul, y: &Tensor) -> Result<()> {
    into(a, b, parameters, y, Some(choice))
}

fn into(a: &Tensor, b: &Tensor, parameters: &Matmul, y: &Tensor, choice: Option<Choice>) -> Result<()> {
    let problem = problem(OP, a, b, parameters)?;
    let problem = match choice {
        Some(choice) => problem.by(choice),
        None => problem,
    };
    let inputs: Vec<&Tensor> = [a, b].into_iter().chain(parameters.c).collect();
    check_output(OP, "y", y, &problem.y, &inputs)?;
    forward(&problem, a, b, parameters, &y.adopted(a.device(), OP, "y")?)?;
    y.device().wait_for(a.device(), OP)
}

/// Checks the arguments of [`matmul`] without computing; gives the result.
pub fn matmul_shape<D: Described>(a: &D, b: &D, parameters: &Matmul<D>) -> Result<Desc> {
    Ok(problem(OP, a, b, parameters)?.y)
}

/// How [`matmul`] would go about it, for operands that start at lines of L2 of 128 bytes: by the model, or by what was measured on the
/// operands' GPU where [`autotune`](crate::autotune) is enabled.
pub fn explain<D: Described>(a: &D, b: &D, parameters: &Matmul<D>) -> Result<Plan> {
    problem(OP, a, b, parameters)?.launchable_plan()
}

/// The ways that [`matmul`] could go about it, one for each kernel, the one that it takes first.
pub fn candidates<D: Described>(a: &D, b: &D, parameters: &Matmul<D>) -> Result<Vec<Plan>> {
    problem(OP, a, b, parameters)?.plans()
}

/// The operands with rows along m and n and columns along k.
fn factors<D: Described>(op: &'static str, a: &D, b: &D, parameters: &Matmul<D>) -> Result<Factors> {
    let (a, b) = (a.described(), b.described());
    float(op, "a", a)?;
    Factors::new(op, ("a", a, parameters.transpose_a), ("b", b, !parameters.transpose_b))?
        .rounded(op, parameters.tf32)
}

fn problem<D: Described>(op: &'static str, a: &D, b: &D, parameters: &Matmul<D>) -> Result<Problem> {
    let factors = factors(op, a, b, parameters)?;
    let dtype = factors.dtype;
    for (arg, value) in [("alpha", parameters.alpha), ("beta", parameters.beta)] {
        if !value.is_finite() {
            let (required, got) = ("finite".to_owned(), value.to_string());
            return Err(Error::Parameter { op, arg, required, got });
        }
    }
    let out = match parameters.out {
        None => dtype,
        Some(out) if out == dtype || out == DType::F32 => out,
        Some(got) => {
            let required = if dtype == DType::F32 { "f32".to_owned() } else { format!("{dtype} or f32") };
            return Err(Error::DType { op, arg: "out", required, got });
        }
    };
    let epilogue = Epilogue { alpha: parameters.alpha, beta: parameters.beta, ..Epilogue::default() };
    let problem = Problem::new(op, factors, epilogue, out, a.described().device())?;
    let problem = match parameters.c {
        Some(c) => problem.with_addend("c", c.described())?,
        None => problem,
    };
    // It is not read then.
    let addend = problem.addend.filter(|_| parameters.beta != 0.0);
    Ok(Problem { addend, ..problem })
}

fn forward(problem: &Problem, a: &Tensor, b: &Tensor, parameters: &Matmul, y: &Tensor) -> Result<()> {
    let addend = parameters.c.filter(|_| problem.addend.is_some());
    run(problem, a, b, &Behind { addend, ..Behind::default() }, y)
}

/// The strides of `desc` as if its shape were `to`, outermost first.
fn broadcast(op: &'static str, arg: &'static str, desc: &Desc, to: &[usize]) -> Result<shape::Dims<isize>> {
    shape::broadcast_strides(op, arg, desc.shape(), desc.strides(), to)
}
