//! The model of the time that a product takes.
//!
//! A kernel's blocks run in waves. A full wave takes as long as a multiprocessor's blocks take at the instance's
//! rate; the last one as long as its fullest multiprocessor takes, but not less than a single block alone, which waits
//! for its own latencies. No product takes less than its bytes take. Splitting k makes more blocks of less work, and
//! costs a second launch that reads the partial sums. Blocks that stay for several tiles take rounds instead of waves,
//! and fill their pipelines once. Rates are measured, on an H200.

use super::plan::{Choice, Plan, Request, Side, Target};
use super::tiles::{Cluster, Pace, Stay, Tile};

/// Terms of a split are a multiple of every kernel's depth.
const DEPTH: usize = 64;
/// Most bytes of partial sums.
const MOST_PARTIALS: usize = 64 << 20;
/// Microseconds that a launch takes by itself.
const LAUNCH: f64 = 2.0;
/// Microseconds from the start of a block to its first product, and from its last to its end.
const FILL: f64 = 2.5;
/// What that is at least for each 1024 sums of a block of `tf32_cores`.
const TF32_END: f64 = 0.6;
/// How much longer a block takes alone on a multiprocessor than its share of a full one's work.
const ALONE: f64 = 1.4;
/// Bytes in a nanosecond from memory, for a whole GPU, and of partial sums, which lie in L2.
const MEMORY: f64 = 3800.0;
const CACHE: f64 = 5000.0;
/// The part of the shorter of products and bytes that the longer does not hide.
const NOT_HIDDEN: f64 = 0.15;
/// And on Hopper, and more: bytes that take long are far away.
const HOPPER_BOTH: f64 = 1.22;
/// Microseconds that a launch of `pipelined` takes by itself.
const HOPPER_LAUNCH: f64 = 1.52;
/// How much longer it takes to finish a tile where results are no whole packs; the same of `parted`.
const RAGGED_END: f64 = 8.9;
const RAGGED_PARTED: f64 = 5.0;
/// How much longer it takes to finish a tile of partial sums, which are of twice the bytes and not copied in passing.
const PARTIAL_END: f64 = 1.79;
/// Microseconds to add them up, and to copy an operand, beyond their bytes.
const REDUCE: f64 = 2.23;
const COPY: f64 = 3.54;
/// Longer kernels are not started early: it gains 0.4 µs, and takes more than that where blocks come to lie unevenly.
const EARLY: f64 = 20.0;

impl Tile {
    /// Whether a block has its shared memory: of a multiprocessor's, 1 KB is not to be had.
    pub(super) fn fits(&self, target: Target) -> bool {
        self.shared_bytes + 1024 <= target.shared_bytes
    }

