//! The steps backwards, whatever the products are.

use super::BlockSequence;
use super::walk::{Place, length_of};
use crate::recurrent::GRU;
use crate::recurrent::math::Factors;
use cuda_std::prelude::*;

/// The tensors of a sequence's gradient.
#[derive(Clone, Copy)]
pub struct BackOperands<T> {
    pub gx: Global<T>,
    pub gh: Global<T>,
    /// What each step began with: h of a GRU, c of an LSTM.
    pub state: Global<T>,
    pub dy: Global<T>,
    pub lengths: Global<i32>,
    pub dgx: GlobalMut<T>,
    pub dgh: GlobalMut<T>,
    pub dh: GlobalMut<f32>,
    pub dc: GlobalMut<f32>,
}

/// What a step back reads for a unit.
#[derive(Clone, Copy)]
struct Read<T, const GATES: usize> {
    gx: [T; GATES],
    gh: [T; GATES],
    state: T,
    dy: T,
}

impl<T: Float, const GATES: usize> Read<T, GATES> {
    #[inline(always)]
    fn zeros() -> Self {
        let zero = T::from_bits(0);
        Read { gx: [zero; GATES], gh: [zero; GATES], state: zero, dy: zero }
    }
}

/// Bytes of shared memory: gradients of gh of two steps.
pub const fn back_shared_bytes(gates: usize, rows: u32, pitch: u32, size: u32) -> u32 {
    2 * gates as u32 * rows * pitch * size
}

/// Bytes of shared memory of what two steps read, of so many threads of one place.
pub const fn staged_bytes(gates: usize, threads: u32, size: u32) -> u32 {
    2 * values(gates) * threads * size
}

/// Numbers that a step reads for a unit.
const fn values(gates: usize) -> u32 {
    2 * gates as u32 + 2
}

