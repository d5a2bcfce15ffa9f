//! Dimensions in another order, as contiguous tensors. See [`permute`](permute()).

mod boxes;
mod cost;
mod explain;
mod heads;
mod in_place;
mod lanes;
mod launch;
mod order;
mod plan;
mod problem;
mod resident;
mod simplify;
mod small;
mod takes;
mod tiles;
mod tuned;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};

use super::masked_softmax::Described;
use super::pointwise::check_output;
pub use explain::{Explanation, explain};
pub use heads::{
    merge_heads, merge_heads_into, merge_heads_shape, split_heads, split_heads_into, split_heads_shape,
};
pub use in_place::transpose_in_place;
use plan::Plan;
use problem::Problem;
pub use tuned::MOST_TRIED;

const OP: &str = "permute";
const CONTIGUOUS: &str = "contiguous";
const CAST: &str = "permute_cast";

/// x with its dimensions in another order, contiguous: dimension `i` of the result is dimension `dims[i]` of x, counted from
/// the back where it is negative. Every element type, 0 to 8 dimensions; the elements' bits stay.
///
/// ```
/// use warpwright::{Device, Tensor, ops};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[2, 3], &[1u8, 2, 3, 4, 5, 6])?;
/// let y = ops::permute(&x, &[1, 0])?;
/// assert_eq!((y.shape(), y.to_vec::<u8>()?), (&[3, 2][..], vec![1, 4, 2, 5, 3, 6]));
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// The gradient is the permutation by the inverse of `dims`.
///
/// # Errors
/// [`Parameter`](crate::Error::Parameter) for `dims` that are not each dimension once,
/// [`Strides`](crate::Error::Strides) for negative strides, [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn permute(x: &Tensor, dims: &[isize]) -> Result<Tensor> {
    allocated(OP, x, dims, x.dtype())
}

/// [`permute`](permute()) into a contiguous tensor of the result's shape, on x's device, which must not overlap x.
pub fn permute_into(x: &Tensor, dims: &[isize], y: &Tensor) -> Result<()> {
    into(OP, x, dims, y, x.dtype())
}

/// Checks the arguments of [`permute`](permute()) without computing; gives y.
pub fn permute_shape<D: Described>(x: &D, dims: &[isize]) -> Result<Desc> {
    let x = x.described();
    Ok(Problem::new(OP, x, dims, x.dtype())?.y)
}

/// The elements of a view in row-major order, contiguous: a copy, also where they are so already.
///
/// # Errors
/// As [`permute`](permute()).
pub fn contiguous(x: &Tensor) -> Result<Tensor> {
    allocated(CONTIGUOUS, x, &in_order(x), x.dtype())
}

/// [`contiguous`] into a contiguous tensor of x's shape, type and device, which must not overlap x.
pub fn contiguous_into(x: &Tensor, y: &Tensor) -> Result<()> {
    into(CONTIGUOUS, x, &in_order(x), y, x.dtype())
}

/// [`permute`](permute()) with a [`cast`](super::cast()) to another of f32, f16 and bf16 on the way: rounded to nearest,
/// ties to even.
///
/// # Errors
/// As [`permute`](permute()) and [`cast`](super::cast()).
pub fn permute_cast(x: &Tensor, dims: &[isize], dtype: DType) -> Result<Tensor> {
    allocated(CAST, x, dims, dtype)
}

/// [`permute_cast`] to the type of a contiguous tensor of the result's shape, on x's device, which must not overlap x.
pub fn permute_cast_into(x: &Tensor, dims: &[isize], y: &Tensor) -> Result<()> {
    into(CAST, x, dims, y, y.dtype())
}

/// Itself, or a contiguous copy.
pub(super) fn dense(x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() { Ok(x.clone()) } else { contiguous(x) }
}

/// The elements, in order, under another shape of as many: a view, or of a copy.
pub(super) fn reshaped(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    match x.reshape(shape) {
        Err(Error::Strides { .. }) => contiguous(x)?.reshape(shape),
        result => result,
    }
}

fn in_order(x: &Tensor) -> Vec<isize> {
    (0..x.rank() as isize).collect()
}

fn allocated(op: &'static str, x: &Tensor, dims: &[isize], dtype: DType) -> Result<Tensor> {
    let problem = Problem::new(op, x.desc(), dims, dtype)?;
    let y = Tensor::uninit(x.device(), dtype, problem.y.shape())?;
    run(&problem, x, &y)?;
    Ok(y)
}

fn into(op: &'static str, x: &Tensor, dims: &[isize], y: &Tensor, dtype: DType) -> Result<()> {
    let problem = Problem::new(op, x.desc(), dims, dtype)?;
    check_output(op, "y", y, &problem.y, &[x])?;
    let device = x.device();
    run(&problem, x, &y.adopted(device, op, "y")?)?;
    y.device().wait_for(device, op)
}

fn run(problem: &Problem, x: &Tensor, y: &Tensor) -> Result<()> {
    if y.is_empty() {
        return Ok(());
    }
    let (request, view) = (problem.request(x.address(), y.address()), x.permute(&problem.dims)?);
    let plan = match tuned::tuned(&request, &view, y)? {
        Some(plan) => plan,
        None => launch::planned(request),
    };
    launch::run(&plan, &view, y)
}

/// How a permutation would be done that is timed and compared: the planner's choice first, then others.
#[doc(hidden)]
pub struct Candidate(Plan);

/// The planner's choice for x and y, and up to `most` plans in all.
#[doc(hidden)]
pub fn permute_candidates(x: &Tensor, dims: &[isize], y: &Tensor, most: usize) -> Result<Vec<Candidate>> {
    let problem = Problem::new(OP, x.desc(), dims, y.dtype())?;
    check_output(OP, "y", y, &problem.y, &[x])?;
    Ok(Plan::sweep(problem.request(x.address(), y.address()), most).into_iter().map(Candidate).collect())
}

impl Candidate {
    /// Runs the plan on tensors like those that it was made for.
    #[doc(hidden)]
    pub fn run(&self, x: &Tensor, dims: &[isize], y: &Tensor) -> Result<()> {
        let problem = Problem::new(OP, x.desc(), dims, y.dtype())?;
        check_output(OP, "y", y, &problem.y, &[x])?;
        if problem.request(x.address(), y.address()) != self.0.request {
            return Err(crate::Error::State { op: OP, reason: "the plan is of other tensors" });
        }
        launch::run(&self.0, &x.permute(dims)?, y)
    }

    /// The plan in a line.
    #[doc(hidden)]
    pub fn describe(&self) -> String {
        self.0.to_string()
    }
}
