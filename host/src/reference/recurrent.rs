//! Recurrent layers in float64: the formulas, step by step, and their gradients by the chain rule.

use crate::error::Result;
use crate::ops::{
    self, CellGradients, LayerGradients, PointwiseGradients, Recurred, Recurrent, RecurrentGradients,
    RecurrentKind as Kind, RecurrentWeights, Upstream,
};
use crate::tensor::Tensor;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// (h', c') of a unit, from its gates' inputs.
fn unit(kind: Kind, gx: &[f64], gh: &[f64], h: f64, c: f64) -> (f64, f64) {
    match kind {
        Kind::Gru => {
            let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let n = (gx[2] + r * gh[2]).tanh();
            ((1.0 - z) * n + z * h, c)
        }
        Kind::Lstm => {
            let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let (g, o) = ((gx[2] + gh[2]).tanh(), sigmoid(gx[3] + gh[3]));
            let next = f * c + i * g;
            (o * next.tanh(), next)
        }
    }
}

/// The gradients of gx, gh, h (but for what comes through gh) and c, for those of h' and c'.
fn unit_backward(
    kind: Kind,
    gx: &[f64],
    gh: &[f64],
    (h, c): (f64, f64),
    (dh, dc): (f64, f64),
) -> (Vec<f64>, Vec<f64>, f64, f64) {
    match kind {
        Kind::Gru => {
            let (r, z) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let n = (gx[2] + r * gh[2]).tanh();
            let dn = dh * (1.0 - z) * (1.0 - n * n);
            let (dr, dz) = (dn * gh[2] * r * (1.0 - r), dh * (h - n) * z * (1.0 - z));
            (vec![dr, dz, dn], vec![dr, dz, dn * r], dh * z, 0.0)
        }
        Kind::Lstm => {
            let (i, f) = (sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1]));
            let (g, o) = ((gx[2] + gh[2]).tanh(), sigmoid(gx[3] + gh[3]));
            let t = (f * c + i * g).tanh();
            let of_c = dc + dh * o * (1.0 - t * t);
            let of = vec![
                of_c * g * i * (1.0 - i),
                of_c * c * f * (1.0 - f),
                of_c * i * (1.0 - g * g),
                dh * t * o * (1.0 - o),
            ];
            (of.clone(), of, 0.0, of_c * f)
        }
    }
}

/// Gate by gate, the numbers of one unit of a row.
fn of_unit(row: &[f64], hidden: usize, unit: usize) -> Vec<f64> {
    row.iter().skip(unit).step_by(hidden).copied().collect()
}

/// The parameters of a layer in one direction.
#[derive(Clone, Debug)]
struct Parameters {
    w_ih: Vec<f64>,
    w_hh: Vec<f64>,
    b_ih: Vec<f64>,
    b_hh: Vec<f64>,
}

impl Parameters {
    fn new(weights: &RecurrentWeights) -> Result<Parameters> {
        let bias = |bias: Option<&Tensor>| match bias {
            Some(bias) => bias.to_f64(),
            None => Ok(vec![0.0; weights.w_hh.shape()[0]]),
        };
        Ok(Parameters {
            w_ih: weights.w_ih.to_f64()?,
            w_hh: weights.w_hh.to_f64()?,
            b_ih: bias(weights.b_ih)?,
            b_hh: bias(weights.b_hh)?,
        })
    }
}

/// A layer in one direction.
#[derive(Clone, Debug)]
struct Pass {
    kind: Kind,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    reverse: bool,
    lengths: Option<Vec<f64>>,
    parameters: Parameters,
    /// `[steps, batch, input]`.
    x: Vec<f64>,
    /// `[batch, hidden]`.
    h0: Vec<f64>,
    c0: Vec<f64>,
}

/// What a step began with.
struct Moment {
    time: usize,
    h: Vec<f64>,
    c: Vec<f64>,
    gx: Vec<f64>,
    gh: Vec<f64>,
}

