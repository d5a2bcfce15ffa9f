//! One step for given gates' inputs.
//!
//! h_next (c_next) from gx and gh `[batch, GATES·hidden]` and h (c) `[batch, hidden]`, contiguous, T = f32 | f16 | bf16. As a step
//! of a sequence it also writes y, whose rows lie apart, and rows of the batch that are at their end keep h and c and have
//! y 0.
//!
//! Launch: 1-D grid, a thread for each `WIDTH` units of a row.
//!
//! Floor: (2·GATES + 2)·batch·hidden elements (an LSTM's + 4) at the copy rate.

use super::math::step;
use super::quads::{load, store};
use super::{GRU, has};
use cuda_std::divide::Divisor;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;

/// What a step is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Hidden units over `WIDTH`.
    pub groups: Divisor,
    /// Rows of the batch.
    pub batch: u32,
    /// Hidden units.
    pub hidden: u32,
    /// The step's time.
    pub time: u32,
    /// Bits of [`has`].
    pub has: u32,
    /// Elements from a row of y (or of its gradient) to the next.
    pub y_row: i64,
}
plain_parameter!(Step);

/// The thread's row and first unit of `WIDTH`.
#[inline(always)]
pub(super) fn place<const WIDTH: usize>(p: &Step) -> (u32, u32, bool) {
    let index = thread::index_1d();
    let inside = index < u64::from(p.batch) * u64::from(p.hidden / WIDTH as u32);
    let index = if inside { index as u32 } else { 0 };
    let (row, group) = p.groups.div_rem(index);
    (row, group * WIDTH as u32, inside)
}

/// The gates' inputs of a row's units from `unit` on.
///
/// # Safety
/// Where `inside`, `from` has them.
#[inline(always)]
pub(super) unsafe fn inputs<T: Float, const GATES: usize, const WIDTH: usize>(
    from: Global<T>,
    inside: bool,
    (row, unit): (usize, u32),
    hidden: u32,
) -> [[f32; WIDTH]; GATES] {
    let mut values = [[0.0; WIDTH]; GATES];
    for gate in 0..GATES {
        let at = (row * GATES + gate) * hidden as usize + unit as usize;
        // SAFETY: the caller's contract.
        values[gate] = unsafe { load::<T, WIDTH>(from, inside, at) };
    }
    values
}

/// One unit's of all gates.
#[inline(always)]
pub(super) fn of_unit<const GATES: usize, const WIDTH: usize>(
    values: &[[f32; WIDTH]; GATES],
    i: usize,
) -> [f32; GATES] {
    let mut of = [0.0; GATES];
    for gate in 0..GATES {
        of[gate] = values[gate][i];
    }
    of
}

/// Takes the step.
///
/// # Safety
/// The operands that `p.has` names and gx, gh, h, h_next (c, c_next for an LSTM) are as the module says, aligned to `WIDTH`
/// elements; the grid covers them. h_next and c_next may be h and c.
#[kernel(
    family = "recurrent",
    types = [f32, f16, bf16],
    instances = [
        { GATES: 3, WIDTH: 1; threads: 256 }, { GATES: 3, WIDTH: 4; threads: 128 },
        { GATES: 4, WIDTH: 1; threads: 256 }, { GATES: 4, WIDTH: 4; threads: 128 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gates<T: Float, const GATES: usize, const WIDTH: usize>(
    gx: Global<T>,
    gh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    lengths: Global<i32>,
    h_next: GlobalMut<T>,
    c_next: GlobalMut<T>,
    y: GlobalMut<T>,
    p: Step,
) {
    let (row, unit, inside) = place::<WIDTH>(&p);
    let is_lstm = const { GATES != GRU };
    // SAFETY: the caller's contract; a row's length is there where it is asked for.
    unsafe {
        let ends = inside && p.has & has::LENGTHS != 0;
        let length = lengths.get_bits_if(ends, row as usize, i32::MAX as u32) as i32;
        let active = (p.time as i32) < length;
        let of_x = inputs::<T, GATES, WIDTH>(gx, inside, (row as usize, unit), p.hidden);
        let of_h = inputs::<T, GATES, WIDTH>(gh, inside, (row as usize, unit), p.hidden);
        let at = row as usize * p.hidden as usize + unit as usize;
        let (mut after, mut after_c) = (load::<T, WIDTH>(h, inside, at), [0.0; WIDTH]);
        if is_lstm {
            after_c = load::<T, WIDTH>(c, inside, at);
        }
        let mut out = [0.0; WIDTH];
        for i in 0..WIDTH {
            let (next, next_c) = step(of_unit(&of_x, i), of_unit(&of_h, i), after[i], after_c[i]);
            if active {
                after[i] = next;
                after_c[i] = next_c;
                out[i] = next;
            }
        }
        store::<T, WIDTH>(h_next, inside, at, after);
        if is_lstm {
            store::<T, WIDTH>(c_next, inside, at, after_c);
        }
        let at = i64::from(row) * p.y_row + i64::from(unit);
        store::<T, WIDTH>(y, inside && p.has & has::Y != 0, at as usize, out);
    }
}
