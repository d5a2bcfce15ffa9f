//! How a layer's sequence is gone about: one launch for all steps, or launches for each.

use std::fmt;

use super::Kind;
use super::forms::{Clustered, Held, Spread, SpreadBack, fused_forms};
use super::problem::Problem;
use super::tiling::{Tiling, padded};
use crate::count::Count;
use crate::device::Device;
use crate::dtype::DType;
use kernels_gpu::recurrent::{
    CHUNK, CHUNK_WORDS, CLUSTERED_UNITS, COLUMNS, FUSED_UNITS, FusedForm, TERMS, UNITS_BACK, WORDS,
};

/// A way of running a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One launch for all steps, with all recurrent weights in the registers of each block.
    Block,
    /// One launch for all steps, with the recurrent weights spread over the blocks of a cluster, which give one another h through shared memory: of 16 bits and few
    /// units and rows, on Hopper.
    Clustered,
    /// One launch for all steps and the input's product, with both weights on chip, spread over several blocks, which wait for one another: of
    /// 16 bits and few rows.
    Fused,
    /// One launch for all steps, with the recurrent weights on chip, spread over several blocks, which wait for one another.
    Persistent,
    /// One launch for all steps of a gradient, with recurrent weights of which shared memory holds some and the others are streamed, by blocks that wait for
    /// one another: of 16 bits, units in fours, and up to 64 rows, on Hopper. Forward the same as `Streamed`.
    StreamedWalk,
    /// For each step a product with weights that were taken apart for all steps, and the gates, one launch behind the other's start: on
    /// Hopper.
    Streamed,
    /// For each step a product and the gates.
    Steps,
}

/// Bytes of an exchange, about: to poison them takes some microseconds.
const EXCHANGE_BYTES: usize = 32 << 20;
/// The least and the most slots that are used again, powers of two: the fence of each quarter should cost little.
const SLOTS: [usize; 2] = [16, 256];
/// Sub-batches of a group beyond which a large product for each step is the better use of the machine.
const MOST_SUBS: usize = 16;
/// Rows of the batch beyond which each product takes its weights apart at little cost: streamed, they come once for each 64 rows.
const MOST_STREAMED: usize = 256;
/// Turns of all multiprocessors beyond which it is that for blocks of f32, too.
const MOST_TURNS: usize = 32;
/// Polls of a block before it gives up: some seconds.
pub const PATIENCE: u32 = 1 << 22;

/// How a sequence is gone about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One launch, or launches for each step.
    pub choice: Choice,
    /// Why not one launch, where so.
    pub reason: &'static str,
    /// The kernel, by its place among those of the type.
    pub(super) index: usize,
    /// Hidden units of a block.
    pub units: usize,
    /// Blocks that share the hidden units.
    pub blocks: usize,
    /// Blocks of a cluster.
    pub cluster: usize,
    /// Groups of blocks, each with rows of the batch of its own.
    pub groups: usize,
    /// Rows of the batch of a group.
    pub rows: usize,
    /// Sub-batches of eight rows of a group of blocks that wait for one another.
    pub subs: usize,
    /// Slots of the exchange.
    pub slots: usize,
    /// Words of a sub-batch in a slot.
    pub(super) words: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// The blocks of the product of a step whose weights are streamed.
    pub(super) tiling: Option<Tiling>,
}

/// Sub-batches of eight rows.
fn sub_batches(batch: usize) -> usize {
    batch.div_ceil(COLUMNS as usize).max(1)
}

const NO_ROOM: &str = "the recurrent weights do not fit on chip";

/// Why weights are not spread over blocks.
fn not_spread(hidden: usize, dtype: DType) -> Option<&'static str> {
    match (hidden, dtype) {
        (0, _) => Some("there are no units"),
        (hidden, DType::F16 | DType::BF16) if !hidden.is_multiple_of(2) => {
            Some("an odd number of units has rows that start between words")
        }
        _ => None,
    }
}

/// Units of a chunk of what the blocks of a gradient give one another.
fn chunk_back(dtype: DType) -> usize {
    WORDS as usize * 4 / dtype.size()
}

