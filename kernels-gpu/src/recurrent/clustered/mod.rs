//! All steps of 16-bit numbers by clusters that each hold all recurrent weights, on Hopper: forward and backward.
//!
//! Of few units the way through L2 and back is most of a step of [`persistent`](super::persistent). Here the blocks that wait for one another are a
//! cluster, and store what they give one another into each other's shared memory. What is stored so takes longer the more there is, so that a cluster has few
//! rows of the batch, up to [`CLUSTERED_ROWS`], and others have the rest.
//!
//! A block has a *chunk* of units. Eight warps hold the rows of its weights in registers (`slices`), four parts of the columns of two halves of the units,
//! and multiply (`multiply`); of the others each has a row of the batch, and a lane a unit: they add up sums, do the gates and send (`gates`,
//! `gates_back`). What passes between blocks lies as lanes want it for fragments, in *slots* in turn (`cells`), and is its own flag: every word is
//! [`POISON`](super::POISON) until it comes. Who receives something of a step knows that its block has received all of two steps before, and empties that slot; it is sent to two
//! steps later, by blocks that have what this one sent behind that. Sums lie in two buffers in turn, which barriers pass back and forth.
//!
//! Blocks of a cluster are started together, and clusters do not wait for one another: the launch is not cooperative, the grid may be larger than the GPU.
//!
//! Launch: grid (blocks of a cluster, clusters), clusters of all blocks along x, the form's bytes of dynamic shared memory.
//!
//! Floor of a step: a word's way to another multiprocessor, the products, two barriers of warps.

mod cells;
mod gates;
mod gates_back;
mod inputs;
mod multiply;

use super::exchange::{CHUNK, not_poison, word};
use super::operand::OfGradient;
use super::persistent::{Sequence, WARPS};
use super::persistent_back::Place;
use super::weights::Corner;
use super::{GRU, has};
use cells::Cells;
use cuda_std::cluster;
use cuda_std::prelude::*;
use multiply::{Held, Sums, multiply, sums_bytes};

/// Hidden units of a block: a chunk.
pub const CLUSTERED_UNITS: u32 = CHUNK;
/// The most rows of the batch of a cluster.
pub const CLUSTERED_ROWS: u32 = 4;
/// The most blocks of a cluster.
pub const CLUSTERED_BLOCKS: u32 = 12;
/// Parts of the columns.
const PARTS: usize = 4;
/// Halves of a block's units, a tile of each gate's rows.
const HALVES: usize = (CLUSTERED_UNITS / 16) as usize;
const _: () = assert!(PARTS * HALVES == WARPS as usize);

/// The first of two barriers at which sums are there, of steps in turn.
const FULL: u32 = 1;

/// The first of two barriers at which they have been read: who writes them two steps later passes it, and long after.
const EMPTY: u32 = 3;

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct ClusteredForm {
    /// Tiles of 16 rows of weights of a warp.
    tiles: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Numbers that a unit is given at each step.
    operands: usize,
}

impl ClusteredForm {
    /// Of a forward pass: gx of each gate comes.
    pub const fn forward(gates: usize, pairs: usize) -> ClusteredForm {
        ClusteredForm { tiles: gates, pairs, operands: gates }
    }

    /// Of a gradient.
    pub const fn backward(gates: usize, pairs: usize) -> ClusteredForm {
        ClusteredForm { tiles: 1, pairs, operands: OfGradient::<()>::count(gates) }
    }

    /// Chunks of columns that there is room for.
    pub const fn chunks(self) -> usize {
        PARTS * self.pairs
    }

    /// Bytes of shared memory of a block with so many rows.
    pub const fn shared_bytes(self, rows: u32) -> u32 {
        Layout::new(self, rows).end
    }
}

/// Where things lie in shared memory, in bytes: sums first.
#[derive(Clone, Copy)]
struct Layout {
    cells: u32,
    /// What gates are given.
    inputs: u32,
    /// What a gradient's warps exchange among their lanes, and give one another.
    aside: u32,
    given: u32,
    end: u32,
}

impl Layout {
    #[inline(always)]
    const fn new(of: ClusteredForm, rows: u32) -> Layout {
        let cells = sums_bytes(of.tiles);
        let inputs = cells + cells::words(of.chunks() as u32, rows) * 4;
        let aside = inputs + rows * inputs::elements(of.operands) * 2;
        let given = aside + rows * cells::ASIDE_WORDS * 4;
        Layout { cells, inputs, aside, given, end: given + rows * gates_back::GIVEN_BYTES }
    }
}

/// Threads that meet at the barriers: of the warps that have something to multiply, and of those that do gates.
#[inline(always)]
fn threads<const PAIRS: usize>(exchange: Cells<PAIRS>) -> u32 {
    (exchange.receivers() * HALVES as u32 + exchange.rows) * warp::SIZE
}

/// The sum of the parts, by pairs.
#[inline(always)]
fn total(parts: [f32; PARTS]) -> f32 {
    (parts[0] + parts[1]) + (parts[2] + parts[3])
}

/// The word of the lane's unit and its neighbour, of which each gives a number. All lanes call.
#[inline(always)]
fn pair_of<T: Half>(value: f32) -> u32 {
    let other = warp::warp_shuffle_xor(u32::MAX, value, 1, warp::SIZE).0;
    word::<T>(value, other)
}

