//! Sums, maxima and minima over segments of a warp, over the lanes of a mask, and over a block.

use cuda_std::prelude::*;
use cuda_std::warp::Reduce;

/// The widths that [`segments()`](fn@segments) reduces over, in the order of its results.
pub const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Reductions over segments of a warp: [width, (sum, max, min)] by lane, the widths those of [`WIDTHS`].
///
/// # Safety
/// One block; 32 values, 6·3·32 results.
#[kernel(family = "probe", types = [u32, i32, u64, i64, f32], instances = [{ ; threads: 32 }])]
pub unsafe fn segments<T: Reduce>(values: Global<T>, out: GlobalMut<T>) {
    /// The three reductions at one width.
    #[inline(always)]
    fn all<T: Reduce, const WIDTH: usize>(value: T) -> [T; 3] {
        [warp::sum::<T, WIDTH>(value), warp::max::<T, WIDTH>(value), warp::min::<T, WIDTH>(value)]
    }
    let lane = warp::lane_id() as usize;
    // SAFETY: a lane's own elements.
    unsafe {
        let v = values.get(lane);
        let results = [
            all::<T, 1>(v),
            all::<T, 2>(v),
            all::<T, 4>(v),
            all::<T, 8>(v),
            all::<T, 16>(v),
            all::<T, 32>(v),
        ];
        for (width, results) in results.into_iter().enumerate() {
            for (i, result) in results.into_iter().enumerate() {
                out.set(32 * (3 * width + i) + lane, result);
            }
        }
    }
}

/// Reductions over the lanes of a mask: [sum, max, min] by lane.
///
/// # Safety
/// One block; 32 values, 96 results.
#[kernel(family = "probe", types = [u32, i32, u64, i64, f32], instances = [{ ; threads: 32 }])]
pub unsafe fn reduce_lanes<T: Reduce>(values: Global<T>, out: GlobalMut<T>, mask: u32) {
    let lane = warp::lane_id() as usize;
    if mask >> lane & 1 == 0 {
        return;
    }
    // SAFETY: a lane's own elements.
    unsafe {
        let value = values.get(lane);
        let results = [
            warp::warp_reduce_add(mask, value),
            warp::warp_reduce_max(mask, value),
            warp::warp_reduce_min(mask, value),
        ];
        for (i, result) in results.into_iter().enumerate() {
            out.set(32 * i + lane, result);
        }
    }
}

/// Reductions over a block, twice in a row over different values: [block, round, what] by thread, where what is sum,
/// max and min of f32, of u32 and of i32, all as bits.
///
/// # Safety
/// `values` has two values for each thread of the grid, the first round's first within a block; `out` 18.
#[kernel(
    family = "probe",
    instances = [{ THREADS: 32; threads: 32 }, { THREADS: 96; threads: 96 }, { THREADS: 1024; threads: 1024 }],
)]
pub unsafe fn reduce_block<const THREADS: usize>(values: Global<u32>, out: GlobalMut<u32>) {
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    // SAFETY: a thread's own elements.
    unsafe {
        for round in 0..2 {
            let bits = values.get((2 * block + round) * THREADS + thread);
            let (float, signed) = (f32::from_bits(bits), bits as i32);
            let results = [
                block::sum_f32(float).to_bits(),
                block::max_f32(float).to_bits(),
                block::min_f32(float).to_bits(),
                block::sum_u32(bits),
                block::max_u32(bits),
                block::min_u32(bits),
                block::sum_i32(signed) as u32,
                block::max_i32(signed) as u32,
                block::min_i32(signed) as u32,
            ];
            for (i, result) in results.into_iter().enumerate() {
                out.set(((2 * block + round) * 9 + i) * THREADS + thread, result);
            }
        }
    }
}
