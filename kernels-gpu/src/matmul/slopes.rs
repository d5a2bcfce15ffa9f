//! The gradient of what lies behind a product: of its activation, and of its bias.
//!
//! d[m,n] = dy[m,n]·act′(pre[m,n]), and the sums of its columns over each group of rows, which `column_sums` adds up
//! to the gradient of the bias. Without an activation only the sums are left.
//!
//! Launch: 1-D grid, a block for each [`STRIP`] packs of columns of a group of rows, groups slowest.
//!
//! Floor: dy and pre read and d written once, at the copy rate.

use super::epilogue::{Activation, PACK, activation, pack, unpack};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Packs of columns of a block.
pub const STRIP: u32 = 32;
/// Rows that a block reads at a time.
const ROWS: u32 = 8;

/// The parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// Strips of columns.
    pub strips: Divisor,
    /// Rows, and columns.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Rows of a group.
    pub group: u32,
    /// One of [`activation`].
    pub activation: u32,
    /// 1 where rows start at multiples of 16 bytes.
    pub packed: u32,
}
plain_parameter!(Behind);

/// Multiplies by slopes and sums. `pre` and `d` are used with an activation only.
///
/// # Safety
/// The tensors are contiguous and have `rows`·`cols` elements, `partials` a row for each group; the grid has a block for
/// each strip of each group.
#[kernel(family = "matmul", types = [f32, f16, bf16], instances = [{ ; threads: 256, min_blocks: 3 }])]
pub unsafe fn behind<T: Float>(
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
        while row < end {
            let at = row as usize * p.cols as usize + col as usize;
            let load = |of: Global<T>| {
                let mut values = unpack::<T>(of.get_pack_if(whole, at, 0));
                if !whole {
                    for i in 0..T::PER_PACK {
                        if col + (i as u32) < p.cols {
                            values[i] = of.get(at + i).to_f32();
                        }
                    }
                }
                values
            };
            let mut values = load(dy);
            if p.activation != activation::NONE {
                values = Activation::<T>::times_slope(p.activation, values, load(pre));
                d.set_pack_if(whole, at, pack::<T>(values));
                if !whole {
                    for i in 0..T::PER_PACK {
                        d.set_if(col + (i as u32) < p.cols, at + i, T::from_f32(values[i]));
                    }
                }
            }
            for i in 0..T::PER_PACK {
                sums[i] += values[i];
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
