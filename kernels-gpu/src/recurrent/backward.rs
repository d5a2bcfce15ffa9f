//! The gradient of one step, and what the gradient of a sequence needs of the steps.
//!
//! Nothing of the forward pass is kept but y (and the operands): gx and gh of all steps are recomputed as two large
//! products, of x and of the h that each step began with ([`previous()`](fn@previous)); an LSTM's c by walking the steps
//! again ([`cells()`](fn@cells)). Then the steps are walked backwards: [`gates_backward()`](fn@gates_backward), and a product with w_hh.

use super::math::{Factors, step};
use super::quads::{load, store};
use super::step::{Step, inputs, of_unit, place};
use super::{GRU, has};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// The gradients of one step's gates' inputs, and of h and c but for what comes through gh.
///
/// The gradient of h' is the sum of dy (rows `p.y_row` apart), `product` and `dh`, that of c' is `dc`: each counts where `p.has` says
/// so. dh and dc are replaced by the gradients of h and c. Of an LSTM dgx is that of gh, too, and dgh is not
/// written. Rows at their end pass dh and dc on, dy aside, and give zeros.
///
/// Launch: 1-D grid, a thread for each `WIDTH` units of a row. Floor: (4·GATES + 5)·batch·hidden elements at the copy rate.
///
/// # Safety
/// gx, gh, dgx, dgh `[batch, GATES·hidden]`, h, c, product, dh, dc `[batch, hidden]`, contiguous and aligned to `WIDTH` elements; the
/// grid covers them.
#[kernel(
    family = "recurrent",
    types = [f32, f16, bf16],
    instances = [
        { GATES: 3, WIDTH: 1; threads: 256 }, { GATES: 3, WIDTH: 4; threads: 128 },
        { GATES: 4, WIDTH: 1; threads: 256 }, { GATES: 4, WIDTH: 4; threads: 128 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gates_backward<T: Float, const GATES: usize, const WIDTH: usize>(
    gx: Global<T>,
    gh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    dy: Global<T>,
    product: Global<f32>,
    lengths: Global<i32>,
    dgx: GlobalMut<T>,
    dgh: GlobalMut<T>,
    dh: GlobalMut<f32>,
    dc: GlobalMut<f32>,
    p: Step,
) {
    let (row, unit, inside) = place::<WIDTH>(&p);
    let is_lstm = const { GATES != GRU };
    let given = |bit: u32| inside && p.has & bit != 0;
    // SAFETY: the caller's contract.
    unsafe {
        let length = lengths.get_bits_if(given(has::LENGTHS), row as usize, i32::MAX as u32) as i32;
        let active = (p.time as i32) < length;
        let of_x = inputs::<T, GATES, WIDTH>(gx, inside, (row as usize, unit), p.hidden);
        let of_h = inputs::<T, GATES, WIDTH>(gh, inside, (row as usize, unit), p.hidden);
        let at = row as usize * p.hidden as usize + unit as usize;
        let h = load::<T, WIDTH>(h, inside, at);
        let c = load::<T, WIDTH>(c, inside && is_lstm, at);
        let y_at = i64::from(row) * p.y_row + i64::from(unit);
        let of_y = load::<T, WIDTH>(dy, given(has::Y) && active, y_at as usize);
        let mut of_h_next = load::<f32, WIDTH>(product, given(has::PRODUCT), at);
        let mut of_c_next = [0.0; WIDTH];
        for i in 0..WIDTH {
            if given(has::H) {
                of_h_next[i] += dh.get(at + i);
            }
            if is_lstm && given(has::C) {
                of_c_next[i] = dc.get(at + i);
            }
        }
        let (mut to_x, mut to_h) = ([[0.0; WIDTH]; GATES], [[0.0; WIDTH]; GATES]);
        for i in 0..WIDTH {
            let given = (of_h_next[i] + of_y[i], of_c_next[i]);
            let of = Factors::new(of_unit(&of_x, i), of_unit(&of_h, i), (h[i], c[i])).slopes::<GATES>(given);
            if active {
                for gate in 0..GATES {
                    to_x[gate][i] = of.dgx[gate];
                    to_h[gate][i] = of.dgh[gate];
                }
                of_h_next[i] = of.dh;
                of_c_next[i] = of.dc;
            }
        }
        for gate in 0..GATES {
            let at = (row as usize * GATES + gate) * p.hidden as usize + unit as usize;
            store::<T, WIDTH>(dgx, inside, at, to_x[gate]);
            if !is_lstm {
                store::<T, WIDTH>(dgh, inside, at, to_h[gate]);
            }
        }
        store::<f32, WIDTH>(dh, inside, at, of_h_next);
        if is_lstm {
            store::<f32, WIDTH>(dc, inside, at, of_c_next);
        }
    }
}

/// A walk over the steps of a sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Hidden units over those of a thread.
    pub units: Divisor,
    /// Steps.
    pub steps: u32,
    /// Rows of the batch.
    pub batch: u32,
    /// Hidden units.
    pub hidden: u32,
    /// Whether the steps begin at the last time.
    pub reverse: u32,
    /// Bits of [`has`].
    pub has: u32,
    /// Elements from a time of y to the next, and from a row to the next.
    pub y_time: i64,
    /// See `y_time`.
    pub y_row: i64,
}
plain_parameter!(Walk);

/// Steps whose operands a thread reads at once.
const DEPTH: usize = 4;

/// The c that each step of an LSTM began with, `before[time, batch, hidden]`, from gx and gh `[time, batch, 4·hidden]`, c0 and
/// lengths. A thread walks the steps of one unit of one row, with c in f32.
///
/// # Safety
/// Contiguous tensors of these shapes; the grid has a thread for each unit of each row.
#[kernel(family = "recurrent", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn cells<T: Float>(
    gx: Global<T>,
    gh: Global<T>,
    c0: Global<T>,
    lengths: Global<i32>,
    before: GlobalMut<T>,
    p: Walk,
) {
    let index = thread::index_1d();
    let inside = index < u64::from(p.batch) * u64::from(p.hidden);
    let (row, unit) = p.units.div_rem(if inside { index as u32 } else { 0 });
    // SAFETY: the caller's contract.
    unsafe {
        let bits = lengths.get_bits_if(inside && p.has & has::LENGTHS != 0, row as usize, i32::MAX as u32);
        let at = row as usize * p.hidden as usize + unit as usize;
        let mut c = T::from_bits(c0.get_bits_if(inside && p.has & has::C != 0, at, 0)).to_f32();
        let mut first = 0;
        while first < p.steps {
            let (mut of_x, mut of_h) = ([[[0.0; 1]; 4]; DEPTH], [[[0.0; 1]; 4]; DEPTH]);
            for i in 0..DEPTH {
                let now = first + i as u32;
                let time = if p.reverse == 0 { now } else { p.steps.wrapping_sub(1 + now) };
                let there = inside && now < p.steps;
                let at = (time as usize * p.batch as usize + row as usize, unit);
                of_x[i] = inputs::<T, 4, 1>(gx, there, at, p.hidden);
                of_h[i] = inputs::<T, 4, 1>(gh, there, at, p.hidden);
            }
            for i in 0..DEPTH {
                let now = first + i as u32;
                let time = if p.reverse == 0 { now } else { p.steps.wrapping_sub(1 + now) };
                let there = inside && now < p.steps;
                let at =
                    (time as usize * p.batch as usize + row as usize) * p.hidden as usize + unit as usize;
                before.set_if(there, at, T::from_f32(c));
                if (time as i32) < bits as i32 {
                    c = step(of_unit(&of_x[i], 0), of_unit(&of_h[i], 0), 0.0, c).1;
                }
            }
            first += DEPTH as u32;
        }
    }
}

