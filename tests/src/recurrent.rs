//! What the tests of recurrent layers share: random layers, and what a result may be off by.

use warpwright::ops::{Recurrent, RecurrentKind, RecurrentWeights};
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{Random, floats};

pub const KINDS: [RecurrentKind; 2] = [RecurrentKind::Gru, RecurrentKind::Lstm];

/// Half the distance of neighbouring numbers at 1.
pub fn half_bit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-12),
        DType::BF16 => 2f64.powi(-9),
        _ => 2f64.powi(-25),
    }
}

/// A state is within ±1 and so are its slopes at the gates' inputs, which are within ±4 and rounded, like the state that
/// goes into the next step; of f32 the error of sums and of `ex2.approx` counts.
pub fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F32 { 1e-5 } else { 10.0 * half_bit(dtype) }
}

/// Gradients are sums over steps of products of slopes that were taken at rounded numbers: of the largest of them.
pub fn gradient_tolerance(dtype: DType, want: &[f64]) -> f64 {
    let largest = want.iter().fold(1e-3, |most: f64, want| most.max(want.abs()));
    largest * if dtype == DType::F32 { 2e-5 } else { 24.0 * half_bit(dtype) }
}

/// What a network is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: RecurrentKind,
    pub dtype: DType,
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    pub layers: usize,
    pub bidirectional: bool,
    pub batch_first: bool,
    pub bias: bool,
    pub initial: bool,
    pub lengths: bool,
}

impl Shape {
    pub fn new(kind: RecurrentKind, dtype: DType, [steps, batch, input, hidden]: [usize; 4]) -> Shape {
        Shape {
            kind,
            dtype,
            steps,
            batch,
            input,
            hidden,
            layers: 1,
            bidirectional: false,
            batch_first: false,
            bias: true,
            initial: true,
            lengths: false,
        }
    }

    fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    fn of_state(&self) -> Vec<usize> {
        match self.layers * self.directions() {
            1 => vec![self.batch, self.hidden],
            count => vec![count, self.batch, self.hidden],
        }
    }
}

/// Random tensors of a shape.
pub struct Network {
    pub shape: Shape,
    pub x: Tensor,
    pub h0: Option<Tensor>,
    pub c0: Option<Tensor>,
    pub lengths: Option<Tensor>,
    weights: Vec<[Tensor; 4]>,
    pub dy: Tensor,
    pub dh_n: Tensor,
    pub dc_n: Tensor,
}

impl Network {
    pub fn random(device: &Device, shape: Shape, seed: u64) -> Result<Network> {
        let mut random = Random::new(seed);
        let mut of = |extents: &[usize], range: f32| {
            let values = random.floats(extents.iter().product(), -range, range);
            floats(device, shape.dtype, extents, &values)
        };
        let Shape { steps, batch, input, hidden, .. } = shape;
        let rows = shape.kind.gates() * hidden;
        let (first, second) = if shape.batch_first { (batch, steps) } else { (steps, batch) };
        let range = 1.0 / (hidden as f32).sqrt();
        let x = of(&[first, second, input], 1.0)?;
        let mut weights = Vec::new();
        for layer in 0..shape.layers {
            for _ in 0..shape.directions() {
                let input = if layer == 0 { input } else { shape.directions() * hidden };
                let bias = [of(&[rows], range)?, of(&[rows], range)?];
                let [b_ih, b_hh] = bias;
                weights.push([of(&[rows, input], range)?, of(&[rows, hidden], range)?, b_ih, b_hh]);
            }
        }
        let state = shape.of_state();
        let h0 = if shape.initial { Some(of(&state, 1.0)?) } else { None };
        let is_lstm = shape.kind == RecurrentKind::Lstm;
        let c0 = if shape.initial && is_lstm { Some(of(&state, 1.0)?) } else { None };
        let dy = of(&[first, second, shape.directions() * hidden], 1.0)?;
        let (dh_n, dc_n) = (of(&state, 1.0)?, of(&state, 1.0)?);
        let lengths = if shape.lengths {
            // All of them, none and everything in between.
            let of_row = |row: usize| match row {
                0 => steps as i32,
                1 => 0,
                _ => random.below(steps as u64 + 1) as i32,
            };
            let lengths: Vec<i32> = (0..batch).map(of_row).collect();
            Some(Tensor::from_slice(device, &[batch], &lengths)?)
        } else {
            None
        };
        Ok(Network { shape, x, h0, c0, lengths, weights, dy, dh_n, dc_n })
    }

    /// The same `[T, B, ..]`, or `[B, T, ..]`, with a value at all times behind the rows' lengths.
    pub fn with_behind(&self, of: &Tensor, value: f32) -> Result<Tensor> {
        let Shape { steps, batch, batch_first, dtype, .. } = self.shape;
        let lengths = self.lengths.as_ref().expect("the shape has lengths").to_vec::<i32>()?;
        let mut values: Vec<f32> = of.to_f64()?.into_iter().map(|value| value as f32).collect();
        let columns = values.len() / (steps * batch);
        for (i, values) in values.chunks_mut(columns).enumerate() {
            let (time, row) = if batch_first { (i % steps, i / steps) } else { (i / batch, i % batch) };
            if time as i32 >= lengths[row] {
                values.fill(value);
            }
        }
        floats(of.device(), dtype, of.shape(), &values)
    }

    pub fn weights(&self) -> Vec<RecurrentWeights<'_>> {
        let bias = self.shape.bias;
        let mut all = Vec::new();
        for [w_ih, w_hh, b_ih, b_hh] in &self.weights {
            let (b_ih, b_hh) = (bias.then_some(b_ih), bias.then_some(b_hh));
            all.push(RecurrentWeights { w_ih, w_hh, b_ih, b_hh });
        }
        all
    }

    pub fn parameters<'a>(&'a self, weights: &'a [RecurrentWeights<'a>]) -> Recurrent<'a> {
        Recurrent {
            bidirectional: self.shape.bidirectional,
            batch_first: self.shape.batch_first,
            h0: self.h0.as_ref(),
            c0: self.c0.as_ref(),
            lengths: self.lengths.as_ref(),
            ..Recurrent::new(weights)
        }
    }
}
