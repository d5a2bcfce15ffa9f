//! The demo of the norms and of the gradients along rows.

use warpwright::ops::{
    self, AddLayerNorm, AddLayerNormBackward, AddLayerNormGradients, AddLayerNormed, Dropout, DroppedSoftmax,
    LayerNorm, LayerNormGradients, LayerNormed, Mask, MaskedSoftmax, RmsNormGradients, RmsNormed,
};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, rounded};
use super::{Bench, Case, Label, Operands, Prepared, Setting, random};
use crate::error::CliError;
use crate::ops::FLOATS;

/// Up to this many elements all are compared, beyond it rows and columns.
const COMPARE_ALL: usize = 200_000;
/// Rows, and columns, that are compared of a large result.
const PARTS: usize = 16;
const EPS: f32 = 1e-5;
pub const SCALE: f32 = 0.125;
const SCALED: MaskedSoftmax = MaskedSoftmax { scale: SCALE, mask: Mask::None, causal: None };
/// Where functions drop.
pub const DROPOUT: Dropout = Dropout { p: 0.1, seed: 0x5eed, offset: 0 };

/// Rows, columns: for the checker, and for a GPU to be right at. Whole packs, ragged rows, long ones.
const SMALL: [[usize; 2]; 3] = [[70, 256], [33, 129], [5, 5000]];
/// The hidden states of BERT-large on 8·384 tokens, and 256 MB of f32 in longer rows.
const LARGE: [[usize; 2]; 2] = [[3072, 1024], [16_384, 4096]];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    LayerNorm,
    LayerNormBackward,
    AddLayerNorm,
    AddLayerNormBackward,
    RmsNorm,
    RmsNormBackward,
    SoftmaxBackward,
    SoftmaxDropout,
    SoftmaxDropoutBackward,
    AddLayerNormDropout,
}

/// What a tensor has an element for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Each element of x.
    Whole,
    /// Each column.
    Columns,
    /// Each row, in f32.
    Rows,
}

use Kind::{Columns, Rows, Whole};

/// The function in every type: small, and on a GPU large too.
pub fn cases(setting: &Setting, function: Function) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (i, &dtype) in FLOATS.iter().enumerate() {
        let small = SMALL[(i + function as usize) % SMALL.len()];
        // Parts of a large result would be numbered, and dropped, otherwise.
        let large = if setting.gpu && !function.drops() { &LARGE[..] } else { &[] };
        for &shape in [small].iter().chain(large) {
            cases.push(Box::new(RowCase { function, shape, dtype }));
        }
    }
    cases
}

impl Function {
    /// Whether it drops elements.
    pub fn drops(self) -> bool {
        matches!(
            self,
            Function::SoftmaxDropout | Function::SoftmaxDropoutBackward | Function::AddLayerNormDropout
        )
    }

