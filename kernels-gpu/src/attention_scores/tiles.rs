//! Rows of probabilities that a block holds in registers, all keys at once.
//!
//! A block takes the keys of one product to shared memory, once, and then tiles of queries, one after the other, the next
//! on its way while one is computed. Of a tile each warp has `MI`·16 rows and `GROUPS`·32 keys: their scores are the
//! accumulators of `mma.sync` and stay there. Masks are applied to them; maxima and sums of exponentials go from lane to lane by
//! shuffles, and from warp to warp through shared memory, behind one barrier; then the exponentials are multiplied by what makes them
//! probabilities. Rows of keys are so permuted in shared memory that a lane holds eight neighbouring keys of a row, which it
//! masks and stores as 16 bytes.
//!
//! Launch: 1-D grid, for each product the blocks of `Params::blocks`, [`shared_bytes`] of dynamic shared memory.

use super::group::{Group, KEYS, RUN, keep_range, order, run, set_run};
use super::kept::{Range, Ranges, TileRanges, past};
use super::mask::{Mask, Row};
use super::{NEAR, Params, SLICE, start};
use crate::masked_softmax::finite_or_zero;
use crate::matmul::Side;
use cuda_std::bits;
use cuda_std::prelude::*;

/// Packs of a row of a slice.
const PACKS: u32 = SLICE / 8;

/// Bytes of shared memory of an instance with tiles of `rows` queries, room for `room` keys and `warps` of them side by side,
/// for sums of `terms`.
pub const fn shared_bytes(rows: u32, room: u32, warps: u32, terms: u32) -> u32 {
    // The keys, two tiles of queries with their ranges, and a maximum and a sum of each row and warp.
    terms.div_ceil(SLICE) * SLICE * 2 * (room + 2 * rows) + 2 * TileRanges::bytes(rows) + 2 * 4 * rows * warps
}

/// Groups of a warp from which on there are no registers for a mask that is read ahead of the products.
const AHEAD: usize = 6;

/// Maxima and sums of exponentials of the parts of rows that warps have.
#[derive(Clone, Copy)]
struct Parts<const WARPS: usize> {
    maxima: Shared<f32>,
    sums: Shared<f32>,
}

impl<const WARPS: usize> Parts<WARPS> {
    /// Those of `rows` rows at byte `offset` of dynamic shared memory.
    ///
    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    unsafe fn at(offset: u32, rows: u32) -> Self {
        let count = rows * WARPS as u32;
        // SAFETY: the caller's contract.
        unsafe {
            Parts { maxima: Shared::dynamic(offset, count), sums: Shared::dynamic(offset + 4 * count, count) }
        }
    }

    /// # Safety
    /// `when` holds for one lane of a row and warp.
    #[inline(always)]
    unsafe fn set(self, when: bool, row: u32, warp: u32, maximum: f32, sum: f32) {
        let at = row * WARPS as u32 + warp;
        if when {
            // SAFETY: the caller's contract.
            unsafe {
                self.maxima.set(at, maximum);
                self.sums.set(at, sum);
            }
        }
    }

    /// The maximum and the sum of the row's part that the lane looks at: four lanes, or two, look at all.
    ///
    /// # Safety
    /// Behind a barrier.
    #[inline(always)]
    unsafe fn get(self, row: u32) -> (f32, f32) {
        const { assert!(WARPS == 2 || WARPS == 4) };
        let at = row * WARPS as u32 + warp::lane_id() % WARPS as u32;
        // SAFETY: the caller's contract.
        unsafe { (self.maxima.get(at), self.sums.get(at)) }
    }