struct Forward {
    /// `[steps, batch, hidden]`.
    y: Vec<f64>,
    h: Vec<f64>,
    c: Vec<f64>,
    moments: Vec<Moment>,
}

struct Backward {
    dx: Vec<f64>,
    dh0: Vec<f64>,
    dc0: Vec<f64>,
    parameters: Parameters,
}

impl Pass {
    fn rows(&self) -> usize {
        self.kind.gates() * self.hidden
    }

    fn runs(&self, time: usize, row: usize) -> bool {
        self.lengths.as_ref().is_none_or(|lengths| (time as f64) < lengths[row])
    }

    fn forward(&self) -> Forward {
        let (batch, hidden, rows) = (self.batch, self.hidden, self.rows());
        let mut y = vec![0.0; self.steps * batch * hidden];
        let (mut h, mut c) = (self.h0.clone(), self.c0.clone());
        let mut moments = Vec::new();
        for step in 0..self.steps {
            let time = if self.reverse { self.steps - 1 - step } else { step };
            let x = &self.x[time * batch * self.input..][..batch * self.input];
            let gx = affine(x, &self.parameters.w_ih, &self.parameters.b_ih, batch);
            let gh = affine(&h, &self.parameters.w_hh, &self.parameters.b_hh, batch);
            let moment = Moment { time, h: h.clone(), c: c.clone(), gx, gh };
            for row in (0..batch).filter(|&row| self.runs(time, row)) {
                for j in 0..hidden {
                    let at = row * hidden + j;
                    let of = |g: &[f64]| of_unit(&g[row * rows..][..rows], hidden, j);
                    let next = unit(self.kind, &of(&moment.gx), &of(&moment.gh), h[at], c[at]);
                    (h[at], c[at]) = next;
                    y[time * batch * hidden + at] = h[at];
                }
            }
            moments.push(moment);
        }
        Forward { y, h, c, moments }
    }

    fn backward(&self, forward: &Forward, dy: &[f64], dh_n: &[f64], dc_n: &[f64]) -> Backward {
        let (batch, hidden, input, rows) = (self.batch, self.hidden, self.input, self.rows());
        let of = &self.parameters;
        let zeros = |of: &[f64]| vec![0.0; of.len()];
        let mut d = Parameters {
            w_ih: zeros(&of.w_ih),
            w_hh: zeros(&of.w_hh),
            b_ih: zeros(&of.b_ih),
            b_hh: zeros(&of.b_hh),
        };
        let mut dx = zeros(&self.x);
        let (mut dh, mut dc) = (dh_n.to_vec(), dc_n.to_vec());
        for moment in forward.moments.iter().rev() {
            let x = &self.x[moment.time * batch * input..][..batch * input];
            for row in (0..batch).filter(|&row| self.runs(moment.time, row)) {
                let (mut dgx, mut dgh) = (vec![0.0; rows], vec![0.0; rows]);
                for j in 0..hidden {
                    let at = row * hidden + j;
                    let of = |g: &[f64]| of_unit(&g[row * rows..][..rows], hidden, j);
                    let upstream = (dh[at] + dy[moment.time * batch * hidden + at], dc[at]);
                    let before = (moment.h[at], moment.c[at]);
                    let (to_x, to_h, own_h, own_c) =
                        unit_backward(self.kind, &of(&moment.gx), &of(&moment.gh), before, upstream);
                    (dh[at], dc[at]) = (own_h, own_c);
                    for gate in 0..to_x.len() {
                        dgx[gate * hidden + j] = to_x[gate];
                        dgh[gate * hidden + j] = to_h[gate];
                    }
                }
                for k in 0..rows {
                    d.b_ih[k] += dgx[k];
                    d.b_hh[k] += dgh[k];
                    for i in 0..input {
                        d.w_ih[k * input + i] += dgx[k] * x[row * input + i];
                        dx[(moment.time * batch + row) * input + i] += dgx[k] * of.w_ih[k * input + i];
                    }
                    for j in 0..hidden {
                        d.w_hh[k * hidden + j] += dgh[k] * moment.h[row * hidden + j];
                        dh[row * hidden + j] += dgh[k] * of.w_hh[k * hidden + j];
                    }
                }
            }
        }
        Backward { dx, dh0: dh, dc0: dc, parameters: d }
    }
}

