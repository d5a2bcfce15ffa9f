//! `gelu` and `gelu_backward` on the command line.

use warpwright::ops::{self, Approximate};

use super::parameters::{Kind, ParameterSpec, Parameters, REQUIRED};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo;
use crate::demo::pointwise::Function;
use crate::error::CliError;

const FORWARDS: &[Function] = &[Function::Gelu(Approximate::Tanh), Function::Gelu(Approximate::None)];

const BACKWARDS: &[Function] =
    &[Function::GeluBackward(Approximate::Tanh), Function::GeluBackward(Approximate::None)];

/// Which form of GELU, for all operations that have it.
pub const APPROXIMATE: ParameterSpec = ParameterSpec {
    name: "approximate",
    kind: Kind::Word(&["tanh", "none"], "tanh or none"),
    default: REQUIRED,
    about: "tanh as in BERT and GPT-2, none for erf",
};

/// The form that was given; a required parameter, so there is one.
pub fn approximate(parameters: &Parameters) -> Approximate {
    match parameters.word(APPROXIMATE.name) {
        Some("tanh") => Approximate::Tanh,
        _ => Approximate::None,
    }
}

pub static OP: Op = Op {
    name: "gelu",
    summary: "x*Phi(x), Phi the normal distribution's",
    dtypes: FLOATS,
    inputs: &[tensor("x", "f32, f16 or bf16", "[..]", "any shape")],
    outputs: &[tensor("y", "x's type", "[..]", "x's shape")],
    parameters: &[APPROXIMATE],
    family: "pointwise",
    run,
    cases: |setting| demo::pointwise::cases(setting, FORWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "gelu", FORWARDS),
};

pub static BACKWARD: Op = Op {
    name: "gelu_backward",
    summary: "dy times the derivative of gelu at x",
    dtypes: FLOATS,
    inputs: &[
        tensor("x", "f32, f16 or bf16", "[..]", "what gelu got"),
        tensor("dy", "x's type", "[..]", "the gradient of y"),
    ],
    outputs: &[tensor("dx", "x's type", "[..]", "the gradient of x")],
    parameters: &[APPROXIMATE],
    family: "pointwise",
    run: run_backward,
    cases: |setting| demo::pointwise::cases(setting, BACKWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "gelu_backward", BACKWARDS),
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    Ok(vec![("y", ops::gelu(tensors.require("x")?, approximate(parameters))?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, dy) = (tensors.require("x")?, tensors.require("dy")?);
    Ok(vec![("dx", ops::gelu_backward(x, dy, approximate(parameters))?)])
}
