//! Tiles of two dimensions, the fastest of x and the fastest of y, where runs of both begin and end at multiples of 16
//! bytes: `RUN` bytes of each of `ROWS` rows of x. Where one of them has a small power of two for its extent, it makes one
//! dimension with what follows it in memory, which need not lie as close on the other side. Small tiles of a fixed shape, all of whose loads are in flight before
//! the first is stored: there is less to work out than for boxes (`turn`), and more blocks take turns.
//!
//! A pack of x lies in shared memory at a place that is skewed by the pack of y that its row is part of, so that neither
//! storing packs nor reading words meets a bank twice (bytes: twice).
//!
//! Launch: a block for each tile, with tiles along y's fastest dimension in x, tiles along x's in y, the other dimensions
//! in z; `ROWS`·`RUN` bytes of dynamic shared memory.

use super::boxes::{Digit, advanced};
use super::turn::Turned;
use super::unit::Unit;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: usize = 4;
/// The most rows that make one dimension with others; what a block loads at once is a multiple.
pub const MOST_JOINED: usize = 16;
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
    /// Elements of y's fastest dimension, with what makes one with it: rows of x.
    pub rows: u32,
    /// Packs of x's, likewise.
    pub chunks: u32,
    /// The extent of y's fastest dimension as a power of two, where it makes one with the next; 0 otherwise.
    pub log_rows: u32,
    /// That of x's.
    pub log_elements: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
    /// Bytes of x and of y that a step along the outermost of the other dimensions takes.
    pub outermost: [i64; 2],
    /// Bytes of x from one row to the next, of those that make one dimension with others.
    pub x_inner: i64,
    /// And from one to the next of the others.
    pub x_row: i64,
    /// Bytes of y from one element of x's fastest dimension to the next.
    pub y_inner: i64,
    /// And from one to the next of the dimension that makes one with it; the same where there is none.
    pub y_row: i64,
}
plain_parameter!(Tiles);
const _: () = assert!(size_of::<Tiles>() == 32 * MAX_INNER + 6 * 4 + 6 * 8);

/// y = x permuted.
///
/// # Safety
/// x and y hold what `p` says, and start at multiples of 16 bytes; so do all of their rows.
#[kernel(
    family = "permute",
    types = [u8, u16, u32, u64, Pack],
    instances = [
        { ROWS: 32, RUN: 128; threads: 128 },
        { ROWS: 64, RUN: 128; threads: 128 },
        { ROWS: 128, RUN: 64; threads: 128 },
    ],
)]
pub unsafe fn tiled<T: Turned, const ROWS: usize, const RUN: usize>(
    x: Global<u8>,
    y: GlobalMut<u8>,
    p: Tiles,
) {
    // Packs of a row of x, and rows that a block loads at once.
    let (in_row, at_once) = const { ((RUN / 16) as u32, WARPS * 32 / (RUN / 16)) };
    let (per_pack, per_word) = const { (T::PER_PACK as u32, (T::Word::BYTES / T::BYTES) as u32) };
    let words_of_chunk = const { (16 / T::Word::BYTES) as u32 };
    let place = |row: u32, chunk: u32| (row * in_row + chunk) ^ (row / per_pack % 8);
    let (first_row, first_chunk) = (thread::block_idx_x() * ROWS as u32, thread::block_idx_y() * in_row);
    let (rows, chunks) = (p.rows - first_row, p.chunks - first_chunk);
    let (x_at, y_at) = p.others();
    // Tiles begin with the first element of what makes one dimension with others.
    let x_at = advanced(x_at, p.x_row, first_row >> p.log_rows) + i64::from(first_chunk) * 16;
    let first_element = first_chunk * const { (16 / T::BYTES) as u32 };
    let y_at = advanced(y_at, p.y_row, first_element >> p.log_elements);
    let y_at = y_at + i64::from(first_row) * T::BYTES as i64;
    // SAFETY: the caller's contract: what lies beyond the last row or pack is neither read nor written. Each place of shared
    // memory has one thread before the barrier.
    unsafe {
        let staged = Shared::<u8>::dynamic(0, (ROWS * RUN) as u32);
        let (row, chunk) = (thread::thread_idx_x() / in_row, thread::thread_idx_x() % in_row);
        let within = row & ((1 << p.log_rows) - 1);
        let from = advanced(advanced(x_at, p.x_inner, within), p.x_row, row >> p.log_rows);
        let (from, step) = (from + i64::from(16 * chunk), p.x_row * (at_once >> p.log_rows) as i64);
        let mut held = [[0; 4]; MOST];
        for i in 0..const { ROWS * RUN / 16 / (WARPS * 32) } {
            let when = (row + ((i * at_once) as u32) < rows) & (chunk < chunks);
            held[i] = x.get_pack_if(when, (from + i as i64 * step) as usize, 0);
        }
        for i in 0..const { ROWS * RUN / 16 / (WARPS * 32) } {
            staged.set_pack(16 * place(row + (i * at_once) as u32, chunk), held[i]);
        }
        thread::sync_threads();

        let Turns { lanes, along, all } = const { Turns::of::<T>(ROWS, RUN) };
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        for i in 0..const { Turns::of::<T>(ROWS, RUN).all.div_ceil(WARPS as u32) } {
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
                let first = word * per_word;
                let within = first & ((1 << p.log_elements) - 1);
                let to = advanced(advanced(y_at, p.y_inner, within), p.y_row, first >> p.log_elements);
                let to = to + i64::from(16 * pack);
                for element in 0..const { T::Word::BYTES / T::BYTES } {
                    y.set_pack_if(when, (to + element as i64 * p.y_inner) as usize, packs[element]);
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
    const fn of<T: Turned>(rows: usize, run: usize) -> Turns {
        let packs = (rows / T::PER_PACK) as u32;
        let lanes = if packs < 8 { packs } else { 8 };
        let all = (rows * run / (T::PER_PACK * T::Word::BYTES)) as u32 / warp::SIZE;
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
