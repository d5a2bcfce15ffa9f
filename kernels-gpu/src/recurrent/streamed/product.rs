//! The product of a step: sums[split, b, r] = Σ over the terms of a split of x[b, t]·w[r, t], of parts.
//!
//! A block has 64·`CONSUMERS` rows of the weights, a split of the terms and [`STREAM_COLUMNS`] rows of the batch. A thread fills `STAGES` stages of
//! [`TERMS`] terms by the accelerator, and each of `CONSUMERS` warpgroups multiplies 64 rows of the weights; every weight comes once. With
//! weights it begins before the launch ahead of it is done, which leaves x.
//!
//! Launch: grid (blocks of rows, splits, blocks of the batch), [`stream_shared_bytes`] of dynamic shared memory; it may be early, if what is
//! ahead of the launch before it has left the weights.
//!
//! Floor: the parts of the weights once, from L2 or memory.

use super::{STREAM_COLUMNS as COLUMNS, Streamed, TERMS};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::float::fma;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile::{self, Tile};
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Rows of the weights of a consumer.
pub const STREAM_ROWS: u32 = 64;
/// Turns of a block, each of [`TERMS`] terms, at most: as many scales of its lines are in shared memory.
pub const STREAM_TURNS: u32 = 16;
/// Warps of a consumer.
pub(super) const WARPS: u32 = 4;
/// Sums of a lane.
pub(super) const SUMS: usize = (COLUMNS / 2) as usize;
/// Scales of the weights of a thread of a consumer, and of x at most.
const OF_WEIGHTS: usize = (STREAM_ROWS * STREAM_TURNS / (WARPS * warp::SIZE)) as usize;
const OF_X: usize = (COLUMNS * STREAM_TURNS / (2 * WARPS * warp::SIZE)) as usize;
/// Packs of [`TERMS`] terms.
pub(super) const PACKS: u32 = TERMS / 8;

/// Bytes of a line's parts in a stage.
pub(super) const fn line_bytes(parts: u32) -> u32 {
    parts * TERMS * 2
}

/// Bytes of a stage of an instance for so many parts.
pub const fn stream_stage_bytes(parts: u32, consumers: u32) -> u32 {
    (consumers * STREAM_ROWS + COLUMNS) * line_bytes(parts)
}

/// Bytes of shared memory.
pub const fn stream_shared_bytes(parts: u32, consumers: u32, stages: u32) -> u32 {
    let scales = if parts == 1 { 0 } else { (consumers * STREAM_ROWS + COLUMNS) * STREAM_TURNS * 4 };
    stages * stream_stage_bytes(parts, consumers) + scales + stages * Ring::<1>::BYTES
}

/// What a product is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StreamProduct {
    /// Rows of the weights.
    pub rows: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// Terms over [`TERMS`].
    pub chunks: u32,
    /// Those of a split, at most [`STREAM_TURNS`].
    pub turns: u32,
    /// Whether a split's last terms come first. What every other step asks for first is then what the step before asked for last, which L2
    /// still has.
    pub backwards: u32,
}
plain_parameter!(StreamProduct);

/// Multiplies 16-bit numbers, which have no scales.
///
/// # Safety
/// The maps are of the weights `[1, chunks, rows, TERMS]`, with boxes of the block's rows, and of x `[1, chunks, batch, TERMS]`, with boxes of
/// [`STREAM_COLUMNS`] rows, both of one chunk; `sums` is `[splits, batch, rows]`; the grid is as the module says.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { CONSUMERS: 2, STAGES: 8; threads: 384, min_blocks: 1 },
        { CONSUMERS: 3, STAGES: 6; threads: 512, min_blocks: 1 },
        { CONSUMERS: 4, STAGES: 5; threads: 640, min_blocks: 1 },
    ],
)]
pub unsafe fn stream_product<T: Streamed, const CONSUMERS: usize, const STAGES: usize>(
    map_w: TensorMap,
    map_x: TensorMap,
    of_w: Global<f32>,
    of_x: Global<f32>,
    sums: GlobalMut<f32>,
    p: StreamProduct,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, CONSUMERS, STAGES>([map_w, map_x], [of_w, of_x], sums, p) }
}

