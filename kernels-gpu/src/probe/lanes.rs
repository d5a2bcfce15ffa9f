//! Shuffles, votes, matches and bitwise reductions of one warp. Lanes outside `mask` take no part.

use cuda_std::prelude::*;
use cuda_std::warp::WarpShuffleValue;

/// Every shuffle by `amount` in segments of `width` lanes: `moved` and `valid` are [up, down, idx, xor] by
/// lane.
///
/// # Safety
/// One block; 32 values, 128 results each; `width` a power of two up to 32, `amount` below 32.
#[kernel(
    family = "probe",
    types = [u8, i8, u16, i16, u32, i32, f32, u64, i64, f64, f16, bf16, bool],
    instances = [{ ; threads: 32 }],
)]
pub unsafe fn shuffle<T: WarpShuffleValue>(
    values: Global<T>,
    moved: GlobalMut<T>,
    valid: GlobalMut<u32>,
    mask: u32,
    amount: u32,
    width: u32,
) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    // SAFETY: a lane's own elements.
    unsafe {
        let value = values.get(lane as usize);
        let results = [
            warp::warp_shuffle_up(mask, value, amount, width),
            warp::warp_shuffle_down(mask, value, amount, width),
            warp::warp_shuffle_idx(mask, value, amount, width),
            warp::warp_shuffle_xor(mask, value, amount, width),
        ];
        for (i, (value, ok)) in results.into_iter().enumerate() {
            moved.set(32 * i + lane as usize, value);
            valid.set(32 * i + lane as usize, ok as u32);
        }
    }
}

/// Votes on whether a lane's value is non-zero: [all, any, ballot, active mask] by lane.
///
/// # Safety
/// One block; 32 values, 128 results.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn vote(values: Global<u32>, out: GlobalMut<u32>, mask: u32) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    // SAFETY: a lane's own elements.
    unsafe {
        let predicate = values.get(lane as usize) != 0;
        let results = [
            warp::warp_vote_all(mask, predicate) as u32,
            warp::warp_vote_any(mask, predicate) as u32,
            warp::warp_vote_ballot(mask, predicate),
            warp::activemask(),
        ];
        for (i, result) in results.into_iter().enumerate() {
            out.set(32 * i + lane as usize, result);
        }
    }
}

/// Matches of 64-bit values and of their low halves: [any 32, any 64, all 32, its bool, all 64, its bool] by
/// lane.
///
/// # Safety
/// One block; 32 values, 192 results.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn matches(values: Global<u64>, out: GlobalMut<u32>, mask: u32) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    // SAFETY: a lane's own elements.
    unsafe {
        let wide = values.get(lane as usize);
        let narrow = wide as u32;
        let (any_32, any_64) = (warp::warp_match_any_32(mask, narrow), warp::warp_match_any_64(mask, wide));
        let (all_32, same_32) = warp::warp_match_all_32(mask, narrow);
        let (all_64, same_64) = warp::warp_match_all_64(mask, wide);
        let results = [any_32, any_64, all_32, same_32 as u32, all_64, same_64 as u32];
        for (i, result) in results.into_iter().enumerate() {
            out.set(32 * i + lane as usize, result);
        }
    }
}

/// Bitwise reductions: [and, or, xor] by lane.
///
/// # Safety
/// One block; 32 values, 96 results.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn bitwise(values: Global<u32>, out: GlobalMut<u32>, mask: u32) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    // SAFETY: a lane's own elements.
    unsafe {
        let value = values.get(lane as usize);
        let results = [
            warp::warp_reduce_and(mask, value),
            warp::warp_reduce_or(mask, value),
            warp::warp_reduce_xor(mask, value),
        ];
        for (i, result) in results.into_iter().enumerate() {
            out.set(32 * i + lane as usize, result);
        }
    }
}

/// Each lane of `mask` writes its value to shared memory and, past `sync_warp`, reads that of the lane that
/// `partners` names, eight times over.
///
/// # Safety
/// One block; 32 values, partners and results; partners are lanes of `mask`.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn exchange(values: Global<u32>, partners: Global<u32>, out: GlobalMut<u32>, mask: u32) {
    let lane = warp::lane_id();
    // SAFETY: a lane's own elements of global memory; shared ones are written and read a `sync_warp` apart.
    unsafe {
        let cells = shared_array!(probe_exchange: [u32; 32]);
        if mask >> lane & 1 == 0 {
            return;
        }
        let partner = partners.get(lane as usize);
        let mut value = values.get(lane as usize);
        for _ in 0..8 {
            cells.set(lane, value);
            warp::sync_warp(mask);
            value = cells.get(partner);
            warp::sync_warp(mask);
        }
        out.set(lane as usize, value);
    }
}