    /// Maxima of rows, and their sums relative to these, of the parts of each that the lanes have. All lanes call.
    #[inline(always)]
    fn total<const MI: usize>(p: &Params, parts: [[(f32, f32); 2]; MI]) -> [[(f32, f32); 2]; MI] {
        let maxima = each(parts, |(maximum, _)| {
            if const { WARPS == 4 } { warp::max::<f32, 4>(maximum) } else { warp::max::<f32, 2>(maximum) }
        });
        let mut totals = [[(0.0, 0.0); 2]; MI];
        for i in 0..MI {
            for half in 0..2 {
                let (maximum, sum) = parts[i][half];
                let sum = sum * p.exponent.exp_fast(maximum - finite_or_zero(maxima[i][half]));
                let sum =
                    if const { WARPS == 4 } { warp::sum::<f32, 4>(sum) } else { warp::sum::<f32, 2>(sum) };
                totals[i][half] = (maxima[i][half], sum);
            }
        }
        totals
    }
}

/// A function of each row's value.
#[inline(always)]
fn each<A: Copy, B: Copy + Default, const MI: usize>(of: [[A; 2]; MI], f: impl Fn(A) -> B) -> [[B; 2]; MI] {
    let mut all = [[B::default(); 2]; MI];
    for i in 0..MI {
        for half in 0..2 {
            all[i][half] = f(of[i][half]);
        }
    }
    all
}

/// Computes y.
///
/// # Safety
/// The tensors are as `p` says; rows of q and k start at multiples of 16 bytes; there are no more keys than an instance has
/// room for; the grid is `p`'s, with its shared memory.
#[kernel(
    family = "attention_scores",
    types = [f16, bf16],
    instances = [
        { FORM: 0, MI: 1, GROUPS: 2, WARPS_M: 4, WARPS_N: 2; threads: 256, min_blocks: 2 },
        { FORM: 0, MI: 1, GROUPS: 4, WARPS_M: 2, WARPS_N: 2; threads: 128, min_blocks: 3 },
        { FORM: 0, MI: 1, GROUPS: 6, WARPS_M: 2, WARPS_N: 2; threads: 128, min_blocks: 3 },
        { FORM: 0, MI: 1, GROUPS: 4, WARPS_M: 1, WARPS_N: 4; threads: 128, min_blocks: 3 },
        { FORM: 0, MI: 1, GROUPS: 8, WARPS_M: 2, WARPS_N: 4; threads: 256, min_blocks: 1 },
        { FORM: 1, MI: 1, GROUPS: 2, WARPS_M: 4, WARPS_N: 2; threads: 256, min_blocks: 2 },
        { FORM: 1, MI: 1, GROUPS: 4, WARPS_M: 2, WARPS_N: 2; threads: 128, min_blocks: 3 },
        { FORM: 1, MI: 1, GROUPS: 6, WARPS_M: 2, WARPS_N: 2; threads: 128, min_blocks: 2 },
        { FORM: 1, MI: 1, GROUPS: 4, WARPS_M: 1, WARPS_N: 4; threads: 128, min_blocks: 2 },
        { FORM: 1, MI: 1, GROUPS: 8, WARPS_M: 2, WARPS_N: 4; threads: 256, min_blocks: 1 },
    ],
)]
pub unsafe fn whole_rows<
    T: Half,
    const FORM: usize,
    const MI: usize,
    const GROUPS: usize,
    const WARPS_M: usize,
    const WARPS_N: usize,
