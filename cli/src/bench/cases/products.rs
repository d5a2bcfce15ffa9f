//! The cases of the products of matrices.

use std::rc::Rc;

use warpwright::ops::{self, Activation, Approximate, Matmul};
use warpwright::{DType, Result};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::Data;
use crate::demo::Operands;
use crate::demo::products::{Extents, Function, activation_name, extents};
use crate::ops::FLOATS;

/// What the checker has time for.
const SMALL: Extents = extents(1, 16, 32, 64);
/// BERT-large's layers on 8·384 tokens, and squares.
const LAYERS: [Extents; 5] = [
    extents(1, 3072, 1024, 1024),
    extents(1, 3072, 4096, 1024),
    extents(1, 3072, 1024, 4096),
    extents(1, 4096, 4096, 4096),
    extents(1, 8192, 8192, 8192),
];
/// A token, 16 and 128 of a model of 4096, and 16 at its other layers: keys and values of a quarter of the heads, and the two of 14336.
const DECODE: [Extents; 6] = [
    extents(1, 1, 4096, 4096),
    extents(1, 16, 4096, 4096),
    extents(1, 128, 4096, 4096),
    extents(1, 16, 1024, 4096),
    extents(1, 16, 14336, 4096),
    extents(1, 16, 4096, 14336),
];
/// Heads of classifiers and regressions, few columns of many rows: of as many terms as a model's states have, and of few; and sums of very many.
const FEW_COLUMNS: [Extents; 5] = [
    extents(1, 8192, 1, 1024),
    extents(1, 65536, 16, 768),
    extents(1, 262144, 8, 128),
    extents(1, 1048576, 1, 64),
    extents(1, 1048576, 16, 16),
];
const LONG_SUMS: [Extents; 2] = [extents(1, 128, 1, 131072), extents(1, 16, 16, 131072)];
/// Small matrices, and few terms of large ones: states of filters and of graphs, windows of attention, an update of rank 16, a first layer of few features.
const MATRICES: [Extents; 6] = [
    extents(8192, 16, 16, 16),
    extents(4096, 32, 32, 32),
    extents(1000, 50, 50, 50),
    extents(3000, 33, 33, 33),
    extents(512, 16, 1024, 64),
    extents(384, 197, 197, 64),
];
const FEW_TERMS: [Extents; 4] = [
    extents(1, 4096, 4096, 16),
    extents(1, 16384, 256, 16),
    extents(1, 16, 1048576, 32),
    extents(1, 1023, 2047, 17),
];
/// GPT-2's head on 8192 tokens.
const HEAD: Extents = extents(1, 8192, 50304, 768);
/// The products of its gradients: of its input, and of its weights.
const HEAD_INPUT: Extents = extents(1, 8192, 768, 50304);
const HEAD_WEIGHTS: Extents = extents(1, 50304, 768, 8192);
/// The scores of BERT-large's heads, and their values.
const HEADS: [Extents; 2] = [extents(128, 384, 384, 64), extents(128, 384, 64, 384)];
/// Sequences, their rows, and BERT-large's queries, keys and values; of 197 rows, as ViT's patches are, which end within tiles.
const SPLIT: [Extents; 2] = [extents(8, 384, 3072, 1024), extents(16, 197, 3072, 1024)];
const SMALL_SPLIT: Extents = extents(2, 16, 384, 64);
/// A step of a recurrent layer, of which the last has rows that are no whole packs.
const STEPS: [Extents; 3] =
    [extents(1, 64, 1024, 1024), extents(1, 64, 3072, 1024), extents(1, 32, 1950, 650)];
/// Nothing is a multiple of 8.
const ODD: [Extents; 2] = [extents(1, 1023, 2047, 1025), extents(1, 3001, 4095, 1021)];

/// How many random shapes of each kind there are, and between which extents.
const RANDOM: usize = 40;
const RANDOM_EXTENTS: (f64, f64) = (16.0, 8192.0);

/// Shapes with extents spread evenly over their logarithms: multiples of 8, or none of them. The same ones each time.
fn random_shapes(multiples: bool) -> Vec<Extents> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut extent = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let share = (state >> 11) as f64 / (1u64 << 53) as f64;
        let (low, high) = RANDOM_EXTENTS;
        let extent = (low.ln() + share * (high / low).ln()).exp() as usize / 8 * 8;
        if multiples { extent } else { extent + 1 + (state % 7) as usize }
    };
    (0..RANDOM).map(|_| extents(1, extent(), extent(), extent())).collect()
}

