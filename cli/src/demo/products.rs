//! The demo of the products of matrices.

use warpwright::ops::matmul::{Choice, Plan};
use warpwright::ops::{
    self, Activation, Approximate, Heads, Linear, LinearBackward, LinearGradients, MaskedSoftmax, Matmul,
    MatmulGradients,
};
use warpwright::{DType, Result, Tensor, reference};

use super::deviation::{Deviation, rounded};
use super::{Bench, Case, Label, Operands, Prepared, Setting, random};
use crate::error::CliError;
use crate::ops::FLOATS;

/// Up to this many multiplications everything is compared, beyond it some rows.
const COMPARE_ALL: usize = 60_000_000;
/// Rows of a large result that are compared.
const ROWS: usize = 3;
/// Random numbers are within ± this.
const REACH: f32 = 1.0;

/// A batch of products of m×k and k×n matrices; a linear layer has a batch of one, or of sequences where it splits heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

pub const fn extents(batch: usize, m: usize, n: usize, k: usize) -> Extents {
    Extents { batch, m, n, k }
}

/// For the checker, and for a GPU to be right at.
const SMALL: [Extents; 3] = [extents(2, 70, 72, 40), extents(1, 33, 129, 65), extents(1, 8, 48, 136)];
/// Layers of BERT-large on 8·384 tokens, a token of a model of 4096, and a square.
const LARGE: [Extents; 3] =
    [extents(1, 3072, 4096, 1024), extents(1, 1, 4096, 4096), extents(1, 4096, 4096, 4096)];
/// Small enough to compare all gradients.
const BACKWARD: [Extents; 1] = [extents(1, 384, 256, 192)];

/// Sequences, their rows, and the queries, keys and values of heads: of BERT-large 16 of 64.
const SPLIT: [Extents; 2] = [extents(2, 33, 384, 40), extents(8, 384, 3072, 1024)];
/// Queries, keys and values.
const PARTS: usize = 3;

/// An operation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Which of the operands are transposed.
    Matmul(bool, bool),
    /// The same of what the gradients are of.
    MatmulBackward(bool, bool),
    /// With a bias; with a residual.
    Linear(Activation, bool),
    /// With a bias: queries, keys and values by so many heads each.
    LinearHeads(usize),
    /// With a bias.
    LinearBackward(Activation),
    /// Of m queries and n keys of k numbers, scaled by 1/√k.
    AttentionScores,
}

/// As a head of attention scales its scores.
fn scaled(q: &Tensor) -> MaskedSoftmax<'static> {
    let width = q.shape().last().copied().unwrap_or(1);
    MaskedSoftmax { scale: 1.0 / (width.max(1) as f32).sqrt(), ..MaskedSoftmax::default() }
}

/// Every function in every type.
pub fn cases(setting: &Setting, functions: &[Function]) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (turn, &function) in functions.iter().enumerate() {
        for (i, &dtype) in FLOATS.iter().enumerate() {
            let by_heads = matches!(function, Function::LinearHeads(_));
            let small = if by_heads { SPLIT[0] } else { SMALL[(turn + i) % SMALL.len()] };
            let large: &[Extents] = match function {
                _ if !setting.gpu => &[],
                Function::LinearHeads(_) => &SPLIT[1..],
                Function::MatmulBackward(..) | Function::LinearBackward(_) => &BACKWARD,
                _ => &LARGE,
            };
            for &extents in [small].iter().chain(large) {
                let batched = by_heads
                    || matches!(
                        function,
                        Function::Matmul(..) | Function::MatmulBackward(..) | Function::AttentionScores
                    );
                let batch = if batched { extents.batch } else { 1 };
                cases.push(Box::new(ProductCase { function, extents: Extents { batch, ..extents }, dtype }));
            }
        }
    }
    cases
}

pub fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::None => "none",
        Activation::Relu => "relu",
        Activation::Gelu(Approximate::Tanh) => "gelu_tanh",
        Activation::Gelu(Approximate::None) => "gelu_erf",
    }
}

impl Function {
    /// What tells it from the others of its operation.
    pub fn variant(self) -> String {
        match self {
            Function::Matmul(a, b) | Function::MatmulBackward(a, b) => {
                let letter = |transposed| if transposed { 't' } else { 'n' };
                format!("{}{}", letter(a), letter(b))
            }
            Function::Linear(activation, residual) => {
                let residual = if residual { " residual" } else { "" };
                format!("{}{residual}", activation_name(activation))
            }
            Function::LinearHeads(heads) => format!("{PARTS}x{heads} heads"),
            Function::LinearBackward(activation) => activation_name(activation).to_owned(),
            Function::AttentionScores => "scaled".to_owned(),
        }
    }

