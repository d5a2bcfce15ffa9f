//! The gradient of a step's gates, behind the product of the step after it.
//!
//! The gradient of h' is the sum of dh, dy and what comes through gh of the step after, sums `[splits, batch, hidden]`; see
//! [`gates_backward()`](fn@super::super::gates_backward). dgh also goes out as parts, of which terms are those of all gates in turn, padded.
//!
//! Launch: as [`stream_gates()`](fn@super::stream_gates).
//!
//! Floor: its operands once.

use super::super::bias::OfBias;
use super::super::math::{FACTORS, Factors};
use super::super::step::of_unit;
use super::super::{GRU, has};
use super::four::{FOUR, Four, To, add_shares, load_four, load_words_once, store_four, store_parts, widened};
use super::{StreamStep, Streamed, TERMS};
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Takes the step back. Launches ahead of the product have left gx, gh, h, c and dy.
///
/// # Safety
/// gx, gh, dgx, dgh `[batch, GATES·hidden]`, h, c, dh, dc `[batch, hidden]`, contiguous; dgh of a GRU and c and dc of an LSTM alone, sums
/// with `p.splits`. The rest is as [`stream_gates()`](fn@super::stream_gates).
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f32, f16, bf16],
    instances = [
        { GATES: 3, WIDE: 0; threads: 128, min_blocks: 3 }, { GATES: 3, WIDE: 1; threads: 128, min_blocks: 3 },
        { GATES: 4, WIDE: 0; threads: 128, min_blocks: 3 }, { GATES: 4, WIDE: 1; threads: 128, min_blocks: 3 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn stream_gates_back<T: Streamed, const GATES: usize, const WIDE: usize>(
    gx: Global<T>,
    gh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    dy: Global<T>,
    sums: Global<f32>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    parts: GlobalMut<u32>,
    scales: GlobalMut<f32>,
    p: StreamStep,
) {
    let four = Four::of_thread(&p);
    let left = four.left;
    let of = OfGatesBack { gx, gh, h, c, dy, lengths, dgx, dgh, dh, dc };
    // SAFETY: the caller's contract.
    unsafe {
        let ahead = of.load::<GATES, WIDE>(&p, four).ahead::<T>();
        dependent::wait();
        dependent::allow_next();
        let at = four.of_gate(&p, 1, 0);
        let mut of_h = [load_four::<f32, WIDE>(Global::from_raw(dh.raw()), left, at)];
        let left_of_c = if const { GATES != GRU } { left } else { 0 };
        let of_c = load_four::<f32, WIDE>(Global::from_raw(dc.raw()), left_of_c, at);
        let of_share = p.batch as usize * p.hidden as usize;
        add_shares::<WIDE, 1>(&mut of_h, sums, left, |_| at, (p.splits, of_share));
        let chunks = GATES as u32 * p.fours.value() * FOUR / TERMS;
        let to = To { parts, scales, lines: p.batch, chunks };
        let slopes = ahead.slopes(left, (of_h[0], of_c));
        of.store_terms(&p, four, &slopes, to);
        of.store::<GATES, WIDE>(&p, four, &slopes);
    }
}

/// The operands.
#[derive(Clone, Copy)]
pub(super) struct OfGatesBack<T> {
    pub gx: Global<T>,
    pub gh: Global<T>,
    pub h: Global<T>,
    pub c: Global<T>,
    pub dy: Global<T>,
    pub lengths: Global<i32>,
    pub dgx: GlobalMut<T>,
    pub dgh: GlobalMut<T>,
    pub dh: GlobalMut<f32>,
    pub dc: GlobalMut<f32>,
}

/// What does not wait for the product, as it lies in memory: it may wait in registers.
#[derive(Clone, Copy)]
pub(super) struct Given<const GATES: usize> {
    of_x: [Pack; GATES],
    of_h: [Pack; GATES],
    before: Pack,
    before_c: Pack,
    of_y: Pack,
    active: bool,
}

impl<const GATES: usize> Given<GATES> {
    /// What the gradients are multiples of.
    #[inline(always)]
    pub fn ahead<T: Streamed>(self) -> Ahead<GATES> {
        let (mut of_x, mut of_h) = ([[0.0; 4]; GATES], [[0.0; 4]; GATES]);
        for gate in 0..GATES {
            of_x[gate] = widened::<T>(self.of_x[gate]);
            of_h[gate] = widened::<T>(self.of_h[gate]);
        }
        let [before, before_c, of_y] = [self.before, self.before_c, self.of_y].map(widened::<T>);
        let mut factors = [Factors([0.0; FACTORS]); 4];
        for i in 0..4 {
            factors[i] = Factors::new(of_unit(&of_x, i), of_unit(&of_h, i), (before[i], before_c[i]));
        }
        Ahead { factors, of_y, active: self.active }
    }
}

/// What the gradients of four units are multiples of, and dy.
#[derive(Clone, Copy)]
pub(super) struct Ahead<const GATES: usize> {
    factors: [Factors; 4],
    of_y: [f32; 4],
    active: bool,
}

/// The gradients of four units.
#[derive(Clone, Copy)]
pub(super) struct Slopes<const GATES: usize> {
    to_x: [[f32; 4]; GATES],
    to_h: [[f32; 4]; GATES],
    dh: [f32; 4],
    dc: [f32; 4],
}

impl<const GATES: usize> Ahead<GATES> {
    /// From dh, with what comes through gh of the step behind, and dc; so many units exist.
    #[inline(always)]
    pub fn slopes(&self, left: u32, (dh, dc): ([f32; 4], [f32; 4])) -> Slopes<GATES> {
        let mut slopes = Slopes { to_x: [[0.0; 4]; GATES], to_h: [[0.0; 4]; GATES], dh, dc };
        for i in 0..4 {
            let of = self.factors[i].slopes::<GATES>((dh[i] + self.of_y[i], dc[i]));
            if self.active && (i as u32) < left {
                for gate in 0..GATES {
                    slopes.to_x[gate][i] = of.dgx[gate];
                    slopes.to_h[gate][i] = of.dgh[gate];
                }
                slopes.dh[i] = of.dh;
                slopes.dc[i] = of.dc;
            }
        }
        slopes
    }
}

impl<const GATES: usize> Slopes<GATES> {
    /// Adds the units' to sums.
    #[inline(always)]
    pub fn add_to(&self, sums: &mut [OfBias<GATES>; 4]) {
        for i in 0..4 {
            sums[i].add(of_unit(&self.to_x, i), of_unit(&self.to_h, i));
        }
    }
}

impl<T: Streamed> OfGatesBack<T> {
    /// The operands of the step's time, where these are of all times, one behind the other; dy's so many elements apart.
    ///
    /// # Safety
    /// There is such a time.
    #[inline(always)]
    pub unsafe fn at<const GATES: usize>(self, p: &StreamStep, y_time: i64) -> Self {
        let of_time = i64::from(p.time) * i64::from(p.batch * p.hidden);
        let of_gates = of_time * GATES as i64;
        let (of_c, of_dgh) = if const { GATES == GRU } { (0, of_gates) } else { (of_time, 0) };
        let of_y = if p.has & has::Y != 0 { i64::from(p.time) * y_time } else { 0 };
        // SAFETY: the caller's contract; what is not there has no times.
        unsafe {
            OfGatesBack {
                gx: self.gx.offset(of_gates),
                gh: self.gh.offset(of_gates),
                h: self.h.offset(of_time),
                c: self.c.offset(of_c),
                dy: self.dy.offset(of_y),
                dgx: self.dgx.offset(of_gates),
                dgh: self.dgh.offset(of_dgh),
                ..self
            }
        }
    }

    /// Reads what was there before the product.
    ///
    /// # Safety
    /// As [`stream_gates_back()`](fn@stream_gates_back).
    #[inline(always)]
    pub unsafe fn load<const GATES: usize, const WIDE: usize>(
        &self,
        p: &StreamStep,
        four: Four,
    ) -> Given<GATES> {
        let (mut of_x, mut of_h) = ([[0; 4]; GATES], [[0; 4]; GATES]);
        let Four { row, left, .. } = four;
        // SAFETY: the caller's contract.
        unsafe {
            for gate in 0..GATES {
                of_x[gate] = load_words_once::<T, WIDE>(self.gx, left, four.of_gate(p, GATES, gate));
                of_h[gate] = load_words_once::<T, WIDE>(self.gh, left, four.of_gate(p, GATES, gate));
            }
            let at = four.of_gate(p, 1, 0);
            let before = load_words_once::<T, WIDE>(self.h, left, at);
            let left_of_c = if const { GATES != GRU } { left } else { 0 };
            let before_c = load_words_once::<T, WIDE>(self.c, left_of_c, at);
            let ends = left > 0 && p.has & has::LENGTHS != 0;
            let length = self.lengths.get_bits_if(ends, row as usize, i32::MAX as u32) as i32;
            let active = (p.time as i32) < length;
            let left_of_y = if active && p.has & has::Y != 0 { left } else { 0 };
            let of_y = load_words_once::<T, WIDE>(self.dy, left_of_y, four.of_y(p));
            Given { of_x, of_h, before, before_c, of_y, active }
        }
    }

    /// Writes the terms of the next product.
    ///
    /// # Safety
    /// As [`stream_gates_back()`](fn@stream_gates_back); of parts with scales all lanes call, those of a chunk of terms together.
    #[inline(always)]
    pub unsafe fn store_terms<const GATES: usize>(
        &self,
        p: &StreamStep,
        four: Four,
        slopes: &Slopes<GATES>,
        to: To,
    ) {
        for gate in 0..GATES {
            let term = gate as u32 * p.fours.value() * FOUR + four.unit;
            // SAFETY: the caller's contract.
            unsafe { store_parts::<T>(to, four.inside, (four.row, term), slopes.to_h[gate]) };
        }
    }

    /// Writes everything else.
    ///
    /// # Safety
    /// As [`stream_gates_back()`](fn@stream_gates_back).
    #[inline(always)]
    pub unsafe fn store<const GATES: usize, const WIDE: usize>(
        &self,
        p: &StreamStep,
        four: Four,
        slopes: &Slopes<GATES>,
    ) {
        let is_lstm = const { GATES != GRU };
        let (left, at) = (four.left, four.of_gate(p, 1, 0));
        // SAFETY: the caller's contract.
        unsafe {
            store_four::<f32, WIDE>(self.dh, left, at, slopes.dh);
            store_four::<f32, WIDE>(self.dc, if is_lstm { left } else { 0 }, at, slopes.dc);
            for gate in 0..GATES {
                let at = four.of_gate(p, GATES, gate);
                store_four::<T, WIDE>(self.dgx, left, at, slopes.to_x[gate]);
                if !is_lstm {
                    store_four::<T, WIDE>(self.dgh, left, at, slopes.to_h[gate]);
                }
            }
        }
    }

    /// Has what [`Self::load`] reads fetched into L2.
    #[inline(always)]
    pub fn prefetch<const GATES: usize>(&self, p: &StreamStep, four: Four) {
        let (when, at) = (four.left > 0, four.of_gate(p, 1, 0));
        for gate in 0..GATES {
            self.gx.prefetch_if(when, four.of_gate(p, GATES, gate));
            self.gh.prefetch_if(when, four.of_gate(p, GATES, gate));
        }
        self.h.prefetch_if(when, at);
        self.c.prefetch_if(when && const { GATES != GRU }, at);
        self.dy.prefetch_if(when && p.has & has::Y != 0, four.of_y(p));
    }
}

/// dh += what comes through gh of the first step, sums `[splits, count]`.
///
/// # Safety
/// The tensors have as much; the grid has a thread for each of `count`.
#[kernel(family = "recurrent_hopper", requires = "sm_90a", instances = [{ ; threads: 256 }])]
pub unsafe fn stream_collect(sums: Global<f32>, dh: GlobalMut<f32>, splits: u32, count: u32) {
    let index = thread::index_1d();
    dependent::wait();
    if index < u64::from(count) {
        let at = index as usize;
        // SAFETY: the caller's contract.
        unsafe {
            let mut all = dh.get(at);
            for split in 0..splits as usize {
                all += sums.get(split * count as usize + at);
            }
            dh.set(at, all);
        }
    }
}
