//! One operand of a tensor-core product: its way into shared memory, and from there into fragments.

use cuda_std::bits;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;

/// Elements of a pack.
const PACK: u32 = 8;

/// An operand as a block sees it. Its memory has rows along k (`ALONG_K` is 1), or rows across k that run along m or n.
#[derive(Clone, Copy)]
pub(crate) struct Side<T, const ALONG_K: usize> {
    source: Global<T>,
    /// Steps from row to row of memory.
    stride: i64,
    /// Where the tile begins along m or n, and where the operand ends there.
    first: u32,
    extent: u32,
    /// Extents of a tile across and along k.
    width: u32,
    depth: u32,
    /// The block's threads.
    threads: u32,
}

impl<T: Half, const ALONG_K: usize> Side<T, ALONG_K> {
    #[inline(always)]
    pub fn new(
        source: Global<T>,
        stride: i64,
        (first, extent): (u32, u32),
        (width, depth): (u32, u32),
        threads: u32,
    ) -> Self {
        Side { source, stride, first, extent, width, depth, threads }
    }

    /// Bytes of a tile.
    #[inline(always)]
    pub fn bytes(self) -> u32 {
        self.width * self.depth * 2
    }

    /// Rows of a tile, and packs of a row.
    #[inline(always)]
    fn shape(self) -> (u32, u32) {
        if const { ALONG_K == 1 } { (self.width, self.depth / PACK) } else { (self.depth, self.width / PACK) }
    }

    /// The tile at byte `offset` of dynamic shared memory.
    ///
    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn tile(self, offset: u32) -> Tile<T> {
        let (rows, packs) = self.shape();
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic(offset, rows, packs) }
    }

    /// Starts to copy the thread's part of the tile of the terms from `k` on, with zeros from term `end` on and beyond
    /// the operand.
    ///
    /// # Safety
    /// The operand has `extent` times `end` elements; packs start at multiples of 16 bytes; `tile` may be overwritten.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy(self, tile: Tile<T>, k: u32, end: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.copy_in_order(tile, k, end, |row| row) }
    }

    /// As [`Self::copy`], with row `order(row)` of the tile for row `row` of memory. Rows of a multiple of 32 move with it:
    /// `order(row + 32) = order(row) + 32`.
    ///
    /// # Safety
    /// As [`Self::copy`]; threads copy multiples of 32 rows at a time, unless rows stay where they are.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_in_order(self, tile: Tile<T>, k: u32, end: u32, order: impl Fn(u32) -> u32) {
        let (rows, packs) = self.shape();
        let (row, pack) = (thread::thread_idx_x() / packs, thread::thread_idx_x() % packs);
        // A multiple of eight rows a turn: the swizzle is the same in each.
        let turn = self.threads / packs;
        let (line, lines, along, length) = if const { ALONG_K == 1 } {
            (self.first + row, self.extent, k + pack * PACK, end)
        } else {
            (k + row, end, self.first + pack * PACK, self.extent)
        };
        let left = length.saturating_sub(along);
        let whole = if left < PACK { left } else { PACK };
        let start = line as i64 * self.stride + along as i64;
        let place = tile.place(order(row), pack);
        let turns = rows / turn;
        let count = |i: u32| if line + i * turn < lines { whole } else { 0 };
        let from = |i: u32| (start + (i * turn) as i64 * self.stride) as usize;
        let to = |i: u32| place + i * turn * packs * PACK;
        // SAFETY: the caller's contract; only what exists is read.
        unsafe {
            for i in 0..turns {
                tile.copy_async_if(to(i), self.source, from(i), count(i) == PACK);
            }
            // Packs at an edge, which a copy of part of a pack would do, were it not that memcheck takes it for one of
            // a whole. Rare, so not to be unrolled.
            if count(turns - 1) < PACK {
                for i in 0..bits::opaque(turns) {
                    if count(i) < PACK {
                        let element = |j: usize| {
                            let exists = (j as u32) < count(i);
                            if exists { self.source.get(from(i) + j) } else { T::from_bits(0) }
                        };
                        tile.shared().set_pack(to(i), T::pack_from(element));
                    }
                }
            }
        }
    }

    /// Four 8×8 matrices of the operand, 16 elements from `at` on across k and 16 terms from `step` on: in the
    /// order of a first operand's fragment (`FIRST`: matrices go down before they go along k), or of two of a
    /// second operand's.
    ///
    /// # Safety
    /// All lanes call; the tile has been copied.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load<const FIRST: bool>(self, tile: Tile<T>, at: u32, step: u32) -> [u32; 4] {
        let lane = warp::lane_id();
        // Lane 8·i + r names row r of matrix i. Where memory runs along k, its rows are the fragment's own.
        let down = if const { FIRST == (ALONG_K == 1) } {
            (lane % 16, lane / 16)
        } else {
            (lane % 8 + lane / 16 * 8, lane / 8 % 2)
        };
        // SAFETY: within the tile.
        unsafe {
            if const { ALONG_K == 1 } {
                tile.load_matrices::<false>(tile.place(at + down.0, step / PACK + down.1))
            } else {
                tile.load_matrices::<true>(tile.place(step + down.0, at / PACK + down.1))
            }
        }
    }

    /// Where in its tile the lane finds what [`Self::load`] loads at term 0, of memory that runs along k; at term `step`, a
    /// multiple of 16 below 32, it is at `place ^ step`, since packs are permuted by an exclusive or.
    #[inline(always)]
    pub fn place<const FIRST: bool>(self, tile: Tile<T>, at: u32) -> u32 {
        const { assert!(ALONG_K == 1) };
        let lane = warp::lane_id();
        if const { FIRST } {
            tile.place(at + lane % 16, lane / 16)
        } else {
            tile.place(at + lane % 8 + lane / 16 * 8, lane / 8 % 2)
        }
    }
}
