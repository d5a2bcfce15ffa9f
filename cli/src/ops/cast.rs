//! `cast` on the command line.

use warpwright::{DType, ops};

use super::parameters::{Kind, ParameterSpec, Parameters, REQUIRED};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, tensor};
use crate::bench;
use crate::demo;
use crate::demo::pointwise::Function;
use crate::error::CliError;

const FUNCTIONS: &[Function] =
    &[Function::Cast(DType::F32), Function::Cast(DType::F16), Function::Cast(DType::BF16)];

pub static OP: Op = Op {
    name: "cast",
    summary: "x in another type, rounded to nearest, ties to even",
    dtypes: FLOATS,
    inputs: &[tensor("x", "f32, f16 or bf16", "[..]", "any shape")],
    outputs: &[tensor("y", "dtype", "[..]", "x's shape")],
    parameters: &[ParameterSpec {
        name: "dtype",
        kind: Kind::Word(&["f32", "f16", "bf16"], "f32, f16 or bf16"),
        default: REQUIRED,
        about: "y's type",
    }],
    family: "pointwise",
    run,
    cases: |setting| demo::pointwise::cases(setting, FUNCTIONS),
    bench: |setting| bench::cases::pointwise::cases(setting, "cast", FUNCTIONS),
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let dtype = match parameters.word("dtype") {
        Some("f16") => DType::F16,
        Some("bf16") => DType::BF16,
        _ => DType::F32,
    };
    Ok(vec![("y", ops::cast(tensors.require("x")?, dtype)?)])
}
