//! The operations of recurrent layers on tensors that are made for them.

use warpwright::ops::{
    self, CellGradients, LayerGradients, PointwiseGradients, Recurred, Recurrent, RecurrentGradients,
    RecurrentKind as Kind, RecurrentWeights, Upstream,
};
use warpwright::{DType, Result, Tensor, reference};

/// Steps, rows of the batch, columns of x, hidden units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
}

pub const fn extents(steps: usize, batch: usize, input: usize, hidden: usize) -> Extents {
    Extents { steps, batch, input, hidden }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    GruCell,
    LstmCell,
    GruPointwise,
    LstmPointwise,
    GruCellBackward,
    LstmCellBackward,
    GruPointwiseBackward,
    LstmPointwiseBackward,
    Gru,
    Lstm,
    GruBackward,
    LstmBackward,
}

/// What part of a layer an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Cell,
    Pointwise,
    Sequence,
}

use Function as F;

impl Function {
    pub fn kind(self) -> Kind {
        match self {
            F::GruCell
            | F::GruPointwise
            | F::GruCellBackward
            | F::GruPointwiseBackward
            | F::Gru
            | F::GruBackward => Kind::Gru,
            _ => Kind::Lstm,
        }
    }

    fn part(self) -> Part {
        match self {
            F::GruCell | F::LstmCell | F::GruCellBackward | F::LstmCellBackward => Part::Cell,
            F::Gru | F::Lstm | F::GruBackward | F::LstmBackward => Part::Sequence,
            _ => Part::Pointwise,
        }
    }

    pub fn is_sequence(self) -> bool {
        self.part() == Part::Sequence
    }

    /// What a gradient is the gradient of; anything else itself.
    pub fn forward(self) -> Function {
        match self {
            F::GruCellBackward => F::GruCell,
            F::LstmCellBackward => F::LstmCell,
            F::GruPointwiseBackward => F::GruPointwise,
            F::LstmPointwiseBackward => F::LstmPointwise,
            F::GruBackward => F::Gru,
            F::LstmBackward => F::Lstm,
            _ => self,
        }
    }

    pub fn is_backward(self) -> bool {
        matches!(
            self,
            F::GruCellBackward
                | F::LstmCellBackward
                | F::GruPointwiseBackward
                | F::LstmPointwiseBackward
                | F::GruBackward
                | F::LstmBackward
        )
    }

    /// What a line calls its shape.
    pub fn shape(self, e: Extents) -> Vec<usize> {
        match self.part() {
            Part::Pointwise => vec![e.batch, e.hidden],
            Part::Cell => vec![e.batch, e.input, e.hidden],
            Part::Sequence => vec![e.steps, e.batch, e.input, e.hidden],
        }
    }

    /// The least bytes that a call reads and writes: of a sequence weights, x and y; twice as many backward.
    pub fn bytes(self, e: Extents, dtype: DType) -> usize {
        let (rows, states) = (self.kind().gates() * e.hidden, if self.kind() == Kind::Gru { 2 } else { 3 });
        let weights = rows * (e.input + e.hidden + 2);
        let elements = match self.part() {
            Part::Pointwise => e.batch * (2 * rows + states * e.hidden),
            Part::Cell => weights + e.batch * (e.input + states * e.hidden),
            Part::Sequence => {
                weights + e.steps * e.batch * (e.input + e.hidden) + states * e.batch * e.hidden
            }
        };
        elements * dtype.size() * if self.is_backward() { 2 } else { 1 }
    }

    /// Arithmetic operations of the products.
    pub fn flops(self, e: Extents) -> usize {
        let once = 2 * e.steps * e.batch * self.kind().gates() * e.hidden * (e.input + e.hidden);
        match self.part() {
            Part::Pointwise => 30 * e.batch * e.hidden,
            // The inputs of the gates again, and the gradients of both factors.
            _ if self.is_backward() => 3 * once,
            _ => once,
        }
    }