/// Units of a row at a time.
struct Spot {
    time: u32,
    row: u32,
    unit: u32,
    inside: bool,
}

impl Spot {
    /// Of a thread for each `WIDTH` units of each row, along y the times from `first` on.
    #[inline(always)]
    fn of_thread<const WIDTH: usize>(p: &Walk, first: u32) -> Spot {
        let index = thread::index_1d();
        let inside = index < u64::from(p.batch) * u64::from(p.units.value());
        let (row, group) = p.units.div_rem(if inside { index as u32 } else { 0 });
        Spot { time: first + thread::block_idx_y(), row, unit: group * WIDTH as u32, inside }
    }
}

/// x of the times within each row's length, and zeros behind: `to[time, batch, hidden]`, of as many columns as `p` has units. What multiplies zeros by x wants it,
/// which behind the lengths may be anything.
///
/// # Safety
/// `to` contiguous, x as `p` says y is, both aligned to `WIDTH` elements, a length for each row; the grid as that of [`previous()`](fn@previous).
#[kernel(
    family = "recurrent",
    types = [f32, f16, bf16],
    instances = [{ WIDTH: 1; threads: 256 }, { WIDTH: 4; threads: 256 }],
)]
pub unsafe fn within_lengths<T: Float, const WIDTH: usize>(
    x: Global<T>,
    lengths: Global<i32>,
    to: GlobalMut<T>,
    p: Walk,
    first: u32,
) {
    let Spot { time, row, unit, inside } = Spot::of_thread::<WIDTH>(&p, first);
    // SAFETY: the caller's contract.
    unsafe {
        let length = lengths.get_bits_if(inside, row as usize, 0) as i32;
        let from = i64::from(time) * p.y_time + i64::from(row) * p.y_row + i64::from(unit);
        let values = load::<T, WIDTH>(x, inside && (time as i32) < length, from as usize);
        let of_row = time as usize * p.batch as usize + row as usize;
        store::<T, WIDTH>(to, inside, of_row * p.hidden as usize + unit as usize, values);
    }
}

