//! What kernels see of a tensor.

use cuda_std::global::RawView;
use cuda_std::{Global, GlobalMut};

use super::Tensor;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};

impl Tensor {
    /// The memory from element 0 of this view on, to the end of the allocation, for kernels that only read.
    /// Bools may also be viewed as `u8`.
    pub fn view<T: Element>(&self) -> Result<Global<T>> {
        self.expect_dtype::<T>("Tensor::view")?;
        // SAFETY: the elements are of this type, and aligned to its size: allocations are, offsets count
        // elements, and foreign addresses were checked.
        Ok(unsafe { Global::from_raw(self.raw_view()?) })
    }

    /// As [`Tensor::view`], for kernels that write.
    pub fn view_mut<T: Element>(&self) -> Result<GlobalMut<T>> {
        self.expect_dtype::<T>("Tensor::view_mut")?;
        // SAFETY: as in `view`.
        Ok(unsafe { GlobalMut::from_raw(self.raw_view()?) })
    }

    /// As [`Tensor::view`], without a type.
    pub fn raw_view(&self) -> Result<RawView> {
        self.storage.view(self.offset, self.device())
    }

    /// Refuses `T` where it is not the type of the elements.
    pub(super) fn expect_dtype<T: Element>(&self, op: &'static str) -> Result<()> {
        let (got, wanted) = (self.dtype(), T::DTYPE);
        if got == wanted || (got == DType::Bool && wanted == DType::U8) {
            return Ok(());
        }
        Err(Error::DType { op, arg: "tensor", required: wanted.to_string(), got })
    }
}
