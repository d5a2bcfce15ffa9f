//! All steps of 16-bit numbers with the input's product, where each group of blocks has one sub-batch.
//!
//! Such a group waits for h half of its time. Here the warps that multiply take the next step's x by w_ih in that time, which spares the
//! large product of all steps, and gx its way to memory and back. A block owns 16 units, a tile of each gate. Four warps hold its rows of
//! w_hh, each a quarter of the columns, all in registers, and those of w_ih, of whose chunks registers hold `HELD_OF_X` (`slices`); four
//! others do gates, a thread those of one unit and one row. Half as many warps that multiply as in [`sequence()`](fn@super::sequence) leave half as
//! many sums to be added up.
//!
//! What passes between the two kinds of warps in a step, by barriers of the block: sums of x ([`OF_X`]), which are read before those of h
//! come; sums of h ([`FULL`]); and that the block's own h has been sent ([`SENT`]), behind which the next one is asked for. Then, and not before, x
//! is multiplied: an h that is asked for later comes later. Sums of x of a step and the next have buffers of their own.
//!
//! x comes by asynchronous copies: a load would be counted with those of h, which would wait for it.
//!
//! Floor of a step: h through L2 and back.

mod gates;
mod multiply;

use super::{Sequence, units};
use crate::recurrent::exchange::{CHUNK, COLUMNS};
use crate::recurrent::slices::rest_bytes;
use crate::recurrent::weights::Corner;
use crate::recurrent::{GRU, has};
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// Hidden units of a block.
pub const FUSED_UNITS: u32 = units(GRU, GRU);
/// Warps of a block that multiply.
const WARPS: usize = 4;
/// Threads that do gates: each has a unit and a row.
const OWNERS: u32 = FUSED_UNITS * COLUMNS;
/// Threads of a block.
const THREADS: u32 = WARPS as u32 * warp::SIZE + OWNERS;

/// The barrier at which sums of x are there.
const OF_X: u32 = 1;
/// The barrier at which sums of h are there.
const FULL: u32 = 2;
/// The barrier at which the block's own h has been sent.
const SENT: u32 = 3;
/// The barrier at which what is ahead of the launch has ended.
const BEGUN: u32 = 4;
/// The barrier of those who do gates, at which all of the last step is there that is kept.
const KEPT: u32 = 5;

/// What a sequence with its input's product is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fused {
    /// Of one sub-batch a group.
    pub sequence: Sequence,
    /// Columns of x, whole packs.
    pub columns: u32,
    /// Elements from a row of w_ih to the next, whole packs.
    pub weight_row: u32,
    /// Elements from a time of x to the next, and from a row to the next: whole packs.
    pub x_time: i64,
    /// See `x_time`.
    pub x_row: i64,
}
plain_parameter!(Fused);

/// What an instance is made of.
#[derive(Clone, Copy, Debug)]
pub struct FusedForm {
    /// Gates of a unit.
    pub gates: usize,
    /// Chunks of columns of a warp, of either product.
    pub pairs: usize,
    /// Chunks of w_ih that registers hold, of all gates' in turn.
    pub held_of_x: usize,
}

impl FusedForm {
    /// Columns that there is room for, in either product.
    pub const fn columns(self) -> usize {
        WARPS * self.pairs * CHUNK as usize
    }

    /// Bytes of shared memory of a block.
    pub const fn shared_bytes(self) -> u32 {
        Layout::new(self).end
    }

    /// Those of x of a step: two steps' in turn.
    ///
    /// # Safety
    /// The launch gives [`Self::shared_bytes`].
    #[inline(always)]
    unsafe fn sums_of_x(self, step: u32) -> Shared<f32> {
        // SAFETY: the caller's contract.
        unsafe { Shared::dynamic(Layout::new(self).of_x + step % 2 * self.sums() * 4, self.sums()) }
    }

    /// Of x on its way.
    const fn inputs_bytes(self) -> u32 {
        multiply::AHEAD * (WARPS * self.pairs) as u32 * warp::SIZE * 16
    }

