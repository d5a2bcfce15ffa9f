//! What is chosen: the kernel, its tiles and the splits of k, by a model of the time that each would take.
//!
//! A kernel's blocks run in waves. A full wave takes as long as a multiprocessor's blocks take at the instance's
//! rate; the last one as long as its fullest multiprocessor takes, but not less than a single block alone, which waits
//! for its own latencies. No product takes less than its bytes take. Splitting k makes more blocks of less work, and
//! costs a second launch that reads the partial sums. Blocks that stay for several tiles take rounds instead of waves,
//! and fill their pipelines once. Rates are measured, on an H200.

use std::cmp::Ordering;
use std::fmt;

use kernels_gpu::matmul as kernels;

use super::layout::{Layout, lines};
use super::maps::mappable;
use super::problem::Problem;
use crate::device::Device;
use crate::dtype::DType;

/// The GPU that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Multiprocessors.
    pub sms: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes: u32,
    /// Hopper's instructions.
    pub warpgroups: bool,
    /// Tensor cores that multiply tf32 more than three times as fast as the others multiply f32.
    pub fast_tf32: bool,
}

/// What plans for the CPU are for.
const HOPPER: Target = Target { sms: 132, shared_bytes: 228 << 10, warpgroups: true, fast_tf32: true };

impl Target {
    /// The target of tensors on `device`.
    pub fn of(device: &Device) -> Target {
        device.info().map_or(HOPPER, |info| Target {
            sms: info.sm_count,
            shared_bytes: info.max_shared_per_sm,
            warpgroups: info.arch == (9, 0),
            // GPUs for data centres; those for graphics have as much f32 as tf32.
            fast_tf32: info.arch.1 == 0 && info.arch.0 < 12,
        })
    }
}

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its columns, along k, are neighbours in memory; else its rows are.
    pub along_k: bool,
    /// It is copied first, into rows or columns that start at multiples of 16 bytes.
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
    /// Both operands, as they are or copied, can be read through tensor maps.
    pub mappable: bool,
    /// Both operands, as they are, have neighbours in memory along k or across it.
    pub neighbours: bool,
}

impl Request {
    /// `aligned` tells whether a and b start at multiples of 16 bytes.
    pub(crate) fn new(problem: &Problem, layout: &Layout, aligned: [bool; 2]) -> Request {
        let dtype = problem.factors.dtype;
        let wide = dtype == DType::F32;
        let side = |matrix: &kernels::Matrix, rows: usize, aligned: bool| {
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
        let sides = [side(&layout.a, layout.m, aligned[0]), side(&layout.b, layout.n, aligned[1])];
        let neighbours = |matrix: &kernels::Matrix, side: &Side, rows: usize| {
            let (step, extent) = if side.along_k { (matrix.col, layout.k) } else { (matrix.row, rows) };
            step == 1 || extent <= 1
        };
        Request {
            neighbours: !wide
                && neighbours(&layout.a, &sides[0], layout.m)
                && neighbours(&layout.b, &sides[1], layout.n),
            tf32: problem.factors.tf32,
            mappable: !wide
                && mappable(&layout.a, &sides[0], layout.m)
                && mappable(&layout.b, &sides[1], layout.n),
            m: layout.m,
            n: layout.n,
            k: layout.k,
            batch: layout.products(),
            dtype,
            sides,
        }
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
    /// `clustered`, with tiles of this shape.
    Clustered {
        /// Number in the table of shapes.
        shape: usize,
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
    /// `cuda_cores`.
    CudaCores {
        /// The instance.
        index: usize,
    },
}

/// A kernel and its launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The kernel.
    pub choice: Choice,
    /// How a and b are read.
    pub sides: [Side; 2],
    /// Rows and columns of a tile.
    pub tile: [u32; 2],
    /// Tiles of a product, down and across.
    pub tiles: [usize; 2],
    /// Parts of k.
    pub splits: usize,
    /// Terms of a part.
    pub k_of_split: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Most blocks of a launch, which take several tiles each where there are more.
    pub most_blocks: u64,
    /// The launch may start before what is ahead of it is done.
    pub early: bool,
    /// What the model expects.
    pub microseconds: f64,
    /// Whether it was chosen because it was measured: see [`autotune`](crate::autotune).
    pub measured: bool,
}

/// A kernel that is wanted, and in how many parts of k: by the model's choice where that is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub choice: Choice,
    pub splits: Option<usize>,
}

impl Wanted {
    /// The plan and nothing else.
    pub(crate) fn exactly(plan: &Plan) -> Wanted {
        Wanted { choice: plan.choice, splits: Some(plan.splits) }
    }

