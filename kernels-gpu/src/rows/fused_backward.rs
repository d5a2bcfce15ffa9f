//! dx of layer norm and of RMS norm with the partial sums of dweight and dbias, from one reading: for rows of whole
//! packs that a block's registers hold.
//!
//! A block walks every n-th row, n the number of blocks; the next row is in flight while a row is computed. Its threads
//! keep the sums of their columns in registers, and write them as a row of two matrices [blocks, cols] of f32, which
//! `column_sums` adds up: no atomics, and an order that the launch alone determines.
//!
//! Floor: x, dy and dx once, dsum too where given.

use super::norm_backward::{Normal, Slope};
use super::statistic::{Statistic, Sums};
use super::{Params, given};
use cuda_std::prelude::*;

/// Rows that a block takes side by side.
pub const fn fused_rows(lanes: usize, threads: u32) -> u32 {
    threads / lanes as u32
}

/// `CENTRED` 1 is layer norm, 0 RMS norm.
///
/// # Safety
/// The operands match `p`, whose rows are whole packs, at most `LANES·PACKS`, one dimension of them; the partials have a
/// row for each block.
#[kernel(
    family = "rows",
    types = [f32, f16, bf16],
    instances = [
        { CENTRED: 1, LANES: 4, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 1, LANES: 16, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 1, LANES: 32, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 1, LANES: 32, PACKS: 2; threads: 128, min_blocks: 3 },
        { CENTRED: 1, LANES: 32, PACKS: 3; threads: 128, min_blocks: 2 },
        { CENTRED: 1, LANES: 128, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 1, LANES: 64, PACKS: 3; threads: 64, min_blocks: 4 },
        { CENTRED: 1, LANES: 128, PACKS: 2; threads: 128, min_blocks: 3 },
        { CENTRED: 1, LANES: 128, PACKS: 3; threads: 128, min_blocks: 2 },
        { CENTRED: 1, LANES: 256, PACKS: 2; threads: 256, min_blocks: 2 },
        { CENTRED: 1, LANES: 256, PACKS: 3; threads: 256, min_blocks: 1 },
        { CENTRED: 1, LANES: 512, PACKS: 2; threads: 512, min_blocks: 1 },
        { CENTRED: 0, LANES: 4, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 0, LANES: 16, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 0, LANES: 32, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 0, LANES: 32, PACKS: 2; threads: 128, min_blocks: 3 },
        { CENTRED: 0, LANES: 32, PACKS: 3; threads: 128, min_blocks: 2 },
        { CENTRED: 0, LANES: 128, PACKS: 1; threads: 128, min_blocks: 5 },
        { CENTRED: 0, LANES: 64, PACKS: 3; threads: 64, min_blocks: 4 },
        { CENTRED: 0, LANES: 128, PACKS: 2; threads: 128, min_blocks: 3 },
        { CENTRED: 0, LANES: 128, PACKS: 3; threads: 128, min_blocks: 2 },
        { CENTRED: 0, LANES: 256, PACKS: 2; threads: 256, min_blocks: 2 },
        { CENTRED: 0, LANES: 256, PACKS: 3; threads: 256, min_blocks: 1 },
        { CENTRED: 0, LANES: 512, PACKS: 2; threads: 512, min_blocks: 1 },
    ],
)]
pub unsafe fn norm_backward_fused<T: Float, const CENTRED: usize, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    dy: Global<T>,
    dsum: Global<T>,
    weight: Global<T>,
    mean: Global<f32>,
    rstd: Global<f32>,
    dx: GlobalMut<T>,
    dweight: GlobalMut<f32>,
    dbias: GlobalMut<f32>,
    p: Params,
) {
    let inputs = Inputs { rows: [x, dy, dsum], mean, rstd };
    // SAFETY: the caller's contract.
    unsafe {
        if const { CENTRED == 1 && T::PER_PACK == 8 } {
            run::<T, true, LANES, PACKS, 8>(&inputs, weight, dx, [dweight, dbias], &p);
        } else if const { CENTRED == 1 } {
            run::<T, true, LANES, PACKS, 4>(&inputs, weight, dx, [dweight, dbias], &p);
        } else if const { T::PER_PACK == 8 } {
            run::<T, false, LANES, PACKS, 8>(&inputs, weight, dx, [dweight, dbias], &p);
        } else {
            run::<T, false, LANES, PACKS, 4>(&inputs, weight, dx, [dweight, dbias], &p);
        }
    }
}

/// What is read of each row.
struct Inputs<T> {
    /// x, dy and dsum.
    rows: [Global<T>; 3],
    mean: Global<f32>,
    rstd: Global<f32>,
}