    /// How the operation goes about it.
    pub fn plan(self, of: &Operands) -> Result<String> {
        let weights = [of.weights()];
        Ok(match self {
            F::Gru => ops::gru_explain(&of.x, &Recurrent::new(&weights))?.to_string(),
            F::Lstm => ops::lstm_explain(&of.x, &Recurrent::new(&weights))?.to_string(),
            _ => String::new(),
        })
    }

    /// Runs it; gives all results in a fixed order.
    pub fn run(self, of: &Operands) -> Result<Vec<Tensor>> {
        let Operands { x, gx, gh, h, c, dh, y, .. } = of;
        let weights = of.weights();
        let layers = [weights];
        let network = Recurrent { tf32: of.tf32, ..Recurrent::new(&layers) };
        // The gradients need y of the results alone.
        let of_y =
            || Recurred { y: y.clone(), h_n: h.clone(), c_n: None, inner: Vec::new(), kept: Vec::new() };
        let keeping = Recurrent { keep: true, ..network };
        let results = |forward: fn(&Tensor, &Recurrent) -> Result<Recurred>| match of.with_forward {
            true => forward(x, &keeping),
            false => Ok(of_y()),
        };
        let upstream = Upstream { dy: Some(&of.dy), ..Upstream::default() };
        Ok(match self {
            F::GruCell => vec![ops::gru_cell(x, h, &weights)?],
            F::LstmCell => {
                let next = ops::lstm_cell(x, h, c, &weights)?;
                vec![next.h, next.c]
            }
            F::GruPointwise => vec![ops::gru_cell_pointwise(gx, gh, h)?],
            F::LstmPointwise => {
                let next = ops::lstm_cell_pointwise(gx, gh, c)?;
                vec![next.h, next.c]
            }
            F::GruCellBackward => of_cell(ops::gru_cell_backward(x, h, &weights, dh)?),
            F::LstmCellBackward => of_cell(ops::lstm_cell_backward(x, h, c, &weights, dh, Some(dh))?),
            F::GruPointwiseBackward => of_gates(ops::gru_cell_pointwise_backward(gx, gh, h, dh)?),
            F::LstmPointwiseBackward => of_gates(ops::lstm_cell_pointwise_backward(gx, gh, c, dh, Some(dh))?),
            F::Gru => vec![ops::gru(x, &network)?.y],
            F::Lstm => vec![ops::lstm(x, &network)?.y],
            F::GruBackward => of_sequence(ops::gru_backward(x, &network, &results(ops::gru)?, &upstream)?),
            F::LstmBackward => of_sequence(ops::lstm_backward(x, &network, &results(ops::lstm)?, &upstream)?),
        })
    }

    /// The same in float64.
    pub fn reference(self, of: &Operands) -> Result<Vec<Vec<f64>>> {
        let Operands { x, gx, gh, h, c, dh, .. } = of;
        let kind = self.kind();
        let is_lstm = kind == Kind::Lstm;
        let weights = of.weights();
        let layers = [weights];
        let network = Recurrent::new(&layers);
        let upstream = Upstream { dy: Some(&of.dy), ..Upstream::default() };
        let (state, cell, dc) = (if is_lstm { c } else { h }, is_lstm.then_some(c), is_lstm.then_some(dh));
        let ends = |(h, c): (Vec<f64>, Vec<f64>)| if is_lstm { vec![h, c] } else { vec![h] };
        Ok(match (self.part(), self.is_backward()) {
            (Part::Cell, false) => ends(reference::cell(kind, x, (h, cell), &weights)?),
            (Part::Cell, true) => of_cell(reference::cell_backward(kind, x, (h, cell), &weights, (dh, dc))?),
            (Part::Pointwise, false) => ends(reference::cell_pointwise(kind, gx, gh, state)?),
            (Part::Pointwise, true) => {
                of_gates(reference::cell_pointwise_backward(kind, gx, gh, state, (dh, dc))?)
            }
            (Part::Sequence, false) => vec![reference::recurrent(kind, x, &network)?.y],
            (Part::Sequence, true) => {
                of_sequence(reference::recurrent_backward(kind, x, &network, &upstream)?)
            }
        })
    }
}