/// Walks the steps backwards. `places` are the units whose gradients the thread computes, all of them within the block's `rows`
/// rows. Operands are read two steps ahead: into registers or, where byte `staged` is given, through shared memory from there on, which
/// leaves registers to the weights (of one place, and numbers of four bytes). `product(dgh, from)` is what comes to their h through gh: that of
/// a gate begins `rows`·`pitch` elements behind that of the gate before, the first at `from`; a row `pitch` elements behind the row before, with
/// zeros behind the units.
///
/// # Safety
/// The tensors are as `p` says: gx, gh, dgx, dgh `[steps, batch, GATES·hidden]`, state `[steps, batch, hidden]`, dh (dc of an
/// LSTM) `[batch, hidden]`, contiguous, and dy as y of the forward pass; the launch gives [`back_shared_bytes`] and, at `staged`,
/// [`staged_bytes`]; all threads of the block call, and each existing place is one thread's own.
#[inline(always)]
pub unsafe fn walk_back<T: Float, const GATES: usize, const OWN: usize>(
    of: &BackOperands<T>,
    places: [Place; OWN],
    (rows, pitch): (u32, u32),
    p: &BlockSequence,
    staged: Option<u32>,
    product: impl Fn(Shared<T>, u32) -> [f32; OWN],
) {
    let is_lstm = const { GATES != GRU };
    let buffer = GATES as u32 * rows * pitch;
    let first_row = thread::block_idx_x() * rows;
    let (of_time, hidden) = (p.batch as usize * p.hidden as usize, p.hidden as usize);
    let (mut dh, mut dc, mut length) = ([0.0; OWN], [0.0; OWN], [0; OWN]);
    let (mut exists, mut in_shared) = ([false; OWN], [0; OWN]);
    let (mut in_gates, mut in_state, mut in_y) = ([0usize; OWN], [0usize; OWN], [0i64; OWN]);
    let time_of = |step: u32| if p.reverse == 0 { step } else { p.steps - 1 - step };

    // SAFETY: the caller's contract. A step's gradients are written to one buffer while those of the step after are read from the
    // other; a barrier lies between a step and the next.
    unsafe {
        let of_gh = Shared::<T>::dynamic(0, 2 * buffer);
        let mut at = thread::thread_idx_x();
        while at < 2 * buffer {
            of_gh.set(at, T::from_bits(0));
            at += thread::block_dim_x();
        }
        for i in 0..OWN {
            let Place { row, unit, is_own } = places[i];
            exists[i] = is_own & (first_row + row < p.batch) & (unit < p.hidden);
            in_shared[i] = row * pitch + unit;
            // What does not exist is read, too, at what does: conditions would have the loads waited for.
            let (row, unit) = ((first_row + row).min(p.batch - 1), unit.min(p.hidden - 1));
            in_state[i] = row as usize * hidden + unit as usize;
            in_gates[i] = row as usize * GATES * hidden + unit as usize;
            in_y[i] = i64::from(row) * p.y_row + i64::from(unit);
            length[i] = length_of(of.lengths, row, p);
            if exists[i] {
                dh[i] = of.dh.get(in_state[i]);
                if is_lstm {
                    dc[i] = of.dc.get(in_state[i]);
                }
            }
        }
        // Where a step's operands are, by how far it is before the last.
        let time_back = |back: u32| time_of(p.steps - 1 - back.min(p.steps - 1));
        let gate_at =
            |time: u32, i: usize, gate: usize| time as usize * GATES * of_time + in_gates[i] + gate * hidden;
        let state_at = |time: u32, i: usize| time as usize * of_time + in_state[i];
        let dy_at = |time: u32, i: usize| (in_y[i] + i64::from(time) * p.y_time) as usize;
        let read = |back: u32| {
            let time = time_back(back);
            let mut all = [Read::<T, GATES>::zeros(); OWN];
            for i in 0..OWN {
                for gate in 0..GATES {
                    all[i].gx[gate] = of.gx.get(gate_at(time, i, gate));
                    all[i].gh[gate] = of.gh.get(gate_at(time, i, gate));
                }
                all[i].state = of.state.get(state_at(time, i));
                all[i].dy = of.dy.get(dy_at(time, i));
            }
            all
        };
        let threads = thread::block_dim_x();
        let stages = staged.map(|first| Shared::<T>::dynamic(first, 2 * const { values(GATES) } * threads));
        let stage_at = |back: u32, value: u32| {
            (back % 2 * const { values(GATES) } + value) * threads + thread::thread_idx_x()
        };
        // What a thread starts to copy, it alone reads, when it has waited.
        let fetch = |stages: Shared<T>, back: u32| {
            if places[0].is_own {
                let time = time_back(back);
                let copy = |value: u32, from: Global<T>, at: usize| {
                    stages.copy_4_async(stage_at(back, value), from, at, true);
                };
                for gate in 0..GATES {
                    copy(2 * gate as u32, of.gx, gate_at(time, 0, gate));
                    copy(2 * gate as u32 + 1, of.gh, gate_at(time, 0, gate));
                }
                copy(2 * GATES as u32, of.state, state_at(time, 0));
                copy(2 * GATES as u32 + 1, of.dy, dy_at(time, 0));
            }
            async_copy::commit();
        };
        let fetched = |stages: Shared<T>, back: u32| {
            async_copy::wait::<1>();
            let mut read = Read::<T, GATES>::zeros();
            if places[0].is_own {
                for gate in 0..GATES {
                    read.gx[gate] = stages.get(stage_at(back, 2 * gate as u32));
                    read.gh[gate] = stages.get(stage_at(back, 2 * gate as u32 + 1));
                }
                read.state = stages.get(stage_at(back, 2 * GATES as u32));
                read.dy = stages.get(stage_at(back, 2 * GATES as u32 + 1));
            }
            [read; OWN]
        };
        let mut coming = match stages {
            Some(stages) => {
                fetch(stages, 0);
                fetch(stages, 1);
                [[Read::zeros(); OWN]; 2]
            }
            None => [read(0), read(1)],
        };
        thread::sync_threads();

        let mut first = 0;
        'steps: loop {
            for turn in 0..2 {
                let back = first + turn as u32;
                let (from, to) = if turn % 2 == 0 { (0, buffer) } else { (buffer, 0) };
                // Before the last step these are zeros.
                let through = product(of_gh, from);
                for i in 0..OWN {
                    dh[i] += through[i];
                }
                if back == p.steps {
                    break 'steps;
                }
                if let Some(stages) = stages {
                    coming[turn] = fetched(stages, back);
                }
                let time = time_of(p.steps - 1 - back);
                for i in 0..OWN {
                    let (mut gx, mut gh) = ([0.0; GATES], [0.0; GATES]);
                    for gate in 0..GATES {
                        gx[gate] = coming[turn][i].gx[gate].to_f32();
                        gh[gate] = coming[turn][i].gh[gate].to_f32();
                    }
                    let state = coming[turn][i].state.to_f32();
                    let given = (dh[i] + coming[turn][i].dy.to_f32(), dc[i]);
                    let slopes = Factors::new(gx, gh, (state, state)).slopes::<GATES>(given);
                    let is_active = (time as i32) < length[i];
                    dh[i] = if is_active { slopes.dh } else { dh[i] };
                    dc[i] = if is_active { slopes.dc } else { dc[i] };
                    for gate in 0..GATES {
                        let of_x = if is_active { slopes.dgx[gate] } else { 0.0 };
                        let of_h = T::from_f32(if is_active { slopes.dgh[gate] } else { 0.0 });
                        let at = gate_at(time, i, gate);
                        of.dgx.set_if(exists[i], at, T::from_f32(of_x));
                        if !is_lstm {
                            of.dgh.set_if(exists[i], at, of_h);
                        }
                        if exists[i] {
                            of_gh.set(to + gate as u32 * rows * pitch + in_shared[i], of_h);
                        }
                    }
                }
                match stages {
                    Some(stages) => fetch(stages, back + 2),
                    None => coming[turn] = read(back + 2),
                }
                thread::sync_threads();
            }
            first += 2;
        }
        for i in 0..OWN {
            of.dh.set_if(exists[i], in_state[i], dh[i]);
            if is_lstm {
                of.dc.set_if(exists[i], in_state[i], dc[i]);
            }
        }
    }
}
