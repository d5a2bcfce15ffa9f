//! Sums and dropout in float64. A cast has no reference: its result is the nearest number of the type.

use cuda_std::philox::Stream;

use crate::error::Result;
use crate::ops::{self, Dropout};
use crate::tensor::Tensor;

/// The result of [`ops::add`], row-major.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Vec<f64>> {
    ops::add_shape(a, b)?;
    Ok(a.to_f64()?.into_iter().zip(b.to_f64()?).map(|(a, b)| a + b).collect())
}

/// The result of [`ops::dropout`], and that of [`ops::dropout_backward`] for dy, row-major.
pub fn dropout(x: &Tensor, dropout: Dropout) -> Result<Vec<f64>> {
    ops::dropout_shape(x, dropout)?;
    Ok(dropped(x.to_f64()?, dropout))
}

/// What dropout makes of the elements of a tensor, row-major.
pub(super) fn dropped(x: Vec<f64>, dropout: Dropout) -> Vec<f64> {
    let stream = Stream { seed: dropout.seed, offset: dropout.offset };
    let p = f64::from(dropout.p);
    let dropped = (p * (1u64 << 32) as f64).round();
    let value = |(i, x): (usize, f64)| {
        let word = stream.word(i as u64);
        if f64::from(word) < dropped { 0.0 } else { x / (1.0 - p) }
    };
    x.into_iter().enumerate().map(value).collect()
}
