//! Sums that the blocks of a cluster send one another, each a share of the rows of a common tile to whoever finishes it.

use cuda_std::barrier::{Barrier, Barriers};
use cuda_std::prelude::*;

/// A block's sums of all shares, one behind the other, and behind them those that the others send of its own, in the order of the blocks.
///
/// Sums are sent by copies from shared memory to shared memory that a barrier of the receiver counts: a barrier of the cluster would make
/// all that the blocks have written visible, which takes a microsecond more.
#[derive(Clone, Copy)]
pub(crate) struct Inbox {
    sums: Shared<f32>,
    /// Where what others send begins.
    first: u32,
    /// Floats of a share.
    share: u32,
    met: Barrier,
    /// Blocks of the cluster, and which of them this one is.
    size: u32,
    rank: u32,
}

impl Inbox {
    /// Bytes behind the sums: room for so many bytes from others, and the barrier.
    pub const fn bytes(others: u32) -> u32 {
        others + Barriers::BYTES
    }

    /// The sums begin at byte 0, and what others send, with room for `others` bytes, at byte `first`. `share` floats, whole packs, are a share.
    ///
    /// # Safety
    /// The launch gives [`Self::bytes`] from `first` on; the others' shares fit into `others`.
    #[inline(always)]
    pub unsafe fn dynamic(first: u32, others: u32, share: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let sums = Shared::dynamic(0, (first + others) / 4);
            let met = Barriers::dynamic(first + others, 1).at(0);
            Inbox { sums, first: first / 4, share, met, size: cluster::size(), rank: cluster::rank() }
        }
    }

    /// Makes the barrier, which the barriers' fence makes known.
    ///
    /// # Safety
    /// One thread calls, once, and makes other barriers behind it, before another block sends.
    #[inline(always)]
    pub unsafe fn init(self) {
        // SAFETY: the caller's contract.
        unsafe {
            self.met.init(1);
            if self.size > 1 {
                self.met.arrive_expecting((self.size - 1) * self.share * 4);
            }
        }
    }

    #[inline(always)]
    pub fn sums(self) -> Shared<f32> {
        self.sums
    }

    /// Where the sums of block `part` for the share of block `of` lie in that block's memory.
    #[inline(always)]
    fn place(self, part: u32, of: u32) -> u32 {
        if part == of { of * self.share } else { self.first + (part - (part > of) as u32) * self.share }
    }

    /// Where the sums of block `part` for the block's own share begin.
    #[inline(always)]
    pub fn first_of(self, part: u32) -> u32 {
        self.place(part, self.rank)
    }

    /// Starts to send the others their shares.
    ///
    /// # Safety
    /// All lanes of one warp call. The sums are whole, known to copies ([`fence_writes`](cuda_std::tma::fence_writes)), and stay as they are; all blocks have made their
    /// barriers.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn send(self) {
        let (lane, share) = (warp::lane_id(), self.share);
        if lane < self.size && lane != self.rank {
            // SAFETY: the caller's contract; each block has room for the shares of all others.
            unsafe {
                self.sums.send(lane * share, share, self.sums, lane, self.place(self.rank, lane), self.met)
            };
        }
    }

    /// Waits for what others send.
    ///
    /// # Safety
    /// [`Self::init`] was called.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn wait(self) {
        // SAFETY: the caller's contract.
        unsafe { self.met.wait(0) }
    }
}
