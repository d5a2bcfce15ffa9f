//! The empty launch and the copy.

use cuda_std::prelude::*;

/// Does nothing: what a launch costs.
///
/// # Safety
/// None.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn empty() {}

/// y = x, `packs` packs of 16 bytes; each thread moves `UNROLL` of them, a block's width apart. The rate
/// that memory-bound operations are compared with. Floor: 32 bytes a pack.
///
/// # Safety
/// `x` and `y` hold `packs` packs; the grid covers them.
#[kernel(family = "probe", instances = [{ UNROLL: 4; threads: 256 }])]
pub unsafe fn copy<const UNROLL: usize>(x: Global<u32>, y: GlobalMut<u32>, packs: u64) {
    let first = thread::block_idx_x() as u64 * (256 * UNROLL as u64) + thread::thread_idx_x() as u64;
    let mut held = [[0; 4]; UNROLL];
    // SAFETY: within `packs` by the predicates.
    unsafe {
        for (i, pack) in held.iter_mut().enumerate() {
            let at = first + 256 * i as u64;
            *pack = x.get_pack_streaming_or(at < packs, 4 * at as usize, *pack);
        }
        for (i, pack) in held.iter().enumerate() {
            let at = first + 256 * i as u64;
            y.set_pack_if(at < packs, 4 * at as usize, *pack);
        }
    }
}
