//! `masked_softmax` on the command line.

use warpwright::ops::masked_softmax::{Causal, Mask, MaskedSoftmax, PackedKeys};

use super::dropout::{OFFSET, OPTIONAL_P, SEED, optional_dropout};
use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo;
use crate::demo::rows::Function;
use crate::error::{CliError, quoted};

const NAME: &str = "masked_softmax";
const MASKS: &str = "`keep`, `drop`, `bias`, `cu_seqlens`, or `lengths` and `starts`";
/// Those of an operation without packed sequences.
const DENSE_MASKS: &str = "`keep`, `drop`, `bias`, or `lengths` and `starts`";

const SCALE: ParameterSpec = ParameterSpec {
    name: "scale",
    kind: Kind::Number,
    default: "1",
    about: "what the scores are multiplied by",
};
const CAUSAL: ParameterSpec = ParameterSpec {
    name: "causal",
    kind: Kind::Bool,
    default: "false",
    about: "keep columns j <= q + causal_offset",
};
const CAUSAL_OFFSET: ParameterSpec = ParameterSpec {
    name: "causal_offset",
    kind: Kind::Integer,
    default: "K - Q",
    about: "with causal=true: 0 lets query q see keys 0..=q",
};

/// Those of the scale and of the causal limit.
pub const PARAMETERS: &[ParameterSpec] = &[SCALE, CAUSAL, CAUSAL_OFFSET];

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
        optional("cu_seqlens", "i32 or i64", "[sequences + 1]", "keep the columns of the row's own sequence"),
    ],
    outputs: &[
        tensor(
            "y",
            "x's type",
            "[.., K]",
            "probabilities, 0 where masked; with p, what dropout leaves of them",
        ),
        optional("probabilities", "x's type", "[.., K]", "with p, the probabilities before dropout"),
    ],
    parameters: &[
        SCALE,
        CAUSAL,
        CAUSAL_OFFSET,
        ParameterSpec {
            name: "packed_keys",
            kind: Kind::Bool,
            default: "false",
            about: "with cu_seqlens: columns are all sequences' tokens, packed as rows are",
        },
        OPTIONAL_P,
        SEED,
        OFFSET,
    ],
    family: NAME,
    run,
    cases: |setting| {
        let dropping = demo::rows::cases(setting, Function::SoftmaxDropout);
        demo::masked_softmax::cases(setting).into_iter().chain(dropping).collect()
    },
    bench: |setting| {
        let dropping = bench::cases::rows::cases(setting, NAME, Function::SoftmaxDropout);
        bench::cases::masked_softmax::cases(setting).into_iter().chain(dropping).collect()
    },
};

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let dropout = optional_dropout(NAME, parameters)?;
    let (x, parameters) = (tensors.require("x")?, softmax(NAME, tensors, parameters, &["x"])?);
    match dropout {
        None => Ok(vec![("y", warpwright::ops::masked_softmax(x, &parameters)?)]),
        Some(dropout) => {
            let of = warpwright::ops::masked_softmax_dropout(x, &parameters, dropout)?;
            Ok(vec![("y", of.y), ("probabilities", of.probabilities)])
        }
    }
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
    Ok(MaskedSoftmax { scale, mask: mask(op, tensors, operands, parameters.bool("packed_keys"))?, causal })
}

fn mask<'a>(
    op: &'static str,
    tensors: &'a Tensors,
    operands: &[&str],
    packed_keys: Option<bool>,
) -> Result<Mask<'a>, CliError> {
    let conflict = || {
        let got = quoted(tensors.names().filter(|name| !operands.contains(name)));
        let masks = if op == NAME { MASKS } else { DENSE_MASKS };
        Err(CliError::MaskConflict { op, masks, got })
    };
    let masks = ["keep", "drop", "bias", "lengths", "starts"].map(|name| tensors.get(name));
    if let Some(cu_seqlens) = tensors.get("cu_seqlens") {
        let keys = if packed_keys == Some(true) { PackedKeys::Packed } else { PackedKeys::Padded };
        let alone = masks.iter().all(Option::is_none);
        return if alone { Ok(Mask::Packed { cu_seqlens, keys }) } else { conflict() };
    }
    if packed_keys.is_some() {
        return Err(CliError::ParameterAlone { op, name: "packed_keys", needs: "cu_seqlens" });
    }
    let [keep, drop, bias, lengths, starts] = masks;
    match (keep, drop, bias, lengths, starts) {
        (None, None, None, None, None) => Ok(Mask::None),
        (Some(keep), None, None, None, None) => Ok(Mask::Keep(keep)),
        (None, Some(drop), None, None, None) => Ok(Mask::Drop(drop)),
        (None, None, Some(bias), None, None) => Ok(Mask::Bias(bias)),
        (None, None, None, lengths, starts) => Ok(Mask::Range { lengths, starts }),
        _ => conflict(),
    }
}
