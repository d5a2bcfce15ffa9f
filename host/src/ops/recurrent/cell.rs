//! One step. See [`gru_cell`] and [`lstm_cell`].

use super::backward::{self, Upward};
use super::layer::Layer;
use super::plan::Plan;
use super::problem::{operand, weights};
use super::walk::{Carried, Operands, step, step_back};
use super::{Kind, LayerGradients, RecurrentWeights, dense, fused};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::masked_softmax::Described;
use crate::ops::matmul::within_limit;
use crate::ops::pointwise::{float, reach, with_float};
use crate::ops::{self, Linear};
use crate::tensor::{Desc, Tensor};

/// What an LSTM's step gives.
#[derive(Clone, Debug)]
pub struct LstmState<T = Tensor> {
    /// `[B, H]`.
    pub h: T,
    /// `[B, H]`.
    pub c: T,
}

/// What the gradient of a step for given gates' inputs gives.
#[derive(Clone, Debug)]
pub struct PointwiseGradients<T = Tensor> {
    /// Of gx, `[B, G·H]`.
    pub dgx: T,
    /// Of gh, `[B, G·H]`; of an LSTM the same tensor.
    pub dgh: T,
    /// Of a GRU's h, but for what comes through gh; of an LSTM's c.
    pub dstate: T,
}

/// What the gradient of a cell gives.
#[derive(Clone, Debug)]
pub struct CellGradients<T = Tensor> {
    /// `[B, I]`.
    pub dx: T,
    /// `[B, H]`.
    pub dh: T,
    /// `[B, H]`, of an LSTM.
    pub dc: Option<T>,
    /// Of the weights.
    pub weights: LayerGradients<T>,
}

/// h' of a GRU for x `[B, I]` and h `[B, H]`.
///
/// A batch of up to 128 goes through one launch, which reads both weights once, where rows are contiguous and start at multiples
/// of four bytes; otherwise it is two products and the gates, whose inputs are rounded to the tensors' type in between.
///
/// ```
/// use warpwright::{Device, Tensor, ops::{self, RecurrentWeights}};
///
/// let device = Device::cpu();
/// let (x, h) = (Tensor::from_slice(&device, &[1, 1], &[1.0f32])?, Tensor::from_slice(&device, &[1, 1], &[1.0f32])?);
/// let zeros = Tensor::from_slice(&device, &[3, 1], &[0.0f32; 3])?;
/// let weights = RecurrentWeights { w_ih: &zeros, w_hh: &zeros, b_ih: None, b_hh: None };
/// assert_eq!(ops::gru_cell(&x, &h, &weights)?.to_vec::<f32>()?, [0.5]);
/// # Ok::<(), warpwright::Error>(())
/// ```
///
/// # Errors
/// As [`gru`](super::gru()), without lengths.
pub fn gru_cell(x: &Tensor, h: &Tensor, of: &RecurrentWeights) -> Result<Tensor> {
    gru_cell_shape(x, h, of)?;
    whole("gru_cell", Kind::Gru, x, h, None, of).map(|(h, _)| h)
}

/// h' and c' of an LSTM for x `[B, I]`, h and c `[B, H]`. As [`gru_cell`] otherwise.
pub fn lstm_cell(x: &Tensor, h: &Tensor, c: &Tensor, of: &RecurrentWeights) -> Result<LstmState> {
    lstm_cell_shape(x, h, c, of)?;
    state(whole("lstm_cell", Kind::Lstm, x, h, Some(c), of)?)
}

/// Checks the arguments of [`gru_cell`] without computing; gives h'.
pub fn gru_cell_shape<D: Described>(x: &D, h: &D, of: &RecurrentWeights<D>) -> Result<Desc> {
    cell_shape("gru_cell", Kind::Gru, x.described(), h.described(), of)
}

/// Checks the arguments of [`lstm_cell`] without computing; gives h' and c'.
pub fn lstm_cell_shape<D: Described>(
    x: &D,
    h: &D,
    c: &D,
    of: &RecurrentWeights<D>,
) -> Result<LstmState<Desc>> {
    let next = cell_shape("lstm_cell", Kind::Lstm, x.described(), h.described(), of)?;
    operand("lstm_cell", "c", c.described(), x.described(), next.shape())?;
    Ok(LstmState { h: next.clone(), c: next })
}

