//! The stages of [`pipelined()`](fn@super::pipelined), which go round, and the order in which its consumers end a tile.

use cuda_std::barrier::{self, Barrier, Barriers};
use cuda_std::prelude::*;

use super::consumer::WARPS;

/// The barriers of a block: *full* and *empty* of each stage, and one for each consumer but the last, where it says that all products
/// of its tile have been started.
#[derive(Clone, Copy)]
pub(super) struct Ring<const STAGES: usize> {
    barriers: Barriers,
    stage_bytes: u32,
}

impl<const STAGES: usize> Ring<STAGES> {
    /// Makes the barriers, from byte `offset` of dynamic shared memory on, where the stages begin at its first byte. One thread does `more`
    /// besides: behind a branch of its own the compiler would copy the barrier that follows into both arms.
    ///
    /// # Safety
    /// The launch gives as much. All threads call, and a barrier follows.
    #[inline(always)]
    pub unsafe fn new(stage_bytes: u32, offset: u32, consumers: u32, more: impl FnOnce()) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let barriers = Barriers::dynamic(offset, 2 * STAGES as u32 + consumers - 1);
            let ring = Ring { barriers, stage_bytes };
            if thread::thread_idx_x() == 0 {
                for stage in 0..STAGES as u32 {
                    ring.full(stage).init(1);
                    ring.empty(stage).init(consumers * WARPS);
                }
                for group in 0..consumers - 1 {
                    ring.started(group).init(WARPS);
                }
                barrier::fence_init();
                more();
            }
            ring
        }
    }

    /// The byte at which a stage begins.
    #[inline(always)]
    pub fn at(self, stage: u32) -> u32 {
        stage * self.stage_bytes
    }

    /// Where the bytes of a stage arrive.
    #[inline(always)]
    pub fn full(self, stage: u32) -> Barrier {
        self.barriers.at(stage)
    }

    /// Where a warp of each consumer says that it has read a stage.
    #[inline(always)]
    pub fn empty(self, stage: u32) -> Barrier {
        self.barriers.at(STAGES as u32 + stage)
    }

    /// Where the warps of consumer `group` say that they have started all products of a tile.
    #[inline(always)]
    pub fn started(self, group: u32) -> Barrier {
        self.barriers.at(2 * STAGES as u32 + group)
    }
}
