//! One step with both products: one launch, weights read once.
//!
//! h_next (c_next) = step(x·w_ihᵀ + b_ih, h·w_hhᵀ + b_hh) for x `[batch, input]`, h (c) `[batch, hidden]`, sums and gates in f32.
//!
//! The products are turned, as those of few rows are: rows of the weights are those of the tensor cores' first operand, rows of
//! the batch the columns of the second. A block owns [`FEW_UNITS`] units: two tiles of 16 rows are all their gates, so that
//! nothing leaves the block but the next state. Four sums make up a unit, of a GRU n of x and n of h apart, since r comes
//! between them. The block's warps take turns along the columns of both weights; what they have is added up in shared memory. Of f32 see also
//! `cell_stages`.
//!
//! Launch: grid (blocks of units, groups of `FRAGMENTS`·8 rows), [`cell_shared_bytes`] of dynamic shared memory.
//!
//! Floor: the weights once at the copy rate; each block reads all its rows of x and h, from L2. In f32 three products of tf32 for each
//! number, of a GRU's a third more for zeros.

use super::cell_products::{FEW_UNITS, Product, SUMS, add, gates_of, words};
use super::exchange::COLUMNS;
use super::math::step;
use super::persistent::WARPS;
use super::words::{WORDS, Words};
use super::{GRU, has};
use cuda_std::bits;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Floats between columns of a warp's sums: a lane's 8 rows and 4 pairs of columns lie in 32 banks.
const fn pitch(units: usize) -> u32 {
    (SUMS * units) as u32 + 4
}

/// Chunks of columns whose loads are in flight: two, but where sums and the parts of f32 leave two blocks of a multiprocessor too
/// few registers.
const fn depth(per_word: usize, fragments: usize) -> usize {
    if per_word == 1 && fragments == 4 { 1 } else { 2 }
}

/// Bytes of a block's sums in shared memory, of so many times eight rows.
pub(super) const fn sums_bytes(units: usize, fragments: usize) -> u32 {
    WARPS * fragments as u32 * COLUMNS * pitch(units) * 4
}

/// Bytes of shared memory.
pub const fn cell_shared_bytes(fragments: usize) -> u32 {
    sums_bytes(FEW_UNITS, fragments)
}

/// What a cell is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Rows of the batch.
    pub batch: u32,
    /// Columns of x: rows are whole words.
    pub input: u32,
    /// Hidden units, likewise.
    pub hidden: u32,
    /// [`has::BIAS`] for b_ih, [`has::PRODUCT`] for b_hh.
    pub has: u32,
    /// Whether rows of x and w_ih (1), or of h and w_hh (2), are whole packs at multiples of 16 bytes.
    pub packs: u32,
}
plain_parameter!(Cell);

/// Adds a product's terms of the warp's turns.
///
/// # Safety
/// The tensors are as [`Product`] says, rows as [`words`] wants them.
#[inline(always)]
unsafe fn multiply<
    T: Words,
    const GATES: usize,
    const FRAGMENTS: usize,
    const WIDTH: usize,
    const DEPTH: usize,
>(
    sums: &mut [[[f32; 4]; FRAGMENTS]; 2],
    product: Product<T>,
    (first_unit, first_row): (u32, u32),
    p: &Cell,
) {
    let Product { weight, of, columns, of_h } = product;
    let lane_row = warp::lane_id() / 4;
    let chunk = const { WORDS * T::PER_WORD as u32 };
    // Of units and rows beyond the last the last one's are read, and what comes of it is not.
    let unit = (first_unit + lane_row).min(p.hidden - 1);
    let mut base = warp::warp_id() * chunk;
    while base < columns {
        let mut of_weight = [[[[0; 4]; 1]; GATES]; DEPTH];
        let mut of_rows = [[[0; 4]; FRAGMENTS]; DEPTH];
        // SAFETY: the caller's contract; rows and columns are below their numbers.
        unsafe {
            for i in 0..DEPTH {
                let k = base + i as u32 * WARPS * chunk;
                for gate in 0..GATES {
                    let row = (gate as u32 * p.hidden + unit) as usize * columns as usize;
                    of_weight[i][gate][0] = words::<T, WIDTH>(weight, row, k, columns);
                }
                for f in 0..FRAGMENTS {
                    let row = (first_row + f as u32 * COLUMNS + lane_row).min(p.batch - 1);
                    of_rows[i][f] = words::<T, WIDTH>(of, row as usize * columns as usize, k, columns);
                }
            }
        }
        for i in 0..DEPTH {
            add::<T, GATES, FRAGMENTS, 1, 2>(sums, &of_weight[i], &of_rows[i], of_h);
        }
        base += DEPTH as u32 * WARPS * chunk;
    }
}