/// rows·weightᵀ + bias.
fn affine(x: &[f64], weight: &[f64], bias: &[f64], batch: usize) -> Vec<f64> {
    let (n, k) = (bias.len(), x.len() / batch.max(1));
    let sum = |row: usize, j: usize| {
        let terms = x[row * k..][..k].iter().zip(&weight[j * k..][..k]);
        bias[j] + terms.map(|(a, b)| a * b).sum::<f64>()
    };
    (0..batch * n).map(|i| sum(i / n, i % n)).collect()
}

/// The results of [`ops::gru`] or [`ops::lstm`], row-major, with y of every layer in `inner`, `[T, B, D·H]`.
pub fn recurrent(kind: Kind, x: &Tensor, parameters: &Recurrent) -> Result<Recurred<Vec<f64>>> {
    let network = Network::new(kind, x, parameters)?;
    let layers = network.forward();
    let ends = |of: fn(&Forward) -> &Vec<f64>| {
        layers.iter().flat_map(|layer| layer.passes.iter().flat_map(|(_, done)| of(done).clone())).collect()
    };
    let y = layers.last().map_or_else(Vec::new, |layer| network.as_given(&layer.y));
    Ok(Recurred {
        y,
        h_n: ends(|done| &done.h),
        c_n: (kind == Kind::Lstm).then(|| ends(|done| &done.c)),
        inner: layers[..layers.len() - 1].iter().map(|layer| layer.y.clone()).collect(),
        kept: Vec::new(),
    })
}

/// The results of [`ops::gru_backward`] or [`ops::lstm_backward`], row-major.
pub fn recurrent_backward(
    kind: Kind,
    x: &Tensor,
    parameters: &Recurrent,
    upstream: &Upstream,
) -> Result<RecurrentGradients<Vec<f64>>> {
    let network = Network::new(kind, x, parameters)?;
    let layers = network.forward();
    let [steps, batch, _] = network.extents;
    let (hidden, directions) = (network.hidden, network.directions);
    let size = batch * hidden;
    let ends = |of: Option<&Tensor>| match of {
        Some(of) => of.to_f64(),
        None => Ok(vec![0.0; layers.len() * directions * size]),
    };
    let (dh_n, dc_n) = (ends(upstream.dh_n)?, ends(upstream.dc_n)?);
    let mut dy = match upstream.dy {
        Some(dy) => network.time_major(dy)?,
        None => vec![0.0; steps * batch * directions * hidden],
    };
    let (mut dh0, mut dc0) = (vec![0.0; dh_n.len()], vec![0.0; dc_n.len()]);
    let mut gradients = Vec::new();
    for (index, layer) in layers.iter().enumerate().rev() {
        let mut dx = Vec::new();
        for (direction, (pass, done)) in layer.passes.iter().enumerate().rev() {
            let own: Vec<f64> = dy
                .chunks(directions * hidden)
                .flat_map(|row| row[direction * hidden..][..hidden].to_vec())
                .collect();
            let at = (index * directions + direction) * size..(index * directions + direction + 1) * size;
            let back = pass.backward(done, &own, &dh_n[at.clone()], &dc_n[at.clone()]);
            dh0[at.clone()].copy_from_slice(&back.dh0);
            dc0[at].copy_from_slice(&back.dc0);
            dx.resize(back.dx.len(), 0.0);
            dx.iter_mut().zip(&back.dx).for_each(|(sum, dx)| *sum += dx);
            let weights = &parameters.layers[index * directions + direction];
            gradients.push(LayerGradients {
                dw_ih: back.parameters.w_ih,
                dw_hh: back.parameters.w_hh,
                db_ih: weights.b_ih.map(|_| back.parameters.b_ih),
                db_hh: weights.b_hh.map(|_| back.parameters.b_hh),
            });
        }
        dy = dx;
    }
    gradients.reverse();
    Ok(RecurrentGradients {
        dx: network.as_given(&dy),
        dh0,
        dc0: (kind == Kind::Lstm).then_some(dc0),
        layers: gradients,
    })
}

