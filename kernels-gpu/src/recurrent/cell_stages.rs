//! The products of a cell of many units a block, whose operands come through shared memory.
//!
//! A thread copies the words that it multiplies some chunks ahead, and reads what it copied itself: nobody waits for another. With x and h of 64
//! rows and 16 units in one block they are read half as often as by two of eight units, and more bytes are on their way than
//! registers could take.

use super::cell_products::{MANY_UNITS, Product, add};
use super::exchange::COLUMNS;
use super::persistent::WARPS;
use super::whole::Cell;
use super::words::{WORDS, Words};
use cuda_std::prelude::*;

/// Chunks whose operands are on their way or being multiplied.
const STAGES: u32 = 3;
/// Times eight units.
const EIGHTS: usize = MANY_UNITS / 8;
const THREADS: u32 = WARPS * warp::SIZE;

/// Packs of a thread in a stage.
const fn packs(gates: usize, fragments: usize) -> u32 {
    (EIGHTS * gates + fragments) as u32
}

/// Bytes of shared memory.
pub const fn stages_bytes(gates: usize, fragments: usize) -> u32 {
    STAGES * packs(gates, fragments) * THREADS * 16
}

/// Starts to copy what [`words`](super::cell_products::words) reads, to element `at`; packs where rows are whole packs.
///
/// # Safety
/// As there; nobody else touches the pack at `at`.
#[inline(always)]
unsafe fn copy<T: Words>(
    (stages, at): (Shared<T>, u32),
    (of, row): (Global<T>, usize),
    (k, columns): (u32, u32),
    whole: bool,
) {
    let (turn, word) = (warp::lane_id() % 4, const { T::PER_WORD as u32 });
    // SAFETY: the caller's contract.
    unsafe {
        if whole {
            let k = k + turn * 4 * word;
            stages.copy_16_async(at, of, row + k as usize, k < columns);
        } else {
            for i in 0..4 {
                let k = k + (i * 4 + turn) * word;
                stages.copy_4_async(at + i * word, of, row + k as usize, k < columns);
            }
        }
    }
}

/// The stages of a block with so many packs a thread in each.
#[derive(Clone, Copy)]
struct Stages<T, const GATES: usize, const FRAGMENTS: usize, const GROUPS: usize>(Shared<T>);

impl<T: Words, const GATES: usize, const FRAGMENTS: usize, const GROUPS: usize>
    Stages<T, GATES, FRAGMENTS, GROUPS>
{
    #[inline(always)]
    fn place(stage: u32, pack: usize) -> u32 {
        let pack = stage * const { packs(GATES, GROUPS * FRAGMENTS) } + pack as u32;
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

    /// Starts to copy the warp's chunk of a product, from column `k` on; packs where rows are whole packs.
    ///
    /// # Safety
    /// The tensors are as [`Product`] says. The thread has read what was in the stage.
    #[inline(always)]
    unsafe fn fetch(
        self,
        stage: u32,
        product: Product<T>,
        (first_unit, first_row): (u32, u32),
        (k, whole): (u32, bool),
        p: &Cell,
    ) {
        let (columns, lane_row) = (product.columns, warp::lane_id() / 4);
        // Of units and rows beyond the last the last one's are read, and what comes of it is not.
        for eight in 0..EIGHTS {
            let unit = (first_unit + eight as u32 * 8 + lane_row).min(p.hidden - 1);
            for gate in 0..GATES {
                let row = (gate as u32 * p.hidden + unit) as usize * columns as usize;
                let to = (self.0, Self::weight_at(stage, gate, eight));
                // SAFETY: the caller's contract.
                unsafe { copy(to, (product.weight, row), (k, columns), whole) };
            }
        }
        for f in 0..const { GROUPS * FRAGMENTS } {
            let row = (first_row + f as u32 * COLUMNS + lane_row).min(p.batch - 1) as usize;
            let to = (self.0, Self::row_at(stage, f));
            // SAFETY: the caller's contract.
            unsafe { copy(to, (product.of, row * columns as usize), (k, columns), whole) };
        }
    }
}

/// Adds the terms of both products that are the warp's, for the `FRAGMENTS` times eight rows of each of two groups.
///
/// # Safety
/// The tensors are as [`Product`] says, rows as `p` does; the launch gives [`stages_bytes`], which nobody else touches.
#[inline(always)]
pub unsafe fn multiply_staged<
    T: Words,
    const GATES: usize,
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
        let elements = const { stages_bytes(GATES, GROUPS * FRAGMENTS) / 4 * T::PER_WORD as u32 };
        let stages = Stages::<T, GATES, FRAGMENTS, GROUPS>(Shared::dynamic(0, elements));
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
                stages.fetch(to, product, place, (k * chunk, p.packs >> u32::from(is_of_h) & 1 != 0), p);
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
                    let at = Stages::<T, GATES, FRAGMENTS, GROUPS>::weight_at(stage, gate, eight);
                    of_weight[gate][eight] = stages.0.get_pack(at);
                }
            }
            for group in 0..GROUPS {
                let mut of_rows = [[0; 4]; FRAGMENTS];
                for f in 0..FRAGMENTS {
                    let at = Stages::<T, GATES, FRAGMENTS, GROUPS>::row_at(stage, group * FRAGMENTS + f);
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
