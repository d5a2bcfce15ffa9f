//! The demo of recurrent layers, and what it shares with the bench.

mod network;

pub use network::{Extents, Function, Operands, extents};

use warpwright::{DType, Result, Tensor};

use super::deviation::Deviation;
use super::{Bench, Case, Label, Prepared, Setting, random};
use crate::error::CliError;

/// For the checker: whole packs, words, and rows of single elements.
const SMALL: [Extents; 3] = [extents(3, 5, 8, 32), extents(3, 6, 6, 34), extents(2, 3, 5, 21)];
/// A cell's and a sequence's shape of the GPU.
const LARGE: [Extents; 2] = [extents(1, 64, 128, 256), extents(16, 32, 64, 128)];

pub fn cases(setting: &Setting, function: Function) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (i, dtype) in [DType::F32, DType::F16, DType::BF16].into_iter().enumerate() {
        let of = SMALL[(i + 2) % 3];
        let small = if function.is_sequence() { of } else { Extents { steps: 1, ..of } };
        cases.push(Box::new(RecurrentCase { function, extents: small, dtype }));
        if setting.gpu {
            let large = LARGE[usize::from(function.is_sequence())];
            cases.push(Box::new(RecurrentCase { function, extents: large, dtype }));
        }
    }
    cases
}

struct RecurrentCase {
    function: Function,
    extents: Extents,
    dtype: DType,
}

impl Case for RecurrentCase {
    fn label(&self) -> Label {
        Label {
            shape: self.function.shape(self.extents),
            dtype: self.dtype,
            mask: "–".to_owned(),
            data: "random".to_owned(),
        }
    }

    fn bytes(&self) -> usize {
        self.function.bytes(self.extents, self.dtype)
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let device = bench.device().clone();
        let set = |number: usize| {
            let mut seed = 100 * number as u64;
            Operands::new(self.function, self.extents, |shape, of_weight| {
                seed += 1;
                // As layers are initialised: within 1/sqrt(H).
                let range = if of_weight { 2.0 / (self.extents.hidden as f32).sqrt() } else { 2.0 };
                random::tensor(&device, self.dtype, shape, range / 2.0, seed)
            })
        };
        let sets = (0..bench.sets(self.bytes()).min(8)).map(set).collect::<Result<_>>()?;
        Ok(Box::new(Sets { function: self.function, floor: self.bytes() as u64, sets }))
    }
}

struct Sets {
    function: Function,
    floor: u64,
    sets: Vec<Operands>,
}

impl Prepared for Sets {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        self.function.run(&self.sets[set]).map(drop)
    }

    fn floor_bytes(&self) -> u64 {
        self.floor
    }

    fn compare(&self, set: usize) -> Result<Deviation> {
        let (got, want) = (self.function.run(&self.sets[set])?, self.function.reference(&self.sets[set])?);
        let mut deviation = Deviation::default();
        for (got, want) in got.iter().zip(want) {
            let allowed = allowed(self.function, got, &want);
            deviation.add_all(got, want, |_| allowed)?;
        }
        Ok(deviation)
    }
}

/// States and slopes are within ±1, and gates' inputs are rounded to the type; gradients are sums of such over rows and
/// steps, of which the largest tells the scale.
fn allowed(function: Function, got: &Tensor, want: &[f64]) -> f64 {
    let unit = match got.dtype() {
        DType::F16 => 2f64.powi(-12),
        DType::BF16 => 2f64.powi(-9),
        _ => 2f64.powi(-20),
    };
    let largest = want.iter().fold(1.0, |most: f64, want| most.max(want.abs()));
    if function.is_backward() { 24.0 * unit * largest } else { 10.0 * unit * largest }
}
