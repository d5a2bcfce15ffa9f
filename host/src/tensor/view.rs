//! Views: the same elements in another arrangement, without a copy.

use super::Tensor;
use crate::error::{Error, Result};
use crate::shape::{self, Dims};

impl Tensor {
    /// A view that starts `elements` further on.
    fn viewed(&self, shape: Dims<usize>, strides: Dims<isize>, elements: isize) -> Tensor {
        let mut view = self.clone();
        // An empty view has no element to start at.
        if !shape.contains(&0) {
            let bytes = elements.wrapping_mul(self.dtype().size() as isize);
            view.offset = self.offset.wrapping_add_signed(bytes);
        }
        (view.desc.shape, view.desc.strides) = (shape, strides);
        view
    }

    /// A view of any dimensions from the first element on, which must not leave the elements that there are.
    pub(crate) fn strided(&self, shape: &[usize], strides: &[i64]) -> Result<Tensor> {
        let shape = shape::checked("Tensor::strided", shape, self.dtype().size())?;
        let mut steps = Dims::new();
        strides.iter().for_each(|&stride| steps.push(stride as isize));
        Ok(self.viewed(shape, steps, 0))
    }

    /// The dimensions in another order: dimension `i` of the result is dimension `dims[i]` of this, counted
    /// from the back where it is negative.
    pub fn permute(&self, dims: &[isize]) -> Result<Tensor> {
        let op = "Tensor::permute";
        let refuse = || Error::Parameter {
            op,
            arg: "dims",
            required: format!("each of the {} dimensions once", self.rank()),
            got: format!("{dims:?}"),
        };
        if dims.len() != self.rank() {
            return Err(refuse());
        }
        let (mut shape, mut strides) = (Dims::new(), Dims::new());
        let mut seen = [false; shape::MAX_RANK];
        for &dim in dims {
            let dim = shape::dimension(op, "dims", dim, self.rank())?;
            if std::mem::replace(&mut seen[dim], true) {
                return Err(refuse());
            }
            shape.push(self.shape()[dim]);
            strides.push(self.strides()[dim]);
        }
        Ok(self.viewed(shape, strides, 0))
    }

    /// Two dimensions exchanged.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let op = "Tensor::transpose";
        let a = shape::dimension(op, "a", a, self.rank())?;
        let b = shape::dimension(op, "b", b, self.rank())?;
        let (mut shape, mut strides) = (self.desc.shape, self.desc.strides);
        shape.swap(a, b);
        strides.swap(a, b);
        Ok(self.viewed(shape, strides, 0))
    }

    /// The part `start..start + len` of a dimension.
    pub fn narrow(&self, dim: isize, start: usize, len: usize) -> Result<Tensor> {
        let op = "Tensor::narrow";
        let dim = shape::dimension(op, "dim", dim, self.rank())?;
        let extent = self.shape()[dim];
        if start.checked_add(len).is_none_or(|end| end > extent) {
            let (required, got) = (format!("within 0..{extent}"), format!("{start}..{start} + {len}"));
            return Err(Error::Parameter { op, arg: "start..start + len", required, got });
        }
        let mut shape = self.desc.shape;
        shape[dim] = len;
        Ok(self.viewed(shape, self.desc.strides, (start as isize).wrapping_mul(self.strides()[dim])))
    }

    /// Every `step`-th element of a dimension, from the first on.
    pub fn step(&self, dim: isize, step: usize) -> Result<Tensor> {
        let op = "Tensor::step";
        let dim = shape::dimension(op, "dim", dim, self.rank())?;
        if step == 0 {
            let (required, got) = ("at least 1".into(), step.to_string());
            return Err(Error::Parameter { op, arg: "step", required, got });
        }
        let (mut shape, mut strides) = (self.desc.shape, self.desc.strides);
        shape[dim] = shape[dim].div_ceil(step);
        // With a single element left the step does not matter, and may be too long for an address.
        if shape[dim] > 1 {
            strides[dim] *= step as isize;
        }
        Ok(self.viewed(shape, strides, 0))
    }

    /// This tensor repeated along dimensions of size 1 and along new ones in front.
    pub fn expand(&self, shape: &[usize]) -> Result<Tensor> {
        let op = "Tensor::expand";
        let wanted = shape::checked(op, shape, self.dtype().size())?;
        let strides = shape::broadcast_strides(op, "tensor", self.shape(), self.strides(), &wanted)?;
        Ok(self.viewed(wanted, strides, 0))
    }

    /// The elements, in order, under another shape; an error where they would have to be copied.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        let op = "Tensor::reshape";
        let wanted = shape::checked(op, shape, self.dtype().size())?;
        if shape::count(&wanted) != self.len() {
            let required = format!("{shape:?} or another of {} elements", shape::count(&wanted));
            return Err(Error::Shape { op, arg: "tensor", required, got: self.shape().to_vec() });
        }
        match shape::reshaped_strides(self.shape(), self.strides(), &wanted) {
            Some(strides) => Ok(self.viewed(wanted, strides, 0)),
            None => Err(Error::Strides {
                op,
                arg: "tensor",
                required: "strides that allow the new shape without a copy",
                got: self.strides().iter().map(|&stride| stride as i64).collect(),
            }),
        }
    }

    /// Without dimension `dim`, which has size 1.
    pub fn squeeze(&self, dim: isize) -> Result<Tensor> {
        let op = "Tensor::squeeze";
        let dim = shape::dimension(op, "dim", dim, self.rank())?;
        if self.shape()[dim] != 1 {
            let required = format!("1 in dimension {dim}");
            return Err(Error::Shape { op, arg: "tensor", required, got: self.shape().to_vec() });
        }
        Ok(self.viewed(self.desc.shape.without(dim), self.desc.strides.without(dim), 0))
    }

    /// With a new dimension of size 1 in front of dimension `dim`; the rank, or -1, puts it last.
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        let op = "Tensor::unsqueeze";
        let dim = shape::dimension(op, "dim", dim, self.rank() + 1)?;
        if self.rank() == shape::MAX_RANK {
            let (limit, got) = (shape::MAX_RANK as u64, (self.rank() + 1).to_string());
            return Err(Error::TooLarge { op, what: "the number of dimensions", limit, got });
        }
        // The stride that keeps a contiguous tensor's strides row-major.
        let stride = match self.shape().get(dim) {
            Some(&extent) => self.strides()[dim].wrapping_mul(extent.max(1) as isize),
            None => 1,
        };
        Ok(self.viewed(self.desc.shape.with(dim, 1), self.desc.strides.with(dim, stride), 0))
    }
}
