//! What the warps that multiply do: of each step, the product of h as it comes, and of the next step that of x.

use super::{BEGUN, FULL, FUSED_UNITS, Factors, Fused, FusedForm, Layout, OF_X, SENT, THREADS, WARPS};
use crate::recurrent::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, ask, receive_or_report};
use crate::recurrent::persistent::multiply::place_of_lane;
use crate::recurrent::slices::Slices;
use crate::recurrent::weights::Corner;
use cuda_std::async_copy;
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Steps that x is fetched ahead: memory takes longer than one.
pub(super) const AHEAD: u32 = 3;

/// A lane's packs of x, on their way from memory by asynchronous copies: a buffer for each step ahead, of which a lane has its own places.
struct Inputs<'a, T, const PAIRS: usize> {
    x: Global<T>,
    buffers: Shared<T>,
    p: &'a Fused,
    /// Of a time, the row's first element.
    row: i64,
    /// The lane's first column.
    column: u32,
}

impl<'a, T: Half, const PAIRS: usize> Inputs<'a, T, PAIRS> {
    /// With the first steps on their way.
    ///
    /// # Safety
    /// x is as `p` says; the launch gives [`FusedForm::inputs_bytes`] from byte `first` on.
    #[inline(always)]
    unsafe fn new(x: Global<T>, p: &'a Fused, first_column: u32, (first, form): (u32, FusedForm)) -> Self {
        // Rows beyond the batch are the last one's: nobody looks at what comes of them.
        let (row, last) = (thread::block_idx_y() * COLUMNS + warp::lane_id() / 4, p.sequence.batch - 1);
        let row = i64::from(if row < last { row } else { last }) * p.x_row;
        // SAFETY: the caller's contract.
        unsafe {
            let buffers = Shared::dynamic(first, form.inputs_bytes() / 2);
            let inputs = Inputs { x, buffers, p, row, column: first_column + warp::lane_id() % 4 * 8 };
            for step in 0..AHEAD {
                inputs.fetch(step, step);
            }
            inputs
        }
    }

    /// The element of a buffer at which the lane's pack of a chunk begins.
    #[inline(always)]
    fn place(&self, buffer: u32, pair: usize) -> u32 {
        let first = (buffer * WARPS as u32 + warp::warp_id()) * PAIRS as u32 + pair as u32;
        (first * warp::SIZE + warp::lane_id()) * 8
    }

    /// Starts to fetch a step, as a group of copies, with zeros where there are no columns; behind the last step an empty group.
    ///
    /// # Safety
    /// x is as `p` says, and the buffer has been read.
    #[inline(always)]
    unsafe fn fetch(&self, step: u32, buffer: u32) {
        let p = &self.p.sequence;
        if step < p.steps {
            let time = if p.reverse == 0 { step } else { p.steps - 1 - step };
            let first = i64::from(time) * self.p.x_time + self.row;
            for pair in 0..PAIRS {
                let column = self.column + pair as u32 * CHUNK;
                let (to, from) = (self.place(buffer, pair), (first + i64::from(column)) as usize);
                // SAFETY: the caller's contract.
                unsafe { self.buffers.copy_16_async(to, self.x, from, column < self.p.columns) };
            }
        }
        async_copy::commit();
    }

    /// The packs of a step that was fetched, behind which [`AHEAD`] less one have been.
    ///
    /// # Safety
    /// As [`Self::fetch`].
    #[inline(always)]
    unsafe fn take(&self, buffer: u32) -> [Pack; PAIRS] {
        async_copy::wait::<{ AHEAD - 1 }>();
        let mut packs = [[0; 4]; PAIRS];
        for pair in 0..PAIRS {
            // SAFETY: the lane's own, which have come.
            packs[pair] = unsafe { self.buffers.get_pack(self.place(buffer, pair)) };
        }
        packs
    }
}

/// Leaves a warp's sums of each tile where accumulators lie: 16 bytes for each lane.
///
/// # Safety
/// `to` has room for those of all warps; nobody reads them.
#[inline(always)]
unsafe fn leave<const GATES: usize>(sums: [[f32; 4]; GATES], to: Shared<f32>) {
    for gate in 0..GATES {
        let at = ((warp::warp_id() * GATES as u32 + gate as u32) * warp::SIZE
            + place_of_lane(warp::lane_id()))
            * 4;
        // SAFETY: the caller's contract.
        unsafe { to.set_pack(at, sums[gate].map(f32::to_bits)) };
    }
}

