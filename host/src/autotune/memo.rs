//! Plans that were found to be the fastest, so that they need not be looked up by their names.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::device::Device;

/// Plans that are kept at a time; a program has a few problems.
const MOST: usize = 1024;

/// Counts the files that choices were kept in.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// From now on nothing is remembered.
pub fn forget() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A file's number, a GPU's, and a problem.
type Key<K> = (u64, usize, K);

/// Plans by problem.
pub struct Memo<K, P>(LazyLock<Mutex<HashMap<Key<K>, P>>>);

impl<K: Eq + Hash, P: Clone> Memo<K, P> {
    /// With nothing in it.
    pub const fn new() -> Self {
        Memo(LazyLock::new(Mutex::default))
    }

    pub fn get(&self, device: &Device, problem: K) -> Option<P> {
        self.plans().get(&key(device, problem)).cloned()
    }

    pub fn keep(&self, device: &Device, problem: K, plan: P) {
        let mut plans = self.plans();
        if plans.len() >= MOST {
            plans.clear();
        }
        plans.insert(key(device, problem), plan);
    }

    /// A map is whole after a panic, too: plans are made outside.
    fn plans(&self) -> MutexGuard<'_, HashMap<Key<K>, P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<K>(device: &Device, problem: K) -> Key<K> {
    (GENERATION.load(Ordering::Relaxed), device.ordinal(), problem)
}
