//! Tensors: typed, strided views of device memory.

mod create;
mod desc;
mod kernel_view;
mod read;
#[cfg(test)]
mod tests;
mod transfer;
mod view;

pub use desc::Desc;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::device::Device;
use crate::dtype::DType;
use crate::shape;
use crate::storage::Storage;

/// An array of up to [`MAX_RANK`](crate::MAX_RANK) dimensions on a [`Device`], or a view of one.
///
/// Cloning a tensor and making a view of it share the memory, which lives until the last of them drops.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    desc: Desc,
    /// Where element 0 is in the storage, in bytes. All elements of the view are within the storage.
    offset: usize,
}

impl Tensor {
    /// Element type, shape, strides and device.
    pub fn desc(&self) -> &Desc {
        &self.desc
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.desc.dtype
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.desc.shape
    }

    /// The steps from element to element along each dimension, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.desc.strides
    }

    /// Where the tensor lives, with the stream that its operations go to.
    pub fn device(&self) -> &Device {
        &self.desc.device
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.desc.rank()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.desc.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.desc.is_empty()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.desc.is_contiguous()
    }

    /// The address of element 0 on its device.
    pub fn address(&self) -> u64 {
        self.storage.address().wrapping_add(self.offset as u64)
    }

    /// The addresses from the first to past the last byte that an element has; empty without elements.
    pub fn byte_range(&self) -> Range<u64> {
        let range = self.storage_range();
        let base = self.storage.address();
        base.wrapping_add(range.start as u64)..base.wrapping_add(range.end as u64)
    }

    /// [`Tensor::byte_range`] within the storage.
    fn storage_range(&self) -> Range<usize> {
        let reach = shape::reach(self.shape(), self.strides()).filter(|_| !self.is_empty());
        let Some((low, high)) = reach else { return self.offset..self.offset };
        // All of it is within the storage, so nothing overflows.
        let size = self.dtype().size() as isize;
        let at = |element: isize| self.offset.wrapping_add_signed(element.wrapping_mul(size));
        at(low)..at(high.wrapping_add(1))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?})", self.desc)
    }
}
