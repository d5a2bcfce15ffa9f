//! What kernels for Hopper have in a stage of shared memory, and its products.

use cuda_std::barrier::Barrier;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::{self, Operand, WarpgroupHalf};

use super::Matrix;
use super::place::Place;

/// Terms of a stage.
pub const PIPELINED_DEPTH: u32 = warpgroup::TERMS;
/// And of one of f32.
pub const TF32_DEPTH: u32 = warpgroup::TF32_TERMS;
/// Bytes of a line of a stage.
pub(super) const LINE_BYTES: u32 = 128;
/// Lines of a box of an operand that runs across k: those that are neighbours in 128 bytes.
pub const PIPELINED_LINES: u32 = lines_of_box::<f16>();
/// And of one of f32.
pub const TF32_LINES: u32 = lines_of_box::<f32>();

const fn lines_of_box<T>() -> u32 {
    LINE_BYTES / size_of::<T>() as u32
}

/// Terms of a stage: a line's, along k.
#[inline(always)]
pub(super) const fn depth_of<T>() -> u32 {
    LINE_BYTES / size_of::<T>() as u32
}

/// Stages of which the lines come to L2 ahead of time.
const STAGES_ASKED: u32 = 4;

/// An operand's part of a stage: `width` lines of [`PIPELINED_DEPTH`] terms, or of [`TF32_DEPTH`] in f32. Along k they are a single box; else there is
/// a box for each 64 lines of 16 bits, or 32 of f32, which are neighbours in memory.
#[derive(Clone, Copy)]
pub(super) struct Part<const ALONG_K: usize> {
    pub width: u32,
    /// Whether the batch's inner and outer dimension step to another matrix.
    steps: [bool; 2],
}

impl<const ALONG_K: usize> Part<ALONG_K> {
    #[inline(always)]
    pub fn new(width: u32, matrix: Matrix) -> Self {
        Part { width, steps: [matrix.inner != 0, matrix.outer != 0] }
    }

    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.width * LINE_BYTES
    }

    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn tile<T: Float>(self, offset: u32) -> Tile<T> {
        let (rows, packs) = if const { ALONG_K == 1 } {
            (self.width, LINE_BYTES / 16)
        } else {
            (depth_of::<T>(), self.width / T::PER_PACK as u32)
        };
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(offset, rows, packs) }
    }

    /// From line `at` on.
    #[inline(always)]
    pub fn operand<T: Half>(self, tile: Tile<T>, at: u32) -> Operand {
        if const { ALONG_K == 1 } { tile.rows_along_terms(at) } else { tile.columns_along_lines(at) }
    }

    /// Where `when` holds, lets the lines of memory that the first copies will read come to L2, one for each thread: of the lines from `first` on,
    /// below `lines`, and the terms `k..end` of the operand's matrix.
    #[inline(always)]
    #[track_caller]
    pub fn ask<T: Float>(
        self,
        when: bool,
        of: Global<T>,
        matrix: Matrix,
        (first, lines): (u32, u32),
        (k, end): (u32, u32),
        place: Place,
    ) {
        // Neighbours of a row by neighbouring threads.
        let (thread, of_line) = (thread::thread_idx_x(), LINE_BYTES / size_of::<T>() as u32);
        let (line, term, at) = if const { ALONG_K == 1 } {
            let (line, term) = (thread / STAGES_ASKED, k + thread % STAGES_ASKED * of_line);
            (line, term, (first + line) as i64 * matrix.row + term as i64)
        } else {
            let of_term = self.width / of_line;
            let (line, term) = (thread % of_term * of_line, k + thread / of_term);
            (line, term, term as i64 * matrix.col + (first + line) as i64)
        };
        let exists = line < self.width && first + line < lines && term < end;
        of.prefetch_if(when && exists, (place.of(matrix) + at) as usize);
    }

    /// Starts the copies of the lines from `first` on of the terms from `k` on.
    ///
    /// # Safety
    /// `tile` may be overwritten; `full` has announced the bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<T: Float>(
        self,
        map: TensorMap,
        tile: Tile<T>,
        first: u32,
        k: u32,
        place: Place,
        full: Barrier,
    ) {
        // SAFETY: the caller's contract.
        unsafe { self.load_part(map, tile, first, k, place, (1, 0), full) }
    }

    /// As [`Self::load`], of part `part` where each of the batch's outer dimension has `parts`.
    ///
    /// # Safety
    /// As [`Self::load`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn load_part<T: Float>(
        self,
        map: TensorMap,
        tile: Tile<T>,
        first: u32,
        k: u32,
        place: Place,
        (parts, part): (u32, u32),
        full: Barrier,
    ) {
        let inner = if self.steps[0] { place.inner as i32 } else { 0 };
        let outer = if self.steps[1] { place.outer } else { 0 };
        let outer = (outer * parts + part) as i32;
        // SAFETY: the caller's contract.
        unsafe {
            if const { ALONG_K == 1 } {
                tile.shared().load_box(0, map, [k as i32, first as i32, inner, outer], full);
            } else {
                let lines = const { lines_of_box::<T>() };
                for i in 0..self.width / lines {
                    let at = [(first + i * lines) as i32, k as i32, inner, outer];
                    tile.shared().load_box(i * lines * depth_of::<T>(), map, at, full);
                }
            }
        }
    }
}

/// Starts the products of a stage: added to the sums, or where `more` does not hold in their place.
///
/// # Safety
/// As [`WarpgroupHalf::multiply_tiles`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn multiply<T: WarpgroupHalf, const SUMS: usize, const A_K: usize, const B_K: usize>(
    sums: &mut [f32; SUMS],
    a: Operand,
    b: Operand,
    more: bool,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match const { (A_K, B_K) } {
            (1, 1) => T::multiply_tiles::<SUMS, 0, 0>(sums, a, b, more),
            (1, _) => T::multiply_tiles::<SUMS, 0, 1>(sums, a, b, more),
            (_, 1) => T::multiply_tiles::<SUMS, 1, 0>(sums, a, b, more),
            (_, _) => T::multiply_tiles::<SUMS, 1, 1>(sums, a, b, more),
        }
    }
}