/// A thread's share of a row.
#[derive(Clone, Copy)]
struct Share<const PACKS: usize> {
    /// x and dy.
    packs: [[Pack; PACKS]; 2],
    normal: Normal,
}

impl<const PACKS: usize> Share<PACKS> {
    /// Of a row that is not there: zeros, which add nothing.
    ///
    /// # Safety
    /// As [`norm_backward_fused`](fn@norm_backward_fused).
    #[inline(always)]
    unsafe fn load<T: Float, const CENTRED: bool, const LANES: usize>(
        inputs: &Inputs<T>,
        p: &Params,
        row: u32,
        lane: u32,
    ) -> Self {
        let mut share = Share { packs: [[[0; 4]; PACKS]; 2], normal: Normal { mean: 0.0, rstd: 0.0 } };
        let is_there = row < p.rows;
        // SAFETY: rows and packs beyond the last are not read.
        unsafe {
            for input in 0..2 {
                share.packs[input] = inputs.packs::<LANES, PACKS>(p, input, is_there, row, lane);
            }
            if const { CENTRED } {
                share.normal.mean = f32::from_bits(inputs.mean.get_4_if(is_there, row as usize, 0));
            }
            share.normal.rstd = f32::from_bits(inputs.rstd.get_4_if(is_there, row as usize, 0));
        }
        share
    }
}

impl<T: Float> Inputs<T> {
    /// A thread's packs of a row of one of the inputs; zeros where there are none.
    ///
    /// # Safety
    /// As [`norm_backward_fused`](fn@norm_backward_fused); with `when`, the input and the row are there.
    #[inline(always)]
    unsafe fn packs<const LANES: usize, const PACKS: usize>(
        &self,
        p: &Params,
        input: usize,
        when: bool,
        row: u32,
        lane: u32,
    ) -> [Pack; PACKS] {
        let mut packs = [[0; 4]; PACKS];
        let first = row as i64 * p.dims[0].inputs[input] + lane as i64 * T::PER_PACK as i64;
        for i in 0..PACKS {
            let when = when & (lane + ((i * LANES) as u32) < p.cols / T::PER_PACK as u32);
            // 64-bit sums with a constant, which the load's address takes.
            let at = first + (i * LANES * T::PER_PACK) as i64;
            // SAFETY: the caller's contract.
            packs[i] = unsafe { self.rows[input].get_pack_or(when, at as usize, [0; 4]) };
        }
        packs
    }
}

/// PER_PACK is T's.
#[inline(always)]
unsafe fn run<
    T: Float,
    const CENTRED: bool,
    const LANES: usize,
    const PACKS: usize,
    const PER_PACK: usize,
