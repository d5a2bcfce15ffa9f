//! The demo of rows of tables, and of their gradients.

use warpwright::ops::{self, Positions};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, half_bit};
use super::{Bench, Case, Label, Prepared, Setting, random};
use crate::bench::data::{integers, words};
use crate::error::CliError;
use crate::ops::FLOATS;

/// Sequences, steps, columns, and rows of wte: for the checker, whole packs and ragged rows.
const SMALL: [[usize; 4]; 2] = [[3, 20, 64, 50], [2, 9, 33, 7]];
/// GPT-2 on 64·1024 tokens.
const LARGE: [usize; 4] = [64, 1024, 768, 50257];
/// Tokens that are compared, of many.
const COMPARED: usize = 64;
/// Up to so many elements of a table all of its gradient is compared, beyond it so many columns.
const COMPARE_ALL: usize = 200_000;
const COMPARED_COLUMNS: usize = 3;

pub fn cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    each_shape(setting, false)
}

pub fn backward_cases(setting: &Setting) -> Vec<Box<dyn Case>> {
    each_shape(setting, true)
}

fn each_shape(setting: &Setting, backward: bool) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for &dtype in FLOATS {
        let large = if setting.gpu { &[LARGE][..] } else { &[] };
        for (i, &shape) in SMALL.iter().chain(large).enumerate() {
            let wpe = i != 1;
            cases.push(match backward {
                true => Box::new(BackwardCase(EmbeddingCase { shape, dtype, wpe })),
                false => Box::new(EmbeddingCase { shape, dtype, wpe }),
            });
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
        self.wpe.as_ref().map(|wpe| Positions { offset, ..Positions::new(wpe) })
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
        // One sum in f32, one rounding.
        let relative = rounding(y.dtype()) + 2f64.powi(-23);
        deviation.add_all(&part(y)?, want, |want| relative * want.abs() + 2f64.powi(-24))?;
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        let (tokens, y) = &self.sets[0];
        let rows = 2 * y.len() + self.wpe.as_ref().map_or(0, Tensor::len);
        (rows * y.dtype().size() + tokens.len() * tokens.dtype().size()) as u64
    }
}

struct BackwardCase(EmbeddingCase);

impl Case for BackwardCase {
    fn label(&self) -> Label {
        self.0.label()
    }

    fn bytes(&self) -> usize {
        let [_, steps, cols, words] = self.0.shape;
        self.0.bytes() + (words + steps) * cols * self.0.dtype.size()
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let EmbeddingCase { shape: [sequences, steps, cols, rows], dtype, wpe } = self.0;
        let device = bench.device().clone();
        let tokens = words(sequences * steps, rows);
        let tokens = Tensor::from_slice(&device, &[sequences, steps], &tokens)?;
        let set = |seed| -> Result<Gradients> {
            let table = |rows: usize| Tensor::uninit(&device, dtype, &[rows, cols]);
            Ok(Gradients {
                dy: random::tensor(&device, dtype, &[sequences, steps, cols], 1.0, seed)?,
                dwte: table(rows)?,
                dwpe: if wpe { Some(table(steps)?) } else { None },
            })
        };
        let sets = (0..bench.sets(self.bytes()) as u64).map(set).collect::<Result<_>>()?;
        Ok(Box::new(Backward { tokens, sets, floor: self.bytes() as u64 }))
    }
}

struct Backward {
    tokens: Tensor,
    sets: Vec<Gradients>,
    floor: u64,
}

struct Gradients {
    dy: Tensor,
    dwte: Tensor,
    dwpe: Option<Tensor>,
}

impl Prepared for Backward {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        let Gradients { dy, dwte, dwpe } = &self.sets[set];
        let positions = dwpe.as_ref().map(Positions::new);
        ops::embedding_backward_into(&self.tokens, dy, dwte, positions, dwte, dwpe.as_ref())
    }

    /// All rows, of the first columns where there are many.
    fn compare(&self, set: usize) -> Result<Deviation> {
        let Gradients { dy, dwte, dwpe } = &self.sets[set];
        let cols = dwte.shape()[1].min(if dwte.len() <= COMPARE_ALL { usize::MAX } else { COMPARED_COLUMNS });
        let part = |tensor: &Tensor| tensor.narrow(-1, 0, cols);
        let (dy, dwte) = (part(dy)?, part(dwte)?);
        let dwpe = dwpe.as_ref().map(part).transpose()?;
        let positions = dwpe.as_ref().map(Positions::new);
        let (rows, of_positions) = reference::embedding_backward(&self.tokens, &dy, &dwte, positions)?;
        let rounding = rounding(dwte.dtype());
        // Random signs: sums of n terms of at most 1, whose roundings do not add up.
        let roundings = (self.tokens.len() as f64).sqrt() * 2f64.powi(-20);
        let tolerance = |want: f64| rounding * want.abs() + roundings;
        let mut deviation = Deviation::default();
        deviation.add_all(&dwte, rows, tolerance)?;
        if let (Some(dwpe), Some(want)) = (&dwpe, of_positions) {
            deviation.add_all(dwpe, want, tolerance)?;
        }
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        self.floor
    }
}

/// What rounding to a type adds, of the result; for f32 two roundings.
fn rounding(dtype: DType) -> f64 {
    half_bit(dtype).max(2f64.powi(-23))
}
