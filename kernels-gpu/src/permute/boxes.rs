//! Boxes of elements, a block's share, and how they come into shared memory.
//!
//! A box takes some of each dimension that takes part, and one element of the others. In x it is a number of *runs*,
//! each of neighbouring bytes, and so it is in y. All bytes of a run of x are fetched by copies of 16 aligned bytes, with
//! what of its neighbours is in the first and the last. An element's place in shared memory is linear in its indices, with
//! strides that equal those of x modulo 16 bytes: so a byte keeps its place within 16, whatever the alignment.
//!
//! At most two dimensions are cut into tiles: the outermost of the runs of y, W, and that of the runs of x, U; they
//! may be one.

use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Digits of a block's index.
pub const MAX_DIGITS: usize = 9;
/// Levels of the runs of a box.
pub const MAX_LEVELS: usize = 4;

/// A digit of a block's index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// How many values it has.
    pub count: Divisor,
    /// Fills the struct, which has no padding.
    pub unused: u32,
    /// Bytes of x that a step takes.
    pub x: i64,
    /// And of y.
    pub y: i64,
}

/// A level of the indices of runs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// How many values it has.
    pub count: Divisor,
    /// What a step takes in shared memory: bytes for runs of x, words for runs of y.
    pub staged: u32,
    /// Bytes of x or y that a step takes.
    pub global: i64,
}

/// A size that is less in the last tile.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What all tiles have.
    pub total: u64,
    /// From tile to tile; 0 where there are no tiles.
    pub step: u64,
    /// What a tile has, at most.
    pub size: u64,
}

impl Span {
    /// What is left for tile `tile` and those behind.
    #[inline(always)]
    pub(crate) fn rest(&self, tile: u32) -> u64 {
        self.total - self.step * tile as u64
    }

    /// What a tile has.
    #[inline(always)]
    pub(crate) fn of(&self, tile: u32) -> u32 {
        self.rest(tile).min(self.size) as u32
    }
}

/// A launch of a staged kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Boxes {
    /// Of a block's index: tiles of W, tiles of U, then what the boxes have one element of.
    pub digits: [Digit; MAX_DIGITS],
    /// Of the number of a run of x, the innermost first.
    pub runs: [Level; MAX_LEVELS],
    /// Of the number of a run of y.
    pub outs: [Level; MAX_LEVELS],
    /// Of the number of an element in a run of y; `global` has no use.
    pub within: [Level; 3],
    /// Bytes of a run of x, by U's tile; with the elements of the next tile that this one writes out.
    pub run_bytes: Span,
    /// Runs of x, by W's tile; 0 steps where W is U. With those of the next tile.
    pub run_count: Span,
    /// Bytes of a run of y, by W's tile.
    pub out_bytes: Span,
    /// Runs of y, by U's tile; 0 steps where U is W.
    pub out_count: Span,
    /// Copies of 16 bytes that a run of x takes, at most.
    pub copies: Divisor,
    /// How often the lanes side by side go into the packs of a run of y.
    pub strides: Divisor,
    /// Digits of a block's index.
    pub digit_count: u32,
    /// 1 where W is U.
    pub one_tile: u32,
    /// Lanes side by side along a run of y, as a power of two; the others of a warp are on the next runs.
    pub log_lanes: u32,
    /// Runs of y are cut between tiles at multiples of so many bytes: a power of two.
    pub grain: u32,
    /// Bytes by which x begins behind a multiple of 16.
    pub x_phase: u32,
    /// Bytes by which y begins behind a multiple of 32.
    pub y_phase: u32,
    /// Levels of `runs` that count.
    pub run_levels: u32,
    /// Of `outs`.
    pub out_levels: u32,
    /// Of `within`.
    pub within_levels: u32,
    /// Runs of x that the threads fetch at once.
    pub runs_at_once: u32,
    /// Copies of each of them.
    pub copies_at_once: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
    /// Of turned boxes: bytes of y between the runs of elements that share a word of x.
    pub neighbour: i64,
}
cuda_std::plain_parameter!(Boxes);
const _: () =
    assert!(size_of::<Boxes>() == 32 * MAX_DIGITS + 24 * (2 * MAX_LEVELS + 3) + 4 * 24 + 2 * 12 + 12 * 4 + 8);

/// Where a block's box is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Bytes of x in front of its first element, from a multiple of 16 on.
    pub x: i64,
    /// Bytes of y, from a multiple of 32 on.
    pub y: i64,
    /// The tile of W.
    pub w: u32,
    /// The tile of U.
    pub u: u32,
}

impl Boxes {
    /// The block's box.
    #[inline(always)]
    pub(crate) fn place(&self) -> Place {
        let mut rest = thread::block_idx_x();
        let (mut x, mut y) = (self.x_phase as i64, self.y_phase as i64);
        let (mut w, mut u) = (0, 0);
        for i in 0..MAX_DIGITS {
            if (i as u32) < self.digit_count {
                let (next, digit) = self.digits[i].count.div_rem(rest);
                rest = next;
                x += self.digits[i].x * digit as i64;
                y += self.digits[i].y * digit as i64;
                if i == 0 {
                    w = digit;
                }
                if i == 1 {
                    u = digit;
                }
            }
        }
        Place { x, y, w, u: if self.one_tile != 0 { w } else { u } }
    }

    /// Brings the box into shared memory, and waits for it.
    ///
    /// # Safety
    /// x holds the box, and shared memory has room for it.
    #[inline(always)]
    pub(crate) unsafe fn stage(&self, x: Global<u8>, place: Place) {
        let (bytes, runs) = (self.run_bytes.of(place.u), self.run_count.of(place.w));
        let phase = (place.x & 15) as u32;
        let (first_run, first_copy) = self.copies.div_rem(thread::thread_idx_x());
        // SAFETY: every run is in x; what is read beyond shares 16 bytes with it. The barrier is reached by all.
        unsafe {
            let x = x.offset(-(self.x_phase as i64));
            let mut run = if first_run < self.runs_at_once { first_run } else { runs };
            while run < runs {
                let (global, staged) = offsets(&self.runs, self.run_levels, run);
                let (from, to) = (place.x + global, phase + staged);
                let skew = to & 15;
                let end = skew + bytes;
                let mut copy = first_copy;
                while 16 * copy < end {
                    let low = if copy == 0 { skew } else { 0 };
                    let (from, to) = ((from & !15) + 16 * copy as i64, (to & !15) + 16 * copy);
                    let high = (end - 16 * copy).min(16);
                    Shared::<u8>::dynamic(0, to + 16).copy_part_async(to, x, from as usize, low, high);
                    copy += self.copies_at_once;
                }
                run += self.runs_at_once;
            }
            async_copy::commit();
            async_copy::wait::<0>();
            thread::sync_threads();
        }
    }
}

/// Where number `number` of the first `count` levels is, in global and in shared memory.
#[inline(always)]
pub(crate) fn offsets<const N: usize>(levels: &[Level; N], count: u32, number: u32) -> (i64, u32) {
    let (mut global, mut staged, mut rest) = (0, 0, number);
    for i in 0..N {
        if (i as u32) < count {
            // What is left for the last level is its digit.
            let (next, digit) = if i as u32 + 1 < count { levels[i].count.div_rem(rest) } else { (0, rest) };
            global += levels[i].global * digit as i64;
            staged += levels[i].staged * digit;
            rest = next;
        }
    }
    (global, staged)
}
