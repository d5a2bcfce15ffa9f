//! What kernels do with the sums, as they take it.

use kernels_gpu::matmul::{self as kernels, Matrix, flag};

use super::blocks::short_divisor;
use super::layout::Layout;
use super::problem::{Heads, Problem};
use crate::error::Result;
use crate::tensor::Tensor;

/// What there is beside the sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    bias: bool,
    addend: bool,
    aux: bool,
    /// All of it, and the result, begins at multiples of 16 bytes.
    aligned: bool,
}

impl Beside {
    /// What the problem tells, at multiples of 16 bytes: neither a bias, which makes no difference there, nor whether what the activation gets is kept.
    pub fn of(problem: &Problem) -> Beside {
        Beside { bias: false, addend: problem.addend.is_some(), aux: problem.epilogue.slope, aligned: true }
    }

    /// These: the bias, the addend and the activation's operand.
    pub fn given(behind: [Option<&Tensor>; 3], y: &Tensor) -> Beside {
        let [bias, addend, aux] = behind.map(|tensor| tensor.is_some());
        let mut all = behind.into_iter().flatten().chain([y]);
        Beside { bias, addend, aux, aligned: all.all(|tensor| tensor.address().is_multiple_of(16)) }
    }
}

/// What kernels do with the sums of a problem.
pub(super) fn epilogue(problem: &Problem, layout: &Layout, beside: Beside) -> Result<kernels::Epilogue> {
    let wanted = &problem.epilogue;
    let per_pack = 16 / problem.factors.dtype.size() as i64;
    let whole =
        |matrix: &Matrix| [matrix.row, matrix.outer, matrix.inner].iter().all(|step| step % per_pack == 0);
    let (out, heads) = match &problem.heads {
        None => (layout.out, kernels::Heads::default()),
        Some(heads) => by_heads(problem.op, heads, layout)?,
    };
    let packed = beside.aligned
        && whole(&out)
        && heads.step % per_pack == 0
        && (!beside.addend || layout.addend.col == 1 && whole(&layout.addend));
    let mut flags = 0;
    let mut set = |flag, when| flags |= if when { flag } else { 0 };
    set(flag::BIAS, beside.bias);
    set(flag::ADDEND, beside.addend);
    set(flag::KEEP, beside.aux && !wanted.slope);
    set(flag::SLOPE, wanted.slope);
    set(flag::WIDE, problem.y.dtype() != problem.factors.dtype);
    set(flag::PACKED, packed);
    Ok(kernels::Epilogue {
        out,
        addend: layout.addend,
        aux: layout.out,
        split: 0,
        m: layout.m as u32,
        n: layout.n as u32,
        alpha: wanted.alpha,
        beta: wanted.beta,
        activation: wanted.activation,
        flags,
        heads,
    })
}

/// Where a result by heads lies: contiguous, whether its sequences are a batch or rows of one product.
fn by_heads(op: &'static str, heads: &Heads, layout: &Layout) -> Result<(Matrix, kernels::Heads)> {
    let Heads { sequences, count, length, width, .. } = *heads;
    let of_sequence = count * length * width;
    // Sequences of one row are as good as one sequence.
    let (row, length, sequences, of_sequence) = if length == 1 && layout.products() == 1 {
        (of_sequence, sequences, 1, sequences * of_sequence)
    } else {
        (width, length, sequences, of_sequence)
    };
    let matrix = Matrix { row: row as i64, col: 1, outer: 0, inner: of_sequence as i64 };
    let heads = kernels::Heads {
        step: (heads.length * width) as i64,
        width: short_divisor(op, width)?,
        count: short_divisor(op, count)?,
        length: short_divisor(op, length)?,
        sequences: short_divisor(op, sequences)?.value(),
    };
    Ok((matrix, heads))
}
