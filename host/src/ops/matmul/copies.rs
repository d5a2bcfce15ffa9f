//! Operands as kernels read them: as they lie, or copied.

use cuda_std::Float;
use kernels_gpu::matmul::{self as kernels, Matrix};

use super::launch::{divisor, packs_of_launch};
use super::layout::{Copied, Layout, lines};
use super::plan::Plan;
use super::problem::Problem;
use crate::dtype::Element;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;

/// What a kernel gets: operands as it reads them.
pub(super) struct Ready {
    pub layout: Layout,
    pub operands: [Tensor; 2],
}

/// Copies the operands that the plan's kernel cannot read as they lie.
pub(super) fn prepare<T: Element + Float + kernels::repack::Instances>(
    plan: &Plan,
    problem: &Problem,
    layout: &Layout,
    operands: [&Tensor; 2],
) -> Result<Ready> {
    let mut layout = *layout;
    let mut held = operands.map(Tensor::clone);
    let extents = [(layout.m, layout.k), (layout.n, layout.k)];
    for (i, side) in plan.sides.into_iter().enumerate() {
        let (rows, cols) = extents[i];
        let matrix = if i == 0 { &mut layout.a } else { &mut layout.b };
        if side.copied {
            held[i] = repacked::<T>(problem.op, &held[i], matrix, [rows, cols], side.along_k, layout.batch)?;
        }
        // The step of a single line is any.
        if let Some(lines) = lines(matrix, rows, cols, T::PER_PACK) {
            if lines.along_k {
                matrix.row = lines.step
            } else {
                matrix.col = lines.step
            };
        }
    }
    Ok(Ready { layout, operands: held })
}

/// A copy of an operand whose lines start at multiples of 16 bytes, and where it lies.
fn repacked<T: Element + Float + kernels::repack::Instances>(
    op: &'static str,
    tensor: &Tensor,
    matrix: &mut Matrix,
    [rows, cols]: [usize; 2],
    along_k: bool,
    batch: [usize; 2],
) -> Result<Tensor> {
    let copied = Copied::new(matrix, [rows, cols], batch, along_k, T::PER_PACK);
    let Copied { length, pitch, source, .. } = copied;
    let copy = if source.row == 1 && source.col != 1 && pitch == length {
        transposed(tensor, &copied)?
    } else {
        gathered::<T>(op, tensor, &copied)?
    };
    let lies = copied.matrix();
    *matrix = Matrix {
        outer: if matrix.outer == 0 { 0 } else { lies.outer },
        inner: if matrix.inner == 0 { 0 } else { lies.inner },
        ..lies
    };
    Ok(copy)
}

/// Whole lines across those of the operand, by the kernels of permutations.
fn transposed(tensor: &Tensor, copied: &Copied) -> Result<Tensor> {
    let &Copied { outer, inner, lines, length, .. } = copied;
    let Matrix { row, col, outer: of_outer, inner: of_inner } = copied.source;
    let view = tensor.strided(&[outer, inner, lines, length], &[of_outer, of_inner, row, col])?;
    crate::ops::contiguous(&view)
}

/// Any lines, with zeros behind them up to a whole pack.
fn gathered<T: Element + Float + kernels::repack::Instances>(
    op: &'static str,
    tensor: &Tensor,
    copied: &Copied,
) -> Result<Tensor> {
    let &Copied { outer, inner, lines, length, pitch, source, .. } = copied;
    let copy = Tensor::uninit(tensor.device(), tensor.dtype(), &[outer, inner, lines, pitch])?;
    let packs = copy.len() / T::PER_PACK;
    let p = kernels::Repack {
        source,
        packs_of_row: divisor(op, pitch / T::PER_PACK)?,
        rows: divisor(op, lines)?,
        inner: divisor(op, inner)?,
        cols: length as u32,
        packs: packs_of_launch(op, packs)?,
    };
    if packs > 0 {
        let kernel = &kernels::repack::kernels::<T>()[0];
        let grid = Grid::covering(packs as u64, kernel.bounds.threads.into())?;
        let args = (tensor.view::<T>()?, copy.view_mut::<T>()?, p);
        // SAFETY: the source has the elements of the operand's layout, the copy whole packs for all lines.
        unsafe { tensor.device().launch(kernel, grid, args)? };
    }
    Ok(copy)
}

/// A matrix as it is, or a copy with zeros behind its columns, whose rows start at multiples of 16 bytes; and the step from one
/// to the next.
pub fn packed_rows<T: Element + Float + kernels::repack::Instances>(
    op: &'static str,
    matrix: &Tensor,
) -> Result<(Tensor, usize)> {
    let (shape, strides) = (matrix.shape(), matrix.strides());
    let [rows, cols] = [shape[0], shape[1]];
    let mut at = Matrix { row: strides[0] as i64, col: strides[1] as i64, outer: 0, inner: 0 };
    let is_whole = cols.is_multiple_of(T::PER_PACK) && matrix.address().is_multiple_of(16);
    let as_it_is =
        lines(&at, rows, cols, T::PER_PACK).filter(|lines| is_whole && lines.along_k && lines.step >= 0);
    if let Some(lines) = as_it_is {
        return Ok((matrix.clone(), lines.step as usize));
    }
    let copy = repacked::<T>(op, matrix, &mut at, [rows, cols], true, [1, 1])?;
    Ok((copy, at.row as usize))
}
