//! The probabilities of attention: softmax(scale·q·kᵀ + mask). See [`attention_scores`].

mod launch;
mod layout;
mod plan;

pub use plan::{By, Choice, Plan, WholeRows};

use super::masked_softmax::{self, Described, MaskedSoftmax};
use super::matmul::{self, Behind, Epilogue, Factors};
use super::pointwise::{check_output, float};
use crate::error::{Error, Result};
use crate::tensor::{Desc, Tensor};
use launch::Call;
use layout::{Layout, Starts};

const OP: &str = "attention_scores";

/// softmax(scale·q·kᵀ + mask) over the last axis for q `[.., S, D]` and k `[.., T, D]` of one type (f32, f16 or bf16):
/// `[.., S, T]`, contiguous. Dimensions in front broadcast, and so does the mask against the result; its forms are
/// those of [`masked_softmax`](super::masked_softmax()), and so is what becomes of rows without a kept key, NaN and infinities.
///
/// f16 and bf16 of up to 1024 keys are one kernel, which never writes the scores: they stay in f32
/// until the result is rounded. It takes rows of q and k that start at multiples of 16 bytes, as many keys as shared memory holds with their
/// numbers, and up to two dimensions in front that do not merge. On Hopper up to 384 keys and masks are any, but packed sequences and a bias that differs from query to query; else keys are
/// more than 64 and a multiple of 8, and rows of a mask start at multiples of 8. Anything else is
/// a product and a softmax behind it, with scores rounded to the operands' type in between: in f16 those beyond 65504 become infinite there,
/// and rows that have one NaN. [`explain`] tells which, and
/// [`candidates`] what else could serve.
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
    let request = Request::new(q, k, parameters)?;
    let y = Tensor::uninit(q.device(), request.product.y.dtype(), request.product.y.shape())?;
    run(&request, q, k, parameters, &y, None)?;
    Ok(y)
}

/// [`attention_scores`] into a contiguous tensor of the result's shape, type and device, which must not overlap the
/// operands or the mask.
pub fn attention_scores_into(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Result<()> {
    into(q, k, parameters, y, None)
}

/// [`attention_scores_into`] in a way of the caller's choice, one of [`candidates`]: for tests of each, and for tuning the
/// plan.
pub fn attention_scores_into_by(
    choice: Choice,
    q: &Tensor,
    k: &Tensor,
    parameters: &MaskedSoftmax,
    y: &Tensor,
) -> Result<()> {
    into(q, k, parameters, y, Some(choice))
}

fn into(
    q: &Tensor,
    k: &Tensor,
    parameters: &MaskedSoftmax,
    y: &Tensor,
    choice: Option<Choice>,
) -> Result<()> {
    let request = Request::new(q, k, parameters)?;
    let mask = [parameters.mask.first(), parameters.mask.second()];
    let inputs: Vec<&Tensor> = [Some(q), Some(k)].into_iter().chain(mask).flatten().collect();
    check_output(OP, "y", y, &request.product.y, &inputs)?;
    run(&request, q, k, parameters, &y.adopted(q.device(), OP, "y")?, choice)?;
    y.device().wait_for(q.device(), OP)
}

/// Checks the arguments of [`attention_scores`] without computing; gives y.
pub fn attention_scores_shape<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Desc> {
    Ok(Request::new(q, k, parameters)?.product.y)
}

/// How [`attention_scores`] would go about it, for operands that start at multiples of 16 bytes.
pub fn explain<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Plan> {
    let mut plans = candidates(q, k, parameters)?;
    Ok(plans.swap_remove(0))
}

/// Every way that [`attention_scores`] could go about it, the one that it takes first, for operands that start at multiples of 16
/// bytes.
pub fn candidates<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Vec<Plan>> {
    let request = Request::new(q, k, parameters)?;
    let layout = Layout::new(&request, parameters)?;
    Plan::candidates(&request, layout.as_ref(), Starts::of_allocations())
}

/// The factors that the product and the softmax get of the scale. One of 0 would keep the product from reading its
/// operands, whose NaN must show: that one the softmax applies.
fn factors(scale: f32) -> (f32, f32) {
    if scale == 0.0 { (1.0, scale) } else { (scale, 1.0) }
}

/// A checked request: of the product and of the softmax.
struct Request {
    product: matmul::Problem,
    softmax: masked_softmax::Problem,
}

impl Request {
    fn new<D: Described>(q: &D, k: &D, parameters: &MaskedSoftmax<D>) -> Result<Request> {
        let (q, k) = (q.described(), k.described());
        float(OP, "q", q)?;
        let shape = |arg, required: String, desc: &Desc| {
            Err(Error::Shape { op: OP, arg, required, got: desc.shape().to_vec() })
        };
        match (q.shape(), k.shape()) {
            ([] | [_], _) => return shape("q", "[.., S, D]".to_owned(), q),
            (_, [] | [_]) => return shape("k", "[.., T, D]".to_owned(), k),
            ([.., d], [.., of_k]) if d != of_k => return shape("k", format!("[.., T, {d}]"), k),
            _ => {}
        }
        let of = Factors::new(OP, ("q", q, false), ("k", k, false))?;
        let epilogue = Epilogue { alpha: factors(parameters.scale).0, ..Epilogue::default() };
        let product = matmul::Problem::new(OP, of, epilogue, of.dtype, q.device())?;
        let softmax = masked_softmax::Problem::new(OP, &product.y, parameters)?;
        Ok(Request { product, softmax })
    }
}

fn run(
    request: &Request,
    q: &Tensor,
    k: &Tensor,
    parameters: &MaskedSoftmax,
    y: &Tensor,
    choice: Option<Choice>,
) -> Result<()> {
    let layout = Layout::new(request, parameters)?;
    let starts = Starts::of(q, k, parameters, y);
    let chosen = match choice {
        None => Plan::chosen(request, layout.as_ref(), starts),
        Some(Choice::Steps) => None,
        Some(choice @ Choice::WholeRows { .. }) => {
            let plans = Plan::candidates(request, layout.as_ref(), starts)?;
            let found = plans.into_iter().find_map(|plan| match plan {
                Plan::WholeRows(plan) if plan.choice() == choice => Some(plan),
                _ => None,
            });
            Some(found.ok_or_else(|| Error::Parameter {
                op: OP,
                arg: "choice",
                required: "one of the candidates for these operands".to_owned(),
                got: format!("{choice:?}"),
            })?)
        }
    };
    match (chosen, &layout) {
        (Some(plan), Some(layout)) => Call { request, layout, plan, q, k, parameters }.run(y),
        _ => {
            let scores = Tensor::uninit(q.device(), y.dtype(), y.shape())?;
            matmul::run(&request.product, q, k, &Behind::default(), &scores)?;
            let softmax = MaskedSoftmax { scale: factors(parameters.scale).1, ..*parameters };
            masked_softmax::part_of(OP, &scores, &softmax, y)
        }
    }
}
