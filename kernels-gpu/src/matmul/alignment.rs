//! Copies of matrices whose rows do not start at multiples of 16 bytes, with rows that do.
//!
//! Of `[batch, rows, cols]` in any strides comes `[batch, rows, pitch]`, contiguous, zeros behind the columns. A product
//! reads an operand many times, so the copy pays wherever the product is not small. Both operands of a product are copied by one launch: of small ones
//! a launch is most of what a copy takes.
//!
//! Launch: 1-D grid; a thread writes a pack, of the first matrix or of the second behind it.
//!
//! Floor: read and written once at the copy rate.

use super::Matrix;
use cuda_std::dependent;
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Repack {
    /// Where the elements are.
    pub source: Matrix,
    /// Packs of a row of the copy.
    pub packs_of_row: Divisor,
    /// Rows of a matrix.
    pub rows: Divisor,
    /// Matrices of the batch's inner dimension.
    pub inner: Divisor,
    /// Elements of a row.
    pub cols: u32,
    /// Packs of the copy.
    pub packs: u32,
}
plain_parameter!(Repack);

/// Copies a matrix and, where `q` has packs, another. The launch behind this one may start meanwhile if `LETS_IN` is 1: where several of its blocks fit on a
/// multiprocessor they come to lie where this kernel's are fewest.
///
/// # Safety
/// The sources have the elements that `p` and `q` name, the others the packs; the grid has a thread for each pack.
#[kernel(
    family = "matmul",
    types = [f32, f16, bf16],
    instances = [{ LETS_IN: 0; threads: 256 }, { LETS_IN: 1; threads: 256 }],
)]
pub unsafe fn repack<T: Float, const LETS_IN: usize>(
    source: Global<T>,
    out: GlobalMut<T>,
    p: Repack,
    other: Global<T>,
    out_of_other: GlobalMut<T>,
    q: Repack,
) {
    if const { LETS_IN == 1 } {
        dependent::begin();
    }
    let index = thread::index_1d();
    // SAFETY: the caller's contract.
    unsafe {
        if index < p.packs as u64 {
            copy_pack(source, out, &p, index as u32);
        } else if index - (p.packs as u64) < q.packs as u64 {
            copy_pack(other, out_of_other, &q, (index - p.packs as u64) as u32);
        }
    }
}

/// Copies pack `index`.
///
/// # Safety
/// `source` has the elements that `p` names, `out` the pack.
#[inline(always)]
unsafe fn copy_pack<T: Float>(source: Global<T>, out: GlobalMut<T>, p: &Repack, index: u32) {
    let (row, pack) = p.packs_of_row.div_rem(index);
    let (batch, row) = p.rows.div_rem(row);
    let (outer, inner) = p.inner.div_rem(batch);
    let col = pack * T::PER_PACK as u32;
    let start = outer as i64 * p.source.outer
        + inner as i64 * p.source.inner
        + row as i64 * p.source.row
        + col as i64 * p.source.col;
    // SAFETY: columns are below their number; the rest is the caller's contract.
    unsafe {
        let element = |i: usize| {
            let exists = col + (i as u32) < p.cols;
            if exists { source.get((start + i as i64 * p.source.col) as usize) } else { T::from_bits(0) }
        };
        out.set_pack_if(true, index as usize * T::PER_PACK, T::pack_from(element));
    }
}