>(
    q: Global<T>,
    k: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let rows = (WARPS_M * MI * 16) as u32;
    let room = (WARPS_N * GROUPS) as u32 * KEYS;
    let threads = (WARPS_M * WARPS_N * 32) as u32;
    let (product, block) = p.blocks.div_rem(thread::block_idx_x());
    let (outer, inner) = p.inner.div_rem(product);
    let ranges = Ranges { lengths, starts, lengths_fault, starts_fault, outer, inner };
    let slices = p.terms.div_ceil(SLICE);
    // The block's rows.
    let mut first = block * p.tiles * rows;
    let end = (first + p.tiles * rows).min(p.queries);
    // SAFETY: the caller's contract; what is overwritten in shared memory has been read by all, by the barriers.
    unsafe {
        let mask = Mask::<T, FORM>::new(mask, start(p.mask, outer, inner));
        let y = y.offset(start(p.y, outer, inner));
        let q = q.offset(start(p.q, outer, inner));
        let reach = ranges.reach(&p);
        let side_k = Side::<T, 1>::new(
            k.offset(start(p.k, outer, inner)),
            p.k.row,
            (0, reach.min(past(&p, end - 1)) as u32),
            (room, SLICE),
            threads,
        );
        let copiers = if rows * PACKS < threads { rows * PACKS } else { threads };
        let side_q = |first: u32| Side::<T, 1>::new(q, p.q.row, (first, p.queries), (rows, SLICE), copiers);
        let (bytes_k, bytes_q) = (side_k.bytes(), side_q(0).bytes());
        let tile_k = |slice: u32| side_k.tile(slice * bytes_k);
        let of_q = slices * bytes_k;
        let tile_q = |buffer: u32, slice: u32| side_q(0).tile(of_q + (buffer * slices + slice) * bytes_q);
        let copy_q = |buffer: u32, first: u32| {
            if thread::thread_idx_x() < copiers {
                for slice in 0..slices {
                    side_q(first).copy(tile_q(buffer, slice), slice * SLICE, p.terms);
                }
            }
            async_copy::commit();
        };
        let of_ranges = of_q + 2 * slices * bytes_q;
        let tile_ranges = |buffer: u32| TileRanges::at(of_ranges + buffer * TileRanges::bytes(rows), rows);
        let parts = Parts::<WARPS_N>::at(of_ranges + 2 * TileRanges::bytes(rows), rows);
        for slice in 0..slices {
            side_k.copy_in_order(tile_k(slice), slice * SLICE, p.terms, order);
        }
        copy_q(0, first);
        let mut buffer = 0;
        while first < end {
            // Opaque, so that what is computed from them is not kept in registers from tile to tile.
            let (warp, lane) = (bits::opaque(warp::warp_id()), bits::opaque(warp::lane_id()));
            let (warp_m, warp_n) = (warp / WARPS_N as u32, warp % WARPS_N as u32);
            let warp_row = warp_m * (MI * 16) as u32;
            let warp_key = warp_n * GROUPS as u32 * KEYS;
            let first_column = warp_key + lane % 4 * RUN as u32;
            let kept = tile_ranges(buffer);
            kept.fill(&p, &ranges, first, end, rows);
            async_copy::wait::<0>();
            thread::sync_threads();
            if first + rows < end {
                copy_q(1 - buffer, first + rows);
            }
            let row_of = |i: usize, half: usize| warp_row + (i * 16 + half * 8) as u32 + lane / 4;
            let of_mask = |i: usize, half: usize| {
                let number = first + row_of(i, half);
                Row { number, column: first_column, exists: number < end }
            };
            let read_masks = || {
                let mut bytes = [[[[0; 2]; GROUPS]; 2]; MI];
                for i in 0..MI {
                    for half in 0..2 {
                        bytes[i][half] = mask.read(&p, of_mask(i, half));
                    }
                }
                bytes
            };
            let mut bytes = [[[[0; 2]; GROUPS]; 2]; MI];
            if const { AHEAD > GROUPS } {
                bytes = read_masks();
            }
            let mut scores = [[[[0.0f32; 4]; 4]; GROUPS]; MI];
            let places_q = side_q(0).place::<true>(tile_q(0, 0), warp_row);
            let place_k = side_k.place::<false>(tile_k(0), warp_key);
            let multiply = |scores: &mut [[Group; GROUPS]; MI], slice: u32| {
                let (q, k) = (tile_q(buffer, slice), tile_k(slice));
                for step in 0..SLICE / 16 {
                    let step = 16 * step;
                    let mut a = [[0; 4]; MI];
                    for i in 0..MI {
                        a[i] = q.load_matrices::<false>((places_q ^ step) + (i * 16) as u32 * SLICE);
                    }
                    for j in 0..2 * GROUPS {
                        let b = k.load_matrices::<false>((place_k ^ step) + (j * 16) as u32 * SLICE);
                        for i in 0..MI {
                            let group = &mut scores[i][j / 2];
                            let at = j % 2 * 2;
                            group[at] = T::multiply(a[i], [b[0], b[1]], group[at]);
                            group[at + 1] = T::multiply(a[i], [b[2], b[3]], group[at + 1]);
                        }
                    }
                }
            };
            let last = if first + rows < end { first + rows - 1 } else { end - 1 };
            if (warp_key as i32) < reach.min(past(&p, last)) {
                // The first by itself: it adds to 0, which needs no registers.
                multiply(&mut scores, 0);
                let mut slice = 1;
                while slice < slices {
                    multiply(&mut scores, slice);
                    slice += 1;
                }
            } else {
                // Opaque, so that nobody else waits for it.
                scores = [[[[f32::from_bits(bits::opaque(0)); 4]; 4]; GROUPS]; MI];
            }
            let edges = p.has_range() || warp_key + GROUPS as u32 * KEYS > p.keys;
            if const { AHEAD <= GROUPS } {
                bytes = read_masks();
            }
            // In phases, so that all rows wait for one another's shuffles together.
            let mut maxima = [[0.0f32; 2]; MI];
            for i in 0..MI {
                for half in 0..2 {
                    mask.apply(&p, of_mask(i, half), bytes[i][half], half, &mut scores[i]);
                    if edges && of_mask(i, half).exists {
                        keep(&mut scores[i], half, kept.get(&p, row_of(i, half)), first_column);
                    }
                    maxima[i][half] = largest(&scores[i], half);
                }
            }
            let maxima = each(maxima, warp::max::<f32, 4>);
            let sums = exponentiate(&p, &mut scores, each(maxima, finite_or_zero));
            let sums = each(sums, warp::sum::<f32, 4>);
            for i in 0..MI {
                for half in 0..2 {
                    parts.set(lane % 4 == 0, row_of(i, half), warp_n, maxima[i][half], sums[i][half]);
                }
            }
            thread::sync_threads();
            let mut totals = [[(0.0, 0.0); 2]; MI];
            for i in 0..MI {
                for half in 0..2 {
                    totals[i][half] = parts.get(row_of(i, half));
                }
            }
            let total = Parts::<WARPS_N>::total(&p, totals);
            // Rows that turn out to be NaN, a bit each.
            let mut nan_rows = 0;
            for i in 0..MI {
                for half in 0..2 {
                    let (maximum, sum) = total[i][half];
                    // A part with nothing kept has 0 for its maximum, perhaps above the row's.
                    let below = finite_or_zero(maxima[i][half]) - finite_or_zero(maximum);
                    let factor = p.exponent.exp_fast(float::min_nan(below, 0.0)) * float::rcp(sum);
                    let factor = if sum == 0.0 { 0.0 } else { factor };
                    let number = first + row_of(i, half);
                    nan_rows |= u32::from(sum.is_nan() && number < end) << (2 * i + half);
                    store::<T, GROUPS>(y, &p, number, number < end, &scores[i], half, factor, first_column);
                }
            }
            // Their masks are looked at again, since a masked column and a kept −∞ look the same in registers.
            while nan_rows != 0 {
                let number = nan_rows.trailing_zeros();
                nan_rows &= nan_rows - 1;
                let row = row_of(0, 0) + number * 8;
                let keeps = |column| kept.get(&p, row).keeps(column) && mask.keeps(&p, first + row, column);
                store_nan::<T, GROUPS>(y, &p, first + row, keeps, first_column);
            }
            first += rows;
            buffer = 1 - buffer;
        }
    }
}