/// All layers of a request.
struct Network {
    kind: Kind,
    /// Steps, rows of the batch, columns of x.
    extents: [usize; 3],
    hidden: usize,
    directions: usize,
    batch_first: bool,
    x: Vec<f64>,
    lengths: Option<Vec<f64>>,
    layers: Vec<Vec<Parameters>>,
    h0: Vec<f64>,
    c0: Vec<f64>,
}

struct Layer {
    passes: Vec<(Pass, Forward)>,
    /// `[T, B, D·H]`.
    y: Vec<f64>,
}

impl Network {
    fn new(kind: Kind, x: &Tensor, parameters: &Recurrent) -> Result<Network> {
        match kind {
            Kind::Gru => ops::gru_shape(x, parameters)?,
            Kind::Lstm => ops::lstm_shape(x, parameters)?,
        };
        let directions = if parameters.bidirectional { 2 } else { 1 };
        let of_time = if parameters.batch_first { x.transpose(0, 1)? } else { x.clone() };
        let extents = [of_time.shape()[0], of_time.shape()[1], of_time.shape()[2]];
        let hidden = parameters.layers[0].w_hh.shape()[1];
        let size = parameters.layers.len() * extents[1] * hidden;
        let initial = |of: Option<&Tensor>| of.map_or_else(|| Ok(vec![0.0; size]), Tensor::to_f64);
        let layers: Vec<Parameters> = parameters.layers.iter().map(Parameters::new).collect::<Result<_>>()?;
        Ok(Network {
            kind,
            extents,
            hidden,
            directions,
            batch_first: parameters.batch_first,
            x: of_time.to_f64()?,
            lengths: parameters.lengths.map(Tensor::to_f64).transpose()?,
            layers: layers.chunks(directions).map(<[Parameters]>::to_vec).collect(),
            h0: initial(parameters.h0)?,
            c0: initial(parameters.c0)?,
        })
    }

    fn forward(&self) -> Vec<Layer> {
        let [steps, batch, _] = self.extents;
        let size = batch * self.hidden;
        let mut layers: Vec<Layer> = Vec::new();
        for (index, of_layer) in self.layers.iter().enumerate() {
            let x = layers.last().map_or(&self.x, |layer| &layer.y).clone();
            let mut y = vec![0.0; steps * size * self.directions];
            let mut passes = Vec::new();
            for (direction, parameters) in of_layer.iter().enumerate() {
                let at = (index * self.directions + direction) * size;
                let pass = Pass {
                    kind: self.kind,
                    steps,
                    batch,
                    input: if index == 0 { self.extents[2] } else { self.directions * self.hidden },
                    hidden: self.hidden,
                    reverse: direction == 1,
                    lengths: self.lengths.clone(),
                    parameters: parameters.clone(),
                    x: x.clone(),
                    h0: self.h0[at..at + size].to_vec(),
                    c0: self.c0[at..at + size].to_vec(),
                };
                let done = pass.forward();
                for (i, &value) in done.y.iter().enumerate() {
                    let (row, unit) = (i / self.hidden, i % self.hidden);
                    y[(row * self.directions + direction) * self.hidden + unit] = value;
                }
                passes.push((pass, done));
            }
            layers.push(Layer { passes, y });
        }
        layers
    }

    /// `[T, B, N]` as the request has it.
    fn as_given(&self, of_time: &[f64]) -> Vec<f64> {
        let [steps, batch, _] = self.extents;
        if !self.batch_first {
            return of_time.to_vec();
        }
        let n = of_time.len() / (steps * batch).max(1);
        (0..batch * steps)
            .flat_map(|i| of_time[(i % steps * batch + i / steps) * n..][..n].to_vec())
            .collect()
    }