/// [`stream_product()`](fn@stream_product) of f32 in two parts.
///
/// # Safety
/// As there, with two matrices behind one another instead of one, and 1 over their scales, `[chunks, rows]` and `[chunks, batch]`.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f32],
    instances = [
        { CONSUMERS: 2, STAGES: 4; threads: 384, min_blocks: 1 },
        { CONSUMERS: 3, STAGES: 3; threads: 512, min_blocks: 1 },
        { CONSUMERS: 4, STAGES: 2; threads: 640, min_blocks: 1 },
    ],
)]
pub unsafe fn stream_product_f32<T: Streamed, const CONSUMERS: usize, const STAGES: usize>(
    map_w: TensorMap,
    map_x: TensorMap,
    of_w: Global<f32>,
    of_x: Global<f32>,
    sums: GlobalMut<f32>,
    p: StreamProduct,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, CONSUMERS, STAGES>([map_w, map_x], [of_w, of_x], sums, p) }
}

/// Where a block's work begins.
#[derive(Clone, Copy)]
struct Corner {
    row: u32,
    column: u32,
    chunk: u32,
    /// Chunks of the split.
    turns: u32,
    backwards: bool,
}

impl Corner {
    /// Which of the split's chunks comes in a turn.
    #[inline(always)]
    fn chunk_of(self, turn: u32) -> u32 {
        if self.backwards { self.turns - 1 - turn } else { turn }
    }
}

/// The stages, and the scales of the block's lines.
#[derive(Clone, Copy)]
struct Stages<const CONSUMERS: usize, const STAGES: usize> {
    parts: u32,
    ring: Ring<STAGES>,
}

impl<const CONSUMERS: usize, const STAGES: usize> Stages<CONSUMERS, STAGES> {
    const ROWS: u32 = CONSUMERS as u32 * STREAM_ROWS;

    /// # Safety
    /// The launch gives [`stream_shared_bytes`].
    #[inline(always)]
    unsafe fn new(parts: u32) -> Self {
        let end = stream_shared_bytes(parts, CONSUMERS as u32, STAGES as u32);
        // SAFETY: the caller's contract.
        Stages { parts, ring: unsafe { Ring::dynamic(end - Ring::<STAGES>::BYTES) } }
    }

    /// A part of the weights.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn weights<T: Half>(self, stage: u32, part: u32) -> Tile<T> {
        let first = stage * stream_stage_bytes(self.parts, CONSUMERS as u32);
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(first + part * Self::ROWS * line_bytes(1), Self::ROWS, PACKS) }
    }

    /// A part of x.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn of_x<T: Half>(self, stage: u32, part: u32) -> Tile<T> {
        let first = stage * stream_stage_bytes(self.parts, CONSUMERS as u32);
        let first = first + Self::ROWS * line_bytes(self.parts);
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(first + part * COLUMNS * line_bytes(1), COLUMNS, PACKS) }
    }

    /// 1 over the scales of the weights, by turns and rows, and of x, by turns and columns.
    ///
    /// # Safety
    /// As [`Self::new`]; there are scales.
    #[inline(always)]
    unsafe fn scales(self) -> (Shared<f32>, Shared<f32>) {
        let first = STAGES as u32 * stream_stage_bytes(self.parts, CONSUMERS as u32);
        let (of_w, of_x) = (Self::ROWS * STREAM_TURNS, COLUMNS * STREAM_TURNS);
        // SAFETY: the caller's contract.
        unsafe { (Shared::dynamic(first, of_w), Shared::dynamic(first + of_w * 4, of_x)) }
    }

    /// Asks for the weights of a turn, in a stage that is empty.
    ///
    /// # Safety
    /// One thread calls; the map is of the weights.
    #[inline(always)]
    unsafe fn fetch_weights<T: Half>(self, stage: u32, map: TensorMap, corner: Corner, turn: u32) {
        let full = self.ring.full(stage);
        // SAFETY: the caller's contract.
        unsafe {
            full.arrive_expecting(stream_stage_bytes(self.parts, CONSUMERS as u32));
            for part in 0..self.parts {
                let at = [0, corner.row as i32, (corner.chunk + corner.chunk_of(turn)) as i32, part as i32];
                self.weights::<T>(stage, part).shared().load_box(0, map, at, full);
            }
        }
    }

    /// Asks for x, behind [`Self::fetch_weights`].
    ///
    /// # Safety
    /// One thread calls; the map is of x.
    #[inline(always)]
    unsafe fn fetch_x<T: Half>(self, stage: u32, map: TensorMap, corner: Corner, turn: u32) {
        for part in 0..self.parts {
            let at = [0, corner.column as i32, (corner.chunk + corner.chunk_of(turn)) as i32, part as i32];
            // SAFETY: the caller's contract.
            unsafe { self.of_x::<T>(stage, part).shared().load_box(0, map, at, self.ring.full(stage)) };
        }
    }
}

