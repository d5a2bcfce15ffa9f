//! Characters to vectors, a GRU, and a score for each character that may come next.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpwright::ops::{
    self, CrossEntropy, Linear, LinearBackward, Recurred, Recurrent, RecurrentWeights, Upstream,
};
use warpwright::{Device, Result, Tensor};

use super::adam::Parameter;
use super::text::Batch;

#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Characters of a piece.
    pub time: usize,
    pub batch: usize,
    /// Numbers of a character's vector.
    pub width: usize,
    /// Hidden units.
    pub hidden: usize,
}

/// Gradients are scaled down to this length.
const LONGEST: f32 = 1.0;
const SEED: u64 = 17;

pub struct Model {
    device: Device,
    size: Size,
    rate: f32,
    steps: i32,
    table: Parameter,
    w_ih: Parameter,
    w_hh: Parameter,
    b_ih: Parameter,
    b_hh: Parameter,
    head: Parameter,
    bias: Parameter,
}

impl Model {
    pub fn new(device: &Device, kinds: usize, size: Size, rate: f32) -> Result<Model> {
        let mut random = StdRng::seed_from_u64(SEED);
        let mut parameter = |shape: &[usize], range: f32| {
            let values = (0..shape.iter().product()).map(|_| random.random_range(-range..=range)).collect();
            Parameter::new(device, shape, values)
        };
        let Size { width, hidden, .. } = size;
        let range = 1.0 / (hidden as f32).sqrt();
        Ok(Model {
            device: device.clone(),
            size,
            rate,
            steps: 0,
            table: parameter(&[kinds, width], 0.5)?,
            w_ih: parameter(&[3 * hidden, width], range)?,
            w_hh: parameter(&[3 * hidden, hidden], range)?,
            b_ih: parameter(&[3 * hidden], range)?,
            b_hh: parameter(&[3 * hidden], range)?,
            head: parameter(&[kinds, hidden], range)?,
            bias: parameter(&[kinds], 0.0)?,
        })
    }

    fn weights(&self) -> [RecurrentWeights<'_>; 1] {
        let (b_ih, b_hh) = (Some(&self.b_ih.tensor), Some(&self.b_hh.tensor));
        [RecurrentWeights { w_ih: &self.w_ih.tensor, w_hh: &self.w_hh.tensor, b_ih, b_hh }]
    }

    /// The scores behind y `[T, B, H]`: `[T·B, kinds]`.
    fn scores(&self, y: &Tensor) -> Result<Tensor> {
        let rows = y.reshape(&[y.shape()[0] * y.shape()[1], self.size.hidden])?;
        let with_bias = Linear { bias: Some(&self.bias.tensor), ..Linear::default() };
        ops::linear(&rows, &self.head.tensor, &with_bias)
    }

    /// Learns from a batch; gives its loss.
    pub fn step(&mut self, batch: &Batch) -> Result<f32> {
        let shape = [batch.time, batch.batch];
        let tokens = Tensor::from_slice(&self.device, &shape, &batch.tokens)?;
        let targets = Tensor::from_slice(&self.device, &[batch.targets.len()], &batch.targets)?;
        let x = ops::embedding(&tokens, &self.table.tensor, None)?;
        let weights = self.weights();
        let recurrent = Recurrent { keep: true, ..Recurrent::new(&weights) };
        let forward = ops::gru(&x, &recurrent)?;
        let scores = self.scores(&forward.y)?;
        let loss = ops::cross_entropy_backward(&scores, &targets, None, &CrossEntropy::default())?;

        let rows = forward.y.reshape(&[targets.len(), self.size.hidden])?;
        let with_bias = LinearBackward { bias: true, ..LinearBackward::default() };
        let head = ops::linear_backward(&rows, &self.head.tensor, &loss.dx, &with_bias)?;
        let dy = head.dx.reshape(forward.y.shape())?;
        let upstream = Upstream { dy: Some(&dy), ..Upstream::default() };
        let back = ops::gru_backward(&x, &recurrent, &forward, &upstream)?;
        let (dtable, _) = ops::embedding_backward(&tokens, &back.dx, &self.table.tensor, None)?;
        let of_gru = &back.layers[0];
        let mut gradients = Vec::new();
        for tensor in [
            Some(&dtable),
            Some(&of_gru.dw_ih),
            Some(&of_gru.dw_hh),
            of_gru.db_ih.as_ref(),
            of_gru.db_hh.as_ref(),
            Some(&head.dweight),
            head.dbias.as_ref(),
        ]
        .into_iter()
        .flatten()
        {
            gradients.push(tensor.to_f64()?.into_iter().map(|slope| slope as f32).collect::<Vec<f32>>());
        }
        self.learn(gradients)?;
        Ok(loss.loss.to_f64()?[0] as f32)
    }

    fn learn(&mut self, mut gradients: Vec<Vec<f32>>) -> Result<()> {
        let length = gradients.iter().flatten().map(|slope| slope * slope).sum::<f32>().sqrt();
        let scale = LONGEST / length.max(LONGEST);
        gradients.iter_mut().flatten().for_each(|slope| *slope *= scale);
        self.steps += 1;
        let parameters = [
            &mut self.table,
            &mut self.w_ih,
            &mut self.w_hh,
            &mut self.b_ih,
            &mut self.b_hh,
            &mut self.head,
            &mut self.bias,
        ];
        let (rate, steps) = (self.rate, self.steps);
        parameters.into_iter().zip(&gradients).try_for_each(|(of, gradient)| of.learn(gradient, rate, steps))
    }

    /// What comes behind `start`, drawn with the probabilities that the model gives.
    pub fn write(&self, start: &[i32], count: usize) -> Result<Vec<i32>> {
        let mut random = StdRng::seed_from_u64(SEED);
        let weights = self.weights();
        let mut h = None;
        let (mut written, mut next) = (Vec::new(), start.to_vec());
        while written.len() < count {
            let tokens = Tensor::from_slice(&self.device, &[next.len(), 1], &next)?;
            let x = ops::embedding(&tokens, &self.table.tensor, None)?;
            let Recurred { y, h_n, .. } =
                ops::gru(&x, &Recurrent { h0: h.as_ref(), ..Recurrent::new(&weights) })?;
            let scores = self.scores(&y.narrow(0, next.len() - 1, 1)?)?.to_f64()?;
            next = vec![drawn(&scores, random.random())];
            written.extend(&next);
            h = Some(h_n);
        }
        Ok(written)
    }
}

/// The number whose share of the exponentials holds `place` of 0..1.
fn drawn(scores: &[f64], place: f64) -> i32 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let mut left = place * weights.iter().sum::<f64>();
    for (number, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return number as i32;
        }
    }
    weights.len() as i32 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_drawn_by_their_share() {
        let scores = [0.0, 3f64.ln(), f64::NEG_INFINITY];
        assert_eq!([0.0, 0.2, 0.3, 0.99].map(|place| drawn(&scores, place)), [0, 0, 1, 1]);
    }
}
