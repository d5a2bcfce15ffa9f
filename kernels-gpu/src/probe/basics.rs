//! The empty launch and the copy.

use cuda_std::prelude::*;

/// Does nothing: what a launch costs.
///
/// # Safety
/// None.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
pub unsafe fn empty() {}

/// y = x, `packs` packs of 16 bytes; each thread moves `PACKS` of them, a block's width apart. The best of the
/// instances is what memory-bound operations are compared with. Floor: 32 bytes a pack.
///
/// Few packs in flight are best: the fewer rows of memory a multiprocessor has open at a time, the more of each
/// it takes.
///
/// # Safety
/// `x` and `y` hold `packs` packs; the grid covers them.
#[kernel(
    family = "probe",
    instances = [
        { PACKS: 1, THREADS: 128; threads: 128 },
        { PACKS: 1, THREADS: 256; threads: 256 },
        { PACKS: 2, THREADS: 128; threads: 128 },
    ],
)]
pub unsafe fn copy<const PACKS: usize, const THREADS: usize>(x: Global<u32>, y: GlobalMut<u32>, packs: u64) {
    let width = THREADS as u64;
    let first = thread::block_idx_x() as u64 * (width * PACKS as u64) + thread::thread_idx_x() as u64;
    let mut held = [[0; 4]; PACKS];
    // SAFETY: within `packs` by the predicates.
    unsafe {
        for (i, pack) in held.iter_mut().enumerate() {
            let at = first + width * i as u64;
            *pack = x.get_pack_plain_if(at < packs, 4 * at as usize, 0);
        }
        for (i, pack) in held.iter().enumerate() {
            let at = first + width * i as u64;
            y.set_pack_if(at < packs, 4 * at as usize, *pack);
        }
    }
}
