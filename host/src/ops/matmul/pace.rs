//! How kernels' blocks go on, and how long that takes, as measured on an H200.

use std::ops::RangeInclusive;

/// How a kernel's blocks go on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// In waves of blocks, each with a tile: so many multiplications and additions in each nanosecond, of a multiprocessor full of blocks.
    Waves(f64),
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
    /// As waves, of a kernel that does little but read b by the accelerator; the splits of k are the blocks of a cluster.
    Streaming(Stream),
    /// Warps take tiles by themselves, and blocks stay.
    Alone(Alone),
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
pub(super) const F32_RATES: [f64; 2] = [125.0, 103.0];
pub(super) const TF32_RATES: [f64; 6] = [283.0, 238.0, 209.0, 133.0, 562.0, 338.0];
pub(super) const HALF_RATES: [f64; 3] = [1450.0, 1180.0, 920.0];
/// What becomes of the rates of `tensor_cores` on Hopper, in products of few tiles too.
pub(super) const ON_HOPPER: f64 = 0.6;
/// Those of the shapes of `pipelined`, `clustered` and `loose`. With the numbers for Hopper of the model they are fitted to the times of
/// 83 shapes, multiples of 8 and not, with each kernel and number of splits that could be meant, 1037 in all: what is chosen takes 0.5 %
/// longer than the best of these, and the root of the mean square of the estimates' error is 12 %. What large ones take is underestimated,
/// of all alike. Tuned since, but for tiles of 128×256, 192×128 and 128×64 of `pipelined`, by the choice alone: of 111 shapes on an H100 what is chosen
/// takes 0.5 % longer than the fastest of 931 that were measured. What copies and results of no whole packs take, by the choice of 40 shapes of no
/// multiples of 8 on an H200: 1.7 % longer than the fastest. Where activations keep such results from leaving by threads, they take 10 µs less in tiles of 192×128 since neighbours
/// are written by neighbouring lanes.
pub(super) const PIPED: [Stay; 5] = [
    Stay { stage: 0.437, end: 1.64, ragged: 26.6, partial: 12.5 },
    Stay { stage: 0.427, end: 1.22, ragged: 3.2, partial: 4.93 },
    Stay { stage: 0.226, end: 1.40, ragged: 3.8, partial: 4.38 },
    Stay { stage: 0.177, end: 1.05, ragged: 1.3, partial: 3.11 },
    Stay { stage: 0.123, end: 0.20, ragged: 0.6, partial: 2.90 },
];
/// Those of `turned` and `alternating`, by the choice alone: of 111 products on an H200, and of layers with GELU, a residual and ReLU. Tiles of the same extents take as long for a
/// stage in both; what ends a tile is two consumers' in `turned`.
pub(super) const TURNED: [Stay; 1] = [Stay { stage: 0.345, end: 1.22, ragged: 0.0, partial: 0.0 }];
pub(super) const ALTERNATING: [Alternate; 2] =
    [Alternate { stage: 0.345, end: 2.4 }, Alternate { stage: 0.226, end: 2.4 }];
pub(super) const CLUSTERED: [Cluster; 3] = [
    Cluster { once: 1.11, stage: 0.128, end: 1.16, meet: 0.65, part: 0.084, abreast: 1.0 },
    Cluster { once: 0.04, stage: 0.170, end: 2.94, meet: 2.74, part: 0.183, abreast: 1.0 },
    Cluster { once: 0.01, stage: 0.215, end: 4.69, meet: 3.22, part: 0.196, abreast: 1.0 },
];
pub(super) const LOOSE: [Cluster; 1] =
    [Cluster { once: 0.0, stage: 2.10, end: 2.42, meet: 2.92, part: 0.088, abreast: 2.0 }];
/// That of `thin`, of one fragment and of two, and that of `narrow`: by the choice alone, of 40 shapes of 1 to 32 rows on an H200.
pub(super) const THIN: [Read; 2] = [
    Read { once: 1.2, term: 1.39e-3, megabyte: 0.268, round: 0.84 },
    Read { once: 1.2, term: 1.8e-3, megabyte: 0.31, round: 1.4 },
];
pub(super) const NARROW: Stream = Stream {
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
pub(super) const THIN_F32: Read = Read { once: 1.2, term: 2.2e-3, megabyte: 0.29, round: 1.35 };
pub(super) const NARROW_F32: Stream = Stream {
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
pub(super) const NARROW_F32_INTAKE: [f64; 2] = [26.1, 30.0];
/// That of `short`, by hand, and the most steps that it takes.
pub(super) const SHORT: Sweep = Sweep { once: 1.6, megabyte: 0.26, turn: 1.0 };
/// `turn` instead, of two fragments of 16 bits and of f32.
pub(super) const SHORT_TURNS_OF_TWO: [f64; 2] = [2.4, 3.7];
pub(super) const MOST_SHORT_STEPS: usize = 16;
/// Those of `small` with tiles of 16 and of 32 rows and of `small_f32`, of operands in packs and as they lie, fitted to the times of 29 shapes of terms along k and
/// across it on an H200: the root of the mean square of the error is 6 to 11 %.
pub(super) const SMALL: [Alone; 3] = [
    Alone { once: 1.5, tile: 0.41, step: 0.47, ragged: 0.45, megabyte: 0.15 },
    Alone { once: 1.75, tile: 0.48, step: 0.59, ragged: 1.1, megabyte: 0.13 },
    Alone { once: 1.0, tile: 0.55, step: 0.71, ragged: 0.62, megabyte: 0.137 },
];
pub(super) const SMALL_AS_IT_LIES: [Alone; 3] = [
    Alone { once: 1.1, tile: 0.3, step: 0.65, ragged: 0.7, megabyte: 0.25 },
    Alone { once: 1.35, tile: 0.4, step: 0.66, ragged: 1.35, megabyte: 0.22 },
    Alone { once: 0.9, tile: 0.52, step: 0.99, ragged: 0.55, megabyte: 0.127 },
];
/// What a step takes longer for an operand that is read by lines of a term, by runs that begin anywhere, and by elements.
pub(super) const SMALL_BY_LINES: [f64; 3] = [0.12, 0.25, 0.0];
pub(super) const SMALL_BY_RUNS: [f64; 2] = [0.4, 0.6];
pub(super) const SMALL_BY_ELEMENTS: [f64; 3] = [0.45, 0.75, 0.08];
/// Steps that `small` takes; with more of them others are faster, and a sum of no terms is left to these, too.
pub(super) const SMALL_STEPS: RangeInclusive<usize> = 1..=7;
/// Those of the shapes of `tf32_pipelined`, fitted on an H100 to the times of 55 shapes in up to eight splits: the root of the mean square of the
/// error is 10 %, and what is chosen takes 0.4 % longer than the fastest. Of ragged results those that `pipelined` had.
pub(super) const TF32_PIPED: [Stay; 4] = [
    Stay { stage: 0.477, end: 2.43, ragged: 26.6, partial: 1.22 },
    Stay { stage: 0.383, end: 1.84, ragged: 13.2, partial: 0.75 },
    Stay { stage: 0.252, end: 1.43, ragged: 13.6, partial: 0.14 },
    Stay { stage: 0.149, end: 0.54, ragged: 3.50, partial: 0.0 },
];
/// Those of the shapes of `parted`, fitted on an H100 to 109 times each: the root of the mean square of the error is 10 %.
pub(super) const PARTED: [Part; 2] = [Part { stage: 1.01, end: 4.4 }, Part { stage: 0.655, end: 2.7 }];