    fn is(self, plan: &Plan) -> bool {
        plan.choice == self.choice && self.splits.is_none_or(|splits| splits == plan.splits)
    }
}

/// A tile that a kernel offers.
#[derive(Clone, Copy, Debug)]
struct Tile {
    choice: Choice,
    rows: u32,
    cols: u32,
    shared_bytes: u32,
    /// Blocks of a multiprocessor.
    resident: u32,
    /// Multiplications and additions of a multiprocessor full of blocks, in each nanosecond.
    rate: f64,
    pace: Pace,
}

/// How a kernel's blocks go on.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// In waves of blocks, each with a tile.
    Waves,
    /// Blocks stay for several tiles, on Hopper.
    Staying(Stay),
    /// The same, with operands that are taken into so many parts first.
    Parted(u32, Stay),
    /// As waves, on Hopper; the splits of k are the blocks of a cluster.
    Clusters(Cluster),
}

/// What a multiprocessor takes for a tile of `pipelined`, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// For the terms of a stage.
    stage: f64,
    /// For the sums of a tile.
    end: f64,
}

/// What one takes for a tile of `clustered` or `loose`.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    /// Once for a launch.
    once: f64,
    /// For the terms of a stage: of the only block, and of each of several.
    stage: [f64; 2],
    /// For the sums of a tile.
    end: f64,
    /// For each part of a sum but the first.
    part: f64,
}

/// Terms of a split are a multiple of every kernel's depth.
const DEPTH: usize = 64;
/// How many times slower than its choice the model takes for not worth a measurement.
const TOO_SLOW: f64 = 4.0;
/// Fewer terms are not worth a block of their own; of `tf32_cores`, which takes longer for each.
const LEAST_TERMS: usize = 256;
const LEAST_TF32_TERMS: usize = 128;
/// Most parts of k.
const MOST_SPLITS: usize = 32;
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

/// Each instance of `tensor_cores`, `pipelined`, `clustered`, `loose`, `tf32_cores` and `parted` in four layouts, for all types alike.
const LAYOUTS: usize = 4;

/// The instance of `tensor_cores`, `pipelined`, `clustered`, `loose`, `tf32_cores` or `parted` with tiles of a shape, for operands read this way.
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
        for tile in tiles(request, target).into_iter().filter(|tile| tile.fits(target)) {
            let most = match tile.choice {
                Choice::Thin { .. } => 1,
                Choice::Clustered { .. } | Choice::Loose { .. } => kernels::CLUSTERED_MOST as usize,
                Choice::Tf32Cores { .. } => (request.k / LEAST_TF32_TERMS).clamp(1, MOST_SPLITS),
                _ => (request.k / LEAST_TERMS).clamp(1, MOST_SPLITS),
            };
            plans.extend((1..=most).filter_map(|splits| tile.plan(request, target, splits)));
        }
        plans
    }

    /// Whether the parts of k are the blocks of a cluster, which adds them up by itself.
    pub fn is_clustered(&self) -> bool {
        matches!(self.choice, Choice::Clustered { .. } | Choice::Loose { .. })
    }

    /// Tiles of all parts of all products.
    pub fn total(&self, batch: usize) -> u64 {
        (self.tiles[0] * self.tiles[1] * self.splits) as u64 * batch as u64
    }

    /// Blocks of the launch.
    pub fn blocks(&self, batch: usize) -> u64 {
        self.total(batch).min(self.most_blocks)
    }
}

fn tiles(request: &Request, target: Target) -> Vec<Tile> {
    if request.dtype == DType::F32 {
        let instances = kernels::cuda_cores::ALL.iter().enumerate();
        let on_cores = instances.map(|(index, kernel)| {
            let side = |name| 8 * kernel.constant(name) as u32;
            let (rows, cols) = (side("THREADS_M"), side("THREADS_N"));
            Tile {
                choice: Choice::CudaCores { index },
                rows,
                cols,
                shared_bytes: kernels::f32_shared_bytes(rows, cols),
                resident: kernel.bounds.min_blocks,
                rate: F32_RATES[index],
                pace: Pace::Waves,
            }
        });
        return on_cores.chain(tf32_tiles(request, target)).chain(parted_tiles(request, target)).collect();
    }
    let instances = kernels::tensor_cores::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let mut tiles: Vec<Tile> = instances
        .map(|(shape, kernel)| {
            let of = |name| kernel.constant(name) as u32;
            let (rows, cols) = (of("WARPS_M") * of("MI") * 16, of("WARPS_N") * of("NI") * 8);
            Tile {
                choice: Choice::TensorCores { shape },
                rows,
                cols,
                shared_bytes: kernels::shared_bytes(rows, cols, of("STEPS") * 16, of("STAGES")),
                resident: kernel.bounds.min_blocks,
                rate: HALF_RATES[shape] * if target.warpgroups { ON_HOPPER } else { 1.0 },
                pace: Pace::Waves,
            }
        })
        .collect();
    let piped = kernels::pipelined::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.mappable && request.k > 0;
    tiles.extend(piped.filter(|_| fits).map(|(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (consumers, cols) = (of("CONSUMERS"), 2 * of("SUMS"));
        Tile {
            choice: Choice::Pipelined { shape },
            rows: consumers * kernels::PIPELINED_ROWS,
            cols,
            shared_bytes: kernels::pipelined_shared_bytes(consumers, cols, of("STAGES")),
            resident: kernel.bounds.min_blocks,
            rate: 0.0,
            pace: Pace::Staying(PIPED[shape]),
        }
    }));
    tiles.extend(cluster_tiles(request, target));
    let along_k = request.sides.iter().all(|side| side.along_k);
    let thin = kernels::thin::kernels::<half::bf16>()
        .iter()
        .enumerate()
        .find(|(_, kernel)| request.m <= kernel.constant("FRAGMENTS") * kernels::THIN_ROWS as usize);
    if let Some((index, kernel)) = thin.filter(|_| along_k && request.k.is_multiple_of(8)) {
        tiles.push(Tile {
            choice: Choice::Thin { index },
            rows: kernels::THIN_ROWS * kernel.constant("FRAGMENTS") as u32,
            cols: kernels::THIN_COLS,
            shared_bytes: 0,
            resident: kernel.bounds.min_blocks,
            // Bytes are what counts.
            rate: HALF_RATES[0],
            pace: Pace::Waves,
        });
    }
    tiles
}

