//! What the blocks of a product take, and the launch that adds up parts of sums behind them.

use kernels_gpu::matmul::SMALL_STEP_BYTES;

use super::lines::{lines, lookups};
use super::{DEPTH, LAUNCH, Launch, MEMORY, product};
use crate::ops::matmul::choice::Choice;
use crate::ops::matmul::layout::LINE;
use crate::ops::matmul::leaving::scatters;
use crate::ops::matmul::pace::{Alone, Alternate, Cluster, Pace, Part, Read, Stay, Stream, Sweep};
use crate::ops::matmul::request::Request;

/// Microseconds from the start of a block to its first product, and from its last to its end.
const FILL: f64 = 2.5;
/// The same of `tf32_cores`: of a launch, for each 1024 sums of a block, and at least where other blocks follow.
const TF32_LAUNCH: f64 = 1.7;
const TF32_END: f64 = 0.83;
const TF32_WAVE: f64 = 2.0;
/// Terms that it multiplies at least, zeros behind the last among them.
const TF32_STAGE: usize = 32;
/// Of `cuda_cores`, for each 1024 sums of a wave's blocks on a multiprocessor.
const CUDA_CORES_END: f64 = 0.27;
/// How much longer a block takes alone on a multiprocessor than its share of a full one's work.
const ALONE: f64 = 1.4;
/// Bytes in a nanosecond of partial sums, which lie in L2, for a whole GPU.
const CACHE: f64 = 5000.0;
/// The part of the shorter of products and bytes that the longer does not hide.
const NOT_HIDDEN: f64 = 0.15;
/// The same of bytes that are on their way to multiprocessors, where `narrow` does little but read.
const LESS_HIDDEN: f64 = 0.07;
/// Microseconds that a launch of `pipelined` takes by itself, and one of `parted`.
const PIPED_LAUNCH: f64 = 1.46;
const PARTED_LAUNCH: f64 = 2.0;
/// Microseconds of GELU, for each sum of a tile of `pipelined`, `turned` or `alternating`.
const GELU: f64 = 4e-5;
/// Microseconds that results of no whole packs take longer where something beside the sums is read, number by number: for each column of a tile of these, for each
/// row of one of `small`, and for each sum of one of `clustered` and `loose`.
const READ_BESIDE: f64 = 0.086;
const READ_BESIDE_BY_WARPS: f64 = 0.16;
const READ_BESIDE_BY_CLUSTERS: f64 = 3e-4;
/// Microseconds that results of no whole packs take longer, for each sum of a tile of these, where threads store them from shared memory.
const BY_THREADS: f64 = 5e-5;
/// How much longer it takes to finish a tile of `parted` where results are no whole packs.
const RAGGED_PARTED: f64 = 1.7;
/// Microseconds to add up parts of sums, beyond their bytes: those of `pipelined`, and those of `parted`.
const REDUCE: f64 = 3.15;
const REDUCE_PARTED: f64 = 2.4;
/// For each row of a tile of `narrow` that is a column of the result, and each wave of these.
const OF_COLUMNS: f64 = 0.06;
/// For each part, of which one thread adds up all: those of `thin`, which may be very many.
const OF_EACH: f64 = 0.03;
/// For each megabyte of operands and results, and for 1000 lines that come from L2: of `pipelined`, and of clusters.
const BYTES: [f64; 2] = [0.134, 0.121];
const LINES: [f64; 2] = [3.62e-3, 4.59e-3];
/// Tiles of each warp of `small` from which on they are not taken in rounds, and what the last of them wait for, in rounds.
const MANY_ROUNDS: f64 = 2.0;
const OF_LAST_ROUND: f64 = 0.4;
/// What tiles of one step take less where multiprocessors have hardly any, and up to which part of a round.
const OF_FEW_TILES: f64 = 0.8;
const FEW_TILES: f64 = 0.35;
/// From so many microseconds on a product is at the limit of the GPU's power, where tiles of 128×256 take so much longer than others.
const AT_THE_LIMIT: f64 = 600.0;
const OF_POWER: f64 = 1.03;
/// Clusters of so many blocks that fit for each multiprocessor: some are left over in each group of these.
const CLUSTERS: [f64; 4] = [1.0, 64.0 / 132.0, 30.0 / 132.0, 15.0 / 132.0];
/// The part of a full wave of blocks of `narrow` from which on multiprocessors have about as many each.
const EVEN: f64 = 0.9;

