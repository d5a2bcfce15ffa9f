//! The tiles that kernels offer, and how fast they are, as measured on an H200.

use std::ops::RangeInclusive;

use kernels_gpu::matmul as kernels;

use super::plan::{Choice, LAYOUTS, Request, Side, Target};
use crate::dtype::DType;
use cuda_std::kernel::Kernel;

/// A tile that a kernel offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub choice: Choice,
    pub rows: u32,
    pub cols: u32,
    pub shared_bytes: u32,
    /// Blocks of a multiprocessor.
    pub resident: u32,
    /// Multiplications and additions of a multiprocessor full of blocks, in each nanosecond.
    pub rate: f64,
    pub pace: Pace,
    /// Whether threads can store its results from shared memory, where rows of these are no whole packs.
    pub scatters: bool,
    /// Tiles that a block takes at a time.
    pub abreast: u32,
}

/// How a kernel's blocks go on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// In waves of blocks, each with a tile.
    Waves,
    /// Blocks stay for several tiles, on Hopper.
    Staying(Stay),
    /// The same, where a tile is finished while the next is multiplied.
    Alternating(Alternate),
    /// The same, with operands that are taken apart first.
    Parted(Part),
    /// As waves, on Hopper; the splits of k are the blocks of a cluster.
    Clusters(Cluster),
    /// As waves, of a kernel that does little but read b.
    Reading(Read),
    /// The same, whose blocks stay for several tiles.
    Sweeping(Sweep),
    /// Warps take tiles by themselves, and blocks stay.
    Alone(Alone),
    /// The same by the accelerator; the splits of k are the blocks of a cluster.
    Streaming(Stream),
}

/// What a launch of `thin` takes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Once for a launch.
    pub once: f64,
    /// For a term, which no block takes in less.
    pub term: f64,
    /// For each megabyte.
    pub megabyte: f64,
    /// For blocks to follow others, on a multiprocessor that is full of them.
    pub round: f64,
}

/// What a launch of `short` takes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// Once for a launch.
    pub once: f64,
    /// For each megabyte.
    pub megabyte: f64,
    /// For the loads of a tile that are in flight together, and what is done with them.
    pub turn: f64,
}

/// What a launch of `small` takes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// Once for a launch.
    pub once: f64,
    /// For a tile of each warp.
    pub tile: f64,
    /// For a step of its terms.
    pub step: f64,
    /// For its sums where results are no whole packs.
    pub ragged: f64,
    /// For each megabyte.
    pub megabyte: f64,
}

/// What a launch of `narrow` takes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Once for a launch.
    pub once: f64,
    /// Besides, where its blocks do not all find room beside those of the launch ahead.
    pub alone: f64,
    /// For the terms of a stage, which no block takes in less.
    pub stage: f64,
    /// For those of all stages of a ring, likewise.
    pub ring: f64,
    /// For blocks to follow others.
    pub round: f64,
    /// For the parts of a sum to meet, each time that there are twice as many.
    pub meet: f64,
    /// For each megabyte of memory.
    pub megabyte: f64,
    /// For each megabyte that a multiprocessor takes in.
    pub intake: f64,
}

/// What a multiprocessor takes for a tile of `pipelined`, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    /// For the terms of a stage.
    pub stage: f64,
    /// For the sums of a tile.
    pub end: f64,
    /// For these where results are no whole packs.
    pub ragged: f64,
    /// For partial sums, which are of twice the bytes and not copied in passing.
    pub partial: f64,
}

/// What one takes for a tile of `alternating`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alternate {
    /// For the terms of a stage.
    pub stage: f64,
    /// For the sums of a tile, meanwhile.
    pub end: f64,
}

/// What one takes for a tile of `parted`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// For the terms of a stage.
    pub stage: f64,
    /// For the sums of a tile.
    pub end: f64,
}