/// Those of `clustered` and `loose`.
fn cluster_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    let tile = |choice, rows: u32, cols: u32, stages: u32, resident, cluster| Tile {
        choice,
        rows,
        cols,
        shared_bytes: kernels::clustered_shared_bytes(rows, cols, stages),
        resident,
        rate: 0.0,
        pace: Pace::Clusters(cluster),
    };
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.k > 0;
    let clustered = kernels::clustered::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let clustered = clustered.filter(move |_| fits && request.mappable).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (of("CONSUMERS") * kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        let choice = Choice::Clustered { shape };
        tile(choice, rows, cols, of("STAGES"), kernel.bounds.min_blocks, CLUSTERED[shape])
    });
    let copied = request.sides.iter().any(|side| side.copied);
    let loose = kernels::loose::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let loose = loose.filter(move |_| fits && request.neighbours && copied).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        tile(Choice::Loose { shape }, rows, cols, of("STAGES"), kernel.bounds.min_blocks, LOOSE[shape])
    });
    clustered.chain(loose)
}

/// Those of `tf32_cores`: of three products where they are worth it, of one where that is asked for.
fn tf32_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    let Request { tf32, sides, k, .. } = *request;
    let shapes = kernels::tf32_cores::ALL.iter().step_by(LAYOUTS).enumerate();
    let shapes = shapes.filter(move |(_, kernel)| match kernel.constant("PRODUCTS") {
        1 => tf32,
        _ => target.fast_tf32,
    });
    // A sum of no terms is left to the others.
    shapes.filter(move |_| k > 0).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (of("WARPS_M") * of("MI") * 16, of("WARPS_N") * of("NI") * 8);
        let along_k = sides.map(|side| side.along_k);
        Tile {
            choice: Choice::Tf32Cores { shape },
            rows,
            cols,
            shared_bytes: kernels::tf32_shared_bytes(rows, cols, of("STAGES"), along_k),
            resident: kernel.bounds.min_blocks,
            rate: TF32_RATES[shape],
            pace: Pace::Waves,
        }
    })
}

/// Those of `parted`: of three parts, and of two where operands may be rounded to tf32.
fn parted_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    let Request { tf32, k, .. } = *request;
    let shapes = kernels::parted::ALL.iter().step_by(LAYOUTS).enumerate();
    // A sum of no terms is left to the others.
    let shapes = shapes.filter(move |(_, kernel)| tf32 || kernel.constant("PARTS") == 3);
    shapes.filter(move |_| target.warpgroups && k > 0).map(|(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (parts, consumers, cols) = (of("PARTS"), of("CONSUMERS"), 2 * of("SUMS"));
        Tile {
            choice: Choice::Parted { shape },
            rows: consumers * kernels::PIPELINED_ROWS,
            cols,
            shared_bytes: kernels::parted_shared_bytes(parts, consumers, cols, of("STAGES")),
            resident: kernel.bounds.min_blocks,
            rate: 0.0,
            pace: Pace::Parted(parts, PARTED[shape]),
        }
    })
}

