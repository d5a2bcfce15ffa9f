//! The stages of [`pipelined()`](fn@super::pipelined), which go round, and the order in which its consumers end a tile.

use core::ops::Deref;
use cuda_std::barrier::{Barrier, Barriers};
use cuda_std::prelude::*;
use cuda_std::ring;

use super::consumer::WARPS;

/// Bytes of the barriers of a block: of so many stages, and of so many consumers.
pub(super) const fn barrier_bytes(stages: u32, consumers: u32) -> u32 {
    stages * ring::Ring::<1>::BYTES + (consumers - 1) * Barriers::BYTES
}

/// The stages of a block, and a barrier for each consumer but the last, where it says that all products of its tile have been started.
#[derive(Clone, Copy)]
pub(super) struct Ring<const STAGES: usize> {
    stages: ring::Ring<STAGES>,
    started: Barriers,
    stage_bytes: u32,
}

impl<const STAGES: usize> Ring<STAGES> {
    /// Makes the barriers, from byte `offset` of dynamic shared memory on, where the stages begin at its first byte. One thread does `more`
    /// besides: behind a branch of its own the compiler would copy the barrier that follows into both arms.
    ///
    /// # Safety
    /// The launch gives [`barrier_bytes`] there. All threads call, and a barrier follows.
    #[inline(always)]
    pub unsafe fn new(stage_bytes: u32, offset: u32, consumers: u32, more: impl FnOnce()) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let stages = ring::Ring::dynamic(offset);
            let started = Barriers::dynamic(offset + ring::Ring::<STAGES>::BYTES, consumers - 1);
            let ring = Ring { stages, started, stage_bytes };
            if thread::thread_idx_x() == 0 {
                for group in 0..consumers - 1 {
                    ring.started(group).init(WARPS);
                }
                stages.init(1, consumers * WARPS);
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

    /// Where the warps of consumer `group` say that they have started all products of a tile.
    #[inline(always)]
    pub fn started(self, group: u32) -> Barrier {
        self.started.at(group)
    }
}

impl<const STAGES: usize> Deref for Ring<STAGES> {
    type Target = ring::Ring<STAGES>;

    #[inline(always)]
    fn deref(&self) -> &ring::Ring<STAGES> {
        &self.stages
    }
}
