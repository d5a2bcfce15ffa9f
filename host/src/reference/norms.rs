//! Layer norm and RMS norm in float64.

use super::elementwise::dropped;
use crate::error::Result;
use crate::ops::{self, AddLayerNorm, AddLayerNormed, LayerNorm, LayerNormed, RmsNormed};
use crate::tensor::Tensor;

/// The elements of a vector, or as many of what stands for an absent one.
fn vector(vector: Option<&Tensor>, cols: usize, absent: f64) -> Result<Vec<f64>> {
    vector.map_or_else(|| Ok(vec![absent; cols]), Tensor::to_f64)
}

/// The rows of a row-major matrix; `rows` empty ones without columns.
fn rows_of(elements: &[f64], rows: usize) -> impl Iterator<Item = &[f64]> {
    let cols = elements.len().checked_div(rows).unwrap_or(0);
    (0..rows).map(move |row| &elements[row * cols..(row + 1) * cols])
}

/// The results of [`ops::layer_norm`], row-major.
pub fn layer_norm(x: &Tensor, parameters: &LayerNorm) -> Result<LayerNormed<Vec<f64>>> {
    let shape = ops::layer_norm_shape(x, parameters)?;
    of_elements(&x.to_f64()?, shape.mean.len(), parameters)
}

/// The results of [`ops::add_layer_norm`], row-major; the layer norm of the sum as it is before it is rounded.
pub fn add_layer_norm(
    x: &Tensor,
    residual: &Tensor,
    parameters: &AddLayerNorm,
) -> Result<AddLayerNormed<Vec<f64>>> {
    let shape = ops::add_layer_norm_shape(x, residual, parameters)?;
    let cols = x.shape()[x.rank() - 1];
    let bias = vector(parameters.input_bias, cols, 0.0)?;
    let mut of_x: Vec<f64> = x.to_f64()?.into_iter().enumerate().map(|(i, x)| x + bias[i % cols]).collect();
    if let Some(dropout) = parameters.dropout {
        of_x = dropped(of_x, dropout);
    }
    let sum: Vec<f64> = of_x.into_iter().zip(residual.to_f64()?).map(|(x, residual)| x + residual).collect();
    let LayerNormed { y, mean, rstd } = of_elements(&sum, shape.mean.len(), &parameters.norm)?;
    Ok(AddLayerNormed { sum, y, mean, rstd })
}

fn of_elements(x: &[f64], rows: usize, parameters: &LayerNorm) -> Result<LayerNormed<Vec<f64>>> {
    let cols = x.len().checked_div(rows).unwrap_or(0);
    let (weight, bias) = (vector(parameters.weight, cols, 1.0)?, vector(parameters.bias, cols, 0.0)?);
    let mut normed = LayerNormed { y: Vec::with_capacity(x.len()), mean: vec![], rstd: vec![] };
    for row in rows_of(x, rows) {
        let n = row.len().max(1) as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let rstd = 1.0 / (variance + f64::from(parameters.eps)).sqrt();
        normed.y.extend(row.iter().zip(&weight).zip(&bias).map(|((x, w), b)| (x - mean) * rstd * w + b));
        normed.mean.push(mean);
        normed.rstd.push(rstd);
    }
    Ok(normed)
}

/// The results of [`ops::rms_norm`], row-major.
pub fn rms_norm(x: &Tensor, weight: Option<&Tensor>, eps: f32) -> Result<RmsNormed<Vec<f64>>> {
    let rows = ops::rms_norm_shape(x, weight, eps)?.rstd.len();
    let elements = x.to_f64()?;
    let weight = vector(weight, elements.len().checked_div(rows).unwrap_or(0), 1.0)?;
    let mut normed = RmsNormed { y: Vec::with_capacity(elements.len()), rstd: vec![] };
    for row in rows_of(&elements, rows) {
        let squares = row.iter().map(|x| x * x).sum::<f64>() / row.len().max(1) as f64;
        let rstd = 1.0 / (squares + f64::from(eps)).sqrt();
        normed.y.extend(row.iter().zip(&weight).map(|(x, w)| x * rstd * w));
        normed.rstd.push(rstd);
    }
    Ok(normed)
}
