//! What kernel code imports: thread indices, barriers, warp collectives, typed views of global and
//! shared memory, atomics, float math and half-precision conversion, and `#[kernel]`.
//!
//! Names follow Rust-CUDA's `cuda_std` wherever it has the thing (docs/RUST_CUDA.md compares the two).
//! Every primitive has two implementations under one name, picked by target: `device/` compiles to
//! one or a few PTX instructions, `host/` calls the checker, so a kernel body never asks where it runs.
//!
//! Cross-lane operations are LLVM's convergent intrinsics, never `asm!`: LLVM may sink or duplicate
//! inline assembly into divergent branches.

#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx),
    allow(internal_features)
)]
#![deny(missing_docs)]

#[cfg(target_arch = "nvptx64")]
#[path = "device/mod.rs"]
mod imp;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "host/mod.rs"]
mod imp;

pub mod async_copy;
pub mod atomic;
pub mod barrier;
pub mod bits;
pub mod block;
pub mod cluster;
pub mod dependent;
pub mod divide;
pub mod float;
pub mod global;
pub mod kernel;
pub mod matrix;
pub mod packed;
pub mod philox;
pub mod ring;
pub mod shared;
pub mod thread;
pub mod tile;
pub mod tma;
pub mod warp;
pub mod warpgroup;

pub use cuda_std_macros::kernel;
pub use global::{Global, GlobalMut, Keep};
pub use half::{bf16, f16};
pub use matrix::Half;
pub use packed::{Float, Pack};
pub use shared::Shared;

/// What `#[kernel]`'s expansion needs; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::imp::RawShared;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::imp::StaticShared;
    #[cfg(target_arch = "nvptx64")]
    pub use core::arch::{asm, global_asm};
}

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `trap` ends the grid; the host sees an error at its next call.
    unsafe { core::arch::asm!("trap;", options(noreturn, nostack)) }
}

/// Everything that a kernel file usually names.
pub mod prelude {
    pub use crate::{
        Float, Global, GlobalMut, Half, Keep, Pack, Shared, async_copy, bf16, block, cluster, f16, float,
        kernel, packed, shared_array, thread, warp,
    };
}
