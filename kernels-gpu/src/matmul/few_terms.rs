//! Products of few rows and few terms, or [by columns](super::flag::BY_COLUMNS) of few columns: as many columns as there are pass by, and a warp multiplies some of them by itself.
//!
//! As [`thin()`](fn@super::thin), whose warps share out k: b's packs are fragments of the tensor cores' first operand as they are, 16 columns to a group. With
//! few terms there is nothing to share out. A warp has the loads of `STEPS` steps of `GROUPS` groups in flight, multiplies them, and finishes the sums by way
//! of shared memory of its own; blocks stay for as many tiles as it takes. Neighbours along k are packs of neighbouring lanes, so that lines come whole.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks) that stay, with tiles of [`SHORT_WARPS`]·`GROUPS`·16 columns. It may be early.
//!
//! Floor: b and the result once at the copy rate.

use super::Product;
use super::few_rows::{LANES, OfPacks, THIN_COLS, THIN_ROWS};
use super::finish::{Finish, PACK, Tensors};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Bytes of a row in a step.
pub const SHORT_STEP_BYTES: u32 = LANES * 16;
/// Warps of a block.
pub const SHORT_WARPS: u32 = 8;

/// Elements from row to row of a warp's sums: four pairs of rows in banks of their own.
const PITCH: u32 = 68;