/// Copies the scales of so many of the block's lines, of (the first, all there are), with the consumers' threads, `COUNT` each; those of lines
/// and turns beyond are 0. All loads come first.
///
/// # Safety
/// They exist.
#[inline(always)]
unsafe fn copy_scales<const COUNT: usize>(
    scales: Global<f32>,
    shared: Shared<f32>,
    width: u32,
    (first, lines): (u32, u32),
    corner: Corner,
) {
    let threads = thread::block_dim_x() - WARPS * warp::SIZE;
    let number = |i: usize| thread::thread_idx_x() + i as u32 * threads;
    let mut bits = [0; COUNT];
    // SAFETY: the caller's contract; each number is one thread's.
    unsafe {
        for i in 0..COUNT {
            let (turn, line) = (number(i) / width, first + number(i) % width);
            let exists = (turn < corner.turns) & (line < lines);
            let at = (corner.chunk + turn) as usize * lines as usize + line as usize;
            bits[i] = scales.get_bits_if(exists, if exists { at } else { 0 }, 0);
        }
        for i in 0..COUNT {
            if number(i) < width * STREAM_TURNS {
                shared.set(number(i), f32::from_bits(bits[i]));
            }
        }
    }
}

/// Multiplies.
///
/// # Safety
/// As [`stream_product()`](fn@stream_product).
#[inline(always)]
unsafe fn run<T: Streamed, const CONSUMERS: usize, const STAGES: usize>(
    [map_w, map_x]: [TensorMap; 2],
    [of_w, of_x]: [Global<f32>; 2],
    sums: GlobalMut<f32>,
    p: StreamProduct,
) {
    let rows = CONSUMERS as u32 * STREAM_ROWS;
    let first = thread::block_idx_y() * p.turns;
    let corner = Corner {
        row: thread::block_idx_x() * rows,
        column: thread::block_idx_z() * COLUMNS,
        chunk: first,
        turns: p.turns.min(p.chunks - first),
        backwards: p.backwards != 0,
    };
    // Known to be the same in all lanes.
    let warp = warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0;
    let is_producer = warp >= CONSUMERS as u32 * WARPS;
    let fills = warp == CONSUMERS as u32 * WARPS && warp::lane_id() == 0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read between the
    // ends of *full* and of the next phase of *empty*; at first all stages are empty. Scales are read behind the barrier.
    unsafe {
        let stages = Stages::<CONSUMERS, STAGES>::new(const { T::PARTS as u32 });
        if fills {
            stages.ring.init(1, CONSUMERS as u32 * WARPS);
            for stage in 0..STAGES as u32 {
                if stage < corner.turns {
                    stages.fetch_weights::<T::Part>(stage, map_w, corner, stage);
                }
            }
            map_x.prefetch();
        }
        tile::expect_slabs();
        if const { T::PARTS == 2 } && !is_producer {
            copy_scales::<OF_WEIGHTS>(of_w, stages.scales().0, rows, (corner.row, p.rows), corner);
        }
        dependent::wait();
        dependent::allow_next();
        if fills {
            for stage in 0..STAGES as u32 {
                if stage < corner.turns {
                    stages.fetch_x::<T::Part>(stage, map_x, corner, stage);
                }
            }
        }
        if const { T::PARTS == 2 } && !is_producer {
            copy_scales::<OF_X>(of_x, stages.scales().1, COLUMNS, (corner.column, p.batch), corner);
        }
        thread::sync_threads();
        // Not known to be the condition of before: the compiler would have the barrier twice, for the producer and for the others.
        if bits::opaque(u32::from(is_producer)) != 0 {
            if fills {
                let (mut turn, mut place) = (STAGES as u32, Turn::<STAGES>::first());
                while turn < corner.turns {
                    stages.ring.empty(place.stage()).wait(place.parity());
                    stages.fetch_weights::<T::Part>(place.stage(), map_w, corner, turn);
                    stages.fetch_x::<T::Part>(place.stage(), map_x, corner, turn);
                    place = place.next();
                    turn += 1;
                }
            }
            return;
        }
        let own = multiply::<T, CONSUMERS, STAGES>(stages, warp, corner);
        let row = corner.row + warp * 16 + warp::lane_id() / 4;
        let column = corner.column + warp::lane_id() % 4 * 2;
        for i in 0..SUMS {
            let row = row + i as u32 / 2 % 2 * 8;
            let column = column + i as u32 / 4 * 8 + i as u32 % 2;
            let at = (thread::block_idx_y() * p.batch + column) as usize * p.rows as usize + row as usize;
            sums.set_if(row < p.rows && column < p.batch, at, own[i]);
        }
    }
}

