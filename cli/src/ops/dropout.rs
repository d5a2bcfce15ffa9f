//! `dropout` and `dropout_backward` on the command line.

use warpwright::ops::{self, Dropout};

use super::parameters::{Kind, ParameterSpec, Parameters, REQUIRED};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo;
use crate::demo::pointwise::Function;
use crate::error::CliError;

const FORWARDS: &[Function] = &[Function::Dropout];

const BACKWARDS: &[Function] = &[Function::DropoutBackward];

const P: ParameterSpec = ParameterSpec {
    name: "p",
    kind: Kind::Number,
    default: REQUIRED,
    about: "the probability that an element is dropped",
};

const PARAMETERS: &[ParameterSpec] = &[P, ParameterSpec { default: REQUIRED, ..SEED }, OFFSET];

/// For operations that dropout may be fused with.
pub const OPTIONAL_P: ParameterSpec = ParameterSpec { default: "no dropout", ..P };
pub const SEED: ParameterSpec = ParameterSpec {
    name: "seed",
    kind: Kind::Unsigned,
    default: "0",
    about: "names dropout's random numbers, together with offset",
};
pub const OFFSET: ParameterSpec = ParameterSpec {
    name: "offset",
    kind: Kind::Unsigned,
    default: "0",
    about: "another offset gives other random numbers",
};

/// The dropout that is asked for, if any.
pub fn optional_dropout(op: &'static str, parameters: &Parameters) -> Result<Option<Dropout>, CliError> {
    if parameters.number(P.name).is_some() {
        return Ok(Some(dropout(parameters)));
    }
    match [SEED.name, OFFSET.name].into_iter().find(|name| parameters.unsigned(name).is_some()) {
        Some(name) => Err(CliError::ParameterAlone { op, name, needs: "p" }),
        None => Ok(None),
    }
}

pub static OP: Op = Op {
    name: "dropout",
    summary: "x/(1 - p) where a random number keeps it, else 0",
    dtypes: FLOATS,
    inputs: &[tensor("x", "f32, f16 or bf16", "[..]", "any shape")],
    outputs: &[tensor("y", "x's type", "[..]", "x's shape")],
    parameters: PARAMETERS,
    family: "pointwise",
    run,
    cases: |setting| demo::pointwise::cases(setting, FORWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "dropout", FORWARDS),
};

pub static BACKWARD: Op = Op {
    name: "dropout_backward",
    summary: "dy/(1 - p) where dropout kept x, else 0",
    dtypes: FLOATS,
    inputs: &[tensor("dy", "f32, f16 or bf16", "[..]", "the gradient of y")],
    outputs: &[tensor("dx", "dy's type", "[..]", "the gradient of x")],
    parameters: PARAMETERS,
    family: "pointwise",
    run: run_backward,
    cases: |setting| demo::pointwise::cases(setting, BACKWARDS),
    bench: |setting| bench::cases::pointwise::cases(setting, "dropout_backward", BACKWARDS),
};

/// The parameters; those that are required were given.
fn dropout(parameters: &Parameters) -> Dropout {
    Dropout {
        p: parameters.number("p").unwrap_or_default(),
        seed: parameters.unsigned("seed").unwrap_or_default(),
        offset: parameters.unsigned("offset").unwrap_or_default(),
    }
}

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    Ok(vec![("y", ops::dropout(tensors.require("x")?, dropout(parameters))?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    Ok(vec![("dx", ops::dropout_backward(tensors.require("dy")?, dropout(parameters))?)])
}