/// h' of a GRU for the gates' inputs gx = x·w_ihᵀ + b_ih and gh = h·w_hhᵀ + b_hh `[B, 3·H]` and h `[B, H]`: for those who
/// bring their own products.
///
/// # Errors
/// As [`gru_cell`].
pub fn gru_cell_pointwise(gx: &Tensor, gh: &Tensor, h: &Tensor) -> Result<Tensor> {
    pointwise("gru_cell_pointwise", Kind::Gru, gx, gh, h).map(|(h, _)| h)
}

/// h' and c' of an LSTM for gx and gh `[B, 4·H]` and c `[B, H]`; as [`gru_cell_pointwise`].
pub fn lstm_cell_pointwise(gx: &Tensor, gh: &Tensor, c: &Tensor) -> Result<LstmState> {
    state(pointwise("lstm_cell_pointwise", Kind::Lstm, gx, gh, c)?)
}

/// The gradients of [`gru_cell_pointwise`] for that of h'. What comes to h through gh is dgh·w_hh, and not in
/// `dstate`.
pub fn gru_cell_pointwise_backward(
    gx: &Tensor,
    gh: &Tensor,
    h: &Tensor,
    dh: &Tensor,
) -> Result<PointwiseGradients> {
    pointwise_backward("gru_cell_pointwise_backward", Kind::Gru, (gx, gh, h), dh, None)
}

/// The gradients of [`lstm_cell_pointwise`] for those of h' and, where given, c'.
pub fn lstm_cell_pointwise_backward(
    gx: &Tensor,
    gh: &Tensor,
    c: &Tensor,
    dh: &Tensor,
    dc: Option<&Tensor>,
) -> Result<PointwiseGradients> {
    pointwise_backward("lstm_cell_pointwise_backward", Kind::Lstm, (gx, gh, c), dh, dc)
}

/// All gradients of [`gru_cell`], for that of h'. The gates' inputs are computed again.
pub fn gru_cell_backward(
    x: &Tensor,
    h: &Tensor,
    of: &RecurrentWeights,
    dh: &Tensor,
) -> Result<CellGradients> {
    cell_shape("gru_cell_backward", Kind::Gru, x.desc(), h.desc(), of)?;
    cell_backward("gru_cell_backward", Kind::Gru, x, (h, None), of, (dh, None))
}

/// All gradients of [`lstm_cell`], for those of h' and, where given, c'.
pub fn lstm_cell_backward(
    x: &Tensor,
    h: &Tensor,
    c: &Tensor,
    of: &RecurrentWeights,
    dh: &Tensor,
    dc: Option<&Tensor>,
) -> Result<CellGradients> {
    cell_shape("lstm_cell_backward", Kind::Lstm, x.desc(), h.desc(), of)?;
    operand("lstm_cell_backward", "c", c.desc(), x.desc(), h.shape())?;
    cell_backward("lstm_cell_backward", Kind::Lstm, x, (h, Some(c)), of, (dh, dc))
}

fn state((h, c): (Tensor, Option<Tensor>)) -> Result<LstmState> {
    let op = "lstm_cell";
    let c = c.ok_or(Error::State { op, reason: "an LSTM has a c" })?;
    Ok(LstmState { h, c })
}

fn cell_shape<D: Described>(
    op: &'static str,
    kind: Kind,
    x: &Desc,
    h: &Desc,
    of: &RecurrentWeights<D>,
) -> Result<Desc> {
    float(op, "x", x)?;
    let &[batch, input] = x.shape() else {
        let (required, got) = ("[B, I]".to_owned(), x.shape().to_vec());
        return Err(Error::Shape { op, arg: "x", required, got });
    };
    reach(op, "x", x)?;
    within_limit(op, "rows of `x`", batch)?;
    let hidden = weights(op, kind, of, x, input, None)?;
    operand(op, "h", h, x, &[batch, hidden])?;
    Desc::contiguous(op, x.device(), x.dtype(), &[batch, hidden])
}

