//! The cases of the operations along rows: norms and gradients.

use std::rc::Rc;

use warpwright::{DType, Result};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::demo::Operands;
use crate::demo::rows::{DROPOUT, Function, Kind, SCALE};
use crate::ops::FLOATS;

/// Columns of norms: hidden sizes, and what is no whole number of packs.
const NORM_COLS: [usize; 12] = [256, 768, 1024, 2048, 4096, 8192, 16384, 32768, 131072, 769, 1000, 4095];
/// Columns of scores.
const SCORE_COLS: [usize; 11] = [64, 128, 384, 512, 1024, 4096, 16384, 32768, 65536, 1000, 4095];
/// Columns where elements are dropped as well.
const DROPOUT_COLS: [usize; 4] = [512, 768, 1024, 4096];
/// A few hundred kilobytes, where the launch is most of the time.
const SMALL: [usize; 2] = [128, 768];

/// Every number of columns at the size that was asked for, and a small case.
pub fn cases(setting: &Setting, op: &'static str, function: Function) -> Vec<Case> {
    let cols: &[usize] = match function {
        Function::SoftmaxBackward => &SCORE_COLS,
        _ if function.drops() => &DROPOUT_COLS,
        _ => &NORM_COLS,
    };
    let cols = if setting.quick { &cols[1..3] } else { cols };
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        for &cols in cols {
            let shape = [setting.bytes.div_ceil(cols * dtype.size()), cols];
            cases.push(case(op, function, shape, dtype).compiled(cols == 768 || cols == 4096));
        }
        if !function.drops() {
            cases.push(case(op, function, SMALL, dtype).compiled(true));
        }
    }
    cases
}

fn case(op: &'static str, function: Function, shape: [usize; 2], dtype: DType) -> Case {
    let bytes = function.bytes(shape, dtype);
    let case = Case::new(op, &shape, dtype, function.variant().to_owned(), bytes, move |data, sets| {
        prepare(data, sets, function, shape, dtype)
    });
    let dropped = if function.drops() { DROPOUT.p } else { 0.0 };
    case.torch([("scale", SCALE.into()), ("dropout", dropped.into())]).flops(10 * shape[0] * shape[1])
}

fn prepare(
    data: &Data,
    sets: usize,
    function: Function,
    shape: [usize; 2],
    dtype: DType,
) -> Result<Prepared> {
    let set = || -> Result<Operands> {
        // What a forward pass would have saved is random here, which takes as long.
        let input = |kind: &Kind| Ok(data.numbers(1, kind.dtype(dtype), &kind.shape(shape))?.remove(0));
        let output = |kind: &Kind| Ok(data.outputs(1, kind.dtype(dtype), &kind.shape(shape))?.remove(0));
        Ok(Operands {
            inputs: function.inputs().iter().map(input).collect::<Result<_>>()?,
            outputs: function.outputs().iter().map(output).collect::<Result<_>>()?,
        })
    };
    let sets: Rc<[Operands]> = (0..sets).map(|_| set()).collect::<Result<_>>()?;
    Ok(Prepared::new(function.bytes(shape, dtype), "", move |set| {
        function.run(&sets[set].inputs, &sets[set].outputs)
    }))
}
