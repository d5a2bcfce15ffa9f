//! f32 products on tensor cores, which multiply tf32: numbers of 11 bits with f32's exponents.
//!
//! With `PRODUCTS` = 3 an operand is taken as [two parts](super::tf32_parts), and sums that are not finite are computed again, one by one.
//!
//! With `PRODUCTS` = 1 operands are rounded to tf32, to nearest, and sums stay in the tensor cores: for those who ask for it.
//!
//! A block of `WARPS_M`·`WARPS_N` warps computes a tile, each warp a part of `MI`·16 rows and `NI`·8 columns of it.
//! [`TF32_DEPTH`] terms of both operands' tiles at a time come to shared memory by `cp.async`, `STAGES` of them in turn;
//! fragments are loaded a step ahead of the products.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks), [`tf32_shared_bytes`] of dynamic shared memory.
//!
//! Source: NVIDIA's CUTLASS (3xTF32), as a technique.

use super::Product;
use super::finish::{Finish, Tensors};
use super::half_tiles::wait_for_oldest;
use super::tf32_parts::{Again, are_finite, high, low, nearest};
use super::tf32_side::{F32Side, elements};
use cuda_std::matrix::multiply_tf32;
use cuda_std::prelude::*;

pub use super::tf32_side::TF32_DEPTH;

/// Elements of padding behind a row of sums: rows of a fragment fall on different banks.
const PAD: u32 = 8;
/// Terms of a fragment.
const TERMS: u32 = 8;
const STEPS: u32 = TF32_DEPTH / TERMS;

/// Bytes of shared memory of an instance with tiles of `rows`×`cols`, for operands along k or not.
pub const fn tf32_shared_bytes(rows: u32, cols: u32, stages: u32, along_k: [bool; 2]) -> u32 {
    let operands = (elements(rows, along_k[0]) + elements(cols, along_k[1])) * 4 * stages;
    let sums = rows * (cols + PAD) * 4;
    if operands > sums { operands } else { sums }
}

/// Fragments of a step: `MI` of a, `NI` of b.
#[derive(Clone, Copy)]
struct Fragments<const MI: usize, const NI: usize> {
    a: [[u32; 4]; MI],
    b: [[u32; 2]; NI],
}

impl<const MI: usize, const NI: usize> Fragments<MI, NI> {
    const NONE: Self = Fragments { a: [[0; 4]; MI], b: [[0; 2]; NI] };

    /// With `f` of each word.
    #[inline(always)]
    fn map(self, f: impl Fn(u32) -> u32) -> Self {
        let mut all = Self::NONE;
        for i in 0..MI {
            for word in 0..4 {
                all.a[i][word] = f(self.a[i][word]);
            }
        }
        for j in 0..NI {
            for word in 0..2 {
                all.b[j][word] = f(self.b[j][word]);
            }
        }
        all
    }
}

/// What tensor cores multiply in a step.
#[derive(Clone, Copy)]
struct Factors<const MI: usize, const NI: usize, const PRODUCTS: usize> {
    high: Fragments<MI, NI>,
    /// Of three products.
    low: Fragments<MI, NI>,
}

impl<const MI: usize, const NI: usize, const PRODUCTS: usize> Factors<MI, NI, PRODUCTS> {
    #[inline(always)]
    fn new(held: Fragments<MI, NI>) -> Self {
        if const { PRODUCTS == 1 } {
            Factors { high: held.map(nearest), low: Fragments::NONE }
        } else {
            Factors { high: held.map(high), low: held.map(low) }
        }
    }

    /// Adds the products to `sums`, the small ones first. All lanes call.
    #[inline(always)]
    #[track_caller]
    fn multiply(&self, sums: &mut Sums<MI, NI>) {
        if const { PRODUCTS == 3 } {
            add_products(sums, &self.low.a, &self.high.b);
            add_products(sums, &self.high.a, &self.low.b);
        }
        add_products(sums, &self.high.a, &self.high.b);
    }
}

/// A warp's sums, of which a lane has four of each fragment.
type Sums<const MI: usize, const NI: usize> = [[[f32; 4]; NI]; MI];

