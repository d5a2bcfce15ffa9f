//! `permute` and its kin on the command line.

use warpwright::{DType, ops};

use super::parameters::{Kind, ParameterSpec, Parameters, REQUIRED};
use super::tensors::Tensors;
use super::{Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo;
use crate::error::CliError;

/// Types of each size; elements are moved as they are, so others of these sizes are as fast.
pub const DTYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::F64];

pub static OP: Op = Op {
    name: "permute",
    summary: "x with its dimensions in another order, contiguous, bit for bit",
    dtypes: DTYPES,
    inputs: &[tensor("x", "any type", "[..]", "any shape")],
    outputs: &[tensor("y", "x's type, or dtype", "[..]", "dimension i is dimension dims[i] of x")],
    parameters: &[
        ParameterSpec {
            name: "dims",
            kind: Kind::Dims,
            default: REQUIRED,
            about: "the dimensions of x in the order of y; negative ones count from the back",
        },
        ParameterSpec {
            name: "dtype",
            kind: Kind::Word(&["f32", "f16", "bf16"], "f32, f16 or bf16"),
            default: "x's type",
            about: "y's type, rounded on the way, where x is f32, f16 or bf16",
        },
    ],
    family: "permute",
    run,
    cases: demo::permute::cases,
    bench: bench::cases::permute::cases,
};

const BIAS: TensorSpec =
    optional("bias", "x's type", "[P, H, D]", "added on the way, where x is f32, f16 or bf16");

pub static SPLIT: Op = Op {
    name: "split_heads",
    summary: "the heads of a projection's rows, as attention wants them, with a bias added on the way",
    dtypes: DTYPES,
    inputs: &[tensor("x", "any type", "[B, S, P, H, D]", "P = 3 for queries, keys and values"), BIAS],
    outputs: &[tensor("y", "x's type", "[P, B, H, S, D]", "the heads")],
    parameters: &[],
    family: "permute",
    run: |tensors, _| Ok(vec![("y", ops::split_heads(tensors.require("x")?, tensors.get("bias"))?)]),
    cases: |setting| demo::permute::head_cases(setting, true),
    bench: |setting| bench::cases::permute::head_cases(setting, true),
};

pub static MERGE: Op = Op {
    name: "merge_heads",
    summary: "heads merged into rows: the way back of split_heads",
    dtypes: DTYPES,
    inputs: &[tensor("x", "any type", "[P, B, H, S, D]", "heads"), BIAS],
    outputs: &[tensor("y", "x's type", "[B, S, P, H, D]", "rows")],
    parameters: &[],
    family: "permute",
    run: |tensors, _| Ok(vec![("y", ops::merge_heads(tensors.require("x")?, tensors.get("bias"))?)]),
    cases: |setting| demo::permute::head_cases(setting, false),
    bench: |setting| bench::cases::permute::head_cases(setting, false),
};

pub static IN_PLACE: Op = Op {
    name: "transpose_in_place",
    summary: "square matrices transposed in their own memory",
    dtypes: DTYPES,
    inputs: &[tensor("x", "any type", "[.., N, N]", "matrices")],
    outputs: &[tensor("x", "x's type", "[.., N, N]", "their transposes")],
    parameters: &[],
    family: "permute",
    run: |tensors, _| {
        let x = tensors.require("x")?;
        ops::transpose_in_place(x)?;
        Ok(vec![("x", x.clone())])
    },
    cases: demo::permute::in_place_cases,
    bench: bench::cases::permute::in_place_cases,
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let x = tensors.require("x")?;
    let dims = parameters.dims("dims").unwrap_or_default();
    let dtype = match parameters.word("dtype") {
        Some("f32") => DType::F32,
        Some("f16") => DType::F16,
        Some("bf16") => DType::BF16,
        _ => return Ok(vec![("y", ops::permute(x, dims)?)]),
    };
    Ok(vec![("y", ops::permute_cast(x, dims, dtype)?)])
}
