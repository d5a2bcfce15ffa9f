//! The demo of the cross entropy and of its gradient.

use warpwright::ops::{self, CrossEntropy, CrossEntropyGradient, Reduction};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, rounded};
use super::{Bench, Case, Label, Prepared, Setting, random};
use crate::bench::data::integers;
use crate::error::CliError;
use crate::ops::FLOATS;

/// Rows and classes: for the checker, whole packs, ragged rows, and a row of a cluster.
const SMALL: [[usize; 2]; 3] = [[60, 64], [40, 257], [3, 30_522]];
/// GPT-2's words on 2048 tokens.
const LARGE: [usize; 2] = [2048, 50257];
/// Rows that are compared of many.
const COMPARED: usize = 16;

pub fn cases(setting: &Setting, backward: bool) -> Vec<Box<dyn Case>> {
    let large = if setting.gpu { &[LARGE][..] } else { &[] };
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (i, &dtype) in FLOATS.iter().enumerate() {
        for &shape in [SMALL[i]].iter().chain(large) {
            cases.push(Box::new(CrossEntropyCase { shape, dtype, backward }));
        }
    }
    cases
}

struct CrossEntropyCase {
    shape: [usize; 2],
    dtype: DType,
    backward: bool,
}

impl Case for CrossEntropyCase {
    fn label(&self) -> Label {
        Label {
            shape: self.shape.to_vec(),
            dtype: self.dtype,
            mask: "–".to_owned(),
            data: "random".to_owned(),
        }
    }

    fn bytes(&self) -> usize {
        let [rows, classes] = self.shape;
        rows * classes * self.dtype.size() * if self.backward { 2 } else { 1 } + rows * 8
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let [rows, classes] = self.shape;
        let device = bench.device().clone();
        let targets = integers(rows, classes as i32 - 1);
        let set = |number: usize| -> Result<Set> {
            let seed = number as u64 + 7;
            Ok(Set {
                x: random::tensor(&device, self.dtype, &self.shape, 4.0, seed)?,
                target: Tensor::from_slice(&device, &[rows], &targets)?,
                loss: Tensor::uninit(&device, DType::F32, &[rows])?,
                dx: self.backward.then(|| Tensor::uninit(&device, self.dtype, &self.shape)).transpose()?,
            })
        };
        let sets = (0..bench.sets(self.bytes())).map(set).collect::<Result<_>>()?;
        Ok(Box::new(Sets(sets)))
    }
}

struct Set {
    x: Tensor,
    target: Tensor,
    loss: Tensor,
    dx: Option<Tensor>,
}

struct Sets(Vec<Set>);

/// A loss for each row.
const PARAMETERS: CrossEntropy = CrossEntropy { ignore_index: -100, reduction: Reduction::None };

impl Prepared for Sets {
    fn sets(&self) -> usize {
        self.0.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        let Set { x, target, loss, dx } = &self.0[set];
        match dx {
            None => ops::cross_entropy_into(x, target, &PARAMETERS, loss),
            Some(dx) => {
                let gradient = CrossEntropyGradient { loss: loss.clone(), dx: dx.clone() };
                ops::cross_entropy_backward_into(x, target, None, &PARAMETERS, &gradient)
            }
        }
    }

    fn floor_bytes(&self) -> u64 {
        self.0.first().map_or(0, |set| {
            let passes = if set.dx.is_some() { 2 } else { 1 };
            (passes * set.x.len() * set.x.dtype().size() + set.target.len() * 8) as u64
        })
    }

    /// The last rows.
    fn compare(&self, set: usize) -> Result<Deviation> {
        let Set { x, target, loss, dx } = &self.0[set];
        let first = x.shape()[0].saturating_sub(COMPARED);
        let part = |tensor: &Tensor| tensor.narrow(0, first, tensor.shape()[0] - first);
        let (want, want_dx) =
            reference::cross_entropy_backward(&part(x)?, &part(target)?, None, &PARAMETERS)?;
        // The logarithm of a sum of many exponentials, and the score: some roundings of numbers up to 16.
        let mut deviation = Deviation::default();
        deviation.add_all(&part(loss)?, want, |_| 32.0 * f64::from(f32::EPSILON))?;
        if let Some(dx) = dx {
            let of_one = 32.0 * f64::from(f32::EPSILON);
            deviation.add_all(&part(dx)?, want_dx, |want| {
                // The target's is a difference from 1, and the only one below 0.
                rounded(x.dtype(), want, if want < 0.0 { of_one } else { of_one * want + 1e-37 })
            })?;
        }
        Ok(deviation)
    }
}
