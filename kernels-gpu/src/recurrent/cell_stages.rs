//! A step of f32 with both products, as [`cell()`](super::cell()), whose operands come through shared memory: for rows of whole packs, and as many blocks
//! as there are multiprocessors.
//!
//! A thread copies the words that it multiplies some chunks ahead, and reads what it copied itself: nobody waits for another, and more bytes are on
//! their way than registers could take. [`MANY_UNITS`] a block read x and h half as often as [`FEW_UNITS`](super::FEW_UNITS).
//!
//! Launch: grid (blocks of units, groups of `GROUPS`·`FRAGMENTS`·8 rows), [`staged_cell_shared_bytes`] of dynamic shared memory.
//!
//! Floor: as there; of 64 rows and 2048 units three products of tf32 for each number, 40 µs of 132 multiprocessors' time at 1.8 GHz.

use super::cell_products::{MANY_UNITS, Product, add};
use super::exchange::COLUMNS;
use super::persistent::WARPS;
use super::whole::{Cell, State, finish, sums_bytes};
use super::words::{WORDS, Words};
use cuda_std::prelude::*;

/// Chunks whose operands are on their way or being multiplied.
const STAGES: u32 = 3;
const THREADS: u32 = WARPS * warp::SIZE;

/// Packs of a thread in a stage, of so many times eight units and rows.
const fn packs(gates: usize, eights: usize, fragments: usize) -> u32 {
    (eights * gates + fragments) as u32
}

const fn stages_bytes(gates: usize, eights: usize, fragments: usize) -> u32 {
    STAGES * packs(gates, eights, fragments) * THREADS * 16
}

/// Bytes of shared memory: stages, and sums in their place.
pub const fn staged_cell_shared_bytes(gates: usize, units: usize, fragments: usize) -> u32 {
    let (stages, sums) = (stages_bytes(gates, units / 8, fragments), sums_bytes(units, fragments));
    if stages > sums { stages } else { sums }
}

/// The stages of a block with so many packs a thread in each.
#[derive(Clone, Copy)]
struct Stages<T, const GATES: usize, const EIGHTS: usize, const FRAGMENTS: usize, const GROUPS: usize>(
    Shared<T>,
);

impl<T: Words, const GATES: usize, const EIGHTS: usize, const FRAGMENTS: usize, const GROUPS: usize>
    Stages<T, GATES, EIGHTS, FRAGMENTS, GROUPS>
{
    #[inline(always)]
    fn place(stage: u32, pack: usize) -> u32 {
        let pack = stage * const { packs(GATES, EIGHTS, GROUPS * FRAGMENTS) } + pack as u32;
        (pack * THREADS + thread::thread_idx_x()) * T::PER_PACK as u32
    }

    /// Where the pack of a gate's eight units is.
    #[inline(always)]
    fn weight_at(stage: u32, gate: usize, eight: usize) -> u32 {
        Self::place(stage, eight * GATES + gate)
    }

    #[inline(always)]
    fn row_at(stage: u32, f: usize) -> u32 {
        Self::place(stage, const { EIGHTS * GATES } + f)
    }

    /// Starts to copy the warp's chunk of a product, from column `k` on; in whole packs.
    ///
    /// # Safety
    /// The tensors are as [`Product`] says. The thread has read what was in the stage.
    #[inline(always)]
    unsafe fn fetch(
        self,
        stage: u32,
        product: Product<T>,
        (first_unit, first_row): (u32, u32),
        k: u32,
        p: &Cell,
    ) {
        let (columns, lane_row) = (product.columns, warp::lane_id() / 4);
        let k = k + warp::lane_id() % 4 * T::PER_PACK as u32;
        let exists = k < columns;
        // Of units and rows beyond the last the last one's are read, and what comes of it is not.
        for eight in 0..EIGHTS {
            let unit = (first_unit + eight as u32 * 8 + lane_row).min(p.hidden - 1);
            for gate in 0..GATES {
                let row = (gate as u32 * p.hidden + unit) as usize * columns as usize;
                let to = Self::weight_at(stage, gate, eight);
                // SAFETY: the caller's contract.
                unsafe { self.0.copy_16_async(to, product.weight, row + k as usize, exists) };
            }
        }
        for f in 0..const { GROUPS * FRAGMENTS } {
            let row = (first_row + f as u32 * COLUMNS + lane_row).min(p.batch - 1) as usize;
            let from = row * columns as usize + k as usize;
            // SAFETY: the caller's contract.
            unsafe { self.0.copy_16_async(Self::row_at(stage, f), product.of, from, exists) };
        }
    }
}

/// Adds the terms of both products that are the warp's, for `EIGHTS` times eight units, and `FRAGMENTS` times eight rows of each of
/// `GROUPS`.
///
/// # Safety
/// The tensors are as [`Product`] says, with rows of whole packs at multiples of 16 bytes; the launch gives [`stages_bytes`], which nobody else touches.
#[inline(always)]
unsafe fn multiply<
    T: Words,
    const GATES: usize,
    const EIGHTS: usize,
    const FRAGMENTS: usize,
    const GROUPS: usize,
    const TILES: usize,