/// What one takes for a tile of `clustered` or `loose`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    /// Once for a launch.
    pub once: f64,
    /// For the terms of a stage.
    pub stage: f64,
    /// For the sums of a tile, of which each part finishes its share.
    pub end: f64,
    /// For the parts of a sum to meet, and for each but the first.
    pub meet: f64,
    pub part: f64,
    /// Clusters that go on side by side on the same multiprocessors, as each waits for memory most of the time.
    pub abreast: f64,
}
/// Rates of the instances of `cuda_cores`, and of the shapes of `tf32_cores` and `tensor_cores`: from the times of
/// 4096·4096·4096 and 3072·4096·1024.
const F32_RATES: [f64; 2] = [125.0, 103.0];
const TF32_RATES: [f64; 6] = [283.0, 238.0, 209.0, 133.0, 562.0, 338.0];
const HALF_RATES: [f64; 3] = [1450.0, 1180.0, 920.0];
/// What becomes of the rates of `tensor_cores` on Hopper, in products of few tiles too.
const ON_HOPPER: f64 = 0.6;
/// Those of the shapes of `pipelined`, `clustered` and `loose`. With the numbers for Hopper of the model they are fitted to the times of
/// 83 shapes, multiples of 8 and not, with each kernel and number of splits that could be meant, 1037 in all: what is chosen takes 0.5 %
/// longer than the best of these, and the root of the mean square of the estimates' error is 12 %. What large ones take is underestimated,
/// of all alike. Tuned since, but for tiles of 128×256, 192×128 and 128×64 of `pipelined`, by the choice alone: of 111 shapes on an H100 what is chosen
/// takes 0.5 % longer than the fastest of 931 that were measured. What copies and results of no whole packs take, by the choice of 40 shapes of no
/// multiples of 8 on an H200: 1.7 % longer than the fastest.
const PIPED: [Stay; 5] = [
    Stay { stage: 0.437, end: 1.64, ragged: 26.6, partial: 12.5 },
    Stay { stage: 0.427, end: 1.22, ragged: 13.2, partial: 4.93 },
    Stay { stage: 0.226, end: 1.40, ragged: 13.6, partial: 4.38 },
    Stay { stage: 0.177, end: 1.05, ragged: 6.71, partial: 3.11 },
    Stay { stage: 0.123, end: 0.20, ragged: 3.50, partial: 2.90 },
];
/// Those of `turned` and `alternating`, by the choice alone: of 111 products on an H200, and of layers with GELU, a residual and ReLU. Tiles of the same extents take as long for a
/// stage in both; what ends a tile is two consumers' in `turned`.
const TURNED: [Stay; 1] = [Stay { stage: 0.345, end: 1.22, ragged: 0.0, partial: 0.0 }];
const ALTERNATING: [Alternate; 2] =
    [Alternate { stage: 0.345, end: 2.4 }, Alternate { stage: 0.226, end: 2.4 }];
const CLUSTERED: [Cluster; 3] = [
    Cluster { once: 1.11, stage: 0.128, end: 1.16, meet: 0.65, part: 0.084, abreast: 1.0 },
    Cluster { once: 0.04, stage: 0.170, end: 2.94, meet: 2.74, part: 0.183, abreast: 1.0 },
    Cluster { once: 0.01, stage: 0.215, end: 4.69, meet: 3.22, part: 0.196, abreast: 1.0 },
];
const LOOSE: [Cluster; 1] =
    [Cluster { once: 0.0, stage: 2.10, end: 2.42, meet: 2.92, part: 0.088, abreast: 2.0 }];
