//! What the warps that do the gates do: add up sums, compute gates, send h, write y.

use super::{
    BEGUN, FULL, FUSED_UNITS, FusedForm, KEPT, Layout, OF_X, OWNERS, Operands, SENT, THREADS, WARPS,
};
use crate::recurrent::exchange::{CHUNK, CHUNK_WORDS, COLUMNS, POISON, send, word};
use crate::recurrent::math::step_of_half;
use crate::recurrent::persistent::Sequence;
use crate::recurrent::persistent::multiply::place_of;
use crate::recurrent::{GRU, has};
use cuda_std::bits;
use cuda_std::prelude::*;

/// The sum of all warps' parts of each gate's accumulator `number`, and a bias. By pairs: additions that wait for one another are few.
///
/// # Safety
/// All warps have left theirs.
#[inline(always)]
unsafe fn totals<const GATES: usize>(sums: Shared<f32>, number: u32, bias: [f32; GATES]) -> [f32; GATES] {
    let mut totals = [0.0; GATES];
    for gate in 0..GATES {
        let mut parts = [0.0; WARPS];
        for part in 0..WARPS {
            // SAFETY: the caller's contract.
            parts[part] = unsafe { sums.get((part * GATES + gate) as u32 * warp::SIZE * 4 + number) };
        }
        let sum = bias[gate] + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
        // All sums first: their loads would otherwise wait for one another.
        totals[gate] = f32::from_bits(bits::pinned(sum.to_bits()));
    }
    totals
}

/// Does the gates of all steps. `KEEPS` is whether `p` has [`has::KEPT`]: a loop of its own, since the other would be slower for it.
///
/// # Safety
/// As [`fused_sequence()`](fn@super::fused_sequence); all [`OWNERS`] threads behind the first `WARPS` warps call, and these warps
/// multiply.
#[inline(always)]
pub(super) unsafe fn gates<T: Half, const GATES: usize, const KEEPS: bool>(
    of: Operands<T>,
    p: &Sequence,
    form: FusedForm,
) {
    let is_lstm = const { GATES != GRU };
    let Operands { b_ih, b_hh, h0, c0, lengths, y, h_n, c_n, gx, gh, cells, exchange } = of;
    // Threads of neighbouring units are neighbours, so that what they send and write lies side by side.
    let number = thread::thread_idx_x() - WARPS as u32 * warp::SIZE;
    let (own, column) = (number % FUSED_UNITS, number / FUSED_UNITS);
    let (unit, place) = (thread::block_idx_x() * FUSED_UNITS + own, place_of(own, column));
    let row = thread::block_idx_y() * COLUMNS + column;
    let exists = unit < p.hidden && row < p.batch;
    // Of the units `unit & !1` and the next, a thread of the even one has the word.
    let is_odd = own % 2 == 1;
    // SAFETY: the caller's contract. State is a thread's own; sums are read behind a barrier that those who wrote them arrived at, and written
    // again behind another.
    unsafe {
        let sums_of_h = Shared::<f32>::dynamic(0, form.sums());
        let own_word = unit / CHUNK * CHUNK_WORDS + column * (CHUNK / 2) + unit % CHUNK / 2;
        // An exchange has fewer than 2^32 words.
        let word_at = |slot: u32| {
            ((slot * thread::grid_dim_y() + thread::block_idx_y()) * p.ring.words + own_word) as usize
        };
        let state_at = row as usize * p.hidden as usize + unit as usize;
        // Nothing is read or sent before what is ahead of the launch has ended.
        thread::sync_named(BEGUN, THREADS);
        let (of_x_bias, of_h_bias) =
            (biases::<T, GATES>(b_ih, p, has::X_BIAS, unit), biases::<T, GATES>(b_hh, p, has::BIAS, unit));
        let has_length = p.has & has::LENGTHS != 0 && row < p.batch;
        let length = lengths.get_bits_if(has_length, row as usize, p.steps) as i32;
        let mut h = T::from_bits(h0.get_bits_if(exists && p.has & has::H != 0, state_at, 0)).to_f32();
        let has_c = is_lstm && exists && p.has & has::C != 0;
        let mut c = T::from_bits(c0.get_bits_if(has_c, state_at, 0)).to_f32();
        let other = of_other(h);
        if !is_odd {
            send(exchange, word_at(0), word::<T>(h, other));
        }

        let (first, count) = (Layout::new(form).kept, const { (2 * GATES as u32 + 1) * OWNERS });
        let kept = Kept::<T, GATES> {
            numbers: Shared::dynamic(first, count),
            words: Shared::dynamic(first, count / 2),
            number,
            gx,
            gh,
            cells,
        };
        let (mut slot, mut now) = (0, 0);
        while now < p.steps {
            if p.ring.is_fence(slot) {
                thread::device_fence();
            }
            // What does not depend on h, before it is waited for.
            thread::sync_named(OF_X, THREADS);
            if const { KEEPS } && now > 0 {
                kept.write(p, now - 1);
            }
            let of_x = totals::<GATES>(form.sums_of_x(now), place, of_x_bias);
            let time = if p.reverse == 0 { now } else { p.steps - 1 - now };
            let is_active = (time as i32) < length;

            thread::sync_named(FULL, THREADS);
            let of_h = totals::<GATES>(sums_of_h, place, of_h_bias);
            let (next_h, next_c) = step_of_half::<GATES>(of_x, of_h, h, c);
            // Computed in either case: behind a branch, one would wait for the other.
            let next_h = f32::from_bits(bits::pinned(next_h.to_bits()));
            let of_y = if is_active { next_h } else { 0.0 };
            let before = c;
            if is_active {
                (h, c) = (next_h, next_c);
            }
            let freed = p.ring.freed(slot, now);
            slot = p.ring.after(slot);
            now += 1;
            let other = of_other(h);
            if now != p.steps {
                if !is_odd {
                    send(exchange, word_at(slot), word::<T>(h, other));
                }
                thread::arrive_named(SENT, THREADS);
            }
            if let (false, Some(free)) = (is_odd, freed) {
                send(exchange, word_at(free), POISON);
            }
            let other = if is_active { other } else { 0.0 };
            let at = i64::from(row) * p.y_row + i64::from(time) * p.y_time + i64::from(unit);
            let mut pack = [0; 4];
            T::set_pair(&mut pack, 0, [of_y, other]);
            y.set_4_if(!is_odd && exists, at as usize, pack[0]);
            if const { KEEPS } {
                kept.put(of_x, of_h, before);
            }
        }
        if const { KEEPS } {
            thread::sync_named(KEPT, OWNERS);
            kept.write(p, now - 1);
        }
        if exists {
            h_n.set(state_at, T::from_f32(h));
            if is_lstm {
                c_n.set(state_at, T::from_f32(c));
            }
        }
    }
}

