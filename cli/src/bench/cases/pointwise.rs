//! The cases of the operations on each element.

use std::rc::Rc;

use serde_json::Value;
use warpwright::ops::Approximate;
use warpwright::{DType, Result, Tensor};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::demo::Operands;
use crate::demo::pointwise::{DROPOUT, Function};
use crate::ops::FLOATS;

/// The hidden layer of BERT-large's feed-forward block.
const COLS: usize = 4096;
/// That layer on 8·384 tokens.
const MODEL: [usize; 2] = [3072, COLS];
/// A few hundred kilobytes, where the launch is most of the time.
const SMALL: [usize; 2] = [384, 1024];

/// Where a case's tensors begin.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// With the allocation.
    Aligned,
    /// An element behind it, all alike: packs are aligned, but there are edges before and behind them.
    OneOff,
}

/// Every shape with the first of the functions, a large one with the others.
pub fn cases(setting: &Setting, op: &'static str, functions: &[Function]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (turn, &function) in functions.iter().enumerate() {
        for dtype in setting.dtypes(FLOATS) {
            if function == Function::Cast(dtype) {
                continue; // a copy
            }
            let rows = |cols: usize| setting.bytes.div_ceil(cols * dtype.size());
            let case = |shape, start| case(op, function, shape, dtype, start);
            let large = [rows(COLS), COLS];
            cases.push(case(large, Start::Aligned).compiled(true));
            if turn > 0 {
                continue;
            }
            cases.push(case(SMALL, Start::Aligned).compiled(true));
            if !setting.quick {
                cases.push(case(MODEL, Start::Aligned));
                cases.push(case([rows(COLS - 1), COLS - 1], Start::Aligned));
                cases.push(case(large, Start::OneOff));
            }
        }
    }
    cases
}

fn case(op: &'static str, function: Function, shape: [usize; 2], dtype: DType, start: Start) -> Case {
    let variant = match start {
        Start::Aligned => function.variant(),
        Start::OneOff => format!("{} one off", function.variant()),
    };
    let bytes = function.bytes(shape, dtype);
    let case = Case::new(op, &shape, dtype, variant, bytes, move |data, sets| {
        prepare(data, sets, function, shape, dtype, start)
    });
    torch(case, function).flops(flops(function) * shape[0] * shape[1])
}

/// What PyTorch's side reads of a function.
fn torch(case: Case, function: Function) -> Case {
    let word = |word: &str| Value::from(word);
    match function {
        Function::Gelu(form)
        | Function::GeluBackward(form)
        | Function::BiasGelu(form)
        | Function::BiasGeluBackward(form) => {
            let form = if form == Approximate::Tanh { "tanh" } else { "none" };
            case.torch([("approximate", word(form))])
        }
        Function::Cast(to) => case.torch([("to", word(to.name()))]),
        Function::Dropout | Function::DropoutBackward => case.torch([("p", DROPOUT.p.into())]),
        Function::Add => case,
    }
}

/// Arithmetic operations for an element, roughly.
fn flops(function: Function) -> usize {
    match function {
        Function::Add | Function::Cast(_) => 1,
        Function::Gelu(_) | Function::BiasGelu(_) => 10,
        Function::GeluBackward(_) | Function::BiasGeluBackward(_) => 16,
        // Ten rounds of Philox make four numbers.
        Function::Dropout | Function::DropoutBackward => 25,
    }
}

fn prepare(
    data: &Data,
    sets: usize,
    function: Function,
    shape: [usize; 2],
    dtype: DType,
    start: Start,
) -> Result<Prepared> {
    let skipped = usize::from(start == Start::OneOff);
    let started =
        |tensor: Tensor, shape: &[usize]| tensor.narrow(0, skipped, tensor.len() - skipped)?.reshape(shape);
    let room = |shape: &[usize]| [shape.iter().product::<usize>() + skipped];
    let set = || -> Result<Operands> {
        let input = |shape: &[usize]| started(data.numbers(1, dtype, &room(shape))?.remove(0), shape);
        let output = |shape: &Vec<usize>| {
            started(data.outputs(1, function.output(dtype), &room(shape))?.remove(0), shape)
        };
        let inputs = std::iter::once(shape.to_vec()).chain(function.others(shape));
        Ok(Operands {
            inputs: inputs.map(|shape| input(&shape)).collect::<Result<_>>()?,
            outputs: function.outputs(shape).iter().map(output).collect::<Result<_>>()?,
        })
    };
    let sets: Rc<[Operands]> = (0..sets).map(|_| set()).collect::<Result<_>>()?;
    Ok(Prepared::new(function.bytes(shape, dtype), "", move |set| {
        function.run(&sets[set].inputs, &sets[set].outputs)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_at_least_the_size_that_was_asked_for() {
        let setting = Setting { dtypes: vec![DType::F32, DType::BF16], bytes: 256 << 20, quick: false };
        let functions = [Function::Cast(DType::F32), Function::Cast(DType::BF16)];
        let names: Vec<String> =
            cases(&setting, "cast", &functions).iter().map(|case| case.to_string()).collect();
        let want = [
            "cast 32768x4096 bf16 to f32",
            "cast 384x1024 bf16 to f32",
            "cast 3072x4096 bf16 to f32",
            "cast 32777x4095 bf16 to f32",
            "cast 32768x4096 bf16 to f32 one off",
            "cast 16384x4096 f32 to bf16",
        ];
        assert_eq!(names, want);
    }

    #[test]
    fn floors_are_those_of_the_kernels() {
        let (form, n) = (Approximate::Tanh, 3 * 8);
        for (function, want) in [
            (Function::Gelu(form), 2 * 2 * n),
            (Function::Dropout, 2 * 2 * n),
            (Function::BiasGelu(form), 2 * 2 * n + 2 * 8),
            (Function::GeluBackward(form), 3 * 2 * n),
            (Function::Add, 3 * 2 * n),
            (Function::BiasGeluBackward(form), 3 * 2 * n + 2 * 2 * 8),
            (Function::Cast(DType::F32), (2 + 4) * n),
        ] {
            assert_eq!(function.bytes([3, 8], DType::BF16), want, "{function:?}");
        }
    }
}
