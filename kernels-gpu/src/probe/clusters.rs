//! Clusters: rank, size, barrier, and the shared memory of the other blocks.

use cuda_std::barrier::{self, Barriers};
use cuda_std::prelude::*;

/// Threads of a block, which are also the elements of its shared array.
const THREADS: u32 = 64;

/// Each block of a cluster reads its right neighbour's values from that block's shared memory, and writes its
/// own, plus 0.5, to the block two further on. Results: [block, (rank, size, read, written)] by thread, as bits.
///
/// # Safety
/// 64 values a block, 256 results; a launch with clusters of at least 2.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn ring(values: Global<f32>, out: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    let (rank, size) = (cluster::rank(), cluster::size());
    let at = |what: u32| ((thread::block_idx_x() * 4 + what) * THREADS + thread) as usize;
    let wrap = |rank: u32| if rank >= size { rank - size } else { rank };
    // SAFETY: cluster barriers lie between writes and reads, and before any block exits.
    unsafe {
        let read = shared_array!(probe_ring_read: [f32; 64]);
        let written = shared_array!(probe_ring_written: [u32; 64]);
        let value = values.get(thread::index_1d() as usize);
        read.set(thread, value);
        cluster::sync();
        let neighbour = read.get_remote(wrap(rank + 1), THREADS - 1 - thread);
        written.set_remote(wrap(rank + 2), thread, (value + 0.5).to_bits());
        cluster::sync();
        out.set(at(0), rank);
        out.set(at(1), size);
        out.set(at(2), neighbour.to_bits());
        out.set(at(3), written.get(thread));
    }
}

/// Each thread posts a word to the thread of the same number in the block to the right, and takes what has come from
/// the left. Results: [block, (rank that it came from, low half, clusters)] by thread.
///
/// # Safety
/// 192 results a block; a launch with clusters of at least 2.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn posts(out: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    let (rank, size) = (cluster::rank(), cluster::size());
    let at = |what: u32| ((thread::block_idx_x() * 3 + what) * THREADS + thread) as usize;
    // SAFETY: the barrier is there before any block posts; no block exits before its words have come.
    unsafe {
        let words = shared_array!(probe_posts: [u64; 64]);
        let come = Barriers::of(shared_array!(probe_posts_barrier: [u64; 1])).at(0);
        if thread == 0 {
            come.init(1);
            barrier::fence_init();
            come.arrive_expecting(8 * THREADS);
        }
        cluster::sync();
        let right = if rank + 1 == size { 0 } else { rank + 1 };
        words.post(right, thread, (rank as u64 + 1) << 32 | (thread * thread) as u64, come);
        come.wait(0);
        let word = words.get(thread);
        out.set(at(0), (word >> 32) as u32 - 1);
        out.set(at(1), word as u32);
        out.set(at(2), cluster::count());
    }
}

/// Each thread writes words to the thread of the same number in the block to the right, three in turn, and takes what comes from the left: the data is the
/// flag. Results: [block, 3] by thread.
///
/// # Safety
/// 192 results a block; a launch with clusters of at least 2.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn flags(out: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    let (rank, size) = (cluster::rank(), cluster::size());
    // SAFETY: cells are emptied before any block writes, and again before the thread writes what its reader answers; no block exits before
    // its words have come, and none is written to later.
    unsafe {
        let cells = shared_array!(probe_flags: [u32; 64]);
        cells.store_relaxed(thread, 0);
        cluster::sync();
        let right = if rank + 1 == size { 0 } else { rank + 1 };
        for turn in 0..3 {
            cells.store_relaxed_remote(right, thread, 1000 * (turn + 1) + 100 * rank + thread);
            let mut word = cells.load_relaxed(thread);
            while word == 0 {
                thread::spin_wait();
                word = cells.load_relaxed(thread);
            }
            cells.store_relaxed(thread, 0);
            out.set(((thread::block_idx_x() * 3 + turn) * THREADS + thread) as usize, word);
            // The left one writes again when all have read.
            cluster::sync();
        }
    }
}

/// As [`flags()`](fn@flags), by packs: of a turn t each thread sends 1000·(t + 1) + 100·rank + 4·thread and what follows. Results: [block, 3] by thread.
///
/// # Safety
/// 768 results a block; a launch with clusters of at least 2.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn flag_packs(out: GlobalMut<u32>) {
    let thread = thread::thread_idx_x();
    let (rank, size) = (cluster::rank(), cluster::size());
    // SAFETY: as in `flags`.
    unsafe {
        let cells = shared_array!(probe_flag_packs: [u32; 256]);
        cells.store_pack_relaxed(4 * thread, [0; 4]);
        cluster::sync();
        let right = if rank + 1 == size { 0 } else { rank + 1 };
        for turn in 0..3 {
            let first = 1000 * (turn + 1) + 100 * rank + 4 * thread;
            cells.store_pack_relaxed_remote(right, 4 * thread, [first, first + 1, first + 2, first + 3]);
            let mut pack = cells.load_pack_relaxed(4 * thread);
            while pack[0] == 0 || pack[1] == 0 || pack[2] == 0 || pack[3] == 0 {
                thread::spin_wait();
                pack = cells.load_pack_relaxed(4 * thread);
            }
            cells.store_pack_relaxed(4 * thread, [0; 4]);
            out.set_pack_if(true, 4 * ((thread::block_idx_x() * 3 + turn) * THREADS + thread) as usize, pack);
            // The left one writes again when all have read.
            cluster::sync();
        }
    }
}

/// Each thread takes from the block to the right, where its number t is no multiple of 3, the pack of the thread of the same number from behind, and, where it
/// is even, word 1 of thread t's pack; else zeros.
///
/// # Safety
/// 256 words a block of `values` and `packs`, 64 of `words`; a launch with clusters of at least 2.
#[kernel(family = "probe", instances = [{ ; threads: 64 }], requires = "sm_90a")]
pub unsafe fn remote_packs(values: Global<u32>, packs: GlobalMut<u32>, words: GlobalMut<u32>) {
    let (thread, index) = (thread::thread_idx_x(), thread::index_1d() as usize);
    let right = if cluster::rank() + 1 == cluster::size() { 0 } else { cluster::rank() + 1 };
    // SAFETY: cluster barriers lie between writes and reads, and before any block exits.
    unsafe {
        let cells = shared_array!(probe_remote_packs: [u32; 256]);
        cells.set_pack(4 * thread, values.get_pack_if(true, 4 * index, 0));
        cluster::arrive();
        cluster::wait();
        let whole = !thread.is_multiple_of(3);
        let pack = cells.get_pack_remote_if(whole, right, 4 * (THREADS - 1 - thread));
        let word = cells.get_bits_remote_if(thread.is_multiple_of(2), right, 4 * thread + 1);
        packs.set_pack_if(true, 4 * index, pack);
        words.set(index, word);
        cluster::arrive_relaxed();
        cluster::wait();
    }
}