    /// The shapes of the inputs.
    pub fn inputs(self, e: Extents) -> Vec<Vec<usize>> {
        let Extents { batch, m, n, k } = e;
        let matrix = |rows: usize, cols: usize, transposed: bool| {
            let [rows, cols] = if transposed { [cols, rows] } else { [rows, cols] };
            if batch == 1 { vec![rows, cols] } else { vec![batch, rows, cols] }
        };
        match self {
            Function::Matmul(a, b) => vec![matrix(m, k, a), matrix(k, n, b)],
            Function::MatmulBackward(a, b) => vec![matrix(m, k, a), matrix(k, n, b), matrix(m, n, false)],
            Function::AttentionScores => vec![matrix(m, k, false), matrix(n, k, false)],
            Function::Linear(_, residual) => {
                let residual = residual.then(|| vec![m, n]);
                [vec![m, k], vec![n, k], vec![n]].into_iter().chain(residual).collect()
            }
            Function::LinearHeads(_) => vec![vec![batch, m, k], vec![n, k], vec![n]],
            Function::LinearBackward(_) => vec![vec![m, k], vec![n, k], vec![m, n], vec![m, n]],
        }
    }

    /// The shapes of the outputs.
    pub fn outputs(self, e: Extents) -> Vec<Vec<usize>> {
        let Extents { batch, m, n, k } = e;
        match self {
            Function::MatmulBackward(..) => self.inputs(e).into_iter().take(2).collect(),
            Function::Matmul(..) | Function::AttentionScores if batch > 1 => vec![vec![batch, m, n]],
            Function::Matmul(..) | Function::AttentionScores | Function::Linear(..) => vec![vec![m, n]],
            Function::LinearHeads(heads) => vec![vec![PARTS, batch, heads, m, n / PARTS / heads]],
            Function::LinearBackward(_) => vec![vec![m, k], vec![n, k], vec![n]],
        }
    }

    /// Bytes of the inputs and the outputs: each is read or written once.
    pub fn bytes(self, e: Extents, dtype: DType) -> usize {
        let shapes = self.inputs(e).into_iter().chain(self.outputs(e));
        shapes.map(|shape| shape.iter().product::<usize>() * dtype.size()).sum()
    }

    /// Multiplications and additions.
    pub fn flops(self, e: Extents) -> usize {
        let products = if self.is_backward() { 2 } else { 1 };
        2 * products * e.batch * e.m * e.n * e.k
    }

    fn is_backward(self) -> bool {
        matches!(self, Function::MatmulBackward(..) | Function::LinearBackward(_))
    }

    /// Computes the outputs of the inputs, in the order of [`Function::inputs`] and [`Function::outputs`].
    pub fn run(self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        match (self, inputs, outputs) {
            (Function::Matmul(..), [a, b], [y]) => ops::matmul_into(a, b, &self.matmul(), y),
            (Function::MatmulBackward(..), [a, b, dy], [da, db]) => {
                let gradients = MatmulGradients { da: da.clone(), db: db.clone() };
                ops::matmul_backward_into(a, b, dy, &self.matmul(), &gradients)
            }
            (Function::Linear(..) | Function::LinearHeads(_), [x, weight, behind @ ..], [y]) => {
                ops::linear_into(x, weight, &self.linear(behind), y)
            }
            (Function::LinearBackward(activation), [x, weight, dy, pre], [dx, dweight, dbias]) => {
                let parameters =
                    LinearBackward { activation, pre: Some(pre), bias: true, ..Default::default() };
                let (dx, dweight, dbias) = (dx.clone(), dweight.clone(), Some(dbias.clone()));
                let gradients = LinearGradients { dx, dweight, dbias };
                ops::linear_backward_into(x, weight, dy, &parameters, &gradients)
            }
            (Function::AttentionScores, [q, k], [y]) => ops::attention_scores_into(q, k, &scaled(q), y),
            _ => unreachable!("`prepare` makes the operands that `inputs` and `outputs` list"),
        }
    }