/// Multiplies. m is at most `FRAGMENTS`·8, or n by columns.
///
/// # Safety
/// The tensors have the matrices of `p`; rows of both operands start at multiples of 16 bytes and are whole packs; the grid is `p.blocks`'.
#[kernel(
    family = "matmul",
    types = [f16, bf16, f32],
    instances = [
        { FRAGMENTS: 1, STEPS: 1, GROUPS: 4; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 1, STEPS: 2, GROUPS: 2; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 1, STEPS: 4, GROUPS: 1; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, STEPS: 1, GROUPS: 2; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, STEPS: 2, GROUPS: 1; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, STEPS: 4, GROUPS: 1; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn short<T: OfPacks, const FRAGMENTS: usize, const STEPS: usize, const GROUPS: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let (rows, cols) = p.extents_of_few();
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let (row, turn) = (lane / LANES, lane % LANES);
    let tensors = Tensors { bias, addend, aux, out };
    let sums = if const { FRAGMENTS == 1 } {
        shared_array!(matmul_short_sums: [f32; 4352])
    } else {
        shared_array!(matmul_short_sums_of_two: [f32; 8704])
    };
    let width = GROUPS as u32 * THIN_COLS;
    let of_warp = OfWarp { sums, first: warp * FRAGMENTS as u32 * THIN_ROWS * PITCH, width };
    dependent::begin();
    let mut index = thread::block_idx_x();
    while index < p.blocks.total {
        let place = p.blocks.at(index);
        let first_col = (place.tile_col * SHORT_WARPS + warp) * width;
        // SAFETY: the caller's contract; rows are below their number and packs within a row by the predicates, and a sum is one lane's.
        unsafe {
            let operands = [a.offset(place.of(p.a)), b.offset(place.of(p.b))];
            let products =
                multiply::<T, FRAGMENTS, STEPS, GROUPS>(operands, (rows, cols), first_col + row, turn, &p);
            // Those of the tile before are read by nobody any more.
            warp::sync_warp(u32::MAX);
            let mut wanted = false;
            for group in 0..GROUPS {
                for f in 0..FRAGMENTS {
                    let four = products[group][f];
                    wanted |= T::want_mending(&four);
                    for i in 0..4 {
                        let (half, odd) = (i as u32 / 2, i as u32 % 2);
                        let down = f as u32 * THIN_ROWS + turn * 2 + odd;
                        sums.set(of_warp.at(down, group as u32 * THIN_COLS + half * 8 + row), four[i]);
                    }
                }
            }
            if wanted {
                // Not to be unrolled: the lane's two columns of each group, and its two rows of each fragment.
                let (mut next, end) = (0, bits::opaque((GROUPS * FRAGMENTS * 4) as u32));
                while next < end {
                    let (down, across) = (next / 2 % FRAGMENTS as u32, next / 2 / FRAGMENTS as u32);
                    let (down, across) = (down * THIN_ROWS + turn * 2 + next % 2, across * 8 + row);
                    if down < rows && first_col + across < cols {
                        let (at, place) = (of_warp.at(down, across), (down, first_col + across));
                        sums.set(at, T::mended(sums.get(at), operands, &p, (0, p.k), place));
                    }
                    next += 1;
                }
            }
            warp::sync_warp(u32::MAX);
            of_warp.finish(Finish::new(tensors, &p.epilogue, place), rows, first_col, cols);
        }
        index += p.blocks.blocks;
    }
}

/// A warp's sums in shared memory, in rows of `width` columns and what lies behind them.
#[derive(Clone, Copy)]
struct OfWarp {
    sums: Shared<f32>,
    first: u32,
    width: u32,
}

impl OfWarp {
    #[inline(always)]
    fn at(self, row: u32, col: u32) -> u32 {
        self.first + row * PITCH + col
    }

    /// Finishes those of so many rows, and of the columns from `first_col` on, as far as there are any: neighbours in the result by neighbouring lanes.
    ///
    /// # Safety
    /// As [`Finish::one`]. All lanes call; the sums are there.
    #[inline(always)]
    unsafe fn finish<T: Float>(self, finish: Finish<T>, rows: u32, first_col: u32, cols: u32) {
        let (lane, width, per_pack) = (warp::lane_id(), self.width, T::PER_PACK as u32);
        let cols = cols.saturating_sub(first_col);
        let by_columns = finish.is_by_columns();
        // A pack of the result is of neighbouring rows here, by columns, or of neighbouring columns.
        let (packed, mut next) = (finish.is_packed(), lane);
        // Numbers are dealt out by rows of the result of so many, a power of two, by columns.
        let numbers = if packed { rows.div_ceil(per_pack) } else { rows };
        let shift = 32 - (numbers - 1).leading_zeros();
        let of_row = if packed { width / per_pack } else { width };
        let all = if by_columns { width << shift } else { of_row * rows };
        while next < all {
            let (row, col) = if by_columns {
                (next & ((1 << shift) - 1), next >> shift)
            } else {
                (next / of_row, next % of_row)
            };
            let times = if packed { per_pack } else { 1 };
            let (row, col) = if by_columns { (row * times, col) } else { (row, col * times) };
            // SAFETY: the caller's contract; within the sums.
            unsafe {
                if row >= rows || col >= cols {
                } else if packed {
                    let at = |i: u32| if by_columns { self.at(row + i, col) } else { self.at(row, col + i) };
                    let of_result = |i: u32| {
                        let (row, col) = if by_columns { (row + i, col) } else { (row, col + i) };
                        if by_columns { (first_col + col, row) } else { (row, first_col + col) }
                    };
                    let pack = || {
                        let mut sums = [0.0; PACK];
                        for i in 0..T::PER_PACK {
                            sums[i] = self.sums.get(at(i as u32));
                        }
                        sums
                    };
                    let (down, across) = of_result(0);
                    finish.pack(down, across, pack, of_result, |i| self.sums.get(at(i)));
                } else {
                    finish.one_of_few((row, first_col + col), self.sums.get(self.at(row, col)));
                }
            }
            next += 32;
        }
    }
}

/// A lane's sums of `GROUPS` groups of columns, of which its first is `col`: of its packs number `turn` of each step.
///
/// # Safety
/// As [`short()`](fn@short); the operands are those of one product of the batch, with so many rows.
#[inline(always)]
unsafe fn multiply<T: OfPacks, const FRAGMENTS: usize, const STEPS: usize, const GROUPS: usize>(
    [a, b]: [Global<T>; 2],
    (rows, cols): (u32, u32),
    col: u32,
    turn: u32,
    p: &Product,
) -> [[[f32; 4]; FRAGMENTS]; GROUPS] {
    let row = warp::lane_id() / LANES;
    let pack = |of: Global<T>, stride: i64, row: u32, rows: u32, term: u32| {
        let at = row as i64 * stride + term as i64;
        // SAFETY: the caller's contract.
        unsafe { of.get_pack_if(row < rows && term < p.k, at as usize, 0) }
    };
    let terms = LANES * T::PER_PACK as u32;
    let mut sums = [[[0.0f32; 4]; FRAGMENTS]; GROUPS];
    let mut first = 0;
    while first < p.k {
        let mut of_b = [[[[0; 4]; 2]; GROUPS]; STEPS];
        let mut of_a = [[[0; 4]; FRAGMENTS]; STEPS];
        for i in 0..STEPS {
            let term = first + i as u32 * terms + turn * T::PER_PACK as u32;
            for group in 0..GROUPS {
                for half in 0..2 {
                    let col = col + group as u32 * THIN_COLS + half as u32 * 8;
                    of_b[i][group][half] = pack(b, p.b.row, col, cols, term);
                }
            }
            for f in 0..FRAGMENTS {
                of_a[i][f] = pack(a, p.a.row, f as u32 * THIN_ROWS + row, rows, term);
            }
        }
        for i in 0..STEPS {
            for group in 0..GROUPS {
                for f in 0..FRAGMENTS {
                    sums[group][f] = T::add_products(sums[group][f], of_b[i][group], of_a[i][f]);
                }
            }
        }
        first += STEPS as u32 * terms;
    }
    sums
}
