//! A ring of stages in shared memory (sm_90): some threads fill them, others read them, and both go round.

use crate::barrier::{self, Barrier, Barriers};

/// The barriers of a ring of `STAGES` stages, two for each: *full*, where those that fill it arrive and what they have copied does, and *empty*,
/// where those that have read it arrive.
///
/// A stage is written between the ends of a phase of *empty* and of *full*, and read between the ends of *full* and of the next phase of
/// *empty*. At first the phase of *empty* before the first has ended, that of the other [parity](Turn::parity): all stages are empty.
#[derive(Clone, Copy)]
pub struct Ring<const STAGES: usize>(Barriers);

impl<const STAGES: usize> Ring<STAGES> {
    /// Bytes of the barriers.
    pub const BYTES: u32 = Self::COUNT * Barriers::BYTES;
    const COUNT: u32 = 2 * STAGES as u32;

    /// The barriers from byte `offset` of the launch's dynamic shared memory on, a multiple of 8.
    ///
    /// # Safety
    /// The launch must provide [`Self::BYTES`] there, and nothing else uses them.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn dynamic(offset: u32) -> Self {
        // SAFETY: the caller's contract.
        Ring(unsafe { Barriers::dynamic(offset, Self::COUNT) })
    }

    /// Makes the barriers, and makes them visible to copies: a stage is full when `fillers` have arrived, and empty when `readers` have. A
    /// barrier of the block follows, before others use them.
    ///
    /// # Safety
    /// One thread calls, once; the numbers are between 1 and 2^20 − 1.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn init(self, fillers: u32, readers: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            for stage in 0..STAGES as u32 {
                self.full(stage).init(fillers);
                self.empty(stage).init(readers);
            }
        }
        barrier::fence_init();
    }

    /// Where a stage becomes full.
    #[inline(always)]
    pub fn full(self, stage: u32) -> Barrier {
        self.0.at(stage)
    }

    /// Where a stage becomes empty.
    #[inline(always)]
    pub fn empty(self, stage: u32) -> Barrier {
        self.0.at(STAGES as u32 + stage)
    }
}

/// A place in a ring of `STAGES` stages, and the parity of its barriers' present phase: in one number, since kernels that
/// need it are short of registers.
#[derive(Clone, Copy)]
pub struct Turn<const STAGES: usize>(u32);

impl<const STAGES: usize> Turn<STAGES> {
    /// The first stage in the first round.
    #[inline(always)]
    pub const fn first() -> Self {
        Turn(0)
    }

    /// The stage.
    #[inline(always)]
    pub fn stage(self) -> u32 {
        self.0 / 2
    }

    /// 0 in the first round, 1 in the next, and so on.
    #[inline(always)]
    pub fn parity(self) -> u32 {
        self.0 % 2
    }

    /// The turn behind this one.
    #[inline(always)]
    pub fn next(self) -> Self {
        let (next, round) = (self.0 + 2, 2 * STAGES as u32);
        Turn(if next >= round { (next - round) ^ 1 } else { next })
    }

    /// The turn `turns` turns behind this one.
    #[inline(always)]
    pub fn after(self, turns: u32) -> Self {
        let stage = self.stage() + turns;
        Turn(stage % STAGES as u32 * 2 + (self.parity() + stage / STAGES as u32) % 2)
    }

    /// The stage of the turn before this one.
    #[inline(always)]
    pub fn stage_before(self) -> u32 {
        if self.stage() == 0 { STAGES as u32 - 1 } else { self.stage() - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;

    #[test]
    fn a_ring_comes_round_with_the_other_parity() {
        let mut turn = Turn::<3>::first();
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push((turn.stage(), turn.parity(), turn.stage_before()));
            turn = turn.next();
        }
        let want = [(0, 0, 2), (1, 0, 0), (2, 0, 1), (0, 1, 2), (1, 1, 0), (2, 1, 1), (0, 0, 2)];
        assert_eq!(seen, want);
        for turns in 0..want.len() {
            let turn = Turn::<3>::first().next().after(turns as u32);
            assert_eq!((turn.stage(), turn.parity()), ((1 + turns as u32) % 3, (1 + turns as u32) / 3 % 2));
        }
    }
}
