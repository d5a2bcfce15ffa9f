//! The NVIDIA driver (`libcuda`), found at run time.
//!
//! `cust` declares its driver functions as link-time imports, so a program that uses it would neither
//! link without a CUDA toolkit nor start without a driver. This crate defines those functions itself:
//! each forwards to the function of the same, versioned name in the driver's library, which is opened
//! at the first call. Where there is no driver every call returns `CUDA_ERROR_NO_DEVICE`; where the
//! driver is older than a function, that function returns `CUDA_ERROR_NOT_FOUND`. Nothing panics.
//!
//! [`sys`] holds the same functions, and newer ones that `cust` lacks, for direct use. A program must
//! call something of this crate, such as [`available`], for the definitions to be linked in.

#![deny(missing_docs)]
#![allow(non_snake_case, non_camel_case_types)] // the names are the driver's

mod error;
mod library;
pub mod sys;
mod types;

pub use error::{error_name, error_text};

/// Opens the driver's library if that was not done yet; the error says in one line why it cannot be.
///
/// That the library opens does not say that it finds a GPU: `cuInit` does.
pub fn available() -> Result<(), String> {
    library::get().map(|_| ()).map_err(str::to_owned)
}

/// The file name or path under which the driver's library was opened.
pub fn library_name() -> Option<&'static str> {
    library::get().ok().map(|library| library.name)
}
