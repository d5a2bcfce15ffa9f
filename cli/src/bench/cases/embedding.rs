//! The cases of `embedding` and `embedding_backward`.

use std::rc::Rc;

use warpwright::ops::{Positions, embedding_backward_into, embedding_into};
use warpwright::{DType, Result, Tensor};

use crate::bench::case::{Case, Prepared, Setting};
use crate::bench::data::{self, Data};
use crate::ops::FLOATS;

/// Sequences of 1024 tokens.
const SEQUENCES: [usize; 3] = [8, 64, 256];
const STEPS: usize = 1024;
/// GPT-2's tables.
const WORDS: usize = 50257;
const COLS: usize = 768;
/// A few tokens of a small table, where the launch is most of the time.
const SMALL: ([usize; 3], usize) = ([8, 8, COLS], 1000);
/// A row that is no whole number of packs.
const RAGGED: ([usize; 3], usize) = ([64, STEPS, COLS - 1], WORDS);

pub fn cases(setting: &Setting) -> Vec<Case> {
    each_shape(setting, case)
}

pub fn backward_cases(setting: &Setting) -> Vec<Case> {
    each_shape(setting, backward_case)
}

/// What makes a case of shape, rows of wte, type, and whether there are positions.
type Make = fn([usize; 3], usize, DType, bool) -> Case;

fn each_shape(setting: &Setting, case: Make) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        for sequences in SEQUENCES {
            let shape = [sequences, STEPS, COLS];
            let compile = sequences == 64;
            cases.push(case(shape, WORDS, dtype, true).compiled(compile));
            if !setting.quick {
                cases.push(case(shape, WORDS, dtype, false).compiled(compile));
            }
        }
        cases.push(case(SMALL.0, SMALL.1, dtype, true).compiled(true));
        if !setting.quick {
            cases.push(case(RAGGED.0, RAGGED.1, dtype, true));
        }
    }
    cases
}

fn variant(wpe: bool) -> &'static str {
    if wpe { "wte + wpe" } else { "wte" }
}

fn case([b, t, c]: [usize; 3], words: usize, dtype: DType, wpe: bool) -> Case {
    let (tokens, elements) = (b * t, b * t * c);
    // The tables are shared by the sets: their rows are chosen anew by each token.
    let set_bytes = elements * dtype.size() + tokens * size_of::<i32>();
    Case::new("embedding", &[b, t, c], dtype, variant(wpe), set_bytes, move |data, sets| {
        prepare(data, sets, [b, t, c], words, dtype, wpe)
    })
    .flops(if wpe { elements } else { 0 })
    .torch([("vocabulary", words.into()), ("wpe", wpe.into())])
}

fn prepare(
    data: &Data,
    sets: usize,
    [b, t, c]: [usize; 3],
    words: usize,
    dtype: DType,
    wpe: bool,
) -> Result<Prepared> {
    let table = |rows: usize| data.numbers(1, dtype, &[rows, c]);
    let (wte, wpe) = (table(words)?.remove(0), if wpe { table(t)?.pop() } else { None });
    let tokens = data.indices(sets, &[b, t], &data::integers(b * t, words as i32 - 1))?;
    let y = data.outputs(sets, dtype, &[b, t, c])?;
    let of_positions = wpe.as_ref().map_or(0, Tensor::len);
    let floor = (2 * b * t * c + of_positions) * dtype.size() + b * t * size_of::<i32>();
    let sets: Rc<[(Tensor, Tensor)]> = tokens.into_iter().zip(y).collect();
    Ok(Prepared::new(floor, "", move |set| {
        let (tokens, y) = &sets[set];
        embedding_into(tokens, &wte, wpe.as_ref().map(|wpe| Positions { wpe, offset: 0 }), y)
    }))
}

fn backward_case([b, t, c]: [usize; 3], words: usize, dtype: DType, wpe: bool) -> Case {
    let of_tables = (words + if wpe { t } else { 0 }) * c;
    let set_bytes = (b * t * c + of_tables) * dtype.size() + b * t * size_of::<i32>();
    Case::new("embedding_backward", &[b, t, c], dtype, variant(wpe), set_bytes, move |data, sets| {
        prepare_backward(data, sets, [b, t, c], words, dtype, wpe)
    })
    .flops(b * t * c * if wpe { 2 } else { 1 })
    .torch([("vocabulary", words.into()), ("wpe", wpe.into())])
}

/// Tokens, dy, dwte and dwpe of a set.
struct Gradients {
    tokens: Tensor,
    dy: Tensor,
    dwte: Tensor,
    dwpe: Option<Tensor>,
}

fn prepare_backward(
    data: &Data,
    sets: usize,
    [b, t, c]: [usize; 3],
    words: usize,
    dtype: DType,
    wpe: bool,
) -> Result<Prepared> {
    let tokens = data.indices(sets, &[b, t], &data::words(b * t, words))?;
    let (dy, dwte) = (data.numbers(sets, dtype, &[b, t, c])?, data.outputs(sets, dtype, &[words, c])?);
    let mut dwpe = data.outputs(if wpe { sets } else { 0 }, dtype, &[t, c])?.into_iter();
    let sets: Rc<[Gradients]> = tokens
        .into_iter()
        .zip(dy.into_iter().zip(dwte))
        .map(|(tokens, (dy, dwte))| Gradients { tokens, dy, dwte, dwpe: dwpe.next() })
        .collect();
    // dy once: a kernel that makes both gradients at a time would not read it again.
    let written = (words + if wpe { t } else { 0 }) * c;
    let floor = (b * t * c + written) * dtype.size() + b * t * size_of::<i32>();
    Ok(Prepared::new(floor, "", move |set| {
        let Gradients { tokens, dy, dwte, dwpe } = &sets[set];
        // Of the tables the shapes matter, which are those of the gradients.
        let positions = dwpe.as_ref().map(|wpe| Positions { wpe, offset: 0 });
        embedding_backward_into(tokens, dy, dwte, positions, dwte, dwpe.as_ref())
    }))
}