/// Keeps the scores of a row in its range.
#[inline(always)]
fn keep<const GROUPS: usize>(groups: &mut [Group; GROUPS], half: usize, range: Range, first: u32) {
    for i in 0..GROUPS {
        let column = (first + i as u32 * KEYS) as i32;
        let scores = keep_range(run(&groups[i], half), range.low - column, range.high - column);
        set_run(&mut groups[i], half, scores);
    }
}

/// The largest score; NaN wins.
#[inline(always)]
fn largest<const GROUPS: usize>(groups: &[Group; GROUPS], half: usize) -> f32 {
    let mut most = [f32::NEG_INFINITY; 2];
    for i in 0..GROUPS {
        let scores = run(&groups[i], half);
        for e in 0..RUN {
            most[e % 2] = float::max_nan(most[e % 2], scores[e]);
        }
    }
    float::max_nan(most[0], most[1])
}

/// Makes scores exponentials relative to each row's maximum; gives their sums.
#[inline(always)]
fn exponentiate<const GROUPS: usize, const MI: usize>(
    p: &Params,
    scores: &mut [[Group; GROUPS]; MI],
    maxima: [[f32; 2]; MI],
) -> [[f32; 2]; MI] {
    let mut shifts = [[0.0; 2]; MI];
    let mut near = true;
    for i in 0..MI {
        for half in 0..2 {
            shifts[i][half] = p.exponent.power(maxima[i][half]);
            near &= shifts[i][half].abs() <= NEAR;
        }
    }
    // One branch for all rows.
    if !near {
        for i in 0..MI {
            for half in 0..2 {
                let maximum = maxima[i][half];
                replace(&mut scores[i], half, |score| score - maximum);
            }
        }
        shifts = [[0.0; 2]; MI];
    }
    let mut sums = [[0.0; 2]; MI];
    for i in 0..MI {
        for half in 0..2 {
            let shift = shifts[i][half];
            sums[i][half] = replace(&mut scores[i], half, |score| p.exponent.exp_from(score, shift));
        }
    }
    sums
}

