//! Memory ordering: messages from one thread to another, and the block that finishes last.

use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;

/// Messages that [`message()`](fn@message) passes.
pub const MESSAGES: usize = 64;

/// Ways to order a message's data before its flag, by number: [`message()`](fn@message)'s `WAY`.
pub mod way {
    /// A release store and an acquire load of device scope.
    pub const RELEASE_ACQUIRE: usize = 0;
    /// The same at system scope.
    pub const SYSTEM: usize = 1;
    /// An exchange on either side, both acquire and release.
    pub const EXCHANGE: usize = 2;
    /// Relaxed accesses and `device_fence`.
    pub const DEVICE_FENCE: usize = 3;
    /// Relaxed accesses and `grid_fence`.
    pub const GRID_FENCE: usize = 4;
    /// Relaxed accesses and `system_fence`.
    pub const SYSTEM_FENCE: usize = 5;
    /// From here on, between two warps of one block: a release store and an acquire load of block scope.
    pub const BLOCK: usize = 6;
    /// Relaxed accesses of block scope and `block_fence`.
    pub const BLOCK_FENCE: usize = 7;
}

/// Polls after which the receiver gives up, so that a lost message is a wrong result and no hang.
const PATIENCE: u32 = 1 << 22;

/// Thread 0 of block 0 writes `key + i` to `data[i]`, then sets flag i; another thread, of block 1 or (from
/// [`way::BLOCK`] on) of the second warp, waits for flag i, then copies `data[i]` to `out[i]`.
///
/// # Safety
/// [`MESSAGES`] elements each; the flags are 0. Two blocks that run at once, or one.
#[kernel(
    family = "probe",
    instances = [
        { WAY: 0; threads: 64 }, { WAY: 1; threads: 64 }, { WAY: 2; threads: 64 }, { WAY: 3; threads: 64 },
        { WAY: 4; threads: 64 }, { WAY: 5; threads: 64 }, { WAY: 6; threads: 64 }, { WAY: 7; threads: 64 },
    ],
)]
pub unsafe fn message<const WAY: usize>(
    data: GlobalMut<u32>,
    flags: GlobalMut<u32>,
    out: GlobalMut<u32>,
    key: u32,
) {
    let scope = const {
        match WAY {
            way::SYSTEM | way::SYSTEM_FENCE => Scope::System,
            way::BLOCK | way::BLOCK_FENCE => Scope::Block,
            _ => Scope::Device,
        }
    };
    let fence = || match WAY {
        way::DEVICE_FENCE => thread::device_fence(),
        way::GRID_FENCE => thread::grid_fence(),
        way::SYSTEM_FENCE => thread::system_fence(),
        way::BLOCK_FENCE => thread::block_fence(),
        _ => {}
    };
    let fenced = const { matches!(WAY, way::DEVICE_FENCE..=way::SYSTEM_FENCE | way::BLOCK_FENCE) };
    let receiver = if WAY >= way::BLOCK { (0, 32) } else { (1, 0) };
    let me = (thread::block_idx_x(), thread::thread_idx_x());
    // SAFETY: within MESSAGES; `data[i]` is written before flag i is set, and read after.
    unsafe {
        for i in 0..MESSAGES {
            if me == (0, 0) {
                data.set(i, key + i as u32);
                fence();
                match WAY {
                    way::EXCHANGE => {
                        flags.atomic_exchange(i, 1, Ordering::AcqRel, scope);
                    }
                    _ if fenced => flags.atomic_store(i, 1, Ordering::Relaxed, scope),
                    _ => flags.atomic_store(i, 1, Ordering::Release, scope),
                }
            } else if me == receiver {
                let mut polls = 0;
                let arrived = || match WAY {
                    // Puts back what it found, 0 or 1: adds nothing.
                    way::EXCHANGE => flags.atomic_add(i, 0, Ordering::AcqRel, scope) == 1,
                    _ if fenced => flags.atomic_load(i, Ordering::Relaxed, scope) == 1,
                    _ => flags.atomic_load(i, Ordering::Acquire, scope) == 1,
                };
                while !arrived() && polls < PATIENCE {
                    thread::spin_wait();
                    polls += 1;
                }
                fence();
                out.set(i, if polls < PATIENCE { data.get(i) } else { u32::MAX });
            }
        }
    }
}

/// The sum of 256 values a block over the whole grid, by the block that is the last to add its part's number
/// to `finished`.
///
/// # Safety
/// `partials` has an element for each block; `finished` is 0.
#[kernel(family = "probe", instances = [{ ; threads: 256 }])]
pub unsafe fn last_block_sums(
    values: Global<u32>,
    partials: GlobalMut<u32>,
    finished: GlobalMut<u32>,
    total: GlobalMut<u32>,
) {
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    // SAFETY: a block's own values and partial; those of other blocks once `finished` counts them all.
    unsafe {
        let partial = block::sum_u32(values.get(thread::index_1d() as usize));
        let mut last = false;
        if thread::thread_idx_x() == 0 {
            partials.set(block as usize, partial);
            last = finished.atomic_add(0, 1, Ordering::AcqRel, Scope::Device) == blocks - 1;
        }
        if !thread::sync_threads_or(last) {
            return;
        }
        let mut mine = 0u32;
        let mut i = thread::thread_idx_x();
        while i < blocks {
            mine = mine.wrapping_add(partials.get(i as usize));
            i += 256;
        }
        let sum = block::sum_u32(mine);
        if thread::thread_idx_x() == 0 {
            total.set(0, sum);
        }
    }
}