/// One product for each fragment of the sums: none waits for the one before it.
#[inline(always)]
#[track_caller]
fn add_products<const MI: usize, const NI: usize>(
    sums: &mut Sums<MI, NI>,
    a: &[[u32; 4]; MI],
    b: &[[u32; 2]; NI],
) {
    for i in 0..MI {
        for j in 0..NI {
            sums[i][j] = multiply_tf32(a[i], b[j], sums[i][j]);
        }
    }
}

/// Adds `parts` to `sums`, rounded to nearest, and empties them.
#[inline(always)]
fn add_parts<const MI: usize, const NI: usize>(sums: &mut Sums<MI, NI>, parts: &mut Sums<MI, NI>) {
    for i in 0..MI {
        for j in 0..NI {
            for number in 0..4 {
                sums[i][j][number] += parts[i][j][number];
                parts[i][j][number] = 0.0;
            }
        }
    }
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`; rows (`A_K` = 1) or columns of the operands are whole packs at multiples of 16
/// bytes; there is at least one term; the grid is `p.blocks`', with its shared memory.
#[kernel(
    family = "matmul",
    instances = [
        { PRODUCTS: 3, MI: 2, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 2 },
        { PRODUCTS: 3, MI: 2, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 2 },
        { PRODUCTS: 3, MI: 2, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 2 },
        { PRODUCTS: 3, MI: 2, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 2 },
        { PRODUCTS: 3, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 3 },
        { PRODUCTS: 3, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 3 },
        { PRODUCTS: 3, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 3 },
        { PRODUCTS: 3, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 3 },
        { PRODUCTS: 3, MI: 1, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 5 },
        { PRODUCTS: 3, MI: 1, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 5 },
        { PRODUCTS: 3, MI: 1, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 5 },
        { PRODUCTS: 3, MI: 1, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 5 },
        { PRODUCTS: 3, MI: 1, NI: 2, WARPS_M: 1, WARPS_N: 4, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 6 },
        { PRODUCTS: 3, MI: 1, NI: 2, WARPS_M: 1, WARPS_N: 4, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 6 },
        { PRODUCTS: 3, MI: 1, NI: 2, WARPS_M: 1, WARPS_N: 4, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 6 },
        { PRODUCTS: 3, MI: 1, NI: 2, WARPS_M: 1, WARPS_N: 4, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 6 },
        { PRODUCTS: 1, MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 1; threads: 128, min_blocks: 2 },
        { PRODUCTS: 1, MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 1, B_K: 0; threads: 128, min_blocks: 2 },
        { PRODUCTS: 1, MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 1; threads: 128, min_blocks: 2 },
        { PRODUCTS: 1, MI: 4, NI: 8, WARPS_M: 2, WARPS_N: 2, STAGES: 3, A_K: 0, B_K: 0; threads: 128, min_blocks: 2 },
        { PRODUCTS: 1, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 4, A_K: 1, B_K: 1; threads: 128, min_blocks: 3 },
        { PRODUCTS: 1, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 4, A_K: 1, B_K: 0; threads: 128, min_blocks: 3 },
        { PRODUCTS: 1, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 4, A_K: 0, B_K: 1; threads: 128, min_blocks: 3 },
        { PRODUCTS: 1, MI: 2, NI: 4, WARPS_M: 2, WARPS_N: 2, STAGES: 4, A_K: 0, B_K: 0; threads: 128, min_blocks: 3 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn tf32_cores<
    const PRODUCTS: usize,
    const MI: usize,
    const NI: usize,
    const WARPS_M: usize,
    const WARPS_N: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    let rows = (WARPS_M * MI * 16) as u32;
    let cols = (WARPS_N * NI * 8) as u32;
    let threads = (WARPS_M * WARPS_N * 32) as u32;
    let place = p.blocks.place();
    let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
    let (k, end) = p.terms(place.split);
    let warp = warp::warp_id();
    let (warp_row, warp_col) = (warp / WARPS_N as u32, warp % WARPS_N as u32);
    let (warp_row, warp_col) = (warp_row * (MI * 16) as u32, warp_col * (NI * 8) as u32);
    // What tensor cores add up, and of three products the sum of it.
    let mut parts: Sums<MI, NI> = [[[0.0; 4]; NI]; MI];
    let mut sums = parts;
    // SAFETY: the caller's contract; a stage is overwritten when every warp has passed the barrier behind its last
    // read.
    unsafe {
        let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
        let side_a = F32Side::<A_K>::new(a, p.a, (first_row, p.epilogue.m), rows, threads);
        let side_b = F32Side::<B_K>::new(b, p.b, (first_col, p.epilogue.n), cols, threads);
        let (size_a, size_b) = (side_a.elements(), side_b.elements());
        let tiles = |stage: u32| {
            let offset = stage * (size_a + size_b) * 4;
            (Shared::<f32>::dynamic(offset, size_a), Shared::<f32>::dynamic(offset + size_a * 4, size_b))
        };
        // Beyond the last terms copies are of zeros, so that there is a group for every turn of the loop.
        let copy = |stage: u32, k: u32| {
            let (tile_a, tile_b) = tiles(stage);
            side_a.copy(tile_a, k, end);
            side_b.copy(tile_b, k, end);
            async_copy::commit();
        };
        let load = |stage: u32, step: u32| {
            let (tile_a, tile_b) = tiles(stage);
            let mut fragments = Fragments::<MI, NI>::NONE;
            for i in 0..MI {
                fragments.a[i] = side_a.load::<true>(tile_a, warp_row + (i * 16) as u32, step * TERMS);
            }
            for i in 0..NI / 2 {
                let four = side_b.load::<false>(tile_b, warp_col + (i * 16) as u32, step * TERMS);
                fragments.b[2 * i] = [four[0], four[1]];
                fragments.b[2 * i + 1] = [four[2], four[3]];
            }
            fragments
        };
        for stage in 0..STAGES as u32 - 1 {
            copy(stage, k + stage * TF32_DEPTH);
        }
        let turns = if end > k { (end - k).div_ceil(TF32_DEPTH) } else { 0 };
        let (mut stage, mut free) = (0, STAGES as u32 - 1);
        let mut next_k = k + (STAGES as u32 - 1) * TF32_DEPTH;
        let next = |stage: u32| if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
        wait_for_oldest::<STAGES>();
        thread::sync_threads();
        let mut now = Factors::<MI, NI, PRODUCTS>::new(load(0, 0));
        // One loop for turns and their steps: unrolled, the steps of a turn take more registers than there are.
        let (mut left, mut step) = (turns * STEPS, 0);
        while left > 0 {
            step += 1;
            if step == STEPS {
                // The next tiles are there, and nobody reads these any more.
                wait_for_oldest::<STAGES>();
                thread::sync_threads();
                (stage, step) = (next(stage), 0);
            }
            let held = load(stage, step);
            // A branch between loads and products keeps the loads in front.
            if step == 1 {
                if const { PRODUCTS == 3 } {
                    add_parts(&mut sums, &mut parts);
                }
                copy(free, next_k);
                free = next(free);
                next_k += TF32_DEPTH;
            }
            now.multiply(&mut parts);
            // Behind the products in the source, during them in the machine.
            now = Factors::new(held);
            left -= 1;
        }
        add_parts(&mut sums, &mut parts);
        async_copy::wait::<0>();
        thread::sync_threads();
        let pitch = cols + PAD;
        let shared = Shared::<f32>::dynamic(0, rows * pitch);
        let (row, col) = (warp::lane_id() / 4, warp::lane_id() % 4 * 2);
        let corner = (warp_row + row) * pitch + warp_col + col;
        let mut finite = true;
        for i in 0..MI {
            for j in 0..NI {
                finite &= are_finite(&sums[i][j]);
                let at = corner + (i * 16) as u32 * pitch + (j * 8) as u32;
                let [a, b, c, d] = sums[i][j].map(f32::to_bits);
                shared.set_8(at, [a, b]);
                shared.set_8(at + 8 * pitch, [c, d]);
            }
        }
        if thread::sync_threads_or(PRODUCTS == 3 && !finite) {
            let again = Again { a, b, p: &p, terms: (k, end) };
            let mut index = thread::thread_idx_x();
            while index < rows * cols {
                let (row, col) = (index / cols, index % cols);
                again.repair(shared, row * pitch + col, (first_row + row, first_col + col));
                index += threads;
            }
            thread::sync_threads();
        }
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        finish.tile(shared, pitch, (rows, cols), (first_row, first_col), threads);
    }
}
