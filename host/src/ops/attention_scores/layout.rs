//! How the operands lie in memory, in as few dimensions as the kernel counts in.

use kernels_gpu::matmul::Matrix;

use super::{OP, Request};
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::masked_softmax::{Described, Mask, MaskForm, MaskedSoftmax};
use crate::ops::matmul::{lines, mappable};
use crate::shape::{self, Dims, merge};
use crate::tensor::{Desc, Tensor};

/// Columns that a lane masks and stores at once.
pub const RUN: usize = 8;

/// Products of a batch of up to two dimensions, and steps in elements.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub queries: usize,
    pub keys: usize,
    pub terms: usize,
    /// Products along the batch's outer and inner dimension.
    pub batch: [usize; 2],
    pub q: Matrix,
    pub k: Matrix,
    pub y: Matrix,
    pub mask: Matrix,
    /// Of rows.
    pub lengths: Matrix,
    /// Of rows.
    pub starts: Matrix,
}

/// The steps of an operand: in front, from row to row, from column to column.
type Steps = (Dims<isize>, isize, isize);

impl Layout {
    /// `None` where the batch keeps more than two dimensions, or rows of q or k are not whole packs along the terms.
    pub fn new<D: Described>(request: &Request, parameters: &MaskedSoftmax<D>) -> Result<Option<Layout>> {
        let factors = &request.product.factors;
        let shape = request.product.y.shape();
        let rank = factors.front.len();
        let split = |strides: Dims<isize>| -> Steps {
            let mut front = Dims::new();
            strides.iter().take(rank).for_each(|&stride| front.push(stride));
            let at = |dim: usize| strides.get(dim).copied().unwrap_or(0);
            (front, at(rank), at(rank + 1))
        };
        let walk = |arg, desc: Option<&Desc>, to: &[usize]| match desc {
            Some(desc) => shape::broadcast_strides(OP, arg, desc.shape(), desc.strides(), to).map(split),
            None => Ok(split(Dims::zeros(to.len()))),
        };
        let (mask, lengths, starts) = match parameters.mask {
            Mask::None | Mask::Packed { .. } => (None, None, None),
            Mask::Keep(mask) | Mask::Drop(mask) | Mask::Bias(mask) => (Some(mask), None, None),
            Mask::Range { lengths, starts } => (None, lengths, starts),
        };
        let steps = [
            factors.strides[0],
            factors.strides[1],
            split(shape::contiguous_strides(shape)),
            walk("mask", mask.map(D::described), shape)?,
            walk("lengths", lengths.map(D::described), &shape[..=rank])?,
            walk("starts", starts.map(D::described), &shape[..=rank])?,
        ];
        let fronts = steps.each_ref().map(|(front, _, _)| &**front);
        let merged = merge(&factors.front, fronts);
        let dims = merged.shape.len();
        if dims > 2 {
            return Ok(None);
        }
        let matrix = |i: usize| {
            let last = |back: usize| dims.checked_sub(back).map_or(0, |dim| merged.strides[i][dim]) as i64;
            let (_, row, col) = steps[i];
            Matrix { row: row as i64, col: col as i64, outer: last(2), inner: last(1) }
        };
        // A single query has no step.
        let of_rows = |i: usize| Matrix { row: if factors.m > 1 { matrix(i).row } else { 0 }, ..matrix(i) };
        let extent = |back: usize| dims.checked_sub(back).map_or(1, |dim| merged.shape[dim]);
        let mut layout = Layout {
            queries: factors.m,
            keys: factors.n,
            terms: factors.k,
            batch: [extent(2), extent(1)],
            q: matrix(0),
            k: matrix(1),
            y: matrix(2),
            mask: of_rows(3),
            lengths: of_rows(4),
            starts: of_rows(5),
        };
        for (operand, rows) in [(&mut layout.q, factors.m), (&mut layout.k, factors.n)] {
            match lines(operand, rows, factors.k, 16 / factors.dtype.size()).filter(|lines| lines.along_k) {
                Some(lines) => operand.row = lines.step,
                None => return Ok(None),
            }
        }
        Ok(Some(layout))
    }

    /// Products of the batch.
    pub fn products(&self) -> usize {
        self.batch[0] * self.batch[1]
    }

    /// Whether there can be tensor maps of q and k, rows of which are whole packs.
    pub fn mappable(&self) -> bool {
        // Of 16 bits.
        mappable(&self.q, 2, self.queries, true) && mappable(&self.k, 2, self.keys, true)
    }

    /// Whether eight columns of y and of a mask of this form start at multiples of their size.
    pub fn packed(&self, form: MaskForm, starts: Starts) -> bool {
        let whole = |matrix: &Matrix| {
            let steps =
                [(matrix.row, self.queries), (matrix.outer, self.batch[0]), (matrix.inner, self.batch[1])];
            steps.iter().all(|&(step, extent)| extent <= 1 || step % RUN as i64 == 0)
        };
        let mask = form == MaskForm::None || (self.mask.col == 1 && whole(&self.mask) && starts.mask);
        self.keys.is_multiple_of(RUN) && starts.y && mask
    }
}

/// Whether the operands' first elements lie as the kernel wants them.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    /// q and k at multiples of 16 bytes.
    pub q_and_k: bool,
    /// y does.
    pub y: bool,
    /// Eight elements of the mask start at a multiple of their size.
    pub mask: bool,
}

impl Starts {
    /// Those of whole allocations.
    pub fn of_allocations() -> Starts {
        Starts { q_and_k: true, y: true, mask: true }
    }

    /// Those of these operands.
    pub fn of(q: &Tensor, k: &Tensor, parameters: &MaskedSoftmax, y: &Tensor) -> Starts {
        let at = |tensor: &Tensor, bytes: u64| tensor.address().is_multiple_of(bytes);
        let mask = parameters.mask.first().is_none_or(|mask| {
            let bytes = matches!(mask.dtype(), DType::U8 | DType::Bool);
            at(mask, if bytes { RUN as u64 } else { 16 })
        });
        Starts { q_and_k: at(q, 16) && at(k, 16), y: at(y, 16), mask }
    }
}
