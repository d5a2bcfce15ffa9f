//! `attention_scores` on the command line.

use warpwright::ops;

use super::masked_softmax::{PARAMETERS, softmax};
use super::parameters::Parameters;
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, optional, tensor};
use crate::bench;
use crate::demo;
use crate::demo::products::Function;
use crate::error::CliError;

const NAME: &str = "attention_scores";
const FUNCTIONS: &[Function] = &[Function::AttentionScores];

pub static OP: Op = Op {
    name: NAME,
    summary: "softmax(scale*q*k^T + mask)",
    dtypes: FLOATS,
    inputs: &[
        tensor("q", "f32, f16 or bf16", "[.., S, D]", "queries"),
        tensor("k", "q's type", "[.., T, D]", "keys"),
        optional("keep", "u8 or bool", "[.., S, T]", "1 keeps a column; dimensions of 1 broadcast"),
        optional("drop", "u8 or bool", "[.., S, T]", "1 drops a column; dimensions of 1 broadcast"),
        optional("bias", "q's type or f32", "[.., S, T]", "added after scaling; dimensions of 1 broadcast"),
        optional("lengths", "i32", "[.., S]", "keep the columns before this one, per row"),
        optional("starts", "i32", "[.., S]", "keep the columns from this one on, per row"),
    ],
    outputs: &[tensor(
        "y",
        "q's type",
        "[.., S, T]",
        "probabilities, 0 where masked; where no kernel takes both steps (explain tells) scores are rounded in between",
    )],
    parameters: PARAMETERS,
    family: NAME,
    run,
    cases: |setting| demo::products::cases(setting, FUNCTIONS),
    bench: bench::cases::attention_scores::cases,
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let parameters = softmax(NAME, tensors, parameters, &["q", "k"])?;
    Ok(vec![("y", ops::attention_scores(tensors.require("q")?, tensors.require("k")?, &parameters)?)])
}