/// Units that these blocks own: whole chunks.
fn owned_back(hidden: usize, dtype: DType) -> usize {
    hidden.next_multiple_of(chunk_back(dtype).max(UNITS_BACK as usize))
}

/// Rows of the weights that are turned over, and chunks of their terms.
fn extents_back(problem: &Problem) -> (usize, usize) {
    (problem.hidden, problem.kind.gates() * padded(problem.hidden) / TERMS as usize)
}

/// Whether a kernel for the gradient has room for the weights.
fn has_room_back(problem: &Problem, of: &SpreadBack) -> bool {
    let Problem { kind, dtype, hidden, .. } = *problem;
    of.gates == kind.gates() && kind.gates() * owned_back(hidden, dtype) / chunk_back(dtype) <= of.chunks
}

/// What the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub multiprocessors: usize,
    pub shared_bytes: u32,
    /// Hopper's instructions.
    pub warpgroups: bool,
}

impl Target {
    /// Clusters of so many blocks, one a multiprocessor, that run at once on any such GPU: a cluster's are of one group of 16 or 18, of which a GPU has one that is smaller.
    fn clusters(&self, blocks: usize) -> usize {
        (self.multiprocessors / 16).saturating_sub(1) * (16 / blocks.max(1))
    }

    pub fn of(device: &Device) -> Target {
        let limits = simt::Limits::default();
        match device.info() {
            Some(info) => {
                let (multiprocessors, shared_bytes) = (info.sm_count as usize, info.max_shared_per_block);
                Target { multiprocessors, shared_bytes, warpgroups: info.arch == (9, 0) }
            }
            None => Target {
                multiprocessors: limits.multiprocessors as usize,
                shared_bytes: limits.max_shared_per_block,
                warpgroups: true,
            },
        }
    }
}

impl Plan {
    /// By a step at a time.
    pub(super) fn steps(reason: &'static str) -> Plan {
        Plan {
            choice: Choice::Steps,
            reason,
            index: 0,
            units: 0,
            blocks: 0,
            cluster: 1,
            groups: 0,
            rows: 0,
            subs: 0,
            slots: 0,
            words: 0,
            shared_bytes: 0,
            tiling: None,
        }
    }

    /// For a layer in one direction: the first way that can serve.
    pub(super) fn new(problem: &Problem, target: Target) -> Plan {
        Plan::first(
            &[Plan::block, Plan::clustered, Plan::fused, Plan::persistent, Plan::streamed],
            problem,
            target,
        )
    }

    /// The first that is not by steps, or the last.
    fn first(ways: &[fn(&Problem, Target) -> Plan], problem: &Problem, target: Target) -> Plan {
        let mut plan = Plan::steps("");
        for way in ways {
            plan = way(problem, target);
            if plan.choice != Choice::Steps {
                break;
            }
        }
        plan
    }

    /// By the given way; where that cannot serve, by steps, with the reason.
    pub(super) fn by(choice: Choice, problem: &Problem, target: Target) -> Plan {
        match choice {
            Choice::Block => Plan::block(problem, target),
            Choice::Clustered => Plan::clustered(problem, target),
            Choice::Fused => Plan::fused(problem, target),
            Choice::Persistent => Plan::persistent(problem, target),
            // A kernel of all steps there is for gradients alone.
            Choice::StreamedWalk | Choice::Streamed => Plan::streamed(problem, target),
            Choice::Steps => Plan::steps("asked for"),
        }
    }

    /// Every block holds all weights, and has rows of its own.
    fn block(problem: &Problem, target: Target) -> Plan {
        Plan::of_block(problem, target, &Held::all(problem.dtype))
    }

    /// The gradient: the first way that can serve.
    pub(super) fn back(problem: &Problem, target: Target) -> Plan {
        Plan::first(
            &[
                Plan::block_back,
                Plan::clustered_back,
                Plan::persistent_back,
                Plan::streamed_walk_back,
                Plan::streamed_back,
            ],
            problem,
            target,
        )
    }

