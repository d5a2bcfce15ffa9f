//! `masked_softmax_backward` on the command line.

use warpwright::ops;

use super::dropout::{OFFSET, OPTIONAL_P, SEED, optional_dropout};
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
        tensor("y", "f32, f16 or bf16", "[.., K]", "what masked_softmax gave; with p its probabilities"),
        tensor("dy", "y's type", "[.., K]", "the gradient of y"),
    ],
    outputs: &[tensor("dx", "y's type", "[.., K]", "the gradient of x")],
    parameters: &[
        ParameterSpec {
            name: "scale",
            kind: Kind::Number,
            default: "1",
            about: "what masked_softmax multiplied the scores by",
        },
        OPTIONAL_P,
        SEED,
        OFFSET,
    ],
    family: "rows",
    run,
    cases: |setting| {
        let dropping = cases(setting, Function::SoftmaxDropoutBackward);
        cases(setting, Function::SoftmaxBackward).into_iter().chain(dropping).collect()
    },
    bench: |setting| {
        let of = |function| bench::cases::rows::cases(setting, "masked_softmax_backward", function);
        [of(Function::SoftmaxBackward), of(Function::SoftmaxDropoutBackward)].into_iter().flatten().collect()
    },
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (y, dy) = (tensors.require("y")?, tensors.require("dy")?);
    let scale = parameters.number("scale").unwrap_or(1.0);
    let dx = match optional_dropout(OP.name, parameters)? {
        Some(dropout) => ops::masked_softmax_dropout_backward(y, dy, scale, dropout)?,
        None => ops::masked_softmax_backward(y, dy, scale)?,
    };
    Ok(vec![("dx", dx)])
}
