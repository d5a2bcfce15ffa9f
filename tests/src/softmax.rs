//! What the masked-softmax tests share: masks that own their tensors, and the comparison with float64.

use warpwright::ops::masked_softmax::{Choice, masked_softmax_into_by};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{POISON, Random, assert_within, floats, poisoned};

/// Scores as attention has them: over -8..8.
pub fn scores(device: &Device, dtype: DType, shape: &[usize], random: &mut Random) -> Result<Tensor> {
    floats(device, dtype, shape, &random.floats(shape.iter().product(), -8.0, 8.0))
}

/// A contiguous copy of a view.
pub fn copy(view: &Tensor) -> Result<Tensor> {
    Tensor::from_bytes(view.device(), view.dtype(), view.shape(), &view.to_bytes()?)
}

/// A mask with its tensors.
#[derive(Debug)]
pub enum Masking {
    None,
    Keep(Tensor),
    Drop(Tensor),
    Bias(Tensor),
    Range { lengths: Option<Tensor>, starts: Option<Tensor> },
}

impl Masking {
    pub fn mask(&self) -> Mask<'_> {
        match self {
            Masking::None => Mask::None,
            Masking::Keep(mask) => Mask::Keep(mask),
            Masking::Drop(mask) => Mask::Drop(mask),
            Masking::Bias(mask) => Mask::Bias(mask),
            Masking::Range { lengths, starts } => {
                Mask::Range { lengths: lengths.as_ref(), starts: starts.as_ref() }
            }
        }
    }

    /// The same with another view of each tensor.
    pub fn map(&self, view: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Masking> {
        let optional = |tensor: &Option<Tensor>| tensor.as_ref().map(&view).transpose();
        Ok(match self {
            Masking::None => Masking::None,
            Masking::Keep(mask) => Masking::Keep(view(mask)?),
            Masking::Drop(mask) => Masking::Drop(view(mask)?),
            Masking::Bias(mask) => Masking::Bias(view(mask)?),
            Masking::Range { lengths, starts } => {
                Masking::Range { lengths: optional(lengths)?, starts: optional(starts)? }
            }
        })
    }
}

/// A kind of mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    None,
    Keep,
    KeepBool,
    Drop,
    DropBool,
    Bias,
    BiasF32,
    Lengths,
    Starts,
    Both,
}

impl Form {
    pub const ALL: [Form; 10] = [
        Form::None,
        Form::Keep,
        Form::KeepBool,
        Form::Drop,
        Form::DropBool,
        Form::Bias,
        Form::BiasF32,
        Form::Lengths,
        Form::Starts,
        Form::Both,
    ];
    /// Those whose rows stay in the type of x.
    pub const UNBIASED: [Form; 8] = [
        Form::None,
        Form::Keep,
        Form::KeepBool,
        Form::Drop,
        Form::DropBool,
        Form::Lengths,
        Form::Starts,
        Form::Both,
    ];

    /// A random mask for an x of type `dtype` with `cols` columns. Dense masks have `shape`; lengths and
    /// starts have it without its last dimension.
    pub fn random(
        self,
        device: &Device,
        dtype: DType,
        cols: usize,
        shape: &[usize],
        random: &mut Random,
    ) -> Result<Masking> {
        let count = shape.iter().product();
        // Three of four are not 0, and few of these are 1.
        let bytes: Vec<u8> =
            (0..count).map(|_| [0, 1, 2, 3, 0x80, 0xff, 0x10, 0][random.below(8) as usize]).collect();
        let mut bound = |nearest: usize| {
            let rows = &shape[..shape.len().saturating_sub(1)];
            let count: usize = rows.iter().product();
            // One in eight is the empty or the full range; the rest keeps more than half of the row.
            let values: Vec<i32> = (0..count)
                .map(|_| match random.below(16) {
                    0 => 0,
                    1 => cols as i32,
                    _ => nearest.abs_diff(random.below(cols as u64 / 2 + 1) as usize) as i32,
                })
                .collect();
            Tensor::from_slice(device, rows, &values)
        };
        Ok(match self {
            Form::None => Masking::None,
            Form::Keep => Masking::Keep(Tensor::from_slice(device, shape, &bytes)?),
            Form::KeepBool => Masking::Keep(Tensor::from_bytes(device, DType::Bool, shape, &bytes)?),
            Form::Drop => Masking::Drop(Tensor::from_slice(device, shape, &bytes)?),
            Form::DropBool => Masking::Drop(Tensor::from_bytes(device, DType::Bool, shape, &bytes)?),
            Form::Bias | Form::BiasF32 => {
                let dtype = if self == Form::Bias { dtype } else { DType::F32 };
                let mut bias = random.floats(count, -4.0, 4.0);
                // One in eight drops.
                bias.iter_mut().filter(|_| random.below(8) == 0).for_each(|bias| *bias = f32::NEG_INFINITY);
                Masking::Bias(floats(device, dtype, shape, &bias)?)
            }
            Form::Lengths => Masking::Range { lengths: Some(bound(cols)?), starts: None },
            Form::Starts => Masking::Range { lengths: None, starts: Some(bound(0)?) },
            Form::Both => Masking::Range { lengths: Some(bound(cols)?), starts: Some(bound(0)?) },
        })
    }
}

