//! The model of the time that a product takes.
//!
//! A kernel's blocks run in waves. A full wave takes as long as a multiprocessor's blocks take at the instance's
//! rate; the last one as long as its fullest multiprocessor takes, but not less than a single block alone, which waits
//! for its own latencies. No product takes less than its bytes take. Splitting k makes more blocks of less work, and
//! costs a second launch that reads the partial sums. Blocks that stay for several tiles take rounds instead of waves,
//! and fill their pipelines once. Rates are measured, on an H200.
//!
//! On Hopper 16-bit products take the sum of what their blocks take, of what their bytes take and of what L2 takes to look up the lines of
//! 128 bytes that tiles are made of: two for a row of a stage that lies across lines, as all may where rows begin anywhere. It looks up no more than
//! so many in a time; where that is what a product waits for, operands are worth a copy whose lines begin at lines of L2.

use kernels_gpu::matmul::{self as kernels, PARTS};

use super::layout::{LINE, pitch};
use super::pace::{Alone, Alternate, Cluster, Pace, Part, Read, Stay, Sweep};
use super::plan::{Choice, Plan, Request, Side, Target};
use super::tiles::Tile;
use crate::cuda::shared::{blocks_that_fit, more_than};
use crate::dtype::DType;

/// Terms of a split are a multiple of every kernel's depth; this is that of the kernels for 16 bits and for parts.
const DEPTH: usize = 64;
/// Most bytes of partial sums.
const MOST_PARTIALS: f64 = (64 << 20) as f64;
/// Microseconds that a launch takes by itself.
const LAUNCH: f64 = 2.0;
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
/// Bytes in a nanosecond from memory, for a whole GPU, and of partial sums, which lie in L2.
const MEMORY: f64 = 3800.0;
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
/// To take an operand apart, and for each megabyte that is read and written: of lines that begin at multiples of 16 bytes, and of others.
const PARTING: f64 = 0.4;
/// On an H100; of the first it is memory's time.
const PARTED_MEGABYTE: [f64; 2] = [0.42, 0.70];
/// That GPU's [`Target::memory`].
pub(super) const H100_MEMORY: f64 = 3352.0;
/// To copy operands of 16-bit products on Hopper, one or both, and for each megabyte that is read and written.
const COPY: f64 = 1.6;
const COPIED: f64 = 0.302;
/// To transpose an operand of f32 there, instead.
const TRANSPOSE: f64 = 2.34;
/// For each megabyte of operands and results there, and for 1000 lines that come from L2: of `pipelined`, and of clusters.
const BYTES: [f64; 2] = [0.134, 0.121];
const LINES: [f64; 2] = [3.62e-3, 4.59e-3];
/// Lines that L2 looks up in a microsecond, where rows lie across them, and where all begin at one.
const LOOKUPS: f64 = 68e3;
const WHOLE_LOOKUPS: f64 = 85e3;
/// Tiles of each warp of `small` from which on they are not taken in rounds, and what the last of them wait for, in rounds.
const MANY_ROUNDS: f64 = 2.0;
const OF_LAST_ROUND: f64 = 0.4;
/// What tiles of one step take less where multiprocessors have hardly any, and up to which part of a round.
const OF_FEW_TILES: f64 = 0.8;
const FEW_TILES: f64 = 0.35;
/// What clusters wait for until there is room for all of their blocks beside those of copies.
const OF_ROOM: f64 = 0.35;
/// From so many microseconds on a product is at the limit of the GPU's power, where tiles of 128×256 take so much longer than others.
const AT_THE_LIMIT: f64 = 600.0;
const OF_POWER: f64 = 1.03;
/// Clusters of so many blocks that fit for each multiprocessor: some are left over in each group of these.
const CLUSTERS: [f64; 4] = [1.0, 64.0 / 132.0, 30.0 / 132.0, 15.0 / 132.0];
/// Longer kernels, but those that do little but read, are not started early: it gains 0.3 µs, and takes more than that where blocks come to lie unevenly.
const EARLY: f64 = 20.0;

/// The part of a full wave of blocks of `narrow` from which on multiprocessors have about as many each.
const EVEN: f64 = 0.9;

