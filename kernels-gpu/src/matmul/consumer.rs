//! How a consumer of [`pipelined()`](fn@super::pipelined) finishes its sums: number i of a lane is that of row
//! 16·w + lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2, with w its warp.
//!
//! They go out [`CHUNK`] columns at a time by way of shared memory. Plain results leave by copies of the accelerator,
//! which go on during the next tile's products; tried instead: packs of rows written by each warp, without waiting for
//! the others, which took 1 to 5 % longer.

use super::epilogue::{Activation, Epilogue, Finish, PACK, activation, flag};
use super::place::Place;
use cuda_std::bits;
use cuda_std::float::fma;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;
use cuda_std::tma::{self, TensorMap};

/// Rows of a warp, and of a warpgroup.
const ROWS: u32 = 16;
pub(super) const WARPS: u32 = 4;
pub(super) const GROUP_ROWS: u32 = WARPS * ROWS;
/// Columns that go out at a time: 128 bytes of results.
pub(super) const CHUNK: u32 = 64;
/// Bytes of a chunk of results of a warpgroup, and of its room: two of these in turn, or a chunk in f32.
const CHUNK_BYTES: u32 = GROUP_ROWS * CHUNK * 2;
const BUFFERS: u32 = 2;
pub(super) const ROOM_BYTES: u32 = BUFFERS * CHUNK_BYTES;
/// Packs of a chunk's row, and rows of packs that a warp takes at a time.
const PACKS: u32 = CHUNK / PACK as u32;
const ROWS_AT_A_TIME: u32 = 32 / PACKS;
/// Sums of a lane in a chunk, and pairs of neighbours in a row of them.
const SUMS_OF_CHUNK: usize = 32;
const PAIRS: usize = 8;

/// A lane of a consumer, at a tile.
#[derive(Clone, Copy)]
pub(super) struct Finisher {
    pub lane: u32,
    /// Its warp among four.
    pub warp: u32,
    /// The named barrier of its warpgroup.
    pub barrier: u32,
    /// The byte of dynamic shared memory where its warpgroup's [`ROOM_BYTES`] begin, a multiple of 1024.
    pub room: u32,
    /// Where its warpgroup's sums begin in the result.
    pub row: u32,
    pub col: u32,
}