/// That of `thin`, of one fragment and of two, and that of `narrow`: by the choice alone, of 40 shapes of 1 to 32 rows on an H200.
const THIN: [Read; 2] = [
    Read { once: 1.2, term: 1.39e-3, megabyte: 0.268, round: 0.84 },
    Read { once: 1.2, term: 1.8e-3, megabyte: 0.31, round: 1.4 },
];
const NARROW: Stream = Stream {
    once: 1.7,
    alone: 1.0,
    stage: 0.234,
    ring: 1.8,
    round: 0.7,
    meet: 0.3,
    megabyte: 0.238,
    intake: 13.3,
};
/// Those of f32, likewise: of 31 shapes of 1 to 32 rows what is chosen takes 0.2 % longer than the fastest of 269 that were measured.
const THIN_F32: Read = Read { once: 1.2, term: 2.2e-3, megabyte: 0.29, round: 1.35 };
const NARROW_F32: Stream = Stream {
    once: 1.82,
    alone: 2.07,
    stage: 0.238,
    ring: 2.1,
    round: 1.75,
    meet: 0.43,
    megabyte: 0.239,
    intake: 13.3,
};
/// `intake` instead, where three products are of 16 rows and of 32, which take tensor cores longer than memory.
const NARROW_F32_INTAKE: [f64; 2] = [26.1, 30.0];
/// That of `short`, by hand, and the most steps that it takes.
const SHORT: Sweep = Sweep { once: 1.6, megabyte: 0.26, turn: 1.0 };
/// `turn` instead, of two fragments of 16 bits and of f32.
const SHORT_TURNS_OF_TWO: [f64; 2] = [2.4, 3.7];
const MOST_SHORT_STEPS: usize = 16;
/// Those of `small` with tiles of 16 and of 32 rows and of `small_f32`, of operands in packs and as they lie, fitted to the times of 29 shapes of terms along k and
/// across it on an H200: the root of the mean square of the error is 6 to 11 %.
const SMALL: [Alone; 3] = [
    Alone { once: 1.5, tile: 0.41, step: 0.47, ragged: 0.45, megabyte: 0.15 },
    Alone { once: 1.75, tile: 0.48, step: 0.59, ragged: 1.1, megabyte: 0.13 },
    Alone { once: 1.0, tile: 0.55, step: 0.71, ragged: 0.62, megabyte: 0.137 },
];
const SMALL_AS_IT_LIES: [Alone; 3] = [
    Alone { once: 1.1, tile: 0.3, step: 0.65, ragged: 0.7, megabyte: 0.25 },
    Alone { once: 1.35, tile: 0.4, step: 0.66, ragged: 1.35, megabyte: 0.22 },
    Alone { once: 0.9, tile: 0.52, step: 0.99, ragged: 0.55, megabyte: 0.127 },
];
/// What a step takes longer for an operand that is read by lines of a term, by runs that begin anywhere, and by elements.
const SMALL_BY_LINES: [f64; 3] = [0.12, 0.25, 0.0];
const SMALL_BY_RUNS: [f64; 2] = [0.4, 0.6];
const SMALL_BY_ELEMENTS: [f64; 3] = [0.45, 0.75, 0.08];
/// Steps that `small` takes; with more of them others are faster, and a sum of no terms is left to these, too.
const SMALL_STEPS: RangeInclusive<usize> = 1..=7;
/// Those of the shapes of `tf32_pipelined`, fitted on an H100 to the times of 55 shapes in up to eight splits: the root of the mean square of the
/// error is 10 %, and what is chosen takes 0.4 % longer than the fastest. Of ragged results those of `pipelined`.
const TF32_PIPED: [Stay; 4] = [
    Stay { stage: 0.477, end: 2.43, ragged: 26.6, partial: 1.22 },
    Stay { stage: 0.383, end: 1.84, ragged: 13.2, partial: 0.75 },
    Stay { stage: 0.252, end: 1.43, ragged: 13.6, partial: 0.14 },
    Stay { stage: 0.149, end: 0.54, ragged: 3.50, partial: 0.0 },
];
/// Those of the shapes of `parted`, fitted on an H100 to 109 times each: the root of the mean square of the error is 10 %.
const PARTED: [Part; 2] = [Part { stage: 1.01, end: 4.4 }, Part { stage: 0.655, end: 2.7 }];

