//! How a warp of a consumer on Hopper finishes any of its sums: chunk by chunk in f32, by way of room of its own in shared memory. Number i of a lane is that of
//! row lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2 of its warp.

use super::finish::{Finish, PACK};
use cuda_std::prelude::*;

/// Warps of a consumer, and rows of a warp.
pub(super) const WARPS: u32 = 4;
pub(super) const ROWS: u32 = 16;
/// Columns of a chunk, sums of a lane in it, and its bytes.
pub(super) const CHUNK: u32 = 64;
pub(super) const SUMS_OF_CHUNK: usize = 32;
pub(super) const STAGED_BYTES: u32 = ROWS * CHUNK * 4;

/// Numbers that lie together, and as many of them as a row has.
const QUAD: u32 = 4;
const QUADS: u32 = CHUNK / QUAD;

/// A chunk of a warp's sums, for one of its lanes.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    sums: Shared<f32>,
    lane: u32,
}

impl Staged {
    /// That of a warp with [`STAGED_BYTES`] from a byte of dynamic shared memory on.
    ///
    /// # Safety
    /// The block has them, and they are the warp's.
    #[inline(always)]
    pub unsafe fn new(byte: u32, lane: u32) -> Staged {
        // SAFETY: the caller's contract.
        Staged { sums: unsafe { Shared::dynamic(byte, ROWS * CHUNK) }, lane }
    }

    /// Where four numbers of a row lie; they are permuted by rows, against bank conflicts.
    #[inline(always)]
    fn quad(row: u32, quad: u32) -> u32 {
        (row * QUADS + (quad ^ (row % 8 * 2))) * QUAD
    }

    /// Where a number lies.
    #[inline(always)]
    pub fn at(row: u32, col: u32) -> u32 {
        Self::quad(row, col / QUAD) + col % QUAD
    }

    /// The number there.
    ///
    /// # Safety
    /// It was written, and the lanes have met since.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get(self, row: u32, col: u32) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { self.sums.get(Self::at(row, col)) }
    }

    /// Puts another number there.
    ///
    /// # Safety
    /// No other lane reads or writes it.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(self, row: u32, col: u32, sum: f32) {
        // SAFETY: the caller's contract.
        unsafe { self.sums.set(Self::at(row, col), sum) }
    }

    /// Writes the lane's sums of a chunk.
    ///
    /// # Safety
    /// Nobody reads what was there any more. All lanes call.
    #[inline(always)]
    pub unsafe fn leave<const SUMS: usize>(self, sums: &[f32; SUMS], chunk: usize) {
        for number in 0..SUMS / SUMS_OF_CHUNK {
            // Registers are told apart by constants alone.
            if number == chunk {
                for i in 0..SUMS_OF_CHUNK / 2 {
                    let row = self.lane / 4 + i as u32 % 2 * 8;
                    let quad = i as u32 / 2 * 2 + self.lane % 4 / 2;
                    let pair = [0, 1].map(|j| sums[number * SUMS_OF_CHUNK + 2 * i + j]);
                    // SAFETY: the caller's contract.
                    unsafe {
                        self.sums.set_8(Self::quad(row, quad) + self.lane % 2 * 2, pair.map(f32::to_bits))
                    };
                }
            }
        }
    }

    /// Finishes them, `rows` rows of the chunk that begins at (row, col): in packs, or neighbours of a row by neighbouring lanes, four of a column at once.
    ///
    /// # Safety
    /// As [`Finish::pack`]. All lanes call, and have met since the sums were written.
    #[inline(always)]
    pub unsafe fn finish<T: Float>(self, finish: Finish<T>, rows: u32, (row, col): (u32, u32)) {
        // SAFETY: the caller's contract.
        unsafe {
            if finish.is_packed() {
                self.finish_sparing(finish, rows, (row, col));
            } else {
                let sums = |rows: [u32; 4], along: u32| {
                    let mut column = [0.0; 4];
                    for i in 0..4 {
                        column[i] = self.get(rows[i], along);
                    }
                    column
                };
                finish.columns((row, col), (rows, CHUNK), (self.lane, warp::SIZE), sums);
            }
        }
    }

    /// The same, but what goes out in no packs one by one, which takes fewer registers, and longer.
    ///
    /// # Safety
    /// As [`Self::finish`].
    #[inline(always)]
    pub unsafe fn finish_sparing<T: Float>(self, finish: Finish<T>, rows: u32, (row, col): (u32, u32)) {
        let per_pack = T::PER_PACK as u32;
        let packs = CHUNK / per_pack;
        let pack = self.lane % packs;
        let mut first = 0;
        while first < rows {
            let down = first + self.lane / packs;
            let all = || {
                let mut sums = [0.0; PACK];
                for quad in 0..T::PER_PACK / QUAD as usize {
                    let place = Self::quad(down, pack * (per_pack / QUAD) + quad as u32);
                    // SAFETY: the caller's contract.
                    let four = unsafe { self.sums.get_pack(place) };
                    for i in 0..4 {
                        sums[4 * quad + i] = f32::from_bits(four[i]);
                    }
                }
                sums
            };
            let in_chunk = |i: u32| {
                // Neighbours by neighbouring lanes.
                let number = i * warp::SIZE + self.lane;
                let spread = (first + number / CHUNK, number % CHUNK);
                if finish.is_packed() { (down, pack * per_pack + i) } else { spread }
            };
            let place = |i: u32| {
                let (down, along) = in_chunk(i);
                (row + down, col + along)
            };
            // SAFETY: the caller's contract.
            unsafe {
                let sum = |i: u32| {
                    let (down, along) = in_chunk(i);
                    self.get(down, along)
                };
                finish.pack(row + down, col + pack * per_pack, all, place, sum);
            }
            first += warp::SIZE / packs;
        }
    }
}
