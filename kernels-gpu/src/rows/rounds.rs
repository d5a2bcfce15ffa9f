//! How the warps of a cluster tell one another what their parts of rows come to, a round for each row.
//!
//! A warp announces its part of a row to all blocks of the cluster and goes on; it waits for those of all only when it needs them.
//! There is no barrier of the block or of the cluster on the way.

use super::statistic::Statistic;
use cuda_std::barrier::{self, Barriers};
use cuda_std::prelude::*;

/// Most blocks of a cluster that walks.
pub const MOST_WALKING: u32 = 4;

/// Rounds that have room at a time. A warp announces a row at most before it waits for the one in front of it: when it announces row
/// r + 2, others may still have to read what row r − 1 came to.
const SLOTS: u32 = 4;

/// A word of each warp of the cluster, for each slot, in the shared memory of each of its blocks of `LANES` threads; and a barrier
/// for each slot, at which the block's warps arrive and the words are counted as they come.
#[derive(Clone, Copy)]
pub(super) struct Rounds<const LANES: usize> {
    words: Shared<u64>,
    come: Barriers,
}

impl<const LANES: usize> Rounds<LANES> {
    const WARPS: u32 = LANES as u32 / warp::SIZE;
    /// Words of a slot.
    const WORDS: u32 = MOST_WALKING * Self::WARPS;

    /// Nothing announced. What the block does from here to [`Self::ready`] goes on while others start.
    ///
    /// # Safety
    /// All threads of the cluster call, once a launch, and then [`Self::ready`].
    #[inline(always)]
    pub unsafe fn begin() -> Self {
        const { assert!(SLOTS * Self::WORDS <= 256) };
        // SAFETY: one thread makes the barriers, before any block posts.
        unsafe {
            let words = shared_array!(rounds_words: [u64; 256]);
            let come = Barriers::of(shared_array!(rounds_come: [u64; 4]));
            if thread::thread_idx_x() == 0 {
                for slot in 0..SLOTS {
                    come.at(slot).init(Self::WARPS);
                }
                barrier::fence_init();
            }
            cluster::arrive();
            Rounds { words, come }
        }
    }

    /// Waits for all blocks to have begun.
    #[inline(always)]
    pub fn ready(self) {
        cluster::wait();
    }

    /// Announces the warp's part in a round, of which each lane has some.
    ///
    /// # Safety
    /// All threads of the cluster call, for one round after the other from 0 on, each at most one ahead of [`Self::agreed`].
    #[inline(always)]
    pub unsafe fn announce<S: Statistic>(self, round: u32, part: S) {
        const { assert!(S::NUMBERS <= 2, "a word is two numbers") };
        let (size, lane, slot) = (cluster::size(), warp::lane_id(), round % SLOTS);
        let [a, b, _] = part.over_lanes::<32>().words();
        let word = a.to_bits() as u64 | (b.to_bits() as u64) << 32;
        let own = slot * Self::WORDS + cluster::rank() * Self::WARPS + warp::warp_id();
        let come = self.come.at(slot);
        // SAFETY: a warp has its own word in each block. The slot's last round has ended, and all have read it: see `SLOTS`.
        unsafe {
            if lane == 0 {
                // A word of one warp of each block, which need not be the next to come.
                come.arrive_expecting(size * size_of::<u64>() as u32);
            }
            if lane < size {
                self.words.post(lane, own, word, come);
            }
        }
    }

    /// What all parts of a round come to, combined in an order that the size of the cluster fixes.
    ///
    /// # Safety
    /// All threads of the cluster call, for each round that was announced, in their order.
    #[inline(always)]
    pub unsafe fn agreed<S: Statistic>(self, round: u32) -> S {
        let (words, lane, slot) = (cluster::size() * Self::WARPS, warp::lane_id(), round % SLOTS);
        let mut total = S::EMPTY;
        // SAFETY: as many words have come as there are warps.
        unsafe {
            self.come.at(slot).wait(round / SLOTS % 2);
            for turn in 0..Self::WORDS.div_ceil(warp::SIZE) {
                let word = turn * warp::SIZE + lane;
                if word < words {
                    let come = self.words.get(slot * Self::WORDS + word);
                    let [a, b] = [come as u32, (come >> 32) as u32].map(f32::from_bits);
                    total = total.with(S::from_words([a, b, 0.0]));
                }
            }
        }
        total.over_lanes::<32>()
    }
}
