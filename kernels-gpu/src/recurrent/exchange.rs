//! How the blocks of a sequence give one another the hidden state: the data is the flag.
//!
//! A *slot* holds h of one time for every group of the batch, as 16-bit numbers in the order in which lanes want it: for each
//! group, sub-batch of [`COLUMNS`] rows, chunk of [`CHUNK`] units and part of a number, `[COLUMNS][CHUNK]`. Every word is [`POISON`] until
//! the one thread that owns it writes two units; who needs it reads it until it is something else. Words are written and read
//! by relaxed atomics of four bytes, so nothing need be ordered with them.
//!
//! Of long sequences slots are used again: see [`Ring`].

use cuda_std::atomic::{Ordering, Scope};
use cuda_std::dependent;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Rows of the batch that a tensor core multiplies at a time.
pub const COLUMNS: u32 = 8;
/// Units of a chunk: what the four lanes of a column hold, 16 bytes each.
pub const CHUNK: u32 = 32;
/// Words of a chunk.
pub const CHUNK_WORDS: u32 = COLUMNS * CHUNK / 2;
/// Two NaN that no conversion gives.
pub const POISON: u32 = u32::MAX;

/// The slots and who uses them.
///
/// With more steps than slots, each thread poisons its words of slots that all blocks have read, at each step of one or every `period` steps of as many, and then
/// fences every `period` steps. A slot is written again only three periods after that fence, when who reads it has fenced behind something that was
/// written behind the poison: it cannot meet what the slot held before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// How many there are.
    pub slots: u32,
    /// A quarter of them, a power of two, or 0 where each is used once.
    pub period: u32,
    /// Words of a sub-batch in a slot.
    pub words: u32,
    /// Polls after which a block gives up.
    pub patience: u32,
}
plain_parameter!(Ring);

impl Ring {
    /// The slot of the step behind that of `slot`.
    #[inline(always)]
    pub fn after(&self, slot: u32) -> u32 {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }

    /// The slot of so many steps before; of fewer slots than that there is no such one.
    #[inline(always)]
    fn before(&self, slot: u32, steps: u32) -> u32 {
        if slot >= steps { slot - steps } else { (slot + self.slots).wrapping_sub(steps) }
    }

    /// Whether threads fence at a step whose slot it is.
    #[inline(always)]
    pub fn is_fence(&self, slot: u32) -> bool {
        self.period != 0 && slot & (self.period - 1) == 0
    }

    /// The slot that is to be poisoned at a step, whose slot `slot` is: that of two steps before, where slots are used again. Whoever has received all of the
    /// step before has seen all blocks past it.
    #[inline(always)]
    pub fn freed(&self, slot: u32, step: u32) -> Option<u32> {
        let free = self.before(slot, 2);
        if self.period != 0 && step >= 2 { Some(free) } else { None }
    }

    /// Has `poison` poison the slots of a whole period at its end, and fences: for threads that have no registers for [`Self::freed`] at each step.
    #[inline(always)]
    pub fn clean_at_once(&self, (slot, step): (u32, u32), poison: impl Fn(u32)) {
        if self.is_fence(slot) {
            let mut back = 2;
            while back < self.period + 2 {
                if step >= back {
                    poison(self.before(slot, back));
                }
                back += 1;
            }
            thread::device_fence();
        }
    }
}

/// Fills an exchange with [`POISON`], and with zeros what lies beyond the units, so that whoever multiplies may read it.
///
/// # Safety
/// The exchange has a sub-batch of `packs` packs, aligned to 16 bytes, for each block along x; blocks along y cover `packs`.
/// Numbers have 2^`parts` parts.
#[kernel(family = "recurrent", instances = [{ ; threads: 256 }])]
pub unsafe fn poison(exchange: GlobalMut<u32>, packs: u32, units: u32, parts: u32) {
    // What is behind may begin with what was there before.
    dependent::begin();
    let pack = thread::block_idx_y() * thread::block_dim_x() + thread::thread_idx_x();
    let first = ((pack / (CHUNK_WORDS / 4)) >> parts) * CHUNK + pack % (CHUNK / 8) * 8;
    let word = if first < units { POISON } else { 0 };
    let at = (thread::block_idx_x() as usize * packs as usize + pack as usize) * 4;
    // SAFETY: within the sub-batch.
    unsafe { exchange.set_pack_if(pack < packs, at, [word; 4]) }
}

/// Two units as a word that is not [`POISON`].
#[inline(always)]
pub fn word<T: Half>(low: f32, high: f32) -> u32 {
    let mut pack = [0; 4];
    T::set_pair(&mut pack, 0, [low, high]);
    not_poison(pack[0])
}

