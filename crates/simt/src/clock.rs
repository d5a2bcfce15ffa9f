//! Clocks carried by release and acquire: which accesses of which warps come before.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::atomic::Scope;
use crate::word::CLOCK_MAX;

/// Clocks of a block's 32 warps.
pub(crate) type Clocks = [u32; 32];

/// Multiplicative hashing for small integer keys.
#[derive(Default)]
pub(crate) struct IntHasher(u64);

impl Hasher for IntHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b as u64);
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

pub(crate) type IntMap<K, V> = HashMap<K, V, BuildHasherDefault<IntHasher>>;

/// Block number to the clocks of its warps.
#[derive(Clone, Default)]
pub(crate) struct ClockMap {
    blocks: IntMap<u32, Arc<Clocks>>,
}

impl ClockMap {
    pub(crate) fn get(&self, block: u32) -> Option<&Arc<Clocks>> {
        self.blocks.get(&block)
    }

    /// Raises the clocks of `block` to at least `clocks`.
    pub(crate) fn join_block(&mut self, block: u32, clocks: &Arc<Clocks>) {
        match self.blocks.get_mut(&block) {
            None => {
                self.blocks.insert(block, clocks.clone());
            }
            Some(mine) if Arc::ptr_eq(mine, clocks) => {}
            Some(mine) => join(Arc::make_mut(mine), clocks),
        }
    }

    pub(crate) fn join(&mut self, other: &ClockMap) {
        for (&block, clocks) in &other.blocks {
            self.join_block(block, clocks);
        }
    }
}

pub(crate) fn join(mine: &mut Clocks, other: &Clocks) {
    for (a, b) in mine.iter_mut().zip(other) {
        *a = (*a).max(*b);
    }
}

/// Joins `other` into an optional map, sharing it when there is nothing to join it with.
pub(crate) fn join_shared(mine: &mut Option<Arc<ClockMap>>, other: &Arc<ClockMap>) {
    match mine {
        None => *mine = Some(other.clone()),
        Some(map) if Arc::ptr_eq(map, other) => {}
        Some(map) => Arc::make_mut(map).join(other),
    }
}

/// What a release left at an atomic's address.
#[derive(Clone)]
pub(crate) struct SyncCell {
    /// Launch that released: the address means nothing to others.
    pub(crate) time: u64,
    pub(crate) map: Arc<ClockMap>,
    pub(crate) scope: Scope,
    pub(crate) block: u32,
    pub(crate) cluster: u64,
}

pub(crate) type SyncCells = IntMap<usize, SyncCell>;

static TIME: AtomicU64 = AtomicU64::new(1);

/// Starts a launch: its first time. The low 20 bits are its first clock, the rest its era.
pub(crate) fn start() -> u64 {
    let era = CLOCK_MAX as u64 + 1;
    let next = |t: u64| {
        // Leave each launch at least half an era of clocks.
        if (t + 1) % era > era / 2 || (t + 1).is_multiple_of(era) { (t / era + 1) * era + 1 } else { t + 1 }
    };
    let before = TIME.fetch_update(Ordering::AcqRel, Ordering::Acquire, |t| Some(next(t)));
    next(before.unwrap_or_else(|t| t))
}

/// Ends a launch whose last clock was `clock`: later launches start above it.
pub(crate) fn finish(start: u64, clock: u32) {
    let era = CLOCK_MAX as u64 + 1;
    TIME.fetch_max(start / era * era + clock as u64, Ordering::AcqRel);
}

/// The present: all launches that have ended lie before or at it.
pub(crate) fn now() -> u64 {
    TIME.load(Ordering::Acquire)
}

/// The era of a time: clocks of other eras mean nothing.
#[inline]
pub(crate) fn era(time: u64) -> u64 {
    time / (CLOCK_MAX as u64 + 1)
}
