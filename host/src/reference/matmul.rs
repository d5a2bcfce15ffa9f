//! Products of matrices in float64.

use crate::error::Result;
use crate::ops::{self, Matmul};
use crate::tensor::Tensor;

/// The result of [`ops::matmul()`], row-major.
pub fn matmul(a: &Tensor, b: &Tensor, parameters: &Matmul) -> Result<Vec<f64>> {
    let y = ops::matmul_shape(a, b, parameters)?;
    let (front, rest) = y.shape().split_at(y.rank() - 2);
    let (m, n) = (rest[0], rest[1]);
    let whole = |tensor: &Tensor, transposed: bool| -> Result<(usize, Vec<f64>)> {
        let tensor = if transposed { tensor.transpose(-1, -2)? } else { tensor.clone() };
        let (rows, cols) = (tensor.shape()[tensor.rank() - 2], tensor.shape()[tensor.rank() - 1]);
        let shape: Vec<usize> = front.iter().copied().chain([rows, cols]).collect();
        Ok((cols, tensor.expand(&shape)?.to_f64()?))
    };
    // Rows of b along n, so that both are read along k.
    let (k, a) = whole(a, parameters.transpose_a)?;
    let (_, b) = whole(b, !parameters.transpose_b)?;
    let mut out = products([m, n, k], front.iter().product(), &a, &b);
    let alpha = f64::from(parameters.alpha);
    out.iter_mut().for_each(|sum| *sum = if alpha == 0.0 { 0.0 } else { alpha * *sum });
    if let Some(c) = parameters.c.filter(|_| parameters.beta != 0.0) {
        let c = c.expand(y.shape())?.to_f64()?;
        out.iter_mut().zip(c).for_each(|(out, c)| *out += f64::from(parameters.beta) * c);
    }
    Ok(out)
}

/// The products of `count` pairs of matrices with rows along k, `[m, k]` and `[n, k]`.
pub(super) fn products([m, n, k]: [usize; 3], count: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let row = |of: &[f64], row: usize| of[row * k..(row + 1) * k].to_vec();
    let mut out = Vec::with_capacity(count * m * n);
    for product in 0..count {
        for i in 0..m {
            let left = row(a, product * m + i);
            for j in 0..n {
                let at = (product * n + j) * k;
                out.push(left.iter().zip(&b[at..at + k]).map(|(a, b)| a * b).sum());
            }
        }
    }
    out
}
