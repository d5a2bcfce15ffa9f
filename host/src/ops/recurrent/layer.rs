//! One layer in one direction, forward.

use super::plan::{Choice, Plan};
use super::walk::{Number, Operands, step};
use super::{Kind, RecurrentWeights, backward, block, clustered, dense, fused_input, persistent, streamed};
use crate::error::{Error, Result};
use crate::ops::matmul::{self, Matmul};
use crate::ops::permute::reshaped;
use crate::ops::pointwise::with_float;
use crate::ops::{self, Linear};
use crate::tensor::Tensor;
use kernels_gpu::recurrent::has;

/// The operands. Tensors are of one stream.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    pub op: &'static str,
    pub kind: Kind,
    /// `[T, B, I]`, of any strides.
    pub x: &'a Tensor,
    pub weights: RecurrentWeights<'a>,
    /// `[B, H]`.
    pub h0: Option<&'a Tensor>,
    pub c0: Option<&'a Tensor>,
    pub lengths: Option<&'a Tensor>,
    pub reverse: bool,
    /// Operands of the products of all steps may be rounded to tf32.
    pub tf32: bool,
}

/// What a layer gives.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    /// `[T, B, H]`, with units that are neighbours in memory.
    pub y: &'a Tensor,
    /// `[B, H]`, contiguous.
    pub h_n: &'a Tensor,
    /// Likewise, of an LSTM.
    pub c_n: Option<&'a Tensor>,
    /// Where so asked.
    pub aside: Option<Aside<'a>>,
}

impl Results<'_> {
    /// gh, c, and the bit of them.
    pub fn kept(&self) -> (Option<&Tensor>, Option<&Tensor>, u32) {
        match self.aside {
            Some(Aside { gh, c }) => (Some(gh), c, has::KEPT),
            None => (None, None, 0),
        }
    }
}

/// Where what the gradient needs of each step goes, beside gx and y.
#[derive(Clone, Copy)]
pub struct Aside<'a> {
    /// What h and the bias give to each step's gates, `[T, B, G·H]`, contiguous.
    pub gh: &'a Tensor,
    /// The c that each step of an LSTM began with, `[T, B, H]`, contiguous.
    pub c: Option<&'a Tensor>,
}

/// What a layer may go without. See [`Layer::given`].
pub struct Given {
    pub bias: Option<Tensor>,
    pub h0: Option<Tensor>,
    pub c0: Option<Tensor>,
    /// Bits of [`has`].
    pub has: u32,
}

impl<'a> Layer<'a> {
    /// From a state of zeros, of whole rows, forward.
    #[cfg(test)]
    pub fn new(op: &'static str, kind: Kind, x: &'a Tensor, weights: RecurrentWeights<'a>) -> Layer<'a> {
        Layer { op, kind, x, weights, h0: None, c0: None, lengths: None, reverse: false, tf32: false }
    }

    /// Steps, rows of the batch, hidden units.
    pub fn extents(&self) -> [usize; 3] {
        [self.x.shape()[0], self.x.shape()[1], self.weights.w_hh.shape()[1]]
    }

    /// The time of a step.
    pub fn time(&self, step: usize) -> usize {
        if self.reverse { self.extents()[0] - 1 - step } else { step }
    }

    /// `[T·B, I]`.
    pub fn rows(&self) -> Result<Tensor> {
        let [steps, batch, _] = self.extents();
        let shape = [steps * batch, self.x.shape()[2]];
        reshaped(self.x, &shape)
    }

    /// x·w_ihᵀ + b_ih `[T, B, G·H]`: all steps' as one product.
    pub fn gx(&self) -> Result<Tensor> {
        let [steps, batch, hidden] = self.extents();
        let with_bias = Linear { bias: self.weights.b_ih, tf32: self.tf32, ..Linear::default() };
        ops::linear(&self.rows()?, self.weights.w_ih, &with_bias)?.reshape(&[
            steps,
            batch,
            self.kind.gates() * hidden,
        ])
    }

    /// A contiguous `[B, H]` of an initial state, zeros where there is none.
    pub fn state(&self, initial: Option<&Tensor>) -> Result<Tensor> {
        let [_, batch, hidden] = self.extents();
        match initial {
            Some(initial) => dense(initial),
            None => Tensor::zeros(self.x.device(), self.x.dtype(), &[batch, hidden]),
        }
    }

    /// Runs it; gives gx, where there is any.
    pub fn run(&self, plan: &Plan, results: Results) -> Result<Option<Tensor>> {
        let [steps, batch, hidden] = self.extents();
        if batch == 0 || hidden == 0 {
            return Ok(None);
        }
        if steps == 0 {
            self.finish(&self.state(self.h0)?, self.c0, results)?;
            return Ok(None);
        }
        if plan.choice == Choice::Fused {
            return fused_input::run(self, plan, results);
        }
        let gx = self.gx()?;
        self.walk(plan, &gx, results)?;
        Ok(Some(gx))
    }

    /// Runs the steps of gx `[T, B, G·H]`.
    pub(super) fn walk(&self, plan: &Plan, gx: &Tensor, results: Results) -> Result<()> {
        match plan.choice {
            Choice::Block => block::run(self, plan, gx, results),
            Choice::Clustered => clustered::run(self, plan, gx, results),
            Choice::Persistent => persistent::run(self, plan, gx, results),
            Choice::Streamed => match streamed::run(self, plan, gx, results) {
                // The parts of the weights take as much memory as these, and are made by one launch.
                Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => self.by_steps(gx, results),
                done => done,
            },
            Choice::Steps | Choice::Fused | Choice::StreamedWalk => self.by_steps(gx, results),
        }
    }

    /// w_hh with each gate's `[H, H]` turned over: what a unit's h does to a gate of each unit, instead of what each h does to a
    /// unit's gate.
    pub fn turned(&self) -> Result<Tensor> {
        let [_, _, hidden] = self.extents();
        let gates = self.kind.gates();
        let turned = dense(self.weights.w_hh)?.reshape(&[gates, hidden, hidden])?.transpose(1, 2)?;
        ops::contiguous(&turned)?.reshape(&[gates * hidden, hidden])
    }

    /// A contiguous bias of the recurrent product, h0 and c0, and the bits of those that are there.
    pub fn given(&self) -> Result<Given> {
        let contiguous = |tensor: Option<&Tensor>| tensor.map(dense).transpose();
        let (bias, h0, c0) = (contiguous(self.weights.b_hh)?, contiguous(self.h0)?, contiguous(self.c0)?);
        let bits = [
            (bias.is_some(), has::BIAS),
            (h0.is_some(), has::H),
            (c0.is_some(), has::C),
            (self.lengths.is_some(), has::LENGTHS),
        ];
        let has = bits.iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit);
        Ok(Given { bias, h0, c0, has })
    }

