//! The gradients of layer norm and RMS norm in float64, from the mean and rstd that are given.

use super::elementwise::dropped;
use crate::error::Result;
use crate::ops::{self, AddLayerNormBackward, AddLayerNormGradients, LayerNormGradients, RmsNormGradients};
use crate::tensor::Tensor;

/// dx, dweight and dbias.
type Gradients = [Vec<f64>; 3];

/// The results of [`ops::layer_norm_backward`], row-major.
pub fn layer_norm_backward(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
) -> Result<LayerNormGradients<Vec<f64>>> {
    ops::layer_norm_backward_shape(x, dy, weight, mean, rstd)?;
    let [dx, dweight, dbias] = gradients(x, dy, weight, Some(mean), rstd)?;
    Ok(LayerNormGradients { dx, dweight, dbias })
}

/// The results of [`ops::add_layer_norm_backward`], row-major.
pub fn add_layer_norm_backward(
    sum: &Tensor,
    dy: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    parameters: &AddLayerNormBackward,
) -> Result<AddLayerNormGradients<Vec<f64>>> {
    let shape = ops::add_layer_norm_backward_shape(sum, dy, mean, rstd, parameters)?;
    let [mut of_sum, dweight, dbias] = gradients(sum, dy, parameters.weight, Some(mean), rstd)?;
    if let Some(dsum) = parameters.dsum {
        of_sum.iter_mut().zip(dsum.to_f64()?).for_each(|(dx, dsum)| *dx += dsum);
    }
    let (dx, dresidual) = match parameters.dropout {
        Some(dropout) if shape.dresidual.is_some() => (dropped(of_sum.clone(), dropout), Some(of_sum)),
        _ => (of_sum, None),
    };
    let dinput_bias = parameters.input_bias.then(|| {
        let cols = dweight.len();
        (0..cols).map(|j| dx.iter().skip(j).step_by(cols).sum()).collect()
    });
    Ok(AddLayerNormGradients { dx, dresidual, dinput_bias, dweight, dbias })
}

/// The results of [`ops::rms_norm_backward`], row-major.
pub fn rms_norm_backward(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    rstd: &Tensor,
) -> Result<RmsNormGradients<Vec<f64>>> {
    ops::rms_norm_backward_shape(x, dy, weight, rstd)?;
    let [dx, dweight, _] = gradients(x, dy, weight, None, rstd)?;
    Ok(RmsNormGradients { dx, dweight })
}

/// Of a norm with a mean, or without.
fn gradients(
    x: &Tensor,
    dy: &Tensor,
    weight: Option<&Tensor>,
    mean: Option<&Tensor>,
    rstd: &Tensor,
) -> Result<Gradients> {
    let cols = x.shape()[x.rank() - 1];
    let weight = weight.map_or_else(|| Ok(vec![1.0; cols]), Tensor::to_f64)?;
    let (xs, dys, rstds) = (x.to_f64()?, dy.to_f64()?, rstd.to_f64()?);
    let means = mean.map(Tensor::to_f64).transpose()?;
    let (mut dx, mut dweight, mut dbias) = (Vec::with_capacity(xs.len()), vec![0.0; cols], vec![0.0; cols]);
    let n = cols as f64;
    for (row, (x, dy)) in xs.chunks(cols.max(1)).zip(dys.chunks(cols.max(1))).enumerate() {
        let (mean, rstd) = (means.as_ref().map_or(0.0, |means| means[row]), rstds[row]);
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
        let g: Vec<f64> = dy.iter().zip(&weight).map(|(dy, weight)| dy * weight).collect();
        let of_g = if means.is_some() { g.iter().sum::<f64>() / n } else { 0.0 };
        let of_product = g.iter().zip(&normal).map(|(g, normal)| g * normal).sum::<f64>() / n;
        dx.extend(g.iter().zip(&normal).map(|(g, normal)| rstd * (g - of_g - normal * of_product)));
        for j in 0..cols {
            dweight[j] += dy[j] * normal[j];
            dbias[j] += dy[j];
        }
    }
    Ok([dx, dweight, dbias])
}
