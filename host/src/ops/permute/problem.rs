//! What is asked: a checked permutation.

use super::plan::Request;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::pointwise::{float, reach};
use crate::shape::{self, Dims};
use crate::tensor::Desc;

/// A checked request: y[i…] = x[i… permuted].
pub struct Problem {
    /// y, which is contiguous.
    pub y: Desc,
    /// The dimensions of x in the order of y, each once.
    pub dims: Vec<isize>,
    /// x's strides in that order.
    strides: Dims<isize>,
    from: DType,
}

impl Problem {
    /// Checks everything.
    pub fn new(op: &'static str, x: &Desc, dims: &[isize], dtype: DType) -> Result<Problem> {
        let refuse = || Error::Parameter {
            op,
            arg: "dims",
            required: format!("each of the {} dimensions once", x.rank()),
            got: format!("{dims:?}"),
        };
        if dims.len() != x.rank() {
            return Err(refuse());
        }
        let (mut shape, mut strides) = (Dims::new(), Dims::new());
        let mut order = Vec::with_capacity(dims.len());
        for &dim in dims {
            let dim = shape::dimension(op, "dims", dim, x.rank())?;
            if order.contains(&(dim as isize)) {
                return Err(refuse());
            }
            order.push(dim as isize);
            shape.push(x.shape()[dim]);
            strides.push(x.strides()[dim]);
        }
        reach(op, "x", x)?;
        if dtype != x.dtype() {
            float(op, "x", x)?;
            if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
                let required = "f32, f16 or bf16".to_owned();
                return Err(Error::Parameter { op, arg: "dtype", required, got: dtype.to_string() });
            }
        }
        let y = Desc::contiguous(op, x.device(), dtype, &shape)?;
        Ok(Problem { y, dims: order, strides, from: x.dtype() })
    }

    /// What the planner is asked, of tensors at these addresses.
    pub fn request(&self, x: u64, y: u64) -> Request {
        Request {
            shape: self.y.shape().to_vec(),
            strides: self.strides.to_vec(),
            from: self.from,
            to: self.y.dtype(),
            x_phase: (x % 32) as usize,
            y_phase: (y % 32) as usize,
        }
    }
}
