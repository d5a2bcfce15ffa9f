//! Matrix fragments of a warp and their products: `ldmatrix` and `mma.sync` (sm_80).
//!
//! Both are collectives of all 32 lanes. They are inline assembly, since no intrinsic can be named for them, which
//! LLVM does not know to be convergent: keep them out of branches that lanes of a warp take differently. The
//! tests count them in the PTX.

use crate::imp::matrix as imp;
use crate::{Float, Shared, bf16, f16};

/// A 16-bit element type that tensor cores multiply, with sums in f32.
pub trait Half: Float {
    /// c + A·B with a 16×16 A and a 16×8 B: `mma.sync.m16n8k16.row.col`. All 32 lanes must call.
    ///
    /// With g = lane / 4 and t = lane % 4, word w of `a` holds row g + 8·(w % 2), columns 2t + 8·(w / 2) and the next; word w
    /// of `b` column g, rows 2t + 8·w and the next; number i of `c` row g + 8·(i / 2), column 2t + i % 2. The order in
    /// which the 16 products are added is hardware's own.
    #[track_caller]
    fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
}

impl Half for f16 {
    #[inline(always)]
    #[track_caller]
    fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        imp::multiply_f16(a, b, c)
    }
}

impl Half for bf16 {
    #[inline(always)]
    #[track_caller]
    fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        imp::multiply_bf16(a, b, c)
    }
}

/// c + A·B with a 16×8 A and an 8×8 B of f32 that count as tf32, the lower 13 bits left out: `mma.sync.m16n8k8.row.col`.
/// All 32 lanes must call.
///
/// With g = lane / 4 and t = lane % 4, word w of `a` holds row g + 8·(w % 2), column t + 4·(w / 2); word w of `b` column g,
/// row t + 4·w; number i of `c` row g + 8·(i / 2), column 2t + i % 2. The order in which the 8 products are added, and how
/// the sum is rounded, is hardware's own.
#[inline(always)]
#[track_caller]
pub fn multiply_tf32(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    imp::multiply_tf32(a, b, c)
}

impl<T: Float> Shared<T> {
    /// Loads one, two or four matrices of eight rows of 16 bytes: `ldmatrix`. All 32 lanes must call.
    ///
    /// Lane 8·i + r names row r of matrix i, the pack from `index` on; what lanes beyond the matrices name does not
    /// matter. Word i of a lane is number lane % 4 of the four of row lane / 4 of matrix i: an element of f32, or the 16-bit
    /// elements 2·(lane % 4) and 2·(lane % 4) + 1. With `TRANSPOSED`, which is for the latter, these are of column lane / 4
    /// instead.
    ///
    /// # Safety
    /// The rows must exist, be initialised, start at multiples of 16 bytes and have no unsynchronised writer.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_matrices<const COUNT: usize, const TRANSPOSED: bool>(
        self,
        index: u32,
    ) -> [u32; COUNT] {
        // SAFETY: the caller's contract.
        unsafe { imp::load_matrices::<T, COUNT, TRANSPOSED>(self.raw(), index) }
    }
}

impl<T: Half> Shared<T> {
    /// Stores four matrices of 8×8 elements, as [`Shared::load_matrices`] loads them: `stmatrix` (sm_90). All 32 lanes must
    /// call.
    ///
    /// With `TRANSPOSED` row r of a matrix in memory is column r of what the words hold.
    ///
    /// # Safety
    /// The rows that the lanes name must exist, start at multiples of 16 bytes and have no other unsynchronised access.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_matrices<const TRANSPOSED: bool>(self, index: u32, words: [u32; 4]) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_matrices::<T, TRANSPOSED>(self.raw(), index, words) }
    }
}
