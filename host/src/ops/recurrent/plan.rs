//! How a layer's sequence is gone about: one launch for all steps, or launches for each.

use std::fmt;

use super::Kind;
use super::problem::Problem;
use crate::device::Device;
use crate::dtype::DType;
use cuda_std::f16;
use kernels_gpu::recurrent::{
    BLOCK_UNITS, CHUNK, CHUNK_WORDS, COLUMNS, FLOAT_UNITS, WARPS, block_sequence, block_sequence_f32,
    block_sequence_f32_shared_bytes, block_sequence_shared_bytes, sequence, sequence_shared_bytes, units,
};

/// A way of running a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One launch for all steps, with all recurrent weights in the registers of each block.
    Block,
    /// One launch for all steps, with the recurrent weights in the registers of several blocks, which wait for one another.
    Persistent,
    /// For each step a product and the gates.
    Steps,
}

/// Bytes of an exchange, about: to poison them takes some microseconds.
const EXCHANGE_BYTES: usize = 32 << 20;
/// The least and the most slots that are used again, powers of two: the fence of each quarter should cost little.
const SLOTS: [usize; 2] = [16, 256];
/// Sub-batches of a group beyond which a large product for each step is the better use of the machine.
const MOST_SUBS: usize = 16;
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
}

/// What the device has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub multiprocessors: usize,
    pub shared_bytes: u32,
}

