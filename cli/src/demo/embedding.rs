//! The demo of rows of tables.

use warpwright::ops::{self, Positions};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::Deviation;
use super::{Bench, Case, Label, Prepared, Setting, random};
use crate::bench::data::integers;
use crate::error::CliError;
use crate::ops::FLOATS;

/// Sequences, steps, columns, and rows of wte: for the checker, whole packs and ragged rows.
const SMALL: [[usize; 4]; 2] = [[3, 20, 64, 50], [2, 9, 33, 7]];
/// GPT-2 on 64·1024 tokens.
const LARGE: [usize; 4] = [64, 1024, 768, 50257];
/// Tokens that are compared, of many.
const COMPARED: usize = 64;

pub fn cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for &dtype in FLOATS {
        let large = if setting.gpu { &[LARGE][..] } else { &[] };
        for (i, &shape) in SMALL.iter().chain(large).enumerate() {
            let wpe = i != 1;
            cases.push(Box::new(EmbeddingCase { shape, dtype, wpe }));
        }
    }
    cases
}

struct EmbeddingCase {
    shape: [usize; 4],
    dtype: DType,
    wpe: bool,
}

impl Case for EmbeddingCase {
    fn label(&self) -> Label {
        let mask = if self.wpe { "wte + wpe" } else { "wte" };
        Label {
            shape: self.shape[..3].to_vec(),
            dtype: self.dtype,
            mask: mask.to_owned(),
            data: "random".to_owned(),
        }
    }

    /// Of tokens and y; the tables are there once.
    fn bytes(&self) -> usize {
        let [sequences, steps, cols, _] = self.shape;
        sequences * steps * (4 + cols * self.dtype.size())
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let [sequences, steps, cols, words] = self.shape;
        let device = bench.device().clone();
        let wpe = if self.wpe { Some([steps, cols]) } else { None };
        let wpe = wpe.map(|shape| random::tensor(&device, self.dtype, &shape, 1.0, 2)).transpose()?;
        let tokens = integers(sequences * steps, words as i32 - 1);
        let set = || -> Result<(Tensor, Tensor)> {
            let tokens = Tensor::from_slice(&device, &[sequences, steps], &tokens)?;
            Ok((tokens, Tensor::uninit(&device, self.dtype, &[sequences, steps, cols])?))
        };
        Ok(Box::new(Embedding {
            wte: random::tensor(&device, self.dtype, &[words, cols], 1.0, 1)?,
            wpe,
            sets: (0..bench.sets(self.bytes())).map(|_| set()).collect::<Result<_>>()?,
        }))
    }
}

struct Embedding {
    wte: Tensor,
    wpe: Option<Tensor>,
    /// Tokens and y.
    sets: Vec<(Tensor, Tensor)>,
}

impl Embedding {
    fn positions(&self, offset: usize) -> Option<Positions<'_>> {
        self.wpe.as_ref().map(|wpe| Positions { wpe, offset })
    }
}

impl Prepared for Embedding {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        let (tokens, y) = &self.sets[set];
        ops::embedding_into(tokens, &self.wte, self.positions(0), y)
    }

    /// The last steps of the last sequence, or all where there are few.
    fn compare(&self, set: usize) -> Result<Deviation> {
        let (tokens, y) = &self.sets[set];
        let &[sequences, steps] = tokens.shape() else { return Ok(Deviation::default()) };
        let (sequence, step) = match tokens.len() <= COMPARED {
            true => (0, 0),
            false => (sequences - 1, steps.saturating_sub(COMPARED)),
        };
        let part =
            |tensor: &Tensor| tensor.narrow(0, sequence, sequences - sequence)?.narrow(1, step, steps - step);
        let want = reference::embedding(&part(tokens)?, &self.wte, self.positions(step))?;
        let mut deviation = Deviation::default();
        for (got, want) in part(y)?.to_f64()?.into_iter().zip(want) {
            // One sum in f32, one rounding.
            let half_bit = match y.dtype() {
                DType::F16 => 2f64.powi(-11),
                DType::BF16 => 2f64.powi(-8),
                _ => 0.0,
            };
            deviation.add(got, want, (half_bit + 2f64.powi(-23)) * want.abs() + 2f64.powi(-24));
        }
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        let (tokens, y) = &self.sets[0];
        let rows = 2 * y.len() + self.wpe.as_ref().map_or(0, Tensor::len);
        (rows * y.dtype().size() + tokens.len() * tokens.dtype().size()) as u64
    }
}