/// h' and, of an LSTM, c': in one launch where the kernel takes the operands, otherwise by two products and the gates.
fn whole(
    op: &'static str,
    kind: Kind,
    x: &Tensor,
    h: &Tensor,
    c: Option<&Tensor>,
    of: &RecurrentWeights,
) -> Result<(Tensor, Option<Tensor>)> {
    let here = |tensor: &Tensor, arg| tensor.adopted(x.device(), op, arg);
    let maybe = |tensor: Option<&Tensor>, arg| tensor.map(|tensor| here(tensor, arg)).transpose();
    let (h, c) = (here(h, "h")?, maybe(c, "c")?);
    let (w_ih, w_hh) = (here(of.w_ih, "w_ih")?, here(of.w_hh, "w_hh")?);
    let (b_ih, b_hh) = (maybe(of.b_ih, "b_ih")?, maybe(of.b_hh, "b_hh")?);
    let (b_ih, b_hh) = (b_ih.as_ref(), b_hh.as_ref());
    let weights = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih, b_hh };
    let operands = fused::Operands { x, h: &h, c: c.as_ref(), weights };
    if fused::serves(&operands) {
        return fused::run(kind, &operands);
    }
    let linear = |x: &Tensor, weight: &Tensor, bias: Option<&Tensor>| {
        ops::linear(x, weight, &Linear { bias, ..Linear::default() })
    };
    let (gx, gh) = (linear(x, &w_ih, b_ih)?, linear(&h, &w_hh, b_hh)?);
    pointwise(op, kind, &gx, &gh, c.as_ref().unwrap_or(&h))
}

/// H of gx, gh and a state.
fn check_inputs(op: &'static str, kind: Kind, gx: &Desc, gh: &Desc, state: &Desc) -> Result<()> {
    let gates = kind.gates();
    float(op, "gx", gx)?;
    let (batch, columns) = match *gx.shape() {
        [batch, columns] if columns.is_multiple_of(gates) => (batch, columns),
        _ => {
            let (required, got) = (format!("[B, {gates}·H]"), gx.shape().to_vec());
            return Err(Error::Shape { op, arg: "gx", required, got });
        }
    };
    reach(op, "gx", gx)?;
    within_limit(op, "rows of the batch", batch)?;
    within_limit(op, "gates of a row", columns)?;
    operand(op, "gh", gh, gx, gx.shape())?;
    operand(op, state_of(kind), state, gx, &[batch, columns / gates])
}

/// The name of the state that gates change.
fn state_of(kind: Kind) -> &'static str {
    if kind == Kind::Gru { "h" } else { "c" }
}

/// h' and, of an LSTM, c'; `of` is a GRU's h or an LSTM's c.
fn pointwise(
    op: &'static str,
    kind: Kind,
    gx: &Tensor,
    gh: &Tensor,
    of: &Tensor,
) -> Result<(Tensor, Option<Tensor>)> {
    check_inputs(op, kind, gx.desc(), gh.desc(), of.desc())?;
    let device = gx.device();
    let is_lstm = kind == Kind::Lstm;
    let here = |tensor: &Tensor, arg| dense(&tensor.adopted(device, op, arg)?);
    let (gx, gh, of) = (dense(gx)?, here(gh, "gh")?, here(of, state_of(kind))?);
    let uninit = || Tensor::uninit(device, of.dtype(), of.shape());
    let (h, c) = (uninit()?, if is_lstm { Some(uninit()?) } else { None });
    // An LSTM's h' does not depend on h.
    let operands =
        Operands { op, gx: &gx, gh: &gh, h: &of, c: is_lstm.then_some(&of), lengths: None, y: None, time: 0 };
    with_float!(of.dtype(), T => step::<T>(kind, &operands, &h, c.as_ref())?);
    Ok((h, c))
}

