//! How a warpgroup of [`pipelined()`](fn@super::pipelined) finishes its sums: number i of a lane is that of row
//! 16·w + lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2, with w its warp.

use super::Product;
use super::epilogue::{Activation, Finish, PACK, activation, flag};
use super::piped_tiles::{CHUNK, PIPELINED_ROWS};
use super::place::Place;
use cuda_std::float::fma;
use cuda_std::prelude::*;
use cuda_std::tile::Tile;
use cuda_std::tma::{self, TensorMap};

/// Elements of a chunk of results, and how many of them there is room for.
const CHUNK_ELEMENTS: u32 = PIPELINED_ROWS * CHUNK;
const BUFFERS: u32 = 2;
/// Bytes of the room: of results of 16 bits, or of one chunk in f32.
pub(super) const STAGING_BYTES: u32 = BUFFERS * CHUNK_ELEMENTS * 2;
/// Threads of a warpgroup.
pub(super) const GROUP: u32 = 128;
/// Sums of a lane in a chunk.
const SUMS_OF_CHUNK: usize = 32;

/// A consumer's place and shared memory.
#[derive(Clone, Copy)]
pub(super) struct Consumer {
    /// Its number, and its warp's.
    group: u32,
    warp: u32,
    lane: u32,
    /// The byte of dynamic shared memory where its [`STAGING_BYTES`] begin.
    staging: u32,
}

impl Consumer {
    #[inline(always)]
    pub fn new(group: u32, warp: u32, lane: u32, staging: u32) -> Consumer {
        Consumer { group, warp, lane, staging }
    }

