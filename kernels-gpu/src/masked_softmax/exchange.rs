//! How the warps of a cluster tell one another their partials.

use super::Params;
use super::register_rows::Partial;
use cuda_std::prelude::*;

/// What a word of the exchange carries beside its value once it has been posted.
const POSTED: u64 = 1 << 32;

/// A maximum and a sum of each warp of the cluster, in the shared memory of each of its blocks.
///
/// A word says itself whether it has arrived. So there is one barrier, which lies behind the loads and has
/// nothing to wait for but the start of all blocks; a barrier for the values would make every thread's loads
/// and stores visible to the cluster as well.
pub(crate) struct Exchange<const LANES: usize>(Shared<u64>);

impl<const LANES: usize> Exchange<LANES> {
    const WARPS: u32 = (LANES / 32) as u32;

    /// With nothing posted. What the block does from here to [`Self::agree`] goes on while others start.
    ///
    /// # Safety
    /// All threads of the cluster call, once a launch, and then [`Self::agree`].
    #[inline(always)]
    pub unsafe fn begin() -> Self {
        const { assert!(super::MAX_CLUSTER as usize * LANES / 16 <= 1024) };
        // SAFETY: a thread's own words.
        unsafe {
            // Shared memory that is not taken is the first-level cache's.
            let words = if const { LANES <= 256 } {
                shared_array!(masked_softmax_exchange_256: [u64; 256])
            } else if const { LANES <= 512 } {
                shared_array!(masked_softmax_exchange_512: [u64; 512])
            } else {
                shared_array!(masked_softmax_exchange_1024: [u64; 1024])
            };
            let mut i = thread::thread_idx_x();
            while i < 2 * cluster::size() * Self::WARPS {
                words.set(i, 0);
                i += LANES as u32;
            }
            cluster::arrive();
            Exchange(words)
        }
    }

    /// The partial of the whole row, from each warp's.
    ///
    /// # Safety
    /// All threads of the cluster call, once.
    #[inline(always)]
    pub unsafe fn agree(&self, part: Partial, p: &Params) -> Partial {
        let (size, rank, lane) = (cluster::size(), cluster::rank(), warp::lane_id());
        let warps = size * Self::WARPS;
        // SAFETY: a warp has its own words in each block. No block ends before all that is posted to it has come.
        unsafe {
            cluster::wait();
            if lane < size {
                let own = 2 * (rank * Self::WARPS + warp::warp_id());
                self.0.store_relaxed_remote(lane, own, POSTED | part.maximum.to_bits() as u64);
                self.0.store_relaxed_remote(lane, own + 1, POSTED | part.sum.to_bits() as u64);
            }
            let mut total = Partial::EMPTY;
            let mut first = 0;
            while first < warps {
                // A lane beyond the last warp asks for that once more, and leaves it.
                let other = first + lane;
                let at = 2 * other.min(warps - 1);
                let found = Partial { maximum: self.wait(at), sum: self.wait(at + 1) };
                total = if other < warps { total.and(found, p) } else { total };
                first += warp::SIZE;
            }
            total.over_warp(p)
        }
    }

    /// The value at a word once it is there; the warp stays together.
    ///
    /// # Safety
    /// All lanes call; the word exists, and some warp posts it.
    #[inline(always)]
    #[track_caller]
    unsafe fn wait(&self, index: u32) -> f32 {
        loop {
            // SAFETY: the caller's contract.
            let word = unsafe { self.0.load_relaxed(index) };
            if warp::warp_vote_all(u32::MAX, word & POSTED != 0) {
                return f32::from_bits(word as u32);
            }
        }
    }
}