/// Adds both products.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn both<T: Words, const GATES: usize, const FRAGMENTS: usize, const DEPTH: usize>(
    sums: &mut [[[f32; 4]; FRAGMENTS]; 2],
    (of_x, of_h): (Product<T>, Product<T>),
    place: (u32, u32),
    p: &Cell,
) {
    // A loop that stays one: the code is long.
    let (mut turn, end) = (0, bits::opaque(2));
    while turn < end {
        let product = if turn == 0 { of_x } else { of_h };
        // SAFETY: the caller's contract.
        unsafe {
            if p.packs >> turn & 1 != 0 {
                multiply::<T, GATES, FRAGMENTS, 4, DEPTH>(sums, product, place, p);
            } else {
                multiply::<T, GATES, FRAGMENTS, 1, DEPTH>(sums, product, place, p);
            }
        }
        turn += 1;
    }
}

/// A gate's product by ordinary arithmetic, or 0 without a gate: infinities have no parts, and make NaN of what tensor cores
/// add up.
///
/// # Safety
/// As [`multiply`], for a row and a unit that exist.
#[inline(always)]
unsafe fn plain<T: Float>(
    product: Product<T>,
    gate: Option<usize>,
    (row, unit): (u32, u32),
    hidden: u32,
) -> f32 {
    let Product { weight, of, columns, .. } = product;
    let mut sum = 0.0;
    if let Some(gate) = gate {
        let first = (gate as u32 * hidden + unit) as usize * columns as usize;
        for k in 0..columns as usize {
            // SAFETY: the caller's contract.
            let [a, b] = unsafe { [weight.get(first + k), of.get(row as usize * columns as usize + k)] };
            sum = float::fma(a.to_f32(), b.to_f32(), sum);
        }
    }
    sum
}