/// Rates of the instances of `cuda_cores`, and of the shapes of `tf32_cores` and `tensor_cores`: from the times of
/// 4096·4096·4096 and 3072·4096·1024.
const F32_RATES: [f64; 2] = [125.0, 103.0];
const TF32_RATES: [f64; 6] = [283.0, 238.0, 209.0, 133.0, 562.0, 338.0];
/// Those of the shapes of `pipelined`, `clustered` and `loose`. With the numbers below, up to [`HOPPER_BOTH`], they are fitted to the times of
/// 87 shapes of 10⁵ to 10¹¹ products with each kernel and number of splits, so that what is chosen takes 1.3 % longer than the best,
/// the root of the mean square of the estimates' error is 8 %. What large ones take is underestimated, of all alike.
const PIPED: [Stay; 4] = [
    Stay { stage: 0.452, end: 1.78 },
    Stay { stage: 0.374, end: 1.30 },
    Stay { stage: 0.243, end: 1.05 },
    Stay { stage: 0.184, end: 0.46 },
];
const CLUSTERED: [Cluster; 2] = [
    Cluster { once: 2.01, stage: [0.167, 0.167], end: 0.97, part: 0.11 },
    Cluster { once: 1.72, stage: [0.185, 0.185], end: 2.12, part: 1.06 },
];
const LOOSE: [Cluster; 1] = [Cluster { once: 2.29, stage: [1.21, 0.87], end: 0.7, part: 0.32 }];
/// Those of the shapes of `parted`, fitted to 49 shapes each: the root of the mean square of the error is 6 %. Numbers are taken apart in the time
/// of their bytes.
const PARTED: [Stay; 3] =
    [Stay { stage: 1.92, end: 3.97 }, Stay { stage: 1.16, end: 2.18 }, Stay { stage: 0.98, end: 3.97 }];
/// How much longer it takes to finish a tile where rows of the result are no whole packs.
const RAGGED_PARTED: f64 = 5.0;
/// Microseconds that a launch of `pipelined` takes by itself.
const HOPPER_LAUNCH: f64 = 1.52;
/// How much longer it takes to finish a tile where results are no whole packs.
const RAGGED_END: f64 = 8.9;
/// How much longer it takes to finish a tile of partial sums, which are of twice the bytes and not copied in passing.
const PARTIAL_END: f64 = 1.79;
/// Microseconds to add them up, and to copy an operand, beyond their bytes.
const REDUCE: f64 = 2.23;
const COPY: f64 = 3.54;
/// The part of the shorter of products and bytes that the longer does not hide, and more: bytes that take long are far away.
const HOPPER_BOTH: f64 = 1.22;
/// Longer kernels are not started early: it gains 0.4 µs, and takes more than that where blocks come to lie unevenly.
const EARLY: f64 = 20.0;
/// What becomes of the rates of `tensor_cores` on Hopper, in products of few tiles too.
const ON_HOPPER: f64 = 0.6;
/// The part of the shorter of products and bytes that the longer does not hide.
const NOT_HIDDEN: f64 = 0.15;
const HALF_RATES: [f64; 3] = [1450.0, 1180.0, 920.0];

impl Tile {
    /// Whether a block has its shared memory: of a multiprocessor's, 1 KB is not to be had.
    fn fits(&self, target: Target) -> bool {
        self.shared_bytes + 1024 <= target.shared_bytes
    }

    /// `None` for splits without terms, and for partial sums that take too much memory.
    fn plan(&self, request: &Request, target: Target, splits: usize) -> Option<Plan> {
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

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.choice {
            Choice::TensorCores { .. } => "tensor_cores",
            Choice::Pipelined { .. } => "pipelined",
            Choice::Clustered { .. } => "clustered",
            Choice::Loose { .. } => "loose",
            Choice::Thin { .. } => "thin",
            Choice::Tf32Cores { shape } => {
                match kernels::tf32_cores::ALL[shape * LAYOUTS].constant("PRODUCTS") {
                    1 => "tf32_cores (rounded to tf32)",
                    _ => "tf32_cores (three products)",
                }
            }
            Choice::Parted { shape } => match kernels::parted::ALL[shape * LAYOUTS].constant("PARTS") {
                2 => "parted (two of bf16)",
                _ => "parted (three of bf16)",
            },
            Choice::CudaCores { .. } => "cuda_cores",
        };
        let [rows, cols] = self.tile;
        let [down, across] = self.tiles;
        write!(f, "{name} {rows}x{cols}, {down}x{across} tiles")?;
        if self.splits > 1 {
            let clusters = if self.is_clustered() { ", by clusters" } else { "" };
            write!(f, ", k in {} parts of {}{clusters}", self.splits, self.k_of_split)?;
        }
        if self.measured {
            write!(f, ", measured")?;
        }
        for (name, side) in ["a", "b"].iter().zip(self.sides) {
            let along = if side.along_k { "k" } else { "its rows" };
            let copied = if side.copied { ", copied first" } else { "" };
            write!(f, "; {name} along {along}{copied}")?;
        }
        Ok(())
    }
}