    /// The gradient by the given way; where that cannot serve, by steps, with the reason.
    pub(super) fn back_by(choice: Choice, problem: &Problem, target: Target) -> Plan {
        match choice {
            Choice::Block => Plan::block_back(problem, target),
            Choice::Clustered => Plan::clustered_back(problem, target),
            // The gradient's products are of all steps in any case.
            Choice::Fused | Choice::Persistent => Plan::persistent_back(problem, target),
            Choice::StreamedWalk => Plan::streamed_walk_back(problem, target),
            Choice::Streamed => Plan::streamed_back(problem, target),
            Choice::Steps => Plan::steps("asked for"),
        }
    }

    /// The gradient: every block holds all weights.
    fn block_back(problem: &Problem, target: Target) -> Plan {
        Plan::of_block(problem, target, &Held::all_back(problem.dtype))
    }

    /// With one of the kernels, in groups of growing weights: of the smallest that fit the one with the fewest rows a block, or
    /// where the batch has more, with the most.
    fn of_block(problem: &Problem, target: Target, kernels: &[Held]) -> Plan {
        let Problem { kind, dtype, batch, hidden, .. } = *problem;
        if hidden == 0 {
            return Plan::steps("there are no units");
        }
        let enough = |rows: usize| batch <= rows * target.multiprocessors;
        let fits = |of: &Held| {
            of.gates == kind.gates() && hidden <= of.units && of.shared_bytes <= target.shared_bytes
        };
        let mut chosen: Option<(usize, &Held)> = None;
        for of in kernels.iter().enumerate().filter(|(_, of)| fits(of)) {
            match chosen {
                Some((_, best)) if enough(best.rows) || of.1.rows <= best.rows => break,
                _ => chosen = Some(of),
            }
        }
        let Some((index, &Held { rows, shared_bytes, .. })) = chosen else {
            return Plan::steps("the recurrent weights do not fit into the registers of one block");
        };
        if dtype == DType::F32 && !enough(MOST_TURNS * rows) {
            return Plan::steps("a batch so large keeps the GPU busy with the product of each step");
        }
        let groups = batch.div_ceil(rows);
        let choice = Choice::Block;
        Plan { choice, index, units: hidden, blocks: 1, groups, rows, shared_bytes, ..Plan::steps("") }
    }

    /// The blocks of a cluster hold the weights.
    fn clustered(problem: &Problem, target: Target) -> Plan {
        Plan::of_clusters(problem, target, 1, &Clustered::all())
    }

    /// The gradient: the blocks of a cluster hold the weights.
    fn clustered_back(problem: &Problem, target: Target) -> Plan {
        Plan::of_clusters(problem, target, problem.kind.gates(), &Clustered::all_back())
    }

    /// With the kernel of these with the least room that has enough, of so many columns for a unit.
    fn of_clusters(problem: &Problem, target: Target, columns: usize, kernels: &[Clustered]) -> Plan {
        if problem.dtype == DType::F32 || !target.warpgroups {
            return Plan::steps("only 16-bit numbers on Hopper go by clusters");
        }
        if let Some(reason) = not_spread(problem.hidden, problem.dtype) {
            return Plan::steps(reason);
        }
        let fitting = kernels.iter().enumerate().filter(|(_, of)| of.fits(problem, columns));
        match fitting.min_by_key(|(_, of)| of.form.pairs) {
            Some((index, of)) => Plan::of_clustered(problem, target, index, of),
            None => Plan::steps(NO_ROOM),
        }
    }

    /// With a kernel, by its place among those of the type.
    fn of_clustered(problem: &Problem, target: Target, index: usize, of: &Clustered) -> Plan {
        let Problem { batch, hidden, .. } = *problem;
        let (units, blocks) = (CLUSTERED_UNITS as usize, hidden.div_ceil(CLUSTERED_UNITS as usize));
        let clusters = target.clusters(blocks);
        let Some(rows) = [1, 2, 4].into_iter().find(|rows| batch.div_ceil(*rows) <= clusters) else {
            return Plan::steps("clusters have few rows of the batch");
        };
        let (groups, shared_bytes) = (batch.div_ceil(rows), of.form.shared_bytes(rows as u32));
        let plan = Plan { index, units, blocks, cluster: blocks, groups, rows, subs: 1, ..Plan::steps("") };
        Plan { choice: Choice::Clustered, shared_bytes, ..plan }
    }

