//! `layer_norm`, `add_layer_norm` and their gradients on the command line.

use warpwright::ops::{
    self, AddLayerNorm, AddLayerNormBackward, AddLayerNormed, LayerNorm, LayerNormGradients, LayerNormed,
};
use warpwright::{Error, Tensor};

use super::dropout::{OFFSET, OPTIONAL_P, SEED, optional_dropout};
use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo::rows::{Function, cases};
use crate::error::CliError;

const DEFAULT_EPS: f32 = 1e-5;

/// ε, for all norms.
pub const EPS: ParameterSpec = ParameterSpec {
    name: "eps",
    kind: Kind::Number,
    default: "1e-5",
    about: "added to the variance or the mean square; positive",
};

/// The ε that was given.
pub fn eps(parameters: &Parameters) -> f32 {
    parameters.number(EPS.name).unwrap_or(DEFAULT_EPS)
}

const X: TensorSpec = tensor("x", "f32, f16 or bf16", "[.., N]", "any shape with a last dimension");
const WEIGHT: TensorSpec = optional("weight", "x's type", "[N]", "what columns are multiplied by");
const BIAS: TensorSpec = optional("bias", "x's type", "[N]", "what is added to columns");
const Y: TensorSpec = tensor("y", "x's type", "[.., N]", "x's shape");
const MEAN: TensorSpec = tensor("mean", "f32", "[..]", "of each row");
const RSTD: TensorSpec = tensor("rstd", "f32", "[..]", "1/sqrt(variance + eps) of each row");
const GRADIENTS: &[TensorSpec] = &[
    tensor("dx", "x's type", "[.., N]", "the gradient of x"),
    tensor("dweight", "x's type", "[N]", "the gradient of the weight"),
    tensor("dbias", "x's type", "[N]", "the gradient of the bias"),
];

const ADD_GRADIENTS: &[TensorSpec] = &[
    tensor("dx", "sum's type", "[.., N]", "the gradient of x"),
    tensor("dresidual", "sum's type", "[.., N]", "the gradient of the residual"),
    optional("dinput_bias", "sum's type", "[N]", "the gradient of the input's bias, where that is given"),
    tensor("dweight", "sum's type", "[N]", "the gradient of the weight"),
    tensor("dbias", "sum's type", "[N]", "the gradient of the bias"),
];

pub static OP: Op = Op {
    name: "layer_norm",
    summary: "(x - mean)/sqrt(variance + eps)*weight + bias over the last axis",
    dtypes: FLOATS,
    inputs: &[X, WEIGHT, BIAS],
    outputs: &[Y, MEAN, RSTD],
    parameters: &[EPS],
    family: "rows",
    run,
    cases: |setting| cases(setting, Function::LayerNorm),
    bench: |setting| bench::cases::rows::cases(setting, "layer_norm", Function::LayerNorm),
};

pub static BACKWARD: Op = Op {
    name: "layer_norm_backward",
    summary: "the gradients of layer_norm",
    dtypes: FLOATS,
    inputs: &[X, tensor("dy", "x's type", "[.., N]", "the gradient of y"), WEIGHT, MEAN, RSTD],
    outputs: GRADIENTS,
    parameters: &[],
    family: "rows",
    run: run_backward,
    cases: |setting| cases(setting, Function::LayerNormBackward),
    bench: |setting| bench::cases::rows::cases(setting, "layer_norm_backward", Function::LayerNormBackward),
};

pub static ADD: Op = Op {
    name: "add_layer_norm",
    summary: "dropout(x + input_bias) + residual, and its layer_norm",
    dtypes: FLOATS,
    inputs: &[
        X,
        tensor("residual", "x's type", "[.., N]", "what is added to x"),
        optional("input_bias", "x's type", "[N]", "what is added to x's columns"),
        WEIGHT,
        BIAS,
    ],
    outputs: &[tensor("sum", "x's type", "[.., N]", "what is normalised"), Y, MEAN, RSTD],
    parameters: &[EPS, OPTIONAL_P, SEED, OFFSET],
    family: "rows",
    run: run_add,
    cases: |setting| {
        let dropping = cases(setting, Function::AddLayerNormDropout);
        cases(setting, Function::AddLayerNorm).into_iter().chain(dropping).collect()
    },
    bench: |setting| {
        let of = |function| bench::cases::rows::cases(setting, "add_layer_norm", function);
        [of(Function::AddLayerNorm), of(Function::AddLayerNormDropout)].into_iter().flatten().collect()
    },
};