impl Finisher {
    /// Waits for all threads of the warpgroup.
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        thread::sync_named(self.barrier, WARPS * 32);
    }

    /// The lane's pairs of the bias for chunk `chunk`, zeros where there is none.
    ///
    /// # Safety
    /// There is a bias where `p` says so; n is even.
    #[inline(always)]
    unsafe fn biases<T: Half>(self, p: &Epilogue, bias: Global<T>, chunk: u32) -> [u32; PAIRS] {
        let mut words = [0; PAIRS];
        for i in 0..PAIRS {
            let col = self.col + chunk * CHUNK + i as u32 * 8 + self.lane % 4 * 2;
            let exists = p.flags & flag::BIAS != 0 && col < p.n;
            // SAFETY: columns are below n, which is even.
            words[i] = unsafe { bias.get_4_if(exists, col as usize, 0) };
        }
        words
    }

    /// Finishes sums of which `p` says [`flag::STORED`]: alpha, a bias and an activation.
    ///
    /// # Safety
    /// The map is of the result, the bias as `p` says. All lanes of the warpgroup call; the stores are waited for before
    /// the block ends.
    #[inline(always)]
    pub unsafe fn store<T: Half, const SUMS: usize>(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        bias: Global<T>,
        out: TensorMap,
        place: Place,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match p.activation {
                activation::NONE => self.store_as::<T, SUMS, { activation::NONE }>(sums, p, bias, out, place),
                activation::RELU => self.store_as::<T, SUMS, { activation::RELU }>(sums, p, bias, out, place),
                activation::GELU_TANH => {
                    self.store_as::<T, SUMS, { activation::GELU_TANH }>(sums, p, bias, out, place)
                }
                _ => self.store_as::<T, SUMS, { activation::GELU_ERF }>(sums, p, bias, out, place),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_as<T: Half, const SUMS: usize, const ACTIVATION: u32>(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        bias: Global<T>,
        out: TensorMap,
        place: Place,
    ) {
        // Of 16×16 numbers the matrices go down before they go along: lane 8·i + r names row r of matrix i.
        let (down, along) = (self.warp * ROWS + self.lane % 16, self.lane / 16);
        let leads = self.warp == 0 && self.lane == 0;
        // SAFETY: the caller's contract; a buffer is written again when the store from it has read it.
        unsafe {
            let mut biases = self.biases(p, bias, 0);
            for chunk in 0..SUMS / SUMS_OF_CHUNK {
                let buffer = self.room + chunk as u32 % BUFFERS * CHUNK_BYTES;
                let tile = Tile::<T>::dynamic_slabs(buffer, GROUP_ROWS, PACKS);
                let last = chunk + 1 == SUMS / SUMS_OF_CHUNK;
                let next = if last { [0; PAIRS] } else { self.biases(p, bias, chunk as u32 + 1) };
                // With one chunk a tile, each uses the same buffer.
                if const { SUMS == SUMS_OF_CHUNK } {
                    tma::wait_stores_read::<0>();
                } else {
                    tma::wait_stores_read::<{ BUFFERS - 1 }>();
                }
                self.sync();
                for sixteen in 0..PAIRS / 2 {
                    let mut words = [0u32; 4];
                    for matrix in 0..4 {
                        let i = chunk * SUMS_OF_CHUNK + sixteen * 8 + matrix * 2;
                        let [left, right] = T::pair([biases[2 * sixteen + matrix / 2], 0, 0, 0], 0);
                        let values = [fma(p.alpha, sums[i], left), fma(p.alpha, sums[i + 1], right)];
                        let mut word = [0; 4];
                        T::set_pair(&mut word, 0, Activation::<T>::apply(ACTIVATION, values));
                        words[matrix] = word[0];
                    }
                    tile.shared().store_matrices(tile.place(down, sixteen as u32 * 2 + along), words);
                    if const { ACTIVATION != activation::NONE } {
                        // Keeps the assembler from computing everything at once, for which it lacks registers.
                        warp::sync_warp(u32::MAX);
                    }
                }
                biases = next;
                tma::fence_writes();
                self.sync();
                let col = self.col + chunk as u32 * CHUNK;
                let at = [col as i32, self.row as i32, place.inner as i32, place.outer as i32];
                tile.shared().store_box_if(leads && col < p.n && self.row < p.m, 0, out, at);
                tma::commit_stores();
            }
        }
    }

    /// Finishes any sums of a warp, chunk by chunk in f32.
    ///
    /// # Safety
    /// As [`Finish::pack`]. All lanes call.
    #[inline(always)]
    pub unsafe fn finish<T: Half, const SUMS: usize>(self, sums: &[f32; SUMS], finish: Finish<T>, n: u32) {
        // Four numbers of a row; they are permuted by rows, against bank conflicts.
        let place = |row: u32, quad: u32| (row * (CHUNK / 4) + (quad ^ (row % 8 * 2))) * 4;
        // SAFETY: the caller's contract; all lanes meet between the writes to the chunk and the reads.
        unsafe {
            // Each warp by itself.
            let staged = Shared::<f32>::dynamic(self.room + self.warp * (ROWS * CHUNK * 4), ROWS * CHUNK);
            // Not to be unrolled: the epilogue is long.
            let rows = bits::opaque(ROWS);
            let mut chunk = 0;
            while chunk < SUMS / SUMS_OF_CHUNK && self.col + chunk as u32 * CHUNK < n {
                warp::sync_warp(u32::MAX);
                for number in 0..SUMS / SUMS_OF_CHUNK {
                    if number == chunk {
                        for i in 0..SUMS_OF_CHUNK / 2 {
                            let row = self.lane / 4 + i as u32 % 2 * 8;
                            let quad = i as u32 / 2 * 2 + self.lane % 4 / 2;
                            let [a, b] = [0, 1].map(|j| sums[number * SUMS_OF_CHUNK + 2 * i + j].to_bits());
                            staged.set_8(place(row, quad) + self.lane % 2 * 2, [a, b]);
                        }
                    }
                }
                warp::sync_warp(u32::MAX);
                let (mut first, pack) = (0, self.lane % PACKS);
                while first < rows {
                    let row = first + self.lane / PACKS;
                    let all = || {
                        let [a, b, c, d] = staged.get_pack(place(row, 2 * pack));
                        let [e, f, g, h] = staged.get_pack(place(row, 2 * pack + 1));
                        [a, b, c, d, e, f, g, h].map(f32::from_bits)
                    };
                    let (down, along) = (self.row + self.warp * ROWS, self.col + chunk as u32 * CHUNK);
                    let in_chunk = |i: u32| {
                        // Neighbours by neighbouring lanes.
                        let number = i * 32 + self.lane;
                        let spread = (first + number / CHUNK, number % CHUNK);
                        if finish.is_packed() { (row, pack * PACK as u32 + i) } else { spread }
                    };
                    let at = |i: u32| {
                        let (row, col) = in_chunk(i);
                        (down + row, along + col)
                    };
                    let sum = |i: u32| {
                        let (row, col) = in_chunk(i);
                        staged.get(place(row, col / 4) + col % 4)
                    };
                    finish.pack(down + row, along + pack * PACK as u32, all, at, sum);
                    first += ROWS_AT_A_TIME;
                }
                chunk += 1;
            }
        }
    }
}
