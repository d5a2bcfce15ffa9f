//! Masked softmax in float64.

use crate::error::Result;
use crate::ops::masked_softmax::{Causal, PackedKeys, masked_softmax_shape};
use crate::ops::{Mask, MaskedSoftmax};
use crate::tensor::Tensor;

/// The result of [`ops::masked_softmax`](crate::ops::masked_softmax()), row-major, and the same at every
/// kept column as NaN wherever a NaN or +∞ is kept.
///
/// Lengths and starts must be in range.
pub fn masked_softmax(x: &Tensor, parameters: &MaskedSoftmax) -> Result<Vec<f64>> {
    masked_softmax_shape(x, parameters)?;
    softmax_of(x.shape(), &x.to_f64()?, parameters)
}

/// That of scores of a shape; the arguments have been checked.
pub(super) fn softmax_of(shape: &[usize], scores: &[f64], parameters: &MaskedSoftmax) -> Result<Vec<f64>> {
    let (&cols, outer) = shape.split_last().unwrap_or((&0, &[]));
    let like_x = |tensor: &Tensor| tensor.expand(shape)?.to_f64();
    let like_rows = |tensor: Option<&Tensor>, default: usize| match tensor {
        Some(tensor) => tensor.expand(outer)?.to_f64(),
        None => Ok(vec![default as f64; outer.iter().product()]),
    };
    let (mut keep, mut bias): (Option<Vec<bool>>, Option<Vec<f64>>) = (None, None);
    let (mut packed_keys, mut begins) = (None, vec![]);
    let (mut lengths, mut starts) = (like_rows(None, cols)?, like_rows(None, 0)?);
    match parameters.mask {
        Mask::None => {}
        Mask::Keep(mask) => keep = Some(like_x(mask)?.into_iter().map(|byte| byte != 0.0).collect()),
        Mask::Drop(mask) => keep = Some(like_x(mask)?.into_iter().map(|byte| byte == 0.0).collect()),
        Mask::Bias(mask) => bias = Some(like_x(mask)?),
        Mask::Range { lengths: l, starts: s } => {
            lengths = like_rows(l, cols)?;
            starts = like_rows(s, 0)?;
        }
        Mask::Packed { cu_seqlens, keys } => (packed_keys, begins) = (Some(keys), cu_seqlens.to_f64()?),
    }
    let queries = outer.last().copied().unwrap_or(1);
    // The first column of the sequence of a row, its length, and the row's step in it.
    let of_sequence = |row: usize| {
        let token = (row % queries) as f64;
        let sequence = begins.windows(2).position(|ends| ends[0] <= token && token < ends[1]);
        let (begin, end) = sequence.map_or((0.0, 0.0), |sequence| (begins[sequence], begins[sequence + 1]));
        let first = if packed_keys == Some(PackedKeys::Packed) { begin } else { 0.0 };
        (first, end - begin, token - begin)
    };
    let mut y = vec![0.0; scores.len()];
    for (row, out) in y.chunks_exact_mut(cols.max(1)).enumerate() {
        let kept = |j: usize| {
            let in_mask = keep.as_ref().is_none_or(|keep| keep[row * cols + j]);
            let in_range = starts[row] <= j as f64 && (j as f64) < lengths[row];
            if packed_keys.is_some() {
                let (first, length, step) = of_sequence(row);
                let last = match parameters.causal {
                    None => length,
                    Some(Causal::BottomRight) => length.min(step + 1.0),
                    Some(Causal::Offset(offset)) => length.min(step + 1.0 + f64::from(offset)),
                };
                return first <= j as f64 && (j as f64) < first + last;
            }
            let in_past = parameters.causal.is_none_or(|causal| {
                let offset = match causal {
                    Causal::BottomRight => cols as i64 - queries as i64,
                    Causal::Offset(offset) => i64::from(offset),
                };
                j as i64 <= (row % queries) as i64 + offset
            });
            in_mask && in_range && in_past
        };
        let score = |j: usize| {
            let at = row * cols + j;
            f64::from(parameters.scale) * scores[at] + bias.as_ref().map_or(0.0, |bias| bias[at])
        };
        softmax_row(out, kept, score);
    }
    Ok(y)
}

/// One row: zeros where nothing finite is kept, NaN at kept columns where a NaN or +∞ is.
fn softmax_row(out: &mut [f64], kept: impl Fn(usize) -> bool, score: impl Fn(usize) -> f64) {
    let columns: Vec<usize> = (0..out.len()).filter(|&j| kept(j)).collect();
    let maximum = columns.iter().map(|&j| score(j)).fold(f64::NEG_INFINITY, |a, b| {
        if b.is_nan() {
            b
        } else if a.is_nan() {
            a
        } else {
            a.max(b)
        }
    });
    if maximum == f64::NEG_INFINITY {
        return;
    }
    let sum: f64 = columns.iter().map(|&j| (score(j) - maximum).exp()).sum();
    for j in columns {
        out[j] = (score(j) - maximum).exp() / sum;
    }
}
