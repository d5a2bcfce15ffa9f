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
const CELLS: [Extents; 5] = [
    extents(1, 64, 1024, 1024),
    extents(1, 32, 650, 1300),
    extents(1, 16, 128, 128),
    extents(1, 64, 512, 512),
    extents(1, 64, 2048, 2048),
];
/// The shapes of sequences: large, medium, small; weights that fill the GPU, nothing that is round, many steps, few units of many rows.
const SEQUENCES: [Extents; 7] = [
    extents(128, 64, 1024, 1024),
    extents(128, 32, 512, 512),
    extents(64, 16, 128, 128),
    extents(128, 64, 2048, 2048),
    extents(1000, 7, 300, 300),
    extents(4096, 16, 256, 256),
    extents(512, 48, 256, 256),
];
/// So many sets take turns: a sequence is hundreds of nodes of a graph where it goes by steps.
const SET_BYTES: usize = 1 << 30;

pub fn cases(setting: &Setting, op: &'static str, function: Function) -> Vec<Case> {
    let all: &[Extents] = if function.is_sequence() { &SEQUENCES } else { &CELLS };
    let of = if setting.quick { &all[..1] } else { all };
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        cases.extend([SMALL].iter().chain(of).map(|&e| case(op, function, e, dtype, Variant::default())));
        if !function.is_sequence() {
            continue;
        }
        let tf32 = [false, true].into_iter().filter(|&tf32| dtype == DType::F32 || !tf32);
        let with_forward = [false, true].into_iter().filter(|&with| function.is_backward() || !with);
        for with_forward in with_forward {
            let variants = tf32.clone().map(|tf32| Variant { tf32, with_forward });
            let others = variants.filter(|&variant| variant != Variant::default());
            cases.extend(
                others.flat_map(|variant| of.iter().map(move |&e| case(op, function, e, dtype, variant))),
            );
        }
    }
    cases
}

/// What distinguishes cases of one shape and type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Variant {
    /// The operands of the products of all steps may be rounded to tf32; PyTorch's, of all products.
    tf32: bool,
    /// A gradient comes behind the forward pass, as PyTorch's always does, which keeps what the gates were given.
    with_forward: bool,
}

impl Variant {
    /// Bytes of all operands and results, of both passes where both are run.
    fn bytes(self, function: Function, e: Extents, dtype: DType) -> usize {
        let forward = if self.with_forward { function.forward().bytes(e, dtype) } else { 0 };
        forward + function.bytes(e, dtype)
    }

    fn name(self) -> &'static str {
        match (self.tf32, self.with_forward) {
            (false, false) => "",
            (true, false) => "tf32",
            (false, true) => "with forward",
            (true, true) => "tf32, with forward",
        }
    }
}

fn case(op: &'static str, function: Function, e: Extents, dtype: DType, variant: Variant) -> Case {
    let bytes = variant.bytes(function, e, dtype);
    let e = if function.is_sequence() { e } else { Extents { steps: 1, ..e } };
    let set_bytes = if function.is_sequence() { SET_BYTES } else { bytes };
    let case = Case::new(op, &function.shape(e), dtype, variant.name(), set_bytes, move |data, sets| {
        prepare(data, sets, function, e, dtype, variant)
    });
    case.torch([("tf32", variant.tf32.into())]).flops(function.flops(e))
}

fn prepare(
    data: &Data,
    sets: usize,
    function: Function,
    e: Extents,
    dtype: DType,
    variant: Variant,
) -> Result<Prepared> {
    let set = || {
        Operands::new(function, e, |shape, of_weight| match of_weight {
            true => data.weights(dtype, shape),
            false => Ok(data.numbers(1, dtype, shape)?.remove(0)),
        })
        .map(|operands| operands.rounded(variant.tf32))
        .map(|operands| if variant.with_forward { operands.behind_forward() } else { operands })
    };
    let sets: Rc<[Operands]> = (0..sets).map(|_| set()).collect::<Result<_>>()?;
    let plan = function.plan(&sets[0])?;
    let floor = variant.bytes(function, e, dtype);
    Ok(Prepared::new(floor, plan, move |set| function.run(&sets[set]).map(drop)))
}
