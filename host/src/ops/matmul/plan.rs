//! What is chosen: the kernel, its tiles and the splits of k, by a model of the time that each would take ([`model`](super::model)).

use std::cmp::Ordering;
use std::fmt;

use kernels_gpu::matmul as kernels;

use super::choice::{Choice, LAYOUTS};
use super::layout::LINE;
use super::request::{Request, Side, Target};
use super::tiles::tiles;
use crate::dtype::DType;

/// A kernel and its launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The kernel.
    pub choice: Choice,
    /// How a and b are read; by columns b and a.
    pub sides: [Side; 2],
    /// Rows of tiles are columns of the result.
    pub by_columns: bool,
    /// Rows and columns of a tile.
    pub tile: [u32; 2],
    /// Tiles of a product, down and across.
    pub tiles: [usize; 2],
    /// Parts of k.
    pub splits: usize,
    /// Terms of a part.
    pub k_of_split: usize,
    /// Bytes of shared memory of a block: more than it uses where it is to be alone on its multiprocessor.
    pub shared_bytes: u32,
    /// Most blocks of a launch, which take several tiles each where there are more.
    pub most_blocks: u64,
    /// Tiles that a block takes at a time.
    pub abreast: u32,
    /// The launch may start before what is ahead of it is done.
    pub early: bool,
    /// It may also start before copies of its operands are done.
    pub beside_copies: bool,
    /// Such a launch lets the first lines of b come to L2 meanwhile.
    pub asks: bool,
    /// What the model expects.
    pub microseconds: f64,
    /// Whether it was chosen because it was measured: see [`autotune`](crate::autotune).
    pub measured: bool,
}

/// A kernel that is wanted, in how many parts of k and how operands are read: by the model's choice where that is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub choice: Choice,
    pub splits: Option<usize>,
    pub sides: Option<[Side; 2]>,
}

impl Wanted {
    /// The plan and nothing else.
    pub(crate) fn exactly(plan: &Plan) -> Wanted {
        Wanted { choice: plan.choice, splits: Some(plan.splits), sides: Some(plan.sides) }
    }

    fn is(self, plan: &Plan) -> bool {
        plan.choice == self.choice
            && self.splits.is_none_or(|splits| splits == plan.splits)
            && self.sides.is_none_or(|sides| sides == plan.sides)
    }
}

/// How many times slower than its choice the model takes for not worth a measurement.
const TOO_SLOW: f64 = 4.0;
/// Fewer terms are not worth a block of their own; of `tf32_cores`, which takes longer for each.
const LEAST_TERMS: usize = 256;
const LEAST_TF32_TERMS: usize = 128;
/// Most parts of k, but for sums of very many terms.
const MOST_SPLITS: usize = 32;
/// How many parts these may have, and the fewest terms of each.
const MANY_SPLITS: [usize; 3] = [64, 128, 256];
const LEAST_OF_MANY: usize = 1024;
/// The fewest bytes of a row that a part of `thin` or `thin_f32` has.
const LEAST_THIN_BYTES: usize = 4096;

impl Plan {
    /// The fastest by the model, of one kernel if so; of another where that one cannot serve.
    pub(crate) fn new(request: &Request, target: Target, wanted: Option<Wanted>) -> Plan {
        let unwanted = |plan: &Plan| wanted.is_some_and(|wanted| !wanted.is(plan));
        let plans = Plan::candidates(request, target);
        let faster = |a: &Plan, b: &Plan| unwanted(a).cmp(&unwanted(b)).then_with(|| a.compare(b, target));
        plans.into_iter().min_by(faster).expect("there is a tile for each type")
    }

    /// The better first. On Hopper `tensor_cores` stands back: wherever the model took it for the faster one there, with few terms and
    /// many results, it was two to five times slower than cuBLAS.
    fn compare(&self, other: &Plan, target: Target) -> Ordering {
        let stands_back =
            |plan: &Plan| target.warpgroups && matches!(plan.choice, Choice::TensorCores { .. });
        let first = stands_back(self).cmp(&stands_back(other));
        first.then_with(|| self.microseconds.total_cmp(&other.microseconds))
    }