>(
    sums: &mut [[[[f32; 4]; FRAGMENTS]; TILES]; GROUPS],
    (of_x, of_h): (Product<T>, Product<T>),
    place: (u32, u32),
    p: &Cell,
) {
    let chunk = const { WORDS * T::PER_WORD as u32 };
    let turns_of_x = of_x.columns.div_ceil(WARPS * chunk);
    let turns = turns_of_x + of_h.columns.div_ceil(WARPS * chunk);
    // SAFETY: the caller's contract; a stage is copied to again when what was in it has been read, by the same thread.
    unsafe {
        let elements = const { stages_bytes(GATES, EIGHTS, GROUPS * FRAGMENTS) / 4 * T::PER_WORD as u32 };
        let stages = Stages::<T, GATES, EIGHTS, FRAGMENTS, GROUPS>(Shared::dynamic(0, elements));
        let (mut next, mut to) = (0, 0);
        let (mut turn, mut stage) = (0, 0);
        loop {
            // One place in the code that copies: it is long.
            let is_of_h = next >= turns_of_x;
            let product = Product {
                weight: if is_of_h { of_h.weight } else { of_x.weight },
                of: if is_of_h { of_h.of } else { of_x.of },
                columns: if is_of_h { of_h.columns } else { of_x.columns },
                of_h: is_of_h,
            };
            let k = (next - if is_of_h { turns_of_x } else { 0 }) * WARPS + warp::warp_id();
            if next < turns {
                stages.fetch(to, product, place, k * chunk, p);
            }
            async_copy::commit();
            (next, to) = (next + 1, if to + 1 == STAGES { 0 } else { to + 1 });
            if next < STAGES {
                continue;
            }
            if turn == turns {
                break;
            }
            async_copy::wait::<{ STAGES - 1 }>();
            let mut of_weight = [[[0; 4]; EIGHTS]; GATES];
            for gate in 0..GATES {
                for eight in 0..EIGHTS {
                    let at = Stages::<T, GATES, EIGHTS, FRAGMENTS, GROUPS>::weight_at(stage, gate, eight);
                    of_weight[gate][eight] = stages.0.get_pack(at);
                }
            }
            for group in 0..GROUPS {
                let mut of_rows = [[0; 4]; FRAGMENTS];
                for f in 0..FRAGMENTS {
                    let at =
                        Stages::<T, GATES, EIGHTS, FRAGMENTS, GROUPS>::row_at(stage, group * FRAGMENTS + f);
                    of_rows[f] = stages.0.get_pack(at);
                }
                add::<T, GATES, FRAGMENTS, EIGHTS, TILES>(
                    &mut sums[group],
                    &of_weight,
                    &of_rows,
                    turn >= turns_of_x,
                );
            }
            (turn, stage) = (turn + 1, if stage + 1 == STAGES { 0 } else { stage + 1 });
        }
    }
}

/// Takes a step.
///
/// # Safety
/// As [`cell()`](super::cell()), with rows of whole packs at multiples of 16 bytes.
#[kernel(
    family = "recurrent",
    types = [f32],
    instances = [
        { GATES: 3, UNITS: 8, FRAGMENTS: 4, GROUPS: 1, EIGHTS: 1, TILES: 2; threads: 256, min_blocks: 1 },
        { GATES: 3, UNITS: 16, FRAGMENTS: 4, GROUPS: 1, EIGHTS: 2, TILES: 4; threads: 256, min_blocks: 1 },
        { GATES: 3, UNITS: 16, FRAGMENTS: 4, GROUPS: 2, EIGHTS: 2, TILES: 4; threads: 256, min_blocks: 1 },
        { GATES: 4, UNITS: 8, FRAGMENTS: 4, GROUPS: 1, EIGHTS: 1, TILES: 2; threads: 256, min_blocks: 1 },
        { GATES: 4, UNITS: 16, FRAGMENTS: 4, GROUPS: 1, EIGHTS: 2, TILES: 4; threads: 256, min_blocks: 1 },
        { GATES: 4, UNITS: 16, FRAGMENTS: 4, GROUPS: 2, EIGHTS: 2, TILES: 4; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn staged_cell<
    T: Words,
    const GATES: usize,
    const UNITS: usize,
    const FRAGMENTS: usize,
    const GROUPS: usize,
    const EIGHTS: usize,
    const TILES: usize,
>(
    x: Global<T>,
    h: Global<T>,
    c: Global<T>,
    w_ih: Global<T>,
    w_hh: Global<T>,
    b_ih: Global<T>,
    b_hh: Global<T>,
    h_next: GlobalMut<T>,
    c_next: GlobalMut<T>,
    p: Cell,
) {
    const { assert!(UNITS == 8 * EIGHTS && UNITS <= MANY_UNITS) };
    let rows = (GROUPS * FRAGMENTS) as u32 * COLUMNS;
    let place = (thread::block_idx_x() * UNITS as u32, thread::block_idx_y() * rows);
    let mut sums = [[[[0.0f32; 4]; FRAGMENTS]; TILES]; GROUPS];
    // SAFETY: the caller's contract.
    unsafe {
        let of_x = Product { weight: w_ih, of: x, columns: p.input, of_h: false };
        let of_h = Product { weight: w_hh, of: h, columns: p.hidden, of_h: true };
        multiply::<T, GATES, EIGHTS, FRAGMENTS, GROUPS, TILES>(&mut sums, (of_x, of_h), place, &p);
        // Sums take the place of the stages.
        thread::sync_threads();
        let state = State { c, b_ih, b_hh, h_next, c_next };
        finish::<T, GATES, UNITS, FRAGMENTS, GROUPS, TILES>(&sums, (of_x, of_h), place, state, &p);
    }
}
