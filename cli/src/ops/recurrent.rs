//! `gru`, `lstm`, their cells and all gradients on the command line.

use std::sync::LazyLock;

use warpwright::ops::recurrent::{inner_name, weight_name};
use warpwright::ops::{
    self, CellGradients, LayerGradients, LstmState, PointwiseGradients, Recurred, Recurrent,
    RecurrentGradients, RecurrentKind, RecurrentWeights, Upstream,
};

use super::parameters::{Kind, ParameterSpec, Parameters};
use super::tensors::Tensors;
use super::{FLOATS, MOST_LAYERS, Op, Outputs, TensorSpec, optional, tensor};
use crate::bench;
use crate::demo;
use crate::demo::recurrent::Function;
use crate::error::CliError;

/// The names of a layer's and direction's weights, and of their gradients.
struct Names {
    inputs: [&'static str; 4],
    gradients: [&'static str; 4],
}

/// Layer by layer, forward first: PyTorch's, the first layer's without a number.
static NAMES: LazyLock<Vec<Names>> = LazyLock::new(|| {
    let places = (0..MOST_LAYERS).flat_map(|layer| [(layer, false), (layer, true)]);
    places
        .map(|(layer, reverse)| {
            let name = |weight: &str| weight_name(weight, layer, reverse);
            let weights = ["w_ih", "w_hh", "b_ih", "b_hh"];
            Names { inputs: weights.map(name), gradients: weights.map(|weight| name(&format!("d{weight}"))) }
        })
        .collect()
});

/// The names of the results of the layers before the last.
static INNER: LazyLock<Vec<&'static str>> = LazyLock::new(|| (0..MOST_LAYERS - 1).map(inner_name).collect());

const X: TensorSpec = tensor("x", "f32, f16 or bf16", "[T, B, I]", "the input of each step");
const X_OF_CELL: TensorSpec = tensor("x", "f32, f16 or bf16", "[B, I]", "the input");
const H: TensorSpec = tensor("h", "x's type", "[B, H]", "the hidden state");
const C: TensorSpec = tensor("c", "x's type", "[B, H]", "the cell's state");
const W_IH: TensorSpec =
    tensor("w_ih", "x's type", "[G·H, I]", "the weight of x; G gates: GRU r z n, LSTM i f g o");
const W_HH: TensorSpec = tensor("w_hh", "x's type", "[G·H, H]", "the weight of h");
const B_IH: TensorSpec = optional("b_ih", "x's type", "[G·H]", "the bias of x's product");
const B_HH: TensorSpec = optional("b_hh", "x's type", "[G·H]", "the bias of h's product");
const LENGTHS: TensorSpec = optional("lengths", "i32", "[B]", "the steps of each row; T where absent");
const H0: TensorSpec = optional(
    "h0",
    "x's type",
    "[B, H] of one layer and direction, else [L·D, B, H]",
    "the first h; zeros where absent",
);
const C0: TensorSpec = optional(
    "c0",
    "x's type",
    "[B, H] of one layer and direction, else [L·D, B, H]",
    "the first c; zeros where absent",
);
const GX: TensorSpec = tensor("gx", "f32, f16 or bf16", "[B, G·H]", "x·w_ihᵀ + b_ih");
const GH: TensorSpec = tensor("gh", "gx's type", "[B, G·H]", "h·w_hhᵀ + b_hh");
const DH: TensorSpec = tensor("dh", "x's type", "[B, H]", "the gradient of the next h");
const DC: TensorSpec = optional("dc", "x's type", "[B, H]", "the gradient of the next c; 0 where absent");
const H_NEXT: TensorSpec = tensor("h_next", "x's type", "[B, H]", "the next hidden state");
const C_NEXT: TensorSpec = tensor("c_next", "x's type", "[B, H]", "the cell's next state");
const Y: TensorSpec = tensor("y", "x's type", "[T, B, D·H]", "h of the last layer after each step");
const Y_L0: TensorSpec = optional(
    "y_l0",
    "x's type",
    "[T, B, D·H]",
    "h of the first of several layers, in this order with batch_first, too",
);
const Y_INNER: TensorSpec = optional(
    "y_l{N}",
    "x's type",
    "[T, B, D·H]",
    "h of layer N = 1, 2, .. where more follow, in this order with batch_first, too",
);
const H_N: TensorSpec = tensor(
    "h_n",
    "x's type",
    "[B, H] of one layer and direction, else [L·D, B, H]",
    "h after each row's last step",
);
const C_N: TensorSpec = tensor(
    "c_n",
    "x's type",
    "[B, H] of one layer and direction, else [L·D, B, H]",
    "c after each row's last step",
);
const DY: TensorSpec = optional("dy", "x's type", "[T, B, D·H]", "the gradient of y; 0 where absent");
const DH_N: TensorSpec = optional("dh_n", "x's type", "as h_n", "the gradient of h_n; 0 where absent");
const DC_N: TensorSpec = optional("dc_n", "x's type", "as c_n", "the gradient of c_n; 0 where absent");
const DX: TensorSpec = tensor("dx", "x's type", "as x", "the gradient of x");
const DH0: TensorSpec = tensor("dh0", "x's type", "as h0", "the gradient of h0");
const DC0: TensorSpec = tensor("dc0", "x's type", "as c0", "the gradient of c0");
/// As of an operation whose first tensor is gx.
const fn of_gx(spec: TensorSpec) -> TensorSpec {
    spec.of_types("gx's type")
}

const DH_OUT: TensorSpec = tensor("dh", "x's type", "[B, H]", "the gradient of h");
const DC_OUT: TensorSpec = tensor("dc", "x's type", "[B, H]", "the gradient of c");

/// The weights of the direction from the end, and of further layers.
macro_rules! more_weights {
    ($($first:expr),* $(,)?) => {
        &[
            $($first,)*
            optional("w_ih_reverse", "x's type", "[G·H, I]", "the weights of the direction from the end"),
            optional("w_hh_reverse", "x's type", "[G·H, H]", ""),
            optional("b_ih_reverse", "x's type", "[G·H]", ""),
            optional("b_hh_reverse", "x's type", "[G·H]", ""),
            optional("w_ih_l{N}", "x's type", "[G·H, D·H]", "the weights of further layers, N = 1, 2, .."),
            optional("w_hh_l{N}", "x's type", "[G·H, H]", ""),
            optional("b_ih_l{N}", "x's type", "[G·H]", ""),
            optional("b_hh_l{N}", "x's type", "[G·H]", ""),
            optional("w_ih_l{N}_reverse", "x's type", "[G·H, D·H]", "theirs from the end"),
            optional("w_hh_l{N}_reverse", "x's type", "[G·H, H]", ""),
            optional("b_ih_l{N}_reverse", "x's type", "[G·H]", ""),
            optional("b_hh_l{N}_reverse", "x's type", "[G·H]", ""),
        ]
    };
}

macro_rules! gradients {
    ($($first:expr),* $(,)?) => {
        &[
            $($first,)*
            tensor("dw_ih", "x's type", "[G·H, I]", "the gradient of w_ih; likewise of all other weights"),
            tensor("dw_hh", "x's type", "[G·H, H]", "the gradient of w_hh"),
            optional("db_ih", "x's type", "[G·H]", "the gradient of b_ih"),
            optional("db_hh", "x's type", "[G·H]", "the gradient of b_hh"),
        ]
    };
}

const BATCH_FIRST: ParameterSpec = ParameterSpec {
    name: "batch_first",
    kind: Kind::Bool,
    default: "false",
    about: "whether x and y are [B, T, ..]",
};

macro_rules! op {
    ($ident:ident, $name:literal, $summary:literal, $function:ident, $inputs:expr, $outputs:expr, $parameters:expr, $run:expr) => {
        pub static $ident: Op = Op {
            name: $name,
            summary: $summary,
            dtypes: FLOATS,
            inputs: $inputs,
            outputs: $outputs,
            parameters: $parameters,
            family: "recurrent",
            run: $run,
            cases: |setting| demo::recurrent::cases(setting, Function::$function),
            bench: |setting| bench::cases::recurrent::cases(setting, $name, Function::$function),
        };
    };
}

op!(
    GRU_CELL,
    "gru_cell",
    "one step of a gated recurrent unit, with both products",
    GruCell,
    &[X_OF_CELL, H, W_IH, W_HH, B_IH, B_HH],
    &[H_NEXT],
    &[],
    |tensors, _| {
        let next = ops::gru_cell(tensors.require("x")?, tensors.require("h")?, &weights(tensors, 0)?)?;
        Ok(vec![("h_next", next)])
    }
);
op!(
    LSTM_CELL,
    "lstm_cell",
    "one step of a long short-term memory, with both products",
    LstmCell,
    &[X_OF_CELL, H, C, W_IH, W_HH, B_IH, B_HH],
    &[H_NEXT, C_NEXT],
    &[],
    |tensors, _| {
        let (x, h, c) = (tensors.require("x")?, tensors.require("h")?, tensors.require("c")?);
        Ok(both(ops::lstm_cell(x, h, c, &weights(tensors, 0)?)?))
    }
);
op!(
    GRU_POINTWISE,
    "gru_cell_pointwise",
    "one step of a GRU for given gates' inputs",
    GruPointwise,
    &[GX, GH, of_gx(H)],
    &[of_gx(H_NEXT)],
    &[],
    |tensors, _| {
        let (gx, gh, h) = (tensors.require("gx")?, tensors.require("gh")?, tensors.require("h")?);
        Ok(vec![("h_next", ops::gru_cell_pointwise(gx, gh, h)?)])
    }
);
op!(
    LSTM_POINTWISE,
    "lstm_cell_pointwise",
    "one step of an LSTM for given gates' inputs",
    LstmPointwise,
    &[GX, GH, of_gx(C)],
    &[of_gx(H_NEXT), of_gx(C_NEXT)],
    &[],
    |tensors, _| {
        let (gx, gh, c) = (tensors.require("gx")?, tensors.require("gh")?, tensors.require("c")?);
        Ok(both(ops::lstm_cell_pointwise(gx, gh, c)?))
    }
);
op!(
    GRU_CELL_BACKWARD,
    "gru_cell_backward",
    "the gradients of gru_cell",
    GruCellBackward,
    &[X_OF_CELL, H, W_IH, W_HH, B_IH, B_HH, DH],
    gradients![DX, DH_OUT],
    &[],
    |tensors, _| {
        let (x, h, dh) = (tensors.require("x")?, tensors.require("h")?, tensors.require("dh")?);
        Ok(of_cell(ops::gru_cell_backward(x, h, &weights(tensors, 0)?, dh)?))
    }
);
op!(
    LSTM_CELL_BACKWARD,
    "lstm_cell_backward",
    "the gradients of lstm_cell",
    LstmCellBackward,
    &[X_OF_CELL, H, C, W_IH, W_HH, B_IH, B_HH, DH, DC],
    gradients![DX, DH_OUT, DC_OUT],
    &[],
    |tensors, _| {
        let (x, h, c) = (tensors.require("x")?, tensors.require("h")?, tensors.require("c")?);
        let (dh, dc) = (tensors.require("dh")?, tensors.get("dc"));
        Ok(of_cell(ops::lstm_cell_backward(x, h, c, &weights(tensors, 0)?, dh, dc)?))
    }
);
op!(
    GRU_POINTWISE_BACKWARD,
    "gru_cell_pointwise_backward",
    "the gradients of gru_cell_pointwise",
    GruPointwiseBackward,
    &[GX, GH, of_gx(H), of_gx(DH)],
    &[
        tensor("dgx", "gx's type", "[B, G·H]", "the gradient of gx"),
        tensor("dgh", "gx's type", "[B, G·H]", "the gradient of gh"),
        tensor("dh", "gx's type", "[B, H]", "the gradient of h, but for what comes through gh"),
    ],
    &[],
    |tensors, _| {
        let (gx, gh, h) = (tensors.require("gx")?, tensors.require("gh")?, tensors.require("h")?);
        let PointwiseGradients { dgx, dgh, dstate } =
            ops::gru_cell_pointwise_backward(gx, gh, h, tensors.require("dh")?)?;
        Ok(vec![("dgx", dgx), ("dgh", dgh), ("dh", dstate)])
    }
);
op!(
    LSTM_POINTWISE_BACKWARD,
    "lstm_cell_pointwise_backward",
    "the gradients of lstm_cell_pointwise",
    LstmPointwiseBackward,
    &[GX, GH, of_gx(C), of_gx(DH), of_gx(DC)],
    &[tensor("dgx", "gx's type", "[B, G·H]", "the gradient of gx, and of gh"), of_gx(DC_OUT)],
    &[],
    |tensors, _| {
        let (gx, gh, c) = (tensors.require("gx")?, tensors.require("gh")?, tensors.require("c")?);
        let PointwiseGradients { dgx, dstate, .. } =
            ops::lstm_cell_pointwise_backward(gx, gh, c, tensors.require("dh")?, tensors.get("dc"))?;
        Ok(vec![("dgx", dgx), ("dc", dstate)])
    }
);
op!(
    GRU,
    "gru",
    "a gated recurrent unit over a sequence; layers, both directions, lengths",
    Gru,
    more_weights![X, W_IH, W_HH, B_IH, B_HH, H0, LENGTHS],
    &[Y, H_N, Y_L0, Y_INNER],
    &[BATCH_FIRST, super::matmul::TF32],
    |tensors, parameters| sequence(RecurrentKind::Gru, tensors, parameters)
);
op!(
    LSTM,
    "lstm",
    "a long short-term memory over a sequence; layers, both directions, lengths",
    Lstm,
    more_weights![X, W_IH, W_HH, B_IH, B_HH, H0, C0, LENGTHS],
    &[Y, H_N, C_N, Y_L0, Y_INNER],
    &[BATCH_FIRST, super::matmul::TF32],
    |tensors, parameters| sequence(RecurrentKind::Lstm, tensors, parameters)
);
op!(
    GRU_BACKWARD,
    "gru_backward",
    "the gradients of gru",
    GruBackward,
    more_weights![X, Y, Y_L0, Y_INNER, W_IH, W_HH, B_IH, B_HH, H0, LENGTHS, DY, DH_N],
    gradients![DX, DH0],
    &[BATCH_FIRST, super::matmul::TF32],
    |tensors, parameters| sequence_backward(RecurrentKind::Gru, tensors, parameters)
);
op!(
    LSTM_BACKWARD,
    "lstm_backward",
    "the gradients of lstm",
    LstmBackward,
    more_weights![X, Y, Y_L0, Y_INNER, W_IH, W_HH, B_IH, B_HH, H0, C0, LENGTHS, DY, DH_N, DC_N],
    gradients![DX, DH0, DC0],
    &[BATCH_FIRST, super::matmul::TF32],
    |tensors, parameters| sequence_backward(RecurrentKind::Lstm, tensors, parameters)
);

/// The weights of a place in [`NAMES`].
fn weights(tensors: &Tensors, place: usize) -> Result<RecurrentWeights<'_>, CliError> {
    let [w_ih, w_hh, b_ih, b_hh] = NAMES[place].inputs;
    Ok(RecurrentWeights {
        w_ih: tensors.require(w_ih)?,
        w_hh: tensors.require(w_hh)?,
        b_ih: tensors.get(b_ih),
        b_hh: tensors.get(b_hh),
    })
}

fn both(LstmState { h, c }: LstmState) -> Outputs {
    vec![("h_next", h), ("c_next", c)]
}

fn of_layer(place: usize, of: LayerGradients) -> Outputs {
    let [dw_ih, dw_hh, db_ih, db_hh] = NAMES[place].gradients;
    let biases = [(db_ih, of.db_ih), (db_hh, of.db_hh)];
    let biases = biases.into_iter().filter_map(|(name, bias)| bias.map(|bias| (name, bias)));
    [(dw_ih, of.dw_ih), (dw_hh, of.dw_hh)].into_iter().chain(biases).collect()
}

fn of_cell(CellGradients { dx, dh, dc, weights }: CellGradients) -> Outputs {
    let states = [("dx", Some(dx)), ("dh", Some(dh)), ("dc", dc)];
    let states = states.into_iter().filter_map(|(name, state)| state.map(|state| (name, state)));
    states.chain(of_layer(0, weights)).collect()
}

/// The places in [`NAMES`] of a network, which its tensors tell: as many layers, and a second direction, as one of them has a
/// tensor of.
fn places(tensors: &Tensors) -> (Vec<usize>, bool) {
    let has = |place: usize| NAMES[place].inputs.iter().any(|name| tensors.get(name).is_some());
    let there: Vec<usize> = (0..NAMES.len()).filter(|&place| has(place)).collect();
    let bidirectional = there.iter().any(|place| place % 2 == 1);
    let layers = there.last().map_or(1, |place| place / 2 + 1);
    let of_layer =
        |layer: usize| if bidirectional { vec![2 * layer, 2 * layer + 1] } else { vec![2 * layer] };
    ((0..layers).flat_map(of_layer).collect(), bidirectional)
}

fn recurrent<'a>(
    tensors: &'a Tensors,
    parameters: &Parameters,
    layers: &'a [RecurrentWeights<'a>],
    bidirectional: bool,
) -> Recurrent<'a> {
    Recurrent {
        bidirectional,
        batch_first: parameters.bool(BATCH_FIRST.name).unwrap_or(false),
        tf32: super::matmul::tf32(parameters),
        h0: tensors.get("h0"),
        c0: tensors.get("c0"),
        lengths: tensors.get("lengths"),
        ..Recurrent::new(layers)
    }
}

