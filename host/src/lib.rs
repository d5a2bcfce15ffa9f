//! Fused deep-learning GPU kernels in pure Rust.
//!
//! Tensors live on a [`Device`]: an NVIDIA GPU, found at run time, or the CPU, where the same kernels run
//! under a checker. Operations check shapes, element types and devices first and return an [`Error`] that
//! names the argument, what was required and what came; nothing that safe code passes makes a kernel
//! access memory out of bounds.
//!
//! ```
//! use warpwright::{Device, Tensor};
//!
//! let device = Device::cpu(); // or Device::cuda(0)?
//! let x = Tensor::from_slice(&device, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let columns = x.transpose(0, 1)?.narrow(0, 1, 2)?; // a view: nothing is copied
//! assert_eq!(columns.to_vec::<f32>()?, [2.0, 5.0, 3.0, 6.0]);
//! # Ok::<(), warpwright::Error>(())
//! ```

#![deny(missing_docs)]

mod aside;
pub mod autotune;
mod count;
#[allow(dead_code, unused_imports)] // a whole layer; not every part of it has a user here
mod cuda;
mod device;
mod dtype;
mod error;
mod families;
mod faults;
mod graph;
pub mod io;
mod launch;
mod memo;
pub mod ops;
pub mod profile;
pub mod reference;
mod shape;
mod storage;
mod stream;
mod tensor;

pub use cuda::{DeviceInfo, ModuleLoad, PtxArch, PtxFamily, device_count, driver_version};
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use families::{COLUMN_SUMS, MASKED_SOFTMAX, POINTWISE, PROBE, families, manifest};
pub use graph::Graph;
pub use launch::Grid;
pub use shape::MAX_RANK;
pub use simt::Checks;
pub use stream::{Event, Stream};
pub use tensor::{Desc, Tensor};

/// The example of the README, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
