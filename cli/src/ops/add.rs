//! `add` on the command line.

use warpwright::ops;

use super::parameters::Parameters;
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo;
use crate::demo::pointwise::Function;
use crate::error::CliError;

const FUNCTIONS: &[Function] = &[Function::Add];

pub static OP: Op = Op {
    name: "add",
    summary: "a + b, as a residual connection has it",
    dtypes: FLOATS,
    inputs: &[
        tensor("a", "f32, f16 or bf16", "[..]", "any shape"),
        tensor("b", "a's type", "[..]", "a's shape"),
    ],
    outputs: &[tensor("y", "a's type", "[..]", "a's shape")],
    parameters: &[],
    family: "pointwise",
    run,
    cases: |setting| demo::pointwise::cases(setting, FUNCTIONS),
    bench: |setting| bench::cases::pointwise::cases(setting, "add", FUNCTIONS),
};

fn run(tensors: &Tensors, _: &Parameters) -> Result<Outputs, CliError> {
    Ok(vec![("y", ops::add(tensors.require("a")?, tensors.require("b")?)?)])
}
