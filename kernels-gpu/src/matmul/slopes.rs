//! The gradient of what lies behind a product: of its activation, and of its bias.
//!
//! d[m,n] = dy[m,n]·act′(pre[m,n]), and the sums of its columns over each group of rows, which `column_sums` adds up
//! to the gradient of the bias. Without an activation only the sums are left.
//!
//! Launch: 1-D grid, a block for each [`STRIP`] packs of columns of a group of rows, groups slowest.
//!
//! Floor: dy and pre read and d written once, at the copy rate.

use super::activations::Activation;
use super::finish::{PACK, pack, unpack};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Packs of columns of a block.
pub const STRIP: u32 = 32;
/// Rows side by side, each of a warp's packs.
const ROWS: u32 = 8;

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// Strips of columns.
    pub strips: Divisor,
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Rows of a group.
    pub group: u32,
    /// One of [`activation`](super::epilogue::activation).
    pub activation: u32,
    /// 1 where rows start at multiples of 16 bytes.
    pub packed: u32,
}
plain_parameter!(Behind);

/// Multiplies by slopes and sums, or with `SLOPES` 0 sums only, without `pre` and `d`. A thread asks for packs of `DEPTH` rows at a time.
///
/// # Safety
/// The tensors are contiguous and have `rows`·`cols` elements, `partials` a row for each group; the grid has a block for
/// each strip of each group.
#[kernel(
    family = "matmul",
    types = [f32, f16, bf16],
    instances = [
        { SLOPES: 0, DEPTH: 4; threads: 256, min_blocks: 4 }, { SLOPES: 1, DEPTH: 2; threads: 256, min_blocks: 3 },
    ],
)]
pub unsafe fn behind<T: Float, const SLOPES: usize, const DEPTH: usize>(
    dy: Global<T>,
    pre: Global<T>,
    d: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: Behind,
) {
    let (group, strip) = p.strips.div_rem(thread::block_idx_x());
    let (lane, turn) = (thread::thread_idx_x() % STRIP, thread::thread_idx_x() / STRIP);
    let per_pack = T::PER_PACK as u32;
    let col = (strip * STRIP + lane) * per_pack;
    let whole = p.packed != 0 && col + per_pack <= p.cols;
    let end = (group + 1) * p.group;
    let end = if end < p.rows { end } else { p.rows };
    let mut sums = [0.0f32; PACK];
    // SAFETY: the caller's contract; rows and columns are below their numbers.
    unsafe {
        let mut row = group * p.group + turn;
        let at = |row: u32| row as usize * p.cols as usize + col as usize;
        let slopes = const { SLOPES == 1 };
        while whole && row < end {
            let row_of = |i: usize| row + i as u32 * ROWS;
            let (mut of_dy, mut of_pre) = ([[0; 4]; DEPTH], [[0; 4]; DEPTH]);
            for i in 0..DEPTH {
                of_dy[i] = dy.get_pack_if(row_of(i) < end, at(row_of(i)), 0);
                of_pre[i] = pre.get_pack_if(slopes && row_of(i) < end, at(row_of(i)), 0);
            }
            for i in 0..DEPTH {
                let mut values = unpack::<T>(of_dy[i]);
                if slopes {
                    values = Activation::<T>::times_slope(p.activation, values, unpack::<T>(of_pre[i]));
                    d.set_pack_if(row_of(i) < end, at(row_of(i)), pack::<T>(values));
                }
                for j in 0..T::PER_PACK {
                    sums[j] += values[j];
                }
            }
            row += DEPTH as u32 * ROWS;
        }
        // Element by element.
        while !whole && row < end {
            let (mut values, mut before) = ([0.0; PACK], [0.0; PACK]);
            for j in 0..T::PER_PACK {
                if col + (j as u32) < p.cols {
                    values[j] = dy.get(at(row) + j).to_f32();
                    before[j] = if slopes { pre.get(at(row) + j).to_f32() } else { 0.0 };
                }
            }
            if slopes {
                values = Activation::<T>::times_slope(p.activation, values, before);
            }
            for j in 0..T::PER_PACK {
                d.set_if(slopes && col + (j as u32) < p.cols, at(row) + j, T::from_f32(values[j]));
                sums[j] += values[j];
            }
            row += ROWS;
        }
        // A row of sums for each turn.
        let of_turns = shared_array!(matmul_behind_sums: [f32; 2048]);
        let width = STRIP * per_pack;
        for i in 0..T::PER_PACK {
            of_turns.set(turn * width + lane * per_pack + i as u32, sums[i]);
        }
        thread::sync_threads();
        let mut across = thread::thread_idx_x();
        while across < width {
            let col = strip * width + across;
            if col < p.cols {
                let mut total = 0.0;
                for turn in 0..ROWS {
                    total += of_turns.get(turn * width + across);
                }
                partials.set(group as usize * p.cols as usize + col as usize, total);
            }
            across += STRIP * ROWS;
        }
    }
}