>(
    inputs: &Inputs<T>,
    weight: Global<T>,
    dx: GlobalMut<T>,
    partials: [GlobalMut<f32>; 2],
    p: &Params,
) {
    let (thread, lanes) = (thread::thread_idx_x(), LANES as u32);
    let (lane, group) = (thread % lanes, thread / lanes);
    let side_by_side = thread::block_dim_x() / lanes;
    let step = side_by_side * thread::grid_dim_x();
    let whole = p.cols / PER_PACK as u32;
    let has = |i: usize| lane + ((i * LANES) as u32) < whole;
    let column = |i: usize| lane as usize * PER_PACK + i * LANES * PER_PACK;
    let one = T::pack_from(|_| T::from_f32(1.0));
    let mut dweights = [[0.0; PER_PACK]; PACKS];
    let mut dbiases = [[0.0; PER_PACK]; PACKS];
    let mut first = thread::block_idx_x() * side_by_side;
    let mut turn = 0;
    // SAFETY: rows and packs beyond the last are not accessed; each element of dx has one thread. A block's threads go
    // round the loop equally often.
    unsafe {
        let mut next = Share::<PACKS>::load::<T, CENTRED, LANES>(inputs, p, first + group, lane);
        // Held from row to row where there are registers for it, else read again from L1.
        let held = const { LANES < 256 };
        let load_weight =
            |i: usize| weight.get_pack_if(has(i) & (p.given & given::WEIGHT != 0), column(i), one[0]);
        let mut weights = [one; PACKS];
        for i in 0..PACKS {
            weights[i] = if held { load_weight(i) } else { one };
        }
        let weight_of = |i: usize| if held { weights[i] } else { load_weight(i) };
        while first < p.rows {
            let row = first + group;
            let share = next;
            first += step;
            next = Share::<PACKS>::load::<T, CENTRED, LANES>(inputs, p, first + group, lane);
            // One row of dsum at a time: it is not needed before the sums are.
            let mut dsums = [[0; 4]; PACKS];
            if const { CENTRED } {
                let when = (row < p.rows) & (p.given & given::THIRD != 0);
                dsums = inputs.packs::<LANES, PACKS>(p, 2, when, row, lane);
            }
            let mut sums = [[0.0; 2]; 2];
            for i in 0..PACKS {
                let weight = weight_of(i);
                for pair in 0..PER_PACK / 2 {
                    let of = |pack: Pack| T::pair(pack, pair);
                    let (x, dy, w) = (of(share.packs[0][i]), of(share.packs[1][i]), of(weight));
                    // Packs that are not there have dy 0, and add nothing.
                    for half in 0..2 {
                        sums[half] = share.normal.add::<CENTRED>(sums[half], x[half], dy[half] * w[half]);
                    }
                }
            }
            let mine = Sums([sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]]);
            let Sums(sums) =
                if const { LANES > 32 } { mine.over_block_in_turn(turn) } else { mine.over_lanes::<LANES>() };
            turn ^= 1;
            let slope = Slope::new(share.normal, sums, p.inverse_cols);
            for i in 0..PACKS {
                let mut result = [0; 4];
                // Widened again rather than kept so over the barrier.
                let renewed =
                    |pack| if const { PER_PACK == 8 } { packed::renew(pack, p.zeros[0]) } else { pack };
                let (xs, dys) = (renewed(share.packs[0][i]), renewed(share.packs[1][i]));
                let weight = renewed(weight_of(i));
                for pair in 0..PER_PACK / 2 {
                    let (x, dy) = (T::pair(xs, pair), T::pair(dys, pair));
                    let (dsum, w) = (T::pair(dsums[i], pair), T::pair(weight, pair));
                    let mut of_pair = [0.0; 2];
                    for half in 0..2 {
                        of_pair[half] = slope.of::<CENTRED>(x[half], dy[half] * w[half], dsum[half]);
                        let dweight = &mut dweights[i][2 * pair + half];
                        *dweight = float::fma(dy[half], share.normal.of(x[half]), *dweight);
                        if const { CENTRED } {
                            dbiases[i][2 * pair + half] += dy[half];
                        }
                    }
                    T::set_pair(&mut result, pair, of_pair);
                }
                let at = row as usize * p.cols as usize + column(i);
                dx.set_pack_if(has(i) & (row < p.rows), at, result);
            }
        }
        write::<LANES, PACKS, PER_PACK>(partials[0], dweights, p.cols);
        if const { CENTRED } {
            write::<LANES, PACKS, PER_PACK>(partials[1], dbiases, p.cols);
        }
    }
}

/// Adds up the sums of the rows side by side, in their order, and writes the block's row of partials.
///
/// # Safety
/// All threads of the block call; the partials have a row for each block.
#[inline(always)]
unsafe fn write<const LANES: usize, const PACKS: usize, const PER_PACK: usize>(
    partials: GlobalMut<f32>,
    mut sums: [[f32; PER_PACK]; PACKS],
    cols: u32,
) {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let lane = thread % LANES as u32;
    // SAFETY: each thread has its own elements; those of the first row side by side write theirs.
    unsafe {
        if const { LANES <= 32 } {
            // 128 threads of up to 3 packs of 8 elements.
            let shared = shared_array!(rows_fused_partials: [f32; 3072]);
            thread::sync_threads();
            for i in 0..PACKS {
                for e in 0..PER_PACK {
                    shared.set((i * PER_PACK + e) as u32 * threads + thread, sums[i][e]);
                }
            }
            thread::sync_threads();
            for i in 0..PACKS {
                for e in 0..PER_PACK {
                    let mut total = 0.0;
                    let mut other = lane;
                    while other < threads {
                        total += shared.get((i * PER_PACK + e) as u32 * threads + other);
                        other += LANES as u32;
                    }
                    sums[i][e] = total;
                }
            }
        }
        for i in 0..PACKS {
            let column = (lane + (i * LANES) as u32) * PER_PACK as u32;
            let at = thread::block_idx_x() as usize * cols as usize + column as usize;
            for four in 0..PER_PACK / 4 {
                let mut pack = [0; 4];
                for e in 0..4 {
                    pack[e] = sums[i][4 * four + e].to_bits();
                }
                partials.set_pack_if((thread < LANES as u32) & (column < cols), at + 4 * four, pack);
            }
        }
    }
}
