//! Square matrices in their own place: a block holds a tile and its mirror image, and writes each where the other was.
//!
//! Launch: a block for each place of a tile, matrix by matrix; of a pair of places, one has nothing to do. Packs go in and
//! out where all rows are whole packs; else elements.

use super::unit::Unit;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Rows and columns of a tile of elements of so many bytes, of packs or of elements.
pub const fn tile(bytes: usize, packs: bool) -> usize {
    match bytes {
        1 if packs => 128,
        4 if packs => 64,
        1 | 2 => 64,
        _ => 32,
    }
}

/// Bytes of shared memory of a tile of elements of so many bytes: its rows, with 16 bytes more in front of every pack's
/// elements of them, or an element more in each, so that lanes which read a column, a pack or an element each, read
/// different banks.
pub const fn tile_bytes(bytes: usize, packs: bool) -> usize {
    let side = tile(bytes, packs);
    side * side * bytes + side * bytes
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

/// x = its transpose, matrix by matrix. PACKS: 1 where rows are whole packs.
///
/// # Safety
/// x holds the matrices of `p`, contiguous, at a multiple of 16 bytes where PACKS is 1; the grid has a block for each place
/// of each; shared memory has room for two tiles.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [{ PACKS: 0; threads: 256 }, { PACKS: 1; threads: 256 }],
)]
pub unsafe fn transpose_in_place<T: Unit, const PACKS: usize>(x: GlobalMut<T>, p: InPlace) {
    let (matrix, place) = p.places.div_rem(thread::block_idx_x());
    let (row, column) = p.per_row.div_rem(place);
    let base = (p.first + matrix as u64) * p.n as u64 * p.n as u64;
    let side = const { tile(T::BYTES, PACKS == 1) as u32 };
    let held = const { (tile_bytes(T::BYTES, PACKS == 1) / T::BYTES) as u32 };
    let per = if const { PACKS == 1 } { T::PER_PACK as u32 } else { 1 };
    // A pair has two places; the lower triangle has nothing to do.
    let active = row <= column;
    let (top, left) = (row * side, column * side);
    // SAFETY: elements outside the matrix are not accessed; a pair has one block, and barriers are reached by all.
    unsafe {
        let tiles = Shared::<T>::dynamic(0, 2 * held);
        // What a block reads nobody else writes, and the block itself only after the barrier.
        let source = Global::<T>::from_raw(x.raw());
        // Both tiles come in before either goes out: they may be the same.
        for half in 0..2 {
            let (top, left) = if half == 0 { (top, left) } else { (left, top) };
            let mut piece = thread::thread_idx_x();
            while piece < side * side / per {
                let (r, c) = (piece / (side / per), piece % (side / per) * per);
                if active && top + r < p.n && left + c < p.n {
                    let from = base + (top + r) as u64 * p.n as u64 + (left + c) as u64;
                    let to = half * held + staged::<T, PACKS>(r) + c;
                    if const { PACKS == 1 } {
                        tiles.set_pack(to, source.get_pack_if(true, from as usize, 0));
                    } else {
                        x.get(from as usize).stage(to);
                    }
                }
                piece += thread::block_dim_x();
            }
        }
        thread::sync_threads();
        for half in 0..2 {
            let (top, left) = if half == 0 { (left, top) } else { (top, left) };
            let mut piece = thread::thread_idx_x();
            while piece < side * side / per {
                let (r, c) = (piece / (side / per), piece % (side / per) * per);
                // The mirror image of a tile on the diagonal is itself, and goes out once.
                if active && (half == 0 || row != column) && top + r < p.n && left + c < p.n {
                    let to = base + (top + r) as u64 * p.n as u64 + (left + c) as u64;
                    let from = half * held + staged::<T, PACKS>(c) + r;
                    if const { PACKS == 1 } {
                        let mut elements = [T::ZERO; 16];
                        for i in 0..const { T::PER_PACK } {
                            elements[i] = T::staged(from + i as u32 * side);
                        }
                        x.set_pack_if(true, to as usize, T::pack(&elements));
                    } else {
                        x.set(to as usize, T::staged(from));
                    }
                }
                piece += thread::block_dim_x();
            }
        }
    }
}

/// Elements in front of a row of a tile.
#[inline(always)]
fn staged<T: Unit, const PACKS: usize>(row: u32) -> u32 {
    let (side, per_pack) = (const { tile(T::BYTES, PACKS == 1) as u32 }, T::PER_PACK as u32);
    row * side + if const { PACKS == 1 } { row / per_pack * per_pack } else { row }
}
