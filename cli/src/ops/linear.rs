//! `linear` and `linear_backward` on the command line.

use warpwright::ops::{self, Activation, Approximate, Heads, Linear, LinearBackward};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, optional, tensor};
use crate::bench;
use crate::demo;
use crate::demo::products::Function;
use crate::error::CliError;

const GELU: Activation = Activation::Gelu(Approximate::Tanh);

const FORWARDS: &[Function] = &[
    Function::Linear(GELU, false),
    Function::Linear(Activation::None, true),
    Function::Linear(Activation::Gelu(Approximate::None), false),
    Function::Linear(Activation::Relu, false),
    Function::LinearHeads(16),
];

const BACKWARDS: &[Function] = &[Function::LinearBackward(GELU)];

/// The names of activations.
pub const ACTIVATIONS: &[&str] = &["none", "gelu_tanh", "gelu_erf", "relu"];

const ACTIVATION: ParameterSpec = ParameterSpec {
    name: "activation",
    kind: Kind::Word(ACTIVATIONS, "none, gelu_tanh, gelu_erf or relu"),
    default: "none",
    about: "behind the bias",
};

const PARTS: ParameterSpec = ParameterSpec {
    name: "parts",
    kind: Kind::Unsigned,
    default: "none, or 1 with heads",
    about: "what the heads are of: 3 for queries, keys and values",
};

const HEADS: ParameterSpec = ParameterSpec {
    name: "heads",
    kind: Kind::Unsigned,
    default: "none, or 1 with parts",
    about: "of a part: y is [P, B, H, S, D] for x [B, S, K]",
};

const KEEP_PRE: ParameterSpec = ParameterSpec {
    name: "keep_pre",
    kind: Kind::Bool,
    default: "false",
    about: "give x*weight^T + bias, too, for linear_backward",
};

pub static OP: Op = Op {
    name: "linear",
    summary: "act(x*weight^T + bias) + residual; heads split",
    dtypes: FLOATS,
    inputs: &[
        tensor("x", "f32, f16 or bf16", "[.., K]", "any shape with a last dimension"),
        tensor("weight", "x's type", "[N, K]", "as PyTorch has it"),
        optional("bias", "x's type", "[N]", "added to each row"),
        optional("residual", "x's type", "[.., N]", "added at last; broadcasts"),
    ],
    outputs: &[
        tensor("y", "x's type", "[.., N]", "the result; by heads [P, B, H, S, D]"),
        optional("pre", "x's type", "[.., N]", "what the activation got, with keep_pre"),
    ],
    parameters: &[ACTIVATION, super::matmul::TF32, PARTS, HEADS, KEEP_PRE],
    family: "matmul",
    run,
    cases: |setting| demo::products::cases(setting, FORWARDS),
    bench: |setting| bench::cases::products::cases(setting, "linear", FORWARDS),
};

pub static BACKWARD: Op = Op {
    name: "linear_backward",
    summary: "the gradients of linear",
    dtypes: FLOATS,
    inputs: &[
        tensor("x", "f32, f16 or bf16", "[.., K]", "what linear got"),
        tensor("weight", "x's type", "[N, K]", "what linear got"),
        tensor("dy", "x's type", "[.., N]", "the gradient of y"),
        optional("pre", "x's type", "[.., N]", "x*weight^T + bias: required with an activation"),
    ],
    outputs: &[
        tensor("dx", "x's type", "[.., K]", "the gradient of x"),
        tensor("dweight", "x's type", "[N, K]", "the gradient of the weight"),
        tensor("dbias", "x's type", "[N]", "the gradient of the bias"),
    ],
    parameters: &[ACTIVATION, super::matmul::TF32],
    family: "matmul",
    run: run_backward,
    cases: |setting| demo::products::cases(setting, BACKWARDS),
    bench: |setting| bench::cases::products::cases(setting, "linear_backward", BACKWARDS),
};

/// The activation that was given.
pub fn activation(parameters: &Parameters) -> Activation {
    parameters.word(ACTIVATION.name).map_or(Activation::None, activation_of)
}

/// That of one of [`ACTIVATIONS`].
pub fn activation_of(name: &str) -> Activation {
    match name {
        "relu" => Activation::Relu,
        "gelu_tanh" => GELU,
        "gelu_erf" => Activation::Gelu(Approximate::None),
        _ => Activation::None,
    }
}

/// The heads that were asked for.
fn heads(parameters: &Parameters) -> Option<Heads> {
    heads_of(parameters.count(PARTS.name), parameters.count(HEADS.name))
}

/// Of parts and heads: where one is given, the other is 1 unless it is, too.
pub fn heads_of(parts: Option<usize>, heads: Option<usize>) -> Option<Heads> {
    (parts.is_some() || heads.is_some())
        .then(|| Heads { parts: parts.unwrap_or(1), heads: heads.unwrap_or(1) })
}

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (bias, residual) = (tensors.get("bias"), tensors.get("residual"));
    let tf32 = super::matmul::tf32(parameters);
    let layer = Linear { bias, activation: activation(parameters), residual, tf32, heads: heads(parameters) };
    let (x, weight) = (tensors.require("x")?, tensors.require("weight")?);
    if parameters.bool(KEEP_PRE.name).unwrap_or(false) {
        let (y, pre) = ops::linear_keeping(x, weight, &layer)?;
        return Ok(vec![("y", y), ("pre", pre)]);
    }
    Ok(vec![("y", ops::linear(x, weight, &layer)?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, weight, dy) = (tensors.require("x")?, tensors.require("weight")?, tensors.require("dy")?);
    let layer = LinearBackward {
        activation: activation(parameters),
        pre: tensors.get("pre"),
        bias: true,
        tf32: super::matmul::tf32(parameters),
        ..Default::default()
    };
    let gradients = ops::linear_backward(x, weight, dy, &layer)?;
    let named = [("dx", gradients.dx), ("dweight", gradients.dweight)];
    Ok(named.into_iter().chain(gradients.dbias.map(|dbias| ("dbias", dbias))).collect())
}
