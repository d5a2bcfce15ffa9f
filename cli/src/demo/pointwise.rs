//! The demo of the operations on each element.

use warpwright::ops::{self, Approximate, Dropout};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, rounded};
use super::{Bench, Case, Label, Operands, Prepared, Setting, random};
use crate::error::CliError;
use crate::ops::FLOATS;

/// Up to this many elements all are compared, beyond it parts.
const COMPARE_ALL: usize = 200_000;
/// Parts of a large result, rows or columns, that are compared.
const PARTS: usize = 16;
pub const DROPOUT: Dropout = Dropout { p: 0.1, seed: 1234, offset: 5 };

/// Rows, columns: for the checker, and for a GPU to be right at. Whole packs, ragged rows, short ones.
const SMALL: [[usize; 2]; 3] = [[70, 256], [33, 129], [500, 6]];
/// The hidden layer of BERT-large's feed-forward block, on 8·384 tokens and on 32·1024.
const LARGE: [[usize; 2]; 2] = [[3072, 4096], [32_768, 4096]];

/// An operation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    Gelu(Approximate),
    GeluBackward(Approximate),
    BiasGelu(Approximate),
    BiasGeluBackward(Approximate),
    Add,
    Cast(DType),
    Dropout,
    DropoutBackward,
}

/// Every function in every type: small, and on a GPU large too.
pub fn cases(setting: &Setting, functions: &[Function]) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (turn, &function) in functions.iter().enumerate() {
        for (i, &dtype) in FLOATS.iter().enumerate() {
            let small = SMALL[(turn + i) % SMALL.len()];
            let large = if setting.gpu { &LARGE[..] } else { &[] };
            for &shape in [small].iter().chain(large) {
                cases.push(Box::new(PointwiseCase { function, shape, dtype }));
            }
        }
    }
    cases
}

impl Function {
    /// What tells it from the others of its operation.
    pub fn variant(self) -> String {
        match self {
            Function::Gelu(form)
            | Function::GeluBackward(form)
            | Function::BiasGelu(form)
            | Function::BiasGeluBackward(form) => match form {
                Approximate::Tanh => "tanh".to_owned(),
                Approximate::None => "erf".to_owned(),
            },
            Function::Add => "–".to_owned(),
            Function::Cast(to) => format!("to {to}"),
            Function::Dropout | Function::DropoutBackward => format!("p = {}", DROPOUT.p),
        }
    }

    /// The types and shapes of the inputs after the first.
    pub fn others(self, shape: [usize; 2]) -> Vec<Vec<usize>> {
        match self {
            Function::GeluBackward(_) | Function::Add => vec![shape.to_vec()],
            Function::BiasGelu(_) => vec![vec![shape[1]]],
            Function::BiasGeluBackward(_) => vec![vec![shape[1]], shape.to_vec()],
            _ => vec![],
        }
    }

    /// The shapes of the outputs.
    pub fn outputs(self, shape: [usize; 2]) -> Vec<Vec<usize>> {
        match self {
            Function::BiasGeluBackward(_) => vec![shape.to_vec(), vec![shape[1]]],
            _ => vec![shape.to_vec()],
        }
    }

    /// Bytes of the inputs and the outputs: each is read or written once.
    pub fn bytes(self, shape: [usize; 2], dtype: DType) -> usize {
        let elements = |shapes: &[Vec<usize>]| -> usize {
            shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()
        };
        let read = shape[0] * shape[1] + elements(&self.others(shape));
        read * dtype.size() + elements(&self.outputs(shape)) * self.output(dtype).size()
    }

    /// The type of the results.
    pub fn output(self, dtype: DType) -> DType {
        if let Function::Cast(to) = self { to } else { dtype }
    }

    /// Computes the outputs of the inputs, in the order of [`Function::others`] and [`Function::outputs`].
    pub fn run(self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        match (self, inputs, outputs) {
            (Function::Gelu(form), [x], [y]) => ops::gelu_into(x, form, y),
            (Function::GeluBackward(form), [x, dy], [dx]) => ops::gelu_backward_into(x, dy, form, dx),
            (Function::BiasGelu(form), [x, bias], [y]) => ops::bias_gelu_into(x, bias, form, y),
            (Function::BiasGeluBackward(form), [x, bias, dy], [dx, dbias]) => {
                ops::bias_gelu_backward_into(x, bias, dy, form, dx, dbias)
            }
            (Function::Add, [a, b], [y]) => ops::add_into(a, b, y),
            (Function::Cast(_), [x], [y]) => ops::cast_into(x, y),
            (Function::Dropout, [x], [y]) => ops::dropout_into(x, DROPOUT, y),
            (Function::DropoutBackward, [dy], [dx]) => ops::dropout_backward_into(dy, DROPOUT, dx),
            _ => unreachable!("`prepare` makes the operands that `others` and `outputs` list"),
        }
    }