    /// What tells its cases from those of the operation without dropout.
    pub fn variant(self) -> &'static str {
        if self.drops() { "dropout" } else { "–" }
    }

    /// The inputs, the first of which is x (or y of a softmax).
    pub fn inputs(self) -> &'static [Kind] {
        match self {
            Function::LayerNorm => &[Whole, Columns, Columns],
            Function::LayerNormBackward => &[Whole, Whole, Columns, Rows, Rows],
            Function::AddLayerNorm | Function::AddLayerNormDropout => {
                &[Whole, Whole, Columns, Columns, Columns]
            }
            Function::AddLayerNormBackward => &[Whole, Whole, Whole, Columns, Rows, Rows],
            Function::RmsNorm => &[Whole, Columns],
            Function::RmsNormBackward => &[Whole, Whole, Columns, Rows],
            Function::SoftmaxBackward | Function::SoftmaxDropoutBackward => &[Whole, Whole],
            Function::SoftmaxDropout => &[Whole],
        }
    }

    pub fn outputs(self) -> &'static [Kind] {
        match self {
            Function::LayerNorm => &[Whole, Rows, Rows],
            Function::AddLayerNorm | Function::AddLayerNormDropout => &[Whole, Whole, Rows, Rows],
            Function::SoftmaxDropout => &[Whole, Whole],
            Function::LayerNormBackward | Function::AddLayerNormBackward => &[Whole, Columns, Columns],
            Function::RmsNorm => &[Whole, Rows],
            Function::RmsNormBackward => &[Whole, Columns],
            Function::SoftmaxBackward | Function::SoftmaxDropoutBackward => &[Whole],
        }
    }

    /// Computes the outputs, in the order of [`Function::outputs`].
    pub fn run(self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        let all = outputs.to_vec();
        match (self, inputs) {
            (Function::LayerNorm, [x, weight, bias]) => {
                let [y, mean, rstd] = exactly(all);
                ops::layer_norm_into(x, &parameters(weight, bias), &LayerNormed { y, mean, rstd })
            }
            (
                Function::AddLayerNorm | Function::AddLayerNormDropout,
                [x, residual, input_bias, weight, bias],
            ) => {
                let [sum, y, mean, rstd] = exactly(all);
                let normed = AddLayerNormed { sum, y, mean, rstd };
                let parameters = self.add_parameters(input_bias, weight, bias);
                ops::add_layer_norm_into(x, residual, &parameters, &normed)
            }
            (Function::SoftmaxDropout, [x]) => {
                let [y, probabilities] = exactly(all);
                ops::masked_softmax_dropout_into(x, &SCALED, DROPOUT, &DroppedSoftmax { y, probabilities })
            }
            (Function::SoftmaxDropoutBackward, [y, dy]) => {
                ops::masked_softmax_dropout_backward_into(y, dy, SCALE, DROPOUT, &outputs[0])
            }
            (Function::LayerNormBackward, [x, dy, weight, mean, rstd]) => {
                let [dx, dweight, dbias] = exactly(all);
                let gradients = LayerNormGradients { dx, dweight, dbias };
                ops::layer_norm_backward_into(x, dy, Some(weight), mean, rstd, &gradients)
            }
            (Function::AddLayerNormBackward, [sum, dy, dsum, weight, mean, rstd]) => {
                let [dx, dweight, dbias] = exactly(all);
                let gradients =
                    AddLayerNormGradients { dx, dresidual: None, dinput_bias: None, dweight, dbias };
                let parameters = backward_parameters(dsum, weight);
                ops::add_layer_norm_backward_into(sum, dy, mean, rstd, &parameters, &gradients)
            }
            (Function::RmsNorm, [x, weight]) => {
                let [y, rstd] = exactly(all);
                ops::rms_norm_into(x, Some(weight), EPS, &RmsNormed { y, rstd })
            }
            (Function::RmsNormBackward, [x, dy, weight, rstd]) => {
                let [dx, dweight] = exactly(all);
                ops::rms_norm_backward_into(x, dy, Some(weight), rstd, &RmsNormGradients { dx, dweight })
            }
            (Function::SoftmaxBackward, [y, dy]) => {
                ops::masked_softmax_backward_into(y, dy, SCALE, &outputs[0])
            }
            _ => unreachable!("`prepare` makes the operands that `inputs` and `outputs` list"),
        }
    }

    /// The float64 reference of each output. The norm of a sum is compared for the sum as it was rounded.
    fn reference(self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Vec<Vec<f64>>> {
        Ok(match (self, inputs) {
            (Function::LayerNorm, [x, weight, bias]) => {
                let LayerNormed { y, mean, rstd } = reference::layer_norm(x, &parameters(weight, bias))?;
                vec![y, mean, rstd]
            }
            (
                Function::AddLayerNorm | Function::AddLayerNormDropout,
                [x, residual, input_bias, weight, bias],
            ) => {
                let parameters = self.add_parameters(input_bias, weight, bias);
                let sum = reference::add_layer_norm(x, residual, &parameters)?.sum;
                let LayerNormed { y, mean, rstd } = reference::layer_norm(&outputs[0], &parameters.norm)?;
                vec![sum, y, mean, rstd]
            }
            (Function::LayerNormBackward, [x, dy, weight, mean, rstd]) => {
                let of = reference::layer_norm_backward(x, dy, Some(weight), mean, rstd)?;
                vec![of.dx, of.dweight, of.dbias]
            }
            (Function::AddLayerNormBackward, [sum, dy, dsum, weight, mean, rstd]) => {
                let parameters = backward_parameters(dsum, weight);
                let of = reference::add_layer_norm_backward(sum, dy, mean, rstd, &parameters)?;
                vec![of.dx, of.dweight, of.dbias]
            }
            (Function::RmsNorm, [x, weight]) => {
                let RmsNormed { y, rstd } = reference::rms_norm(x, Some(weight), EPS)?;
                vec![y, rstd]
            }
            (Function::RmsNormBackward, [x, dy, weight, rstd]) => {
                let of = reference::rms_norm_backward(x, dy, Some(weight), rstd)?;
                vec![of.dx, of.dweight]
            }
            (Function::SoftmaxBackward, [y, dy]) => vec![reference::masked_softmax_backward(y, dy, SCALE)?],
            // As dropout of the probabilities that came out.
            (Function::SoftmaxDropout, [x]) => {
                vec![reference::dropout(&outputs[1], DROPOUT)?, reference::masked_softmax(x, &SCALED)?]
            }
            (Function::SoftmaxDropoutBackward, [y, dy]) => {
                vec![reference::masked_softmax_dropout_backward(y, dy, SCALE, DROPOUT)?]
            }
            _ => unreachable!("as in `run`"),
        })
    }

    fn add_parameters<'a>(
        self,
        input_bias: &'a Tensor,
        weight: &'a Tensor,
        bias: &'a Tensor,
    ) -> AddLayerNorm<'a> {
        let dropout = self.drops().then_some(DROPOUT);
        AddLayerNorm { input_bias: Some(input_bias), dropout, norm: parameters(weight, bias) }
    }
}