    /// The layer, with a bias and maybe a residual behind its product.
    fn linear(self, behind: &[Tensor]) -> Linear<'_> {
        let (bias, residual) = (behind.first(), behind.get(1));
        match self {
            Function::Linear(activation, _) => Linear { bias, activation, residual, ..Linear::default() },
            Function::LinearHeads(heads) => {
                Linear { bias, heads: Some(Heads { parts: PARTS, heads }), ..Linear::default() }
            }
            _ => Linear::default(),
        }
    }

    fn matmul(self) -> Matmul<'static> {
        match self {
            Function::Matmul(transpose_a, transpose_b)
            | Function::MatmulBackward(transpose_a, transpose_b) => {
                Matmul { transpose_a, transpose_b, ..Matmul::default() }
            }
            _ => Matmul::default(),
        }
    }

    /// The ways that the operation could go about it besides the one that it takes.
    pub fn other_plans(self, inputs: &[Tensor]) -> Result<Vec<Plan>> {
        match (self, inputs) {
            (Function::Matmul(..), [a, b]) => {
                Ok(ops::matmul::candidates(a, b, &self.matmul())?.into_iter().skip(1).collect())
            }
            (Function::Linear(..) | Function::LinearHeads(_), [x, weight, behind @ ..]) => {
                Ok(ops::linear_candidates(x, weight, &self.linear(behind))?.into_iter().skip(1).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// [`Function::run`] by a kernel of choice.
    pub fn run_by(self, choice: Choice, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        match (self, inputs, outputs) {
            (Function::Matmul(..), [a, b], [y]) => {
                ops::matmul::matmul_into_by(choice, a, b, &self.matmul(), y)
            }
            (Function::Linear(..) | Function::LinearHeads(_), [x, weight, behind @ ..], [y]) => {
                ops::linear_into_by(choice, x, weight, &self.linear(behind), None, y)
            }
            _ => self.run(inputs, outputs),
        }
    }

    /// How the operation goes about it.
    pub fn plan(self, inputs: &[Tensor]) -> Result<String> {
        match (self, inputs) {
            (Function::Matmul(..), [a, b]) => Ok(ops::matmul::explain(a, b, &self.matmul())?.to_string()),
            (Function::Linear(..) | Function::LinearHeads(_), [x, weight, behind @ ..]) => {
                Ok(ops::linear_explain(x, weight, &self.linear(behind))?.to_string())
            }
            (Function::AttentionScores, [q, k]) => {
                Ok(ops::attention_scores::explain(q, k, &scaled(q))?.to_string())
            }
            _ => Ok(String::new()),
        }
    }

    /// The float64 reference of each output.
    fn reference(self, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>> {
        Ok(match (self, inputs) {
            (Function::Matmul(..), [a, b]) => vec![reference::matmul(a, b, &self.matmul())?],
            (Function::MatmulBackward(..), [a, b, dy]) => {
                let want = reference::matmul_backward(a, b, dy, &self.matmul())?;
                vec![want.da, want.db]
            }
            (Function::Linear(..) | Function::LinearHeads(_), [x, weight, behind @ ..]) => {
                vec![reference::linear(x, weight, &self.linear(behind))?]
            }
            (Function::LinearBackward(activation), [x, weight, dy, pre]) => {
                let parameters =
                    LinearBackward { activation, pre: Some(pre), bias: true, ..Default::default() };
                let want = reference::linear_backward(x, weight, dy, &parameters)?;
                vec![want.dx, want.dweight, want.dbias.unwrap_or_default()]
            }
            (Function::AttentionScores, [q, k]) => vec![reference::attention_scores(q, k, &scaled(q))?],
            _ => unreachable!("as in `run`"),
        })
    }
}

/// How far an element of type `dtype` may be from `want`, the exact one, of `terms` products of numbers within ±1.
///
/// The roundings of the partial sums, each below 2^-24 of one, are a random walk as the sums are: some √k·√k of them. GELU
/// in 16 bits is off by 2^-13. Gradients are of numbers that were rounded to their type before the second product:
/// half a bit of each term.
fn tolerance(function: Function, dtype: DType, terms: usize, want: f64) -> f64 {
    let two_to = |exponent: i32| f64::from(exponent).exp2();
    let sums = 4.0 * terms as f64 * two_to(-24) + two_to(-19);
    let half_bit = super::deviation::half_bit(dtype);
    let more = match function {
        Function::Matmul(..) | Function::MatmulBackward(..) | Function::LinearHeads(_) => 0.0,
        // Scores are within some ±2, and rounded: so is the exponential's argument.
        Function::AttentionScores => want * (4.0 * half_bit + two_to(-18)),
        Function::Linear(..) if dtype == DType::F32 => 0.0,
        Function::Linear(..) => two_to(-13) * (1.0 + want.abs()),
        Function::LinearBackward(_) => 4.0 * (terms as f64).sqrt() * (half_bit + two_to(-14)),
    };
    rounded(dtype, want, sums + more)
}

struct ProductCase {
    function: Function,
    extents: Extents,
    dtype: DType,
}

impl Case for ProductCase {
    fn label(&self) -> Label {
        let Extents { batch, m, n, k } = self.extents;
        let shape = if batch == 1 { vec![m, n, k] } else { vec![batch, m, n, k] };
        Label { shape, dtype: self.dtype, mask: self.function.variant(), data: "random".to_owned() }
    }

    fn bytes(&self) -> usize {
        self.function.bytes(self.extents, self.dtype)
    }

    fn prepare(&self, bench: &mut Bench) -> Result<Box<dyn Prepared>, CliError> {
        let device = bench.device();
        let mut sets = Vec::new();
        for set in 0..bench.sets(self.bytes()) as u64 {
            let input = |(i, shape): (usize, Vec<usize>)| {
                random::tensor(device, self.dtype, &shape, REACH, (i as u64) << 30 | set)
            };
            let output = |shape: Vec<usize>| Tensor::uninit(device, self.dtype, &shape);
            sets.push(Operands {
                inputs: self
                    .function
                    .inputs(self.extents)
                    .into_iter()
                    .enumerate()
                    .map(input)
                    .collect::<Result<_>>()?,
                outputs: self
                    .function
                    .outputs(self.extents)
                    .into_iter()
                    .map(output)
                    .collect::<Result<_>>()?,
            });
        }
        let (function, extents, floor) = (self.function, self.extents, self.bytes() as u64);
        Ok(Box::new(Product { function, extents, floor, sets }))
    }
}

struct Product {
    function: Function,
    extents: Extents,
    floor: u64,
    sets: Vec<Operands>,
}

impl Product {
    fn compare_all(&self, inputs: &[Tensor], outputs: &[Tensor], deviation: &mut Deviation) -> Result<()> {
        let Extents { m, n, k, .. } = self.extents;
        // dx adds up over n, and the gradients of the parameters over m.
        let terms = if self.function.is_backward() { m.max(n) } else { k };
        for (output, want) in outputs.iter().zip(self.function.reference(inputs)?) {
            deviation.add_all(output, want, |want| tolerance(self.function, output.dtype(), terms, want))?;
        }
        Ok(())
    }
}

impl Prepared for Product {
    fn sets(&self) -> usize {
        self.sets.len()
    }

    fn launch(&self, set: usize) -> Result<()> {
        self.function.run(&self.sets[set].inputs, &self.sets[set].outputs)
    }

    fn compare(&self, set: usize) -> Result<Deviation> {
        let Operands { inputs, outputs } = &self.sets[set];
        let mut deviation = Deviation::default();
        if self.function.flops(self.extents) / 2 <= COMPARE_ALL {
            self.compare_all(inputs, outputs, &mut deviation)?;
            return Ok(deviation);
        }
        for sample in 0..ROWS {
            let at = sample * (self.extents.m - 1) / (ROWS - 1);
            let along_m = |(i, tensor): (usize, &Tensor)| match (self.function, i) {
                (Function::Matmul(true, _), 0) => tensor.narrow(-1, at, 1),
                (Function::Matmul(..) | Function::AttentionScores | Function::LinearHeads(_), 0) => {
                    tensor.narrow(-2, at, 1)
                }
                (Function::Linear(..), 0 | 3) => tensor.narrow(0, at, 1),
                _ => Ok(tensor.clone()),
            };
            let rows: Vec<Tensor> = inputs.iter().enumerate().map(along_m).collect::<Result<_>>()?;
            self.compare_all(&rows, &[outputs[0].narrow(-2, at, 1)?], &mut deviation)?;
        }
        Ok(deviation)
    }

    fn floor_bytes(&self) -> u64 {
        self.floor
    }
}
