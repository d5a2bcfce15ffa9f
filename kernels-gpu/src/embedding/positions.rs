//! dwpe: for each position, the sum of dy over the sequences; zeros for positions that no step has.
//!
//! A thread has a unit of dwpe and a group of sequences, in order. With one group it writes dwpe; with several it
//! writes a row of `partials` [groups, T·C] in f32, which `column_sums` adds up. Groups depend on the shape alone. Of packed
//! sequences T is the most steps that one may have, and those that end before a step are skipped.
//!
//! Launch: grid (units of dwpe, groups), or fewer blocks for the units, which then take turns. Floor: dy and dwpe once.

use super::unit::{Elements, Packs, Unit};
use cuda_std::prelude::*;

/// Loads of a thread in flight.
const DEPTH: u64 = 8;

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PositionSums {
    /// The first element of dwpe that a step has.
    pub first: u64,
    /// Elements of a sequence, at most where they are packed: T·C.
    pub sequence: u64,
    /// Sequences.
    pub sequences: u64,
    /// Sequences of a group.
    pub per_group: u64,
    /// Elements of dwpe.
    pub len: u64,
    /// Elements of a row.
    pub cols: u64,
}
cuda_std::plain_parameter!(PositionSums);

/// Packs: sequences of whole packs, aligned, and of packed ones every row.
///
/// # Safety
/// dy, dwpe and, with several groups, `partials` hold what `p` says; where PACKED is 1, `starts` the boundaries of the
/// sequences, none beyond dy's rows; the grid has blocks, a row of them for each group.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [{ PACKED: 0; threads: 128, min_blocks: 8 }, { PACKED: 1; threads: 128, min_blocks: 6 }],
)]
pub unsafe fn sum_positions_packs<T: Float, const PACKED: usize>(
    starts: Global<u32>,
    dy: Global<T>,
    dwpe: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: PositionSums,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let blocks = [thread::block_idx_x(), thread::grid_dim_x()];
        sum_positions::<T, Packs, PACKED>(starts, dy, dwpe, partials, &p, blocks)
    }
}

/// Elements.
///
/// # Safety
/// As [`sum_positions_packs()`](fn@sum_positions_packs).
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [{ PACKED: 0; threads: 128 }, { PACKED: 1; threads: 128 }],
)]
pub unsafe fn sum_positions_elements<T: Float, const PACKED: usize>(
    starts: Global<u32>,
    dy: Global<T>,
    dwpe: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: PositionSums,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let blocks = [thread::block_idx_x(), thread::grid_dim_x()];
        sum_positions::<T, Elements<1>, PACKED>(starts, dy, dwpe, partials, &p, blocks)
    }
}

/// The units of one of so many blocks.
///
/// # Safety
/// As [`sum_positions_packs()`](fn@sum_positions_packs).
#[inline(always)]
pub(super) unsafe fn sum_positions<T: Float, U: Unit<T>, const PACKED: usize>(
    starts: Global<u32>,
    dy: Global<T>,
    dwpe: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: &PositionSums,
    [block, blocks]: [u32; 2],
) {
    let group = thread::block_idx_y() as u64;
    let threads = thread::block_dim_x() as u64;
    let mut at = (block as u64 * threads + thread::thread_idx_x() as u64) * U::COUNT as u64;
    while at < p.len {
        // SAFETY: the caller's contract.
        unsafe { sum_unit::<T, U, PACKED>(starts, dy, dwpe, partials, p, at, group) };
        at += blocks as u64 * threads * U::COUNT as u64;
    }
}

/// A unit of dwpe, from element `at` on, over the sequences of a group.
#[inline(always)]
unsafe fn sum_unit<T: Float, U: Unit<T>, const PACKED: usize>(
    starts: Global<u32>,
    dy: Global<T>,
    dwpe: GlobalMut<T>,
    partials: GlobalMut<f32>,
    p: &PositionSums,
    at: u64,
    group: u64,
) {
    let inside = at >= p.first && at - p.first < p.sequence;
    let within = if inside { at - p.first } else { 0 };
    let mut sums = [0.0; 8];
    let mut sequence = group * p.per_group;
    let end = (sequence + p.per_group).min(if inside { p.sequences } else { 0 });
    // SAFETY: the caller's contract; sequences and elements beyond the last are not accessed.
    unsafe {
        while sequence < end {
            let mut units = [U::NOTHING; DEPTH as usize];
            if const { PACKED == 0 } {
                for i in 0..DEPTH {
                    let place = (sequence + i) * p.sequence + within;
                    units[i as usize] = U::load(dy, (sequence + i < end) as u32, place as usize);
                }
            } else {
                // The last boundary stands for those behind it: sequences without elements.
                let boundary = |i: u64| starts.get((sequence + i).min(end) as usize) as u64 * p.cols;
                let mut start = boundary(0);
                for i in 0..DEPTH {
                    let next = boundary(i + 1);
                    let place = start + within;
                    units[i as usize] = U::load(dy, (place < next) as u32, place as usize);
                    start = next;
                }
            }
            for i in 0..DEPTH {
                U::add(&mut sums, units[i as usize]);
            }
            sequence += DEPTH;
        }
        if inside && thread::grid_dim_y() > 1 {
            U::store_partials(partials, 1, (group * p.sequence + within) as usize, sums);
        } else {
            U::store(dwpe, (group == 0) as u32, at as usize, sums);
        }
    }
}
