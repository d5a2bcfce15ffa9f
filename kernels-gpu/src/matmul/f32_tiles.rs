//! f32 products on the ordinary cores.
//!
//! A thread computes 8×8 sums, four rows and four columns in each quarter of the block's tile, so that a warp reads
//! whole packs of shared memory without bank conflicts. [`DEPTH`] terms of both operands at a time come to shared memory
//! by `cp.async`, element by element and transposed on the way where memory runs along k: any strides and any
//! alignment will do. The operands of the next term are loaded during the products of this one.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks), [`f32_shared_bytes`] of dynamic shared memory.

use super::finish::{Finish, Tensors};
use super::{Matrix, Product};
use cuda_std::float::fma;
use cuda_std::prelude::*;

/// Terms of a stage.
pub const DEPTH: u32 = 8;
/// Stages, of which all but one are under way.
const STAGES: u32 = 4;
/// Elements of padding behind the rows of a stage: eight terms of four columns fall on different banks.
const PAD: u32 = 4;
/// Rows and columns of a thread's sums, and of a quarter of them.
const SIDE: usize = 8;
const QUARTER: usize = 4;

/// Bytes of shared memory of an instance with tiles of `rows`×`cols`.
pub const fn f32_shared_bytes(rows: u32, cols: u32) -> u32 {
    let (operands, sums) = ((rows + cols + 2 * PAD) * DEPTH * STAGES * 4, rows * (cols + PAD) * 4);
    if operands > sums { operands } else { sums }
}

/// One operand as a thread copies it.
#[derive(Clone, Copy)]
struct Side {
    source: Global<f32>,
    matrix: Matrix,
    /// The thread's first element in the tile: across and along k, and the steps to its next.
    across: u32,
    along: u32,
    step: (u32, u32),
    /// Where the tile begins, and where the operand ends.
    first: u32,
    extent: u32,
    width: u32,
    turns: u32,
}

impl Side {
    /// Neighbouring threads copy neighbours in memory.
    #[inline(always)]
    fn new(
        source: Global<f32>,
        matrix: Matrix,
        (first, extent): (u32, u32),
        width: u32,
        threads: u32,
    ) -> Side {
        let thread = thread::thread_idx_x();
        let (across, along, step) = if matrix.col == 1 {
            (thread / DEPTH, thread % DEPTH, (threads / DEPTH, 0))
        } else {
            (thread % width, thread / width, (0, threads / width))
        };
        let turns = width * DEPTH / threads;
        Side { source, matrix, across, along, step, first, extent, width, turns }
    }

    /// Elements from term to term of a stage.
    #[inline(always)]
    fn pitch(self) -> u32 {
        self.width + PAD
    }

    /// Starts to copy the thread's part of the stage of the terms from `k` on, with zeros from term `end` on and beyond
    /// the operand.
    ///
    /// # Safety
    /// The operand has `extent` times `end` elements; `stage` may be overwritten.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy(self, stage: Shared<f32>, k: u32, end: u32) {
        let (line, term) = (self.first + self.across, k + self.along);
        let start = line as i64 * self.matrix.row + term as i64 * self.matrix.col;
        let stride = self.step.0 as i64 * self.matrix.row + self.step.1 as i64 * self.matrix.col;
        let place = self.along * self.pitch() + self.across;
        for i in 0..self.turns {
            let exists = line + i * self.step.0 < self.extent && term + i * self.step.1 < end;
            let from = start + i as i64 * stride;
            let to = place + i * (self.step.1 * self.pitch() + self.step.0);
            // SAFETY: the caller's contract; only what exists is read.
            unsafe { stage.copy_4_async(to, self.source, from as usize, exists) };
        }
    }
}