fn sequence(kind: RecurrentKind, tensors: &Tensors, parameters: &Parameters) -> Result<Outputs, CliError> {
    let (places, bidirectional) = places(tensors);
    let layers = places.iter().map(|&place| weights(tensors, place)).collect::<Result<Vec<_>, _>>()?;
    let (x, of) = (tensors.require("x")?, recurrent(tensors, parameters, &layers, bidirectional));
    let Recurred { y, h_n, c_n, inner, .. } = match kind {
        RecurrentKind::Gru => ops::gru(x, &of)?,
        RecurrentKind::Lstm => ops::lstm(x, &of)?,
    };
    let mut outputs = vec![("y", y), ("h_n", h_n)];
    outputs.extend(c_n.map(|c_n| ("c_n", c_n)));
    outputs.extend(INNER.iter().copied().zip(inner));
    Ok(outputs)
}

fn sequence_backward(
    kind: RecurrentKind,
    tensors: &Tensors,
    parameters: &Parameters,
) -> Result<Outputs, CliError> {
    let (places, bidirectional) = places(tensors);
    let layers = places.iter().map(|&place| weights(tensors, place)).collect::<Result<Vec<_>, _>>()?;
    let (x, of) = (tensors.require("x")?, recurrent(tensors, parameters, &layers, bidirectional));
    let y = tensors.require("y")?.clone();
    // A layer has one place, or two.
    let count = places.len() / (1 + usize::from(bidirectional));
    let (below_last, others) = INNER.split_at(count - 1);
    if let Some((name, given)) = others.iter().find_map(|&name| Some((name, tensors.get(name)?))) {
        let layers = if count == 1 { "one layer".to_owned() } else { format!("{count} layers") };
        let (why, got) = (format!("with the weights of {layers}"), given.shape().to_vec());
        return Err(CliError::UnwantedTensor { op: tensors.op(), name, why, got });
    }
    let inner = below_last.iter().map(|&name| tensors.require(name).cloned()).collect::<Result<_, _>>()?;
    // Of the results, the gradients need y alone.
    let results = Recurred { h_n: y.clone(), y, c_n: None, inner, kept: Vec::new() };
    let upstream = Upstream { dy: tensors.get("dy"), dh_n: tensors.get("dh_n"), dc_n: tensors.get("dc_n") };
    let RecurrentGradients { dx, dh0, dc0, layers } = match kind {
        RecurrentKind::Gru => ops::gru_backward(x, &of, &results, &upstream)?,
        RecurrentKind::Lstm => ops::lstm_backward(x, &of, &results, &upstream)?,
    };
    let mut outputs = vec![("dx", dx), ("dh0", dh0)];
    outputs.extend(dc0.map(|dc0| ("dc0", dc0)));
    for (place, layer) in places.into_iter().zip(layers) {
        outputs.extend(of_layer(place, layer));
    }
    Ok(outputs)
}