    /// Those that take less memory than this one, the most memory first: without parts of numbers and copies that need not be, without sums of parts of k,
    /// and without any.
    pub(crate) fn with_less_memory(
        &self,
        request: &Request,
        target: Target,
        wanted: Option<Wanted>,
    ) -> Vec<Plan> {
        let lying = match request.dtype {
            DType::F32 => Plan::of_whole_numbers(request, target),
            _ => Plan::of_what_lies(request, target, wanted),
        };
        let mut plans = vec![lying];
        plans.extend(Plan::fastest(request, target, Plan::is_of_whole_sums));
        plans.extend(Plan::fastest(request, target, |plan| plan.is_of_whole_sums() && !plan.copies()));
        plans.dedup_by(|a, b| Wanted::exactly(b).is(a));
        plans.retain(|plan| !Wanted::exactly(self).is(plan));
        plans
    }

    /// The fastest of those, if there is any.
    fn fastest(request: &Request, target: Target, of: impl Fn(&Plan) -> bool) -> Option<Plan> {
        let mut plans = Plan::candidates(request, target);
        plans.retain(of);
        plans.into_iter().min_by(|a, b| a.compare(b, target))
    }

    /// Whether it takes no memory for numbers taken apart, for transposed ones, or for sums of parts of k.
    fn is_of_whole_sums(&self) -> bool {
        self.is_of_whole_numbers() && (self.splits == 1 || self.is_clustered())
    }

    /// Whether an operand is copied first.
    fn copies(&self) -> bool {
        self.sides.iter().any(|side| side.copied)
    }

    /// The fastest that neither takes numbers apart nor transposes them, which takes memory: of f32.
    fn of_whole_numbers(request: &Request, target: Target) -> Plan {
        Plan::fastest(request, target, Plan::is_of_whole_numbers).expect("there is another tile for f32")
    }

    /// The fastest of those that copy nothing that they could read as it lies: copies take memory.
    fn of_what_lies(request: &Request, target: Target, wanted: Option<Wanted>) -> Plan {
        let wanted = wanted.map(|wanted| Wanted { sides: None, ..wanted });
        let lying = Request { begins: [LINE; 2], ..*request };
        Plan::new(&lying, target, wanted)
    }

    /// Whether it neither takes numbers apart nor transposes them.
    fn is_of_whole_numbers(&self) -> bool {
        !matches!(self.choice, Choice::Parted { .. } | Choice::Tf32Pipelined { .. })
    }

    /// The best of each kernel, the best first.
    pub(crate) fn of_each_kernel(request: &Request, target: Target) -> Vec<Plan> {
        let mut plans = Plan::candidates(request, target);
        plans.sort_by(|a, b| a.compare(b, target));
        let mut kept: Vec<Plan> = Vec::new();
        for plan in plans {
            if kept.iter().all(|other| other.choice != plan.choice) {
                kept.push(plan);
            }
        }
        kept
    }

    /// The best by the model and up to `most` in all that it does not take for several times slower, the best of each kernel before
    /// what it takes for worse ways of another.
    pub(crate) fn likely(request: &Request, target: Target, most: usize) -> Vec<Plan> {
        let mut plans = Plan::of_each_kernel(request, target);
        let bound = TOO_SLOW * plans[0].microseconds;
        plans.retain(|plan| plan.microseconds <= bound);
        plans.truncate(most);
        let mut others = Plan::candidates(request, target);
        others.retain(|plan| plan.microseconds <= bound && !plans.contains(plan));
        others.sort_by(|a, b| a.compare(b, target));
        plans.extend(others);
        plans.truncate(most);
        plans
    }

    /// Every kernel with every split that is worth a thought.
    pub(crate) fn candidates(request: &Request, target: Target) -> Vec<Plan> {
        let mut plans = Vec::new();
        let of_few = request.of_few();
        for tile in tiles(request, &of_few, target).into_iter().filter(|tile| tile.fits(target)) {
            let request = if tile.choice.is_of_few() { &of_few } else { request };
            let most = match tile.choice {
                Choice::Short { .. }
                | Choice::Small { .. }
                | Choice::SmallF32 { .. }
                | Choice::Turned { .. }
                | Choice::Alternating { .. } => 1,
                Choice::Thin { .. } | Choice::ThinF32 { .. } => {
                    (request.k * request.dtype.size() / LEAST_THIN_BYTES).clamp(1, MOST_SPLITS)
                }
                choice if choice.is_clustered() => kernels::CLUSTERED_MOST as usize,
                Choice::Tf32Cores { .. } => (request.k / LEAST_TF32_TERMS).clamp(1, MOST_SPLITS),
                _ => (request.k / LEAST_TERMS).clamp(1, MOST_SPLITS),
            };
            let many = MANY_SPLITS
                .into_iter()
                .filter(|splits| most == MOST_SPLITS && splits * LEAST_OF_MANY <= request.k);
            for request in tile.with_copies(request) {
                let splits = (1..=most).chain(many.clone());
                plans.extend(splits.filter_map(|splits| tile.plan(&request, target, splits)));
            }
        }
        plans
    }

