//! How the warps of a cluster tell one another what their parts of a row come to.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

use cuda_std::prelude::*;

/// Most blocks of a cluster that exchanges (beyond 8 the launch must allow it).
pub const MAX_CLUSTER: u32 = 16;

/// What a word of the exchange carries beside its value once it has been posted.
const POSTED: u64 = 1 << 32;

/// `WORDS` numbers of each warp of the cluster, in the shared memory of each of its blocks of `LANES` threads.
///
/// A word says itself whether it has arrived. So there is one barrier, which lies behind the loads and has
/// nothing to wait for but the start of all blocks; a barrier for the values would make every thread's loads
/// and stores visible to the cluster as well.
pub(crate) struct Exchange<const LANES: usize, const WORDS: usize>(Shared<u64>);

impl<const LANES: usize, const WORDS: usize> Exchange<LANES, WORDS> {
    const WARPS: u32 = (LANES / 32) as u32;
    /// Words of the largest cluster.
    const ALL: usize = MAX_CLUSTER as usize * LANES / 32 * WORDS;

    /// With nothing posted. What the block does from here to [`Self::agree`] goes on while others start.
    ///
    /// # Safety
    /// All threads of the cluster call, once a launch, and then [`Self::agree`].
    #[inline(always)]
    pub unsafe fn begin() -> Self {
        const { assert!(Self::ALL <= 1024) };
        // SAFETY: a thread's own words.
        unsafe {
            // Shared memory that is not taken is the first-level cache's.
            let words = if const { Self::ALL <= 256 } {
                shared_array!(exchange_256: [u64; 256])
            } else if const { Self::ALL <= 512 } {
                shared_array!(exchange_512: [u64; 512])
            } else {
                shared_array!(exchange_1024: [u64; 1024])
            };
            let mut i = thread::thread_idx_x();
            while i < WORDS as u32 * cluster::size() * Self::WARPS {
                words.set(i, 0);
                i += LANES as u32;
            }
            cluster::arrive();
            Exchange(words)
        }
    }

    /// What all warps' parts come to, each lane with some of them: `empty` and theirs, combined by `and` in an order that the
    /// size of the cluster fixes.
    ///
    /// # Safety
    /// All threads of the cluster call, once, the lanes of a warp with the same `part`.
    #[inline(always)]
    pub unsafe fn agree<S: Copy>(
        &self,
        part: [f32; WORDS],
        empty: S,
        and: impl Fn(S, [f32; WORDS]) -> S,
    ) -> S {
        let (size, rank, lane) = (cluster::size(), cluster::rank(), warp::lane_id());
        let warps = size * Self::WARPS;
        // SAFETY: a warp has its own words in each block. No block ends before all that is posted to it has come.
        unsafe {
            cluster::wait();
            if lane < size {
                let own = WORDS as u32 * (rank * Self::WARPS + warp::warp_id());
                for word in 0..WORDS {
                    let posted = POSTED | part[word].to_bits() as u64;
                    self.0.store_relaxed_remote(lane, own + word as u32, posted);
                }
            }
            let mut total = empty;
            let mut first = 0;
            while first < warps {
                // A lane beyond the last warp asks for that once more, and leaves it.
                let other = first + lane;
                let at = WORDS as u32 * other.min(warps - 1);
                let mut found = [0.0; WORDS];
                for word in 0..WORDS {
                    found[word] = self.wait(at + word as u32);
                }
                total = if other < warps { and(total, found) } else { total };
                first += warp::SIZE;
            }
            total
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
