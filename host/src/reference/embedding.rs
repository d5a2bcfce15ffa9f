//! Rows of tables in float64.

use crate::error::Result;
use crate::ops::{self, Positions};
use crate::tensor::Tensor;

/// The result of [`ops::embedding`], row-major, for tokens that have a row.
pub fn embedding(tokens: &Tensor, wte: &Tensor, positions: Option<Positions>) -> Result<Vec<f64>> {
    let y = ops::embedding_shape(tokens, wte, positions)?;
    let (cols, steps) = (wte.shape()[1], steps(tokens, positions)?);
    let wte = wte.to_f64()?;
    let wpe = positions.map(|positions| positions.wpe.to_f64()).transpose()?;
    let offset = positions.map_or(0, |positions| positions.offset);
    let mut values = Vec::with_capacity(y.len());
    for (i, token) in tokens.to_f64()?.into_iter().enumerate() {
        let (row, position) = (token as usize * cols, (offset + steps[i]) * cols);
        let of_position = |column| wpe.as_ref().map_or(0.0, |wpe| wpe[position + column]);
        values.extend((0..cols).map(|column| wte[row + column] + of_position(column)));
    }
    Ok(values)
}

/// The results of [`ops::embedding_backward`], dwte and dwpe, row-major, for tokens that have a row.
pub fn embedding_backward(
    tokens: &Tensor,
    dy: &Tensor,
    wte: &Tensor,
    positions: Option<Positions>,
) -> Result<(Vec<f64>, Option<Vec<f64>>)> {
    let (dwte, dwpe) = ops::embedding_backward_shape(tokens, dy, wte, positions)?;
    let (cols, steps) = (wte.shape()[1], steps(tokens, positions)?);
    let (mut dwte, mut dwpe) = (vec![0.0; dwte.len()], dwpe.map(|dwpe| vec![0.0; dwpe.len()]));
    let (tokens, dy) = (tokens.to_f64()?, dy.to_f64()?);
    let offset = positions.map_or(0, |positions| positions.offset);
    for (i, token) in tokens.into_iter().enumerate() {
        let (row, position) = (token as usize * cols, (offset + steps[i]) * cols);
        for (column, dy) in dy[i * cols..(i + 1) * cols].iter().enumerate() {
            dwte[row + column] += dy;
            if let Some(dwpe) = &mut dwpe {
                dwpe[position + column] += dy;
            }
        }
    }
    Ok((dwte, dwpe))
}

/// The step of each token in its sequence.
fn steps(tokens: &Tensor, positions: Option<Positions>) -> Result<Vec<usize>> {
    let Some(cu_seqlens) = positions.and_then(|positions| positions.cu_seqlens) else {
        let steps = tokens.shape().last().copied().unwrap_or(1).max(1);
        return Ok((0..tokens.len()).map(|i| i % steps).collect());
    };
    let boundaries = cu_seqlens.to_f64()?;
    Ok(boundaries.windows(2).flat_map(|pair| 0..(pair[1] - pair[0]) as usize).collect())
}
