//! One operand of an f32 product on tensor cores: its way into shared memory, and from there into fragments.
//!
//! Rows along k lie in shared memory as they do in memory, swizzled, and fragments come by `ldmatrix`, to which an f32 is
//! a pair of 16-bit elements. Of rows across k, fragments are read number by number, from lines with a padding.

use super::Matrix;
use cuda_std::prelude::*;
use cuda_std::tile::swizzled;

/// Terms of a tile: packs of a row along k for all banks.
pub const TF32_DEPTH: u32 = 32;
/// Elements of a pack.
const PACK: u32 = 4;
/// Elements of padding behind a line across k: four lines of eight elements, which a fragment takes, fall on different
/// banks.
const PAD: u32 = 8;

/// Elements that a tile of `width` rows, or columns, takes in shared memory.
pub(super) const fn elements(width: u32, along_k: bool) -> u32 {
    if along_k { width * TF32_DEPTH } else { TF32_DEPTH * (width + PAD) }
}

/// An operand as a block sees it. Its memory has lines along k (`ALONG_K` is 1), or lines across k that run along m or n.
#[derive(Clone, Copy)]
pub(super) struct F32Side<const ALONG_K: usize> {
    source: Global<f32>,
    /// Steps from line to line of memory.
    stride: i64,
    /// Where the tile begins along m or n, and where the operand ends there.
    first: u32,
    extent: u32,
    /// Extent of a tile across k.
    width: u32,
    /// The block's threads.
    threads: u32,
}

impl<const ALONG_K: usize> F32Side<ALONG_K> {
    #[inline(always)]
    pub fn new(
        source: Global<f32>,
        matrix: Matrix,
        (first, extent): (u32, u32),
        width: u32,
        threads: u32,
    ) -> Self {
        let stride = if const { ALONG_K == 1 } { matrix.row } else { matrix.col };
        F32Side { source, stride, first, extent, width, threads }
    }

    /// Elements of a tile in shared memory.
    #[inline(always)]
    pub const fn elements(self) -> u32 {
        elements(self.width, ALONG_K == 1)
    }

    /// Where pack `pack` of line `line` of a tile lies.
    #[inline(always)]
    fn place(self, line: u32, pack: u32) -> u32 {
        if const { ALONG_K == 1 } {
            swizzled(line, pack, TF32_DEPTH / PACK) * PACK
        } else {
            line * (self.width + PAD) + pack * PACK
        }
    }

    /// Starts to copy the thread's part of the tile of the terms from `k` on, with zeros from term `end` on and beyond
    /// the operand.
    ///
    /// # Safety
    /// The operand has `extent` times `end` elements, in lines of whole packs at multiples of 16 bytes, the first of which
    /// exists; `tile` may be overwritten.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy(self, tile: Shared<f32>, k: u32, end: u32) {
        let across = (self.first, self.extent);
        let ((lines, packs), (first_line, last_line), (first, last)) = if const { ALONG_K == 1 } {
            ((self.width, TF32_DEPTH / PACK), across, (k, end))
        } else {
            ((TF32_DEPTH, self.width / PACK), (k, end), across)
        };
        let (line, pack) = (thread::thread_idx_x() / packs, thread::thread_idx_x() % packs);
        // A multiple of eight lines a turn: the swizzle is the same in each.
        let turn = self.threads / packs;
        let (at, along) = (first_line + line, first + pack * PACK);
        let start = at as i64 * self.stride + along as i64;
        let (place, pitch) = (self.place(line, pack), self.place(turn, 0));
        for i in 0..lines / turn {
            let from = start + (i * turn) as i64 * self.stride;
            let exists = at + i * turn < last_line && along < last;
            // SAFETY: the caller's contract; only what exists is read.
            unsafe { tile.copy_16_async(place + i * pitch, self.source, from as usize, exists) };
        }
    }

    /// 16 rows or columns of the operand from `at` on, eight terms from `step` on: the words of a first operand's fragment
    /// (`FIRST`), or those of two of a second operand's.
    ///
    /// # Safety
    /// All lanes call; the tile has been copied.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<const FIRST: bool>(self, tile: Shared<f32>, at: u32, step: u32) -> [u32; 4] {
        let lane = warp::lane_id();
        // SAFETY: within the tile.
        unsafe {
            if const { ALONG_K == 1 } {
                // Lane 8·i + r names row r of matrix i. A first operand's go down before they go along k.
                let (down, along) = if const { FIRST } {
                    (lane % 16, lane / 16)
                } else {
                    (lane % 8 + lane / 16 * 8, lane / 8 % 2)
                };
                tile.load_matrices::<4, false>(self.place(at + down, step / PACK + along))
            } else {
                let pitch = self.width + PAD;
                let start = (step + lane % 4) * pitch + at + lane / 4;
                let word =
                    |down: u32, along: u32| tile.get(start + along * PACK * pitch + down * 8).to_bits();
                if const { FIRST } {
                    [word(0, 0), word(1, 0), word(0, 1), word(1, 1)]
                } else {
                    [word(0, 0), word(0, 1), word(1, 0), word(1, 1)]
                }
            }
        }
    }
}