    /// One for each kernel by clusters that has room for the weights, of a forward pass and of a gradient.
    #[cfg(test)]
    pub(super) fn all_clustered(problem: &Problem, target: Target) -> [Vec<Plan>; 2] {
        [(Clustered::all(), 1), (Clustered::all_back(), problem.kind.gates())].map(|(kernels, columns)| {
            let fitting = kernels.iter().enumerate().filter(|(_, of)| of.fits(problem, columns));
            fitting.map(|(index, of)| Plan::of_clustered(problem, target, index, of)).collect()
        })
    }

    /// Several blocks hold both weights, and wait for one another.
    fn fused(problem: &Problem, target: Target) -> Plan {
        let Problem { kind, dtype, steps, hidden, input, .. } = *problem;
        if dtype == DType::F32 {
            return Plan::steps("of f32 the input's product is one of all steps");
        }
        if let Some(reason) = not_spread(hidden, dtype) {
            return Plan::steps(reason);
        }
        if !input.in_packs || input.columns == 0 {
            return Plan::steps("rows of x are no whole packs of 16 bytes");
        }
        let forms = fused_forms();
        let fits = |of: &&FusedForm| {
            let columns = of.columns();
            of.gates == kind.gates() && hidden <= columns && input.columns <= columns
        };
        let Some((index, of)) = forms.iter().enumerate().find(|(_, of)| fits(of)) else {
            return Plan::steps(NO_ROOM);
        };
        let (units, blocks) = (FUSED_UNITS as usize, hidden.div_ceil(FUSED_UNITS as usize));
        let chunks = (blocks * units).max(of.columns()).div_ceil(CHUNK as usize);
        let words = chunks * CHUNK_WORDS as usize;
        let plan = Plan { choice: Choice::Fused, index, units, blocks, words, ..Plan::steps("") };
        let plan = plan.spread((problem, false), steps, target, |subs| subs, |_| of.shared_bytes());
        if plan.subs > 1 { Plan::steps("a batch so large keeps tensor cores busy with h") } else { plan }
    }

    /// Several blocks hold the weights, and wait for one another.
    fn persistent(problem: &Problem, target: Target) -> Plan {
        let Problem { kind, dtype, batch, hidden, .. } = *problem;
        if let Some(reason) = not_spread(hidden, dtype) {
            return Plan::steps(reason);
        }
        let forms = Spread::all(dtype);
        let serves = |of: &Spread| {
            // A turn of sub-batches of which there are fewer would multiply for nothing.
            let groups = target.multiprocessors / of.blocks(hidden).max(1);
            let few = of.span > 1 && groups > 0 && sub_batches(batch).div_ceil(groups) < of.span;
            of.gates == kind.gates()
                && hidden <= of.columns()
                && (target.warpgroups || !of.warpgroups)
                && !few
        };
        let mut serving: Vec<_> = forms.iter().enumerate().filter(|(_, of)| serves(of)).collect();
        // The fewest weights; of as many, Hopper's, unless the batch is too large for these.
        serving.sort_by_key(|(_, of)| (of.pairs, !of.warpgroups));
        let mut plan = Plan::steps(NO_ROOM);
        for (index, of) in serving {
            plan = Plan::of_spread(problem, target, index, of);
            if plan.choice == Choice::Persistent {
                break;
            }
        }
        plan
    }

    /// With a kernel, by its place among those of the type.
    fn of_spread(problem: &Problem, target: Target, index: usize, of: &Spread) -> Plan {
        let Problem { steps, hidden, .. } = *problem;
        let (units, blocks) = (of.units, of.blocks(hidden));
        // What blocks own, and what they read: zeros beyond the units.
        let chunks = (blocks * units).max(of.columns()).div_ceil(CHUNK as usize);
        let words = chunks * of.parts * CHUNK_WORDS as usize;
        let plan = Plan { choice: Choice::Persistent, index, units, blocks, words, ..Plan::steps("") };
        plan.spread((problem, of.few), steps, target, |subs| subs.next_multiple_of(of.span), &of.shared_bytes)
    }