/// Those of all kernels that can serve; kernels of few rows are asked for `few`, which is [`Request::of_few`].
pub(super) fn tiles(request: &Request, few: &Request, target: Target) -> Vec<Tile> {
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
                scatters: false,
                abreast: 1,
            }
        });
        let on_tensor_cores = tf32_tiles(request, target).chain(parted_tiles(request, target));
        let short = target.fast_tf32.then(|| short_tile(few)).flatten();
        let of_few = narrow_tiles(few, target).into_iter().chain(thin_f32_tile(few, target)).chain(short);
        let small = target.fast_tf32.then(|| small_tiles(request)).into_iter().flatten();
        let of_few = of_few.chain(small);
        let by_maps = tf32_piped_tiles(request, target).chain(of_few);
        return on_cores.chain(on_tensor_cores).chain(by_maps).collect();
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
                scatters: false,
                abreast: 1,
            }
        })
        .collect();
    let piped = kernels::pipelined::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.is_mappable() && request.k > 0;
    tiles.extend(piped.filter(|_| fits).map(|(shape, kernel)| {
        let pace = Pace::Staying(PIPED[shape]);
        of_consumers(kernel, Choice::Pipelined { shape }, kernels::pipelined_shared_bytes, pace)
    }));
    let fits = fits && request.boxed;
    let turned = kernels::turned::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    tiles.extend(turned.filter(|_| fits).map(|(shape, kernel)| {
        let (choice, pace) = (Choice::Turned { shape }, Pace::Staying(TURNED[shape]));
        let tile = of_consumers(kernel, choice, kernels::turned_shared_bytes, pace);
        Tile { rows: tile.cols, cols: tile.rows, ..tile }
    }));
    let alternating = kernels::alternating::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    tiles.extend(alternating.filter(|_| fits && request.in_turn).map(|(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let rows = 2 * of("SUMS");
        Tile {
            choice: Choice::Alternating { shape },
            rows,
            cols: kernels::ALTERNATING_COLS,
            shared_bytes: kernels::alternating_shared_bytes(rows, of("STAGES")),
            resident: kernel.bounds.min_blocks,
            rate: 0.0,
            pace: Pace::Alternating(ALTERNATING[shape]),
            scatters: false,
            abreast: 1,
        }
    }));
    tiles.extend(cluster_tiles(request, target));
    tiles.extend(narrow_tiles(few, target));
    tiles.extend(thin_tile(few, target));
    tiles.extend(short_tile(few));
    tiles.extend(small_tiles(request));
    tiles
}

/// That of an instance whose consumers have [`kernels::PIPELINED_ROWS`] rows each, with the bytes of so many consumers, columns and stages.
fn of_consumers<A>(
    kernel: &Kernel<A>,
    choice: Choice,
    shared_bytes: impl Fn(u32, u32, u32) -> u32,
    pace: Pace,
) -> Tile {
    let of = |name| kernel.constant(name) as u32;
    let (consumers, cols) = (of("CONSUMERS"), 2 * of("SUMS"));
    Tile {
        choice,
        rows: consumers * kernels::PIPELINED_ROWS,
        cols,
        shared_bytes: shared_bytes(consumers, cols, of("STAGES")),
        resident: kernel.bounds.min_blocks,
        rate: 0.0,
        pace,
        scatters: of("SUMS") as usize <= kernels::MOST_SCATTERED
            && matches!(choice, Choice::Pipelined { .. } | Choice::Turned { .. }),
        abreast: 1,
    }
}

/// Steps of `thin` of which more loads than three are in flight. With fewer some would be in vain, and with more, of over 8192 terms, three are faster.
const STEPS: RangeInclusive<usize> = 4..=32;

/// Steps of so many bytes of a row, if rows are along k and of whole packs, as `thin`, `thin_f32` and `short` read them.
fn steps_of_packs(request: &Request, bytes: u32) -> Option<usize> {
    let Request { k, dtype, sides, .. } = *request;
    let serves = sides.iter().all(|side| side.along_k) && k.is_multiple_of(16 / dtype.size());
    serves.then(|| (k * dtype.size()).div_ceil(bytes as usize))
}