/// Two 16-bit numbers as a word that is not [`POISON`].
#[inline(always)]
pub fn not_poison(word: u32) -> u32 {
    // Hardware's conversions give one NaN, 0x7fff.
    if word == POISON { 0x7fff_7fff } else { word }
}

/// An f32 as a word that is not [`POISON`]: a sum may have any NaN.
#[inline(always)]
pub fn word_of(number: f32) -> u32 {
    if number.to_bits() == POISON { 0x7fff_ffff } else { number.to_bits() }
}

#[inline(always)]
fn is_poisoned(pack: Pack) -> bool {
    pack[0] == POISON || pack[1] == POISON || pack[2] == POISON || pack[3] == POISON
}

/// Packs that have not been asked for: who receives them asks.
pub const fn not_yet<const PACKS: usize>() -> [Pack; PACKS] {
    [[POISON; 4]; PACKS]
}

/// Asks for the first `count` packs, a constant, of those at `at(i)`.
///
/// # Safety
/// They exist, aligned to 16 bytes, and are written by relaxed atomics alone.
#[inline(always)]
pub unsafe fn ask<const PACKS: usize>(
    exchange: GlobalMut<u32>,
    at: impl Fn(usize) -> usize,
    count: usize,
) -> [Pack; PACKS] {
    let mut packs = [[0; 4]; PACKS];
    for i in 0..PACKS {
        if i < count {
            // SAFETY: the caller's contract.
            packs[i] = unsafe { exchange.load_pack_relaxed(at(i)) };
        }
    }
    packs
}

/// Asks again for what [`ask`] found poisoned, until nothing is; false where that does not happen within
/// `patience()` polls. All lanes of the warp must call.
///
/// # Safety
/// As [`ask`].
#[inline(always)]
unsafe fn receive<const PACKS: usize>(
    exchange: GlobalMut<u32>,
    at: impl Fn(usize) -> usize,
    mut packs: [Pack; PACKS],
    patience: impl Fn() -> u32,
) -> ([Pack; PACKS], bool) {
    let mut left = u32::MAX;
    loop {
        let mut missing = false;
        for i in 0..PACKS {
            missing |= is_poisoned(packs[i]);
        }
        if !warp::warp_vote_any(u32::MAX, missing) {
            return (packs, true);
        }
        // Asked for where it is needed: a register less elsewhere.
        left = if left == u32::MAX { patience() } else { left - 1 };
        if left == 0 {
            return (packs, false);
        }
        thread::spin_wait();
        for i in 0..PACKS {
            // SAFETY: the caller's contract.
            packs[i] = unsafe { exchange.load_pack_relaxed_or(is_poisoned(packs[i]), at(i), packs[i]) };
        }
    }
}

/// What [`ask`] asked for, as soon as nothing of it is poisoned, by a warp with a patience of its own, which gives up for good: then `fault` gets the step and the block, unless it has an earlier one, and what
/// is received is void.
///
/// # Safety
/// As [`ask`], of the same places; the warp's patience is its own.
#[inline(always)]
pub unsafe fn receive_or_report<const PACKS: usize>(
    exchange: GlobalMut<u32>,
    at: impl Fn(usize) -> usize,
    asked: [Pack; PACKS],
    step: u32,
    of_patience: Shared<u32>,
    fault: GlobalMut<u64>,
) -> [Pack; PACKS] {
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    // SAFETY: the caller's contract.
    unsafe {
        let (packs, received) = receive(exchange, at, asked, || of_patience.get(warp));
        if !received {
            give_up(step, (lane, warp), of_patience, fault);
        }
        packs
    }
}

/// Gives up for good, as [`receive_or_report`] does: once is enough, since the launch ends soon, with results that the error makes void. All lanes of the
/// warp call.
///
/// # Safety
/// The warp's patience is its own.
#[inline(always)]
pub unsafe fn give_up(step: u32, (lane, warp): (u32, u32), of_patience: Shared<u32>, fault: GlobalMut<u64>) {
    // All lanes know how patient they were.
    warp::sync_warp(u32::MAX);
    if lane == 0 {
        let seen = (u64::from(step) << 32) | u64::from(thread::block_idx_x());
        // SAFETY: the caller's contract.
        unsafe {
            fault.atomic_min(0, seen, Ordering::Relaxed, Scope::Device);
            of_patience.set(warp, 0);
        }
    }
    warp::sync_warp(u32::MAX);
}

/// Writes a word.
///
/// # Safety
/// It exists, and this thread alone writes it.
#[inline(always)]
pub unsafe fn send(exchange: GlobalMut<u32>, at: usize, word: u32) {
    // SAFETY: the caller's contract.
    unsafe { exchange.atomic_store(at, word, Ordering::Relaxed, Scope::Device) }
}
