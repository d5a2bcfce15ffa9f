//! Products of matrices in float64.

use crate::error::Result;
use crate::ops::{self, Matmul};
use crate::tensor::Tensor;
use rayon::prelude::*;

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
    let mut out = vec![0.0; count * m * n];
    if n == 0 {
        return out;
    }
    out.par_chunks_mut(n).enumerate().for_each(|(row, out)| {
        let (left, first) = (&a[row * k..][..k], row / m * n);
        for (j, out) in out.iter_mut().enumerate() {
            let right = &b[(first + j) * k..][..k];
            *out = left.iter().zip(right).map(|(a, b)| a * b).sum();
        }
    });
    out
}
