//! What is asked: the checked operands.

use super::names::weight_name;
use super::{Kind, Recurrent, RecurrentWeights};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::masked_softmax::Described;
use crate::ops::matmul::within_limit;
use crate::ops::pointwise::{contiguous, float, on_device, reach, typed};
use crate::tensor::Desc;

fn shape(op: &'static str, arg: &'static str, required: impl Into<String>, desc: &Desc) -> Error {
    Error::Shape { op, arg, required: required.into(), got: desc.shape().to_vec() }
}

/// Wants x's type and device, and a shape.
pub fn operand(op: &'static str, arg: &'static str, desc: &Desc, x: &Desc, wanted: &[usize]) -> Result<()> {
    if desc.dtype() != x.dtype() {
        return Err(Error::DType { op, arg, required: x.dtype().to_string(), got: desc.dtype() });
    }
    if desc.shape() != wanted {
        return Err(shape(op, arg, format!("{wanted:?}"), desc));
    }
    on_device(op, arg, desc, x)?;
    reach(op, arg, desc)
}

/// H of weights for `input` columns of x, which other layers may have given.
pub fn weights<D: Described>(
    op: &'static str,
    kind: Kind,
    of: &RecurrentWeights<D>,
    x: &Desc,
    input: usize,
    given: Option<usize>,
) -> Result<usize> {
    let of = of.described();
    let gates = kind.gates();
    let &[rows, hidden] = of.w_hh.shape() else {
        return Err(shape(op, "w_hh", format!("[{gates}·H, H]"), of.w_hh));
    };
    if rows != gates.saturating_mul(hidden) {
        return Err(shape(op, "w_hh", format!("[{gates}·H, H]"), of.w_hh));
    }
    if let Some(given) = given.filter(|given| *given != hidden) {
        let required = format!("[{}, {given}], as that of the first layer", gates * given);
        return Err(shape(op, "w_hh", required, of.w_hh));
    }
    operand(op, "w_hh", of.w_hh, x, &[rows, hidden])?;
    operand(op, "w_ih", of.w_ih, x, &[rows, input])?;
    for (arg, bias) in [("b_ih", of.b_ih), ("b_hh", of.b_hh)] {
        if let Some(bias) = bias {
            operand(op, arg, bias, x, &[rows])?;
        }
    }
    within_limit(op, "rows of `w_hh`", rows)?;
    within_limit(op, "columns of `w_ih`", input)?;
    Ok(hidden)
}

/// An error about a weight with the name that this has in its layer and direction.
pub fn of_place(error: Error, index: usize, directions: usize) -> Error {
    error.of_argument(|weight| weight_name(weight, index / directions, index % directions == 1))
}

/// How a layer's x `[T, B, I]` lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub columns: usize,
    /// Whether all rows are whole packs of 16 bytes, if the first is.
    pub in_packs: bool,
}

impl Input {
    fn new(x: &Desc) -> Input {
        let columns = x.shape()[2];
        let &[first, second, along] = x.strides() else { unreachable!("x has three dimensions") };
        let packs = 16 / x.dtype().size() as isize;
        let in_packs = along == 1
            && columns as isize % packs == 0
            && [first, second].iter().all(|stride| *stride >= 0 && stride % packs == 0);
        Input { columns, in_packs }
    }
}

/// A checked sequence.
#[derive(Clone, Debug)]
pub struct Problem {
    pub op: &'static str,
    pub kind: Kind,
    pub dtype: DType,
    pub steps: usize,
    pub batch: usize,
    pub hidden: usize,
    /// x of the layer.
    pub input: Input,
    pub directions: usize,
    pub layers: usize,
    pub batch_first: bool,
    /// `[T, B, D·H]` or `[B, T, D·H]`.
    pub y: Desc,
    /// `[B, H]` or `[L·D, B, H]`.
    pub state: Desc,
}

impl Problem {
    /// Checks everything that can be checked without reading an element.
    pub fn new<D: Described>(
        op: &'static str,
        kind: Kind,
        x: &D,
        parameters: &Recurrent<D>,
    ) -> Result<Problem> {
        let x = x.described();
        float(op, "x", x)?;
        let required = if parameters.batch_first { "[B, T, I]" } else { "[T, B, I]" };
        let &[first, second, input] = x.shape() else { return Err(shape(op, "x", required, x)) };
        reach(op, "x", x)?;
        let (steps, batch) = if parameters.batch_first { (second, first) } else { (first, second) };
        let directions = parameters.directions();
        let count = parameters.layers.len();
        if count == 0 || !count.is_multiple_of(directions) {
            let required = if directions == 2 { "two weights for each layer" } else { "at least one layer" };
            let (required, got) = (required.to_owned(), format!("{count}"));
            return Err(Error::Parameter { op, arg: "layers", required, got });
        }
        let hidden = weights(op, kind, &parameters.layers[0], x, input, None)?;
        for (index, of) in parameters.layers.iter().enumerate().skip(1) {
            let input = if index < directions { input } else { directions * hidden };
            weights(op, kind, of, x, input, Some(hidden))
                .map_err(|error| of_place(error, index, directions))?;
        }
        for (what, extent) in [
            ("rows of the batch", batch),
            ("steps", steps),
            ("steps of all rows", steps.saturating_mul(batch)),
        ] {
            within_limit(op, what, extent)?;
        }
        let of_state: Vec<usize> = if count == 1 { vec![batch, hidden] } else { vec![count, batch, hidden] };
        let state = Desc::contiguous(op, x.device(), x.dtype(), &of_state)?;
        for (arg, initial) in [("h0", parameters.h0), ("c0", parameters.c0)] {
            if let Some(initial) = initial {
                operand(op, arg, initial.described(), x, &of_state)?;
            }
        }
        if let (Kind::Gru, Some(c0)) = (kind, parameters.c0) {
            let got = format!("{:?}", c0.described().shape());
            let required = "absent, since a GRU has no c".to_owned();
            return Err(Error::Parameter { op, arg: "c0", required, got });
        }
        if let Some(lengths) = parameters.lengths {
            let of_batch = Desc::contiguous(op, x.device(), DType::I32, &[batch])?;
            typed(op, "lengths", lengths.described(), DType::I32, &of_batch)?;
            contiguous(op, "lengths", lengths.described())?;
        }
        if parameters.tf32 && x.dtype() != DType::F32 {
            let required = format!("false for operands in {}", x.dtype());
            return Err(Error::Parameter { op, arg: "tf32", required, got: "true".to_owned() });
        }
        let of_y = [first, second, directions * hidden];
        let y = Desc::contiguous(op, x.device(), x.dtype(), &of_y)?;
        let layers = count / directions;
        let (dtype, batch_first) = (x.dtype(), parameters.batch_first);
        let input = Input::new(x);
        Ok(Problem {
            op,
            kind,
            dtype,
            steps,
            batch,
            hidden,
            input,
            directions,
            layers,
            batch_first,
            y,
            state,
        })
    }

    /// As a layer sees it: above the first, x is what the one below gave.
    pub fn of_layer(&self, layer: usize) -> Problem {
        let columns = self.directions * self.hidden;
        let in_packs = (columns * self.dtype.size()).is_multiple_of(16);
        let input = if layer == 0 { self.input } else { Input { columns, in_packs } };
        Problem { input, ..self.clone() }
    }
}