/// Stages of all blocks up to which a launch asks for lines of b ahead of time, and tiles that always do. It gains 0.1 to 0.5 µs where the
/// first bytes are what is waited for; where many blocks have many stages it loses as much.
const ASKING: f64 = 512.0;
const ALWAYS_ASKING: [u32; 2] = [128, 64];

impl Tile {
    /// The request as it is, and with operands copied first that could be read as they lie, but for which L2 would look up more lines than for a copy
    /// for longer than copying takes.
    pub(super) fn with_copies(&self, request: &Request) -> impl Iterator<Item = Request> {
        let Request { m, n, k, batch, dtype, .. } = *request;
        let with = move |copies: [bool; 2]| {
            let mut request = *request;
            request.sides.iter_mut().zip(copies).for_each(|(side, copy)| side.copied |= copy);
            request
        };
        let tiles = self.tiles(request);
        let pays = [(m, [true, false]), (n, [false, true])].map(|(rows, copies)| {
            let spared = (lines(request, tiles) - lines(&with(copies), tiles)) / LOOKUPS;
            let megabytes = product([batch, rows, k, 2 * dtype.size()]) / 1e6;
            let through_lines = matches!(
                self.choice,
                Choice::Pipelined { .. } | Choice::Turned { .. } | Choice::Alternating { .. }
            );
            through_lines && spared > COPY + COPIED * megabytes
        });
        let all = [[false, false], [true, false], [false, true], [true, true]];
        all.into_iter().filter(move |copies| (0..2).all(|i| !copies[i] || pays[i])).map(with)
    }

    /// Of a product, down and across.
    fn tiles(&self, request: &Request) -> [usize; 2] {
        [request.m.div_ceil(self.rows as usize), request.n.div_ceil(self.cols as usize)]
    }

    /// How many blocks a multiprocessor is to have room for, where fewer than fit. Those that begin while the blocks ahead of them end come to lie several on one
    /// multiprocessor and none on others, if they can. But what follows a launch of the same kind begins earlier where its blocks find room beside those.
    ///
    /// The launch has so many waves of clusters that are alone on their multiprocessors, and so many blocks for each multiprocessor.
    fn spread(&self, waves_of_clusters: f64, blocks: f64, copied: bool) -> Option<u32> {
        let half = if copied { 1.0 } else { 0.5 };
        match self.pace {
            Pace::Clusters(_) => (waves_of_clusters <= 1.0).then_some(1),
            Pace::Streaming(_) => (waves_of_clusters <= half).then_some(1),
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Reading(_) => (blocks <= half).then_some(1),
            Pace::Waves => Some(blocks.ceil().max(1.0) as u32).filter(|&of_each| of_each < self.resident),
            Pace::Parted(_) | Pace::Sweeping(_) | Pace::Alone(_) => None,
        }
    }

    /// Whether a block has its shared memory.
    pub(super) fn fits(&self, target: Target) -> bool {
        blocks_that_fit(target.shared_bytes, self.shared_bytes) > 0
    }

