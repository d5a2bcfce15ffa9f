//! The operations in float64 on the CPU, written as the formulas are: what results are compared with.

mod attention_scores;
mod cross_entropy;
mod elementwise;
mod embedding;
mod gelu;
mod linear;
pub mod masked_softmax;
mod matmul;
mod norm_backward;
mod normal;
mod norms;
mod permute;
mod recurrent;
mod softmax_backward;

pub use attention_scores::attention_scores;
pub use cross_entropy::cross_entropy_backward;
pub use elementwise::{add, dropout};
pub use embedding::{embedding, embedding_backward};
pub use gelu::{bias_gelu, bias_gelu_backward, gelu, gelu_backward};
pub use linear::{linear, linear_backward, linear_pre};
pub use masked_softmax::masked_softmax;
pub use matmul::{matmul, matmul_backward};
pub use norm_backward::{add_layer_norm_backward, layer_norm_backward, rms_norm_backward};
pub use norms::{add_layer_norm, layer_norm, rms_norm};
pub use permute::permute;
pub use recurrent::{
    cell, cell_backward, cell_pointwise, cell_pointwise_backward, recurrent, recurrent_backward,
};
pub use softmax_backward::{masked_softmax_backward, masked_softmax_dropout_backward};
