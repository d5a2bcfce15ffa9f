//! The linear layer in float64.

use super::gelu;
use super::matmul::products;
use crate::error::Result;
use crate::ops::{self, Activation, Linear, LinearBackward, LinearGradients};
use crate::tensor::Tensor;

fn value(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu if x.is_nan() => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu(form) => gelu::value(x, form),
    }
}

/// Relu's is 0 at 0 and, as in PyTorch, 1 at NaN.
fn slope(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::None => 1.0,
        Activation::Relu if x <= 0.0 => 0.0,
        Activation::Relu => 1.0,
        Activation::Gelu(form) => gelu::slope(x, form),
    }
}

/// What the activation of [`ops::linear()`] gets: x·weightᵀ + bias, row-major.
pub fn linear_pre(x: &Tensor, weight: &Tensor, parameters: &Linear) -> Result<Vec<f64>> {
    ops::linear_shape(x, weight, parameters)?;
    let (n, k) = (weight.shape()[0], weight.shape()[1]);
    let rows = x.shape()[..x.rank() - 1].iter().product();
    let mut out = products([rows, n, k], 1, &x.to_f64()?, &weight.to_f64()?);
    if let Some(bias) = parameters.bias {
        let bias = bias.to_f64()?;
        out.iter_mut().enumerate().for_each(|(i, out)| *out += bias[i % n]);
    }
    Ok(out)
}

/// The result of [`ops::linear()`], row-major; by heads if so.
pub fn linear(x: &Tensor, weight: &Tensor, parameters: &Linear) -> Result<Vec<f64>> {
    let y = ops::linear_shape(x, weight, parameters)?;
    let pre = linear_pre(x, weight, parameters)?;
    let mut out: Vec<f64> = pre.into_iter().map(|x| value(x, parameters.activation)).collect();
    if let Some(residual) = parameters.residual {
        let residual = residual.expand(y.shape())?.to_f64()?;
        out.iter_mut().zip(residual).for_each(|(out, residual)| *out += residual);
    }
    Ok(if parameters.heads.is_some() { by_heads(&out, y.shape()) } else { out })
}

/// The numbers of [B, S, P, H, D] in the order of `[P, B, H, S, D]`, the shape.
fn by_heads(numbers: &[f64], shape: &[usize]) -> Vec<f64> {
    let &[parts, sequences, heads, length, width] = shape else { unreachable!("what `linear_shape` gives") };
    let mut out = Vec::with_capacity(numbers.len());
    for part in 0..parts {
        for sequence in 0..sequences {
            for head in 0..heads {
                for row in 0..length {
                    let line = ((sequence * length + row) * parts + part) * heads + head;
                    out.extend_from_slice(&numbers[line * width..][..width]);
                }
            }
        }
    }
    out
}

/// The results of [`ops::linear_backward()`], row-major.
pub fn linear_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    parameters: &LinearBackward,
) -> Result<LinearGradients<Vec<f64>>> {
    ops::linear_backward_shape(x, weight, dy, parameters)?;
    let (n, k) = (weight.shape()[0], weight.shape()[1]);
    let rows: usize = x.shape()[..x.rank() - 1].iter().product();
    let mut d = dy.to_f64()?;
    if let Some(pre) = parameters.pre {
        let slopes = pre.to_f64()?.into_iter().map(|x| slope(x, parameters.activation));
        d.iter_mut().zip(slopes).for_each(|(d, slope)| *d *= slope);
    }
    let turned = |of: &[f64], rows: usize, cols: usize| -> Vec<f64> {
        (0..rows * cols).map(|i| of[i % rows * cols + i / rows]).collect()
    };
    let mut dx = products([rows, k, n], 1, &d, &turned(&weight.to_f64()?, n, k));
    if let Some((input, activation)) = parameters.input {
        let slopes = input.to_f64()?.into_iter().map(|x| slope(x, activation));
        dx.iter_mut().zip(slopes).for_each(|(dx, slope)| *dx *= slope);
    }
    let dweight = products([n, k, rows], 1, &turned(&d, rows, n), &turned(&x.to_f64()?, rows, k));
    let dbias = parameters.bias.then(|| (0..n).map(|j| d.iter().skip(j).step_by(n).sum()).collect());
    Ok(LinearGradients { dx, dweight, dbias })
}
