//! What is known of a tensor without its elements.

use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{self, Dims};

/// A tensor's element type, shape, strides and device: all that shape functions look at.
#[derive(Clone)]
pub struct Desc {
    pub(super) dtype: DType,
    pub(super) shape: Dims<usize>,
    pub(super) strides: Dims<isize>,
    pub(super) device: Device,
}

impl Desc {
    /// A contiguous (row-major) tensor.
    pub fn new(device: &Device, dtype: DType, shape: &[usize]) -> Result<Desc> {
        Desc::contiguous("Desc::new", device, dtype, shape)
    }

    /// As [`Desc::new`], for an error message that names `op`.
    pub(crate) fn contiguous(
        op: &'static str,
        device: &Device,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Desc> {
        let shape = shape::checked(op, shape, dtype.size())?;
        let strides = shape::contiguous_strides(&shape);
        Ok(Desc { dtype, shape, strides, device: device.clone() })
    }

    /// A vector as a matrix of one row.
    pub(crate) fn as_row(&self) -> Desc {
        let (shape, strides) = (self.shape.with(0, 1), self.strides.with(0, 0));
        Desc { shape, strides, ..self.clone() }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The steps from element to element along each dimension, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where the tensor lives.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        shape::count(&self.shape)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes of the elements, each counted once.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        shape::is_contiguous(&self.shape, &self.strides)
    }
}

impl std::fmt::Debug for Desc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape, self.device)?;
        if self.is_contiguous() { Ok(()) } else { write!(f, ", strides {:?}", self.strides) }
    }
}
