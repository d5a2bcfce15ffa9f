//! `embedding` on the command line.

use warpwright::ops::{self, Positions};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, tensor};
use crate::bench;
use crate::demo;
use crate::error::CliError;

const NAME: &str = "embedding";

pub static OP: Op = Op {
    name: NAME,
    summary: "wte[token] + wpe[position]: rows of tables, chosen by tokens",
    dtypes: FLOATS,
    inputs: &[
        tensor("tokens", "u32, i32 or i64", "[B, T] or [T]", "rows of wte"),
        tensor("wte", "f32, f16 or bf16", "[V, C]", "a row for each token"),
        TensorSpec {
            name: "wpe",
            dtypes: "wte's type",
            shape: "[P, C]",
            required: false,
            about: "a row for each position, added",
        },
    ],
    outputs: &[tensor("y", "wte's type", "[B, T, C] or [T, C]", "a row for each token")],
    parameters: &[ParameterSpec {
        name: "position_offset",
        kind: Kind::Unsigned,
        default: "0",
        about: "with wpe: the position of the first step",
    }],
    family: NAME,
    run,
    cases: demo::embedding::cases,
    bench: bench::cases::embedding::cases,
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let positions = match (tensors.get("wpe"), parameters.unsigned("position_offset")) {
        // An offset that no table reaches stays one.
        (Some(wpe), offset) => {
            Some(Positions { wpe, offset: usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX) })
        }
        (None, None) => None,
        (None, Some(_)) => {
            return Err(CliError::ParameterAlone {
                op: NAME,
                name: "position_offset",
                needs: "a tensor `wpe`",
            });
        }
    };
    Ok(vec![("y", ops::embedding(tensors.require("tokens")?, tensors.require("wte")?, positions)?)])
}
