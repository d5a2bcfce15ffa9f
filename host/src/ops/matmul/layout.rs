//! How the operands lie in memory, in as few dimensions as kernels count in.

use kernels_gpu::matmul::Matrix;

use super::problem::Problem;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{self, Dims, merge};
use crate::tensor::Tensor;

/// The largest m, n and k: kernels count in 31 bits, with room for a tile.
pub const MAX_EXTENT: usize = 1 << 30;

/// Wants an extent that kernels can count in.
pub fn within_limit(op: &'static str, what: &'static str, extent: usize) -> Result<()> {
    if extent > MAX_EXTENT {
        return Err(Error::TooLarge { op, what, limit: MAX_EXTENT as u64, got: extent.to_string() });
    }
    Ok(())
}

/// A product as kernels see it: a batch of up to two dimensions, and steps in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Products along the batch's outer and inner dimension.
    pub batch: [usize; 2],
    pub a: Matrix,
    pub b: Matrix,
    pub out: Matrix,
    pub addend: Matrix,
}

impl Layout {
    /// `None` where the batch keeps more than two dimensions.
    pub fn new(problem: &Problem) -> Option<Layout> {
        let [a, b] = problem.factors.strides;
        Layout::of(problem, a, b, problem.addend)
    }

    fn of(
        problem: &Problem,
        (a_front, a_row, a_col): (Dims<isize>, isize, isize),
        (b_front, b_row, b_col): (Dims<isize>, isize, isize),
        addend: Option<Dims<isize>>,
    ) -> Option<Layout> {
        let factors = &problem.factors;
        let rank = factors.front.len();
        let out = shape::contiguous_strides(problem.y.shape());
        let addend = addend.unwrap_or(out);
        // One b for all: the dimensions in front are rows of a, as long as these are no more than kernels count.
        let rows = factors.front.iter().try_fold(factors.m, |rows, &extent| rows.checked_mul(extent));
        let shared =
            factors.front.iter().zip(b_front.iter()).all(|(&extent, &step)| extent == 1 || step == 0)
                && rows.is_some_and(|rows| rows <= MAX_EXTENT);
        let mut shape = factors.front;
        let mut fronts = [a_front, b_front, front_of(&out, rank), front_of(&addend, rank)];
        if shared {
            shape.push(factors.m);
            for (front, row) in fronts.iter_mut().zip([a_row, 0, out[rank], addend[rank]]) {
                front.push(row);
            }
        }
        let [a, b, o, d] = fronts;
        let merged = merge(&shape, [&a, &b, &o, &d]);
        let mut extents = merged.shape;
        let mut steps = merged.strides;
        let (m, rows) = match shared {
            true => {
                let m = pop(&mut extents).unwrap_or(1);
                (m, steps.each_mut().map(|steps| pop(steps).unwrap_or(0)))
            }
            false => (factors.m, [a_row, b_row, out[rank], addend[rank]]),
        };
        if extents.len() > 2 {
            return None;
        }
        let last =
            |dims: &Dims<isize>, back: usize| dims.len().checked_sub(back).map_or(0, |dim| dims[dim]) as i64;
        let matrix = |side: usize, row: isize, col: isize| Matrix {
            row: row as i64,
            col: col as i64,
            outer: last(&steps[side], 2),
            inner: last(&steps[side], 1),
        };
        let extent = |back: usize| extents.len().checked_sub(back).map_or(1, |dim| extents[dim]);
        Some(Layout {
            m,
            n: factors.n,
            k: problem.k(),
            batch: [extent(2), extent(1)],
            a: matrix(0, rows[0], a_col),
            b: matrix(1, b_row, b_col),
            out: matrix(2, rows[2], 1),
            addend: matrix(3, rows[3], addend[rank + 1]),
        })
    }

    /// With operands in each other's places, as kernels of few rows have them by columns. The result lies where it does.
    pub fn by_columns(&self) -> Layout {
        Layout { m: self.n, n: self.m, a: self.b, b: self.a, ..*self }
    }

    /// Products of the batch.
    pub fn products(&self) -> usize {
        self.batch[0] * self.batch[1]
    }
}

fn pop<T: Copy + Default>(dims: &mut Dims<T>) -> Option<T> {
    let last = *dims.last()?;
    *dims = dims.without(dims.len() - 1);
    Some(last)
}

fn front_of(strides: &Dims<isize>, rank: usize) -> Dims<isize> {
    let mut front = Dims::new();
    strides[..rank].iter().for_each(|&stride| front.push(stride));
    front
}

