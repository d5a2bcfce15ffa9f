//! All steps of 16-bit numbers: warps that multiply, and warps that do the gates beside the next product.
//!
//! Eight warps hold all rows of w_hh of the block's units, each a slice of the columns, `PAIRS`·32 of them, in registers and shared
//! memory (`slices`). In a turn they receive h of `SPAN` sub-batches, multiply, leave their sums in shared memory, and go on to the next
//! (`multiply`). The other warps add the sums up, do the gates, send the new h, and write y (`gates`). So tensor
//! cores work on one turn while another's gates are computed and its h is on its way; sums lie as accumulators do, which takes
//! one store of 16 bytes a tile.
//!
//! Two barriers of the block pass the one buffer of sums back and forth: `FULL`, at which those who multiply arrive and the others
//! wait, and `EMPTY` the other way. With one turn a step those who multiply ask for the next h when the block has sent its own (`SENT`):
//! asked for too early it is asked for twice.
//!
//! With more units than 512 those who multiply are short of registers, and the others have too many: on Hopper a kernel of its own
//! ([`sequence_hopper()`](fn@sequence_hopper)) deals them out. Of two sub-batches a turn it reads weights from shared memory once for both, of 2048
//! units, or has as many weights in blocks of 16 units as others in blocks of 32, and reads more of h instead, of an LSTM with 1024.
//!
//! Floor of a step: each block reads its group's h from L2, 16 bytes a lane, and from shared memory the weights that
//! registers have no room for.

use super::gates::{OWNERS, gates, has_few, rows_of};
use super::inputs;
use super::multiply::{Held, first_chunk, multiply};
use super::{Sequence, WARPS, units};
use crate::recurrent::exchange::{CHUNK, COLUMNS};
use crate::recurrent::slices::rest_bytes;
use crate::recurrent::weights::Corner;
use crate::recurrent::{GRU, has};
use cuda_std::prelude::*;
use cuda_std::warpgroup;

/// The barrier at which sums are there.
pub(in crate::recurrent) const FULL: u32 = 1;
/// The barrier at which sums have been read.
pub(in crate::recurrent) const EMPTY: u32 = 2;
/// The barrier of those who do gates, at which gx is there.
pub(in crate::recurrent) const FETCHED: u32 = 3;
/// The barrier at which the block's own h has been sent.
pub(in crate::recurrent) const SENT: u32 = 4;

/// The same barrier of a set of threads that do gates.
#[inline(always)]
pub(in crate::recurrent) fn of_set(barrier: u32, set: u32) -> u32 {
    barrier + 4 * set
}

/// Registers of a thread that multiplies, and of one that does gates, where they are dealt out: a block of 384 threads has 168 each.
const MANY_REGISTERS: u32 = 208;
/// See [`MANY_REGISTERS`].
const FEW_REGISTERS: u32 = 88;

/// Threads of a block.
pub(in crate::recurrent) const THREADS: u32 = WARPS * warp::SIZE + OWNERS;

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct HalfForm {
    /// Gates of a unit.
    pub gates: usize,
    /// Tiles of 16 rows of weights of a block.
    pub tiles: usize,
    /// Chunks of columns of a warp.
    pub pairs: usize,
    /// Chunks of a tile, of all tiles' in turn, that registers hold.
    pub held: usize,
    /// Sub-batches of a turn.
    pub span: usize,
}

impl HalfForm {
    /// Hidden units of a block, a multiple of 16.
    pub const fn units(self) -> u32 {
        units(self.gates, self.tiles)
    }

    /// Whether a sub-batch may have fewer rows than columns.
    pub const fn has_few(self) -> bool {
        has_few(self.units(), self.span)
    }

    /// Bytes of shared memory of a block with so many sub-batches.
    pub const fn shared_bytes(self, subs: u32) -> u32 {
        Layout::new(self, subs).end
    }
}

/// Where things lie in shared memory, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub weights: u32,
    pub gx: u32,
    pub h: u32,
    pub c: u32,
    pub lengths: u32,
    pub patience: u32,
    end: u32,
}

impl Layout {
    /// Sums first.
    #[inline(always)]
    pub const fn new(of: HalfForm, subs: u32) -> Layout {
        let weights = WARPS * (of.span * of.tiles) as u32 * warp::SIZE * 16;
        let gx = weights + rest_bytes(WARPS as usize, of.tiles, of.pairs, of.held);
        let h = gx + inputs::elements(of.gates, of.units(), of.span) * 2;
        let state = subs * COLUMNS * of.units() * 4;
        let c = h + state;
        let lengths = c + if of.gates == GRU { 0 } else { state };
        let patience = lengths + subs * COLUMNS * 4;
        Layout { weights, gx, h, c, lengths, patience, end: patience + WARPS * 4 }
    }
}

/// The operands of a sequence.
pub(super) struct Operands<T> {
    pub gx: Global<T>,
    pub bias: Global<T>,
    pub h0: Global<T>,
    pub c0: Global<T>,
    pub lengths: Global<i32>,
    pub y: GlobalMut<T>,
    pub h_n: GlobalMut<T>,
    pub c_n: GlobalMut<T>,
    pub gh: GlobalMut<T>,
    pub cells: GlobalMut<T>,
    pub exchange: GlobalMut<u32>,
}