    /// One for each kernel that has room for the weights.
    #[cfg(test)]
    pub(super) fn all_spread(problem: &Problem, target: Target) -> Vec<Plan> {
        let forms = Spread::all(problem.dtype);
        let fits = |of: &Spread| of.gates == problem.kind.gates() && problem.hidden <= of.columns();
        let fitting = forms.iter().enumerate().filter(|(_, of)| fits(of));
        fitting.map(|(index, of)| Plan::of_spread(problem, target, index, of)).collect()
    }

    /// The gradient: several blocks hold the weights, and wait for one another.
    fn persistent_back(problem: &Problem, target: Target) -> Plan {
        if let Some(reason) = not_spread(problem.hidden, problem.dtype) {
            return Plan::steps(reason);
        }
        let forms = SpreadBack::all(problem.dtype);
        let serves = |of: &SpreadBack| has_room_back(problem, of) && (target.warpgroups || of.cluster == 1);
        let serving = forms.iter().enumerate().filter(|(_, of)| serves(of));
        // The fewest columns; of as many, the fewest of a block.
        let Some((index, of)) = serving.min_by_key(|(_, of)| (of.chunks, of.chunks / of.cluster)) else {
            return Plan::steps(NO_ROOM);
        };
        Plan::of_spread_back(problem, target, index, of)
    }

    /// The gradient, with a kernel, by its place among those of the type.
    fn of_spread_back(problem: &Problem, target: Target, index: usize, of: &SpreadBack) -> Plan {
        let Problem { dtype, steps, hidden, .. } = *problem;
        let (blocks, units) = (owned_back(hidden, dtype) / UNITS_BACK as usize, UNITS_BACK as usize);
        // Beyond the columns that blocks own there are zeros.
        let (cluster, words) = (of.cluster, of.chunks * CHUNK_WORDS as usize);
        let plan =
            Plan { choice: Choice::Persistent, index, units, blocks, cluster, words, ..Plan::steps("") };
        // What comes to the initial state is received, too. A cluster's blocks have a set of threads for every second sub-batch.
        plan.spread((problem, of.few), steps + 1, target, |subs| subs.max(cluster), &of.shared_bytes)
    }

    /// The gradient, one for each kernel that has room for the weights.
    #[cfg(test)]
    pub(super) fn all_spread_back(problem: &Problem, target: Target) -> Vec<Plan> {
        let forms = SpreadBack::all(problem.dtype);
        let fitting = forms.iter().enumerate().filter(|(_, of)| has_room_back(problem, of));
        fitting.map(|(index, of)| Plan::of_spread_back(problem, target, index, of)).collect()
    }

    /// The weights come from memory for each step.
    fn streamed(problem: &Problem, target: Target) -> Plan {
        let Problem { kind, hidden, .. } = *problem;
        let extents = (kind.gates() * hidden, padded(hidden) / TERMS as usize);
        Plan::of_stream(problem, Choice::Streamed, target, || Tiling::of_steps(problem, extents, target))
    }

    /// The gradient: likewise.
    fn streamed_back(problem: &Problem, target: Target) -> Plan {
        let extents = extents_back(problem);
        Plan::of_stream(problem, Choice::Streamed, target, || Tiling::of_steps(problem, extents, target))
    }

    /// The gradient, of which shared memory holds some.
    pub(super) fn streamed_walk_back(problem: &Problem, target: Target) -> Plan {
        let extents = extents_back(problem);
        Plan::of_stream(problem, Choice::StreamedWalk, target, || Tiling::of_walk(problem, extents, target))
    }

    /// With a tiling.
    fn of_stream(
        problem: &Problem,
        choice: Choice,
        target: Target,
        tiling: impl Fn() -> Result<Tiling, &'static str>,
    ) -> Plan {
        let Problem { batch, hidden, .. } = *problem;
        if hidden == 0 {
            return Plan::steps("there are no units");
        }
        if !target.warpgroups {
            return Plan::steps("the recurrent weights do not fit on chip, and only Hopper streams them");
        }
        if batch > MOST_STREAMED {
            return Plan::steps("a batch so large keeps the GPU busy with the product of each step");
        }
        match tiling() {
            Ok(tiling) => Plan { choice, tiling: Some(tiling), ..Plan::steps("") },
            Err(reason) => Plan::steps(reason),
        }
    }

