//! Operands in f32 as parts of bf16, for the kernel that multiplies these.

use cuda_std::Float;
use cuda_std::tma::TensorMap;
use kernels_gpu::matmul::{self as kernels, Matrix, PARTS};

use super::launch::{divisor, packs_of_launch};
use super::layout::{Copied, lines};
use super::maps;
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;

/// Numbers of a pack of parts.
const PACK: usize = 8;

/// An operand to be taken apart.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    pub tensor: &'a Tensor,
    pub matrix: Matrix,
    /// Rows along m or n.
    pub rows: usize,
    /// Columns along k.
    pub cols: usize,
    pub batch: [usize; 2],
    /// Whether lines of the parts are along k.
    pub along_k: bool,
}

/// Parts of an operand.
pub struct Parts {
    /// The memory.
    _held: Tensor,
    /// For tiles of a kernel.
    pub map: TensorMap,
}

impl Whole<'_> {
    /// Takes the operand apart, for tiles of `width` rows. What repeats in the batch is taken once.
    pub fn take_apart(&self, op: &'static str, width: u32) -> Result<Parts> {
        let Whole { tensor, matrix, rows, cols, batch, along_k } = *self;
        let device = tensor.device();
        let copied = Copied::new(&matrix, [rows, cols], batch, along_k, PACK);
        let Copied { outer, inner, lines: count, length, pitch, source, .. } = copied;
        let held = Tensor::uninit(device, DType::BF16, &[outer, PARTS, inner, count, pitch])?;
        let packs_of_part = inner * count * (pitch / PACK);
        let packs = outer * packs_of_part;
        let aligned = tensor.address().is_multiple_of(16)
            && lines(&matrix, rows, cols, f32::PER_PACK).is_some_and(|lines| lines.along_k == along_k);
        let p = kernels::Parting {
            source,
            packs_of_line: divisor(op, pitch / PACK)?,
            lines: divisor(op, count)?,
            inner: divisor(op, inner)?,
            length: length as u32,
            packs_of_part: packs_of_part as u32,
            packs: packs_of_launch(op, packs)?,
            aligned: aligned.into(),
        };
        let kernel = &kernels::part_numbers::ALL[0];
        let grid = Grid::covering(packs as u64, kernel.bounds.threads.into())?;
        // SAFETY: the source has the elements of the operand's layout, the parts whole packs for all lines.
        unsafe { device.launch(kernel, grid, (tensor.view::<f32>()?, held.view_mut::<half::bf16>()?, p))? };
        let map =
            maps::operand(&held, &copied.matrix(), [rows, cols], [outer * PARTS, inner], along_k, width)?;
        Ok(Parts { _held: held, map })
    }
}