/// Computes into poisoned memory, compares every element with the reference, and gives the result.
#[track_caller]
pub fn check(x: &Tensor, parameters: &MaskedSoftmax, what: &str) -> Result<Tensor> {
    let want = reference::masked_softmax(x, parameters)?;
    check_against(&want, x, parameters, what)
}

/// As [`check`], with the expected values.
#[track_caller]
pub fn check_against(want: &[f64], x: &Tensor, parameters: &MaskedSoftmax, what: &str) -> Result<Tensor> {
    let y = poisoned(x.device(), x.dtype(), x.shape(), POISON)?;
    ops::masked_softmax_into(x, parameters, &y)?;
    compare(&y, want, x, parameters, what)?;
    Ok(y)
}

/// As [`check_against`], by one of the candidate kernels.
#[track_caller]
pub fn check_by(
    choice: Choice,
    want: &[f64],
    x: &Tensor,
    parameters: &MaskedSoftmax,
    what: &str,
) -> Result<()> {
    let y = poisoned(x.device(), x.dtype(), x.shape(), POISON)?;
    masked_softmax_into_by(choice, x, parameters, &y)?;
    compare(&y, want, x, parameters, &format!("{what} by {choice:?}"))
}

/// Compares every element of a result.
#[track_caller]
pub fn compare(y: &Tensor, want: &[f64], x: &Tensor, parameters: &MaskedSoftmax, what: &str) -> Result<()> {
    let tolerance = tolerances(want, x, parameters)?;
    let (device, dtype, shape) = (x.device(), x.dtype(), x.shape());
    let what = format!("{what}: {dtype}{shape:?} on {device}, scale {}", parameters.scale);
    assert_within(&y.to_f64()?, want, |i| tolerance[i], what);
    Ok(())
}

/// What each element may be off by. With u = 2^-24, the unit roundoff of f32, p = want and m the row's
/// largest p:
///
/// - the exponent of p is E = ln(m/p) below the maximum. Rounding the difference of the scores, the factor
///   that scales it and their product moves it by up to 3 u·E, and p with it; 4 are granted;
/// - with a bias the scores themselves are rounded. A score is at most |M| + E, with M the row's maximum, so
///   that this moves a difference by up to 2 u·|M| + u·E;
/// - the sum has the errors of its terms, weighted by them: 4 u·(mean of E over p) and once more the bias's;
/// - summing rounds once a term that a thread adds: at most 64 held in registers and cols / 1024 streamed;
///   the terms' tree is among the constant;
/// - each exp and reciprocal is 6 u off, each product 1: at most 48 u for an exponential, the sum's, and the
///   rescaling of partial sums by warps, blocks and clusters;
/// - the result is rounded to its type: f16 has 11 bits, bf16 8;
/// - exponentials below 2^-126 are 0.
///
/// What is exactly 0 in float64 (masked, or below exp(-745)) must be exactly 0.
pub fn tolerances(want: &[f64], x: &Tensor, parameters: &MaskedSoftmax) -> Result<Vec<f64>> {
    const U: f64 = 1.0 / (1 << 24) as f64;
    let cols = x.shape().last().copied().unwrap_or(1).max(1);
    let biased = match parameters.mask {
        Mask::Bias(bias) => Some((x.to_f64()?, bias.expand(x.shape())?.to_f64()?)),
        _ => None,
    };
    let additions = (cols.min(64) + cols / 1024) as f64;
    let mut tolerances = Vec::with_capacity(want.len());
    for (row, want) in want.chunks(cols).enumerate() {
        let top = want.iter().copied().fold(0.0, f64::max);
        let below = |p: f64| if p > 0.0 { (top / p).ln() } else { 0.0 };
        let mean: f64 = want.iter().filter(|p| !p.is_nan()).map(|&p| p * below(p)).sum();
        let largest = biased.as_ref().map_or(0.0, |(x, bias)| {
            let score = |j: usize| f64::from(parameters.scale) * x[row * cols + j] + bias[row * cols + j];
            want.iter().position(|&p| p == top && p > 0.0).map_or(0.0, |j| score(j).abs())
        });
        tolerances.extend(want.iter().map(|&p| {
            let relative = U * (48.0 + additions + 4.0 * (below(p) + mean + largest));
            let rounding = match x.dtype() {
                DType::F16 => (p / 2048.0).max(0.5f64.powi(25)),
                DType::BF16 => p / 256.0,
                _ => 0.0,
            };
            if p == 0.0 { 0.0 } else { p * relative + rounding + f64::from(f32::MIN_POSITIVE) }
        }));
    }
    Ok(tolerances)
}