impl Launch<'_> {
    /// Terms of a block.
    fn terms(&self) -> usize {
        self.k_of_split.min(self.request.k)
    }

    /// Stages that they take: of lines along k, and of parts of 16 bits.
    pub(super) fn turns(&self) -> f64 {
        let depth = match self.tile.pace {
            Pace::Parted(_) => DEPTH,
            _ => LINE / self.request.dtype.size(),
        };
        self.terms().div_ceil(depth) as f64
    }

    fn sums_of_tile(&self) -> f64 {
        f64::from(self.tile.rows * self.tile.cols)
    }

    fn has_whole_packs(&self) -> bool {
        self.request.n.is_multiple_of(16 / self.request.dtype.size())
    }

    /// Blocks that find room at once.
    fn slots(&self) -> f64 {
        self.sms() * self.resident
    }

    /// Those of a last wave that is not full.
    fn rest(&self) -> f64 {
        self.blocks % self.slots()
    }

    /// Of clusters, where a multiprocessor has so many blocks of different ones.
    pub(super) fn waves_of_clusters(&self, abreast: f64) -> f64 {
        let fitting = (self.sms() * CLUSTERS[self.splits.ilog2() as usize]).max(1.0) * abreast;
        product([self.tiles[0], self.tiles[1], self.request.batch]) / fitting
    }

    /// Whether all multiprocessors have about as many blocks; where some have fewer, those of a launch that starts early come to lie unevenly.
    pub(super) fn comes_evenly(&self) -> bool {
        let rest = self.rest();
        self.blocks <= self.sms() || rest == 0.0 || rest > EVEN * self.slots()
    }

    /// Microseconds of the blocks and of the launch, without what comes before and behind it.
    pub(super) fn of_blocks(&self) -> f64 {
        let (compute, bytes) = (self.compute(), self.bytes());
        let in_memory = bytes / MEMORY / 1e3;
        match self.tile.pace {
            Pace::Waves(_) => {
                let launch =
                    if matches!(self.tile.choice, Choice::Tf32Cores { .. }) { TF32_LAUNCH } else { LAUNCH };
                launch + compute.max(in_memory) + NOT_HIDDEN * compute.min(in_memory)
            }
            Pace::Parted(_) => PARTED_LAUNCH + compute.max(in_memory),
            Pace::Streaming(stream) => self.streaming(stream, compute),
            Pace::Reading(Read { once, megabyte, .. }) | Pace::Sweeping(Sweep { once, megabyte, .. }) => {
                once + compute.max(megabyte * bytes / 1e6)
            }
            Pace::Alone(Alone { once, megabyte, .. }) => {
                once + compute + megabyte * bytes / 1e6 - self.spared_by_few_tiles()
            }
            Pace::Staying(_) | Pace::Alternating(_) => {
                let lines = lines(self.request, self.tiles);
                let of_blocks = compute + BYTES[0] * bytes / 1e6 + LINES[0] * lines / 1e3;
                if self.is_rounded() {
                    return PIPED_LAUNCH + of_blocks;
                }
                let is_hot = of_blocks > AT_THE_LIMIT && self.tile.cols == 256;
                let of_blocks = if is_hot { OF_POWER * of_blocks } else { of_blocks };
                PIPED_LAUNCH + of_blocks.max(lookups(lines, self.request, self.tiles))
            }
            Pace::Clusters(Cluster { once, .. }) => {
                // Threads that fetch take what they need of a line.
                let fetched = matches!(self.tile.choice, Choice::Loose { .. });
                let lines = if fetched { 0.0 } else { lines(self.request, self.tiles) };
                once + compute + BYTES[1] * bytes / 1e6 + LINES[1] * lines / 1e3
            }
        }
    }

    /// To add up the parts of sums.
    pub(super) fn reduce(&self) -> f64 {
        let read_again = 2.0 * self.partials / CACHE / 1e3;
        match self.tile.pace {
            _ if self.partials == 0.0 => 0.0,
            Pace::Reading(_) => LAUNCH + OF_EACH * self.splits as f64 + read_again,
            Pace::Waves(_) | Pace::Sweeping(_) | Pace::Alone(_) => LAUNCH + read_again,
            Pace::Parted(_) => REDUCE_PARTED + read_again,
            Pace::Staying(_) if self.is_rounded() => REDUCE + read_again,
            // What comes to be read is in L2, and the time of what is written is in a tile's.
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Clusters(_) | Pace::Streaming(_) => REDUCE,
        }
    }

    /// Of the operands and the result, once.
    fn bytes(&self) -> f64 {
        let Request { m, n, k, batch, dtype, .. } = *self.request;
        [[m, k], [n, k], [m, n]].map(product).iter().sum::<f64>() * product([batch, dtype.size()])
    }

    /// What multiprocessors do with what has come.
    fn compute(&self) -> f64 {
        let (turns, rounds) = (self.turns(), (self.blocks / self.sms()).ceil());
        let applied = if self.request.gelu { GELU * self.sums_of_tile() } else { 0.0 };
        let reads = if self.request.beside && !self.has_whole_packs() { 1.0 } else { 0.0 };
        match self.tile.pace {
            Pace::Clusters(Cluster { stage, end, meet, part, abreast, .. }) => {
                let parts = self.splits as f64;
                let meeting = if self.splits > 1 { meet + part * (parts - 1.0) } else { 0.0 };
                let end = end + reads * READ_BESIDE_BY_CLUSTERS * self.sums_of_tile();
                self.waves_of_clusters(abreast).ceil() * (turns * stage + end / parts + meeting)
            }
            Pace::Parted(Part { stage, end }) => {
                let whole = self.splits > 1 || self.request.n.is_multiple_of(4);
                rounds * (turns * stage + end * if whole { 1.0 } else { RAGGED_PARTED })
            }
            Pace::Staying(Stay { stage, end, ragged, partial }) => {
                let end = match self.has_whole_packs() {
                    _ if self.splits > 1 => partial,
                    true => end + applied,
                    false if scatters(self.tile.choice) && self.request.boxed => {
                        end + BY_THREADS * self.sums_of_tile()
                    }
                    false => ragged + reads * READ_BESIDE * f64::from(self.tile.cols),
                };
                rounds * (turns * stage + end)
            }
            Pace::Alternating(Alternate { stage, end }) => {
                let (products, end) = (turns * stage, end + applied);
                // A consumer has the time of two tiles for one.
                let period = products.max((products + end) / 2.0);
                (rounds - 1.0) * period + products + end
            }
            Pace::Reading(Read { term, round, .. }) => {
                (self.terms() as f64 * term).max((self.blocks / self.slots()).floor() * round)
            }
            Pace::Sweeping(Sweep { turn, .. }) => (self.blocks / self.slots()).ceil() * turn,
            Pace::Alone(Alone { tile, step, ragged, .. }) => {
                let rounds = self.rounds_of_warps();
                // Of many, warps take turns without waiting for others.
                let rounds = if rounds < MANY_ROUNDS { rounds.ceil() } else { rounds + OF_LAST_ROUND };
                let ragged = ragged + reads * READ_BESIDE_BY_WARPS * f64::from(self.tile.rows);
                rounds * (tile + self.steps() * step + if self.has_whole_packs() { 0.0 } else { ragged })
            }
            Pace::Streaming(stream) => self.waves_of_clusters(self.resident).ceil() * turns * stream.stage,
            Pace::Waves(rate) => self.in_waves(rate),
        }
    }

    /// In waves of blocks, and what is left of them.
    fn in_waves(&self, rate: f64) -> f64 {
        // Of one block, at its share of a multiprocessor's rate.
        let terms = match self.tile.choice {
            Choice::Tf32Cores { .. } => self.terms().max(TF32_STAGE),
            _ => self.terms(),
        };
        let sums = f64::from(self.tile.rows) * f64::from(self.tile.cols);
        let work = sums * terms as f64 / rate / 1e3;
        let waves = (self.blocks / self.slots()).floor();
        let even = (self.rest() / self.sms()).ceil();
        // Blocks of a last wave go where the first of the wave before it end, several to one multiprocessor. The rates
        // of kernels for 16 bits are of times before that was known.
        let (rest, fill, of_wave) = match self.tile.choice {
            Choice::Tf32Cores { .. } => {
                let end = TF32_END * self.sums_of_tile() / 1024.0;
                let rest = if waves > 0.0 { self.rest().min(self.resident) } else { even };
                (rest, end, end.max(TF32_WAVE))
            }
            Choice::CudaCores { .. } => {
                let end = CUDA_CORES_END * self.sums_of_tile() / 1024.0;
                (even, FILL.max(even * end), FILL.max(self.resident * end))
            }
            _ => (even, FILL, FILL),
        };
        // An instance whose blocks are alone has been measured alone.
        let last = if rest > 0.0 { (rest * work).max(work * ALONE.min(self.resident)) } else { 0.0 };
        waves * (self.resident * work + of_wave) + last + if rest > 0.0 { fill } else { 0.0 }
    }

    /// Of `narrow`, whose blocks wait for memory or for what multiprocessors take in.
    fn streaming(&self, stream: Stream, compute: f64) -> f64 {
        let of_stage = LINE * (self.tile.rows + self.tile.cols) as usize;
        let of_stages = self.blocks * self.turns() * of_stage as f64;
        let memory = stream.megabyte * self.bytes() / 1e6;
        let taken = stream.intake * of_stages / self.blocks.min(self.sms()) / 1e6;
        let read = compute.max(memory).max(taken) + LESS_HIDDEN * memory.min(taken);
        let waves = self.waves_of_clusters(self.resident);
        let alone = if !self.comes_evenly() || 2.0 * waves > 1.0 { stream.alone } else { 0.0 };
        let meeting = f64::from(self.splits.ilog2()) * stream.meet;
        let turned = if self.request.by_columns { OF_COLUMNS * f64::from(self.tile.rows) } else { 0.0 };
        stream.once + alone + (waves.ceil() - 1.0) * stream.round + waves.ceil() * turned + meeting + read
    }

    /// Tiles of each warp of `small`.
    fn rounds_of_warps(&self) -> f64 {
        self.blocks / f64::from(self.tile.abreast()) / self.slots()
    }

    /// Steps of a tile of `small`.
    fn steps(&self) -> f64 {
        (self.request.k * self.request.dtype.size()).div_ceil(SMALL_STEP_BYTES as usize) as f64
    }

    /// What few tiles of one step take less: all of a warp's loads are under way at once, and hardly any others.
    fn spared_by_few_tiles(&self) -> f64 {
        let busy = self.rounds_of_warps() / FEW_TILES;
        if self.steps() <= 1.0 { OF_FEW_TILES * (1.0 - busy).max(0.0) } else { 0.0 }
    }
}