/// That of `thin`, for few rows.
fn thin_tile(request: &Request, target: Target) -> Option<Tile> {
    let steps = steps_of_packs(request, kernels::THIN_STEP_BYTES)?;
    let fragments = request.m.div_ceil(kernels::THIN_ROWS as usize).max(1);
    // Wide blocks where they fill nine tenths of their waves.
    let (blocks, sms) = (request.n.div_ceil(2 * kernels::THIN_COLS as usize), target.sms as usize);
    let wide = fragments == 2 && STEPS.contains(&steps) && blocks * 10 >= blocks.div_ceil(sms) * sms * 9;
    let depth = match (fragments, steps) {
        _ if !STEPS.contains(&steps) => 3,
        _ if wide => 8,
        (2, _) => 4,
        // All at once.
        (_, 7 | 8) => 8,
        _ => 6,
    };
    let groups = 1 + usize::from(wide);
    let mut instances = kernels::thin::kernels::<half::bf16>().iter().enumerate();
    let of = |kernel: &Kernel<_>| ["FRAGMENTS", "GROUPS", "DEPTH"].map(|name| kernel.constant(name));
    let (index, kernel) = instances.find(|(_, kernel)| of(kernel) == [fragments, groups, depth])?;
    let (resident, pace) = (kernel.bounds.min_blocks, Pace::Reading(THIN[fragments - 1]));
    Some(of_packs(Choice::Thin { index }, [fragments, groups], resident, pace))
}

/// That of `thin_f32`, for fewer.
fn thin_f32_tile(request: &Request, target: Target) -> Option<Tile> {
    if request.m > kernels::THIN_ROWS as usize || !target.fast_tf32 {
        return None;
    }
    // Of blocks that are alone more loads are in flight than two of a multiprocessor have room for.
    let are_alone = request.n.div_ceil(kernels::THIN_COLS as usize) * request.batch <= target.sms as usize;
    let depth = match steps_of_packs(request, kernels::THIN_STEP_BYTES)? {
        5.. if are_alone => 8,
        steps if steps.is_multiple_of(4) => 4,
        _ => 3,
    };
    let mut instances = kernels::thin_f32::ALL.iter().enumerate();
    let (index, kernel) = instances.find(|(_, kernel)| kernel.constant("DEPTH") == depth)?;
    let pace = Pace::Reading(THIN_F32);
    Some(of_packs(Choice::ThinF32 { index }, [1, 1], kernel.bounds.min_blocks, pace))
}

/// That of `short`, for few rows and few terms.
fn short_tile(request: &Request) -> Option<Tile> {
    let steps = steps_of_packs(request, kernels::SHORT_STEP_BYTES)?;
    if steps > MOST_SHORT_STEPS {
        return None;
    }
    let fragments = request.m.div_ceil(kernels::THIN_ROWS as usize).max(1);
    let at_once = [1, 2, 4].into_iter().find(|&at_once| steps <= at_once).unwrap_or(4);
    // All types have the same ones.
    let mut instances = kernels::short::kernels::<half::bf16>().iter().enumerate();
    let of = |kernel: &Kernel<_>| ["FRAGMENTS", "STEPS"].map(|name| kernel.constant(name));
    let (index, kernel) = instances.find(|(_, kernel)| of(kernel) == [fragments, at_once])?;
    let groups = kernels::SHORT_WARPS as usize * kernel.constant("GROUPS");
    let wide = usize::from(request.dtype == DType::F32);
    let turn = if fragments == 2 { SHORT_TURNS_OF_TWO[wide] } else { SHORT.turn };
    let pace = Pace::Sweeping(Sweep { turn, ..SHORT });
    Some(of_packs(Choice::Short { index }, [fragments, groups], kernel.bounds.min_blocks, pace))
}

