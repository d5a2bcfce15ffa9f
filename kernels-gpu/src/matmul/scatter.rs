//! Results that threads store from shared memory, since no map says where they go: by heads, of which boxes would be of several, in packs; and in
//! rows that begin anywhere, in words.

use super::consumer::{CHUNK_BYTES, Finisher, GROUP_ROWS, PACKS, ROWS, ROWS_AT_A_TIME, WARPS};
use super::finish::{Finish, PACK};
use cuda_std::bits;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;

impl<const TURNED: bool> Finisher<TURNED> {
    /// Writes a chunk of results by heads, from the buffer at a byte of shared memory, pack by pack, eight neighbouring lanes a row's.
    ///
    /// # Safety
    /// As [`Finish::put_packs`]. All lanes of the warpgroup call.
    #[inline(always)]
    pub unsafe fn put_packs<T: Half>(self, buffer: u32, finish: Finish<T>, row: u32, col: u32) {
        let (down, pack) = (self.warp * ROWS_AT_A_TIME + self.lane / PACKS, self.lane % PACKS);
        let step = WARPS * ROWS_AT_A_TIME;
        let mut packs = [[0; 4]; (GROUP_ROWS / (WARPS * ROWS_AT_A_TIME)) as usize];
        // SAFETY: the caller's contract; all of the buffer was written before the barrier.
        unsafe {
            let tile = Tile::<T>::dynamic_slabs(buffer, GROUP_ROWS, PACKS);
            for i in 0..packs.len() {
                packs[i] = tile.shared().get_pack(tile.place(down + i as u32 * step, pack));
            }
            finish.put_packs((row + down, step), col + pack * PACK as u32, packs);
        }
    }

    /// The same of rows that begin anywhere, a warp's one after the other.
    ///
    /// # Safety
    /// As [`Finish::put_row`]. All lanes of the warpgroup call.
    #[inline(always)]
    pub unsafe fn put_rows<T: Half>(self, buffer: u32, finish: Finish<T>, row: u32, col: u32) {
        // Four at a time, and not to be unrolled further.
        let (mut down, end) = (self.warp * ROWS, bits::opaque(self.warp * ROWS + ROWS));
        // SAFETY: as above.
        unsafe {
            let tile = Tile::<T>::dynamic_slabs(buffer, GROUP_ROWS, PACKS);
            let words = Shared::<u32>::dynamic(buffer, CHUNK_BYTES / 4);
            while down < end {
                for i in 0..4 {
                    let at = tile.place(down + i, self.lane / 4) + self.lane % 4 * 2;
                    finish.put_row(row + down + i, col, self.lane, words.get(at / 2));
                }
                down += 4;
            }
        }
    }
}