    /// The float64 reference of each output.
    fn reference(self, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>> {
        Ok(match (self, inputs) {
            (Function::Gelu(form), [x]) => vec![reference::gelu(x, form)?],
            (Function::GeluBackward(form), [x, dy]) => vec![reference::gelu_backward(x, dy, form)?],
            (Function::BiasGelu(form), [x, bias]) => vec![reference::bias_gelu(x, bias, form)?],
            (Function::BiasGeluBackward(form), [x, bias, dy]) => {
                let (dx, dbias) = reference::bias_gelu_backward(x, bias, dy, form)?;
                vec![dx, dbias]
            }
            (Function::Add, [a, b]) => vec![reference::add(a, b)?],
            (Function::Cast(_), [x]) => vec![x.to_f64()?],
            (Function::Dropout | Function::DropoutBackward, [x]) => vec![reference::dropout(x, DROPOUT)?],
            _ => unreachable!("as in `run`"),
        })
    }
}

/// How far an element of type `dtype` may be from `y`, the exact one, of operands up to `reach` in magnitude.
///
/// Computed in f32: relative errors of 2^-19 of y, and, where the sum x + bias is rounded or a slope is multiplied,
/// 2^-19 of the operands; exponentials below 2^-126 are 0. The 16-bit forms of GELU are off by 2^-13 of y, their
/// slopes by 2^-14 of dy. Rounding adds half of the last bit.
fn tolerance(dtype: DType, y: f64, reach: f64) -> f64 {
    let two_to = |exponent: i32| f64::from(exponent).exp2();
    let fast = if dtype == DType::F32 { 0.0 } else { two_to(-13) * y.abs() + two_to(-14) * reach };
    rounded(dtype, y, two_to(-19) * y.abs() + two_to(-19) * reach + two_to(-120) + fast)
}

struct PointwiseCase {
    function: Function,
    shape: [usize; 2],
    dtype: DType,
}

impl Case for PointwiseCase {
    fn label(&self) -> Label {
        let (mask, data) = (self.function.variant(), "random".to_owned());
        Label { shape: self.shape.to_vec(), dtype: self.dtype, mask, data }
    }

    fn bytes(&self) -> usize {
        self.function.bytes(self.shape, self.dtype)
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let count = bench.sets(self.bytes());
        let device = bench.device().clone();
        let mut sets = Vec::with_capacity(count);
        for (seed, first) in bench.scores(&self.shape, self.dtype, count)?.into_iter().enumerate() {
            let mut inputs = vec![first];
            for (i, shape) in self.function.others(self.shape).iter().enumerate() {
                let seed = (1 << 30) * (i as u64 + 1) + seed as u64;
                inputs.push(random::tensor(&device, self.dtype, shape, 1.0, seed)?);
            }
            let dtype = self.function.output(self.dtype);
            let outputs = self.function.outputs(self.shape);
            let outputs = outputs.iter().map(|shape| Tensor::uninit(&device, dtype, shape));
            sets.push(Operands { inputs, outputs: outputs.collect::<Result<_>>()? });
        }
        Ok(Box::new(Pointwise { function: self.function, floor: self.bytes() as u64, sets }))
    }
}

struct Pointwise {
    function: Function,
    floor: u64,
    sets: Vec<Operands>,
}

impl Pointwise {
    /// The part of the operands at `at` of dimension `dim`; what has one dimension belongs to columns.
    fn part(tensors: &[Tensor], dim: isize, at: usize, len: usize) -> Result<Vec<Tensor>> {
        let part = |tensor: &Tensor| match (tensor.rank(), dim) {
            (1, 0) => Ok(tensor.clone()),
            (1, _) => tensor.narrow(0, at, len),
            _ => tensor.narrow(dim, at, len),
        };
        tensors.iter().map(part).collect()
    }