/// Multiplies. The tile has `THREADS_M`·8 rows and `THREADS_N`·8 columns.
///
/// # Safety
/// The tensors have the matrices of `p`; the grid is `p.blocks`', with its shared memory.
#[kernel(
    family = "matmul",
    instances = [
        { THREADS_M: 16, THREADS_N: 16; threads: 256, min_blocks: 1 },
        { THREADS_M: 8, THREADS_N: 8; threads: 64, min_blocks: 5 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn cuda_cores<const THREADS_M: usize, const THREADS_N: usize>(
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    let (rows, cols) = ((THREADS_M * SIDE) as u32, (THREADS_N * SIDE) as u32);
    let threads = (THREADS_M * THREADS_N) as u32;
    let place = p.blocks.place();
    let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
    let (k, end) = p.terms(place.split);
    // A warp is four threads down and eight across: both operands' packs are read without conflicts.
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let across = THREADS_N as u32 / 8;
    let (row, col) = (warp / across * 4 + lane / 8, warp % across * 8 + lane % 8);
    let (row, col) = (row * QUARTER as u32, col * QUARTER as u32);
    let mut sums = [[0.0f32; SIDE]; SIDE];
    // SAFETY: the caller's contract; a stage is overwritten when every thread has passed the barrier behind its last
    // read.
    unsafe {
        let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
        let side_a = Side::new(a, p.a, (first_row, p.epilogue.m), rows, threads);
        let side_b = Side::new(b, p.b, (first_col, p.epilogue.n), cols, threads);
        let (size_a, size_b) = (side_a.pitch() * DEPTH, side_b.pitch() * DEPTH);
        let stages = |stage: u32| {
            let offset = stage * (size_a + size_b) * 4;
            (Shared::<f32>::dynamic(offset, size_a), Shared::<f32>::dynamic(offset + size_a * 4, size_b))
        };
        // Beyond the last terms copies are of zeros, so that there is a group for every turn of the loop.
        let copy = |stage: u32, k: u32| {
            let (stage_a, stage_b) = stages(stage);
            side_a.copy(stage_a, k, end);
            side_b.copy(stage_b, k, end);
            async_copy::commit();
        };
        let load = |stage: u32, term: u32| {
            let (stage_a, stage_b) = stages(stage);
            let of = |shared: Shared<f32>, from: u32, pitch: u32, width: u32| {
                let at = term * pitch + from;
                [shared.get_pack(at), shared.get_pack(at + width / 2)].map(|pack| pack.map(f32::from_bits))
            };
            (of(stage_a, row, side_a.pitch(), rows), of(stage_b, col, side_b.pitch(), cols))
        };
        for stage in 0..STAGES - 1 {
            copy(stage, k + stage * DEPTH);
        }
        let turns = if end > k { (end - k).div_ceil(DEPTH) } else { 0 };
        let next = |stage: u32| if stage + 1 == STAGES { 0 } else { stage + 1 };
        let (mut stage, mut free, mut next_k) = (0, STAGES - 1, k + (STAGES - 1) * DEPTH);
        async_copy::wait::<{ STAGES - 2 }>();
        thread::sync_threads();
        let mut held = load(0, 0);
        let mut turn = 0;
        while turn < turns {
            for term in 0..DEPTH {
                let (of_a, of_b) = held;
                if term + 1 == DEPTH {
                    // The next stage is there, and nobody reads this one any more.
                    async_copy::wait::<{ STAGES - 2 }>();
                    thread::sync_threads();
                    stage = next(stage);
                    held = load(stage, 0);
                } else {
                    held = load(stage, term + 1);
                }
                for i in 0..SIDE {
                    for j in 0..SIDE {
                        let factors = (of_a[i / QUARTER][i % QUARTER], of_b[j / QUARTER][j % QUARTER]);
                        sums[i][j] = fma(factors.0, factors.1, sums[i][j]);
                    }
                }
                if term == 0 {
                    copy(free, next_k);
                    free = next(free);
                    next_k += DEPTH;
                }
            }
            turn += 1;
        }
        async_copy::wait::<0>();
        thread::sync_threads();
        let pitch = cols + PAD;
        let shared = Shared::<f32>::dynamic(0, rows * pitch);
        for i in 0..SIDE {
            for half in 0..2 {
                let down = row + (i / QUARTER) as u32 * (rows / 2) + (i % QUARTER) as u32;
                let at = down * pitch + col + half as u32 * (cols / 2);
                let [a, b, c, d] = [0, 1, 2, 3].map(|j| sums[i][half * QUARTER + j].to_bits());
                shared.set_pack(at, [a, b, c, d]);
            }
        }
        thread::sync_threads();
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        finish.tile(shared, pitch, (rows, cols), (first_row, first_col), threads);
    }
}
