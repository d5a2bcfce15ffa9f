//! `masked_softmax_backward` on the command line.

use warpwright::ops;

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo::rows::{Function, cases};
use crate::error::CliError;

pub static OP: Op = Op {
    name: "masked_softmax_backward",
    summary: "scale*y*(dy - sum of dy*y), 0 where y is",
    dtypes: FLOATS,
    inputs: &[
        tensor("y", "f32, f16 or bf16", "[.., K]", "what masked_softmax gave"),
        tensor("dy", "y's type", "[.., K]", "the gradient of y"),
    ],
    outputs: &[tensor("dx", "y's type", "[.., K]", "the gradient of x")],
    parameters: &[ParameterSpec {
        name: "scale",
        kind: Kind::Number,
        default: "1",
        about: "what masked_softmax multiplied the scores by",
    }],
    family: "rows",
    run,
    cases: |setting| cases(setting, Function::SoftmaxBackward),
    bench: |setting| bench::cases::rows::cases(setting, "masked_softmax_backward", Function::SoftmaxBackward),
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (y, dy) = (tensors.require("y")?, tensors.require("dy")?);
    let scale = parameters.number("scale").unwrap_or(1.0);
    Ok(vec![("dx", ops::masked_softmax_backward(y, dy, scale)?)])
}
