//! Tensor maps of a product's matrices, and when there can be one.

use cuda_std::tma::TensorMap;
use kernels_gpu::matmul::{Matrix, PIPELINED_DEPTH, PIPELINED_LINES, TF32_DEPTH, TF32_LINES};

use crate::cuda::{RANK, Tiled};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Largest step of a map, in bytes.
const MOST_BYTES: i64 = 1 << 40;

/// Whether matrices that begin at multiples of 16 bytes, with lines of whole packs, can be mapped: what is left is that
/// steps go forward, and not too far, and that lines are not one and the same.
pub fn mappable(matrix: &Matrix, size: usize, lines: usize, along_k: bool) -> bool {
    let steps = [matrix.row, matrix.col, matrix.outer, matrix.inner];
    let line = if along_k { matrix.row } else { matrix.col };
    let forward = steps.into_iter().all(|step| (0..MOST_BYTES / size as i64).contains(&step));
    forward && (lines <= 1 || line > 0)
}

/// Of an operand of `lines` lines of `terms` terms, for tiles of `width` lines.
pub fn operand(
    tensor: &Tensor,
    matrix: &Matrix,
    [lines, terms]: [usize; 2],
    batch: [usize; 2],
    along_k: bool,
    width: u32,
) -> Result<TensorMap> {
    let (depth, neighbours) = match tensor.dtype() {
        DType::F32 => (TF32_DEPTH, TF32_LINES),
        _ => (PIPELINED_DEPTH, PIPELINED_LINES),
    };
    let (step, extents, boxed) = match along_k {
        true => (matrix.row, [terms, lines], [depth, width]),
        // As many lines as are neighbours in 128 bytes, by the terms of a stage.
        false => (matrix.col, [lines, terms], [neighbours, depth]),
    };
    map(tensor, matrix, step, extents, batch, boxed, false)
}

/// Of one of f32, along k, which loads round to tf32.
pub fn rounded_operand(
    tensor: &Tensor,
    matrix: &Matrix,
    [lines, terms]: [usize; 2],
    batch: [usize; 2],
    width: u32,
) -> Result<TensorMap> {
    map(tensor, matrix, matrix.row, [terms, lines], batch, [TF32_DEPTH, width], true)
}

/// Of the result, for what is stored at a time: so many columns and rows.
pub fn result(
    tensor: &Tensor,
    matrix: &Matrix,
    [m, n]: [usize; 2],
    batch: [usize; 2],
    boxed: [u32; 2],
) -> Result<TensorMap> {
    map(tensor, matrix, matrix.row, [n, m], batch, boxed, false)
}

fn map(
    tensor: &Tensor,
    matrix: &Matrix,
    step: i64,
    [width, lines]: [usize; 2],
    [outer, inner]: [usize; 2],
    [box_width, box_lines]: [u32; 2],
    tf32: bool,
) -> Result<TensorMap> {
    let size = tensor.dtype().size();
    let bytes = |step: i64| step as u64 * size as u64;
    // What repeats is there once; a step that is never taken may be any.
    let of_batch = |step: i64, count: usize| if step == 0 { (1, 16) } else { (count as u64, bytes(step)) };
    let (inner, inner_step) = of_batch(matrix.inner, inner);
    let (outer, outer_step) = of_batch(matrix.outer, outer);
    let data = tensor.raw_view()?;
    let tiled = Tiled {
        dtype: tensor.dtype(),
        address: tensor.address(),
        extents: [width as u64, lines as u64, inner, outer],
        strides: [bytes(step).max(16), inner_step, outer_step],
        boxed: [box_width, box_lines, 1, 1],
        tf32,
    };
    let encoded = if tensor.device().is_cuda() { tiled.encode()? } else { [0; 16] };
    let extents: [u64; RANK] = tiled.extents;
    let map = TensorMap::new(data, size, extents, tiled.strides, tiled.boxed, encoded);
    Ok(if tf32 { map.of_tf32() } else { map })
}
