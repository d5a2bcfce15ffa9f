//! `cross_entropy` and `cross_entropy_backward` on the command line.

use warpwright::ops::{self, CrossEntropy, CrossEntropyGradient, Reduction};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo;
use crate::error::CliError;

const X: TensorSpec = tensor("x", "f32, f16 or bf16", "[.., V]", "logits");
const TARGET: TensorSpec = tensor("target", "i32 or i64", "[..]", "the class of each row");
const LOSS: TensorSpec = tensor("loss", "f32", "[] or [..]", "one, or one of each row");

const PARAMETERS: &[ParameterSpec] = &[
    ParameterSpec {
        name: "ignore_index",
        kind: Kind::Integer,
        default: "-100",
        about: "the target of rows that do not count",
    },
    ParameterSpec {
        name: "reduction",
        kind: Kind::Word(&["mean", "sum", "none"], "mean, sum or none"),
        default: "mean",
        about: "how the losses of rows become one",
    },
];

pub static OP: Op = Op {
    name: "cross_entropy",
    summary: "log(sum of exp(x)) - x[target] over the last axis",
    dtypes: FLOATS,
    inputs: &[X, TARGET],
    outputs: &[LOSS],
    parameters: PARAMETERS,
    family: "masked_softmax",
    run,
    cases: |setting| demo::cross_entropy::cases(setting, false),
    bench: |setting| bench::cases::cross_entropy::cases(setting, false),
};

pub static BACKWARD: Op = Op {
    name: "cross_entropy_backward",
    summary: "the loss, and dloss*(softmax(x) - one_hot(target)), from one reading of x",
    dtypes: FLOATS,
    inputs: &[X, TARGET, optional("dloss", "f32", "as loss", "the gradient of the loss; 1 where absent")],
    outputs: &[LOSS, tensor("dx", "x's type", "[.., V]", "the gradient of x")],
    parameters: PARAMETERS,
    family: "masked_softmax",
    run: run_backward,
    cases: |setting| demo::cross_entropy::cases(setting, true),
    bench: |setting| bench::cases::cross_entropy::cases(setting, true),
};

fn parse(parameters: &Parameters) -> CrossEntropy {
    let default = CrossEntropy::default();
    CrossEntropy {
        ignore_index: parameters.integer("ignore_index").map_or(default.ignore_index, i64::from),
        reduction: match parameters.word("reduction") {
            Some("sum") => Reduction::Sum,
            Some("none") => Reduction::None,
            _ => Reduction::Mean,
        },
    }
}

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, target) = (tensors.require("x")?, tensors.require("target")?);
    Ok(vec![("loss", ops::cross_entropy(x, target, &parse(parameters))?)])
}

fn run_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, target) = (tensors.require("x")?, tensors.require("target")?);
    let CrossEntropyGradient { loss, dx } =
        ops::cross_entropy_backward(x, target, tensors.get("dloss"), &parse(parameters))?;
    Ok(vec![("loss", loss), ("dx", dx)])
}
