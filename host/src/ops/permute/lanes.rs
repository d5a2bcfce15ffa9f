//! What shared memory costs a warp that gathers packs: pure arithmetic.

/// How a warp's lanes share the packs of the runs of y.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    /// Of a run and of the runs: count and bytes of shared memory, level by level.
    pub within: &'a [(usize, usize)],
    pub outs: &'a [(usize, usize)],
    /// Bytes of a load, and the packs that it is for.
    pub unit: usize,
    pub per_word: usize,
    /// Elements of a pack, and packs of a run.
    pub per_pack: usize,
    pub packs: usize,
}

impl Lanes<'_> {
    /// Lanes along a run as a power of two, cycles of a warp's packs, and the part of the lanes that have one.
    pub fn best(&self) -> (u32, f64, f64) {
        let runs: usize = self.outs.iter().map(|level| level.0).product();
        let of = |log: u32| {
            let along = 1usize << log;
            let across = 32 >> log;
            let busy = (self.packs * runs) as f64
                / (self.packs.next_multiple_of(along) * runs.next_multiple_of(across)) as f64;
            // A store takes a cycle for each line that it touches, and four for its bytes.
            let lines = (16 * along).div_ceil(128).max(1) * across.min(runs);
            let loads = (self.per_pack * self.conflicts(along)) as f64 / self.per_word as f64;
            let cycles = loads + lines.max(4) as f64;
            (log, cycles, busy)
        };
        let cost = |&(_, cycles, busy): &(u32, f64, f64)| cycles / busy;
        let all = (0..=5).rev().map(of);
        all.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or((5, f64::MAX, 1.0))
    }

    /// Cycles of a load of the warp: the most words that it wants of a bank.
    fn conflicts(&self, along: usize) -> usize {
        let place = |levels: &[(usize, usize)], number: usize| {
            let mut rest = number;
            levels.iter().enumerate().fold(0, |at, (i, &(count, step))| {
                let digit = if i + 1 < levels.len() { rest % count } else { rest };
                rest /= count;
                at + digit * step
            })
        };
        let mut words: Vec<usize> = Vec::new();
        for lane in 0..32 {
            let number = (lane % along).min(self.packs - 1) * self.per_pack;
            let at = place(self.within, number);
            let at = at + place(self.outs, lane / along);
            for word in 0..self.unit.div_ceil(4) {
                words.push(at / 4 + word);
            }
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = [0usize; 32];
        words.iter().for_each(|word| banks[word % 32] += 1);
        banks.into_iter().max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs of four words of four bytes, `step` bytes apart, in one long run.
    fn lanes(within: &[(usize, usize)]) -> Lanes<'_> {
        Lanes { within, outs: &[(1, 0)], unit: 4, per_word: 1, per_pack: 4, packs: 1024 }
    }

    #[test]
    fn words_of_one_bank_are_read_one_after_another() {
        // Packs whose first words are neighbours in shared memory, 128 bytes apart, and one word further each.
        for (step, cycles) in [(1, 1), (32, 32), (33, 4)] {
            let place = [(4096, 4 * step)];
            let of = Lanes { per_pack: 1, ..lanes(&place) };
            let expected = if step == 33 { 1 } else { cycles };
            assert_eq!(of.conflicts(32), expected, "{step} words");
        }
    }

    #[test]
    fn lanes_go_along_long_runs_and_across_short_ones() {
        let place = [(4096, 4)];
        assert_eq!(lanes(&place).best().0, 5);
        let (log, _, busy) = Lanes { outs: &[(1024, 20)], packs: 1, ..lanes(&place) }.best();
        assert_eq!((log, busy), (0, 1.0));
    }
}