/// Those of `small` and `small_f32`, for few terms and nothing but simple: in packs along k of operands that lie so or are copied, and of others as they lie.
fn small_tiles(request: &Request) -> Vec<Tile> {
    let steps = (request.k * request.dtype.size()).div_ceil(kernels::SMALL_STEP_BYTES as usize);
    if !request.simple || !SMALL_STEPS.contains(&steps) {
        return Vec::new();
    }
    let in_packs = steps_of_packs(request, kernels::SMALL_STEP_BYTES).is_some();
    let lies_in_packs = in_packs && request.sides.iter().all(|side| !side.copied);
    let tile = |choice, [height, packed]: [usize; 2], resident| {
        let kind = if request.dtype == DType::F32 { 2 } else { height - 1 };
        let pace = match packed {
            1 if in_packs => SMALL[kind],
            0 if !lies_in_packs => as_it_lies(request, kind),
            _ => return None,
        };
        Some(Tile {
            choice,
            rows: height as u32 * kernels::SMALL_ROWS,
            cols: kernels::SMALL_COLS,
            shared_bytes: 0,
            resident,
            rate: 0.0,
            pace: Pace::Alone(pace),
            scatters: false,
            abreast: kernels::SMALL_WARPS,
        })
    };
    if request.dtype == DType::F32 {
        let instances = kernels::small_f32::ALL.iter().enumerate();
        let tile = |(index, kernel): (usize, &Kernel<_>)| {
            tile(Choice::SmallF32 { index }, [1, kernel.constant("PACKED")], kernel.bounds.min_blocks)
        };
        return instances.filter_map(tile).collect();
    }
    let instances = kernels::small::kernels::<half::bf16>().iter().enumerate();
    let tile = |(index, kernel): (usize, &Kernel<_>)| {
        let constants = ["HEIGHT", "PACKED"].map(|name| kernel.constant(name));
        tile(Choice::Small { index }, constants, kernel.bounds.min_blocks)
    };
    instances.filter_map(tile).collect()
}

/// What number `kind` of [`SMALL_AS_IT_LIES`] takes, by how the kernel reads each operand.
fn as_it_lies(request: &Request, kind: usize) -> Alone {
    let Request { m, n, k, dtype, sides, begins, .. } = *request;
    let half = dtype.size() == 2;
    // Neighbouring lines of a term that a lane reads together.
    let runs = [(m, 2), (n, 8 / dtype.size())];
    let longer = |i: usize| {
        let (lines, run) = runs[i];
        let by_lines = lines.is_multiple_of(run) && begins[i] >= run * dtype.size();
        match sides[i] {
            Side { along_k: true, copied: false } => 0.0,
            Side { along_k: true, .. } if half && begins[i] >= 4 && k.is_multiple_of(2) => 0.0,
            Side { along_k: true, .. } if half => SMALL_BY_RUNS[kind],
            Side { along_k: false, .. } if by_lines => SMALL_BY_LINES[kind],
            _ => SMALL_BY_ELEMENTS[kind],
        }
    };
    let pace = SMALL_AS_IT_LIES[kind];
    Alone { step: pace.step + longer(0) + longer(1), ..pace }
}

/// That of an instance of `thin`, `thin_f32` or `short`, of so many fragments of a and groups of columns.
fn of_packs(choice: Choice, [fragments, groups]: [usize; 2], resident: u32, pace: Pace) -> Tile {
    Tile {
        choice,
        rows: kernels::THIN_ROWS * fragments as u32,
        cols: kernels::THIN_COLS * groups as u32,
        shared_bytes: 0,
        resident,
        rate: 0.0,
        pace,
        scatters: false,
        abreast: 1,
    }
}

/// Those of `narrow` and `narrow_f32`, for few rows.
fn narrow_tiles(request: &Request, target: Target) -> Vec<Tile> {
    if request.dtype == DType::F32 {
        let choice = |index| Choice::NarrowF32 { index };
        let pace = |kernel: &Kernel<_>| match ["PRODUCTS", "SUMS"].map(|name| kernel.constant(name)) {
            [1, _] => request.tf32.then_some(NARROW_F32),
            [_, 4] => Some(NARROW_F32),
            [_, 8] => Some(Stream { intake: NARROW_F32_INTAKE[0], ..NARROW_F32 }),
            _ => Some(Stream { intake: NARROW_F32_INTAKE[1], ..NARROW_F32 }),
        };
        return narrow_tiles_of(kernels::narrow_f32::ALL, choice, pace, request, target);
    }
    let choice = |index| Choice::Narrow { index };
    narrow_tiles_of(kernels::narrow::kernels::<half::bf16>(), choice, |_| Some(NARROW), request, target)
}

