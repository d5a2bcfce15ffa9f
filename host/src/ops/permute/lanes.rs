//! What shared memory costs a warp that gathers packs: pure arithmetic.

use kernels_gpu::permute::along_row;

/// How a warp's lanes share the packs of the runs of y.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    /// Of a run: counts and bytes of shared memory, level by level.
    pub within: &'a [(usize, usize)],
    /// Of the runs, too.
    pub outs: &'a [(usize, usize)],
    /// Bytes of y from one of `outs` to the next.
    pub steps: &'a [usize],
    /// Runs of y are cut at multiples of so many bytes, and an element has so many.
    pub grain: usize,
    pub size: usize,
    /// Bytes of a load, and the packs that it is for.
    pub unit: usize,
    pub per_word: usize,
    /// Elements of a pack, and packs of a run.
    pub per_pack: usize,
    pub packs: usize,
    /// Whether the table of places along a run has rows.
    pub rows: bool,
    /// Bytes between as many of the innermost level of a run as a pack has elements, where that level is not two.
    pub skew: usize,
}

/// A way to share them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// Lanes along a run, as a power of two.
    pub log: u32,
    /// Whether neighbours across are on every other run.
    pub apart: bool,
    /// Cycles of a load of the warp.
    pub conflicts: usize,
    /// And of one from the table of places along a run.
    pub entries: usize,
    /// The part of the lanes that have a pack.
    pub busy: f64,
}

impl Lanes<'_> {
    /// What takes the least time, as far as it depends on this: the cycles of loads, and lanes that have nothing to do.
    pub fn best(&self) -> Shared {
        let runs: usize = self.outs.iter().map(|level| level.0).product();
        let of = |(log, apart): (u32, bool)| {
            let (along, across) = (1usize << log, 32 >> log);
            let busy = (self.packs * runs) as f64
                / (self.packs.next_multiple_of(along) * runs.next_multiple_of(across)) as f64;
            let (conflicts, entries) = (self.conflicts(along, apart), self.entries(along));
            Shared { log, apart, conflicts, entries, busy }
        };
        let cost = |shared: &Shared| {
            let loads = self.per_pack as f64;
            let cycles = 0.9 * (loads * shared.conflicts as f64 + 4.0) / 56.0;
            let instructions = 1.25 * (24.0 + 2.5 * loads) / 224.0;
            // Stores of half a sector are two for one; those of few sectors go to many places.
            let stores = match shared.log {
                0 => 1.24,
                1 => 0.13,
                2 => 0.02,
                _ => 0.0,
            };
            (cycles + instructions) / (shared.busy * self.per_word as f64) + stores
        };
        let apart = if self.per_word == 1 && runs >= 8 { &[false, true][..] } else { &[false] };
        let all = (0..=5).rev().flat_map(|log| apart.iter().map(move |&apart| (log, apart))).map(of);
        let none = Shared { log: 5, apart: false, conflicts: 32, entries: 32, busy: 1.0 };
        all.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(none)
    }

    /// Cycles of a load of the warp: the most words that it wants of a bank.
    fn conflicts(&self, along: usize, apart: bool) -> usize {
        let runs: usize = self.outs.iter().map(|level| level.0).product();
        let mut words: Vec<usize> = Vec::with_capacity(32 * self.unit.div_ceil(4));
        for lane in 0..32 {
            let slot = lane / along;
            if slot >= runs {
                continue;
            }
            let out = match apart {
                true if slot < runs.div_ceil(2) => 2 * slot,
                true => 2 * (slot - runs.div_ceil(2)) + 1,
                false => slot,
            };
            // The first pack of a run that was cut does not begin with its first element.
            let first = place(self.outs.iter().zip(self.steps).map(|(level, &step)| (level.0, step)), out);
            let lead = (first.next_multiple_of(self.grain) - first) / self.size;
            let number = (lane % along).min(self.packs - 1) * self.per_pack + lead;
            let innermost = self.within.first().map_or(0, |level| number % level.0);
            let at = place(self.within.iter().copied(), number)
                + innermost / self.per_pack * self.skew
                + place(self.outs.iter().copied(), out);
            words.extend((0..self.unit.div_ceil(4)).map(|word| at / 4 + word));
        }
        most_of_a_bank(words)
    }

    /// Cycles of a load from the table of places along a run, which has one for each element of the levels that repeat.
    fn entries(&self, along: usize) -> usize {
        let levels = self.within.split_last().map_or(&[][..], |(_, inner)| inner);
        let period: usize = levels.iter().map(|level| level.0).product();
        // Lanes on other runs are about an element further on.
        let entry = |lane: usize| {
            let first = (lane % along).min(self.packs - 1) * self.per_pack + lane / along;
            let first = first % period.max(1);
            if self.rows {
                first / self.per_pack * along_row(self.per_pack) + first % self.per_pack
            } else {
                first
            }
        };
        most_of_a_bank((0..32).map(entry).collect())
    }
}