/// Replaces the scores of a row by a function of each; gives the sum.
#[inline(always)]
fn replace<const GROUPS: usize>(
    groups: &mut [Group; GROUPS],
    half: usize,
    function: impl Fn(f32) -> f32,
) -> f32 {
    let mut sums = [0.0; 2];
    for i in 0..GROUPS {
        let mut scores = run(&groups[i], half);
        for e in 0..RUN {
            scores[e] = function(scores[e]);
            sums[e % 2] += scores[e];
        }
        set_run(&mut groups[i], half, scores);
    }
    sums[0] + sums[1]
}

/// Writes the lane's probabilities of row `row`, if it `exists`, from its exponentials.
///
/// # Safety
/// y is as `p` says, and the row one of its.
#[inline(always)]
unsafe fn store<T: Half, const GROUPS: usize>(
    y: GlobalMut<T>,
    p: &Params,
    row: u32,
    exists: bool,
    groups: &[Group; GROUPS],
    half: usize,
    factor: f32,
    first: u32,
) {
    let at = row as i64 * p.y.row;
    for i in 0..GROUPS {
        let column = first + i as u32 * KEYS;
        let values = run(&groups[i], half).map(|exponential| exponential * factor);
        let at = (at + column as i64) as usize;
        // SAFETY: columns that exist; the rest is the caller's contract.
        unsafe {
            let mut pack = [0; 4];
            for pair in 0..RUN / 2 {
                T::set_pair(&mut pack, pair, [values[2 * pair], values[2 * pair + 1]]);
            }
            y.set_pack_if(exists && column + RUN as u32 <= p.keys, at, pack);
        }
    }
}

/// Writes the lane's part of row `row`: NaN at columns that are kept, 0 elsewhere.
///
/// # Safety
/// As [`store`], and the lane wrote its part before.
#[inline(always)]
unsafe fn store_nan<T: Half, const GROUPS: usize>(
    y: GlobalMut<T>,
    p: &Params,
    row: u32,
    keeps: impl Fn(u32) -> bool,
    first: u32,
) {
    for element in 0..bits::opaque((GROUPS * RUN) as u32) {
        let column = first + element / RUN as u32 * KEYS + element % RUN as u32;
        if column < p.keys {
            let value = T::from_f32(if keeps(column) { f32::NAN } else { 0.0 });
            // SAFETY: the caller's contract.
            unsafe { y.set((row as i64 * p.y.row + column as i64) as usize, value) };
        }
    }
}
