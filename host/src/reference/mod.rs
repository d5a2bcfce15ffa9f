//! The operations in float64 on the CPU, written as the formulas are: what results are compared with.

mod elementwise;
mod embedding;
mod gelu;
pub mod masked_softmax;
mod normal;

pub use elementwise::{add, dropout};
pub use embedding::{embedding, embedding_backward};
pub use gelu::{bias_gelu, bias_gelu_backward, gelu, gelu_backward};
pub use masked_softmax::masked_softmax;
