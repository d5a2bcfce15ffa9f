//! The demo of `masked_softmax`: which cases there are, and how one is run.

mod form;
mod real;

use std::path::PathBuf;

use warpwright::ops::masked_softmax_into;
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, softmax_tolerance};
use super::{Bench, Case, Label, Prepared, Setting};
use crate::error::CliError;
use crate::ops::FLOATS;
use form::Form;

/// 1/sqrt(64).
const SCALE: f32 = 0.125;
/// Up to this many elements all are compared, beyond it whole rows.
const COMPARE_ALL: usize = 4_000_000;
/// Rows compared of a large result.
const ROWS: usize = 96;

/// Batch, heads, queries, keys: for the checker, and for a GPU to be right at. Rows of every kind: held by
/// few lanes, by a block, by a cluster; 4-byte multiples and odd lengths.
const SMALL: [[usize; 4]; 4] = [[3, 2, 20, 64], [2, 3, 33, 129], [2, 2, 5, 1000], [2, 1, 3, 4099]];
/// BERT-large on 384 tokens.
const BERT: [usize; 4] = [8, 16, 384, 384];
/// A large batch.
const LARGE: [usize; 4] = [64, 16, 512, 512];

pub fn cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    let mut cases = real_cases(setting);
    let mut random =
        |shape: [usize; 4], dtype, form| cases.push(SoftmaxCase { shape, dtype, form, real: None });
    for (turn, &form) in Form::ALL.iter().enumerate() {
        for (i, &dtype) in FLOATS.iter().enumerate() {
            random(SMALL[(turn + i) % SMALL.len()], dtype, form);
        }
    }
    // A row too long for the registers of a cluster.
    random([1, 1, 1, 300_001], DType::F32, Form::Starts);
    if setting.gpu {
        for &dtype in FLOATS {
            [Form::None, Form::Keep, Form::Lengths, Form::Bias, Form::Causal]
                .into_iter()
                .for_each(|form| random(BERT, dtype, form));
        }
        for &dtype in FLOATS {
            [Form::None, Form::Keep, Form::Lengths].into_iter().for_each(|form| random(LARGE, dtype, form));
        }
    }
    cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>).collect()
}

fn real_cases(setting: &Setting) -> Vec<SoftmaxCase> {
    let list = [
        (0, DType::F32, Form::Keep),
        (0, DType::F32, Form::Lengths),
        (5, DType::F32, Form::Keep),
        (5, DType::F16, Form::Keep),
        (5, DType::BF16, Form::Lengths),
    ];
    let case = |(layer, dtype, form)| {
        let real = Some((layer, setting.data.clone()));
        SoftmaxCase { shape: real::SHAPE, dtype, form, real }
    };
    list.into_iter().map(case).collect()
}

struct SoftmaxCase {
    shape: [usize; 4],
    dtype: DType,
    form: Form,
    /// The layer of MiniLM that x comes from, and the folder of its files; random where absent.
    real: Option<(u32, PathBuf)>,
}

impl SoftmaxCase {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Case for SoftmaxCase {
    fn label(&self) -> Label {
        let data = match &self.real {
            Some((layer, _)) => format!("MiniLM layer {layer}"),
            None => "random".to_owned(),
        };
        Label { shape: self.shape.to_vec(), dtype: self.dtype, mask: self.form.name().to_owned(), data }
    }

    fn bytes(&self) -> usize {
        2 * self.len() * self.dtype.size()
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let count = bench.sets(self.bytes());
        let device = bench.device().clone();
        let mut sets = Vec::with_capacity(count);
        let (scale, kept) = match &self.real {
            Some((layer, folder)) => {
                let real = real::load(folder, *layer, self.dtype, self.form)?;
                for _ in 0..count {
                    let (x, mask) = real.on(&device)?;
                    let y = Tensor::uninit(&device, self.dtype, &self.shape)?;
                    sets.push(Set { x, mask: Some(mask), y });
                }
                (real::SCALE, real.kept)
            }
            None => {
                for (seed, x) in bench.scores(&self.shape, self.dtype, count)?.into_iter().enumerate() {
                    let mask = self.form.mask(&device, self.shape, self.dtype, seed as u64)?;
                    let y = Tensor::uninit(&device, self.dtype, &self.shape)?;
                    sets.push(Set { x, mask, y });
                }
                (SCALE, self.form.kept(self.shape))
            }
        };
        Ok(Box::new(Softmax { shape: self.shape, form: self.form, scale, kept, sets }))
    }
}

struct Softmax {
    shape: [usize; 4],
    form: Form,
    scale: f32,
    /// Elements of x that are not masked.
    kept: u64,
    sets: Vec<Set>,
}

struct Set {
    x: Tensor,
    /// The mask, the bias, the lengths or the starts.
    mask: Option<Tensor>,
    y: Tensor,
}

impl Prepared for Softmax {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        let Set { x, mask, y } = &self.sets[set];
        masked_softmax_into(x, &self.form.parameters(self.scale, mask.as_ref(), None), y)
    }

    fn compare(&self, set: usize) -> Result<Deviation> {
        let Set { x, mask, y } = &self.sets[set];
        let mut deviation = Deviation::default();
        let mut compare =
            |x: &Tensor, mask: Option<&Tensor>, y: &Tensor, query: Option<usize>| -> Result<()> {
                let offset = query.map(|query| query as i32 + self.shape[3] as i32 - self.shape[2] as i32);
                let want = reference::masked_softmax(x, &self.form.parameters(self.scale, mask, offset))?;
                deviation.add_all(y, want, |want| softmax_tolerance(y.dtype(), want))
            };
        if x.len() <= COMPARE_ALL {
            compare(x, mask.as_ref(), y, None)?;
            return Ok(deviation);
        }
        let rows = x.len() / self.shape[3];
        for sample in 0..ROWS {
            // From the first row to the last, at all kinds of places within heads and batches.
            let row = sample * (rows - 1) / (ROWS - 1);
            let index = [
                row / self.shape[2] / self.shape[1],
                row / self.shape[2] % self.shape[1],
                row % self.shape[2],
            ];
            let mask = mask.as_ref().map(|mask| row_of(mask, index)).transpose()?;
            compare(&row_of(x, index)?, mask.as_ref(), &row_of(y, index)?, Some(index[2]))?;
        }
        Ok(deviation)
    }

    /// x where it is kept, the mask, and y.
    fn floor_bytes(&self) -> u64 {
        let Some(Set { mask, y, .. }) = self.sets.first() else { return 0 };
        let mask = mask.as_ref().map_or(0, |mask| (mask.len() * mask.dtype().size()) as u64);
        (self.kept + y.len() as u64) * y.dtype().size() as u64 + mask
    }
}

/// The part of an operand that belongs to one row; dimensions of 1 belong to all.
fn row_of(tensor: &Tensor, index: [usize; 3]) -> Result<Tensor> {
    let mut part = tensor.clone();
    for (dim, &at) in index.iter().enumerate() {
        if tensor.shape()[dim] > 1 {
            part = part.narrow(dim as isize, at, 1)?;
        }
    }
    Ok(part)
}

#[cfg(test)]
mod tests;