fn pointwise_backward(
    op: &'static str,
    kind: Kind,
    (gx, gh, of): (&Tensor, &Tensor, &Tensor),
    dh: &Tensor,
    dc: Option<&Tensor>,
) -> Result<PointwiseGradients> {
    check_inputs(op, kind, gx.desc(), gh.desc(), of.desc())?;
    operand(op, "dh", dh.desc(), of.desc(), of.shape())?;
    if let Some(dc) = dc {
        operand(op, "dc", dc.desc(), of.desc(), of.shape())?;
    }
    let device = gx.device();
    let here = |tensor: &Tensor, arg| dense(&tensor.adopted(device, op, arg)?);
    let (gx, gh, of, dh) = (dense(gx)?, here(gh, "gh")?, here(of, state_of(kind))?, here(dh, "dh")?);
    let is_lstm = kind == Kind::Lstm;
    let carried = Tensor::uninit(device, DType::F32, of.shape())?;
    let of_c = match dc {
        Some(dc) => {
            let own = Tensor::uninit(device, DType::F32, of.shape())?;
            ops::cast_into(&here(dc, "dc")?, &own)?;
            Some(own)
        }
        None if is_lstm => Some(Tensor::uninit(device, DType::F32, of.shape())?),
        None => None,
    };
    let dgx = Tensor::uninit(device, of.dtype(), gx.shape())?;
    let dgh = if is_lstm { dgx.clone() } else { Tensor::uninit(device, of.dtype(), gx.shape())? };
    let operands = Operands {
        op,
        gx: &gx,
        gh: &gh,
        h: &of,
        c: is_lstm.then_some(&of),
        lengths: None,
        y: Some(&dh),
        time: 0,
    };
    let carry =
        Carried { dh: &carried, dc: of_c.as_ref(), product: None, begun: false, dc_begun: dc.is_some() };
    with_float!(of.dtype(), T => step_back::<T>(kind, &operands, carry, &dgx, (!is_lstm).then_some(&dgh))?);
    let dstate = ops::cast(of_c.as_ref().unwrap_or(&carried), of.dtype())?;
    Ok(PointwiseGradients { dgx, dgh, dstate })
}

/// A sequence of one step.
fn cell_backward(
    op: &'static str,
    kind: Kind,
    x: &Tensor,
    (h, c): (&Tensor, Option<&Tensor>),
    of: &RecurrentWeights,
    (dh, dc): (&Tensor, Option<&Tensor>),
) -> Result<CellGradients> {
    operand(op, "dh", dh.desc(), x.desc(), h.shape())?;
    if let Some(dc) = dc {
        operand(op, "dc", dc.desc(), x.desc(), h.shape())?;
    }
    let here = |tensor: &Tensor, arg| tensor.adopted(x.device(), op, arg);
    let maybe = |tensor: Option<&Tensor>, arg| tensor.map(|tensor| here(tensor, arg)).transpose();
    let (w_ih, w_hh) = (here(of.w_ih, "w_ih")?, here(of.w_hh, "w_hh")?);
    let (b_ih, b_hh) = (maybe(of.b_ih, "b_ih")?, maybe(of.b_hh, "b_hh")?);
    let (h0, c0) = (here(h, "h")?, maybe(c, "c")?);
    let once = x.unsqueeze(0)?;
    let layer = Layer {
        op,
        kind,
        x: &once,
        weights: RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, b_ih: b_ih.as_ref(), b_hh: b_hh.as_ref() },
        h0: Some(&h0),
        c0: c0.as_ref(),
        lengths: None,
        reverse: false,
        tf32: false,
    };
    // y of the only step is not looked at.
    let y = h0.unsqueeze(0)?;
    let upward = Upward { dy: None, dh: Some(here(dh, "dh")?), dc: maybe(dc, "dc")? };
    let back = backward::run(&layer, &Plan::steps("a cell is one step"), (&y, None), upward, None)?;
    let rounded = |state: &Tensor| ops::cast(state, x.dtype());
    let (dh, dc) = (rounded(&back.dh)?, back.dc.as_ref().map(rounded).transpose()?);
    Ok(CellGradients { dx: back.dx.squeeze(0)?, dh, dc, weights: back.weights })
}
