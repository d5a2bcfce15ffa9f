//! All steps backwards of 16-bit numbers: warps that multiply, and warps that do the gates beside the next product, as in
//! [`sequence()`](fn@crate::recurrent::sequence).
//!
//! Eight warps hold the weights of the block, each a slice of the columns, receive dgh of a sub-batch, multiply, and leave their sums in shared
//! memory; the others add the sums up, do the gates and send the new dgh (`gates`).
//!
//! Of many columns a block reads more of dgh than L2 gives it in the time of its products. On Hopper a pair of blocks shares them out, a cluster
//! ([`sequence_back_hopper()`](fn@sequence_back_hopper)): each multiplies half of the columns with the units of both, sends the
//! other the sums of the other's units, and so reads half. Gates then take longer than products, and two sets of threads do those of every second
//! sub-batch each.

use super::gates::gates;
use super::inputs;
use super::{OWNERS, Operands, UNITS_BACK, gate_of};
use crate::recurrent::GRU;
use crate::recurrent::exchange::{CHUNK, COLUMNS, POISON};
use crate::recurrent::operand::OfGradient;
use crate::recurrent::persistent::multiply::{Held, first_chunk, multiply};
use crate::recurrent::persistent::{Sequence, WARPS};
use crate::recurrent::slices::rest_bytes;
use cuda_std::cluster;
use cuda_std::prelude::*;
use cuda_std::warpgroup;

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct HalfBackForm {
    /// Gates of a unit.
    pub gates: usize,
    /// Blocks that share out the columns, each with a tile of 16 units: 1, or 2, which have as many sets of threads that do gates.
    pub cluster: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Chunks of a tile, of all tiles' in turn, that registers hold.
    pub held: usize,
}

/// Words of what the other block of a pair sends: of each set's last two turns.
pub(super) const fn inbox_words(cluster: usize) -> u32 {
    if cluster > 1 { 2 * cluster as u32 * OWNERS } else { 0 }
}

impl HalfBackForm {
    /// Bytes of shared memory of a block with so many sub-batches.
    pub const fn shared_bytes(self, subs: u32) -> u32 {
        Layout::new(self, subs).end
    }
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// What the other block of a cluster sends.
    pub inbox: u32,
    weights: u32,
    pub inputs: u32,
    pub dh: u32,
    pub dc: u32,
    pub lengths: u32,
    patience: u32,
    end: u32,
}

impl Layout {
    /// Sums first.
    #[inline(always)]
    const fn new(of: HalfBackForm, subs: u32) -> Layout {
        let HalfBackForm { gates, cluster, pairs, held } = of;
        let inbox = (cluster * cluster) as u32 * WARPS * warp::SIZE * 16;
        let weights = inbox + inbox_words(cluster) * 4;
        let inputs = weights + rest_bytes(WARPS as usize, cluster, pairs, held);
        let dh = inputs + cluster as u32 * inputs::elements(gates) * 2;
        let state = subs * OWNERS * 4;
        let dc = dh + state;
        let lengths = dc + if gates == GRU { 0 } else { state };
        let patience = lengths + subs * COLUMNS * 4;
        Layout { inbox, weights, inputs, dh, dc, lengths, patience, end: patience + WARPS * 4 }
    }
}

/// Where a lane's packs of weights lie: row (gate, unit) of the weights has what the unit's h does to the gate of each unit.
#[derive(Clone, Copy)]
pub(in super::super) struct Place {
    /// The unit of the first of the warp's rows.
    pub unit: u32,
    /// The warp's first chunk of columns, and chunks of a gate.
    pub first_chunk: u32,
    pub chunks: u32,
    pub hidden: u32,
    pub weight_row: u32,
}

impl Place {
    /// The element at which the lane's eight columns of a pair begin in a row, and whether they exist; the weights' first element where not.
    #[inline(always)]
    pub fn pack<const GATES: usize>(self, row: u32, pair: usize) -> (usize, bool) {
        let (gate, chunk, exists) = gate_of::<GATES>(self.first_chunk + pair as u32, self.chunks);
        let (k, unit) = (chunk * CHUNK + warp::lane_id() % 4 * 8, self.unit + row);
        let exists = exists & (k < self.hidden) & (unit < self.hidden);
        let at = (gate * self.hidden + unit) as usize * self.weight_row as usize + k as usize;
        (if exists { at } else { 0 }, exists)
    }

    /// Whether so many rows and pairs do.
    #[inline(always)]
    fn has(self, gates: u32, rows: u32, pairs: u32) -> bool {
        (self.chunks * CHUNK == self.hidden)
            & (self.unit + rows <= self.hidden)
            & (self.first_chunk + pairs <= gates * self.chunks)
    }
}

/// Registers of a thread that multiplies, and of one that does gates, of a pair: a block of 512 threads has 128 each.
const MANY_REGISTERS: u32 = 168;
/// See [`MANY_REGISTERS`].
const FEW_REGISTERS: u32 = 88;

