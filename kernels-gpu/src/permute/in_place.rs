//! Square matrices in their own place: a block holds a tile and its mirror image, and writes each where the other was.
//!
//! Launch: grid (pairs of tiles, matrices) of one dimension: pairs of a matrix follow one another.

use super::unit::Unit;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Rows and columns of a tile of elements of so many bytes.
pub const fn tile(bytes: usize) -> usize {
    if bytes < 4 { 64 } else { 32 }
}

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    /// The number of the launch's first matrix.
    pub first: u64,
    /// Rows of a matrix.
    pub n: u32,
    /// Tiles along a row.
    pub tiles: u32,
    /// Pairs of tiles of a matrix: tiles² where each pair comes twice, once to be done.
    pub places: Divisor,
    /// Tiles along a row, to divide by.
    pub per_row: Divisor,
}
cuda_std::plain_parameter!(InPlace);
const _: () = assert!(size_of::<InPlace>() == 8 + 8 + 24);

/// x = its transpose, matrix by matrix.
///
/// # Safety
/// x holds the matrices of `p`, contiguous; the grid has a block for each place of each; shared memory has room for two
/// tiles, each of a column more than it has.
#[kernel(family = "permute", types = [u8, u16, u32, u64], instances = [{ ; threads: 256 }])]
pub unsafe fn transpose_in_place<T: Unit>(x: GlobalMut<T>, p: InPlace) {
    let side = const { tile(T::BYTES) } as u32;
    let (matrix, place) = p.places.div_rem(thread::block_idx_x());
    let (row, column) = p.per_row.div_rem(place);
    let base = (p.first + matrix as u64) * p.n as u64 * p.n as u64;
    // A pair has two places; the lower triangle has nothing to do.
    let active = row <= column;
    let (across, down) = (thread::thread_idx_x() % side, thread::thread_idx_x() / side);
    let rows = thread::block_dim_x() / side;
    let held = side * (side + 1);
    // SAFETY: elements outside the matrix are not accessed; a pair has one block, and barriers are reached by all.
    unsafe {
        let tiles = Shared::<T>::dynamic(0, 2 * held);
        // Both tiles come in before either goes out: they may be the same.
        for half in 0..2 {
            let (top, left) = if half == 0 { (row, column) } else { (column, row) };
            let mut i = down;
            while i < side {
                let (r, c) = (top * side + i, left * side + across);
                if active && r < p.n && c < p.n {
                    let at = base + r as u64 * p.n as u64 + c as u64;
                    tiles.set(half * held + i * (side + 1) + across, x.get(at as usize));
                }
                i += rows;
            }
        }
        thread::sync_threads();
        for half in 0..2 {
            let (top, left) = if half == 0 { (column, row) } else { (row, column) };
            let mut i = down;
            while i < side {
                let (r, c) = (top * side + i, left * side + across);
                // The mirror image of a tile on the diagonal is itself, and goes out once.
                if active && (half == 0 || row != column) && r < p.n && c < p.n {
                    let at = base + r as u64 * p.n as u64 + c as u64;
                    x.set(at as usize, tiles.get(half * held + across * (side + 1) + i));
                }
                i += rows;
            }
        }
    }
}
