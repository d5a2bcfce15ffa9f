//! Lengths that are none.

use cuda_std::atomic::{Ordering, Scope};
use cuda_std::prelude::*;

/// Notes the first of `count` lengths that is not in 0..=steps, as index·2³² + value. Kernels compare lengths with times
/// of steps that there are, and need no more of them: with a wrong one results are wrong, and no access is.
///
/// # Safety
/// There are so many lengths; the grid has a thread for each.
#[kernel(family = "recurrent", instances = [{ ; threads: 128 }])]
pub unsafe fn check_lengths(lengths: Global<i32>, fault: GlobalMut<u64>, count: u32, steps: u32) {
    let index = thread::index_1d();
    // SAFETY: within `count`.
    unsafe {
        let length = lengths.get_bits_if(index < u64::from(count), index as usize, 0);
        if length > steps {
            fault.atomic_min(0, (index << 32) | u64::from(length), Ordering::Relaxed, Scope::Device);
        }
    }
}