/// Walks the steps backwards.
///
/// # Safety
/// As [`sequence_back()`](fn@sequence_back).
#[inline(always)]
unsafe fn run<
    T: Half,
    const GATES: usize,
    const CLUSTER: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
>(
    weight: Global<T>,
    of: Operands<T>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    const { assert!(CLUSTER == 1 || CLUSTER == 2) };
    let form = HalfBackForm { gates: GATES, cluster: CLUSTER, pairs: PAIRS, held: HELD };
    let layout = Layout::new(form, p.subs);
    // SAFETY: the caller's contract, and what the two say of one another.
    unsafe {
        if const { CLUSTER > 1 } {
            let words = const { inbox_words(CLUSTER) };
            let thread = thread::thread_idx_x();
            if thread < words {
                Shared::<u32>::dynamic(layout.inbox, words).store_relaxed(thread, POISON);
            }
            cluster::sync();
        }
        if warp::warp_id() < WARPS {
            if const { CLUSTER > 1 } {
                warpgroup::grow_registers::<MANY_REGISTERS>();
            }
            let rank = if const { CLUSTER > 1 } { cluster::rank() } else { 0 };
            let place = Place {
                unit: (thread::block_idx_x() - rank) * UNITS_BACK,
                first_chunk: first_chunk::<PAIRS, CLUSTER>(),
                chunks: thread::grid_dim_x() * UNITS_BACK / CHUNK,
                hidden: p.hidden,
                weight_row: p.weight_row,
            };
            let all = place.has(GATES as u32, CLUSTER as u32 * UNITS_BACK, PAIRS as u32);
            let of_row = |row, pair| place.pack::<GATES>(row, pair);
            let load = || Held::<HELD>::load::<T, CLUSTER, PAIRS>(weight, of_row, all, layout.weights);
            // What comes to the initial state is received, too.
            let p = Sequence { steps: p.steps + 1, ..p };
            let patience = layout.patience;
            if const { CLUSTER == 1 } {
                multiply::<T, CLUSTER, PAIRS, HELD, ROUND, 1, CLUSTER, true>(
                    load,
                    of.exchange,
                    fault,
                    &p,
                    patience,
                );
            } else {
                multiply::<T, CLUSTER, PAIRS, HELD, ROUND, 1, CLUSTER, false>(
                    load,
                    of.exchange,
                    fault,
                    &p,
                    patience,
                );
            }
        } else {
            if const { CLUSTER > 1 } {
                warpgroup::shrink_registers::<FEW_REGISTERS>();
            }
            gates::<T, GATES, CLUSTER>(of, &p, layout);
        }
        if const { CLUSTER > 1 } {
            // No block ends before it has got what is sent to it.
            cluster::sync();
        }
    }
}

/// Walks the steps backwards: dgx and dgh of all of them, and the gradients of h and c before the first in place of those after the
/// last. Row (gate, unit) of `weight` is what the unit's h does to the gate of each unit: w_hh with each gate's `[hidden, hidden]`
/// turned over. Of an LSTM dgx is that of gh, too, and dgh is not written. With `has::SUMS` dbias gets sums of both (`bias`), a row for each column of each set of threads that
/// do gates. `p` has no y; its ring is used for a step more.
///
/// # Safety
/// gx, gh, dgx, dgh `[steps, batch, GATES·hidden]`, state (h of a GRU, c of an LSTM, before each step) and dy
/// `[steps, batch, hidden]`, dh (and dc) `[batch, hidden]`, contiguous, each starting at a multiple of 4 bytes, and gx, gh, state and dy in rows of
/// whole packs where `p` has [`has::PACKS`](crate::recurrent::has::PACKS); all blocks of the grid run at once, blocks of a group own whole chunks that hold
/// all units, groups all rows; the exchange holds `ring.slots` slots, all poisoned, with zeros behind the units of all gates.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 4, HELD: 4, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 3, PAIRS: 6, HELD: 6, ROUND: 6; threads: 384, min_blocks: 1 },
        { GATES: 3, PAIRS: 12, HELD: 8, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, HELD: 4, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 4, PAIRS: 8, HELD: 8, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 4, PAIRS: 16, HELD: 8, ROUND: 4; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_back<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
>(
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
    dbias: GlobalMut<f32>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let given = OfGradient { gx, gh, state, dy };
    let of = Operands { given, lengths, dgx, dgh, dh, dc, dbias, exchange };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, 1, PAIRS, HELD, ROUND>(weight, of, fault, p) }
}

/// [`sequence_back()`](fn@sequence_back) of more than 512 units, by clusters of two blocks along x.
///
/// # Safety
/// As there; a group has an even number of blocks.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 6, HELD: 12, ROUND: 3; threads: 512, min_blocks: 1 },
        { GATES: 4, PAIRS: 8, HELD: 12, ROUND: 4; threads: 512, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_back_hopper<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
>(
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
    dbias: GlobalMut<f32>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let given = OfGradient { gx, gh, state, dy };
    let of = Operands { given, lengths, dgx, dgh, dh, dc, dbias, exchange };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, 2, PAIRS, HELD, ROUND>(weight, of, fault, p) }
}
