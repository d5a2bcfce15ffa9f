//! Tiles of two dimensions, the fastest of x and the fastest of y, where runs of both begin and end at multiples of 16
//! bytes: [`RUN`] bytes of each of `ROWS` rows of x. Small tiles of a fixed shape, all of whose loads are in flight before
//! the first is stored: there is less to work out than for boxes (`turn`), and more blocks take turns.
//!
//! A pack of x lies in shared memory at a place that is skewed by the pack of y that its row is part of, so that neither
//! storing packs nor reading words meets a bank twice (bytes: twice).
//!
//! Launch: a block for each tile, with tiles along y's fastest dimension in x, tiles along x's in y, or the other way round, and the
//! other dimensions in z; `ROWS`·[`RUN`] bytes of dynamic shared memory.

use super::boxes::{Digit, advanced};
use super::turn::Turned;
use super::unit::Unit;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Bytes of a row of x in a tile.
pub const RUN: usize = 128;
/// Packs of it.
const CHUNKS: u32 = (RUN / 16) as u32;
/// Warps of a block.
const WARPS: usize = 4;
/// Rows that a block loads at once.
const AT_ONCE: usize = WARPS * 32 / CHUNKS as usize;
/// The most packs that a thread loads.
const MOST: usize = 4;

/// The most dimensions beside a tile's two and the outermost other.
pub const MAX_INNER: usize = 5;

/// A launch of tiles.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// Of a block's index in z, which counts the dimensions that tiles have one element of: all but the outermost.
    pub inner: [Digit; MAX_INNER],
    /// Those that count.
    pub inner_count: u32,
    /// Elements of y's fastest dimension, which are rows of x.
    pub rows: u32,
    /// Packs of x's fastest dimension.
    pub chunks: u32,
    /// 1 where a block's index in x counts tiles along x's fastest dimension, and that in y those along y's.
    pub along_x: u32,
    /// Bytes of x and of y that a step along the outermost of the other dimensions takes.
    pub outermost: [i64; 2],
    /// Bytes of x from one row to the next.
    pub x_row: i64,
    /// Bytes of y from one element of x's fastest dimension to the next.
    pub y_row: i64,
}
plain_parameter!(Tiles);
const _: () = assert!(size_of::<Tiles>() == 32 * MAX_INNER + 4 * 4 + 4 * 8);

/// y = x permuted.
///
/// # Safety
/// x and y hold what `p` says, and start at multiples of 16 bytes; so do all of their rows.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [{ ROWS: 32; threads: 128 }, { ROWS: 64; threads: 128 }],
)]
pub unsafe fn tiled<T: Turned, const ROWS: usize>(x: Global<u8>, y: GlobalMut<u8>, p: Tiles) {
    let (per_pack, per_word) = const { (T::PER_PACK as u32, (T::Word::BYTES / T::BYTES) as u32) };
    let words_of_chunk = const { (16 / T::Word::BYTES) as u32 };
    let place = |row: u32, chunk: u32| row * CHUNKS + (chunk ^ (row / per_pack % CHUNKS));
    let [mut of_rows, mut of_chunks] = [thread::block_idx_x(), thread::block_idx_y()];
    if p.along_x != 0 {
        (of_rows, of_chunks) = (of_chunks, of_rows);
    }
    let (first_row, first_chunk) = (of_rows * ROWS as u32, of_chunks * CHUNKS);
    let (rows, chunks) = (p.rows - first_row, p.chunks - first_chunk);
    let (x_at, y_at) = p.others();
    let x_at = advanced(x_at, p.x_row, first_row) + i64::from(first_chunk) * 16;
    let y_at = advanced(y_at, p.y_row, first_chunk * const { (16 / T::BYTES) as u32 });
    let y_at = y_at + i64::from(first_row) * T::BYTES as i64;
    // SAFETY: the caller's contract: what lies beyond the last row or pack is neither read nor written. Each place of shared
    // memory has one thread before the barrier.
    unsafe {
        let staged = Shared::<u8>::dynamic(0, (ROWS * RUN) as u32);
        let (row, chunk) = (thread::thread_idx_x() / CHUNKS, thread::thread_idx_x() % CHUNKS);
        let from = advanced(x_at, p.x_row, row) + i64::from(16 * chunk);
        let mut held = [[0; 4]; MOST];
        for i in 0..const { ROWS / AT_ONCE } {
            let when = (row + ((i * AT_ONCE) as u32) < rows) & (chunk < chunks);
            held[i] = x.get_pack_if(when, (from + (i * AT_ONCE) as i64 * p.x_row) as usize, 0);
        }
        for i in 0..const { ROWS / AT_ONCE } {
            staged.set_pack(16 * place(row + (i * AT_ONCE) as u32, chunk), held[i]);
        }
        thread::sync_threads();

        let Turns { lanes, along, all } = const { Turns::of::<T>(ROWS) };
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        for i in 0..const { Turns::of::<T>(ROWS).all.div_ceil(WARPS as u32) } {
            let turn = warp + i * WARPS as u32;
            if turn < all {
                let pack = turn % along * lanes + lane % lanes;
                let word = turn / along * (warp::SIZE / lanes) + lane / lanes;
                let chunk = word / words_of_chunk;
                let mut words = [T::Word::ZERO; 16];
                for element in 0..const { T::PER_PACK } {
                    let place = place(pack * per_pack + element as u32, chunk);
                    words[element] = T::Word::staged(place * words_of_chunk + word % words_of_chunk);
                }
                let packs = T::turn(&words);
                let when = (pack * per_pack < rows) & (chunk < chunks);
                let to = advanced(y_at, p.y_row, word * per_word) + i64::from(16 * pack);
                for element in 0..const { T::Word::BYTES / T::BYTES } {
                    y.set_pack_if(when, (to + element as i64 * p.y_row) as usize, packs[element]);
                }
            }
        }
    }
}

/// How warps go through the packs of y in a tile.
struct Turns {
    /// Lanes next to one another along a row of y.
    lanes: u32,
    /// Turns of warps along it.
    along: u32,
    /// All of them.
    all: u32,
}

impl Turns {
    const fn of<T: Turned>(rows: usize) -> Turns {
        let packs = (rows / T::PER_PACK) as u32;
        let lanes = if packs < 8 { packs } else { 8 };
        let all = (rows * RUN / (T::PER_PACK * T::Word::BYTES)) as u32 / warp::SIZE;
        Turns { lanes, along: packs / lanes, all }
    }
}

impl Tiles {
    /// Where the block is in the other dimensions, in bytes of x and of y.
    #[inline(always)]
    fn others(&self) -> (i64, i64) {
        let (mut x, mut y, mut rest) = (0, 0, thread::block_idx_z());
        if self.inner_count > 0 {
            for i in 0..MAX_INNER {
                if (i as u32) < self.inner_count {
                    let (next, digit) = self.inner[i].count.div_rem(rest);
                    rest = next;
                    x = advanced(x, self.inner[i].x, digit);
                    y = advanced(y, self.inner[i].y, digit);
                }
            }
        }
        let [of_x, of_y] = self.outermost;
        (advanced(x, of_x, rest), advanced(y, of_y, rest))
    }
}
