//! The driver's error codes as [`Error`].

use cuda_driver::sys::{CUDA_SUCCESS, CUresult};
use cust::error::CudaResult;

use crate::error::{Error, Result};

/// The outcome of a call through `cuda_driver::sys`.
#[inline]
pub(super) fn check(call: &'static str, code: CUresult) -> Result<()> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(driver_error(call, code)) }
}

/// The outcome of a call through `cust`.
pub(super) fn check_cust<T>(call: &'static str, result: CudaResult<T>) -> Result<T> {
    result.map_err(|error| driver_error(call, error as CUresult))
}

#[cold]
pub(super) fn driver_error(call: &'static str, code: CUresult) -> Error {
    Error::Driver {
        call,
        name: cuda_driver::error_name(code),
        code,
        description: cuda_driver::error_text(code),
    }
}
