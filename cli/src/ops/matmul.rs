//! `matmul` and `matmul_backward` on the command line.

use warpwright::DType;
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
    outputs: &[tensor("y", "a's type, or f32 if asked", "[.., M, N]", "the product")],
    parameters: &[TRANSPOSE_A, TRANSPOSE_B, ALPHA, BETA, OUT, TF32],
    family: "matmul",
    run,
    cases: |setting| demo::products::cases(setting, FUNCTIONS),
    bench: |setting| bench::cases::products::cases(setting, "matmul", FUNCTIONS),
};

pub static BACKWARD: Op = Op {
    name: "matmul_backward",
    summary: "the gradients of matmul",
    dtypes: FLOATS,
    inputs: &[
        tensor("a", "f32, f16 or bf16", "[.., M, K]", "what matmul got"),
        tensor("b", "a's type", "[.., K, N]", "what matmul got"),
        tensor("dy", "a's type", "[.., M, N]", "the gradient of y"),
    ],
    outputs: &[
        tensor("da", "a's type", "a's", "the gradient of a"),
        tensor("db", "a's type", "b's", "the gradient of b"),
    ],
    parameters: &[TRANSPOSE_A, TRANSPOSE_B, ALPHA, TF32],
    family: "matmul",
    run: run_backward,
    cases: |setting| demo::products::cases(setting, BACKWARDS),
    bench: |setting| bench::cases::products::cases(setting, "matmul_backward", BACKWARDS),
};

const BACKWARDS: &[Function] =
    &[Function::MatmulBackward(false, true), Function::MatmulBackward(true, false)];

const fn switch(name: &'static str, about: &'static str) -> ParameterSpec {
    ParameterSpec { name, kind: Kind::Bool, default: "false", about }
}

const TRANSPOSE_A: ParameterSpec = switch("transpose_a", "swap a's last dimensions");
const TRANSPOSE_B: ParameterSpec = switch("transpose_b", "swap b's last dimensions");
const ALPHA: ParameterSpec =
    ParameterSpec { name: "alpha", kind: Kind::Number, default: "1", about: "the factor of the product" };
const BETA: ParameterSpec =
    ParameterSpec { name: "beta", kind: Kind::Number, default: "1", about: "the factor of c" };
const OUT: ParameterSpec = ParameterSpec {
    name: "out",
    kind: Kind::Word(&["f32"], "f32"),
    default: "a's type",
    about: "the result's type",
};

pub const TF32: ParameterSpec = switch("tf32", "round f32 operands to tf32");

/// The parameters that were given, without c.
pub fn matmul<'a, D>(parameters: &Parameters) -> Matmul<'a, D> {
    Matmul {
        transpose_a: parameters.bool("transpose_a").unwrap_or(false),
        transpose_b: parameters.bool("transpose_b").unwrap_or(false),
        alpha: parameters.number("alpha").unwrap_or(1.0),
        beta: parameters.number("beta").unwrap_or(1.0),
        out: parameters.word(OUT.name).map(|_| DType::F32),
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
    if c.is_none() && parameters.number("beta").is_some() {
        return Err(CliError::ParameterAlone { op: OP.name, name: "beta", needs: "c" });
    }
    let parameters = Matmul { c, ..matmul(parameters) };
    Ok(vec![("y", ops::matmul(tensors.require("a")?, tensors.require("b")?, &parameters)?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let [a, b, dy] = ["a", "b", "dy"].map(|name| tensors.require(name));
    let gradients = ops::matmul_backward(a?, b?, dy?, &matmul(parameters))?;
    Ok(vec![("da", gradients.da), ("db", gradients.db)])
}
