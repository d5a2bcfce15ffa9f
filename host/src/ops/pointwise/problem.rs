//! What is asked: the checked operands, as extents and strides.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{self, Merged};
use crate::tensor::{Desc, Tensor};

/// Most columns of an operand with a bias: column numbers are 31-bit numbers, with room for a launch.
const MAX_COLS: usize = 1 << 30;

/// A checked request: y[i] = f(a[i], b[i], bias[i mod N]).
#[derive(Debug)]
pub struct Problem {
    pub op: &'static str,
    /// The operands' type.
    pub dtype: DType,
    /// y, which is contiguous.
    pub y: Desc,
    /// N, where there is a bias.
    pub bias: Option<usize>,
    /// The strides of a, b and the bias; of an operand that is not there, those of a.
    pub walk: Merged<3>,
}

impl Problem {
    /// Checks everything that can be checked without reading an element. The first operand's type, shape
    /// and device are the others'; a bias belongs to its last dimension. y has type `out`.
    pub fn new(
        op: &'static str,
        a: (&'static str, &Desc),
        b: Option<(&'static str, &Desc)>,
        bias: Option<&Desc>,
        out: DType,
    ) -> Result<Problem> {
        let (a_arg, a) = a;
        float(op, a_arg, a)?;
        reach(op, a_arg, a)?;
        let mut strides = [a.strides(); 3];
        if let Some((arg, b)) = b {
            same(op, arg, b, a)?;
            strides[1] = b.strides();
        }
        let mut of_bias = vec![0; a.rank()];
        let columns = bias.map(|bias| check_bias(op, a_arg, a, bias)).transpose()?;
        if let (Some(bias), Some(last)) = (bias, of_bias.last_mut()) {
            *last = bias.strides()[0];
            strides[2] = &of_bias;
        }
        Ok(Problem {
            op,
            dtype: a.dtype(),
            y: Desc::contiguous(op, a.device(), out, a.shape())?,
            bias: columns,
            walk: shape::merge(a.shape(), strides),
        })
    }

    /// A tensor for y.
    pub fn output(&self) -> Result<Tensor> {
        Tensor::uninit(self.y.device(), self.y.dtype(), self.y.shape())
    }
}

/// N of a bias [N] for the last dimension of x.
fn check_bias(op: &'static str, x_arg: &'static str, x: &Desc, bias: &Desc) -> Result<usize> {
    let Some(&columns) = x.shape().last() else {
        return Err(Error::Shape { op, arg: x_arg, required: "[.., N]".to_owned(), got: vec![] });
    };
    if columns > MAX_COLS {
        let got = columns.to_string();
        return Err(Error::TooLarge { op, what: "columns of `x`", limit: MAX_COLS as u64, got });
    }
    if bias.dtype() != x.dtype() {
        let required = x.dtype().to_string();
        return Err(Error::DType { op, arg: "bias", required, got: bias.dtype() });
    }
    if bias.shape() != [columns] {
        let (required, got) = (format!("[{columns}]"), bias.shape().to_vec());
        return Err(Error::Shape { op, arg: "bias", required, got });
    }
    on_device(op, "bias", bias, x)?;
    reach(op, "bias", bias)?;
    Ok(columns)
}

/// Wants f32, f16 or bf16.
pub fn float(op: &'static str, arg: &'static str, desc: &Desc) -> Result<()> {
    match desc.dtype() {
        DType::F32 | DType::F16 | DType::BF16 => Ok(()),
        got => Err(Error::DType { op, arg, required: "f32, f16 or bf16".to_owned(), got }),
    }
}

/// Wants the type, shape and device of `x`.
pub fn same(op: &'static str, arg: &'static str, desc: &Desc, x: &Desc) -> Result<()> {
    typed(op, arg, desc, x.dtype(), x)?;
    reach(op, arg, desc)
}

/// Wants a type, and the shape and device of `x`.
pub fn typed(op: &'static str, arg: &'static str, desc: &Desc, dtype: DType, x: &Desc) -> Result<()> {
    if desc.dtype() != dtype {
        return Err(Error::DType { op, arg, required: dtype.to_string(), got: desc.dtype() });
    }
    if desc.shape() != x.shape() {
        let (required, got) = (format!("{:?}", x.shape()), desc.shape().to_vec());
        return Err(Error::Shape { op, arg, required, got });
    }
    on_device(op, arg, desc, x)
}

/// Wants the device of `x`.
pub fn on_device(op: &'static str, arg: &'static str, desc: &Desc, x: &Desc) -> Result<()> {
    if desc.device().same_device(x.device()) {
        return Ok(());
    }
    let (required, got) = (x.device().to_string(), desc.device().to_string());
    Err(Error::DeviceMismatch { op, arg, required, got })
}

/// Refuses strides that lead to before the first element.
pub fn reach(op: &'static str, arg: &'static str, desc: &Desc) -> Result<()> {
    match shape::reach(desc.shape(), desc.strides()) {
        Some((0, _)) => Ok(()),
        _ if desc.is_empty() => Ok(()),
        _ => Err(strides(op, arg, desc, "strides that are not negative")),
    }
}

/// Wants a tensor without gaps.
pub fn contiguous(op: &'static str, arg: &'static str, desc: &Desc) -> Result<()> {
    if desc.is_contiguous() { Ok(()) } else { Err(strides(op, arg, desc, "contiguous strides")) }
}

fn strides(op: &'static str, arg: &'static str, desc: &Desc, required: &'static str) -> Error {
    let got = desc.strides().iter().map(|&stride| stride as i64).collect();
    Error::Strides { op, arg, required, got }
}

/// Checks an output that the caller brings: as `wanted`, contiguous, and apart from the inputs.
pub fn check_output(
    op: &'static str,
    arg: &'static str,
    y: &Tensor,
    wanted: &Desc,
    inputs: &[&Tensor],
) -> Result<()> {
    typed(op, arg, y.desc(), wanted.dtype(), wanted)?;
    contiguous(op, arg, y.desc())?;
    let overlaps = |other: &&Tensor| {
        let (a, b) = (y.byte_range(), other.byte_range());
        a.start < b.end && b.start < a.end
    };
    if !y.is_empty() && inputs.iter().any(overlaps) {
        return Err(strides(op, arg, y.desc(), "memory apart from the inputs'"));
    }
    Ok(())
}

/// Runs `launch` on an output that the caller brings, after its checks; on its own stream afterwards.
pub fn into(
    problem: &Problem,
    inputs: &[&Tensor],
    y: &Tensor,
    arg: &'static str,
    launch: impl FnOnce(&Tensor) -> Result<()>,
) -> Result<()> {
    check_output(problem.op, arg, y, &problem.y, inputs)?;
    let device = problem.y.device();
    launch(&y.adopted(device, problem.op, arg)?)?;
    y.device().wait_for(device, problem.op)
}