/// Those of the kernels that serve, of which `pace` tells what they take, and that have as few rows as there are.
fn narrow_tiles_of<A>(
    all: &[Kernel<A>],
    choice: impl Fn(usize) -> Choice,
    pace: impl Fn(&Kernel<A>) -> Option<Stream>,
    request: &Request,
    target: Target,
) -> Vec<Tile> {
    // A sum of no terms is left to the others.
    if !(target.warpgroups && request.k > 0 && request.is_mappable()) {
        return Vec::new();
    }
    let rows = |kernel: &Kernel<A>| 2 * kernel.constant("SUMS") as u32;
    let least = all.iter().map(rows).filter(|&rows| rows as usize >= request.m).min();
    let along_k = |kernel: &Kernel<A>| kernel.constant("B_K") == usize::from(request.sides[1].along_k);
    let fewest = all.iter().enumerate().filter(|(_, kernel)| Some(rows(kernel)) == least && along_k(kernel));
    let tile = |(index, kernel): (usize, &Kernel<A>)| {
        let (rows, cols, stages) = (rows(kernel), kernels::NARROW_COLS, kernel.constant("STAGES") as u32);
        let pace = pace(kernel)?;
        let stage = pace.stage.max(pace.ring / f64::from(stages));
        let pace = Pace::Streaming(Stream { stage, ..pace });
        Some(of_clusters(choice(index), [rows, cols], stages, kernel.bounds.min_blocks, pace))
    };
    fewest.filter_map(tile).collect()
}

/// That of a kernel whose clusters share out k.
fn of_clusters(choice: Choice, [rows, cols]: [u32; 2], stages: u32, resident: u32, pace: Pace) -> Tile {
    let shared_bytes = kernels::clustered_shared_bytes(rows, cols, stages);
    Tile { choice, rows, cols, shared_bytes, resident, rate: 0.0, pace, scatters: false, abreast: 1 }
}

/// Those of `clustered` and `loose`.
fn cluster_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // A sum of no terms is left to the others.
    let fits = target.warpgroups && request.k > 0;
    let clustered = kernels::clustered::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let clustered = clustered.filter(move |_| fits && request.is_mappable()).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (of("CONSUMERS") * kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        let choice = Choice::Clustered { shape };
        let pace = Pace::Clusters(CLUSTERED[shape]);
        of_clusters(choice, [rows, cols], of("STAGES"), kernel.bounds.min_blocks, pace)
    });
    let copied = request.sides.iter().any(|side| side.copied);
    let loose = kernels::loose::kernels::<half::bf16>().iter().step_by(LAYOUTS).enumerate();
    let loose = loose.filter(move |_| fits && request.neighbours && copied).map(move |(shape, kernel)| {
        let of = |name| kernel.constant(name) as u32;
        let (rows, cols) = (kernels::PIPELINED_ROWS, 2 * of("SUMS"));
        let (choice, pace) = (Choice::Loose { shape }, Pace::Clusters(LOOSE[shape]));
        of_clusters(choice, [rows, cols], of("STAGES"), kernel.bounds.min_blocks, pace)
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
            scatters: false,
            abreast: 1,
        }
    })
}

/// Those of `tf32_pipelined`, where operands may be rounded.
fn tf32_piped_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // What does not lie along k is transposed.
    let mappable = (0..2).all(|i| request.mappable[i] || !request.sides[i].along_k);
    // A sum of no terms is left to the others.
    let serves = request.tf32 && mappable && request.k > 0 && target.warpgroups;
    let shapes = kernels::tf32_pipelined::ALL.iter().enumerate().filter(move |_| serves);
    shapes.map(|(shape, kernel)| {
        let pace = Pace::Staying(TF32_PIPED[shape]);
        of_consumers(kernel, Choice::Tf32Pipelined { shape }, kernels::tf32_pipelined_shared_bytes, pace)
    })
}

/// Those of `parted`.
fn parted_tiles(request: &Request, target: Target) -> impl Iterator<Item = Tile> {
    // A sum of no terms is left to the others.
    let serves = target.warpgroups && request.k > 0;
    let shapes = kernels::parted::ALL.iter().step_by(LAYOUTS).enumerate().filter(move |_| serves);
    shapes.map(|(shape, kernel)| {
        let pace = Pace::Parted(PARTED[shape]);
        of_consumers(kernel, Choice::Parted { shape }, kernels::parted_shared_bytes, pace)
    })
}
