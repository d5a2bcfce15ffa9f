//! `embedding` and `embedding_backward` on the command line.

use warpwright::ops::{self, Positions};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, tensor};
use crate::bench;
use crate::demo;
use crate::error::CliError;

const NAME: &str = "embedding";
const BACKWARD_NAME: &str = "embedding_backward";

const TOKENS: TensorSpec = tensor("tokens", "u32, i32 or i64", "[B, T] or [T]", "rows of wte");
const WPE: TensorSpec = TensorSpec {
    name: "wpe",
    dtypes: "wte's type",
    shape: "[P, C]",
    required: false,
    about: "a row for each position, added",
};
const CU_SEQLENS: TensorSpec = TensorSpec {
    name: "cu_seqlens",
    dtypes: "i32 or i64",
    shape: "[sequences + 1]",
    required: false,
    about: "with wpe and tokens [T]: where packed sequences begin, and the last ends",
};
const PARAMETERS: &[ParameterSpec] = &[ParameterSpec {
    name: "position_offset",
    kind: Kind::Unsigned,
    default: "0",
    about: "with wpe: the position of the first step",
}];

pub static OP: Op = Op {
    name: NAME,
    summary: "wte[token] + wpe[position]: rows of tables, chosen by tokens",
    dtypes: FLOATS,
    inputs: &[TOKENS, tensor("wte", "f32, f16 or bf16", "[V, C]", "a row for each token"), WPE, CU_SEQLENS],
    outputs: &[tensor("y", "wte's type", "[B, T, C] or [T, C]", "a row for each token")],
    parameters: PARAMETERS,
    family: NAME,
    run,
    cases: demo::embedding::cases,
    bench: bench::cases::embedding::cases,
};

pub static BACKWARD: Op = Op {
    name: BACKWARD_NAME,
    summary: "the gradients of embedding's tables, the same bits every time",
    dtypes: FLOATS,
    inputs: &[
        TOKENS,
        tensor("dy", "wte's type", "[B, T, C] or [T, C]", "the gradient of y"),
        tensor("wte", "f32, f16 or bf16", "[V, C]", "for its shape"),
        TensorSpec { about: "for its shape", ..WPE },
        CU_SEQLENS,
    ],
    outputs: &[
        tensor("dwte", "wte's type", "[V, C]", "for each row the sum of dy over its tokens"),
        TensorSpec {
            name: "dwpe",
            dtypes: "wte's type",
            shape: "[P, C]",
            required: false,
            about: "with wpe: for each position the sum of dy over the sequences",
        },
    ],
    parameters: PARAMETERS,
    family: NAME,
    run: run_backward,
    cases: demo::embedding::backward_cases,
    bench: bench::cases::embedding::backward_cases,
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let positions = positions(NAME, tensors, parameters)?;
    Ok(vec![("y", ops::embedding(tensors.require("tokens")?, tensors.require("wte")?, positions)?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let positions = positions(BACKWARD_NAME, tensors, parameters)?;
    let [tokens, dy, wte] = [tensors.require("tokens")?, tensors.require("dy")?, tensors.require("wte")?];
    let (dwte, dwpe) = ops::embedding_backward(tokens, dy, wte, positions)?;
    Ok([("dwte", dwte)].into_iter().chain(dwpe.map(|dwpe| ("dwpe", dwpe))).collect())
}

fn positions<'a>(
    op: &'static str,
    tensors: &'a Tensors,
    parameters: &Parameters,
) -> Result<Option<Positions<'a>>, CliError> {
    let (cu_seqlens, offset) = (tensors.get("cu_seqlens"), parameters.count("position_offset"));
    if let Some(wpe) = tensors.get("wpe") {
        return Ok(Some(Positions { wpe, offset: offset.unwrap_or(0), cu_seqlens }));
    }
    if offset.is_some() {
        return Err(CliError::ParameterAlone { op, name: "position_offset", needs: "wpe" });
    }
    match cu_seqlens {
        Some(_) => tensors.require("wpe").map(|_| None),
        None => Ok(None),
    }
}