    /// Waits for all threads of the warpgroup.
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        thread::sync_named(1 + self.group, GROUP);
    }

    /// Finishes sums that the accelerator can store from row and column `at` on: alpha, a bias and an activation.
    ///
    /// # Safety
    /// The map is of the result, the bias as `p` says; the stores are waited for before the block ends.
    #[inline(always)]
    pub unsafe fn store<T: Half, const SUMS: usize>(
        self,
        sums: &[f32; SUMS],
        p: &Product,
        bias: Global<T>,
        out: TensorMap,
        at: (u32, u32, Place),
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match p.epilogue.activation {
                activation::NONE => self.store_as::<T, SUMS, { activation::NONE }>(sums, p, bias, out, at),
                activation::RELU => self.store_as::<T, SUMS, { activation::RELU }>(sums, p, bias, out, at),
                activation::GELU_TANH => {
                    self.store_as::<T, SUMS, { activation::GELU_TANH }>(sums, p, bias, out, at)
                }
                _ => self.store_as::<T, SUMS, { activation::GELU_ERF }>(sums, p, bias, out, at),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_as<T: Half, const SUMS: usize, const ACTIVATION: u32>(
        self,
        sums: &[f32; SUMS],
        p: &Product,
        bias: Global<T>,
        out: TensorMap,
        (first_row, first_col, place): (u32, u32, Place),
    ) {
        let (alpha, n) = (p.epilogue.alpha, p.epilogue.n);
        let biased = p.epilogue.flags & flag::BIAS != 0;
        // Of 16×16 numbers the matrices go down before they go along: lane 8·i + r names row r of matrix i.
        let (down, along) = (self.warp * 16 + self.lane % 16, self.lane / 16);
        let at = [first_row as i32, place.inner as i32, place.outer as i32];
        // SAFETY: the caller's contract; a buffer is written again when its store has read it.
        unsafe {
            for chunk in 0..SUMS / SUMS_OF_CHUNK {
                let col = first_col + chunk as u32 * CHUNK;
                let mut biases = [0u32; 8];
                for i in 0..8 {
                    let col = col + i as u32 * 8 + self.lane % 4 * 2;
                    biases[i] = bias.get_4_if(biased && col < n, col as usize, 0);
                }
                let buffer = self.staging + chunk as u32 % BUFFERS * CHUNK_ELEMENTS * 2;
                let tile = Tile::<T>::dynamic_slabs(buffer, PIPELINED_ROWS, CHUNK / PACK as u32);
                let mut words = [[0u32; 4]; 4];
                for sixteen in 0..4 {
                    for matrix in 0..4 {
                        let i = chunk * SUMS_OF_CHUNK + sixteen * 8 + matrix * 2;
                        let [left, right] = T::pair([biases[2 * sixteen + matrix / 2], 0, 0, 0], 0);
                        let values = [fma(alpha, sums[i], left), fma(alpha, sums[i + 1], right)];
                        let mut word = [0; 4];
                        T::set_pair(&mut word, 0, Activation::<T>::apply(ACTIVATION, values));
                        words[sixteen][matrix] = word[0];
                    }
                }
                tma::wait_stores_read::<{ BUFFERS - 1 }>();
                self.sync();
                for sixteen in 0..4 {
                    let pack = tile.place(down, sixteen as u32 * 2 + along);
                    tile.shared().store_matrices(pack, words[sixteen]);
                }
                tma::fence_writes();
                self.sync();
                let leads = self.warp == 0 && self.lane == 0;
                tile.shared().store_box_if(leads && col < n, 0, out, [col as i32, at[0], at[1], at[2]]);
                tma::commit_stores();
            }
        }
    }

    /// Finishes any sums from row and column `at` on, chunk by chunk in f32, by packs of a row.
    ///
    /// # Safety
    /// As [`Finish::pack`].
    #[inline(always)]
    pub unsafe fn finish<T: Half, const SUMS: usize>(
        self,
        sums: &[f32; SUMS],
        finish: Finish<T>,
        (first_row, first_col): (u32, u32),
        n: u32,
    ) {
        const PER_PACK: u32 = PACK as u32;
        const PACKS: u32 = CHUNK / PER_PACK;
        let thread = self.warp * 32 + self.lane;
        // Eight bytes at (row, column), and four numbers: quads are permuted by rows, against bank conflicts.
        let place = |row: u32, quad: u32| (row * (CHUNK / 4) + (quad ^ (row % 8 * 2))) * 4;
        // SAFETY: the caller's contract; the chunk is written and read between barriers.
        unsafe {
            let staged = Shared::<f32>::dynamic(self.staging, CHUNK_ELEMENTS);
            let mut chunk = 0;
            while chunk < SUMS / SUMS_OF_CHUNK && first_col + chunk as u32 * CHUNK < n {
                self.sync();
                for number in 0..SUMS / SUMS_OF_CHUNK {
                    if number == chunk {
                        for i in 0..SUMS_OF_CHUNK / 2 {
                            let row = self.warp * 16 + self.lane / 4 + i as u32 % 2 * 8;
                            let quad = i as u32 / 2 * 2 + self.lane % 4 / 2;
                            let at = place(row, quad) + self.lane % 2 * 2;
                            let [a, b] = [0, 1].map(|j| sums[number * SUMS_OF_CHUNK + 2 * i + j].to_bits());
                            staged.set_8(at, [a, b]);
                        }
                    }
                }
                self.sync();
                let (mut row, pack) = (thread / PACKS, thread % PACKS);
                while row < PIPELINED_ROWS {
                    let all = || {
                        let [a, b, c, d] = staged.get_pack(place(row, 2 * pack));
                        let [e, f, g, h] = staged.get_pack(place(row, 2 * pack + 1));
                        [a, b, c, d, e, f, g, h].map(f32::from_bits)
                    };
                    let one = |i: u32| staged.get(place(row, 2 * pack + i / 4) + i % 4);
                    let col = first_col + chunk as u32 * CHUNK + pack * PER_PACK;
                    finish.pack(first_row + row, col, all, one);
                    row += GROUP / PACKS;
                }
                chunk += 1;
            }
        }
    }
}
