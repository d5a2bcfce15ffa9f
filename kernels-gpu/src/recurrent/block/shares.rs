//! A thread's f32 weights: some in registers, the rest in shared memory.

use cuda_std::bits;
use cuda_std::prelude::*;

/// Packs of `ROWS` rows of weights, of each of a block's `THREADS`: `HELD` of a row in registers, those behind them in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Shares<const ROWS: usize, const HELD: usize, const THREADS: u32> {
    held: [[[f32; 4]; HELD]; ROWS],
    rest: Shared<f32>,
}

/// Bytes of shared memory of the weights of so many threads that are not in registers.
pub(super) const fn rest_bytes(rows: usize, packs: usize, held: usize, threads: u32) -> u32 {
    ((packs - held) * rows) as u32 * threads * 16
}

impl<const ROWS: usize, const HELD: usize, const THREADS: u32> Shares<ROWS, HELD, THREADS> {
    /// Loads all `PACKS` of each row, of which shared memory holds the rest from byte `first` on. `at(row, pack)` is whether there is such a
    /// pack, instead of zeros, and where.
    ///
    /// # Safety
    /// What `at` says exists does, at multiples of 16 bytes; the launch gives `first` and [`rest_bytes`]. All threads of the block call. What
    /// a thread writes there, it alone reads.
    #[inline(always)]
    pub unsafe fn load<T: Float, const PACKS: usize>(
        weight: Global<T>,
        first: u32,
        at: impl Fn(usize, usize) -> (bool, usize),
    ) -> Self {
        let mut held = [[[0.0; 4]; HELD]; ROWS];
        // SAFETY: the caller's contract.
        unsafe {
            let rest = Shared::<f32>::dynamic(first, const { rest_bytes(ROWS, PACKS, HELD, THREADS) / 4 });
            let load = |row: usize, pack: usize| {
                let (exists, at) = at(row, pack);
                weight.get_pack_if(exists, at, 0)
            };
            for pack in HELD..PACKS {
                for row in 0..ROWS {
                    rest.set_pack(Self::place(row, pack as u32), load(row, pack));
                }
                // No thread waits for another: this keeps the loads of packs apart, for which there are too few registers.
                thread::sync_threads();
            }
            for row in 0..ROWS {
                for pack in 0..HELD {
                    let words = load(row, pack);
                    for j in 0..4 {
                        held[row][pack][j] = f32::from_bits(words[j]);
                    }
                }
            }
            Shares { held, rest }
        }
    }

    #[inline(always)]
    fn place(row: usize, pack: u32) -> u32 {
        (((pack - HELD as u32) * ROWS as u32 + row as u32) * THREADS + thread::thread_idx_x()) * 4
    }

    /// Calls `multiply(row, pack, weights)` for all packs, of those in shared memory up to `end`, in a loop that stays one: unrolled, all loads
    /// would be in flight, for which there are too few registers.
    ///
    /// # Safety
    /// They were loaded.
    #[inline(always)]
    pub unsafe fn each<const PACKS: usize>(&self, end: u32, mut multiply: impl FnMut(usize, u32, [f32; 4])) {
        for pack in 0..HELD {
            for row in 0..ROWS {
                multiply(row, pack as u32, self.held[row][pack]);
            }
        }
        if const { HELD < PACKS } {
            let mut pack = HELD as u32;
            while pack < end {
                bits::no_unroll();
                for row in 0..ROWS {
                    // SAFETY: the caller's contract.
                    let words = unsafe { self.rest.get_pack(Self::place(row, pack)) };
                    multiply(row, pack, [0, 1, 2, 3].map(|j| f32::from_bits(words[j])));
                }
                pack += 1;
            }
        }
    }
}
