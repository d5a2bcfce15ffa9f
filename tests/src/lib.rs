//! What the end-to-end tests share: one body for the CPU and the GPU, skips that show, seeded inputs,
//! poisoned outputs, and assertions that name the element.

#![deny(missing_docs)]

mod array;
mod check;
mod data;
mod devices;

pub use array::{Array, Plain, bytes};
pub use check::{assert_same, assert_within, ulp};
pub use data::{DTYPES, EDGES, POISON, Random, floats, poisoned, tokens_of};
pub use devices::{apart, first_gpu, first_gpu_apart, on_devices, roomy_gpu, skipped};
