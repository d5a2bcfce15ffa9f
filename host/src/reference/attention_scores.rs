//! The probabilities of attention in float64.

use super::masked_softmax::softmax_of;
use super::matmul;
use crate::error::Result;
use crate::ops::{MaskedSoftmax, Matmul, attention_scores_shape};
use crate::tensor::Tensor;

/// The result of [`ops::attention_scores`](crate::ops::attention_scores()), row-major, without a rounding in between.
pub fn attention_scores(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax) -> Result<Vec<f64>> {
    let y = attention_scores_shape(q, k, parameters)?;
    let scores = matmul(q, k, &Matmul { transpose_b: true, ..Matmul::default() })?;
    softmax_of(y.shape(), &scores, parameters)
}
