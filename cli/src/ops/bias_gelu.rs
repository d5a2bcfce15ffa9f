//! `bias_gelu` and `bias_gelu_backward` on the command line.

use warpwright::ops::{self, Approximate};

use super::gelu::{APPROXIMATE, approximate};
use super::parameters::Parameters;
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo;
use crate::demo::pointwise::Function;
use crate::error::CliError;

const FORWARDS: &[Function] = &[Function::BiasGelu(Approximate::Tanh), Function::BiasGelu(Approximate::None)];

const BACKWARDS: &[Function] =
    &[Function::BiasGeluBackward(Approximate::Tanh), Function::BiasGeluBackward(Approximate::None)];

pub static OP: Op = Op {
    name: "bias_gelu",
    summary: "gelu(x + bias)",
    dtypes: FLOATS,
    inputs: &[
        tensor("x", "f32, f16 or bf16", "[.., N]", "any shape with a last dimension"),
        tensor("bias", "x's type", "[N]", "added to each row"),
    ],
    outputs: &[tensor("y", "x's type", "[.., N]", "x's shape")],
    parameters: &[APPROXIMATE],
    family: "pointwise",
    run,
    cases: |setting| demo::pointwise::cases(setting, FORWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "bias_gelu", FORWARDS),
};

pub static BACKWARD: Op = Op {
    name: "bias_gelu_backward",
    summary: "the gradients of bias_gelu",
    dtypes: FLOATS,
    inputs: &[
        tensor("x", "f32, f16 or bf16", "[.., N]", "what bias_gelu got"),
        tensor("bias", "x's type", "[N]", "what bias_gelu got"),
        tensor("dy", "x's type", "[.., N]", "the gradient of y"),
    ],
    outputs: &[
        tensor("dx", "x's type", "[.., N]", "the gradient of x"),
        tensor("dbias", "x's type", "[N]", "the gradient of the bias: the sums of dx's columns"),
    ],
    parameters: &[APPROXIMATE],
    family: "pointwise",
    run: run_backward,
    cases: |setting| demo::pointwise::cases(setting, BACKWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "bias_gelu_backward", BACKWARDS),
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, bias) = (tensors.require("x")?, tensors.require("bias")?);
    Ok(vec![("y", ops::bias_gelu(x, bias, approximate(parameters))?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, bias, dy) = (tensors.require("x")?, tensors.require("bias")?, tensors.require("dy")?);
    let (dx, dbias) = ops::bias_gelu_backward(x, bias, dy, approximate(parameters))?;
    Ok(vec![("dx", dx), ("dbias", dbias)])
}