    /// `[T, B, N]` of what the request has.
    fn time_major(&self, tensor: &Tensor) -> Result<Vec<f64>> {
        if self.batch_first { tensor.transpose(0, 1)?.to_f64() } else { tensor.to_f64() }
    }
}

/// (h, c) of [`ops::gru_cell_pointwise`] or [`ops::lstm_cell_pointwise`]; c is what a GRU was given for h.
pub fn cell_pointwise(kind: Kind, gx: &Tensor, gh: &Tensor, state: &Tensor) -> Result<(Vec<f64>, Vec<f64>)> {
    let hidden = state.shape()[1];
    let rows = kind.gates() * hidden;
    let (gx, gh, state) = (gx.to_f64()?, gh.to_f64()?, state.to_f64()?);
    let next = |at: usize| {
        let of = |g: &[f64]| of_unit(&g[at / hidden * rows..][..rows], hidden, at % hidden);
        unit(kind, &of(&gx), &of(&gh), state[at], state[at])
    };
    Ok((0..state.len()).map(next).unzip())
}

/// The results of [`ops::gru_cell_pointwise_backward`] or [`ops::lstm_cell_pointwise_backward`].
pub fn cell_pointwise_backward(
    kind: Kind,
    gx: &Tensor,
    gh: &Tensor,
    state: &Tensor,
    (dh, dc): (&Tensor, Option<&Tensor>),
) -> Result<PointwiseGradients<Vec<f64>>> {
    let hidden = state.shape()[1];
    let rows = kind.gates() * hidden;
    let (gx, gh, state, dh) = (gx.to_f64()?, gh.to_f64()?, state.to_f64()?, dh.to_f64()?);
    let dc = dc.map_or_else(|| Ok(vec![0.0; dh.len()]), Tensor::to_f64)?;
    let (mut dgx, mut dgh) = (vec![0.0; gx.len()], vec![0.0; gx.len()]);
    let mut dstate = vec![0.0; state.len()];
    for at in 0..state.len() {
        let first = at / hidden * rows + at % hidden;
        let of = |g: &[f64]| of_unit(&g[at / hidden * rows..][..rows], hidden, at % hidden);
        let (to_x, to_h, own_h, own_c) =
            unit_backward(kind, &of(&gx), &of(&gh), (state[at], state[at]), (dh[at], dc[at]));
        for gate in 0..to_x.len() {
            dgx[first + gate * hidden] = to_x[gate];
            dgh[first + gate * hidden] = to_h[gate];
        }
        dstate[at] = if kind == Kind::Gru { own_h } else { own_c };
    }
    Ok(PointwiseGradients { dgx, dgh, dstate })
}

fn cell_pass(
    kind: Kind,
    x: &Tensor,
    h: &Tensor,
    c: Option<&Tensor>,
    weights: &RecurrentWeights,
) -> Result<Pass> {
    let h0 = h.to_f64()?;
    Ok(Pass {
        kind,
        steps: 1,
        batch: x.shape()[0],
        input: x.shape()[1],
        hidden: h.shape()[1],
        reverse: false,
        lengths: None,
        parameters: Parameters::new(weights)?,
        x: x.to_f64()?,
        c0: c.map_or_else(|| Ok(vec![0.0; h0.len()]), Tensor::to_f64)?,
        h0,
    })
}

/// (h, c) of [`ops::gru_cell`] or [`ops::lstm_cell`].
pub fn cell(
    kind: Kind,
    x: &Tensor,
    (h, c): (&Tensor, Option<&Tensor>),
    weights: &RecurrentWeights,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let done = cell_pass(kind, x, h, c, weights)?.forward();
    Ok((done.h, done.c))
}

