//! Where packed sequences begin, checked on the device.

use cuda_std::Global;
use kernels_gpu::embedding::{self as kernels, Boundaries, FAULT_BITS, Tokens};

use super::Positions;
use super::launch::{divisor, kind};
use super::problem::{Packed, Problem};
use crate::dtype::DType;
use crate::error::Result;
use crate::launch::Grid;
use crate::tensor::Tensor;

/// The boundaries as u32, none beyond the tokens; and the check of them. None where sequences are of one length.
pub fn read(
    op: &'static str,
    problem: &Problem,
    tokens: &Tensor,
    positions: Option<Positions>,
) -> Result<Option<Tensor>> {
    let (Some(Packed { sequences, most, stride, dtype }), Some(cu_seqlens)) =
        (problem.packed, positions.and_then(|positions| positions.cu_seqlens))
    else {
        return Ok(None);
    };
    let (device, count, total) = (tokens.device(), sequences + 1, problem.token_count() as i64);
    let cu_seqlens = cu_seqlens.adopted(device, op, "cu_seqlens")?;
    let starts = Tensor::uninit(device, DType::U32, &[count])?;
    let slot = |arg, min, max| device.wide_value_slot(op, arg, min, max, FAULT_BITS);
    let (first, last) = (slot("cu_seqlens", 0, 0)?, slot("cu_seqlens", total, total)?);
    let lengths = slot("lengths by cu_seqlens", 0, most as i64)?;
    let values = Tokens {
        sequence: 0,
        step: stride as i64,
        vocabulary: total + 1,
        steps: divisor(count),
        kind: kind(dtype),
    };
    let params = Boundaries { values, count: count as u32, most: most as u32 };
    let kernel = &kernels::read_boundaries::ALL[0];
    let grid = Grid::covering(count as u64, u64::from(kernel.bounds.threads))?;
    // SAFETY: words of boundaries, of one or two each; the grid covers them. Memory is freed in the order of the stream.
    unsafe {
        let words = Global::from_raw(cu_seqlens.raw_view()?);
        let args = (words, starts.view_mut::<u32>()?, first.view(), last.view(), lengths.view(), params);
        device.launch(kernel, grid, args)?;
    }
    [first, last, lengths].into_iter().try_for_each(|slot| slot.finish())?;
    Ok(Some(starts))
}