/// Takes a step.
///
/// # Safety
/// The tensors are as the module says, contiguous; x, h and the weights are as `p` says. The grid covers units and rows.
#[kernel(
    family = "recurrent",
    types = [f32, f16, bf16],
    instances = [
        { GATES: 3, FRAGMENTS: 2; threads: 256, min_blocks: 2 }, { GATES: 3, FRAGMENTS: 4; threads: 256, min_blocks: 2 },
        { GATES: 4, FRAGMENTS: 2; threads: 256, min_blocks: 2 }, { GATES: 4, FRAGMENTS: 4; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn cell<T: Words, const GATES: usize, const FRAGMENTS: usize>(
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
    let place =
        (thread::block_idx_x() * FEW_UNITS as u32, thread::block_idx_y() * FRAGMENTS as u32 * COLUMNS);
    let mut sums = [[[[0.0f32; 4]; FRAGMENTS]; 2]; 1];
    // SAFETY: the caller's contract.
    unsafe {
        let of_x = Product { weight: w_ih, of: x, columns: p.input, of_h: false };
        let of_h = Product { weight: w_hh, of: h, columns: p.hidden, of_h: true };
        if const { depth(T::PER_WORD, FRAGMENTS) == 1 } {
            both::<T, GATES, FRAGMENTS, 1>(&mut sums[0], (of_x, of_h), place, &p);
        } else {
            both::<T, GATES, FRAGMENTS, 2>(&mut sums[0], (of_x, of_h), place, &p);
        }
        let state = State { c, b_ih, b_hh, h_next, c_next };
        finish::<T, GATES, FEW_UNITS, FRAGMENTS, 1, 2>(&sums, (of_x, of_h), place, state, &p);
    }
}

/// What a step needs beside its products, and gives.
#[derive(Clone, Copy)]
pub(super) struct State<T> {
    pub c: Global<T>,
    pub b_ih: Global<T>,
    pub b_hh: Global<T>,
    pub h_next: GlobalMut<T>,
    pub c_next: GlobalMut<T>,
}

/// Adds up the warps' sums and takes the step for all units and rows of the block.
///
/// # Safety
/// As [`cell()`]; all threads call, and the launch gives [`sums_bytes`], of which nobody reads any more.
#[inline(always)]
pub(super) unsafe fn finish<
    T: Words,
    const GATES: usize,
    const UNITS: usize,
    const FRAGMENTS: usize,
    const GROUPS: usize,
    const TILES: usize,
>(
    sums: &[[[[f32; 4]; FRAGMENTS]; TILES]; GROUPS],
    (of_x, of_h): (Product<T>, Product<T>),
    (first_unit, first_row): (u32, u32),
    state: State<T>,
    p: &Cell,
) {
    const { assert!(TILES * 16 == SUMS * UNITS) };
    let (h, State { c, b_ih, b_hh, h_next, c_next }) = (of_h.of, state);
    let is_lstm = const { GATES != GRU };
    let (units, pitch) = (UNITS as u32, const { pitch(UNITS) });
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let rows = (GROUPS * FRAGMENTS) as u32 * COLUMNS;
    // SAFETY: the caller's contract; a warp's sums are read behind the barrier.
    unsafe {
        let shared = Shared::<f32>::dynamic(0, WARPS * rows * pitch);
        for group in 0..GROUPS {
            for f in 0..FRAGMENTS {
                let column = warp * rows + (group * FRAGMENTS + f) as u32 * COLUMNS + lane % 4 * 2;
                for tile in 0..TILES {
                    let of = sums[group][tile][f];
                    let at = column * pitch + tile as u32 * 16 + lane / 4;
                    shared.set(at, of[0]);
                    shared.set(at + pitch, of[1]);
                    shared.set(at + 8, of[2]);
                    shared.set(at + pitch + 8, of[3]);
                }
            }
        }
        thread::sync_threads();
        let mut output = thread::thread_idx_x();
        while output < rows * units {
            let (column, own) = (output / units, output % units);
            let (row, unit) = (first_row + column, first_unit + own);
            if row < p.batch && unit < p.hidden {
                let mut totals = [0.0; SUMS];
                for i in 0..SUMS {
                    for part in 0..WARPS {
                        totals[i] += shared.get((part * rows + column) * pitch + i as u32 * units + own);
                    }
                    if const { T::PER_WORD == 1 } && !totals[i].is_finite() {
                        let [for_x, for_h] = [gates_of(GATES, false)[i], gates_of(GATES, true)[i]];
                        totals[i] = plain(of_x, for_x, (row, unit), p.hidden)
                            + plain(of_h, for_h, (row, unit), p.hidden);
                    }
                }
                let bias = |of: Global<T>, bit: u32, gate: usize| {
                    let at = gate * p.hidden as usize + unit as usize;
                    T::from_bits(of.get_bits_if(p.has & bit != 0, at, 0)).to_f32()
                };
                let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
                for gate in 0..GATES {
                    gx[gate] = totals[gate] + bias(b_ih, has::BIAS, gate);
                    gh[gate] = bias(b_hh, has::PRODUCT, gate);
                }
                if !is_lstm {
                    gh[GATES - 1] += totals[3];
                }
                let at = row as usize * p.hidden as usize + unit as usize;
                let before = if is_lstm { 0.0 } else { T::from_bits(h.get_bits_if(true, at, 0)).to_f32() };
                let cell = T::from_bits(c.get_bits_if(is_lstm, at, 0)).to_f32();
                let (next_h, next_c) = step(gx, gh, before, cell);
                h_next.set(at, T::from_f32(next_h));
                if is_lstm {
                    c_next.set(at, T::from_f32(next_c));
                }
            }
            output += WARPS * warp::SIZE;
        }
    }
}