    /// Floats of one product's sums.
    const fn sums(self) -> u32 {
        (WARPS * self.gates) as u32 * warp::SIZE * 4
    }
}

/// Where things lie in shared memory, in bytes: sums of h first.
#[derive(Clone, Copy)]
struct Layout {
    of_x: u32,
    inputs: u32,
    weights: u32,
    patience: u32,
    kept: u32,
    end: u32,
}

impl Layout {
    #[inline(always)]
    const fn new(of: FusedForm) -> Layout {
        let of_x = of.sums() * 4;
        let inputs = 3 * of_x;
        let weights = inputs + of.inputs_bytes();
        let patience = weights + rest_bytes(WARPS, of.gates, of.pairs, of.held_of_x);
        let kept = patience + WARPS as u32 * 4;
        let end = kept + (2 * of.gates as u32 + 1) * OWNERS * 2;
        Layout { of_x, inputs, weights, patience, kept, end }
    }
}

/// What the warps that multiply are given.
struct Factors<T> {
    w_hh: Global<T>,
    w_ih: Global<T>,
    x: Global<T>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
}

/// What those that do gates are given.
struct Operands<T> {
    b_ih: Global<T>,
    b_hh: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    gx: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
    exchange: GlobalMut<u32>,
}

/// Runs the sequence. x is `[steps, batch, columns]`, its columns neighbours in memory; w_hh is `[GATES·hidden, hidden]`, w_ih `[GATES·hidden, columns]`.
/// With [`has::KEPT`] gx and gh `[steps, batch, GATES·hidden]` get what x and h give to each step's gates, with their bias, and of
/// an LSTM cells `[steps, batch, hidden]` the c it began with.
///
/// # Safety
/// As [`sequence()`](fn@super::sequence), for groups of one sub-batch; x and w_ih start at multiples of 16 bytes. The launch ahead is that which
/// poisons the exchange: what writes weights has ended before that begins.
#[kernel(
    family = "recurrent",
    types = [f16, bf16],
    instances = [
        { GATES: 3, PAIRS: 2, HELD: 6, HELD_OF_X: 6; threads: 256, min_blocks: 1 },
        { GATES: 3, PAIRS: 4, HELD: 12, HELD_OF_X: 4; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 2, HELD: 8, HELD_OF_X: 8; threads: 256, min_blocks: 1 },
        { GATES: 4, PAIRS: 4, HELD: 16, HELD_OF_X: 3; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn fused_sequence<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const HELD_OF_X: usize,
>(
    w_hh: Global<T>,
    w_ih: Global<T>,
    x: Global<T>,
    b_ih: Global<T>,
    b_hh: Global<T>,
    h0: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    y: GlobalMut<T>,
    h_n: GlobalMut<T>,
    c_n: GlobalMut<T>,
    gx: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
    exchange: GlobalMut<u32>,
    fault: GlobalMut<u64>,
    p: Fused,
) {
    let form = const { FusedForm { gates: GATES, pairs: PAIRS, held_of_x: HELD_OF_X } };
    // SAFETY: the caller's contract, and what the two say of one another.
    unsafe {
        if warp::warp_id() < WARPS as u32 {
            let of_h = Corner {
                unit: thread::block_idx_x() * FUSED_UNITS,
                k: warp::warp_id() * PAIRS as u32 * CHUNK,
                hidden: p.sequence.hidden,
                columns: p.sequence.hidden,
                weight_row: p.sequence.weight_row,
            };
            let of_x = Corner { columns: p.columns, weight_row: p.weight_row, ..of_h };
            let of = Factors { w_hh, w_ih, x, exchange, fault };
            multiply::multiply::<T, GATES, PAIRS, HELD, HELD_OF_X>(of, [of_h, of_x], &p, form);
        } else {
            let kept = p.sequence.has & has::KEPT != 0;
            let of = Operands { b_ih, b_hh, h0, c0, lengths, y, h_n, c_n, gx, gh, cells, exchange };
            if kept {
                gates::gates::<T, GATES, true>(of, &p.sequence, form);
            } else {
                gates::gates::<T, GATES, false>(of, &p.sequence, form);
            }
        }
    }
}
