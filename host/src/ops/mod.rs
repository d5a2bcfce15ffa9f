//! The operations. Each checks its arguments first, by a *shape function* that can be called alone, and
//! returns a typed [`Error`](crate::Error).

mod add;
mod add_layer_norm;
pub mod attention_scores;
mod bias_gelu;
mod cast;
mod column_sums;
mod cross_entropy;
mod dropout;
mod embedding;
mod gelu;
mod layer_norm;
mod linear;
pub mod masked_softmax;
pub mod matmul;
mod norm_backward;
mod packed;
pub mod permute;
mod pointwise;
pub mod recurrent;
mod rms_norm;
mod rows;
mod softmax_backward;
mod views;

pub use add::{add, add_into, add_shape};
pub use add_layer_norm::{
    AddLayerNorm, AddLayerNormBackward, AddLayerNormGradients, AddLayerNormed, add_layer_norm,
    add_layer_norm_backward, add_layer_norm_backward_into, add_layer_norm_backward_shape,
    add_layer_norm_into, add_layer_norm_shape,
};
pub use attention_scores::{attention_scores, attention_scores_into, attention_scores_shape};
pub use bias_gelu::{
    bias_gelu, bias_gelu_backward, bias_gelu_backward_into, bias_gelu_backward_shape, bias_gelu_into,
    bias_gelu_shape,
};
pub use cast::{cast, cast_into, cast_shape};
pub use cross_entropy::{
    CrossEntropy, CrossEntropyGradient, Reduction, cross_entropy, cross_entropy_backward,
    cross_entropy_backward_into, cross_entropy_backward_shape, cross_entropy_into, cross_entropy_shape,
};
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
pub use layer_norm::{LayerNorm, LayerNormed, layer_norm, layer_norm_into, layer_norm_shape};
pub use linear::{
    Activation, Heads, Linear, LinearBackward, LinearGradients, linear, linear_backward,
    linear_backward_into, linear_backward_shape, linear_candidates, linear_explain, linear_into,
    linear_into_by, linear_keeping, linear_shape,
};
pub use masked_softmax::{
    DroppedSoftmax, Mask, MaskedSoftmax, masked_softmax, masked_softmax_dropout, masked_softmax_dropout_into,
    masked_softmax_dropout_shape, masked_softmax_into, masked_softmax_shape,
};
pub use matmul::{
    Matmul, MatmulGradients, matmul, matmul_backward, matmul_backward_into, matmul_backward_shape,
    matmul_into, matmul_shape,
};
pub use norm_backward::{
    LayerNormGradients, RmsNormGradients, layer_norm_backward, layer_norm_backward_into,
    layer_norm_backward_shape, rms_norm_backward, rms_norm_backward_into, rms_norm_backward_shape,
};
pub use permute::{
    contiguous, contiguous_into, merge_heads, merge_heads_into, merge_heads_shape, permute, permute_cast,
    permute_cast_into, permute_into, permute_shape, split_heads, split_heads_into, split_heads_shape,
    transpose_in_place,
};
pub use recurrent::{
    CellGradients, Kept, Kind as RecurrentKind, LayerGradients, LstmState, PointwiseGradients, Recurred,
    Recurrent, RecurrentGradients, RecurrentWeights, Upstream, gru, gru_backward, gru_cell,
    gru_cell_backward, gru_cell_pointwise, gru_cell_pointwise_backward, gru_cell_shape, gru_explain,
    gru_shape, lstm, lstm_backward, lstm_cell, lstm_cell_backward, lstm_cell_pointwise,
    lstm_cell_pointwise_backward, lstm_cell_shape, lstm_explain, lstm_shape,
};
pub use rms_norm::{RmsNormed, rms_norm, rms_norm_into, rms_norm_shape};
pub use softmax_backward::{
    masked_softmax_backward, masked_softmax_backward_into, masked_softmax_backward_shape,
    masked_softmax_dropout_backward, masked_softmax_dropout_backward_into,
};