/// As [`pair_of`], of two numbers each.
#[inline(always)]
fn pairs_of<T: Half>(values: [f32; 2]) -> [u32; 2] {
    let mut pack = [0; 4];
    T::set_pair(&mut pack, 0, values);
    let (own, other) = (pack[0], warp::warp_shuffle_xor(u32::MAX, pack[0], 1, warp::SIZE).0);
    [(own & 0xffff) | (other << 16), (own >> 16) | (other & 0xffff_0000)].map(not_poison)
}

/// The operands of a forward pass.
struct Operands<T> {
    gx: Global<T>,
    bias: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
}

/// The operands of a gradient.
#[derive(Clone, Copy)]
struct OperandsBack<T> {
    given: OfGradient<T>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
}

/// Runs the sequence: tensors as those of [`sequence()`](fn@super::sequence).
///
/// # Safety
/// As there, but for what it says of the grid and the exchange; a cluster's blocks, up to [`CLUSTERED_BLOCKS`], own all units, its rows are 1, 2 or 4, clusters own all rows. The ring is
/// not used.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 2, HELD: 6; threads: 384, min_blocks: 1 },
        { GATES: 3, PAIRS: 3, HELD: 9; threads: 384, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, HELD: 8; threads: 384, min_blocks: 1 },
        { GATES: 4, PAIRS: 3, HELD: 12; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn clustered_sequence<T: Half, const GATES: usize, const PAIRS: usize, const HELD: usize>(
    weight: Global<T>,
    gx: Global<T>,
    bias: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
    p: Sequence,
) {
    const { assert!(HELD == GATES * PAIRS, "all weights are in registers") };
    let form = const { ClusteredForm::forward(GATES, PAIRS) };
    let layout = Layout::new(form, p.rows);
    // SAFETY: the caller's contract, and what the two say of one another. No block ends before what is sent to it has come.
    unsafe {
        let exchange = Cells::<PAIRS>::empty(layout.cells, p.rows, cluster::size());
        let sums = Sums::new(form.tiles, exchange.receivers());
        cluster::sync();
        if warp::warp_id() < WARPS {
            let corner = Corner {
                unit: multiply::first_unit(multiply::half()),
                k: multiply::part() * PAIRS as u32 * CHUNK,
                hidden: p.hidden,
                columns: p.hidden,
                weight_row: p.weight_row,
            };
            let of_row = |row, pair| corner.pack(16, row, pair);
            let all = corner.has(16, const { PAIRS as u32 * CHUNK });
            let held = Held::<HELD>::load::<T, GATES, PAIRS>(weight, of_row, all, layout.cells);
            multiply::<T, GATES, PAIRS, HELD, 2>(held, exchange, sums, p.steps);
        } else if warp::warp_id() < WARPS + p.rows {
            let of = Operands { gx, bias, h0, c0, lengths, y, h_n, c_n, gh, cells };
            gates::gates::<T, GATES, PAIRS>(of, &p, (exchange, sums), layout.inputs);
        }
        cluster::sync();
    }
}

/// Walks the steps backwards: tensors as those of [`sequence_back()`](fn@super::sequence_back).
///
/// # Safety
/// As there and as [`clustered_sequence()`](fn@clustered_sequence).
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 6; threads: 512, min_blocks: 1 },
        { GATES: 4, PAIRS: 8; threads: 512, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn clustered_sequence_back<T: Half, const GATES: usize, const PAIRS: usize>(
    weight: Global<T>,
    gx: Global<T>,
    gh: Global<T>,
    state: Global<T>,
    dy: Global<T>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    p: Sequence,
) {
    let form = const { ClusteredForm::backward(GATES, PAIRS) };
    let layout = Layout::new(form, p.rows);
    // SAFETY: as in the forward pass.
    unsafe {
        let given = OfGradient { gx, gh, state, dy };
        let of = OperandsBack { given, lengths, dgx, dgh, dh, dc };
        let first = WARPS + CLUSTERED_ROWS;
        let exchange = Cells::<PAIRS>::empty(layout.cells, p.rows, GATES as u32 * cluster::size());
        let sums = Sums::new(form.tiles, exchange.receivers());
        cluster::sync();
        if warp::warp_id() < WARPS {
            let place = Place {
                unit: multiply::first_unit(multiply::half()),
                first_chunk: multiply::part() * PAIRS as u32,
                chunks: cluster::size(),
                hidden: p.hidden,
                weight_row: p.weight_row,
            };
            let of_row = |row, pair| place.pack::<GATES>(row, pair);
            let held = Held::<PAIRS>::load::<T, 1, PAIRS>(weight, of_row, false, layout.cells);
            // What comes to the initial state is received, too.
            multiply::<T, 1, PAIRS, PAIRS, 4>(held, exchange, sums, p.steps + 1);
        } else if warp::warp_id() < WARPS + p.rows {
            gates_back::gates::<T, GATES, PAIRS>(of, &p, (exchange, sums), layout);
        } else if (first..first + p.rows).contains(&warp::warp_id()) {
            gates_back::prepare::<T, GATES>(of, &p, layout);
        }
        cluster::sync();
    }
}