fn parameters<'a>(weight: &'a Tensor, bias: &'a Tensor) -> LayerNorm<'a> {
    LayerNorm { weight: Some(weight), bias: Some(bias), eps: EPS }
}

fn backward_parameters<'a>(dsum: &'a Tensor, weight: &'a Tensor) -> AddLayerNormBackward<'a> {
    AddLayerNormBackward { dsum: Some(dsum), weight: Some(weight), ..Default::default() }
}

fn exactly<const N: usize>(tensors: Vec<Tensor>) -> [Tensor; N] {
    tensors.try_into().expect("`outputs` lists as many")
}

/// How far an element of type `dtype` may be from `want`, the exact one: of a column's sum, of numbers up to `reach` in
/// all; else of numbers up to 32.
///
/// Computed in f32: 2^-19 of the result and of the operands. Rounding adds half of the last bit.
fn tolerance(dtype: DType, want: f64, reach: f64) -> f64 {
    rounded(dtype, want, (want.abs() + reach) * f64::from(1 << 19).recip())
}

struct RowCase {
    function: Function,
    shape: [usize; 2],
    dtype: DType,
}

impl Kind {
    pub fn shape(self, [rows, cols]: [usize; 2]) -> Vec<usize> {
        match self {
            Whole => vec![rows, cols],
            Columns => vec![cols],
            Rows => vec![rows],
        }
    }

    /// The type of such a tensor beside x of type `dtype`.
    pub fn dtype(self, dtype: DType) -> DType {
        if self == Rows { DType::F32 } else { dtype }
    }
}

impl Function {
    /// Bytes of all operands and results.
    pub fn bytes(self, shape: [usize; 2], dtype: DType) -> usize {
        let of = |kind: &Kind| kind.shape(shape).iter().product::<usize>() * kind.dtype(dtype).size();
        self.inputs().iter().chain(self.outputs()).map(of).sum()
    }
}

impl Case for RowCase {
    fn label(&self) -> Label {
        let (mask, data) = (self.function.variant().to_owned(), "random".to_owned());
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
            let first = match self.function {
                Function::SoftmaxBackward | Function::SoftmaxDropoutBackward => {
                    ops::masked_softmax(&first, &SCALED)?
                }
                _ => first,
            };
            // What the forward pass saved.
            let normed = ops::layer_norm(&first, &LayerNorm { eps: EPS, ..Default::default() })?;
            let mut of_rows = match self.function {
                Function::RmsNormBackward => vec![normed.rstd],
                _ => vec![normed.rstd, normed.mean],
            };
            let mut inputs = vec![first];
            for (i, &kind) in self.function.inputs().iter().enumerate().skip(1) {
                let seed = (1 << 30) * i as u64 + seed as u64;
                inputs.push(match kind {
                    Rows => of_rows.pop().expect("at most mean and rstd"),
                    kind => random::tensor(&device, self.dtype, &kind.shape(self.shape), 1.0, seed)?,
                });
            }
            let outputs = self.function.outputs().iter();
            let outputs =
                outputs.map(|&kind| Tensor::uninit(&device, kind.dtype(self.dtype), &kind.shape(self.shape)));
            sets.push(Operands { inputs, outputs: outputs.collect::<Result<_>>()? });
        }
        Ok(Box::new(OfRows { function: self.function, floor: self.bytes() as u64, sets }))
    }
}

