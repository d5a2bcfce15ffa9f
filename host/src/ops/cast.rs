//! Another element type. See [`cast`].

use super::masked_softmax::Described;
use super::pointwise::{self, Kernels, Operands, Problem, with_float};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};
use half::{bf16, f16};
use kernels_gpu::dropping::Dropping;
use kernels_gpu::pointwise as kernels;

const OP: &str = "cast";

/// x in another type, each of f32, f16 and bf16; contiguous. Rounds to nearest, ties to even: what exceeds the type
/// is ±∞, NaN stays NaN. To its own type it is a contiguous copy.
///
/// ```
/// use warpwright::{DType, Device, Tensor, ops};
///
/// let x = Tensor::from_slice(&Device::cpu(), &[2], &[1.0f32, 70000.0])?;
/// assert_eq!(ops::cast(&x, DType::F16)?.to_f64()?, [1.0, f64::INFINITY]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// [`DType`](Error::DType) and [`Parameter`](Error::Parameter) for types that are no floats,
/// [`Strides`](Error::Strides) for negative strides, [`OutOfMemory`](Error::OutOfMemory).
pub fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let problem = problem(x, dtype)?;
    let y = problem.output()?;
    run(&problem, x, &y)?;
    Ok(y)
}

/// [`cast`] to the type of a contiguous tensor of x's shape and device, which must not overlap x.
pub fn cast_into(x: &Tensor, y: &Tensor) -> Result<()> {
    let problem = problem(x, y.dtype())?;
    pointwise::into(&problem, &[x], y, "y", |y| run(&problem, x, y))
}

/// Checks the arguments of [`cast`] without computing; gives y.
pub fn cast_shape<D: Described>(x: &D, dtype: DType) -> Result<Desc> {
    Ok(problem(x, dtype)?.y)
}

fn problem<D: Described>(x: &D, dtype: DType) -> Result<Problem> {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        let required = "f32, f16 or bf16".to_owned();
        return Err(Error::Parameter { op: OP, arg: "dtype", required, got: dtype.to_string() });
    }
    Problem::new(OP, ("x", x.described()), None, None, dtype)
}

/// Also what other operations copy by.
pub(super) fn run(problem: &Problem, x: &Tensor, y: &Tensor) -> Result<()> {
    let operands = Operands { a: x, b: None, bias: None };
    with_float!(problem.dtype, T => match problem.y.dtype() {
        DType::F16 => pointwise::run::<T, f16>(problem, to_f16::<T>(), operands, Dropping::NOTHING, y),
        DType::BF16 => pointwise::run::<T, bf16>(problem, to_bf16::<T>(), operands, Dropping::NOTHING, y),
        _ => pointwise::run::<T, f32>(problem, to_f32::<T>(), operands, Dropping::NOTHING, y),
    })
}

macro_rules! to {
    ($name:ident, $to:ty, $dense:ident, $strided:ident) => {
        fn $name<T: kernels::$dense::Instances + kernels::$strided::Instances>() -> Kernels<T, $to> {
            Kernels { dense: kernels::$dense::kernels::<T>(), strided: &kernels::$strided::kernels::<T>()[0] }
        }
    };
}
to!(to_f32, f32, cast_to_f32_dense, cast_to_f32_strided);
to!(to_f16, f16, cast_to_f16_dense, cast_to_f16_strided);
to!(to_bf16, bf16, cast_to_bf16_dense, cast_to_bf16_strided);
