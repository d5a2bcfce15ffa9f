//! The steps, whatever the products are.

use super::BlockSequence;
use crate::recurrent::math::step;
use crate::recurrent::{GRU, has};
use cuda_std::prelude::*;

/// Steps that gx is read ahead, an even number: memory takes longer than a step.
const AHEAD: usize = 2;

/// The tensors of a sequence.
#[derive(Clone, Copy)]
pub struct Operands<T> {
    pub gx: Global<T>,
    pub h0: Global<T>,
    pub c0: Global<T>,
    pub lengths: Global<i32>,
    pub y: GlobalMut<T>,
    pub h_n: GlobalMut<T>,
    pub c_n: GlobalMut<T>,
    pub gh: GlobalMut<T>,
    pub cells: GlobalMut<T>,
}

/// A unit of one of the block's rows.
#[derive(Clone, Copy, Default)]
pub struct Place {
    pub row: u32,
    pub unit: u32,
    /// Whether the thread has it to itself; another has it otherwise.
    pub is_own: bool,
}

/// Bytes of shared memory: h of two steps.
pub const fn shared_bytes(rows: u32, pitch: u32, size: u32) -> u32 {
    2 * rows * pitch * size
}

/// Walks the steps. `places` are the units whose gates the thread computes, all of them within the block's `rows` rows;
/// `product(h, from)` is their gh: h begins at `from`, that of a row is `pitch` elements from that of the next, with zeros
/// behind the units. `keeps` is whether `p` has [`has::KEPT`]: a constant where the loop should be spared what the other way needs.
///
/// # Safety
/// The tensors that `p.has` names and gx, y, h_n (c_n for an LSTM) are as `p` says, gx, h0 and c0 contiguous; the launch gives
/// [`shared_bytes`]; all threads of the block call, and each existing place is one thread's own.
#[inline(always)]
pub unsafe fn walk<T: Float, const GATES: usize, const OWN: usize>(
    of: &Operands<T>,
    places: [Place; OWN],
    (rows, pitch): (u32, u32),
    p: &BlockSequence,
    keeps: bool,
    product: impl Fn(Shared<T>, u32) -> [[f32; GATES]; OWN],
) {
    const { assert!(AHEAD.is_multiple_of(2)) };
    let is_lstm = const { GATES != GRU };
    let first_row = thread::block_idx_x() * rows;
    let of_step = p.batch as usize * GATES * p.hidden as usize;
    let (mut h, mut c, mut length) = ([0.0; OWN], [0.0; OWN], [0; OWN]);
    let (mut exists, mut in_shared) = ([false; OWN], [0; OWN]);
    let (mut in_gx, mut in_y) = ([0usize; OWN], [0i64; OWN]);
    let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };
    let state_at =
        |i: usize| (first_row + places[i].row) as usize * p.hidden as usize + places[i].unit as usize;

    // SAFETY: the caller's contract. h of a step is written to one buffer while that of the step before is read from the other; a
    // barrier lies between a step and the next.
    unsafe {
        let of_h = Shared::<T>::dynamic(0, 2 * rows * pitch);
        let mut at = thread::thread_idx_x();
        while at < 2 * rows * pitch {
            of_h.set(at, T::from_bits(0));
            at += thread::block_dim_x();
        }
        thread::sync_threads();
        for i in 0..OWN {
            let Place { row, unit, is_own } = places[i];
            exists[i] = is_own & (first_row + row < p.batch) & (unit < p.hidden);
            in_shared[i] = row * pitch + unit;
            // gx is read for what does not exist, too, at what does: conditions would have the loads waited for.
            let (row, unit) = ((first_row + row).min(p.batch - 1), unit.min(p.hidden - 1));
            in_gx[i] = row as usize * GATES * p.hidden as usize + unit as usize;
            in_y[i] = i64::from(row) * p.y_row + i64::from(unit);
            length[i] = length_of(of.lengths, row, p);
            let initial = |from: Global<T>, bit: u32| {
                T::from_bits(from.get_bits_if(exists[i] & (p.has & bit != 0), state_at(i), 0)).to_f32()
            };
            h[i] = initial(of.h0, has::H);
            if is_lstm {
                c[i] = initial(of.c0, has::C);
            }
            if exists[i] {
                of_h.set(in_shared[i], T::from_f32(h[i]));
            }
        }
        let read = |step: u32| {
            let time = time_of(step.min(p.steps - 1)) as usize;
            let mut gx = [[T::from_bits(0); GATES]; OWN];
            for i in 0..OWN {
                for gate in 0..GATES {
                    gx[i][gate] = of.gx.get(time * of_step + in_gx[i] + gate * p.hidden as usize);
                }
            }
            gx
        };
        let mut coming = [[[T::from_bits(0); GATES]; OWN]; AHEAD];
        for i in 0..AHEAD {
            coming[i] = read(i as u32);
        }
        thread::sync_threads();

        let mut first = 0;
        'steps: loop {
            for turn in 0..AHEAD {
                let now = first + turn as u32;
                if now == p.steps {
                    break 'steps;
                }
                let (from, to) = if turn % 2 == 0 { (0, rows * pitch) } else { (rows * pitch, 0) };
                let gh = product(of_h, from);
                let time = time_of(now);
                for i in 0..OWN {
                    let mut gx = [0.0; GATES];
                    for gate in 0..GATES {
                        gx[gate] = coming[turn][i][gate].to_f32();
                    }
                    if keeps {
                        let of_time = time as usize * p.batch as usize * p.hidden as usize;
                        for gate in 0..GATES {
                            let at = of_time * GATES + in_gx[i] + gate * p.hidden as usize;
                            of.gh.set_if(exists[i], at, T::from_f32(gh[i][gate]));
                        }
                        if is_lstm {
                            of.cells.set_if(exists[i], of_time + state_at(i), T::from_f32(c[i]));
                        }
                    }
                    let (next_h, next_c) = step(gx, gh[i], h[i], c[i]);
                    let is_active = (time as i32) < length[i];
                    h[i] = if is_active { next_h } else { h[i] };
                    if is_lstm {
                        c[i] = if is_active { next_c } else { c[i] };
                    }
                    let rounded = T::from_f32(h[i]);
                    if exists[i] {
                        of_h.set(to + in_shared[i], rounded);
                    }
                    let y = if is_active { rounded.bits() } else { 0 };
                    let at = in_y[i] + i64::from(time) * p.y_time;
                    of.y.set_if(exists[i], at as usize, T::from_bits(y));
                }
                coming[turn] = read(now + AHEAD as u32);
                thread::sync_threads();
            }
            first += AHEAD as u32;
        }
        for i in 0..OWN {
            of.h_n.set_if(exists[i], state_at(i), T::from_f32(h[i]));
            if is_lstm {
                of.c_n.set_if(exists[i], state_at(i), T::from_f32(c[i]));
            }
        }
    }
}

/// A row's length.
///
/// # Safety
/// The row exists, as do lengths where `p.has` says so.
#[inline(always)]
pub unsafe fn length_of(lengths: Global<i32>, row: u32, p: &BlockSequence) -> i32 {
    // SAFETY: the caller's contract.
    unsafe { lengths.get_bits_if(p.has & has::LENGTHS != 0, row as usize, p.steps) as i32 }
}
