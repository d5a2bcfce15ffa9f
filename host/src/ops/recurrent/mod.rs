//! Recurrent layers: GRU and LSTM. See [`gru`], [`lstm`], [`gru_cell`] and [`lstm_cell`].
//!
//! PyTorch's formulas and order of gates. With gx = x·w_ihᵀ + b_ih and gh = h·w_hhᵀ + b_hh:
//!
//! - GRU, gates r, z, n: r, z = σ(gx + gh), n = tanh(gx_n + r·gh_n), h' = (1 − z)·n + z·h
//! - LSTM, gates i, f, g, o: i, f, o = σ(gx + gh), g = tanh(gx + gh), c' = f·c + i·g, h' = o·tanh(c')
//!
//! Dtypes f32, f16 and bf16, one for all tensors; arithmetic is f32.

mod backward;
mod block;
mod cell;
mod cell_clusters;
mod clustered;
mod forms;
mod fused;
mod fused_input;
mod layer;
mod names;
mod persistent;
mod plan;
mod problem;
mod sequence;
mod streamed;
mod streamed_walk;
mod tiling;
mod walk;

pub use cell::{
    CellGradients, LstmState, PointwiseGradients, gru_cell, gru_cell_backward, gru_cell_pointwise,
    gru_cell_pointwise_backward, gru_cell_shape, lstm_cell, lstm_cell_backward, lstm_cell_pointwise,
    lstm_cell_pointwise_backward, lstm_cell_shape,
};
pub use names::{inner_name, weight_name};
pub use plan::{Choice, Plan};
pub use sequence::{
    Kept, Recurred, RecurrentGradients, Upstream, gru, gru_backward, gru_explain, gru_shape, lstm,
    lstm_backward, lstm_explain, lstm_shape,
};

use super::masked_softmax::Described;
use super::permute::{dense, reshaped};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Desc, Tensor};

/// Which recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gated recurrent unit.
    Gru,
    /// Long short-term memory.
    Lstm,
}

impl Kind {
    /// How many gates it has.
    pub const fn gates(self) -> usize {
        match self {
            Kind::Gru => kernels_gpu::recurrent::GRU,
            Kind::Lstm => kernels_gpu::recurrent::LSTM,
        }
    }
}

/// The weights of a cell, or of a layer in one direction, with G gates.
#[derive(Debug)]
pub struct RecurrentWeights<'a, D = Tensor> {
    /// `[G·H, I]`.
    pub w_ih: &'a D,
    /// `[G·H, H]`.
    pub w_hh: &'a D,
    /// `[G·H]`, added to the product of the input.
    pub b_ih: Option<&'a D>,
    /// `[G·H]`, added to the product of the hidden state.
    pub b_hh: Option<&'a D>,
}

// By hand, since a derive would want `D: Copy`, and a tensor is not.
impl<D> Clone for RecurrentWeights<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for RecurrentWeights<'_, D> {}

impl<D: Described> RecurrentWeights<'_, D> {
    /// Of the tensors' descriptions.
    fn described(&self) -> RecurrentWeights<'_, Desc> {
        RecurrentWeights {
            w_ih: self.w_ih.described(),
            w_hh: self.w_hh.described(),
            b_ih: self.b_ih.map(D::described),
            b_hh: self.b_hh.map(D::described),
        }
    }
}

/// The gradients of [`RecurrentWeights`].
#[derive(Clone, Debug)]
pub struct LayerGradients<T = Tensor> {
    /// `[G·H, I]`.
    pub dw_ih: T,
    /// `[G·H, H]`.
    pub dw_hh: T,
    /// `[G·H]`, where there is a bias.
    pub db_ih: Option<T>,
    /// `[G·H]`, where there is a bias.
    pub db_hh: Option<T>,
}

/// The parameters of [`gru`] and [`lstm`].
#[derive(Debug)]
pub struct Recurrent<'a, D = Tensor> {
    /// The weights: for each layer one, or with `bidirectional` two, forward first.
    pub layers: &'a [RecurrentWeights<'a, D>],
    /// Whether each layer also walks from the last time to the first, with weights of its own.
    pub bidirectional: bool,
    /// Whether x and y are `[B, T, ..]`: a view, no copy.
    pub batch_first: bool,
    /// The initial h, zeros where absent: `[B, H]`, or `[L·D, B, H]` of several layers or directions.
    pub h0: Option<&'a D>,
    /// The initial c of an LSTM, likewise.
    pub c0: Option<&'a D>,
    /// The steps of each row of the batch, `[B]` of i32 in 0..=T; T of each where absent. x and dy behind them give nothing, whatever they are.
    pub lengths: Option<&'a D>,
    /// Operands in f32 of the products of all steps may be rounded to tf32, as by [`Matmul::tf32`](super::Matmul::tf32), for the sake of
    /// speed; what is multiplied at each step is not. For f32 alone.
    pub tf32: bool,
    /// Whether a forward pass keeps what its gates were given for the gradient, [`Recurred::kept`], which computes it again otherwise: two of
    /// its five large products.
    pub keep: bool,
    /// How to go about it: for tests and measurements. A way that cannot serve is an error.
    pub choice: Option<Choice>,
}

impl<D> Clone for Recurrent<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Recurrent<'_, D> {}

impl<'a, D> Recurrent<'a, D> {
    /// One layer, or several, in one direction, from a state of zeros.
    pub fn new(layers: &'a [RecurrentWeights<'a, D>]) -> Self {
        Recurrent {
            layers,
            bidirectional: false,
            batch_first: false,
            h0: None,
            c0: None,
            lengths: None,
            tf32: false,
            keep: false,
            choice: None,
        }
    }

    /// 2 or 1.
    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }
}

/// An f32 copy of a state, which nobody else has.
fn carried(state: &Tensor) -> Result<Tensor> {
    let copy = Tensor::uninit(state.device(), DType::F32, state.shape())?;
    super::cast_into(state, &copy)?;
    Ok(copy)
}

/// Steps of rows that are rows of one matrix: themselves, or a contiguous copy.
fn steps_of_rows(x: &Tensor) -> Result<Tensor> {
    reshaped(x, &[x.shape()[0] * x.shape()[1], x.shape()[2]])?.reshape(x.shape())
}
