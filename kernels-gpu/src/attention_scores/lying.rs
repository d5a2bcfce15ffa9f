//! Rows of results that are not whole packs, on their way out of a warpgroup.

use super::Params;
use super::scores::{Scores, THREADS};
use cuda_std::bits;
use cuda_std::prelude::*;

const PACK: u32 = 8;

/// Rows of results that lie behind one another, in shared memory as in memory: from the same element of a pack on.
#[derive(Clone, Copy)]
pub(super) struct Lying<T> {
    staged: Shared<T>,
    /// From the pack on in which the first element lies.
    y: GlobalMut<T>,
    /// Which of the pack's elements that is.
    phase: u32,
    elements: u32,
}

impl<T: Half> Lying<T> {
    /// Rows from `first` on, which exist, by way of what is at byte `room`.
    ///
    /// # Safety
    /// The launch gives as much; `y` is the product's.
    #[inline(always)]
    pub unsafe fn new(y: GlobalMut<T>, p: &Params, first: u32, rows: u32, room: u32) -> Self {
        let at = first as i64 * p.keys as i64;
        let phase = ((y.address() / 2) as u32).wrapping_add(at as u32) % PACK;
        let elements = rows * p.keys;
        // SAFETY: the caller's contract; only what exists is written.
        unsafe {
            let staged = Shared::dynamic(room, (phase + elements).div_ceil(PACK) * PACK);
            Lying { staged, y: y.offset(at - phase as i64), phase, elements }
        }
    }

    /// Leaves the lane's results.
    ///
    /// # Safety
    /// Nobody reads the room.
    #[inline(always)]
    pub unsafe fn leave<const PIECES: usize, const N: usize>(
        self,
        p: &Params,
        row_of: impl Fn(usize) -> u32,
        scores: &Scores<PIECES, N>,
        factors: [f32; 2],
    ) {
        for half in 0..2 {
            let start = row_of(half) * p.keys;
            if start >= self.elements {
                continue;
            }
            let along = bits::opaque(warp::lane_id() % 4 * 2);
            for piece in 0..PIECES {
                for i in 0..N {
                    if i / 2 % 2 == half {
                        let key = (piece * 2 * N) as u32 + (i / 4 * 8 + i % 2) as u32 + along;
                        if key < p.keys {
                            let value = T::from_f32(scores[piece][i] * factors[half]);
                            // SAFETY: the caller's contract.
                            unsafe { self.staged.set(self.phase + start + key, value) };
                        }
                    }
                }
            }
        }
    }

    /// Leaves one of a row, which may not exist.
    ///
    /// # Safety
    /// As [`Self::leave`].
    #[inline(always)]
    pub unsafe fn set(self, p: &Params, row: u32, key: u32, value: T) {
        let at = row * p.keys + key;
        if at < self.elements {
            // SAFETY: the caller's contract.
            unsafe { self.staged.set(self.phase + at, value) };
        }
    }

    /// Copies them, thread by thread.
    ///
    /// # Safety
    /// All have left theirs, and a barrier has followed.
    #[inline(always)]
    pub unsafe fn copy(self) {
        let end = self.phase + self.elements;
        let mut at = thread::thread_idx_x() * PACK;
        while at < end {
            let low = if at == 0 { self.phase } else { 0 };
            let high = if end - at < PACK { end - at } else { PACK };
            // SAFETY: the caller's contract.
            unsafe {
                if low == 0 && high == PACK {
                    self.y.set_pack_if(true, at as usize, self.staged.get_pack(at));
                } else {
                    for element in low..high {
                        self.y.set((at + element) as usize, self.staged.get(at + element));
                    }
                }
            }
            at += THREADS * PACK;
        }
    }
}
