//! What is chosen: the kernel, its tiles and the splits of k, by a model of the time that each would take ([`model`](super::model)).

use std::cmp::Ordering;
use std::fmt;

use kernels_gpu::matmul::{self as kernels, activation, flag};

use super::layout::{LINE, Layout, begins, lines};
use super::leaving::Leaving;
use super::maps::mappable;
use super::model::H100_MEMORY;
use super::problem::Problem;
use super::tiles::tiles;
use crate::device::Device;
use crate::dtype::DType;

/// The GPU that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes: u32,
    /// Hopper's instructions.
    pub warpgroups: bool,
    /// Tensor cores that multiply tf32 more than three times as fast as the others multiply f32.
    pub fast_tf32: bool,
    /// Bytes in a nanosecond from memory, at most.
    pub memory: f64,
}

/// What plans for the CPU are for: an H100.
const HOPPER: Target =
    Target { sms: 132, shared_bytes: 228 << 10, warpgroups: true, fast_tf32: true, memory: H100_MEMORY };

impl Target {
    /// The target of tensors on `device`.
    pub fn of(device: &Device) -> Target {
        let Some(info) = device.info() else { return HOPPER };
        // Two transfers a clock.
        let memory = f64::from(info.memory_clock_khz) * f64::from(info.memory_bus_bits) / 4e6;
        Target {
            sms: info.sm_count,
            shared_bytes: info.max_shared_per_sm,
            warpgroups: info.arch == (9, 0),
            fast_tf32: is_of_data_centres(info.arch),
            memory: if memory > 0.0 { memory } else { HOPPER.memory },
        }
    }
}

/// Whether GPUs of a compute capability are made for data centres; those for graphics have as much f32 as tf32.
fn is_of_data_centres(arch: (u32, u32)) -> bool {
    matches!(arch, (8 | 9, 0) | (10 | 11, _))
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its columns, along k, are neighbours in memory; else its rows are.
    pub along_k: bool,
    /// It is copied first, into rows or columns that start at multiples of 16 bytes, long ones at lines of L2.
    pub copied: bool,
}

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Products.
    pub batch: usize,
    pub dtype: DType,
    /// Operands in f32 may be rounded to tf32.
    pub tf32: bool,
    pub sides: [Side; 2],
    /// The part of a line of L2, in bytes, at multiples of which each operand's lines begin, as they are.
    pub begins: [usize; 2],
    /// Each operand, as it is or copied, can be read through a tensor map.
    pub mappable: [bool; 2],
    /// Both operands, as they are, have neighbours in memory along k or across it.
    pub neighbours: bool,
    /// The result of `turned` can leave as it lies in shared memory, in boxes or by threads.
    pub boxed: bool,
    /// So can that of `alternating`.
    pub in_turn: bool,
    /// Something beside the sums is read: an addend, or where slopes are taken.
    pub beside: bool,
    /// GELU is applied to it, or its slopes are.
    pub gelu: bool,
    /// Nothing is done with the sums but what [`small`](kernels::small) does.
    pub simple: bool,
    /// a and b, and m and n, have changed places, for kernels of few rows: see [`Request::of_few`].
    pub by_columns: bool,
}

impl Request {
    /// `phases` are the addresses of a and b modulo [`LINE`](super::layout::LINE).
    pub(crate) fn new(
        problem: &Problem,
        layout: &Layout,
        phases: [usize; 2],
        epilogue: &kernels::Epilogue,
    ) -> Request {
        let dtype = problem.factors.dtype;
        let wide = dtype == DType::F32;
        let leaves = |choice| !wide && Leaving::of(choice, epilogue).is_some();
        let side = |matrix: &kernels::Matrix, rows: usize, phase: usize| {
            let aligned = phase.is_multiple_of(16);
            let lines = lines(matrix, rows, layout.k, 16 / dtype.size()).filter(|lines| {
                // Kernels for f32 read whole packs.
                let length = if lines.along_k { layout.k } else { rows };
                aligned && (!wide || length.is_multiple_of(4))
            });
            match lines {
                Some(lines) => Side { along_k: lines.along_k, copied: false },
                None => Side { along_k: matrix.col <= matrix.row, copied: true },
            }
        };
        let mappable = |matrix, side: &Side, rows: usize| {
            let lines = if side.along_k { rows } else { layout.k };
            side.copied || mappable(matrix, dtype.size(), lines, side.along_k)
        };
        let sides = [side(&layout.a, layout.m, phases[0]), side(&layout.b, layout.n, phases[1])];
        let of_matrix = |i: usize, matrix| begins(matrix, sides[i].along_k, dtype, phases[i]);
        let neighbours = |matrix: &kernels::Matrix, side: &Side, rows: usize| {
            let (step, extent) = if side.along_k { (matrix.col, layout.k) } else { (matrix.row, rows) };
            step == 1 || extent <= 1
        };
        Request {
            // What kernels that fetch by themselves ask.
            neighbours: !wide
                && neighbours(&layout.a, &sides[0], layout.m)
                && neighbours(&layout.b, &sides[1], layout.n),
            tf32: problem.factors.tf32,
            mappable: [mappable(&layout.a, &sides[0], layout.m), mappable(&layout.b, &sides[1], layout.n)],
            m: layout.m,
            n: layout.n,
            k: layout.k,
            batch: layout.products(),
            dtype,
            boxed: leaves(Choice::Turned { shape: 0 }),
            in_turn: leaves(Choice::Alternating { shape: 0 }),
            beside: epilogue.flags & (flag::ADDEND | flag::SLOPE) != 0,
            simple: problem.is_simple(),
            gelu: matches!(problem.epilogue.activation, activation::GELU_TANH | activation::GELU_ERF),
            sides,
            begins: [of_matrix(0, &layout.a), of_matrix(1, &layout.b)],
            by_columns: false,
        }
    }