    /// Whether the parts of k are the blocks of a cluster, which adds them up by itself.
    pub fn is_clustered(&self) -> bool {
        self.choice.is_clustered()
    }

    /// How the operands are read, by name.
    pub(super) fn named_sides(&self) -> [(&'static str, Side); 2] {
        let [first, second] = self.sides;
        if self.by_columns { [("a", second), ("b", first)] } else { [("a", first), ("b", second)] }
    }

    /// Tiles of all parts of all products; what is too many for a launch may be fewer than there are.
    pub fn total(&self, batch: usize) -> u64 {
        [self.tiles[1], self.splits, batch]
            .iter()
            .fold(self.tiles[0] as u64, |all, &of| all.saturating_mul(of as u64))
    }

    /// Blocks of the launch. Where a few less than most of them end together instead of some a tile earlier than others, these: it
    /// takes no longer, and tensor cores at the limit of power are faster for what the others do not take.
    pub fn blocks(&self, batch: usize) -> u64 {
        let total = self.total(batch).div_ceil(u64::from(self.abreast));
        let even = total.div_ceil(total.div_ceil(self.most_blocks).max(1));
        let few = even < total && even < self.most_blocks / 16 * 15;
        if few { self.most_blocks } else { even }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.choice {
            Choice::TensorCores { .. } => "tensor_cores",
            Choice::Pipelined { .. } => "pipelined",
            Choice::Turned { .. } => "turned",
            Choice::Alternating { .. } => "alternating",
            Choice::Clustered { .. } => "clustered",
            Choice::Loose { .. } => "loose (rows of no whole 16 bytes)",
            Choice::Thin { .. } => "thin",
            Choice::Short { .. } => "short",
            Choice::Small { .. } | Choice::SmallF32 { .. } if self.choice.reads_any() => {
                "small (operands as they lie)"
            }
            Choice::Small { .. } | Choice::SmallF32 { .. } => "small",
            Choice::ThinF32 { .. } => "thin_f32 (three products)",
            Choice::Narrow { .. } => "narrow",
            Choice::NarrowF32 { index } => match kernels::narrow_f32::ALL[index].constant("PRODUCTS") {
                1 => "narrow_f32 (rounded to tf32)",
                _ => "narrow_f32 (three products)",
            },
            Choice::Tf32Cores { shape } => {
                match kernels::tf32_cores::ALL[shape * LAYOUTS].constant("PRODUCTS") {
                    1 => "tf32_cores (rounded to tf32)",
                    _ => "tf32_cores (three products)",
                }
            }
            Choice::Parted { .. } => "parted (two of f16)",
            Choice::Tf32Pipelined { .. } => "tf32_pipelined (rounded to tf32)",
            Choice::CudaCores { .. } => "cuda_cores",
        };
        let [rows, cols] = self.tile;
        let [down, across] = self.tiles;
        write!(f, "{name} {rows}x{cols}")?;
        if let Some(stages) = self.choice.stages() {
            write!(f, " in {stages} stages")?;
        }
        write!(f, ", {down}x{across} tiles")?;
        if self.by_columns {
            write!(f, " by columns")?;
        }
        if self.splits > 1 {
            let clusters = if self.is_clustered() { ", by clusters" } else { "" };
            write!(f, ", k in {} parts of {}{clusters}", self.splits, self.k_of_split)?;
        }
        if self.measured {
            write!(f, ", measured")?;
        }
        for (name, side) in self.named_sides() {
            let along = if side.along_k { "k" } else { "its rows" };
            let copied = if side.copied { ", copied first" } else { "" };
            write!(f, "; {name} along {along}{copied}")?;
        }
        Ok(())
    }
}
