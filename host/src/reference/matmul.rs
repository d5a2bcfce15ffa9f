//! Products of matrices in float64.

use crate::error::Result;
use crate::ops::{self, Matmul, MatmulGradients};
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

/// The results of [`ops::matmul_backward()`], row-major.
pub fn matmul_backward(
    a: &Tensor,
    b: &Tensor,
    dy: &Tensor,
    parameters: &Matmul,
) -> Result<MatmulGradients<Vec<f64>>> {
    ops::matmul_backward_shape(a, b, dy, parameters)?;
    let (front, rest) = dy.shape().split_at(dy.rank() - 2);
    let (m, n) = (rest[0], rest[1]);
    let k = a.shape()[a.rank() - if parameters.transpose_a { 2 } else { 1 }];
    // Each operand as if it were the whole product's, with the place of each number in the operand.
    let places = |of: &Tensor, rows: usize, cols: usize, swapped: bool| -> Vec<usize> {
        let shape = of.shape();
        let own = &shape[..shape.len() - 2];
        let mut places = Vec::new();
        for matrix in 0..front.iter().product() {
            let (mut rest, mut at, mut step) = (matrix, 0, rows * cols);
            for (back, &extent) in front.iter().rev().enumerate() {
                let own = own.len().checked_sub(back + 1).map_or(1, |dim| own[dim]);
                at += if own == 1 { 0 } else { rest % extent * step };
                (rest, step) = (rest / extent, step * own);
            }
            for i in 0..rows * cols {
                let (row, col) = (i / cols, i % cols);
                places.push(at + if swapped { col * rows + row } else { i });
            }
        }
        places
    };
    let of_a = places(a, m, k, parameters.transpose_a);
    let of_b = places(b, k, n, parameters.transpose_b);
    let (a_values, b_values, dy) = (a.to_f64()?, b.to_f64()?, dy.to_f64()?);
    let (mut da, mut db) = (vec![0.0; a.len()], vec![0.0; b.len()]);
    let alpha = f64::from(parameters.alpha);
    for (i, &slope) in dy.iter().enumerate() {
        let (matrix, row, col) = (i / (m * n), i / n % m, i % n);
        for term in 0..k {
            let at_a = of_a[(matrix * m + row) * k + term];
            let at_b = of_b[(matrix * k + term) * n + col];
            da[at_a] += alpha * slope * b_values[at_b];
            db[at_b] += alpha * slope * a_values[at_a];
        }
    }
    Ok(MatmulGradients { da, db })
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