    /// The last state, from where it was computed.
    fn finish(&self, h: &Tensor, c: Option<&Tensor>, results: Results) -> Result<()> {
        results.h_n.copy_from(h)?;
        match results.c_n {
            Some(c_n) => c_n.copy_from(&self.state(c)?),
            None => Ok(()),
        }
    }

    /// A product and the gates for each step of gx.
    pub(super) fn by_steps(&self, gx: &Tensor, results: Results) -> Result<()> {
        with_float!(gx.dtype(), T => self.steps::<T>(gx, results))
    }

    fn steps<T: Number>(&self, gx: &Tensor, results: Results) -> Result<()> {
        let [steps, batch, hidden] = self.extents();
        let uninit = |shape: &[usize]| Tensor::uninit(gx.device(), gx.dtype(), shape);
        let one =
            if results.aside.is_none() { Some(uninit(&[batch, self.kind.gates() * hidden])?) } else { None };
        let is_lstm = self.kind == Kind::Lstm;
        let with_bias = Linear { bias: self.weights.b_hh, ..Linear::default() };
        let (mut h, mut next_h) = (self.state(self.h0)?, uninit(&[batch, hidden])?);
        let mut c = if is_lstm { Some(self.state(self.c0)?) } else { None };
        let mut next_c = if is_lstm { Some(uninit(&[batch, hidden])?) } else { None };
        for now in 0..steps {
            let time = self.time(now);
            let (gx, y) = (at(gx, time)?, at(results.y, time)?);
            let gh = match (&one, results.aside) {
                (None, Some(aside)) => at(aside.gh, time)?,
                (one, _) => one.clone().expect("one for all steps where none is kept"),
            };
            ops::linear_into(&h, self.weights.w_hh, &with_bias, &gh)?;
            let (y, lengths) = (Some(&y), self.lengths);
            let of = Operands { op: self.op, gx: &gx, gh: &gh, h: &h, c: c.as_ref(), lengths, y, time };
            step::<T>(self.kind, &of, &next_h, next_c.as_ref())?;
            // The initial state is the caller's: it is not written to.
            if now == 0 {
                (h, next_h) = (next_h, uninit(&[batch, hidden])?);
                (c, next_c) = (next_c, if is_lstm { Some(uninit(&[batch, hidden])?) } else { None });
            } else {
                std::mem::swap(&mut h, &mut next_h);
                std::mem::swap(&mut c, &mut next_c);
            }
        }
        if let Some(Aside { gh, c: Some(cells) }) = results.aside {
            backward::cells_into::<T>(self, gx, gh, cells)?;
        }
        self.finish(&h, c.as_ref(), results)
    }
}

/// A time's `[B, ..]`.
pub fn at(tensor: &Tensor, time: usize) -> Result<Tensor> {
    tensor.narrow(0, time, 1)?.squeeze(0)
}

/// a·b into f32.
pub fn product(a: &Tensor, b: &Tensor, transpose_a: bool, out: &Tensor) -> Result<()> {
    let parameters = Matmul { transpose_a, out: Some(out.dtype()), ..Matmul::default() };
    matmul::matmul_into(a, b, &parameters, out)
}