const GELU: Activation = Activation::Gelu(Approximate::Tanh);
const LARGEST_F32: usize = 4096 * 4096 * 4096;

/// The shapes of a function.
fn shapes(function: Function, quick: bool) -> Vec<Extents> {
    let mut shapes = vec![SMALL];
    match function {
        Function::LinearHeads(_) => return [SMALL_SPLIT].into_iter().chain(SPLIT).collect(),
        Function::Matmul(false, true) if quick => shapes.extend([LAYERS[1], LAYERS[3], DECODE[0]]),
        Function::Matmul(false, true) => {
            shapes.extend(LAYERS);
            shapes.extend(DECODE);
            shapes.extend([HEAD, HEADS[0]]);
            shapes.extend(STEPS);
            shapes.extend(ODD);
            shapes.extend(FEW_COLUMNS);
            shapes.extend(LONG_SUMS);
            shapes.extend(MATRICES);
            shapes.extend(FEW_TERMS);
        }
        Function::Matmul(a, b) => {
            shapes.extend([LAYERS[1], LAYERS[3], HEADS[1]]);
            match (a, b) {
                // Decoding with weights as they are applied.
                (false, false) if !quick => {
                    shapes.extend([HEAD_INPUT, DECODE[0], DECODE[1]]);
                    shapes.extend(MATRICES);
                    shapes.extend(FEW_TERMS);
                }
                (true, false) if !quick => shapes.push(HEAD_WEIGHTS),
                _ => {}
            }
        }
        Function::Linear(GELU, false) => {
            shapes.extend(LAYERS);
            shapes.extend(ODD);
        }
        Function::Linear(..) if !quick => shapes.extend([LAYERS[1], ODD[0]]),
        Function::Linear(..) | Function::LinearBackward(_) | Function::MatmulBackward(..) => {
            shapes.push(LAYERS[1]);
        }
        Function::AttentionScores => {} // has cases of its own
    }
    shapes
}

/// Whether the shape is one for the type: f32 goes without the largest.
fn serves(dtype: DType, e: Extents) -> bool {
    dtype != DType::F32 || e.batch * e.m * e.n * e.k <= LARGEST_F32
}

/// Every function in every type.
pub fn cases(setting: &Setting, op: &'static str, functions: &[Function]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &function in functions {
        for dtype in setting.dtypes(FLOATS) {
            let shapes = shapes(function, setting.quick).into_iter().filter(|&e| serves(dtype, e));
            cases.extend(shapes.map(|e| case(op, function, e, dtype, "")));
            if function == Function::Matmul(false, true) && !setting.quick {
                for (note, multiples) in [(" random", true), (" random odd", false)] {
                    let shapes = random_shapes(multiples).into_iter().filter(|&e| serves(dtype, e));
                    cases.extend(shapes.map(|e| case(op, function, e, dtype, note)));
                }
            }
            if let Function::Matmul(a, b) = function
                && dtype == DType::F32
                && !setting.quick
            {
                cases.extend(rounded_shapes(a, b).map(|(e, note)| rounded(op, [a, b], e, note)));
            }
        }
    }
    cases
}

/// `note` tells shapes of a kind from others.
fn case(op: &'static str, function: Function, e: Extents, dtype: DType, note: &str) -> Case {
    let shape = if e.batch == 1 { vec![e.m, e.n, e.k] } else { vec![e.batch, e.m, e.n, e.k] };
    let bytes = function.bytes(e, dtype);
    let case = Case::new(op, &shape, dtype, function.variant() + note, bytes, move |data, sets| {
        prepare(data, sets, function, e, dtype)
    });
    let case = match function {
        Function::Matmul(a, b) | Function::MatmulBackward(a, b) => {
            case.torch([("transpose_a", a.into()), ("transpose_b", b.into())])
        }
        Function::Linear(activation, residual) => {
            case.torch([("activation", activation_name(activation).into()), ("residual", residual.into())])
        }
        Function::LinearHeads(heads) => case.torch([("heads", heads.into())]),
        Function::LinearBackward(activation) => {
            case.torch([("activation", activation_name(activation).into())])
        }
        Function::AttentionScores => case.torch([]),
    };
    case.flops(function.flops(e))
}

