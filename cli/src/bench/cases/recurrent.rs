//! The cases of recurrent layers.

use std::rc::Rc;

use warpwright::{DType, Result};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::demo::recurrent::{Extents, Function, Operands, extents};
use crate::ops::FLOATS;

/// What the checker has time for.
const SMALL: Extents = extents(2, 8, 16, 32);
/// The shapes of cells.
const CELLS: [Extents; 3] = [extents(1, 64, 1024, 1024), extents(1, 32, 650, 1300), extents(1, 16, 128, 128)];
/// The shapes of sequences: large, medium, small; weights that fill the GPU, nothing that is round, many steps.
const SEQUENCES: [Extents; 6] = [
    extents(128, 64, 1024, 1024),
    extents(128, 32, 512, 512),
    extents(64, 16, 128, 128),
    extents(128, 64, 2048, 2048),
    extents(1000, 7, 300, 300),
    extents(4096, 16, 256, 256),
];
/// So many sets take turns: a sequence is hundreds of nodes of a graph where it goes by steps.
const SET_BYTES: usize = 1 << 30;

pub fn cases(setting: &Setting, op: &'static str, function: Function) -> Vec<Case> {
    let all: &[Extents] = if function.is_sequence() { &SEQUENCES } else { &CELLS };
    let of = if setting.quick { &all[..1] } else { all };
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        cases.extend([SMALL].iter().chain(of).map(|&e| case(op, function, e, dtype, false)));
        if function.is_sequence() && dtype == DType::F32 {
            cases.extend(of.iter().map(|&e| case(op, function, e, dtype, true)));
        }
    }
    cases
}

/// With `tf32` the operands of the products of all steps may be rounded to it; PyTorch's, of all products.
fn case(op: &'static str, function: Function, e: Extents, dtype: DType, tf32: bool) -> Case {
    let bytes = function.bytes(e, dtype);
    let e = if function.is_sequence() { e } else { Extents { steps: 1, ..e } };
    let set_bytes = if function.is_sequence() { SET_BYTES } else { bytes };
    let variant = if tf32 { "tf32" } else { "" };
    let case = Case::new(op, &function.shape(e), dtype, variant, set_bytes, move |data, sets| {
        prepare(data, sets, function, e, dtype, tf32)
    });
    case.torch([("tf32", tf32.into())]).flops(function.flops(e))
}

fn prepare(
    data: &Data,
    sets: usize,
    function: Function,
    e: Extents,
    dtype: DType,
    tf32: bool,
) -> Result<Prepared> {
    let set = || {
        Operands::new(function, e, |shape, of_weight| match of_weight {
            true => data.weights(dtype, shape),
            false => Ok(data.numbers(1, dtype, shape)?.remove(0)),
        })
        .map(|operands| operands.rounded(tf32))
    };
    let sets: Rc<[Operands]> = (0..sets).map(|_| set()).collect::<Result<_>>()?;
    let plan = function.plan(&sets[0])?;
    let floor = function.bytes(e, dtype);
    Ok(Prepared::new(floor, plan, move |set| function.run(&sets[set]).map(drop)))
}