pub static ADD_BACKWARD: Op = Op {
    name: "add_layer_norm_backward",
    summary: "the gradients of add_layer_norm",
    dtypes: FLOATS,
    inputs: &[
        tensor("sum", "f32, f16 or bf16", "[.., N]", "what add_layer_norm gave"),
        tensor("dy", "sum's type", "[.., N]", "the gradient of y"),
        optional("dsum", "sum's type", "[.., N]", "a gradient that the sum gets from elsewhere"),
        optional("input_bias", "sum's type", "[N]", "what add_layer_norm got: asks for dinput_bias"),
        WEIGHT.of_types("sum's type"),
        MEAN,
        RSTD,
    ],
    outputs: ADD_GRADIENTS,
    parameters: &[OPTIONAL_P, SEED, OFFSET],
    family: "rows",
    run: run_add_backward,
    cases: |setting| cases(setting, Function::AddLayerNormBackward),
    bench: |setting| {
        bench::cases::rows::cases(setting, "add_layer_norm_backward", Function::AddLayerNormBackward)
    },
};

fn layer_norm<'a>(tensors: &'a Tensors, parameters: &Parameters) -> LayerNorm<'a> {
    LayerNorm { weight: tensors.get("weight"), bias: tensors.get("bias"), eps: eps(parameters) }
}

fn run(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let LayerNormed { y, mean, rstd } =
        ops::layer_norm(tensors.require("x")?, &layer_norm(tensors, parameters))?;
    Ok(vec![("y", y), ("mean", mean), ("rstd", rstd)])
}

fn run_add(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (x, residual) = (tensors.require("x")?, tensors.require("residual")?);
    let parameters = AddLayerNorm {
        input_bias: tensors.get("input_bias"),
        dropout: optional_dropout(ADD.name, parameters)?,
        norm: layer_norm(tensors, parameters),
    };
    let AddLayerNormed { sum, y, mean, rstd } = ops::add_layer_norm(x, residual, &parameters)?;
    Ok(vec![("sum", sum), ("y", y), ("mean", mean), ("rstd", rstd)])
}

fn gradients(LayerNormGradients { dx, dweight, dbias }: LayerNormGradients) -> Outputs {
    vec![("dx", dx), ("dweight", dweight), ("dbias", dbias)]
}

fn run_backward(tensors: &Tensors, _: &Parameters) -> Result<Outputs, CliError> {
    let (x, dy, weight) = (tensors.require("x")?, tensors.require("dy")?, tensors.get("weight"));
    let (mean, rstd) = (tensors.require("mean")?, tensors.require("rstd")?);
    Ok(gradients(ops::layer_norm_backward(x, dy, weight, mean, rstd)?))
}

fn run_add_backward(tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (sum, dy) = (tensors.require("sum")?, tensors.require("dy")?);
    let (mean, rstd) = (tensors.require("mean")?, tensors.require("rstd")?);
    let input_bias = tensors.get("input_bias");
    if let Some(given) = input_bias {
        is_a_row_of(given, sum)?;
    }
    let parameters = AddLayerNormBackward {
        dsum: tensors.get("dsum"),
        weight: tensors.get("weight"),
        dropout: optional_dropout(ADD_BACKWARD.name, parameters)?,
        input_bias: input_bias.is_some(),
    };
    let of = ops::add_layer_norm_backward(sum, dy, mean, rstd, &parameters)?;
    let dresidual = of.dresidual.unwrap_or_else(|| of.dx.clone());
    let dinput_bias = of.dinput_bias.map(|dinput_bias| ("dinput_bias", dinput_bias));
    let always = [("dx", of.dx), ("dresidual", dresidual), ("dweight", of.dweight), ("dbias", of.dbias)];
    Ok(always.into_iter().chain(dinput_bias).collect())
}

/// The bias itself is not needed for its gradient: all that can be asked of it is that it fits.
fn is_a_row_of(input_bias: &Tensor, sum: &Tensor) -> Result<(), Error> {
    let (op, arg) = (ADD_BACKWARD.name, "input_bias");
    let required = sum.shape().last().copied().into_iter().collect::<Vec<_>>();
    if input_bias.shape() != required {
        let (required, got) = (format!("{required:?}"), input_bias.shape().to_vec());
        return Err(Error::Shape { op, arg, required, got });
    }
    if input_bias.dtype() != sum.dtype() {
        let (required, got) = (format!("{}, as `sum` is", sum.dtype()), input_bias.dtype());
        return Err(Error::DType { op, arg, required, got });
    }
    Ok(())
}
