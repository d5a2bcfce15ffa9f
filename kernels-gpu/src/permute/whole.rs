//! Rows that stay whole, at any alignment: a thread makes the packs that it stores of the words of x around their bytes.
//!
//! Launch: 1-D grid over the packs of y, which are those of memory: the first and the last may be in part. A thread has `UNITS`
//! packs, a block's width apart. A row has at least 16 bytes, so that a pack is of one or of two.
//!
//! Where the rows of a block begin is worked out once, into shared memory, as boxes do it. By each pack anew it took 240 instructions where
//! a multiprocessor has 300 while memory copies a pack, and two thirds of a copy's rate.

use super::fetch::{Gather, MAX_DIMS};
use super::part::set_part;
use super::unit::Unit;
use cuda_std::bits::{funnel_right, select, shift_left};
use cuda_std::prelude::*;

/// Words of x that a pack's bytes may lie in.
const WORDS: usize = 5;

/// The rows that a block has something of.
#[derive(Clone, Copy)]
struct Block {
    /// Bytes by which y begins behind a pack.
    phase: u32,
    /// The first row.
    row: u32,
    /// Where each begins in x.
    begins: Shared<u64>,
}

impl Block {
    /// Those of `packs` packs from pack `first` on.
    ///
    /// # Safety
    /// Shared memory has room for where they begin, and for one more.
    #[inline(always)]
    unsafe fn new<T: Unit>(p: &Gather, phase: u32, first: u32, packs: u32) -> Block {
        let of = |pack: u32| p.row.div_rem(element::<T>(p, phase, pack)).0;
        let (row, last) = (of(first), of(first + packs));
        let rows = last - row + 2;
        // SAFETY: the caller's contract; each entry has one thread.
        unsafe {
            let begins = Shared::<u64>::dynamic(0, rows);
            let mut i = thread::thread_idx_x();
            while i < rows {
                begins.set(i, p.at::<MAX_DIMS, false>(row + i).x as u64);
                i += thread::block_dim_x();
            }
            thread::sync_threads();
            Block { phase, row, begins }
        }
    }
}

/// The first element of pack `number`, or the last one of all.
#[inline(always)]
fn element<T: Unit>(p: &Gather, phase: u32, number: u32) -> u32 {
    ((16 * number).saturating_sub(phase) / const { T::BYTES as u32 }).min(p.units - 1)
}

/// A pack of y, and where its bytes are in x: `low..split` in one row, `split..high` in the next.
#[derive(Clone, Copy)]
struct Wanted {
    low: u32,
    split: u32,
    high: u32,
    /// Where in x the pack would begin if all were in the first of the rows, and in the second.
    from: [i64; 2],
}

impl Wanted {
    /// Pack `number` of a launch.
    ///
    /// # Safety
    /// The block has it.
    #[inline(always)]
    unsafe fn new<T: Unit>(p: &Gather, block: &Block, number: u32) -> Wanted {
        let size = const { T::BYTES as u32 };
        let low = if number == 0 { block.phase } else { 0 };
        let first = (16 * number + low - block.phase) / size;
        let high = (low + (p.units - first) * size).min(16);
        let (row, at) = p.row.div_rem(first);
        let split = (low + (p.row.value() - at) * size).min(high);
        let row = row - block.row;
        // SAFETY: the caller's contract.
        let from = unsafe { block.begins.get(row) } as i64 + (at * size) as i64 - low as i64;
        let mut next = 0;
        if split < high {
            // SAFETY: as above; the row behind the last has an entry too.
            next = unsafe { block.begins.get(row + 1) } as i64 - split as i64;
        }
        Wanted { low, split, high, from: [from, next] }
    }

    /// The words of x around the pack.
    ///
    /// # Safety
    /// x, from a multiple of 16 bytes on, holds the bytes.
    #[inline(always)]
    unsafe fn load<T: Unit>(&self, x: Global<u8>) -> [[u32; WORDS]; 2] {
        let mut words = [[0; WORDS]; 2];
        // SAFETY: the caller's contract.
        unsafe {
            words[0] = around::<T>(x, self.from[0], self.low, self.split);
            if self.split < self.high {
                words[1] = around::<T>(x, self.from[1], self.split, self.high);
            }
        }
        words
    }

