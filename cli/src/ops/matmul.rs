//! `matmul` on the command line.

use warpwright::ops::{self, Matmul};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, optional, tensor};
use crate::bench;
use crate::demo;
use crate::demo::products::Function;
use crate::error::CliError;

const FUNCTIONS: &[Function] = &[
    Function::Matmul(false, true),
    Function::Matmul(false, false),
    Function::Matmul(true, false),
    Function::Matmul(true, true),
];

pub static OP: Op = Op {
    name: "matmul",
    summary: "alpha*a*b + beta*c, batched",
    dtypes: FLOATS,
    inputs: &[
        tensor("a", "f32, f16 or bf16", "[.., M, K]", "or [.., K, M] with transpose_a"),
        tensor("b", "a's type", "[.., K, N]", "or [.., N, K] with transpose_b"),
        optional("c", "a's type", "[.., M, N]", "what is added; broadcasts"),
    ],
    outputs: &[tensor("y", "a's type", "[.., M, N]", "the product")],
    parameters: PARAMETERS,
    family: "matmul",
    run,
    cases: |setting| demo::products::cases(setting, FUNCTIONS),
    bench: |setting| bench::cases::products::cases(setting, "matmul", FUNCTIONS),
};

pub const PARAMETERS: &[ParameterSpec] = &[
    ParameterSpec {
        name: "transpose_a",
        kind: Kind::Bool,
        default: "false",
        about: "swap a's last dimensions",
    },
    ParameterSpec {
        name: "transpose_b",
        kind: Kind::Bool,
        default: "false",
        about: "swap b's last dimensions",
    },
    ParameterSpec { name: "alpha", kind: Kind::Number, default: "1", about: "the factor of the product" },
    ParameterSpec { name: "beta", kind: Kind::Number, default: "1", about: "the factor of c" },
    TF32,
];

pub const TF32: ParameterSpec =
    ParameterSpec { name: "tf32", kind: Kind::Bool, default: "false", about: "round f32 operands to tf32" };

/// The parameters that were given, without c.
pub fn matmul<'a, D>(parameters: &Parameters) -> Matmul<'a, D> {
    Matmul {
        transpose_a: parameters.bool("transpose_a").unwrap_or(false),
        transpose_b: parameters.bool("transpose_b").unwrap_or(false),
        alpha: parameters.number("alpha").unwrap_or(1.0),
        beta: parameters.number("beta").unwrap_or(1.0),
        tf32: tf32(parameters),
        ..Matmul::default()
    }
}

/// Whether f32 operands are to be rounded.
pub fn tf32(parameters: &Parameters) -> bool {
    parameters.bool(TF32.name).unwrap_or(false)
}

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let c = tensors.get("c");
    let parameters = Matmul { c, ..matmul(parameters) };
    Ok(vec![("y", ops::matmul(tensors.require("a")?, tensors.require("b")?, &parameters)?)])
}
