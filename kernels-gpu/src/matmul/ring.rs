//! The stages of [`pipelined()`](fn@super::pipelined), [`turned()`](fn@super::turned), [`alternating()`](fn@super::alternating) and [`tf32_pipelined()`](fn@super::tf32_pipelined), which go round, and the order in which their
//! consumers end a tile.

use core::ops::Deref;
use cuda_std::barrier::{Barrier, Barriers};
use cuda_std::prelude::*;
use cuda_std::ring::{self, Turn};
use cuda_std::warpgroup;

use super::consumer::WARPS;

/// Bytes of the barriers of a block: of so many stages, and of so many consumers that another waits for.
pub(super) const fn barrier_bytes(stages: u32, awaited: u32) -> u32 {
    stages * ring::Ring::<1>::BYTES + awaited * Barriers::BYTES
}

/// The stages of a block, and a barrier for each consumer that another waits for, where it says that all products of its tile have been started.
#[derive(Clone, Copy)]
pub(super) struct Ring<const STAGES: usize> {
    stages: ring::Ring<STAGES>,
    started: Barriers,
    stage_bytes: u32,
}

impl<const STAGES: usize> Ring<STAGES> {
    /// Makes the barriers, from byte `offset` of dynamic shared memory on, where the stages begin at its first byte, for so many consumers that read
    /// each stage, and so many that another waits for. One thread does `more` besides: behind a branch of its own the compiler would copy the barrier that follows into both arms.
    ///
    /// # Safety
    /// The launch gives [`barrier_bytes`] there. All threads call, and a barrier follows.
    #[inline(always)]
    pub unsafe fn new(
        stage_bytes: u32,
        offset: u32,
        [readers, awaited]: [u32; 2],
        more: impl FnOnce(),
    ) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let stages = ring::Ring::dynamic(offset);
            let started = Barriers::dynamic(offset + ring::Ring::<STAGES>::BYTES, awaited);
            let ring = Ring { stages, started, stage_bytes };
            if thread::thread_idx_x() == 0 {
                for group in 0..awaited {
                    ring.started(group).init(WARPS);
                }
                stages.init(1, readers * WARPS);
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

    /// Multiplies `turns` stages, at least one, from `turn` on: `start` starts the products of a stage, added to the sums or in their place. The turn
    /// and the round come to be those of the next tile.
    ///
    /// Consumers end a tile one after the other, so that one finishes its sums while the next multiplies: each but the first holds back
    /// its products of the `last` stages until the one before it has started all of its own. They are as many as the ring
    /// holds but for the one before them; one less where something else has to come into the ring. Consumers of tiles
    /// shorter than the ring could come to be whole tiles apart.
    ///
    /// # Safety
    /// All lanes of the warps of consumer `group`, of as many as the ring was made for, call, with the turn and the round of the last tile's
    /// end; `start` starts products that read the stage and leave their sums here, as one group.
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn consume<const SUMS: usize>(
        self,
        sums: &mut [f32; SUMS],
        turn: &mut Turn<STAGES>,
        round: &mut u32,
        turns: u32,
        last: u32,
        [group, consumers]: [u32; 2],
        lane: u32,
        start: impl Fn(&mut [f32; SUMS], u32, bool),
    ) {
        let in_order = turns >= STAGES as u32;
        let held = if in_order && group > 0 { turns - last } else { u32::MAX };
        let mut done = 0;
        // SAFETY: the caller's contract.
        unsafe {
            while done < turns {
                self.full(turn.stage()).wait(turn.parity());
                if done == held {
                    self.started(group - 1).wait(*round);
                }
                let more = done > 0;
                start(sums, turn.stage(), more);
                // The products of the turn before are done.
                warpgroup::wait::<1>();
                self.empty(turn.stage_before()).arrive_if(more && lane == 0);
                *turn = turn.next();
                done += 1;
            }
            if in_order {
                self.started(group).arrive_if(lane == 0 && group + 1 < consumers);
                *round ^= 1;
            }
            warpgroup::finish(sums);
            self.empty(turn.stage_before()).arrive_if(lane == 0);
        }
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
