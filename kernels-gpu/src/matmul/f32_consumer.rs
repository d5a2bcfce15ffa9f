//! How a warp of a consumer finishes sums in f32, for [`parted()`](fn@super::parted) and [`tf32_pipelined()`](fn@super::tf32_pipelined).
//!
//! Each warp by itself, by way of its room in shared memory. Plain results leave by copies of the accelerator, which go on during the next
//! tile's products; others go by the epilogue that all kernels share.

use super::epilogue::{Epilogue, activation, flag};
use super::finish::Finish;
use super::place::Place;
use super::staged::{CHUNK, ROWS, STAGED_BYTES, SUMS_OF_CHUNK, Staged};
use cuda_std::bits;
use cuda_std::float::{fma, max_nan};
use cuda_std::prelude::*;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};

pub(super) const ROOM_BYTES: u32 = STAGED_BYTES;
/// Columns that a warp stores at a time, 128 bytes of each row, sums of a lane among them, and how many such boxes its room holds.
const BOX: u32 = 32;
const SUMS_OF_BOX: usize = 16;
const BOXES: u32 = CHUNK / BOX;
/// Numbers of a pack of the result.
const PACK: u32 = 4;

/// Columns and rows of a box of the result.
pub const F32_BOX: [u32; 2] = [BOX, ROWS];

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
                let staged = Shared::<f32>::dynamic(room, ROWS * BOX);
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
        // Not to be unrolled: the epilogue is long.
        let rows = bits::opaque(ROWS);
        // SAFETY: the warp's room.
        let staged = unsafe { Staged::new(this.room, this.lane) };
        // A store may still be reading it.
        tma::wait_stores_read::<0>();
        let mut chunk = 0;
        while chunk < SUMS / SUMS_OF_CHUNK && finish.is_within(0, this.col + chunk as u32 * CHUNK) {
            let col = this.col + chunk as u32 * CHUNK;
            // SAFETY: the caller's contract; all lanes meet between the writes to the chunk and the reads.
            unsafe {
                warp::sync_warp(u32::MAX);
                staged.leave(sums, chunk);
                warp::sync_warp(u32::MAX);
                if !finite {
                    this.mend(staged, rows, col, finish, &again);
                    warp::sync_warp(u32::MAX);
                }
                staged.finish(finish, rows, (this.row, col));
            }
            chunk += 1;
        }
    }

    /// Puts what `again` gives in the place of sums of a chunk that are not finite.
    ///
    /// # Safety
    /// All lanes call, and have met since the sums were written.
    #[inline(always)]
    unsafe fn mend(
        self,
        staged: Staged,
        rows: u32,
        col: u32,
        finish: Finish<f32>,
        again: impl Fn(u32, u32) -> f32,
    ) {
        let mut first = 0;
        while first < rows * CHUNK {
            let of = |lane: u32| ((first + lane) / CHUNK, (first + lane) % CHUNK);
            let (row, along) = of(self.lane);
            let exists = finish.is_within(self.row + row, col + along);
            // SAFETY: the caller's contract; a number is one lane's.
            unsafe {
                let is_wrong = exists && !staged.get(row, along).is_finite();
                // Rarely any: all lanes compute one after the other.
                let mut wrong = warp::warp_vote_ballot(u32::MAX, is_wrong);
                while wrong != 0 {
                    let lane = wrong.trailing_zeros();
                    let (row, along) = of(lane);
                    let sum = again(self.row + row, col + along);
                    if self.lane == lane {
                        staged.set(row, along, sum);
                    }
                    wrong &= wrong - 1;
                }
            }
            first += 32;
        }
    }
}