impl Target {
    pub fn of(device: &Device) -> Target {
        let limits = simt::Limits::default();
        match device.info() {
            Some(info) => {
                Target { multiprocessors: info.sm_count as usize, shared_bytes: info.max_shared_per_block }
            }
            None => Target {
                multiprocessors: limits.multiprocessors as usize,
                shared_bytes: limits.max_shared_per_block,
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
            groups: 0,
            rows: 0,
            subs: 0,
            slots: 0,
            words: 0,
            shared_bytes: 0,
        }
    }

    /// For a layer in one direction: the first way that can serve.
    pub(super) fn new(problem: &Problem, target: Target) -> Plan {
        let plan = Plan::block(problem, target);
        if plan.choice == Choice::Block { plan } else { Plan::persistent(problem, target) }
    }

    /// By the given way; where that cannot serve, by steps, with the reason.
    pub(super) fn by(choice: Choice, problem: &Problem, target: Target) -> Plan {
        match choice {
            Choice::Block => Plan::block(problem, target),
            Choice::Persistent => Plan::persistent(problem, target),
            Choice::Steps => Plan::steps("asked for"),
        }
    }

    /// Every block holds all weights, and has rows of its own.
    fn block(problem: &Problem, target: Target) -> Plan {
        let Problem { kind, dtype, batch, hidden, .. } = *problem;
        if hidden == 0 {
            return Plan::steps("there are no units");
        }
        // Where rows are many, blocks with more of them at a time come round sooner.
        let enough = |rows: usize| batch <= rows * target.multiprocessors;
        let chosen = if dtype == DType::F32 {
            let kernels = block_sequence_f32::kernels::<f32>();
            let fits = |&index: &usize| {
                let kernel = &kernels[index];
                kernel.constant("GATES") == kind.gates()
                    && hidden <= (16 * kernel.constant("PACKS")).min(FLOAT_UNITS as usize)
            };
            let of = |index: usize| {
                let (packs, rows) = (kernels[index].constant("PACKS"), kernels[index].constant("ROWS"));
                (index, rows, block_sequence_f32_shared_bytes(packs, rows))
            };
            roomiest((0..kernels.len()).filter(fits).map(of), enough)
        } else {
            // Instances of both types are alike.
            let kernels = block_sequence::kernels::<f16>();
            let fits = |&index: &usize| {
                let kernel = &kernels[index];
                kernel.constant("GATES") == kind.gates()
                    && hidden <= (CHUNK as usize * kernel.constant("PAIRS")).min(BLOCK_UNITS as usize)
            };
            let of = |index: usize| {
                let (pairs, rows) = (kernels[index].constant("PAIRS"), kernels[index].constant("ROWS"));
                (index, rows, block_sequence_shared_bytes(pairs, rows))
            };
            roomiest((0..kernels.len()).filter(fits).map(of), enough)
        };
        let Some((index, rows, shared_bytes)) = chosen else {
            return Plan::steps("the recurrent weights do not fit into the registers of one block");
        };
        if dtype == DType::F32 && !enough(MOST_TURNS * rows) {
            return Plan::steps("a batch so large keeps the GPU busy with the product of each step");
        }
        let groups = batch.div_ceil(rows);
        let choice = Choice::Block;
        Plan { choice, index, units: hidden, blocks: 1, groups, rows, shared_bytes, ..Plan::steps("") }
    }

    /// Several blocks hold the weights, and wait for one another.
    fn persistent(problem: &Problem, target: Target) -> Plan {
        let Problem { kind, dtype, steps, batch, hidden, .. } = *problem;
        if hidden == 0 {
            return Plan::steps("there are no units");
        }
        if dtype == DType::F32 {
            return Plan::steps("tensor cores multiply 16-bit weights only");
        }
        if !hidden.is_multiple_of(2) {
            return Plan::steps("an odd number of units has rows that start between words");
        }
        // Instances of both types are alike.
        let kernels = sequence::kernels::<f16>();
        let fits = |index: &usize| {
            let kernel = &kernels[*index];
            let columns = kernel.constant("PAIRS") * (WARPS * CHUNK) as usize;
            kernel.constant("GATES") == kind.gates() && hidden <= columns
        };
        let Some(index) = (0..kernels.len()).find(fits) else {
            return Plan::steps("the recurrent weights do not fit into registers");
        };
        let tiles = kernels[index].constant("TILES");
        let units = units(kind.gates(), tiles) as usize;
        let blocks = hidden.div_ceil(units);
        if blocks > target.multiprocessors {
            return Plan::steps("the GPU has too few multiprocessors for the recurrent weights");
        }
        let columns = batch.div_ceil(COLUMNS as usize).max(1);
        let subs = columns.div_ceil(target.multiprocessors / blocks);
        let shared_bytes = sequence_shared_bytes(kind.gates(), tiles, subs.min(MOST_SUBS) as u32);
        if subs > MOST_SUBS || shared_bytes > target.shared_bytes {
            return Plan::steps("a batch so large keeps the GPU busy with the product of each step");
        }
        // What blocks own, and what they read: zeros beyond the units.
        let read = kernels[index].constant("PAIRS") * WARPS as usize;
        let words = (blocks * units).div_ceil(CHUNK as usize).max(read) * CHUNK_WORDS as usize;
        let groups = columns.div_ceil(subs);
        let most = (EXCHANGE_BYTES / (groups * subs * words * 4)).clamp(SLOTS[0], SLOTS[1]);
        let slots = if steps <= most { steps.max(1) } else { 1 << most.ilog2() };
        let (choice, reason, rows) = (Choice::Persistent, "", subs * COLUMNS as usize);
        Plan { choice, reason, index, units, blocks, groups, rows, subs, slots, words, shared_bytes }
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

/// Of kernels (index, rows of a block, bytes of shared memory) that fit equally, in groups of growing weights: the first of
/// the smallest, or the one with most rows where that is not `enough`.
fn roomiest(
    fitting: impl Iterator<Item = (usize, usize, u32)>,
    enough: impl Fn(usize) -> bool,
) -> Option<(usize, usize, u32)> {
    let mut chosen: Option<(usize, usize, u32)> = None;
    for of in fitting {
        match chosen {
            Some((_, rows, _)) if enough(rows) || of.1 <= rows => break,
            _ => chosen = Some(of),
        }
    }
    chosen
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Choice::Steps => write!(f, "a product and the gates for each step: {}", self.reason),
            Choice::Block => {
                let Plan { groups, rows, shared_bytes, .. } = self;
                write!(
                    f,
                    "one launch of {groups} blocks with all weights and {rows} rows of the batch each, \
                     {shared_bytes} bytes of shared memory"
                )
            }
            Choice::Persistent => {
                let Plan { units, blocks, groups, subs, slots, shared_bytes, .. } = self;
                write!(
                    f,
                    "one launch of {} blocks: {groups} groups of {blocks} blocks with {units} units each, \
                     {subs} times 8 rows a group, {slots} slots of exchange, {shared_bytes} bytes of shared memory",
                    groups * blocks
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