    /// `None` for splits without terms, and for partial sums that take too much memory.
    pub(super) fn plan(&self, request: &Request, target: Target, splits: usize) -> Option<Plan> {
        let Request { m, n, k, batch, dtype, sides, .. } = *request;
        let k_of_split = k.div_ceil(splits).next_multiple_of(DEPTH).max(DEPTH);
        let clustered = matches!(self.pace, Pace::Clusters(_));
        let partials =
            if splits > 1 && !clustered { splits * batch * m * n.next_multiple_of(4) * 4 } else { 0 };
        if k.div_ceil(k_of_split).max(1) != splits || partials > MOST_PARTIALS {
            return None;
        }
        let tiles = [m.div_ceil(self.rows as usize), n.div_ceil(self.cols as usize)];
        let blocks = (tiles[0] * tiles[1] * splits * batch) as f64;
        let fitting = target.shared_bytes.checked_div(self.shared_bytes).unwrap_or(self.resident);
        let resident = f64::from(self.resident.min(fitting).max(1));
        let sms = f64::from(target.sms);
        // Of one block, at its share of a multiprocessor's rate.
        let work = f64::from(self.rows) * f64::from(self.cols) * k_of_split.min(k) as f64 / self.rate / 1e3;
        let (turns, rounds) = (k_of_split.min(k).div_ceil(DEPTH) as f64, (blocks / sms).ceil());
        let compute = match self.pace {
            Pace::Clusters(cluster) => {
                if !splits.is_power_of_two() {
                    return None;
                }
                let [alone, among] = cluster.stage;
                let parts = splits as f64;
                (turns * alone).max(rounds * turns * among)
                    + rounds * cluster.end / parts
                    + cluster.part * (parts - 1.0)
            }
            Pace::Parted(_, Stay { stage, end }) => {
                let longer = if splits > 1 || n.is_multiple_of(4) { 1.0 } else { RAGGED_PARTED };
                rounds * (turns * stage + end * longer)
            }
            Pace::Staying(Stay { stage, end }) => {
                let longer = match n.is_multiple_of(16 / dtype.size()) {
                    _ if splits > 1 => PARTIAL_END,
                    true => 1.0,
                    false => RAGGED_END,
                };
                rounds * (turns * stage + end * longer)
            }
            Pace::Waves => {
                let waves = (blocks / (sms * resident)).floor();
                let rest = blocks - waves * sms * resident;
                let even = (rest / sms).ceil();
                // Blocks of a last wave go where the first of the wave before it end, several to one multiprocessor. The rates
                // of kernels for 16 bits are of times before that was known.
                let (rest, fill) = match self.choice {
                    Choice::Tf32Cores { .. } => {
                        let sums = f64::from(self.rows * self.cols) / 1024.0;
                        (if waves > 0.0 { rest.min(resident) } else { even }, FILL.max(TF32_END * sums))
                    }
                    _ => (even, FILL),
                };
                // An instance whose blocks are alone has been measured alone.
                let last = if rest > 0.0 { (rest * work).max(work * ALONE.min(resident)) } else { 0.0 };
                waves * (resident * work + fill) + last + if rest > 0.0 { fill } else { 0.0 }
            }
        };
        let bytes = (batch * (m * k + n * k + m * n) * dtype.size()) as f64 / MEMORY / 1e3;
        let (launch, both, reduce, copy) = match self.pace {
            Pace::Waves => (LAUNCH, NOT_HIDDEN, LAUNCH, LAUNCH),
            Pace::Staying(_) => (HOPPER_LAUNCH, HOPPER_BOTH, REDUCE, COPY),
            Pace::Parted(..) => (HOPPER_LAUNCH, 0.0, REDUCE, 0.0),
            Pace::Clusters(Cluster { once, .. }) => (once, HOPPER_BOTH, REDUCE, COPY),
        };
        let reduce = if partials > 0 { reduce + 2.0 * partials as f64 / CACHE / 1e3 } else { 0.0 };
        // These read operands as they lie.
        let any =
            matches!(self.choice, Choice::CudaCores { .. } | Choice::Loose { .. } | Choice::Parted { .. });
        let copied = |side: &Side| side.copied && !any;
        let sides = sides.map(|side| Side { copied: copied(&side), ..side });
        // Bytes of a number that are written before the product.
        let written = |side: &Side| match self.pace {
            Pace::Parted(parts, _) => 2 * parts as usize,
            _ if side.copied => dtype.size(),
            _ => 0,
        };
        let copies: f64 = [m, n]
            .into_iter()
            .zip(sides.iter().map(written))
            .filter(|&(_, written)| written > 0)
            .map(|(rows, written)| copy + (batch * rows * k * (dtype.size() + written)) as f64 / MEMORY / 1e3)
            .sum();
        let microseconds = launch + compute.max(bytes) + both * compute.min(bytes) + reduce + copies;
        let on_hopper = !matches!(self.pace, Pace::Waves);
        Some(Plan {
            choice: self.choice,
            sides,
            tile: [self.rows, self.cols],
            tiles,
            splits,
            k_of_split,
            shared_bytes: self.shared_bytes,
            most_blocks: if matches!(self.pace, Pace::Staying(_) | Pace::Parted(..)) {
                target.sms.into()
            } else {
                u64::MAX
            },
            early: on_hopper && microseconds < EARLY,
            microseconds,
            measured: false,
        })
    }
}
