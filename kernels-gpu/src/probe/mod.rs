//! Kernels that measure and test the machine rather than compute: an empty launch, the copy that the
//! memory-bound operations are judged by, and every primitive of `cuda_std` for the numeric tests.
//!
//! A test kernel writes what each primitive gave, and `tests/` compares it with the same computation in
//! plain Rust, on the CPU and on a GPU. Layouts are `[what, thread]` unless a kernel says otherwise.

mod atomics;
mod barriers;
mod basics;
mod bit_ops;
mod clusters;
mod elements;
mod lanes;
mod launches;
mod math;
mod matrices;
mod messages;
mod parts;
mod reductions;
mod shared_memory;
mod views;
mod warpgroups;

pub use atomics::*;
pub use barriers::*;
pub use basics::*;
pub use bit_ops::*;
pub use clusters::*;
pub use elements::*;
pub use lanes::*;
pub use launches::*;
pub use math::*;
pub use matrices::*;
pub use messages::*;
pub use parts::*;
pub use reductions::*;
pub use shared_memory::*;
pub use views::*;
pub use warpgroups::*;
