//! What was worked out once for a problem, so that it need not be again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Results that are kept at a time; a program has a few problems.
const MOST: usize = 1024;

/// Results by problem.
pub struct Memo<K, P>(LazyLock<Mutex<HashMap<K, P>>>);

impl<K: Eq + Hash, P: Clone> Memo<K, P> {
    /// With nothing in it.
    pub const fn new() -> Self {
        Memo(LazyLock::new(Mutex::default))
    }

    pub fn get(&self, problem: &K) -> Option<P> {
        self.results().get(problem).cloned()
    }

    pub fn keep(&self, problem: K, result: P) {
        let mut results = self.results();
        if results.len() >= MOST {
            results.clear();
        }
        results.insert(problem, result);
    }

    /// A map is whole after a panic, too: results are made outside.
    fn results(&self) -> MutexGuard<'_, HashMap<K, P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
