//! GELU in float64.

use super::normal::erfc;
use crate::error::Result;
use crate::ops::{self, Approximate};
use crate::tensor::Tensor;

/// gelu(x); −0 at −∞, the limit.
pub(super) fn value(x: f64, approximate: Approximate) -> f64 {
    match approximate {
        _ if x == f64::NEG_INFINITY => -0.0,
        Approximate::None => x * 0.5 * erfc(-x / std::f64::consts::SQRT_2),
        Approximate::Tanh => x * logistic(x),
    }
}

/// gelu′(x); 1 and 0 at the infinities.
pub(super) fn slope(x: f64, approximate: Approximate) -> f64 {
    if x.is_infinite() {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    match approximate {
        Approximate::None => {
            let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
            0.5 * erfc(-x / std::f64::consts::SQRT_2) + x * density
        }
        Approximate::Tanh => {
            // σ·(1 − σ) is even, and 0 where the derivative of 2u passes all bounds.
            let product = if x.abs() > 1e3 { 0.0 } else { logistic(x) * logistic(-x) };
            logistic(x) + x * product * 2.0 * ROOT * (1.0 + 3.0 * CUBIC * x * x)
        }
    }
}

/// √(2/π).
const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044715;

/// (1 + tanh(u))/2 with u = √(2/π)·(x + 0.044715·x³), as 1/(1 + exp(−2u)): the same, without a difference in the tail.
fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-2.0 * ROOT * (x + CUBIC * x * x * x)).exp())
}

/// The result of [`ops::gelu`], row-major.
pub fn gelu(x: &Tensor, approximate: Approximate) -> Result<Vec<f64>> {
    ops::gelu_shape(x)?;
    Ok(x.to_f64()?.into_iter().map(|x| value(x, approximate)).collect())
}

/// The result of [`ops::gelu_backward`], row-major.
pub fn gelu_backward(x: &Tensor, dy: &Tensor, approximate: Approximate) -> Result<Vec<f64>> {
    ops::gelu_backward_shape(x, dy)?;
    Ok(x.to_f64()?.into_iter().zip(dy.to_f64()?).map(|(x, dy)| dy * slope(x, approximate)).collect())
}

/// The result of [`ops::bias_gelu`], row-major.
pub fn bias_gelu(x: &Tensor, bias: &Tensor, approximate: Approximate) -> Result<Vec<f64>> {
    ops::bias_gelu_shape(x, bias)?;
    let bias = bias.expand(x.shape())?.to_f64()?;
    Ok(x.to_f64()?.into_iter().zip(bias).map(|(x, bias)| value(x + bias, approximate)).collect())
}

/// The results of [`ops::bias_gelu_backward`]: dx, row-major, and dbias.
pub fn bias_gelu_backward(
    x: &Tensor,
    bias: &Tensor,
    dy: &Tensor,
    approximate: Approximate,
) -> Result<(Vec<f64>, Vec<f64>)> {
    ops::bias_gelu_backward_shape(x, bias, dy)?;
    let biases = bias.expand(x.shape())?.to_f64()?;
    let operands = x.to_f64()?.into_iter().zip(biases).zip(dy.to_f64()?);
    let dx: Vec<f64> = operands.map(|((x, bias), dy)| dy * slope(x + bias, approximate)).collect();
    let mut dbias = vec![0.0; bias.len()];
    for row in dx.chunks(bias.len().max(1)) {
        dbias.iter_mut().zip(row).for_each(|(sum, dx)| *sum += dx);
    }
    Ok((dx, dbias))
}