/// The sums of a warp of a consumer.
///
/// # Safety
/// All consumers' warps call; stages are filled.
#[inline(always)]
unsafe fn multiply<T: Streamed, const CONSUMERS: usize, const STAGES: usize>(
    stages: Stages<CONSUMERS, STAGES>,
    warp: u32,
    corner: Corner,
) -> [f32; SUMS] {
    let lane = warp::lane_id();
    let first_row = warp / WARPS * STREAM_ROWS;
    let mut place = Turn::<STAGES>::first();
    let mut sums = [0.0f32; SUMS];
    let mut of_turn = [0.0f32; SUMS];
    let mut turn = 0;
    // SAFETY: the caller's contract; products are waited for before their stage is empty.
    unsafe {
        while turn < corner.turns {
            let stage = place.stage();
            stages.ring.full(stage).wait(place.parity());
            let of_w = |part| stages.weights::<T::Part>(stage, part).rows_along_terms(first_row);
            let of_x = |part| stages.of_x::<T::Part>(stage, part).rows_along_terms(0);
            if const { T::PARTS == 1 } {
                T::Part::multiply_tiles::<SUMS, 0, 0>(&mut sums, of_w(0), of_x(0), turn > 0);
                // The products of the turn before are done.
                warpgroup::wait::<1>();
                stages.ring.empty(place.stage_before()).arrive_if(turn > 0 && lane == 0);
            } else {
                // The smaller first.
                T::Part::multiply_tiles::<SUMS, 0, 0>(&mut of_turn, of_w(1), of_x(0), false);
                T::Part::multiply_tiles::<SUMS, 0, 0>(&mut of_turn, of_w(0), of_x(1), true);
                T::Part::multiply_tiles::<SUMS, 0, 0>(&mut of_turn, of_w(0), of_x(0), true);
                let (scales_w, scales_x) = stages.scales();
                let chunk = corner.chunk_of(turn);
                warpgroup::finish(&mut of_turn);
                stages.ring.empty(stage).arrive_if(lane == 0);
                let row = warp * 16 + lane / 4;
                let by_row =
                    [row, row + 8].map(|row| scales_w.get(chunk * Stages::<CONSUMERS, STAGES>::ROWS + row));
                // Two columns at a time: the sums of both leave few registers.
                for pair in 0..SUMS / 4 {
                    let column = chunk * COLUMNS + pair as u32 * 8 + lane % 4 * 2;
                    let by_column = [scales_x.get(column), scales_x.get(column + 1)];
                    for i in 0..4 {
                        let by = by_row[i / 2] * by_column[i % 2];
                        sums[pair * 4 + i] = fma(of_turn[pair * 4 + i], by, sums[pair * 4 + i]);
                    }
                }
            }
            place = place.next();
            turn += 1;
        }
        if const { T::PARTS == 1 } {
            warpgroup::finish(&mut sums);
        }
    }
    sums
}