struct OfRows {
    function: Function,
    floor: u64,
    sets: Vec<Operands>,
}

/// The part at `at` of dimension `dim` of tensors of these kinds.
fn part(tensors: &[Tensor], kinds: &[Kind], dim: isize, at: usize) -> Result<Vec<Tensor>> {
    let part = |(tensor, kind): (&Tensor, &Kind)| match (kind, dim) {
        (Whole, _) => tensor.narrow(dim, at, 1),
        (Rows, 0) | (Columns, 1) => tensor.narrow(0, at, 1),
        _ => Ok(tensor.clone()),
    };
    tensors.iter().zip(kinds).map(part).collect()
}

impl OfRows {
    /// Compares the outputs of some kinds.
    fn compare_kinds(
        &self,
        inputs: &[Tensor],
        outputs: &[Tensor],
        compares: impl Fn(Kind) -> bool,
        deviation: &mut Deviation,
    ) -> Result<()> {
        let rows = inputs[0].shape()[0] as f64;
        let wants = self.function.reference(inputs, outputs)?;
        for ((output, want), &kind) in outputs.iter().zip(wants).zip(self.function.outputs()) {
            if compares(kind) {
                let reach = if kind == Columns { 2.0 * rows } else { 32.0 };
                deviation.add_all(output, want, |want| tolerance(output.dtype(), want, reach))?;
            }
        }
        Ok(())
    }
}

impl Prepared for OfRows {
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
            self.compare_kinds(inputs, outputs, |_| true, &mut deviation)?;
            return Ok(deviation);
        }
        let of_columns = self.function.outputs().contains(&Columns);
        for sample in 0..PARTS {
            let mut compare = |dim: isize, extent: usize, of_columns: bool| -> Result<()> {
                let at = sample * (extent - 1) / (PARTS - 1);
                let inputs = part(inputs, self.function.inputs(), dim, at)?;
                let outputs = part(outputs, self.function.outputs(), dim, at)?;
                self.compare_kinds(&inputs, &outputs, |kind| (kind == Columns) == of_columns, &mut deviation)
            };
            compare(0, rows, false)?;
            // A column's sums need nothing of other columns.
            if of_columns {
                compare(1, cols, true)?;
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

    /// Parts of a result are those of the whole, and another part's results are noticed.
    #[test]
    fn parts_are_compared_with_their_own_operands() {
        let device = Device::cpu_with(Checks::None);
        for function in [
            Function::LayerNorm,
            Function::AddLayerNorm,
            Function::AddLayerNormBackward,
            Function::RmsNormBackward,
        ] {
            let case = RowCase { function, shape: [6, 12], dtype: DType::F32 };
            let prepared = case.prepare(&mut Bench::new(&device)).unwrap();
            prepared.launch(0).unwrap();
            assert!(prepared.compare(0).unwrap().passed(), "{function:?}");
            let inputs: Vec<Tensor> = function
                .inputs()
                .iter()
                .enumerate()
                .map(|(i, &kind)| {
                    let shape = kind.shape(case.shape);
                    random::tensor(&device, DType::F32, &shape, 1.0, i as u64).unwrap()
                })
                .collect();
            let outputs: Vec<Tensor> = function
                .outputs()
                .iter()
                .map(|&kind| Tensor::zeros(&device, DType::F32, &kind.shape(case.shape)).unwrap())
                .collect();
            function.run(&inputs, &outputs).unwrap();
            let rows = OfRows { function, floor: 0, sets: vec![] };
            for (dim, kinds) in [(0, Whole), (1, Columns)] {
                if !function.outputs().contains(&kinds) {
                    continue;
                }
                let compare = |at, of_output| {
                    let inputs = part(&inputs, function.inputs(), dim, at).unwrap();
                    let outputs = part(&outputs, function.outputs(), dim, of_output).unwrap();
                    let mut deviation = Deviation::default();
                    rows.compare_kinds(&inputs, &outputs, |kind| kind == kinds, &mut deviation).unwrap();
                    deviation.passed()
                };
                for at in 0..case.shape[dim as usize] {
                    assert!(compare(at, at), "{function:?} {at}");
                    assert!(!compare(at, (at + 1) % case.shape[dim as usize]), "{function:?} {at}");
                }
            }
        }
    }
}