fn of_layer<T>(of: LayerGradients<T>) -> impl Iterator<Item = T> {
    [Some(of.dw_ih), Some(of.dw_hh), of.db_ih, of.db_hh].into_iter().flatten()
}

fn of_cell<T>(of: CellGradients<T>) -> Vec<T> {
    [Some(of.dx), Some(of.dh), of.dc].into_iter().flatten().chain(of_layer(of.weights)).collect()
}

fn of_gates<T>(of: PointwiseGradients<T>) -> Vec<T> {
    vec![of.dgx, of.dgh, of.dstate]
}

fn of_sequence<T>(of: RecurrentGradients<T>) -> Vec<T> {
    [Some(of.dx), Some(of.dh0), of.dc0]
        .into_iter()
        .flatten()
        .chain(of.layers.into_iter().flat_map(of_layer))
        .collect()
}

/// The tensors that an operation takes, and those that others do, small.
pub struct Operands {
    x: Tensor,
    h: Tensor,
    c: Tensor,
    gx: Tensor,
    gh: Tensor,
    dh: Tensor,
    dy: Tensor,
    /// What the forward pass gave.
    y: Tensor,
    weights: [Tensor; 4],
    /// Operands of the products of all steps may be rounded to tf32.
    tf32: bool,
    /// The gradient of a sequence comes behind the forward pass, which keeps what it needs.
    with_forward: bool,
}

impl Operands {
    /// Tensors from `make`, which is told the shape and whether it is that of a weight.
    pub fn new(
        function: Function,
        e: Extents,
        mut make: impl FnMut(&[usize], bool) -> Result<Tensor>,
    ) -> Result<Operands> {
        let rows = function.kind().gates() * e.hidden;
        let (is_pointwise, is_sequence) = (function.part() == Part::Pointwise, function.is_sequence());
        // What is not looked at has no elements.
        let mut of = |is_needed: bool, shape: &[usize], of_weight: bool| {
            let none = vec![0; shape.len()];
            make(if is_needed { shape } else { &none }, of_weight)
        };
        let (state, gates) = ([e.batch, e.hidden], [e.batch, rows]);
        let of_x: &[usize] = if is_sequence { &[e.steps, e.batch, e.input] } else { &[e.batch, e.input] };
        let is_back = is_sequence && function.is_backward();
        let of_y = [e.steps, e.batch, e.hidden];
        let mut operands = Operands {
            x: of(!is_pointwise, of_x, false)?,
            h: of(true, &state, false)?,
            c: of(true, &state, false)?,
            gx: of(is_pointwise, &gates, false)?,
            gh: of(is_pointwise, &gates, false)?,
            dh: of(function.is_backward(), &state, false)?,
            dy: of(is_back, &of_y, false)?,
            y: of(false, &of_y, false)?,
            weights: [
                of(!is_pointwise, &[rows, e.input], true)?,
                of(!is_pointwise, &[rows, e.hidden], true)?,
                of(!is_pointwise, &[rows], true)?,
                of(!is_pointwise, &[rows], true)?,
            ],
            tf32: false,
            with_forward: false,
        };
        if is_back {
            let forward = if function.kind() == Kind::Gru { F::Gru } else { F::Lstm };
            operands.y = forward.run(&operands)?.remove(0);
        }
        Ok(operands)
    }

    /// With operands that may be rounded to tf32, or may not.
    pub fn rounded(self, tf32: bool) -> Operands {
        Operands { tf32, ..self }
    }

    /// With the forward pass, where the operation is a sequence's gradient.
    pub fn behind_forward(self) -> Operands {
        Operands { with_forward: true, ..self }
    }

    fn weights(&self) -> RecurrentWeights<'_> {
        let [w_ih, w_hh, b_ih, b_hh] = &self.weights;
        RecurrentWeights { w_ih, w_hh, b_ih: Some(b_ih), b_hh: Some(b_hh) }
    }
}