/// How an operand of `rows` rows and `cols` columns can be read in packs: along its columns (k) or along its rows,
/// and how far its lines are apart. `None` where it has to be copied.
pub fn lines(matrix: &Matrix, rows: usize, cols: usize, per_pack: usize) -> Option<Lines> {
    let whole = |step: i64| step.rem_euclid(per_pack as i64) == 0;
    if !whole(matrix.outer) || !whole(matrix.inner) {
        return None;
    }
    // A single row or column has no step.
    let of = |along: i64, along_extent: usize, across: i64, across_extent: usize| {
        let fits = (along == 1 || along_extent <= 1) && (whole(across) || across_extent <= 1);
        fits.then(|| if across_extent <= 1 { along_extent.next_multiple_of(per_pack) as i64 } else { across })
    };
    let along_k = of(matrix.col, cols, matrix.row, rows).map(|step| Lines { along_k: true, step });
    along_k.or_else(|| of(matrix.row, rows, matrix.col, cols).map(|step| Lines { along_k: false, step }))
}

/// Lines of an operand that start at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    pub along_k: bool,
    /// Elements from line to line.
    pub step: i64,
}

/// Bytes of a line of L2.
pub const LINE: usize = 128;
/// Lines of L2 of a line of an operand from which on what is left of the last is little.
const MANY_LINES: usize = 4;

/// The largest part of a line of L2, in bytes, at multiples of which all lines of an operand begin; `phase` is its address modulo [`LINE`].
pub fn begins(matrix: &Matrix, along_k: bool, dtype: DType, phase: usize) -> usize {
    let step = if along_k { matrix.row } else { matrix.col };
    let bytes = |step: i64| step.unsigned_abs() as usize * dtype.size();
    let all =
        [step, matrix.outer, matrix.inner].into_iter().fold(phase | LINE, |all, step| all | bytes(step));
    1 << all.trailing_zeros()
}

/// Elements from line to line of a copy whose lines have so many: whole packs of 16 bytes, or whole lines of L2 where that is little more.
pub fn pitch(length: usize, dtype: DType) -> usize {
    let [pack, line] = [16, LINE].map(|bytes| bytes / dtype.size());
    length.next_multiple_of(if length >= MANY_LINES * line { line } else { pack })
}

/// A copy of an operand in lines of whole packs, contiguous: `[outer, inner, lines, pitch]`. What repeats in the batch is there once.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub outer: usize,
    pub inner: usize,
    pub lines: usize,
    /// Elements of a line.
    pub length: usize,
    /// With those behind them.
    pub pitch: usize,
    /// Where the operand lies, with lines as rows.
    pub source: Matrix,
    along_k: bool,
}

impl Copied {
    /// Of `rows` rows and `cols` columns, with lines along k (its columns) or across it.
    pub fn new(
        matrix: &Matrix,
        [rows, cols]: [usize; 2],
        batch: [usize; 2],
        along_k: bool,
        per_pack: usize,
    ) -> Copied {
        let (lines, length) = if along_k { (rows, cols) } else { (cols, rows) };
        let (row, col) = if along_k { (matrix.row, matrix.col) } else { (matrix.col, matrix.row) };
        Copied {
            outer: if matrix.outer == 0 { 1 } else { batch[0] },
            inner: if matrix.inner == 0 { 1 } else { batch[1] },
            lines,
            length,
            pitch: length.next_multiple_of(per_pack),
            source: Matrix { row, col, ..*matrix },
            along_k,
        }
    }

    /// With lines as [`pitch`] has them. What is transposed goes into whole packs, by a kernel that leaves no gaps.
    pub fn in_lines(self, dtype: DType) -> Copied {
        let pitch = if self.source.col == 1 { pitch(self.length, dtype) } else { self.pitch };
        Copied { pitch, ..self }
    }

    /// The operand as `[outer, inner, lines, length]`.
    pub fn lying(&self, operand: &Tensor) -> Result<Tensor> {
        let &Copied { outer, inner, lines, length, source, .. } = self;
        operand.strided(&[outer, inner, lines, length], &[source.outer, source.inner, source.row, source.col])
    }

    /// Where the copy's elements lie.
    pub fn matrix(&self) -> Matrix {
        let (line, of_inner) = (self.pitch as i64, (self.lines * self.pitch) as i64);
        let (row, col) = if self.along_k { (line, 1) } else { (1, line) };
        Matrix { row, col, outer: of_inner * self.inner as i64, inner: of_inner }
    }
}