    /// Writes the pack to byte `at` of y, as far as it has bytes.
    ///
    /// # Safety
    /// y has them.
    #[inline(always)]
    unsafe fn store<T: Unit>(&self, y: GlobalMut<u8>, at: usize, pack: Pack) {
        let Wanted { low, high, .. } = *self;
        // SAFETY: the caller's contract.
        unsafe {
            y.set_pack_if(low == 0 && high == 16, at, pack);
            // The launch's first and last.
            if high > 0 && (low > 0 || high < 16) {
                let [a, b, c, d] = pack;
                for (begin, words) in [(0, [a, b]), (8, [c, d])] {
                    let part = low.max(begin) - begin..high.clamp(begin, begin + 8) - begin;
                    set_part(y, Keep::when(false), at + begin as usize, words, part, T::BYTES as u32);
                }
            }
        }
    }

    /// The pack, from its words.
    #[inline(always)]
    fn pack<T: Unit>(&self, words: &[[u32; WORDS]; 2]) -> Pack {
        let mut pack = [0; 4];
        for i in 0..4 {
            pack[i] = shifted::<T>(&words[0], i, self.from[0]);
        }
        if self.split < self.high {
            for i in 0..4 {
                let behind = (self.split as i32 - 4 * i as i32).max(0) as u32;
                let second = shift_left(u32::MAX, 8 * behind);
                pack[i] = select(second, shifted::<T>(&words[1], i, self.from[1]), pack[i]);
            }
        }
        pack
    }
}

/// Bytes by which `from` lies behind a word.
#[inline(always)]
fn skew<T: Unit>(from: i64) -> u32 {
    if const { T::BYTES < 4 } { from as u32 & 3 } else { 0 }
}

/// The words that bytes `low..high` of the sixteen at `from` lie in.
///
/// # Safety
/// x has these.
#[inline(always)]
unsafe fn around<T: Unit>(x: Global<u8>, from: i64, low: u32, high: u32) -> [u32; WORDS] {
    let skew = skew::<T>(from);
    let (begin, low, high) = ((from - skew as i64) as usize, low + skew, high + skew);
    // SAFETY: the caller's contract; `begin` is a multiple of 4.
    unsafe {
        if const { T::BYTES < 4 } {
            x.get_words_around::<WORDS>(begin, low, high)
        } else {
            let [a, b, c, d] = x.get_words_around::<4>(begin, low, high);
            [a, b, c, d, 0]
        }
    }
}

/// Word `i` of the sixteen bytes at `from`.
#[inline(always)]
fn shifted<T: Unit>(words: &[u32; WORDS], i: usize, from: i64) -> u32 {
    if const { T::BYTES < 4 } { funnel_right(words[i], words[i + 1], 8 * skew::<T>(from)) } else { words[i] }
}

/// y = x permuted. The dimensions of `p` are those of the rows' numbers.
///
/// # Safety
/// x holds the elements of `p`, aligned to their size, y the launch's; rows have 16 bytes and more, and shared memory eight bytes for each
/// that a block may have something of, and for one more. The grid covers the packs of y at UNITS a thread.
#[kernel(family = "permute", types = [u8, u16, u32, u64], instances = [{ UNITS: 2; threads: 256 }])]
pub unsafe fn rows<T: Unit, const UNITS: usize>(x: Global<u8>, y: GlobalMut<u8>, mut p: Gather) {
    let width = thread::block_dim_x();
    let each = width * UNITS as u32;
    let bytes = const { T::BYTES };
    // SAFETY: the caller's contract; what is read beyond the elements shares a word with one.
    unsafe {
        let y = y.offset((p.y as usize * bytes) as i64);
        let (phase, base) = ((y.address() & 15) as u32, (x.address() & 15) as i64);
        let (x, y) = (x.offset(-base), y.offset(-(phase as i64)));
        p.x += base;
        let packs = (phase + p.units * bytes as u32).div_ceil(16);
        let begin = thread::block_idx_x() * each;
        let block = Block::new::<T>(&p, phase, begin, each);
        let first = begin + thread::thread_idx_x();
        let mut wanted = [Wanted { low: 0, split: 0, high: 0, from: [0; 2] }; UNITS];
        let mut words = [[[0; WORDS]; 2]; UNITS];
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            if number < packs {
                wanted[i] = Wanted::new::<T>(&p, &block, number);
                words[i] = wanted[i].load::<T>(x);
            }
        }
        for i in 0..UNITS {
            let at = 16 * (first + i as u32 * width) as usize;
            wanted[i].store::<T>(y, at, wanted[i].pack::<T>(&words[i]));
        }
    }
}
