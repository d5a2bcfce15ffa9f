//! How a warp of a consumer finishes sums in f32, for [`parted()`](fn@super::parted) and [`tf32_pipelined()`](fn@super::tf32_pipelined): number i of
//! a lane is that of row lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2 of its warp.
//!
//! Each warp by itself, by way of its room in shared memory. Plain results leave by copies of the accelerator, which go on during the next
//! tile's products; others go by the epilogue that all kernels share.

use super::epilogue::{Epilogue, activation, flag};
use super::finish::Finish;
use super::place::Place;
use cuda_std::bits;
use cuda_std::float::{fma, max_nan};
use cuda_std::prelude::*;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};

/// Warps of a consumer, and rows of a warp.
pub(super) const WARPS: u32 = 4;
pub(super) const ROWS_OF_WARP: u32 = 16;
/// Columns that a warp finishes at a time, sums of a lane among them, and the bytes for them.
const CHUNK: u32 = 64;
const SUMS_OF_CHUNK: usize = 32;
pub(super) const ROOM_BYTES: u32 = ROWS_OF_WARP * CHUNK * 4;
/// Columns that a warp stores at a time, 128 bytes of each row, sums of a lane among them, and how many such boxes its room holds.
const BOX: u32 = 32;
const SUMS_OF_BOX: usize = 16;
const BOXES: u32 = CHUNK / BOX;
/// Numbers of a pack of the result, packs of a chunk's row, and rows of packs that a warp takes at a time.
const PACK: u32 = 4;
const PACKS: u32 = CHUNK / PACK;
const ROWS_AT_A_TIME: u32 = 32 / PACKS;

/// Columns and rows of a box of the result.
pub const F32_BOX: [u32; 2] = [BOX, ROWS_OF_WARP];

/// A lane of a consumer, with its warp's room, and where the warp's sums begin in the result.
#[derive(Clone, Copy)]
pub(super) struct WarpFinisher {
    pub lane: u32,
    /// The byte of dynamic shared memory where its warp's [`ROOM_BYTES`] begin.
    pub room: u32,
    pub row: u32,
    pub col: u32,
}

impl WarpFinisher {
    /// Finishes sums of which `p` says [`flag::STORED`], box by box: alpha, a bias and a ramp. The accelerator stores them during the next
    /// tile's products.
    ///
    /// # Safety
    /// The map is of the result, the bias as `p` says. All lanes call; the stores are waited for before the block ends.
    #[inline(always)]
    pub unsafe fn store<const SUMS: usize>(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        bias: Global<f32>,
        out: TensorMap,
        place: Place,
    ) {
        let ramp = p.activation == activation::RELU;
        // SAFETY: the caller's contract; a box is written again when the store from it has read it.
        unsafe {
            for number in 0..SUMS / SUMS_OF_BOX {
                let room = self.room + number as u32 % BOXES * (ROOM_BYTES / BOXES);
                let staged = Shared::<f32>::dynamic(room, ROWS_OF_WARP * BOX);
                let col = self.col + number as u32 * BOX;
                tma::wait_stores_read::<{ BOXES - 1 }>();
                warp::sync_warp(u32::MAX);
                for eight in 0..SUMS_OF_BOX / 4 {
                    let along = eight as u32 * 8 + self.lane % 4 * 2;
                    let has = p.flags & flag::BIAS != 0 && col + along < p.n;
                    // There is no box of odd columns.
                    let bias = bias.get_8_if(has, (col + along) as usize, 0).map(f32::from_bits);
                    for half in 0..2 {
                        let i = number * SUMS_OF_BOX + eight * 4 + half * 2;
                        let mut words = [0; 2];
                        for j in 0..2 {
                            let value = fma(p.alpha, sums[i + j], bias[j]);
                            words[j] = if ramp { max_nan(value, 0.0) } else { value }.to_bits();
                        }
                        // As the accelerator permutes the 16 bytes of a row.
                        let row = self.lane / 4 + half as u32 * 8;
                        staged.set_8(
                            tile::swizzled(row, along / PACK, BOX / PACK) * PACK + along % PACK,
                            words,
                        );
                    }
                }
                tma::fence_writes();
                warp::sync_warp(u32::MAX);
                let outer = place.outer + place.split;
                let mut at = [col as i32, self.row as i32, place.inner as i32, outer as i32];
                if p.heads.are_split() {
                    at = p.box_of_heads(place, self.row, col);
                }
                staged.store_box_if(self.lane == 0 && col < p.n && self.row < p.m, 0, out, at);
                tma::commit_stores();
            }
        }
    }

