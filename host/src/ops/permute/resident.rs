//! How many blocks share a multiprocessor.
//!
//! Lines that a block reads or writes in part stay in L2 until another block takes the rest. The more blocks are under way, the more
//! of them there are, and the more banks of memory are open at once: 8192×8192 of f32 in boxes of 16 KiB has 0.958 of a copy's
//! rate on an H100 where eight blocks share a multiprocessor, and 0.971 where three do; 232×356691 of f16 in boxes of 22 KiB has
//! 0.79, and 0.95 with four. Fewer than it takes to keep memory busy lose more than that: two of 16 KiB have 0.87.
//!
//! What holds blocks off is shared memory that they ask for and do not use.

use crate::cuda::shared;
use crate::device::Device;

/// Blocks that a multiprocessor may be limited to, beside as many as fit.
pub const LIMITS: [usize; 4] = [5, 4, 3, 2];

/// Shared memory of a multiprocessor of an H100.
const SHARED: u32 = 228 << 10;

/// Blocks of 256 threads that fit a multiprocessor of an H100, each with so much shared memory.
pub fn fitting(shared_bytes: usize) -> usize {
    shared::blocks_that_fit(SHARED, shared_bytes as u32).min(8) as usize
}

/// The shared memory to ask for, so that no more than `limit` blocks share a multiprocessor.
pub fn reserved(device: &Device, shared_bytes: usize, limit: Option<usize>) -> u32 {
    let held = match (limit, device.info()) {
        (Some(limit), Some(gpu)) => {
            shared::share(gpu.max_shared_per_sm, limit as u32).min(gpu.max_shared_per_block)
        }
        _ => 0,
    };
    held.max(shared_bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_fit_as_shared_memory_and_threads_allow() {
        assert_eq!(fitting(0), 8);
        assert_eq!(fitting(16 << 10), 8);
        assert_eq!(fitting(96 << 10), 2);
        for limit in LIMITS {
            let share = shared::share(SHARED, limit as u32) as usize;
            assert_eq!((fitting(share), fitting(share + 2048) < limit), (limit, true));
        }
    }

    #[test]
    fn nothing_is_held_where_there_are_no_multiprocessors() {
        assert_eq!(reserved(&Device::cpu(), 1000, Some(2)), 1000);
    }
}
