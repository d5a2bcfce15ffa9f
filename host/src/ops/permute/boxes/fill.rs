//! Boxes smaller than what the model chose, or fewer at a time: those that share no sector with others, and those whose copies leave lanes idle.
//!
//! A run of x that begins anywhere takes a copy more than it has packs. Of 128 bytes that is nine: eight lanes copy at once, so that two of these
//! eights meet in each run and fetch the sector there twice; and 143 runs, 28 at a time, take a sixth round for few. Boxes of 112 bytes by 112 have
//! eight copies a run, and 127 runs in four rounds of 32.

use std::ops::RangeInclusive;

use super::super::simplify::PACK;
use super::super::takes::{Walk, gcd, of_sectors};
use super::runs::{AROUND, Runs};
use super::{Boxed, Joins, Layout, Way};

/// What is left empty at the ends of dimensions may be so much more.
const MORE_ROOM: f64 = 1.02;

/// Bytes of boxes of one run of x: two rounds of packs, or somewhat more where these cannot be nearly full.
const TWO_ROUNDS: [RangeInclusive<usize>; 2] = [7680..=8192, 8193..=10240];
/// Bytes of a run of x and of y from which on nothing is lost where it ends.
const LONG: usize = 2048;

impl Boxed {
    /// Boxes that share no sector with others, along one dimension that is cut, where `self` are such: those of one run of x
    /// are of two rounds of packs, however many bytes `self` have; of these and others only as many share a multiprocessor as keep memory busy. The
    /// model was fitted to boxes that lose something where they end, and has them larger, and more of them: 1 to 2 % slower on an H100. Not of single
    /// bytes, which lose 5 % in small boxes.
    pub fn unshared(&self, walk: &Walk, chain: &[usize]) -> Option<Boxed> {
        let Way::Packs { rows, .. } = self.way else { return None };
        // Most boxes of a multiprocessor, of two rounds, and the bytes that others have there.
        let (of_two_rounds, under_way): (usize, usize) = match (walk.x_size, walk.y_size) {
            (2, 2) => (7, 56_000),
            (4, 4) => (6, 48_000),
            _ => return None,
        };
        let whole = self.joins == Joins::Sectors && self.has_runs_of_sectors();
        let are_long = self.run_bytes >= LONG && self.out_bytes >= LONG;
        // Large tables take long to make, which more boxes hide.
        let has_small_tables = 8 * self.shared_bytes <= 9 * self.bytes;
        if !whole || !are_long || !has_small_tables || self.skew || self.params.one_tile == 0 {
            return None;
        }
        let limited = |boxed: Boxed, limit| Boxed { limit: Some(limit), is_filled: true, ..boxed };
        let of_take = |take| {
            let boxed = Boxed::new(walk, chain, take, Layout { rows, ..Layout::PLAIN })?;
            (boxed.out_bytes >= LONG).then(|| limited(boxed, of_two_rounds))
        };
        let as_they_are = || limited(self.clone(), under_way.div_ceil(self.bytes).max(4));
        Some(self.two_rounds(walk, chain).and_then(of_take).unwrap_or_else(as_they_are))
    }

    /// What smaller boxes take, of one run of x.
    fn two_rounds(&self, walk: &Walk, chain: &[usize]) -> Option<Vec<usize>> {
        if self.params.run_count.size != 1 {
            return None;
        }
        let w = Runs::new(walk, chain, &self.take, Layout::PLAIN)?.w?;
        let within = self.bytes / self.take[w];
        let whole = of_sectors(within);
        let of = |bytes: &RangeInclusive<usize>| {
            let take = bytes.end() / within / whole * whole;
            (take < self.take[w] && bytes.contains(&(take * within))).then_some(take)
        };
        let mut take = self.take.clone();
        take[w] = TWO_ROUNDS.iter().find_map(of)?;
        Some(take)
    }

    /// Boxes of nearly the same sizes whose copies leave no lanes idle, as many on a multiprocessor, where there are such that serve: of one run of x
    /// and of y each, by elements.
    pub fn filled(&self, walk: &Walk, chain: &[usize]) -> Option<Boxed> {
        if self.way != (Way::Packs { levels: 1, rows: false }) || self.skew || self.by_halves {
            return None;
        }
        let take = Runs::new(walk, chain, &self.take, Layout::PLAIN)?.filled()?;
        let filled = Boxed::new(walk, chain, take, Layout::PLAIN)?;
        let filled = Boxed { limit: self.limit, is_filled: true, ..filled };
        let as_good = filled.lanes.conflicts <= self.lanes.conflicts
            && filled.lanes.log >= self.lanes.log
            && filled.room <= MORE_ROOM * self.room;
        as_good.then_some(filled)
    }
}

impl Runs<'_> {
    /// What boxes take instead: copies of a run of x are a power of two, and runs fill all rounds. `None` where runs of x are of several
    /// dimensions or aligned, or either run would lose more than an eighth.
    fn filled(&self) -> Option<Vec<usize>> {
        let (&[u], Some(w)) = (&self.x[..], self.w) else { return None };
        if self.x_aligned || self.u != Some(u) || w == u || self.begins >= self.grain {
            return None;
        }
        let Walk { x_size, y_size, .. } = *self.walk;
        let copies = 1 << self.copies(self.take[u] * x_size).ilog2();
        let of_u = (PACK * (copies + 1) - 1).checked_sub(AROUND)? / x_size;
        // Runs are all that a run of y is of, those of its last dimension with the next tile's.
        let within: usize = self.y.iter().filter(|&&dim| dim != w).map(|&dim| self.take[dim]).product();
        let at_once = Self::at_once(copies);
        let runs = self.count(w) * within / at_once * at_once;
        let whole = self.grain / gcd(self.grain, within * y_size);
        let of_w = (runs / within).checked_sub(self.count(w) - self.take[w])? / whole * whole;
        // Tiles of one size.
        let even = |dim: usize, most: usize, whole: usize| {
            let extent = self.walk.dims[dim].extent;
            (most > 0).then(|| extent.div_ceil(extent.div_ceil(most)).next_multiple_of(whole))
        };
        let mut take = self.take.to_vec();
        (take[u], take[w]) = (even(u, of_u, 1)?, even(w, of_w, whole)?);
        let is_enough = |&dim: &usize| take[dim] <= self.take[dim] && 8 * take[dim] >= 7 * self.take[dim];
        [u, w].iter().all(is_enough).then_some(take)
    }
}