/// Where number `number` of levels of so many is, with a step each: the kernel's arithmetic, by which the last level has no end.
fn place(levels: impl ExactSizeIterator<Item = (usize, usize)>, number: usize) -> usize {
    let last = levels.len().saturating_sub(1);
    let (mut at, mut rest) = (0, number);
    for (i, (count, step)) in levels.enumerate() {
        let digit = if i < last { rest % count } else { rest };
        rest /= count;
        at += digit * step;
    }
    at
}

/// The most words that are wanted of a bank, each once.
fn most_of_a_bank(mut words: Vec<usize>) -> usize {
    words.sort_unstable();
    words.dedup();
    let mut banks = [0usize; 32];
    words.iter().for_each(|word| banks[word % 32] += 1);
    banks.into_iter().max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs of four words of four bytes, `step` bytes apart, in one long run.
    fn lanes(within: &[(usize, usize)]) -> Lanes<'_> {
        let (outs, steps) = (&[(1, 0)], &[0]);
        Lanes {
            within,
            outs,
            steps,
            grain: 32,
            size: 4,
            unit: 4,
            per_word: 1,
            per_pack: 4,
            packs: 1024,
            rows: false,
            skew: 0,
        }
    }

    #[test]
    fn words_of_one_bank_are_read_one_after_another() {
        // Packs whose first words are neighbours in shared memory, 128 bytes apart, and one word further each.
        for (step, cycles) in [(1, 1), (32, 32), (33, 1)] {
            let place = [(4096, 4 * step)];
            let of = Lanes { per_pack: 1, ..lanes(&place) };
            assert_eq!(of.conflicts(32, false), cycles, "{step} words");
        }
    }

    #[test]
    fn lanes_go_along_long_runs_and_across_short_ones() {
        let place = [(4096, 4)];
        assert_eq!(lanes(&place).best().log, 5);
        let short = Lanes { outs: &[(1024, 20)], steps: &[16], packs: 2, ..lanes(&place) }.best();
        assert_eq!((short.log, short.busy), (1, 1.0));
    }

    #[test]
    fn tables_with_rows_and_rows_apart_do_without_conflicts() {
        // 32 columns of 73 rows of bytes, 272 bytes apart: a pack goes on 16 rows further, which are 16 bytes further yet.
        let bytes = |within| Lanes { per_pack: 16, size: 1, unit: 1, packs: 146, ..lanes(within) };
        let columns = [(73, 272), (32, 1)];
        assert_eq!(bytes(&columns).conflicts(32, false), 5);
        assert_eq!(Lanes { skew: 16, ..bytes(&columns) }.conflicts(32, false), 4);
        // 490 columns of five rows: their places repeat after 2450 bytes.
        let long = [(5, 490), (490, 1), (8, 2450)];
        let entries = |rows| Lanes { rows, ..bytes(&long) }.entries(32);
        assert_eq!((entries(false), entries(true)), (16, 1));
    }

    #[test]
    fn neighbours_of_odd_bytes_are_apart() {
        // Bytes of an odd matrix: rows of y begin one byte later in a pack each, and are one byte further on in x.
        let place = [(128, 145)];
        let odd = Lanes {
            outs: &[(128, 1)],
            steps: &[8191],
            size: 1,
            unit: 1,
            per_pack: 16,
            packs: 8,
            ..lanes(&place)
        };
        let [beside, apart] = [false, true].map(|apart| odd.conflicts(8, apart));
        assert_eq!((beside, apart), (2, 1));
        assert!(odd.best().apart);
    }
}
