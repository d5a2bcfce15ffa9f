//! The gradient of softmax in float64.

use super::elementwise::dropped;
use crate::error::Result;
use crate::ops::{self, Dropout};
use crate::tensor::Tensor;

/// The result of [`ops::masked_softmax_backward`], row-major.
pub fn masked_softmax_backward(y: &Tensor, dy: &Tensor, scale: f32) -> Result<Vec<f64>> {
    ops::masked_softmax_backward_shape(y, dy, scale)?;
    of_gradients(y, dy.to_f64()?, scale)
}

/// The result of [`ops::masked_softmax_dropout_backward`], row-major.
pub fn masked_softmax_dropout_backward(
    probabilities: &Tensor,
    dy: &Tensor,
    scale: f32,
    dropout: Dropout,
) -> Result<Vec<f64>> {
    ops::masked_softmax_backward_shape(probabilities, dy, scale)?;
    of_gradients(probabilities, dropped(dy.to_f64()?, dropout), scale)
}

fn of_gradients(y: &Tensor, dys: Vec<f64>, scale: f32) -> Result<Vec<f64>> {
    let cols = y.shape()[y.rank() - 1].max(1);
    let ys = y.to_f64()?;
    let mut dx = Vec::with_capacity(ys.len());
    for (y, dy) in ys.chunks(cols).zip(dys.chunks(cols)) {
        let sum: f64 = y.iter().zip(dy).filter(|&(&y, _)| y != 0.0).map(|(y, dy)| y * dy).sum();
        let gradient =
            |(&y, &dy): (&f64, &f64)| if y == 0.0 { 0.0 } else { f64::from(scale) * y * (dy - sum) };
        dx.extend(y.iter().zip(dy).map(gradient));
    }
    Ok(dx)
}