    fn compare_part(&self, inputs: &[Tensor], outputs: &[Tensor], deviation: &mut Deviation) -> Result<()> {
        let rows = inputs[0].shape()[0] as f64;
        for (output, want) in outputs.iter().zip(self.function.reference(inputs)?) {
            let reach = match self.function {
                Function::BiasGelu(_) => 15.0,
                Function::GeluBackward(_) => 1.0,
                // dbias adds up the errors of a column, and rounds sums of up to rows/2.
                Function::BiasGeluBackward(_) => {
                    if output.rank() == 1 {
                        2.0 * rows
                    } else {
                        1.0
                    }
                }
                _ => 0.0,
            };
            deviation.add_all(output, want, |want| tolerance(output.dtype(), want, reach))?;
        }
        Ok(())
    }
}

impl Prepared for Pointwise {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        self.function.run(&self.sets[set].inputs, &self.sets[set].outputs)
    }

    fn compare(&self, set: usize) -> Result<Deviation> {
        let Operands { inputs, outputs } = &self.sets[set];
        let mut deviation = Deviation::default();
        let [rows, cols] = [inputs[0].shape()[0], inputs[0].shape()[1]];
        if rows * cols <= COMPARE_ALL {
            self.compare_part(inputs, outputs, &mut deviation)?;
            return Ok(deviation);
        }
        for sample in 0..PARTS {
            match self.function {
                // Sums of columns are compared of whole columns.
                Function::BiasGeluBackward(_) => {
                    let at = sample * (cols - 1) / (PARTS - 1);
                    let of = |tensors| Pointwise::part(tensors, 1, at, 1);
                    self.compare_part(&of(inputs)?, &of(outputs)?, &mut deviation)?;
                }
                // What is dropped depends on the place in the whole.
                Function::Dropout | Function::DropoutBackward => {
                    let of = |tensors| Pointwise::part(tensors, 0, 0, COMPARE_ALL / cols);
                    self.compare_part(&of(inputs)?, &of(outputs)?, &mut deviation)?;
                    break;
                }
                _ => {
                    let at = sample * (rows - 1) / (PARTS - 1);
                    let of = |tensors| Pointwise::part(tensors, 0, at, 1);
                    self.compare_part(&of(inputs)?, &of(outputs)?, &mut deviation)?;
                }
            }
        }
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright::{Checks, Device};

    /// The parts of a large result are those of the whole, and a wrong element in them is noticed.
    #[test]
    fn parts_are_compared_with_their_own_operands() {
        let device = Device::cpu_with(Checks::None);
        let shape = [20, 12];
        let form = Approximate::Tanh;
        for function in
            [Function::Gelu(form), Function::BiasGelu(form), Function::BiasGeluBackward(form), Function::Add]
        {
            let mut inputs = vec![random::tensor(&device, DType::F32, &shape, 14.0, 1).unwrap()];
            for (i, shape) in function.others(shape).iter().enumerate() {
                inputs.push(random::tensor(&device, DType::F32, shape, 1.0, 2 + i as u64).unwrap());
            }
            let outputs: Vec<Tensor> = function
                .outputs(shape)
                .iter()
                .zip(function.reference(&inputs).unwrap())
                .map(|(shape, want)| {
                    let want: Vec<f32> = want.into_iter().map(|y| y as f32).collect();
                    Tensor::from_slice(&device, shape, &want).unwrap()
                })
                .collect();
            let pointwise = Pointwise { function, floor: 0, sets: vec![] };
            let dim = if let Function::BiasGeluBackward(_) = function { 1 } else { 0 };
            for at in 0..shape[dim as usize] {
                let of = |tensors| Pointwise::part(tensors, dim, at, 1).unwrap();
                let mut deviation = Deviation::default();
                pointwise.compare_part(&of(&inputs), &of(&outputs), &mut deviation).unwrap();
                assert!(deviation.passed(), "{function:?} part {at}");
                // Another part's results are wrong.
                let other = Pointwise::part(&outputs, dim, (at + 1) % shape[dim as usize], 1).unwrap();
                let mut deviation = Deviation::default();
                pointwise.compare_part(&of(&inputs), &other, &mut deviation).unwrap();
                assert!(!deviation.passed(), "{function:?} part {at}");
            }
        }
    }
}
