//! The probabilities of attention: softmax(scale·q·kᵀ + mask). See [`attention_scores`].

use super::masked_softmax::{self, Alignment, Described, MaskedSoftmax, Target};
use super::matmul::{self, Behind, Epilogue, Factors};
use super::pointwise::{check_output, float};
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

const OP: &str = "attention_scores";

/// How [`attention_scores`] goes about its two parts.
#[derive(Clone, Debug)]
pub struct AttentionPlan {
    /// The product with the scale.
    pub product: matmul::Plan,
    /// The softmax with the mask.
    pub softmax: masked_softmax::Plan,
}

/// softmax(scale·q·kᵀ + mask) over the last axis for q `[.., S, D]` and k `[.., T, D]` of one type (f32, f16 or bf16):
/// `[.., S, T]`, contiguous. Dimensions in front broadcast, and so does the mask against the result; its forms are
/// those of [`masked_softmax`](super::masked_softmax()).
///
/// The scaled scores are rounded to the operands' type between the product and the softmax, which is where the mask is
/// applied; otherwise all is computed in f32. Two launches, or as many as the product takes and one more.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, MaskedSoftmax, masked_softmax::Causal}};
///
/// let device = Device::cpu();
/// let q = Tensor::from_slice(&device, &[2, 2], &[1.0f32, 0.0, 0.0, 1.0])?;
/// let k = Tensor::from_slice(&device, &[2, 2], &[3.0f32, 5.0, 3.0, 5.0])?;
/// let parameters = MaskedSoftmax { causal: Some(Causal::BottomRight), ..Default::default() };
/// let y = ops::attention_scores(&q, &k, &parameters)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 0.0, 0.5, 0.5]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`matmul`](super::matmul()) for q and k, and as [`masked_softmax`](super::masked_softmax()) for the mask and the scale.
pub fn attention_scores(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax) -> Result<Tensor> {
    let shape = attention_scores_shape(q, k, parameters)?;
    let y = Tensor::uninit(q.device(), shape.dtype(), shape.shape())?;
    run(q, k, parameters, &y)?;
    Ok(y)
}

/// [`attention_scores`] into a contiguous tensor of the result's shape, type and device, which must not overlap the
/// operands.
pub fn attention_scores_into(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Result<()> {
    let shape = attention_scores_shape(q, k, parameters)?;
    check_output(OP, "y", y, &shape, &[q, k])?;
    run(q, k, parameters, &y.adopted(q.device(), OP, "y")?)?;
    if y.device().same_stream(q.device()) { Ok(()) } else { y.device().wait_for(q.device(), OP) }
}

/// Checks the arguments of [`attention_scores`] without computing; gives y.
pub fn attention_scores_shape<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Desc> {
    Ok(Parts::new(q, k, parameters)?.product.y)
}

/// How [`attention_scores`] would go about it, for operands that start at multiples of 16 bytes.
pub fn attention_scores_explain<D: Described>(
    q: &D,
    k: &D,
    parameters: &MaskedSoftmax<D>,
) -> Result<AttentionPlan> {
    let Parts { product, softmax } = Parts::new(q, k, parameters)?;
    let target = Target::of(q.described().device());
    let plans = masked_softmax::Plan::candidates(&softmax, Alignment::of_allocations(), target);
    Ok(AttentionPlan { product: product.plan(), softmax: plans[0] })
}

/// The factors that the product and the softmax get of the scale. One of 0 would keep the product from reading its
/// operands, whose NaN must show: that one the softmax applies.
fn factors(scale: f32) -> (f32, f32) {
    if scale == 0.0 { (1.0, scale) } else { (scale, 1.0) }
}

/// Checked requests for both.
struct Parts {
    product: matmul::Problem,
    softmax: masked_softmax::Problem,
}

impl Parts {
    fn new<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Parts> {
        let (q, k) = (q.described(), k.described());
        float(OP, "q", q)?;
        let of = Factors::new(OP, ("q", q, false), ("k", k, false))?;
        let epilogue = Epilogue { alpha: factors(parameters.scale).0, ..Epilogue::default() };
        let product = matmul::Problem::new(OP, of, epilogue, of.dtype, q.device())?;
        let softmax = masked_softmax::Problem::new(OP, &product.y, parameters)?;
        Ok(Parts { product, softmax })
    }
}

fn run(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Result<()> {
    let Parts { product, .. } = Parts::new(q, k, parameters)?;
    let scores = Tensor::uninit(q.device(), y.dtype(), y.shape())?;
    matmul::run(&product, q, k, &Behind::default(), &scores)?;
    let softmax = MaskedSoftmax { scale: factors(parameters.scale).1, ..*parameters };
    masked_softmax::masked_softmax_into(&scores, &softmax, y)
}
