//! The CUDA runtime: contexts, streams, memory, kernels and graphs over the driver.
//!
//! `cust` enumerates the devices, retains the primary contexts and loads the modules. Where it has no
//! way to do what is needed (non-blocking and foreign streams, stream-ordered memory, the compiler's
//! log, launches with attributes, graphs), the driver is called through [`cuda_driver::sys`].
//!
//! A [`Context`] exists once per device and process and is never closed, so what it caches (modules,
//! kernels, memory for graphs) may live as long as the process.

mod buffer;
mod capture;
mod context;
mod device;
mod event;
mod function;
mod graph;
mod launch;
mod memory;
mod module;
mod shape;
pub(crate) mod shared;
mod status;
mod stream;
mod tensor_map;
#[cfg(test)]
mod tests;

pub use buffer::DeviceBuffer;
pub use context::Context;
pub use device::{DeviceInfo, device_count, driver_version};
pub use event::Event;
pub use function::Function;
pub use graph::Graph;
pub use module::{Module, ModuleLoad, PtxArch, PtxFamily};
pub use shape::LaunchConfig;
pub use stream::Stream;
pub use tensor_map::{RANK, Tiled};

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handle that the driver gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(*mut c_void);

// SAFETY: the driver's handles are valid in every thread of the process, and its functions lock what they
// need; the objects that need more (a graph is launched by one thread at a time) do so where they are used.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Locks; a panic of another holder left nothing half-done that matters, since each critical section makes
/// one change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
