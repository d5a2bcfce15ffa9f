//! The cases of `cross_entropy` and `cross_entropy_backward`.

use std::rc::Rc;

use warpwright::ops::{
    CrossEntropy, CrossEntropyGradient, Reduction, cross_entropy_backward_into, cross_entropy_into,
};
use warpwright::{DType, Result};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::{Data, integers};
use crate::ops::FLOATS;

/// Classes: characters, images, and the words of BERT, of LLaMA, of GPT-2 and of LLaMA 3.
const CLASSES: [usize; 6] = [256, 1000, 30522, 32000, 50257, 128_256];
/// A few hundred kilobytes, where the launch is most of the time.
const SMALL: [usize; 2] = [128, 1000];
/// Maximum, subtraction, exponential, sum, quotient.
const FLOPS: usize = 5;

pub fn cases(setting: &Setting, backward: bool) -> Vec<Case> {
    let classes = if setting.quick { &CLASSES[3..5] } else { &CLASSES[..] };
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        for &classes in classes {
            let rows = setting.bytes.div_ceil(classes * dtype.size());
            cases.push(case([rows, classes], dtype, backward).compiled(classes == 50257 || classes == 32000));
        }
        cases.push(case(SMALL, dtype, backward).compiled(true));
    }
    cases
}

/// A loss for each row: the kernel of the rows alone.
fn case(shape: [usize; 2], dtype: DType, backward: bool) -> Case {
    let [rows, classes] = shape;
    let passes = if backward { 2 } else { 1 };
    let bytes = passes * rows * classes * dtype.size() + rows * 8;
    let op = if backward { "cross_entropy_backward" } else { "cross_entropy" };
    Case::new(op, &shape, dtype, "–".to_owned(), bytes, move |data, sets| {
        prepare(data, sets, shape, dtype, bytes, backward)
    })
    .flops(FLOPS * rows * classes)
    .torch([("reduction", "none".into())])
}

fn prepare(
    data: &Data,
    sets: usize,
    [rows, classes]: [usize; 2],
    dtype: DType,
    bytes: usize,
    backward: bool,
) -> Result<Prepared> {
    let parameters = CrossEntropy { reduction: Reduction::None, ..Default::default() };
    let x = data.numbers(sets, dtype, &[rows, classes])?;
    let target = data.indices(sets, &[rows], &integers(rows, classes as i32 - 1))?;
    let loss = data.outputs(sets, DType::F32, &[rows])?;
    if !backward {
        return Ok(Prepared::new(bytes, "", move |set| {
            cross_entropy_into(&x[set], &target[set], &parameters, &loss[set])
        }));
    }
    let dloss = data.numbers(sets, DType::F32, &[rows])?;
    let dx = data.outputs(sets, dtype, &[rows, classes])?;
    let gradients: Rc<[CrossEntropyGradient]> =
        loss.into_iter().zip(dx).map(|(loss, dx)| CrossEntropyGradient { loss, dx }).collect();
    Ok(Prepared::new(bytes, "", move |set| {
        cross_entropy_backward_into(&x[set], &target[set], Some(&dloss[set]), &parameters, &gradients[set])
    }))
}
