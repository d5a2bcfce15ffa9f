//! The CPU implementation: every operation is an event of the checker.

pub mod async_copy;
pub mod atomic;
pub mod barrier;
pub mod bits;
pub mod cluster;
pub mod dependent;
pub mod float;
pub mod global;
pub mod matrix;
pub mod packed;
pub mod shared;
pub mod thread;
pub mod tma;
pub mod warp;
pub mod warpgroup;

pub use shared::RawShared;
pub use simt::StaticShared;
