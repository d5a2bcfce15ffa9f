//! Operands in f32 as parts of bf16, for the kernel that multiplies these.

use cuda_std::tma::TensorMap;
use kernels_gpu::matmul::{self as kernels, Matrix};

use super::launch::{divisor, too_large};
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
    /// Takes the operand apart, into `parts` parts for tiles of `width` rows. What repeats in the batch is taken once.
    pub fn take_apart(&self, op: &'static str, parts: usize, width: u32) -> Result<Parts> {
        let Whole { tensor, matrix, rows, cols, batch, along_k } = *self;
        let device = tensor.device();
        let outer = if matrix.outer == 0 { 1 } else { batch[0] };
        let inner = if matrix.inner == 0 { 1 } else { batch[1] };
        let (lines, length) = if along_k { (rows, cols) } else { (cols, rows) };
        let (line_step, step) = if along_k { (matrix.row, matrix.col) } else { (matrix.col, matrix.row) };
        let pitch = length.next_multiple_of(PACK);
        let held = Tensor::uninit(device, DType::BF16, &[outer, parts, inner, lines, pitch])?;
        let packs_of_part = inner * lines * (pitch / PACK);
        let packs = outer * packs_of_part;
        let whole = |step: i64| step % 4 == 0;
        let aligned = tensor.address().is_multiple_of(16)
            && (step == 1 || length <= 1)
            && (whole(line_step) || lines <= 1)
            && (whole(matrix.outer) || outer <= 1)
            && (whole(matrix.inner) || inner <= 1);
        let p = kernels::Parting {
            source: Matrix { row: line_step, col: step, ..matrix },
            packs_of_line: divisor(op, pitch / PACK)?,
            lines: divisor(op, lines)?,
            inner: divisor(op, inner)?,
            length: length as u32,
            packs_of_part: packs_of_part as u32,
            packs: u32::try_from(packs)
                .ok()
                .filter(|&packs| packs < 1 << 31)
                .ok_or_else(|| too_large(op, packs))?,
            aligned: aligned.into(),
        };
        let kernel = kernels::part_numbers::ALL
            .iter()
            .find(|kernel| kernel.constant("PARTS") == parts)
            .expect("there is an instance for each number of parts");
        let grid = Grid::covering(packs as u64, kernel.bounds.threads.into())?.early_if(true);
        // SAFETY: the source has the elements of the operand's layout, the parts whole packs for all lines.
        unsafe { device.launch(kernel, grid, (tensor.view::<f32>()?, held.view_mut::<half::bf16>()?, p))? };
        let of_inner = (lines * pitch) as i64;
        let of_parts = Matrix {
            row: if along_k { pitch as i64 } else { 1 },
            col: if along_k { 1 } else { pitch as i64 },
            outer: inner as i64 * of_inner,
            inner: of_inner,
        };
        let map = maps::operand(&held, &of_parts, [rows, cols], [outer * parts, inner], along_k, width)?;
        Ok(Parts { _held: held, map })
    }
}