    /// Deals the batch to groups of its blocks, `round(least)` sub-batches each, of fewer rows where there may be `few`, for so many slots.
    fn spread(
        self,
        (problem, few): (&Problem, bool),
        steps: usize,
        target: Target,
        round: impl Fn(usize) -> usize,
        shared_bytes: impl Fn(u32) -> u32,
    ) -> Plan {
        let (Plan { blocks, words, .. }, batch) = (self, problem.batch);
        if blocks > target.multiprocessors {
            return Plan::steps("the GPU has too few multiprocessors for the recurrent weights");
        }
        let all = sub_batches(batch);
        let subs = round(all.div_ceil(target.multiprocessors / blocks));
        let shared_bytes = shared_bytes(subs.min(MOST_SUBS) as u32);
        if subs > MOST_SUBS || shared_bytes > target.shared_bytes {
            return Plan::steps("a batch so large keeps the GPU busy with the product of each step");
        }
        let mut rows = subs * COLUMNS as usize;
        // Fewer rows are less to wait for, where there are multiprocessors for more groups.
        if few && subs == 1 {
            while rows > 1 && blocks * batch.div_ceil(rows / 2) <= target.multiprocessors {
                rows /= 2;
            }
        }
        let groups = batch.div_ceil(rows).max(1);
        let most = (EXCHANGE_BYTES / (groups * subs * words * 4)).clamp(SLOTS[0], SLOTS[1]);
        let slots = if steps <= most { steps.max(1) } else { 1 << most.ilog2() };
        Plan { groups, rows, subs, slots, shared_bytes, ..self }
    }

    /// Steps after which slots are poisoned again; 0 where each is used once.
    pub(super) fn period(&self, steps: usize) -> u32 {
        if steps > self.slots { self.slots as u32 / 4 } else { 0 }
    }

    /// Words of the exchange.
    pub(super) fn exchange_words(&self) -> usize {
        self.slots * self.groups * self.subs * self.words
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Choice::Steps => write!(f, "a product and the gates for each step: {}", self.reason),
            Choice::StreamedWalk => {
                write!(f, "one launch, which holds some of the weights and streams the others")?;
                self.tiling.iter().try_for_each(|tiling| write!(f, ", {tiling}"))
            }
            Choice::Streamed => {
                write!(f, "for each step the gates and a product of weights in parts")?;
                self.tiling.iter().try_for_each(|tiling| write!(f, ", {tiling}"))
            }
            Choice::Block => {
                let Plan { groups, rows, shared_bytes, .. } = self;
                write!(
                    f,
                    "one launch of {} with all weights and {} of the batch each, {shared_bytes} bytes of shared memory",
                    Count(*groups, "block"),
                    Count(*rows, "row"),
                )
            }
            Choice::Clustered => {
                let Plan { units, blocks, groups, rows, shared_bytes, .. } = self;
                write!(
                    f,
                    "one launch of {} of {} with {} each, {} a cluster, {shared_bytes} bytes of shared memory",
                    Count(*groups, "cluster"),
                    Count(*blocks, "block"),
                    Count(*units, "unit"),
                    Count(*rows, "row"),
                )
            }
            Choice::Persistent | Choice::Fused => {
                let Plan { units, blocks, cluster, groups, rows, subs, slots, shared_bytes, .. } = self;
                write!(
                    f,
                    "one launch of {}{}{}: {} of {} with {} each, {subs} times {} a group, {} of exchange, \
                     {shared_bytes} bytes of shared memory",
                    Count(groups * blocks, "block"),
                    if *cluster > 1 { " in pairs" } else { "" },
                    if self.choice == Choice::Fused { " with the input's product" } else { "" },
                    Count(*groups, "group"),
                    Count(*blocks, "block"),
                    Count(*units, "unit"),
                    Count(rows / subs, "row"),
                    Count(*slots, "slot"),
                )
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Gru => "gru",
            Kind::Lstm => "lstm",
        })
    }
}
