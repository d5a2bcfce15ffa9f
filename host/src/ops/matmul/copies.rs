//! Operands as kernels read them: as they lie, or copied.

use cuda_std::Float;
use kernels_gpu::matmul::{self as kernels, Matrix};

use super::blocks::{MOST_PACKS, divisor, packs_of_launch};
use super::layout::{Copied, Layout, lines};
use super::plan::Plan;
use super::problem::Problem;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;

/// What a kernel gets: operands as it reads them.
pub(super) struct Ready {
    pub layout: Layout,
    pub operands: [Tensor; 2],
}

/// Copies the operands that the plan's kernel cannot read as they lie. By columns they change places.
pub(super) fn prepare<T: Element + Float + kernels::repack::Instances>(
    plan: &Plan,
    problem: &Problem,
    layout: &Layout,
    operands: [&Tensor; 2],
) -> Result<Ready> {
    let mut layout = if plan.by_columns { layout.by_columns() } else { *layout };
    let mut held = operands.map(Tensor::clone);
    if plan.by_columns {
        held.swap(0, 1);
    }
    let mut pieces = Vec::new();
    let extents = [(layout.m, layout.k), (layout.n, layout.k)];
    for (i, side) in plan.sides.into_iter().enumerate() {
        let (rows, cols) = extents[i];
        let matrix = if i == 0 { &mut layout.a } else { &mut layout.b };
        if side.copied {
            let copied = Copied::new(matrix, [rows, cols], layout.batch, side.along_k, T::PER_PACK);
            let copied = copied.in_lines(T::DTYPE);
            held[i] = repacked::<T>(problem.op, &held[i], matrix, &copied, &mut pieces)?;
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
    copy::<T>(&pieces, plan.beside_copies)?;
    Ok(Ready { layout, operands: held })
}

/// A copy of an operand, and where it lies; of what is still to be copied it leaves `pieces`.
fn repacked<T: Element + Float + kernels::repack::Instances>(
    op: &'static str,
    tensor: &Tensor,
    matrix: &mut Matrix,
    copied: &Copied,
    pieces: &mut Vec<Piece>,
) -> Result<Tensor> {
    let &Copied { outer, inner, lines, length, pitch, source, .. } = copied;
    let lying = copied.lying(tensor)?;
    let copy = if source.row == 1 && source.col != 1 && pitch == length {
        // Whole lines across those of the operand, by the kernels of permutations.
        crate::ops::contiguous(&lying)?
    } else {
        let copy = Tensor::uninit(tensor.device(), tensor.dtype(), &[outer, inner, lines, pitch])?;
        gather::<T>(op, &lying, &copy, MOST_PACKS, pieces)?;
        copy
    };
    let lies = copied.matrix();
    *matrix = Matrix {
        outer: if matrix.outer == 0 { 0 } else { lies.outer },
        inner: if matrix.inner == 0 { 0 } else { lies.inner },
        ..lies
    };
    Ok(copy)
}

/// Lines of any strides that become whole packs, with zeros behind them.
struct Piece {
    source: Tensor,
    copy: Tensor,
    p: kernels::Repack,
}

impl Piece {
    fn packs(&self) -> usize {
        self.p.packs as usize
    }
}

/// Leaves lines `[outer, inner, lines, length]` that become those of the contiguous `copy`, in pieces of at most so many packs or of one line.
fn gather<T: Float>(
    op: &'static str,
    source: &Tensor,
    copy: &Tensor,
    most: usize,
    pieces: &mut Vec<Piece>,
) -> Result<()> {
    let packs = copy.len() / T::PER_PACK;
    // The outermost dimension that can be halved: what is left of the copy is contiguous.
    let halved = copy.shape()[..3].iter().position(|&extent| extent > 1).filter(|_| packs > most);
    if let Some(dim) = halved {
        let (extent, half) = (copy.shape()[dim], copy.shape()[dim] / 2);
        return [(0, half), (half, extent - half)].into_iter().try_for_each(|(first, count)| {
            let part = |of: &Tensor| of.narrow(dim as isize, first, count);
            gather::<T>(op, &part(source)?, &part(copy)?, most, pieces)
        });
    }
    let &[_, inner, lines, length] = source.shape() else { unreachable!("four dimensions") };
    let [of_outer, of_inner, row, col] = [0, 1, 2, 3].map(|dim| source.strides()[dim] as i64);
    let p = kernels::Repack {
        source: Matrix { row, col, outer: of_outer, inner: of_inner },
        packs_of_row: divisor(op, copy.shape()[3] / T::PER_PACK)?,
        rows: divisor(op, lines)?,
        inner: divisor(op, inner)?,
        cols: length as u32,
        packs: packs_of_launch(op, packs)?,
    };
    if packs > 0 {
        pieces.push(Piece { source: source.clone(), copy: copy.clone(), p });
    }
    Ok(())
}

/// Copies the pieces, two by a launch, which may let in what comes behind it.
fn copy<T: Element + Float + kernels::repack::Instances>(pieces: &[Piece], lets_in: bool) -> Result<()> {
    for two in pieces.chunks(2) {
        match two {
            [first, second] if first.packs() + second.packs() <= MOST_PACKS => {
                launch::<T>(first, Some(second), lets_in)?
            }
            _ => two.iter().try_for_each(|piece| launch::<T>(piece, None, lets_in))?,
        }
    }
    Ok(())
}

/// Copies one piece or two.
fn launch<T: Element + Float + kernels::repack::Instances>(
    first: &Piece,
    second: Option<&Piece>,
    lets_in: bool,
) -> Result<()> {
    let packs = first.packs() + second.map_or(0, Piece::packs);
    // Without packs nothing of a second one is read.
    let (other, q) =
        second.map_or((first, kernels::Repack { packs: 0, ..first.p }), |second| (second, second.p));
    let kernel = &kernels::repack::kernels::<T>()[usize::from(lets_in)];
    let grid = Grid::covering(packs as u64, kernel.bounds.threads.into())?;
    let args = (
        first.source.view::<T>()?,
        first.copy.view_mut::<T>()?,
        first.p,
        other.source.view::<T>()?,
        other.copy.view_mut::<T>()?,
        q,
    );
    // SAFETY: the sources have the elements of the operands' layouts, the copies whole packs for all lines.
    unsafe { first.source.device().launch(kernel, grid, args) }
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
    let copied = Copied::new(&at, [rows, cols], [1, 1], true, T::PER_PACK);
    let mut pieces = Vec::new();
    let packed = repacked::<T>(op, matrix, &mut at, &copied, &mut pieces)?;
    // What reads f32 may have several blocks on a multiprocessor.
    copy::<T>(&pieces, T::DTYPE != DType::F32)?;
    Ok((packed, at.row as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use half::bf16;

    /// Copies lines that lie as `matrix` says from element `first` on, in a batch of two by three, and compares every element of the copy.
    fn check(device: &Device, [rows, cols]: [usize; 2], matrix: Matrix, first: usize, along_k: bool) {
        let ends = [(matrix.row, rows), (matrix.col, cols), (matrix.outer, 2), (matrix.inner, 3)];
        let last = ends.iter().map(|&(step, extent)| step as usize * (extent - 1)).sum::<usize>();
        let numbers: Vec<bf16> =
            (0..=first + last).map(|i| bf16::from_bits(1 + (i % 32_749) as u16)).collect();
        let all = Tensor::from_slice(device, &[numbers.len()], &numbers).unwrap();
        let from = all.narrow(0, first, last + 1).unwrap();
        let copied =
            Copied::new(&matrix, [rows, cols], [2, 3], along_k, bf16::PER_PACK).in_lines(bf16::DTYPE);
        let mut lies = matrix;
        let mut pieces = Vec::new();
        let whole = repacked::<bf16>("matmul", &from, &mut lies, &copied, &mut pieces).unwrap();
        copy::<bf16>(&pieces, true).unwrap();
        let got = whole.to_vec::<bf16>().unwrap();
        let Copied { outer, inner, lines, length, pitch, source, .. } = copied;
        assert_eq!(got.len(), outer * inner * lines * pitch);
        for (at, got) in got.into_iter().enumerate() {
            let (element, line) = (at % pitch, at / pitch % lines);
            let (of_inner, of_outer) = (at / pitch / lines % inner, at / pitch / lines / inner);
            let of = |step: i64, index: usize| step as usize * index;
            let place = of(source.row, line) + of(source.col, element);
            let place = first + place + of(source.inner, of_inner) + of(source.outer, of_outer);
            let want = if element < length { numbers[place] } else { bf16::ZERO };
            assert_eq!(got.to_bits(), want.to_bits(), "{matrix:?} {rows}x{cols} at {at}");
        }
        // The same in many pieces, two by a launch.
        for most in [0, 7, pitch / bf16::PER_PACK * lines] {
            let again = Tensor::from_slice(device, whole.shape(), &vec![bf16::NAN; whole.len()]).unwrap();
            let mut pieces = Vec::new();
            gather::<bf16>("matmul", &copied.lying(&from).unwrap(), &again, most, &mut pieces).unwrap();
            copy::<bf16>(&pieces, false).unwrap();
            assert_eq!(again.to_bytes().unwrap(), whole.to_bytes().unwrap(), "{matrix:?}, {most} at most");
        }
        let step = if along_k { lies.row } else { lies.col };
        assert_eq!(step, pitch as i64);
    }

    #[test]
    fn copies_have_what_lies_there_and_zeros_behind_it() {
        for device in Device::cuda(0).into_iter().chain([Device::cpu()]) {
            let of = |row, col, inner, outer| Matrix { row, col, inner, outer };
            // Whole packs, which go to lines of L2; the same between packs, and from between them.
            check(&device, [5, 264], of(272, 1, 1360, 4080), 8, true);
            check(&device, [5, 261], of(272, 1, 1360, 4080), 8, true);
            check(&device, [5, 264], of(264, 1, 1320, 3960), 3, true);
            check(&device, [5, 264], of(265, 1, 1325, 3975), 0, true);
            // Short lines stay short.
            check(&device, [7, 40], of(40, 1, 280, 840), 0, true);
            check(&device, [7, 37], of(37, 1, 259, 777), 0, true);
            // Along rows, across them, and what repeats in the batch.
            check(&device, [300, 6], of(1, 304, 1824, 5472), 0, false);
            check(&device, [300, 6], of(1, 301, 1806, 5418), 1, false);
            check(&device, [6, 272], of(1, 6, 1632, 4896), 0, true);
            check(&device, [6, 264], of(2, 13, 0, 0), 1, true);
            check(&device, [5, 264], of(264, 1, 0, 1320), 0, true);
        }
    }
}