/// The results of [`ops::gru_cell_backward`] or [`ops::lstm_cell_backward`].
pub fn cell_backward(
    kind: Kind,
    x: &Tensor,
    (h, c): (&Tensor, Option<&Tensor>),
    weights: &RecurrentWeights,
    (dh, dc): (&Tensor, Option<&Tensor>),
) -> Result<CellGradients<Vec<f64>>> {
    let pass = cell_pass(kind, x, h, c, weights)?;
    let dh = dh.to_f64()?;
    let dc = dc.map_or_else(|| Ok(vec![0.0; dh.len()]), Tensor::to_f64)?;
    let back = pass.backward(&pass.forward(), &vec![0.0; dh.len()], &dh, &dc);
    Ok(CellGradients {
        dx: back.dx,
        dh: back.dh0,
        dc: (kind == Kind::Lstm).then_some(back.dc0),
        weights: LayerGradients {
            dw_ih: back.parameters.w_ih,
            dw_hh: back.parameters.w_hh,
            db_ih: weights.b_ih.map(|_| back.parameters.b_ih),
            db_hh: weights.b_hh.map(|_| back.parameters.b_hh),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1 without a pattern.
    fn numbers(count: usize, seed: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) as f64 * 0.618_033_988_75).sin()).collect()
    }

    fn pass(kind: Kind, reverse: bool, lengths: Option<Vec<f64>>) -> Pass {
        let (steps, batch, input, hidden) = (4, 3, 2, 3);
        let rows = kind.gates() * hidden;
        let parameters = Parameters {
            w_ih: numbers(rows * input, 1),
            w_hh: numbers(rows * hidden, 2),
            b_ih: numbers(rows, 3),
            b_hh: numbers(rows, 4),
        };
        let x = numbers(steps * batch * input, 5);
        let (h0, c0) = (numbers(batch * hidden, 6), numbers(batch * hidden, 7));
        Pass { kind, steps, batch, input, hidden, reverse, lengths, parameters, x, h0, c0 }
    }

    /// A number that depends on all results, and its gradients.
    fn value(pass: &Pass) -> f64 {
        let done = pass.forward();
        let of = |values: &[f64], seed| -> f64 {
            values.iter().zip(numbers(values.len(), seed)).map(|(a, b)| a * b).sum()
        };
        of(&done.y, 8) + of(&done.h, 9) + if pass.kind == Kind::Lstm { of(&done.c, 10) } else { 0.0 }
    }

    type Operand = fn(&mut Pass) -> &mut Vec<f64>;

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for kind in [Kind::Gru, Kind::Lstm] {
            for (reverse, lengths) in [
                (false, None),
                (true, None),
                (false, Some(vec![4.0, 0.0, 2.0])),
                (true, Some(vec![1.0, 3.0, 4.0])),
            ] {
                let pass = pass(kind, reverse, lengths);
                let size = pass.batch * pass.hidden;
                let dc_n = if kind == Kind::Lstm { numbers(size, 10) } else { vec![0.0; size] };
                let back =
                    pass.backward(&pass.forward(), &numbers(pass.steps * size, 8), &numbers(size, 9), &dc_n);
                let operands: [(&str, Operand, &Vec<f64>); 7] = [
                    ("x", |pass| &mut pass.x, &back.dx),
                    ("h0", |pass| &mut pass.h0, &back.dh0),
                    ("c0", |pass| &mut pass.c0, &back.dc0),
                    ("w_ih", |pass| &mut pass.parameters.w_ih, &back.parameters.w_ih),
                    ("w_hh", |pass| &mut pass.parameters.w_hh, &back.parameters.w_hh),
                    ("b_ih", |pass| &mut pass.parameters.b_ih, &back.parameters.b_ih),
                    ("b_hh", |pass| &mut pass.parameters.b_hh, &back.parameters.b_hh),
                ];
                for (name, operand, gradient) in operands {
                    // Of a GRU, c is passed through and does not count.
                    if name == "c0" && kind == Kind::Gru {
                        continue;
                    }
                    for (i, &got) in gradient.iter().enumerate() {
                        let moved = |by: f64| {
                            let mut moved = pass.clone();
                            operand(&mut moved)[i] += by;
                            value(&moved)
                        };
                        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                        assert!(
                            (slope - got).abs() < 1e-8,
                            "{kind:?} {reverse} {name}[{i}]: {got} not {slope}"
                        );
                    }
                }
            }
        }
    }
}