    /// `None` for splits without terms, and for partial sums that take too much memory.
    pub(super) fn plan(&self, request: &Request, target: Target, splits: usize) -> Option<Plan> {
        let Request { m, n, k, batch, dtype, sides, .. } = *request;
        let k_of_split = k.div_ceil(splits).next_multiple_of(DEPTH).max(DEPTH);
        let clustered = self.choice.is_clustered();
        let partials = if splits > 1 && !clustered {
            let [rows, cols] = if request.by_columns { [n, m] } else { [m, n] };
            product([splits, batch, rows, cols.next_multiple_of(4), size_of::<f32>()])
        } else {
            0.0
        };
        if k.div_ceil(k_of_split).max(1) != splits || partials > MOST_PARTIALS {
            return None;
        }
        if clustered && !splits.is_power_of_two() {
            return None;
        }
        let tiles = self.tiles(request);
        let blocks = product([tiles[0], tiles[1], splits, batch]);
        let fitting = target.shared_bytes.checked_div(self.shared_bytes).unwrap_or(self.resident);
        let resident = f64::from(self.resident.min(fitting).max(1));
        let sms = f64::from(target.sms);
        // Of one block, at its share of a multiprocessor's rate.
        let terms = match self.choice {
            Choice::Tf32Cores { .. } => k_of_split.min(k).max(TF32_STAGE),
            _ => k_of_split.min(k),
        };
        let work = f64::from(self.rows) * f64::from(self.cols) * terms as f64 / self.rate / 1e3;
        let rounded = matches!(self.choice, Choice::Tf32Pipelined { .. });
        // Stages are of lines along k, and of parts of 16 bits.
        let depth = if matches!(self.pace, Pace::Parted(_)) { DEPTH } else { LINE / dtype.size() };
        let (turns, rounds) = (k_of_split.min(k).div_ceil(depth) as f64, (blocks / sms).ceil());
        let applied = if request.gelu { GELU * f64::from(self.rows * self.cols) } else { 0.0 };
        let by_threads = BY_THREADS * f64::from(self.rows * self.cols);
        // Of as many blocks as parts, where a multiprocessor has so many of different ones.
        let waves_of_clusters = |abreast: f64| {
            let fitting = (sms * CLUSTERS[splits.ilog2() as usize]).max(1.0) * abreast;
            product([tiles[0], tiles[1], batch]) / fitting
        };
        // Blocks that find room at once, and those of a last wave that is not full.
        let slots = sms * resident;
        let rest = blocks % slots;
        // Where some multiprocessors have fewer blocks than others, those of a launch that starts early come to lie unevenly.
        let comes_evenly = blocks <= sms || rest == 0.0 || rest > EVEN * slots;
        let compute = match self.pace {
            Pace::Clusters(cluster) => {
                let Cluster { stage, end, meet, part, abreast, .. } = cluster;
                let rounds = waves_of_clusters(abreast).ceil();
                let parts = splits as f64;
                let meeting = if splits > 1 { meet + part * (parts - 1.0) } else { 0.0 };
                rounds * (turns * stage + end / parts + meeting)
            }
            Pace::Parted(Part { stage, end }) => {
                let longer = if splits > 1 || n.is_multiple_of(4) { 1.0 } else { RAGGED_PARTED };
                rounds * (turns * stage + end * longer)
            }
            Pace::Staying(Stay { stage, end, ragged, partial }) => {
                let end = match n.is_multiple_of(16 / dtype.size()) {
                    _ if splits > 1 => partial,
                    true => end + applied,
                    false if self.scatters && request.boxed => end + by_threads,
                    false => ragged,
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
                (k_of_split.min(k) as f64 * term).max((blocks / slots).floor() * round)
            }
            Pace::Sweeping(Sweep { turn, .. }) => (blocks / slots).ceil() * turn,
            Pace::Alone(Alone { tile, step, ragged, .. }) => {
                let rounds = blocks / f64::from(self.abreast) / slots;
                // Of many, warps take turns without waiting for others.
                let rounds = if rounds < MANY_ROUNDS { rounds.ceil() } else { rounds + OF_LAST_ROUND };
                let steps = (k * dtype.size()).div_ceil(kernels::SMALL_STEP_BYTES as usize) as f64;
                let whole = n.is_multiple_of(16 / dtype.size());
                rounds * (tile + steps * step + if whole { 0.0 } else { ragged })
            }
            Pace::Streaming(stream) => waves_of_clusters(resident).ceil() * turns * stream.stage,
            Pace::Waves => {
                let waves = (blocks / slots).floor();
                let even = (rest / sms).ceil();
                // Blocks of a last wave go where the first of the wave before it end, several to one multiprocessor. The rates
                // of kernels for 16 bits are of times before that was known.
                let (rest, fill, of_wave) = match self.choice {
                    Choice::Tf32Cores { .. } => {
                        let end = TF32_END * f64::from(self.rows * self.cols) / 1024.0;
                        (if waves > 0.0 { rest.min(resident) } else { even }, end, end.max(TF32_WAVE))
                    }
                    Choice::CudaCores { .. } => {
                        let end = CUDA_CORES_END * f64::from(self.rows * self.cols) / 1024.0;
                        (even, FILL.max(even * end), FILL.max(resident * end))
                    }
                    _ => (even, FILL, FILL),
                };
                // An instance whose blocks are alone has been measured alone.
                let last = if rest > 0.0 { (rest * work).max(work * ALONE.min(resident)) } else { 0.0 };
                waves * (resident * work + of_wave) + last + if rest > 0.0 { fill } else { 0.0 }
            }
        };
        let bytes =
            [[m, k], [n, k], [m, n]].map(product).iter().sum::<f64>() * product([batch, dtype.size()]);
        let in_memory = bytes / MEMORY / 1e3;
        let of_blocks = match self.pace {
            Pace::Waves => {
                let launch =
                    if matches!(self.choice, Choice::Tf32Cores { .. }) { TF32_LAUNCH } else { LAUNCH };
                launch + compute.max(in_memory) + NOT_HIDDEN * compute.min(in_memory)
            }
            Pace::Parted(_) => PARTED_LAUNCH + compute.max(in_memory),
            Pace::Streaming(stream) => {
                let of_stage = LINE * (self.rows + self.cols) as usize;
                let of_stages = blocks * turns * of_stage as f64;
                let memory = stream.megabyte * bytes / 1e6;
                let taken = stream.intake * of_stages / blocks.min(sms) / 1e6;
                let read = compute.max(memory).max(taken) + LESS_HIDDEN * memory.min(taken);
                let waves = waves_of_clusters(resident);
                let alone = if !comes_evenly || 2.0 * waves > 1.0 { stream.alone } else { 0.0 };
                let meeting = f64::from(splits.ilog2()) * stream.meet;
                let turned = if request.by_columns { OF_COLUMNS * f64::from(self.rows) } else { 0.0 };
                stream.once
                    + alone
                    + (waves.ceil() - 1.0) * stream.round
                    + waves.ceil() * turned
                    + meeting
                    + read
            }
            Pace::Reading(Read { once, megabyte, .. }) | Pace::Sweeping(Sweep { once, megabyte, .. }) => {
                once + compute.max(megabyte * bytes / 1e6)
            }
            Pace::Alone(Alone { once, megabyte, .. }) => {
                // All of a warp's loads are under way at once, and hardly any others.
                let is_one_step = k * dtype.size() <= kernels::SMALL_STEP_BYTES as usize;
                let busy = blocks / f64::from(self.abreast) / slots / FEW_TILES;
                let spared = if is_one_step { OF_FEW_TILES * (1.0 - busy).max(0.0) } else { 0.0 };
                once + compute + megabyte * bytes / 1e6 - spared
            }
            Pace::Staying(_) | Pace::Alternating(_) => {
                let lines = lines(request, tiles);
                let of_blocks = compute + BYTES[0] * bytes / 1e6 + LINES[0] * lines / 1e3;
                let whole = lines <= self::lines(&Request { begins: [LINE; 2], ..*request }, tiles);
                let rate = if whole { WHOLE_LOOKUPS } else { LOOKUPS };
                let is_hot = of_blocks > AT_THE_LIMIT && self.cols == 256 && !rounded;
                let of_blocks = if is_hot { OF_POWER * of_blocks } else { of_blocks };
                PIPED_LAUNCH + if rounded { of_blocks } else { of_blocks.max(lines / rate) }
            }
            Pace::Clusters(Cluster { once, .. }) => {
                // Threads that fetch take what they need of a line.
                let fetched = matches!(self.choice, Choice::Loose { .. });
                let lines = if fetched { 0.0 } else { lines(request, tiles) };
                once + compute + BYTES[1] * bytes / 1e6 + LINES[1] * lines / 1e3
            }
        };
        let read_again = 2.0 * partials / CACHE / 1e3;
        let reduce = match self.pace {
            _ if partials == 0.0 => 0.0,
            Pace::Reading(_) => LAUNCH + OF_EACH * splits as f64 + read_again,
            Pace::Waves | Pace::Sweeping(_) | Pace::Alone(_) => LAUNCH + read_again,
            Pace::Parted(_) => REDUCE_PARTED + read_again,
            Pace::Staying(_) if rounded => REDUCE + read_again,
            // What comes to be read is in L2, and the time of what is written is in a tile's.
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Clusters(_) | Pace::Streaming(_) => REDUCE,
        };
        let any = self.choice.reads_any();
        let is_transposed = |side: &Side| rounded && !side.along_k;
        let transposed = sides.iter().filter(|side| is_transposed(side)).count() as f64;
        let sides = sides.map(|side| Side {
            along_k: side.along_k || rounded,
            copied: side.copied && !any || is_transposed(&side),
        });
        // Bytes of a number that are written before the product.
        let written = |side: &Side| match self.pace {
            Pace::Parted(_) => 2 * PARTS,
            _ if side.copied => dtype.size(),
            _ => 0,
        };
        let [aligned, ragged] = PARTED_MEGABYTE;
        let (copy, copied) = match self.pace {
            Pace::Waves | Pace::Reading(_) | Pace::Sweeping(_) | Pace::Alone(_) => {
                (LAUNCH, [1e3 / MEMORY; 2])
            }
            Pace::Streaming(_) if dtype == DType::F32 => (LAUNCH, [1e3 / MEMORY; 2]),
            Pace::Parted(_) => (PARTING, [aligned * H100_MEMORY / target.memory, ragged]),
            Pace::Staying(_) | Pace::Alternating(_) | Pace::Clusters(_) | Pace::Streaming(_) => {
                (COPY, [COPIED; 2])
            }
        };
        let (count, copying) = (0..2)
            .map(|i| (i, [m, n][i], written(&sides[i])))
            .filter(|&(_, _, written)| written > 0)
            .map(|(i, rows, written)| {
                let megabytes = product([batch, rows, k, dtype.size() + written]) / 1e6;
                copied[usize::from(request.begins[i] < 16)] * megabytes
            })
            .fold((0.0f64, 0.0), |(count, all), of_side| (count + 1.0, all + of_side));
        // Both are copied by one launch, and taken apart or transposed by one each.
        let launches =
            if matches!(self.pace, Pace::Parted(_)) { count } else { (count - transposed).min(1.0) };
        let copies = copy * launches + TRANSPOSE * transposed + copying;
        let copied = launches > 0.0;
        let waves = if clustered { waves_of_clusters(1.0) } else { 0.0 };
        let spread = self.spread(waves, blocks / sms, copied);
        let shared_bytes = spread.map_or(self.shared_bytes, |of_each| {
            self.shared_bytes.max(more_than(target.shared_bytes / (of_each + 1)))
        });
        let of_room = if clustered && splits > 1 && copied { OF_ROOM } else { 0.0 };
        let microseconds = of_blocks + reduce + copies + of_room;
        let early = match self.pace {
            Pace::Streaming(_) => comes_evenly,
            _ => microseconds < EARLY,
        };
        Some(Plan {
            choice: self.choice,
            sides,
            by_columns: request.by_columns,
            tile: [self.rows, self.cols],
            tiles,
            splits,
            k_of_split,
            shared_bytes,
            most_blocks: if matches!(
                self.pace,
                Pace::Staying(_)
                    | Pace::Alternating(_)
                    | Pace::Parted(_)
                    | Pace::Sweeping(_)
                    | Pace::Alone(_)
            ) {
                u64::from(target.sms) * resident as u64
            } else {
                u64::MAX
            },
            abreast: self.abreast,
            early,
            beside_copies: dtype != DType::F32 || spread.is_some(),
            asks: microseconds < EARLY
                && !matches!(self.pace, Pace::Streaming(_))
                && (blocks * turns <= ASKING || [self.rows, self.cols] == ALWAYS_ASKING),
            microseconds,
            measured: false,
        })
    }
}

/// Of extents, which may be more than an integer holds.
fn product<const N: usize>(extents: [usize; N]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}

/// Lines of L2 that are looked up for the tiles' stages.
fn lines(request: &Request, tiles: [usize; 2]) -> f64 {
    let Request { m, n, k, batch, dtype, sides, begins, .. } = *request;
    let of_side = |i: usize, rows: usize, times: usize| {
        let begins = match sides[i] {
            Side { copied: true, along_k } => {
                let bytes = pitch(if along_k { k } else { rows }, dtype) * dtype.size();
                1 << bytes.trailing_zeros().min(LINE.trailing_zeros())
            }
            _ => begins[i],
        };
        // Rows of a stage begin at multiples of this within a line, and at all of them alike often.
        let across = 2.0 - begins as f64 / LINE as f64;
        product([rows, times, k.div_ceil(LINE / dtype.size())]) * across
    };
    batch as f64 * (of_side(0, m, tiles[1]) + of_side(1, n, tiles[0]))
}