/// What is kept of a step, on its way to memory: there, a thread of two neighbouring units writes a word.
struct Kept<T, const GATES: usize> {
    /// For each gate what x gives, then what h gives, then an LSTM's c: `[COLUMNS][FUSED_UNITS]`.
    numbers: Shared<T>,
    /// The same, by words.
    words: Shared<u32>,
    /// Among the threads that do gates: where the thread's own are, too.
    number: u32,
    gx: GlobalMut<T>,
    gh: GlobalMut<T>,
    cells: GlobalMut<T>,
}

impl<T: Half, const GATES: usize> Kept<T, GATES> {
    /// Puts the thread's own there.
    ///
    /// # Safety
    /// All threads have read those of the step before.
    #[inline(always)]
    unsafe fn put(&self, of_x: [f32; GATES], of_h: [f32; GATES], c: f32) {
        // SAFETY: the caller's contract.
        unsafe {
            for gate in 0..GATES {
                self.numbers.set(gate as u32 * OWNERS + self.number, T::from_f32(of_x[gate]));
                self.numbers.set((GATES + gate) as u32 * OWNERS + self.number, T::from_f32(of_h[gate]));
            }
            if const { GATES != GRU } {
                self.numbers.set(2 * GATES as u32 * OWNERS + self.number, T::from_f32(c));
            }
        }
    }

    /// Writes those of a step.
    ///
    /// # Safety
    /// They are there; gx and gh (of an LSTM cells, too) are as [`fused_sequence()`](fn@super::fused_sequence) says.
    #[inline(always)]
    unsafe fn write(&self, p: &Sequence, step: u32) {
        let time = if p.reverse == 0 { step } else { p.steps - 1 - step };
        // Each thread has a pair of units, of one row of every second gate.
        let (pair, column) = (self.number % (FUSED_UNITS / 2), self.number / (FUSED_UNITS / 2) % COLUMNS);
        let second = self.number / (OWNERS / 2);
        let unit = thread::block_idx_x() * FUSED_UNITS + 2 * pair;
        let row = thread::block_idx_y() * COLUMNS + column;
        let exists = unit < p.hidden && row < p.batch;
        let of_time = time as usize * p.batch as usize + row as usize;
        // SAFETY: the caller's contract.
        unsafe {
            let word = |which: u32| self.words.get((which * OWNERS + column * FUSED_UNITS) / 2 + pair);
            for turn in 0..GATES {
                let which = 2 * turn as u32 + second;
                let is_x = which < GATES as u32;
                let gate = if is_x { which } else { which - GATES as u32 };
                let at = (of_time * GATES + gate as usize) * p.hidden as usize + unit as usize;
                let word = word(which);
                self.gx.set_4_if(exists && is_x, at, word);
                self.gh.set_4_if(exists && !is_x, at, word);
            }
            if const { GATES != GRU } {
                let at = of_time * p.hidden as usize + unit as usize;
                self.cells.set_4_if(exists && second == 0, at, word(2 * GATES as u32));
            }
        }
    }
}

/// What the thread of the unit's neighbour gives. All lanes call.
#[inline(always)]
fn of_other(value: f32) -> f32 {
    warp::warp_shuffle_xor(u32::MAX, value, 1, warp::SIZE).0
}

/// A unit's biases, zeros where there are none.
///
/// # Safety
/// `bias` is `[GATES·hidden]` where `p` has `bit`.
#[inline(always)]
unsafe fn biases<T: Half, const GATES: usize>(
    bias: Global<T>,
    p: &Sequence,
    bit: u32,
    unit: u32,
) -> [f32; GATES] {
    let mut biases = [0.0; GATES];
    for gate in 0..GATES {
        let at = gate * p.hidden as usize + unit as usize;
        let has = p.has & bit != 0 && unit < p.hidden;
        // SAFETY: the caller's contract.
        biases[gate] = T::from_bits(unsafe { bias.get_bits_if(has, at, 0) }).to_f32();
    }
    biases
}
