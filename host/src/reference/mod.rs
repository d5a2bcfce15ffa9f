//! The operations in float64 on the CPU, written as the formulas are: what results are compared with.

pub mod masked_softmax;

pub use masked_softmax::masked_softmax;
