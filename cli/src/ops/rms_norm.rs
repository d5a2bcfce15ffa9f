//! `rms_norm` and `rms_norm_backward` on the command line.

use warpwright::ops::{self, RmsNormGradients, RmsNormed};

use super::layer_norm::{EPS, eps};
use super::parameters::Parameters;
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo::rows::{Function, cases};
use crate::error::CliError;

const X: TensorSpec = tensor("x", "f32, f16 or bf16", "[.., N]", "any shape with a last dimension");
const WEIGHT: TensorSpec = optional("weight", "x's type", "[N]", "what columns are multiplied by");
const RSTD: TensorSpec = tensor("rstd", "f32", "[..]", "1/sqrt(mean of x*x + eps) of each row");

pub static OP: Op = Op {
    name: "rms_norm",
    summary: "x/sqrt(mean of x*x + eps)*weight over the last axis",
    dtypes: FLOATS,
    inputs: &[X, WEIGHT],
    outputs: &[tensor("y", "x's type", "[.., N]", "x's shape"), RSTD],
    parameters: &[EPS],
    family: "rows",
    run,
    cases: |setting| cases(setting, Function::RmsNorm),
    bench: |setting| bench::cases::rows::cases(setting, "rms_norm", Function::RmsNorm),
};

pub static BACKWARD: Op = Op {
    name: "rms_norm_backward",
    summary: "the gradients of rms_norm",
    dtypes: FLOATS,
    inputs: &[X, tensor("dy", "x's type", "[.., N]", "the gradient of y"), WEIGHT, RSTD],
    outputs: &[
        tensor("dx", "x's type", "[.., N]", "the gradient of x"),
        tensor("dweight", "x's type", "[N]", "the gradient of the weight"),
    ],
    parameters: &[],
    family: "rows",
    run: run_backward,
    cases: |setting| cases(setting, Function::RmsNormBackward),
    bench: |setting| bench::cases::rows::cases(setting, "rms_norm_backward", Function::RmsNormBackward),
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let RmsNormed { y, rstd } = ops::rms_norm(tensors.require("x")?, tensors.get("weight"), eps(parameters))?;
    Ok(vec![("y", y), ("rstd", rstd)])
}

fn run_backward(tensors: &Tensors, _: &Parameters) -> Result<Outputs, CliError> {
    let (x, dy, rstd) = (tensors.require("x")?, tensors.require("dy")?, tensors.require("rstd")?);
    let RmsNormGradients { dx, dweight } = ops::rms_norm_backward(x, dy, tensors.get("weight"), rstd)?;
    Ok(vec![("dx", dx), ("dweight", dweight)])
}
