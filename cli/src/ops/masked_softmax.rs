//! `masked_softmax` on the command line.

use warpwright::ops::masked_softmax::{Causal, Mask, MaskedSoftmax};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, optional};
use crate::bench;
use crate::demo;
use crate::error::{CliError, quoted};

const NAME: &str = "masked_softmax";
const MASKS: &str = "`keep`, `drop`, `bias`, or `lengths` and `starts`";

/// Those of the scale and of the causal limit.
pub const PARAMETERS: &[ParameterSpec] = &[
    ParameterSpec {
        name: "scale",
        kind: Kind::Number,
        default: "1",
        about: "what the scores are multiplied by",
    },
    ParameterSpec {
        name: "causal",
        kind: Kind::Bool,
        default: "false",
        about: "keep columns j <= q + causal_offset",
    },
    ParameterSpec {
        name: "causal_offset",
        kind: Kind::Integer,
        default: "K - Q",
        about: "with causal=true: 0 lets query q see keys 0..=q",
    },
];

pub static OP: Op = Op {
    name: NAME,
    summary: "softmax(scale*x + mask) over the last axis",
    dtypes: FLOATS,
    inputs: &[
        TensorSpec {
            name: "x",
            dtypes: "f32, f16 or bf16",
            shape: "[.., K]",
            required: true,
            about: "scores",
        },
        optional("keep", "u8 or bool", "[.., K]", "1 keeps a column; dimensions of 1 broadcast"),
        optional("drop", "u8 or bool", "[.., K]", "1 drops a column; dimensions of 1 broadcast"),
        optional("bias", "x's type or f32", "[.., K]", "added after scaling; dimensions of 1 broadcast"),
        optional("lengths", "i32", "[..]", "keep the columns before this one, per row"),
        optional("starts", "i32", "[..]", "keep the columns from this one on, per row"),
    ],
    outputs: &[TensorSpec {
        name: "y",
        dtypes: "x's type",
        shape: "[.., K]",
        required: true,
        about: "probabilities, 0 where masked",
    }],
    parameters: PARAMETERS,
    family: NAME,
    run,
    cases: demo::masked_softmax::cases,
    bench: bench::cases::masked_softmax::cases,
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let parameters = softmax(NAME, tensors, parameters, &["x"])?;
    Ok(vec![("y", warpwright::ops::masked_softmax(tensors.require("x")?, &parameters)?)])
}

/// The scale and the mask that were given to operation `op`, beside its `operands`.
pub fn softmax<'a>(
    op: &'static str,
    tensors: &'a Tensors,
    parameters: &Parameters,
    operands: &[&str],
) -> Result<MaskedSoftmax<'a>, CliError> {
    let causal = match (parameters.bool("causal"), parameters.integer("causal_offset")) {
        (Some(true), None) => Some(Causal::BottomRight),
        (Some(true), Some(offset)) => Some(Causal::Offset(offset)),
        (_, None) => None,
        (_, Some(_)) => {
            return Err(CliError::ParameterAlone { op, name: "causal_offset", needs: "causal=true" });
        }
    };
    let scale = parameters.number("scale").unwrap_or(1.0);
    Ok(MaskedSoftmax { scale, mask: mask(op, tensors, operands)?, causal })
}

fn mask<'a>(op: &'static str, tensors: &'a Tensors, operands: &[&str]) -> Result<Mask<'a>, CliError> {
    let [keep, drop, bias, lengths, starts] =
        ["keep", "drop", "bias", "lengths", "starts"].map(|name| tensors.get(name));
    match (keep, drop, bias, lengths, starts) {
        (None, None, None, None, None) => Ok(Mask::None),
        (Some(keep), None, None, None, None) => Ok(Mask::Keep(keep)),
        (None, Some(drop), None, None, None) => Ok(Mask::Drop(drop)),
        (None, None, Some(bias), None, None) => Ok(Mask::Bias(bias)),
        (None, None, None, lengths, starts) => Ok(Mask::Range { lengths, starts }),
        _ => {
            let got = quoted(tensors.names().filter(|name| !operands.contains(name)));
            Err(CliError::MaskConflict { op, masks: MASKS, got })
        }
    }
}
