//! A parameter and how it learns: Adam, on the host and in f32, with a copy in the model's type on the device.

use half::bf16;
use warpwright::{Device, Result, Tensor};

const FIRST: f32 = 0.9;
const SECOND: f32 = 0.99;
const EPS: f32 = 1e-8;

pub struct Parameter {
    values: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
    pub tensor: Tensor,
}

impl Parameter {
    pub fn new(device: &Device, shape: &[usize], values: Vec<f32>) -> Result<Parameter> {
        let tensor = upload(device, shape, &values)?;
        let zeros = vec![0.0; values.len()];
        Ok(Parameter { mean: zeros.clone(), square: zeros, values, tensor })
    }

    /// Step number `step`, from 1 on.
    pub fn learn(&mut self, gradient: &[f32], rate: f32, step: i32) -> Result<()> {
        let (first, second) = (1.0 - FIRST.powi(step), 1.0 - SECOND.powi(step));
        for (i, &slope) in gradient.iter().enumerate() {
            self.mean[i] = FIRST * self.mean[i] + (1.0 - FIRST) * slope;
            self.square[i] = SECOND * self.square[i] + (1.0 - SECOND) * slope * slope;
            let scale = (self.square[i] / second).sqrt() + EPS;
            self.values[i] -= rate * self.mean[i] / first / scale;
        }
        self.tensor = upload(self.tensor.device(), self.tensor.shape(), &self.values)?;
        Ok(())
    }
}

fn upload(device: &Device, shape: &[usize], values: &[f32]) -> Result<Tensor> {
    let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
    Tensor::from_slice(device, shape, &rounded)
}
