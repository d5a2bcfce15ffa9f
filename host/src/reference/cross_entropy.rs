//! Cross entropy in float64.

use crate::error::Result;
use crate::ops::{self, CrossEntropy, Reduction};
use crate::tensor::Tensor;

/// The results of [`ops::cross_entropy_backward`], row-major: loss and dx. A target that is no class counts as ignored.
pub fn cross_entropy_backward(
    x: &Tensor,
    target: &Tensor,
    dloss: Option<&Tensor>,
    parameters: &CrossEntropy,
) -> Result<(Vec<f64>, Vec<f64>)> {
    ops::cross_entropy_backward_shape(x, target, dloss, parameters)?;
    let cols = x.shape()[x.rank() - 1].max(1);
    let (xs, targets) = (x.to_f64()?, target.to_f64()?);
    let class = |target: f64| {
        let is_class = target != parameters.ignore_index as f64 && target >= 0.0 && target < cols as f64;
        is_class.then_some(target as usize)
    };
    let count = targets.iter().filter(|&&target| class(target).is_some()).count();
    let share = if parameters.reduction == Reduction::Mean { 1.0 / count as f64 } else { 1.0 };
    let dloss = dloss.map(Tensor::to_f64).transpose()?;
    let upstream = |row: usize| match &dloss {
        Some(dloss) if parameters.reduction == Reduction::None => dloss[row],
        Some(dloss) => dloss[0],
        None => 1.0,
    };
    let (mut losses, mut dx) = (Vec::with_capacity(targets.len()), Vec::with_capacity(xs.len()));
    for (row, (x, &target)) in xs.chunks(cols).zip(&targets).enumerate() {
        let Some(class) = class(target) else {
            losses.push(0.0);
            dx.extend(x.iter().map(|_| 0.0));
            continue;
        };
        // Not f64::max, which passes over NaN.
        let most = x.iter().fold(f64::NEG_INFINITY, |most, &x| if x > most || x.is_nan() { x } else { most });
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        losses.push(sum.ln() + most - x[class]);
        let gradient = |(j, x): (usize, &f64)| {
            let one_hot = if j == class { 1.0 } else { 0.0 };
            upstream(row) * share * ((x - most).exp() / sum - one_hot)
        };
        dx.extend(x.iter().enumerate().map(gradient));
    }
    let loss = match parameters.reduction {
        Reduction::None => losses,
        // A mean over nothing is NaN: 0 times infinity.
        Reduction::Mean | Reduction::Sum => vec![losses.iter().sum::<f64>() * share],
    };
    Ok((loss, dx))
}