/// Shapes of f32 operands that may be rounded to tf32, and what to call them.
fn rounded_shapes(transpose_a: bool, transpose_b: bool) -> impl Iterator<Item = (Extents, &'static str)> {
    let mut shapes = vec![(LAYERS[1], " tf32"), (LAYERS[3], " tf32")];
    if !transpose_a && transpose_b {
        let others = [LAYERS[0], LAYERS[2]].into_iter().chain(DECODE).chain(STEPS).chain(ODD);
        shapes.extend(others.map(|e| (e, " tf32")));
        shapes.extend(random_shapes(true).into_iter().map(|e| (e, " tf32 random")));
    }
    shapes.into_iter().filter(|&(e, _)| serves(DType::F32, e))
}

/// f32 operands that may be rounded to tf32.
fn rounded(op: &'static str, [transpose_a, transpose_b]: [bool; 2], e: Extents, note: &str) -> Case {
    let function = Function::Matmul(transpose_a, transpose_b);
    let (shape, bytes) = ([e.m, e.n, e.k], function.bytes(e, DType::F32));
    let case = Case::new(op, &shape, DType::F32, function.variant() + note, bytes, move |data, sets| {
        let parameters = Matmul { transpose_a, transpose_b, tf32: true, ..Matmul::default() };
        let numbers = |turned: bool, rows, cols| {
            data.numbers(sets, DType::F32, &if turned { [cols, rows] } else { [rows, cols] })
        };
        let (a, b) = (numbers(transpose_a, e.m, e.k)?, numbers(transpose_b, e.k, e.n)?);
        let y = data.outputs(sets, DType::F32, &[e.m, e.n])?;
        let plan = ops::matmul::explain(&a[0], &b[0], &parameters)?.to_string();
        Ok(Prepared::new(bytes, plan, move |set| ops::matmul_into(&a[set], &b[set], &parameters, &y[set])))
    });
    let facts = [("transpose_a", transpose_a), ("transpose_b", transpose_b), ("tf32", true)];
    case.torch(facts.map(|(name, value)| (name, value.into()))).flops(function.flops(e))
}

fn prepare(data: &Data, sets: usize, function: Function, e: Extents, dtype: DType) -> Result<Prepared> {
    let set = || -> Result<Operands> {
        let input = |shape: Vec<usize>| Ok(data.numbers(1, dtype, &shape)?.remove(0));
        let output = |shape: Vec<usize>| Ok(data.outputs(1, dtype, &shape)?.remove(0));
        Ok(Operands {
            inputs: function.inputs(e).into_iter().map(input).collect::<Result<_>>()?,
            outputs: function.outputs(e).into_iter().map(output).collect::<Result<_>>()?,
        })
    };
    let sets: Rc<[Operands]> = (0..sets).map(|_| set()).collect::<Result<_>>()?;
    let plan = function.plan(&sets[0].inputs)?;
    let others = function.other_plans(&sets[0].inputs)?;
    let taken = sets.clone();
    let prepared = Prepared::new(function.bytes(e, dtype), plan, move |set| {
        function.run(&taken[set].inputs, &taken[set].outputs)
    });
    Ok(others.into_iter().fold(prepared, |prepared, plan| {
        let sets = sets.clone();
        prepared.or(plan.to_string(), move |set| {
            function.run_by(plan.choice, &sets[set].inputs, &sets[set].outputs)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_shapes_are_the_same_each_time_and_of_their_kind() {
        for multiples in [true, false] {
            let shapes = random_shapes(multiples);
            assert_eq!((shapes.len(), &shapes), (RANDOM, &random_shapes(multiples)));
            let extents = || shapes.iter().flat_map(|e| [e.m, e.n, e.k]);
            assert!(
                extents()
                    .all(|extent| (16..=8200).contains(&extent) && extent.is_multiple_of(8) == multiples)
            );
            assert!(extents().any(|extent| extent < 64) && extents().any(|extent| extent > 4096));
        }
    }

    #[test]
    fn floors_are_the_operands_and_the_result_once() {
        let e = extents(2, 3, 5, 7);
        assert_eq!(Function::Matmul(false, true).bytes(e, DType::BF16), 2 * 2 * (21 + 35 + 15));
        assert_eq!(Function::Matmul(false, true).flops(e), 2 * 2 * 105);
        let e = Extents { batch: 1, ..e };
        assert_eq!(Function::Linear(GELU, true).bytes(e, DType::F32), 4 * (21 + 35 + 5 + 2 * 15));
        assert_eq!(Function::LinearBackward(GELU).bytes(e, DType::F32), 4 * (2 * 21 + 2 * 35 + 2 * 15 + 5));
        assert_eq!(Function::LinearBackward(GELU).flops(e), 4 * 105);
    }
}
