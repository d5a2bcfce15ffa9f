//! How the warps of a cluster tell one another what their parts of a row come to.

// Register arrays are indexed by constants after unrolling; iterators over them stay in local memory.
#![allow(clippy::needless_range_loop)]

use cuda_std::barrier::{self, Barrier, Barriers};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Most blocks of a cluster that exchanges (beyond 8 the launch must allow it).
pub const MAX_CLUSTER: u32 = 16;

/// `NUMBERS` numbers of each warp of the cluster, two a word, in the shared memory of each of its blocks of `LANES`
/// threads, and a barrier that counts the words as they come.
///
/// The barrier between the blocks lies behind the loads and has nothing to wait for but the start of all blocks; one for
/// the numbers would make every thread's loads and stores visible to the cluster as well.
pub(crate) struct Exchange<const LANES: usize, const NUMBERS: usize> {
    words: Shared<u64>,
    come: Barrier,
}

impl<const LANES: usize, const NUMBERS: usize> Exchange<LANES, NUMBERS> {
    const WARPS: u32 = (LANES / 32) as u32;
    /// Words of a warp.
    const WORDS: usize = NUMBERS.div_ceil(2);
    /// Words of the largest cluster.
    const ALL: usize = MAX_CLUSTER as usize * LANES / 32 * Self::WORDS;

    /// With nothing posted. What the block does from here to [`Self::agree`] goes on while others start.
    ///
    /// # Safety
    /// All threads of the cluster call, once a launch, and then [`Self::agree`].
    #[inline(always)]
    pub unsafe fn begin() -> Self {
        const { assert!(Self::ALL <= 1024) };
        // SAFETY: one thread makes the barrier, before any block posts.
        unsafe {
            // Shared memory that is not taken is the first-level cache's.
            let words = if const { Self::ALL <= 256 } {
                shared_array!(exchange_256: [u64; 256])
            } else if const { Self::ALL <= 512 } {
                shared_array!(exchange_512: [u64; 512])
            } else {
                shared_array!(exchange_1024: [u64; 1024])
            };
            let come = Barriers::of(shared_array!(exchange_come: [u64; 1])).at(0);
            if cluster::size() > 1 && thread::thread_idx_x() == 0 {
                come.init(1);
                barrier::fence_init();
                let words = cluster::size() * Self::WARPS * Self::WORDS as u32;
                come.arrive_expecting(words * size_of::<u64>() as u32);
            }
            cluster::arrive();
            Exchange { words, come }
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
        part: [f32; NUMBERS],
        empty: S,
        and: impl Fn(S, [f32; NUMBERS]) -> S,
    ) -> S {
        let (size, rank, lane) = (cluster::size(), cluster::rank(), warp::lane_id());
        let warps = size * Self::WARPS;
        let half = |number: usize| if number < NUMBERS { part[number].to_bits() as u64 } else { 0 };
        // SAFETY: a warp has its own words in each block. No block ends before all that is posted to it has come.
        unsafe {
            cluster::wait();
            let own = Self::WORDS as u32 * (rank * Self::WARPS + warp::warp_id());
            let word = |number: usize| half(2 * number) | half(2 * number + 1) << 32;
            if size > 1 {
                if lane < size {
                    for number in 0..const { Self::WORDS } {
                        self.words.post(lane, own + number as u32, word(number), self.come);
                    }
                }
                self.come.wait(0);
            } else {
                // A block by itself has nobody to post to.
                if lane == 0 {
                    for number in 0..const { Self::WORDS } {
                        self.words.set(own + number as u32, word(number));
                    }
                }
                thread::sync_threads();
            }
            let mut total = empty;
            let mut other = lane;
            while other < warps {
                // Registers are full of the row here.
                bits::no_unroll();
                let mut found = [0.0; NUMBERS];
                for word in 0..const { Self::WORDS } {
                    let come = self.words.get(Self::WORDS as u32 * other + word as u32);
                    found[2 * word] = f32::from_bits(come as u32);
                    if 2 * word + 1 < NUMBERS {
                        found[2 * word + 1] = f32::from_bits((come >> 32) as u32);
                    }
                }
                total = and(total, found);
                other += warp::SIZE;
            }
            total
        }
    }
}