/// Multiplies in all steps.
///
/// # Safety
/// As [`fused_sequence()`](fn@super::fused_sequence); all lanes of the first `WARPS` warps call, and those behind them do the gates.
#[inline(always)]
pub(super) unsafe fn multiply<
    T: Half,
    const GATES: usize,
    const PAIRS: usize,
    const HELD: usize,
    const HELD_OF_X: usize,
>(
    of: Factors<T>,
    [corner_of_h, corner_of_x]: [Corner; 2],
    p: &Fused,
    form: FusedForm,
) {
    let Factors { w_hh, w_ih, x, exchange, fault } = of;
    let layout = Layout::new(form);
    let (steps, ring) = (p.sequence.steps, p.sequence.ring);
    let lane = warp::lane_id();
    // SAFETY: the caller's contract. Sums are written once those before are read: behind `SENT`.
    unsafe {
        let of_patience = Shared::<u32>::dynamic(layout.patience, WARPS as u32);
        if lane == 0 {
            of_patience.set(warp::warp_id(), ring.patience);
        }
        warp::sync_warp(u32::MAX);
        let has_all = |of: Corner| of.has(FUSED_UNITS, const { PAIRS as u32 * CHUNK });
        let of_x = |row, pair| corner_of_x.pack(FUSED_UNITS, row, pair);
        let w_ih = Slices::<HELD_OF_X, WARPS>::load::<T, GATES, PAIRS>(
            w_ih,
            of_x,
            has_all(corner_of_x),
            layout.weights,
        );
        // All in registers.
        let of_h = |row, pair| corner_of_h.pack(FUSED_UNITS, row, pair);
        let w_hh =
            Slices::<HELD, WARPS>::load::<T, GATES, PAIRS>(w_hh, of_h, has_all(corner_of_h), layout.patience);
        // What is ahead poisons the exchange, and has left weights alone.
        dependent::begin();
        thread::arrive_named(BEGUN, THREADS);
        let sums_of_h = Shared::<f32>::dynamic(0, form.sums());
        let inputs = Inputs::<T, PAIRS>::new(x, p, corner_of_x.k, (layout.inputs, form));
        // An exchange has fewer than 2^32 words.
        let of_warp = warp::warp_id() * PAIRS as u32 * CHUNK_WORDS + lane * 4;
        let first = |slot: u32| (slot * thread::grid_dim_y() + thread::block_idx_y()) * ring.words + of_warp;

        let (mut slot, mut step) = (0, 0);
        let mut asked: [Pack; PAIRS] =
            ask(exchange, |i| (first(slot) + i as u32 * CHUNK_WORDS) as usize, PAIRS);
        let mut buffer = 0;
        leave(w_ih.times::<T, GATES, PAIRS, 2>(inputs.take(buffer)), form.sums_of_x(0));
        thread::arrive_named(OF_X, THREADS);
        inputs.fetch(AHEAD, buffer);
        loop {
            if ring.is_fence(slot) {
                // See `Ring`: who has read a slot fences before it may be written again.
                thread::device_fence();
            }
            let at = |i: usize| (first(slot) + i as u32 * CHUNK_WORDS) as usize;
            let h = receive_or_report(exchange, at, asked, step, of_patience, fault);
            leave(w_hh.times::<T, GATES, PAIRS, 2>(h), sums_of_h);
            thread::arrive_named(FULL, THREADS);
            slot = ring.after(slot);
            step += 1;
            if step == steps {
                break;
            }
            buffer = if buffer + 1 == AHEAD { 0 } else { buffer + 1 };
            // Others are about as far as this block: what it has not sent is asked for in vain, which takes as long as asking.
            thread::sync_named(SENT, THREADS);
            asked = ask(exchange, |i| (first(slot) + i as u32 * CHUNK_WORDS) as usize, PAIRS);
            leave(w_ih.times::<T, GATES, PAIRS, 2>(inputs.take(buffer)), form.sums_of_x(step));
            // Those who do gates have passed the barrier of the step before.
            thread::arrive_named(OF_X, THREADS);
            inputs.fetch(step + AHEAD, buffer);
        }
    }
}