    /// Finishes any sums of a warp, chunk by chunk; where they are not all `finite`, those that are not are what `again` gives for
    /// their row and column, for which all lanes call it.
    ///
    /// # Safety
    /// As [`Finish::pack`]. All lanes call.
    #[inline(always)]
    pub unsafe fn finish<const SUMS: usize>(
        self,
        sums: &[f32; SUMS],
        finish: Finish<f32>,
        finite: bool,
        again: impl Fn(u32, u32) -> f32,
    ) {
        // Else what comes of it would be worked out in front of all tiles, for which there are no registers.
        let this = Self { lane: warp::warp_shuffle_idx(u32::MAX, self.lane, self.lane, 32).0, ..self };
        // Four numbers of a row; they are permuted by rows, against bank conflicts.
        let place = |row: u32, quad: u32| (row * PACKS + (quad ^ (row % 8 * 2))) * PACK;
        // SAFETY: the caller's contract; all lanes meet between the writes to the chunk and the reads.
        unsafe {
            let staged = Shared::<f32>::dynamic(this.room, ROWS_OF_WARP * CHUNK);
            // A store may still be reading it.
            tma::wait_stores_read::<0>();
            // Not to be unrolled: the epilogue is long.
            let rows = bits::opaque(ROWS_OF_WARP);
            let mut chunk = 0;
            while chunk < SUMS / SUMS_OF_CHUNK && finish.is_within(0, this.col + chunk as u32 * CHUNK) {
                let col = this.col + chunk as u32 * CHUNK;
                warp::sync_warp(u32::MAX);
                for number in 0..SUMS / SUMS_OF_CHUNK {
                    if number == chunk {
                        for i in 0..SUMS_OF_CHUNK / 2 {
                            let row = this.lane / 4 + i as u32 % 2 * 8;
                            let quad = i as u32 / 2 * 2 + this.lane % 4 / 2;
                            let pair = [0, 1].map(|j| sums[number * SUMS_OF_CHUNK + 2 * i + j]);
                            staged.set_8(place(row, quad) + this.lane % 2 * 2, pair.map(f32::to_bits));
                        }
                    }
                }
                warp::sync_warp(u32::MAX);
                if !finite {
                    let mut first = 0;
                    while first < rows * CHUNK {
                        let of = |lane: u32| ((first + lane) / CHUNK, (first + lane) % CHUNK);
                        let staged_at = |(row, along): (u32, u32)| place(row, along / PACK) + along % PACK;
                        let (row, along) = of(this.lane);
                        let exists = finish.is_within(this.row + row, col + along);
                        let is_wrong = exists && !staged.get(staged_at((row, along))).is_finite();
                        // Rarely any: all lanes compute one after the other.
                        let mut wrong = warp::warp_vote_ballot(u32::MAX, is_wrong);
                        while wrong != 0 {
                            let lane = wrong.trailing_zeros();
                            let (row, along) = of(lane);
                            let sum = again(this.row + row, col + along);
                            if this.lane == lane {
                                staged.set(staged_at((row, along)), sum);
                            }
                            wrong &= wrong - 1;
                        }
                        first += 32;
                    }
                    warp::sync_warp(u32::MAX);
                }
                if !finish.is_packed() {
                    let sums = |rows: [u32; 4], along: u32| {
                        let mut column = [0.0; 4];
                        for i in 0..4 {
                            column[i] = staged.get(place(rows[i], along / PACK) + along % PACK);
                        }
                        column
                    };
                    finish.columns((this.row, col), (rows, CHUNK), (this.lane, 32), sums);
                    chunk += 1;
                    continue;
                }
                let (mut row, pack) = (this.lane / PACKS, this.lane % PACKS);
                while row < rows {
                    let all = || {
                        let [a, b, c, d] = staged.get_pack(place(row, pack)).map(f32::from_bits);
                        [a, b, c, d, 0.0, 0.0, 0.0, 0.0]
                    };
                    let one = |i: u32| staged.get(place(row, pack) + i);
                    let at = |i: u32| (this.row + row, col + pack * PACK + i);
                    finish.pack(this.row + row, col + pack * PACK, all, at, one);
                    row += ROWS_AT_A_TIME;
                }
                chunk += 1;
            }
        }
    }
}