    /// Whether both operands can be read through tensor maps.
    pub(super) fn is_mappable(&self) -> bool {
        self.mappable == [true; 2]
    }

    /// What kernels of few rows are asked for: with fewer columns than rows the columns of the result are their rows. The operand of few lies along k, which
    /// takes a copy where it does not.
    pub(super) fn of_few(&self) -> Request {
        let mut few = *self;
        if self.n < self.m {
            (few.m, few.n, few.by_columns) = (self.n, self.m, true);
            few.sides.swap(0, 1);
            few.begins.swap(0, 1);
            few.mappable.swap(0, 1);
        }
        if !few.sides[0].along_k {
            (few.sides[0], few.mappable[0]) = (Side { along_k: true, copied: true }, true);
        }
        few
    }
}

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `tensor_cores`, with tiles of this shape.
    TensorCores {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `pipelined`, with tiles of this shape.
    Pipelined {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `turned`, with tiles of this shape.
    Turned {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `alternating`, with tiles of this shape.
    Alternating {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `clustered`, with tiles of this shape.
    Clustered {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `narrow`, with tiles of so many rows and so many stages.
    Narrow {
        /// The instance.
        index: usize,
    },
    /// `narrow_f32`, likewise.
    NarrowF32 {
        /// The instance.
        index: usize,
    },
    /// `loose`, with tiles of this shape.
    Loose {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `thin`, with as many fragments of a.
    Thin {
        /// The instance.
        index: usize,
    },
    /// `thin_f32`.
    ThinF32 {
        /// The instance.
        index: usize,
    },
    /// `short`.
    Short {
        /// The instance.
        index: usize,
    },
    /// `small`, with tiles of so many rows.
    Small {
        /// The instance.
        index: usize,
    },
    /// `small_f32`.
    SmallF32 {
        /// The instance.
        index: usize,
    },
    /// `tf32_cores`, with tiles of this shape.
    Tf32Cores {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `parted`, with tiles of this shape.
    Parted {
        /// Number in the table of shapes.
        shape: usize,
    },
    /// `tf32_pipelined`, with tiles of this shape.
    Tf32Pipelined {
        /// The instance.
        shape: usize,
    },
    /// `cuda_cores`.
    CudaCores {
        /// The instance.
        index: usize,
    },
}

impl Choice {
    /// Whether the parts of k are the blocks of a cluster, which adds them up by itself.
    pub(super) fn is_clustered(self) -> bool {
        matches!(
            self,
            Choice::Clustered { .. }
                | Choice::Narrow { .. }
                | Choice::NarrowF32 { .. }
                | Choice::Loose { .. }
        )
    }

    /// Whether it is a kernel of few rows, which may be the result's columns.
    pub(super) fn is_of_few(self) -> bool {
        matches!(
            self,
            Choice::Thin { .. }
                | Choice::ThinF32 { .. }
                | Choice::Short { .. }
                | Choice::Narrow { .. }
                | Choice::NarrowF32 { .. }
        )
    }

    /// Whether it reads operands in any strides, so that nothing is copied first.
    pub(super) fn reads_any(self) -> bool {
        match self {
            Choice::CudaCores { .. } | Choice::Loose { .. } | Choice::Parted { .. } => true,
            Choice::Small { index } => kernels::small::kernels::<half::bf16>()[index].constant("PACKED") == 0,
            Choice::SmallF32 { index } => kernels::small_f32::ALL[index].constant("PACKED") == 0,
            _ => false,
        }
    }

    /// Stages, of kernels whose instances of a tile differ in these.
    fn stages(self) -> Option<usize> {
        match self {
            Choice::Narrow { index } => {
                Some(kernels::narrow::kernels::<half::bf16>()[index].constant("STAGES"))
            }
            Choice::NarrowF32 { index } => Some(kernels::narrow_f32::ALL[index].constant("STAGES")),
            _ => None,
        }
    }
}

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

/// Each instance of `tensor_cores`, `pipelined`, `turned`, `alternating`, `clustered`, `loose`, `tf32_cores` and `parted` in four layouts, for all types alike.
pub(super) const LAYOUTS: usize = 4;

/// The instance of `tensor_cores`, `pipelined`, `turned`, `alternating`, `clustered`, `loose`, `tf32_cores` or `parted` with tiles of a shape, for operands read this way.
pub fn instance(shape: usize, sides: [Side; 2]) -> usize {
    shape * LAYOUTS + 2 * usize::from(!sides[0].along_k) + usize::from(!sides[1].along_k)
}

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
        let mut plans = Plan::of_each_kernel(request, target).into_iter();
        plans.find(Plan::is_of_whole_numbers).expect("there is another tile for f32")
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
