//! What kernels see of operands that may be absent.

use crate::dtype::Element;
use crate::error::Result;
use crate::tensor::Tensor;
use cuda_std::global::RawView;
use cuda_std::{Global, GlobalMut};

/// For a kernel that reads; no memory where the operand is absent, which the kernel is told otherwise.
pub fn read<T: Element>(tensor: Option<&Tensor>) -> Result<Global<T>> {
    match tensor {
        Some(tensor) => tensor.view(),
        // SAFETY: not touched by a kernel without this operand.
        None => Ok(unsafe { Global::from_raw(RawView::none()) }),
    }
}

/// For a kernel that writes.
pub fn write<T: Element>(tensor: Option<&Tensor>) -> Result<GlobalMut<T>> {
    match tensor {
        Some(tensor) => tensor.view_mut(),
        // SAFETY: as in `read`.
        None => Ok(unsafe { GlobalMut::from_raw(RawView::none()) }),
    }
}
