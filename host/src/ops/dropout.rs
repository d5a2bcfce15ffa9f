//! Dropout with a mask that is computed, not stored. See [`dropout`].

use super::cast;
use super::masked_softmax::Described;
use super::pointwise::{self, Kernels, Operands, Problem, with_float};
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};
use cuda_std::philox::Stream;
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise as kernels;

/// The parameters of [`dropout`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability that an element is dropped, in 0..=1.
    pub p: f32,
    /// Names the random numbers, together with `offset`.
    pub seed: u64,
    /// Another offset gives other numbers: count it up from call to call.
    pub offset: u64,
}

impl Dropout {
    /// What is dropped; `None` where nothing is.
    fn dropping(self, op: &'static str) -> Result<Option<Dropping>> {
        if !(0.0..=1.0).contains(&self.p) {
            let (required, got) = ("in 0..=1".to_owned(), self.p.to_string());
            return Err(Error::Parameter { op, arg: "p", required, got });
        }
        let p = f64::from(self.p);
        // Of 2^32 words so many drop: p is rounded to a multiple of 2^-32.
        let dropped = (p * (1u64 << 32) as f64).round() as u64;
        let stream = Stream { seed: self.seed, offset: self.offset };
        Ok(dropped.checked_sub(1).map(|last| Dropping {
            stream,
            last_dropped: last as u32,
            // With p = 1 nothing is left to be multiplied.
            scale: if self.p < 1.0 { (1.0 / (1.0 - p)) as f32 } else { 0.0 },
        }))
    }
}

/// What the dropout of another operation drops, where there is one; `None` where nothing is dropped.
pub(super) fn dropping(op: &'static str, dropout: Option<Dropout>) -> Result<Option<Dropping>> {
    dropout.map_or(Ok(None), |dropout| dropout.dropping(op))
}

const OP: &str = "dropout";
const BACKWARD: &str = "dropout_backward";

/// x with each element dropped with probability p, the others multiplied by 1/(1 − p); in x's shape and type
/// (f32, f16 or bf16), contiguous.
///
/// What is dropped is exactly 0, even where x is NaN. p = 0 is a copy, p = 1 gives zeros. Whether an element is dropped
/// depends on seed, offset and its row-major number i alone: where word i mod 4 of Philox4x32-10 with the counter
/// (i/4, offset) and the key seed, 64 bits each, is below p·2³².
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, Dropout}};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[4], &[1.0f32; 4])?;
/// let dropout = Dropout { p: 0.5, seed: 1, offset: 0 };
/// let y = ops::dropout(&x, dropout)?.to_vec::<f32>()?;
/// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
/// assert_eq!(ops::dropout_backward(&x, dropout)?.to_vec::<f32>()?, y); // the same mask
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`DType`](Error::DType) for an x that is not a float, [`Parameter`](Error::Parameter) for a p outside of 0..=1,
/// [`Strides`](Error::Strides) for negative strides, [`OutOfMemory`](Error::OutOfMemory).
pub fn dropout(x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    fresh(OP, "x", x, dropout)
}

/// [`dropout`] into a contiguous tensor of x's shape, type and device, which must not overlap x.
pub fn dropout_into(x: &Tensor, dropout: Dropout, y: &Tensor) -> Result<()> {
    into(OP, ("x", "y"), x, dropout, y)
}

/// dx = dy·1/(1 − p) where [`dropout`] with the same parameters kept x, else 0.
///
/// # Errors
/// As [`dropout`].
pub fn dropout_backward(dy: &Tensor, dropout: Dropout) -> Result<Tensor> {
    fresh(BACKWARD, "dy", dy, dropout)
}

/// [`dropout_backward`] into a contiguous tensor of dy's shape, type and device, which must not overlap dy.
pub fn dropout_backward_into(dy: &Tensor, dropout: Dropout, dx: &Tensor) -> Result<()> {
    into(BACKWARD, ("dy", "dx"), dy, dropout, dx)
}

/// Checks the arguments of [`dropout`] without computing; gives y.
pub fn dropout_shape<D: Described>(x: &D, dropout: Dropout) -> Result<Desc> {
    Ok(problem(OP, "x", x, dropout)?.0.y)
}

/// Checks the arguments of [`dropout_backward`] without computing; gives dx.
pub fn dropout_backward_shape<D: Described>(dy: &D, dropout: Dropout) -> Result<Desc> {
    Ok(problem(BACKWARD, "dy", dy, dropout)?.0.y)
}

fn fresh(op: &'static str, arg: &'static str, x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    let (problem, dropping) = problem(op, arg, x, dropout)?;
    let y = problem.output()?;
    run(&problem, x, dropping, &y)?;
    Ok(y)
}

fn into(
    op: &'static str,
    (x_arg, y_arg): (&'static str, &'static str),
    x: &Tensor,
    dropout: Dropout,
    y: &Tensor,
) -> Result<()> {
    let (problem, dropping) = problem(op, x_arg, x, dropout)?;
    pointwise::into(&problem, &[x], y, y_arg, |y| run(&problem, x, dropping, y))
}

fn problem<D: Described>(
    op: &'static str,
    arg: &'static str,
    x: &D,
    dropout: Dropout,
) -> Result<(Problem, Option<Dropping>)> {
    let x = x.described();
    Ok((Problem::new(op, (arg, x), None, None, x.dtype())?, dropout.dropping(op)?))
}

fn run(problem: &Problem, x: &Tensor, dropping: Option<Dropping>, y: &Tensor) -> Result<()> {
    let Some(dropping) = dropping else { return cast::run(problem, x, y) };
    with_float!(problem.dtype, T => {
        let kernels = Kernels {
            dense: kernels::dropout_dense::kernels::<T>(),
            strided: &kernels::dropout_strided::kernels::<T>()[0],
        };
        pointwise::run::<T, T>(problem, kernels, Operands { a: x, b: None, bias: None }, dropping, y)
    })
}