/// The h that each step began with, `before[time, batch, hidden]`: y of the step before, or h0.
///
/// # Safety
/// Contiguous h0 and `before`, y as `p` says, all aligned to `WIDTH` elements; the grid has a thread for each `WIDTH` units of each row, of
/// which `p.units` has as many, and along y the times from `first` on.
#[kernel(
    family = "recurrent",
    types = [f32, f16, bf16],
    instances = [{ WIDTH: 1; threads: 256 }, { WIDTH: 4; threads: 256 }],
)]
pub unsafe fn previous<T: Float, const WIDTH: usize>(
    y: Global<T>,
    h0: Global<T>,
    lengths: Global<i32>,
    before: GlobalMut<T>,
    p: Walk,
    first: u32,
) {
    let Spot { time, row, unit, inside } = Spot::of_thread::<WIDTH>(&p, first);
    // SAFETY: the caller's contract.
    unsafe {
        let bits = lengths.get_bits_if(inside && p.has & has::LENGTHS != 0, row as usize, p.steps);
        let from = if p.reverse == 0 { time.wrapping_sub(1) } else { time + 1 };
        // A length that is too large is reported, but the rest of the launches goes on.
        let ends = from == p.steps || from as i32 >= bits as i32;
        let is_first = if p.reverse == 0 { time == 0 } else { ends };
        let at = i64::from(from) * p.y_time + i64::from(row) * p.y_row + i64::from(unit);
        let in_h0 = row as usize * p.hidden as usize + unit as usize;
        let initial = load::<T, WIDTH>(h0, inside && is_first && p.has & has::H != 0, in_h0);
        let earlier = load::<T, WIDTH>(y, inside && !is_first, at as usize);
        let values = if is_first { initial } else { earlier };
        let of_time = p.batch as usize * p.hidden as usize;
        store::<T, WIDTH>(before, inside, time as usize * of_time + in_h0, values);
    }
}