/// Runs the sequence. `GROWS` is whether the warps that multiply get registers of those that do gates.
///
/// # Safety
/// As [`sequence()`](fn@sequence).
#[inline(always)]
unsafe fn run<
    T: Half,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
    const SPAN: usize,
    const GROWS: bool,
>(
    weight: Global<T>,
    of: Operands<T>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let form = const { HalfForm { gates: GATES, tiles: TILES, pairs: PAIRS, held: HELD, span: SPAN } };
    let layout = Layout::new(form, p.subs);
    // SAFETY: the caller's contract, and what the two say of one another.
    unsafe {
        if warp::warp_id() < WARPS {
            if const { GROWS } {
                warpgroup::grow_registers::<MANY_REGISTERS>();
            }
            let corner = Corner {
                unit: thread::block_idx_x() * form.units(),
                k: first_chunk::<PAIRS, 1>() * CHUNK,
                hidden: p.hidden,
                columns: p.hidden,
                weight_row: p.weight_row,
            };
            let of_row = |row, pair| corner.pack(const { units(GATES, TILES) }, row, pair);
            let all = corner.has(form.units(), const { PAIRS as u32 * CHUNK });
            let load = || Held::<HELD>::load::<T, TILES, PAIRS>(weight, of_row, all, layout.weights);
            let patience = layout.patience;
            if const { has_few(units(GATES, TILES), SPAN) } {
                multiply::<T, TILES, PAIRS, HELD, ROUND, SPAN, 1, true>(
                    load,
                    of.exchange,
                    fault,
                    &p,
                    patience,
                );
            } else {
                multiply::<T, TILES, PAIRS, HELD, ROUND, SPAN, 1, false>(
                    load,
                    of.exchange,
                    fault,
                    &p,
                    patience,
                );
            }
        } else {
            if const { GROWS } {
                warpgroup::shrink_registers::<FEW_REGISTERS>();
            }
            match (const { rows_of(units(GATES, TILES), SPAN) }, p.has & has::KEPT != 0) {
                (1, false) => gates::<T, GATES, TILES, SPAN, 1, false>(of, &p, layout),
                (1, true) => gates::<T, GATES, TILES, SPAN, 1, true>(of, &p, layout),
                (_, false) => gates::<T, GATES, TILES, SPAN, 2, false>(of, &p, layout),
                (_, true) => gates::<T, GATES, TILES, SPAN, 2, true>(of, &p, layout),
            };
        }
    }
}

/// Runs the sequence. gx is `[steps, batch, GATES·hidden]` and contiguous, like h0 and c0; weight is `[GATES·hidden, hidden]`.
/// With `has::KEPT` gh, as gx, gets what h and the bias give to each step's gates, and of an LSTM cells `[steps, batch, hidden]` the c it began with.
///
/// # Safety
/// The tensors that `p.has` names and gx, y, h_n (c_n for an LSTM) are as `p` says, each starting at a multiple of 4 bytes, gx of
/// whole packs (`has::PACKS`) of 16; rows and times of y are an even number of elements apart; all
/// blocks of the grid run at once, blocks of a group own all units, groups all rows; the exchange holds `ring.slots`
/// slots, all poisoned.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, TILES: 3, PAIRS: 1, HELD: 3, ROUND: 1; threads: 384, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 2, HELD: 6, ROUND: 2; threads: 384, min_blocks: 1 },
        { GATES: 3, TILES: 6, PAIRS: 4, HELD: 13, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 8, HELD: 12, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 1, HELD: 4, ROUND: 1; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 2, HELD: 8, ROUND: 2; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 8, PAIRS: 4, HELD: 12, ROUND: 4; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 8, HELD: 12, ROUND: 4; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence<
    T: Half,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
>(
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let of = Operands { gx, bias, h0, c0, lengths, y, h_n, c_n, gh, cells, exchange };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, TILES, PAIRS, HELD, ROUND, 1, false>(weight, of, fault, p) }
}

/// [`sequence()`](fn@sequence) of more than 512 units.
///
/// # Safety
/// As there; groups have a multiple of `SPAN` sub-batches.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, TILES: 6, PAIRS: 4, HELD: 18, ROUND: 4, SPAN: 1; threads: 384, min_blocks: 1 },
        { GATES: 3, TILES: 3, PAIRS: 8, HELD: 8, ROUND: 4, SPAN: 2; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 4, HELD: 12, ROUND: 4, SPAN: 2; threads: 384, min_blocks: 1 },
        { GATES: 4, TILES: 4, PAIRS: 8, HELD: 11, ROUND: 4, SPAN: 2; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sequence_hopper<
    T: Half,
    const GATES: usize,
    const TILES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const ROUND: usize,
    const SPAN: usize,
>(
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
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Sequence,
) {
    let of = Operands { gx, bias, h0, c0, lengths, y, h_n, c_n, gh, cells, exchange };
    // SAFETY: the caller's contract.
    unsafe { run::<T, GATES, TILES, PAIRS, HELD, ROUND, SPAN, true>(weight, of, fault, p) }
}
