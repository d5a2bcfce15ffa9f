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

/// What is added to the rows of tokens.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Nothing.
    Rows,
    /// A row for each position.
    Positions,
    /// The same of packed sequences, of 1 to STEPS steps.
    Packed,
}

pub fn cases(setting: &Setting) -> Vec<Case> {
    each_shape(setting, case)
}

pub fn backward_cases(setting: &Setting) -> Vec<Case> {
    each_shape(setting, backward_case)
}

/// What makes a case of shape, rows of wte, type and form.
type Make = fn([usize; 3], usize, DType, Form) -> Case;

fn each_shape(setting: &Setting, case: Make) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in setting.dtypes(FLOATS) {
        for sequences in SEQUENCES {
            let shape = [sequences, STEPS, COLS];
            let compile = sequences == 64;
            cases.push(case(shape, WORDS, dtype, Form::Positions).compiled(compile));
            if !setting.quick {
                cases.push(case(shape, WORDS, dtype, Form::Rows).compiled(compile));
            }
            if !setting.quick && sequences == 64 {
                cases.push(case(shape, WORDS, dtype, Form::Packed));
            }
        }
        cases.push(case(SMALL.0, SMALL.1, dtype, Form::Positions).compiled(true));
        if !setting.quick {
            cases.push(case(RAGGED.0, RAGGED.1, dtype, Form::Positions));
        }
    }
    cases
}

impl Form {
    fn variant(self) -> &'static str {
        match self {
            Form::Rows => "wte",
            Form::Positions => "wte + wpe",
            Form::Packed => "wte + wpe packed",
        }
    }

    /// The case's shape: packed, all tokens are one dimension.
    fn shape(self, [b, t, c]: [usize; 3]) -> Vec<usize> {
        if self == Form::Packed { vec![b * t, c] } else { vec![b, t, c] }
    }

    /// Rows of the table of positions.
    fn positions(self, t: usize) -> usize {
        if self == Form::Rows { 0 } else { t }
    }

    /// With what PyTorch's side must know.
    fn torch(self, case: Case, [b, t, _]: [usize; 3], words: usize) -> Case {
        let lengths = if self == Form::Packed { lengths(b * t, t) } else { Vec::new() };
        case.torch([
            ("vocabulary", words.into()),
            ("wpe", (self != Form::Rows).into()),
            ("lengths", lengths.into()),
        ])
    }

    /// Where packed sequences begin.
    fn cu_seqlens(self, data: &Data, [b, t, _]: [usize; 3]) -> Result<Option<Tensor>> {
        if self != Form::Packed {
            return Ok(None);
        }
        let mut ends = vec![0];
        for length in lengths(b * t, t) {
            ends.push(ends[ends.len() - 1] + length as i32);
        }
        Ok(data.indices(1, &[ends.len()], &ends)?.pop())
    }
}

/// Random lengths from 1 to `most` that add up.
fn lengths(total: usize, most: usize) -> Vec<usize> {
    let mut left = total;
    let mut lengths = Vec::new();
    for length in data::integers(total, most as i32 - 1) {
        let length = (length as usize + 1).min(left);
        if length > 0 {
            lengths.push(length);
        }
        left -= length;
    }
    lengths
}

fn case([b, t, c]: [usize; 3], words: usize, dtype: DType, form: Form) -> Case {
    let (tokens, elements) = (b * t, b * t * c);
    // The tables are shared by the sets: their rows are chosen anew by each token.
    let set_bytes = elements * dtype.size() + tokens * size_of::<i32>();
    let shape = [b, t, c];
    let case =
        Case::new("embedding", &form.shape(shape), dtype, form.variant(), set_bytes, move |data, sets| {
            prepare(data, sets, shape, words, dtype, form)
        });
    form.torch(case, shape, words).flops(if form == Form::Rows { 0 } else { elements })
}

fn prepare(
    data: &Data,
    sets: usize,
    [b, t, c]: [usize; 3],
    words: usize,
    dtype: DType,
    form: Form,
) -> Result<Prepared> {
    let table = |rows: usize| data.numbers(1, dtype, &[rows, c]);
    let (wte, wpe) = (table(words)?.remove(0), if form == Form::Rows { None } else { table(t)?.pop() });
    let (cu_seqlens, shape) = (form.cu_seqlens(data, [b, t, c])?, form.shape([b, t, c]));
    let tokens = data.indices(sets, &shape[..shape.len() - 1], &data::integers(b * t, words as i32 - 1))?;
    let y = data.outputs(sets, dtype, &shape)?;
    let of_positions = wpe.as_ref().map_or(0, Tensor::len);
    let floor = (2 * b * t * c + of_positions) * dtype.size() + b * t * size_of::<i32>();
    let sets: Rc<[(Tensor, Tensor)]> = tokens.into_iter().zip(y).collect();
    Ok(Prepared::new(floor, "", move |set| {
        let (tokens, y) = &sets[set];
        let positions = |wpe| Positions { cu_seqlens: cu_seqlens.as_ref(), ..Positions::new(wpe) };
        embedding_into(tokens, &wte, wpe.as_ref().map(positions), y)
    }))
}

fn backward_case([b, t, c]: [usize; 3], words: usize, dtype: DType, form: Form) -> Case {
    let of_tables = (words + form.positions(t)) * c;
    let set_bytes = (b * t * c + of_tables) * dtype.size() + b * t * size_of::<i32>();
    let shape = [b, t, c];
    let prepare = move |data: &Data, sets| prepare_backward(data, sets, shape, words, dtype, form);
    let case = Case::new("embedding_backward", &form.shape(shape), dtype, form.variant(), set_bytes, prepare);
    form.torch(case, shape, words).flops(b * t * c * if form == Form::Rows { 1 } else { 2 })
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
    form: Form,
) -> Result<Prepared> {
    let (cu_seqlens, shape) = (form.cu_seqlens(data, [b, t, c])?, form.shape([b, t, c]));
    let tokens = data.indices(sets, &shape[..shape.len() - 1], &data::words(b * t, words))?;
    let (dy, dwte) = (data.numbers(sets, dtype, &shape)?, data.outputs(sets, dtype, &[words, c])?);
    let mut dwpe = data.outputs(if form == Form::Rows { 0 } else { sets }, dtype, &[t, c])?.into_iter();
    let sets: Rc<[Gradients]> = tokens
        .into_iter()
        .zip(dy.into_iter().zip(dwte))
        .map(|(tokens, (dy, dwte))| Gradients { tokens, dy, dwte, dwpe: dwpe.next() })
        .collect();
    // dy once: a kernel that makes both gradients at a time would not read it again.
    let written = (words + form.positions(t)) * c;
    let floor = (b * t * c + written) * dtype.size() + b * t * size_of::<i32>();
    Ok(Prepared::new(floor, "", move |set| {
        let Gradients { tokens, dy, dwte, dwpe } = &sets[set];
        // Of the tables the shapes matter, which are those of the gradients.
        let positions = |wpe| Positions { cu_seqlens: cu_seqlens.as_ref(), ..Positions::new(wpe) };
        let positions = dwpe.as_ref().map(positions);
        embedding_backward_into(tokens, dy, dwte, positions, dwte, dwpe.as_ref())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up_and_are_of_every_size() {
        let lengths = lengths(64 * 1024, 1024);
        assert_eq!(lengths.iter().sum::<usize>(), 64 * 1024);
        assert!(lengths.iter().all(|length| (1..=1024).contains(length)) && lengths.len() > 100);
        assert!(lengths.iter().any(|&length| length < 50) && lengths.iter().any(|&length| length > 970));
    }
}
