//! The operations. Each checks its arguments first, by a *shape function* that can be called alone, and
//! returns a typed [`Error`](crate::Error).

mod add;
mod bias_gelu;
mod cast;
mod column_sums;
mod dropout;
mod embedding;
mod gelu;
pub mod masked_softmax;
mod pointwise;

pub use add::{add, add_into, add_shape};
pub use bias_gelu::{
    bias_gelu, bias_gelu_backward, bias_gelu_backward_into, bias_gelu_backward_shape, bias_gelu_into,
    bias_gelu_shape,
};
pub use cast::{cast, cast_into, cast_shape};
pub use dropout::{
    Dropout, dropout, dropout_backward, dropout_backward_into, dropout_backward_shape, dropout_into,
    dropout_shape,
};
pub use embedding::{
    Positions, embedding, embedding_backward, embedding_backward_into, embedding_backward_shape,
    embedding_into, embedding_shape,
};
pub use gelu::{
    Approximate, gelu, gelu_backward, gelu_backward_into, gelu_backward_shape, gelu_into, gelu_shape,
};
pub use masked_softmax::{Mask, MaskedSoftmax, masked_softmax, masked_softmax_into, masked_softmax_shape};
