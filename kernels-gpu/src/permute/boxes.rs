//! Boxes of elements, a block's share, and how they come into shared memory.
//!
//! A box takes some of each dimension that takes part, and one element of the others. In x it is a number of *runs*,
//! each of neighbouring bytes, and so it is in y. All bytes of a run of x are fetched by copies of 16 aligned bytes, with
//! what of its neighbours is in the first and the last. An element's place in shared memory is linear in its indices, with
//! strides that equal those of x modulo 32 bytes: so a byte keeps its place within 32, whatever the alignment. Within 16 would do for the
//! copies, but the halves of a sector that lie in two of shared memory are fetched one by one: boxes of 127×256 fetched 1.94 times
//! the sectors of 8191×8193 bytes.
//!
//! At most two dimensions are cut into tiles: the outermost of the runs of y, W, and that of the runs of x, U; they
//! may be one.

use core::ops::Range;

use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Digits of a block's index.
pub const MAX_DIGITS: usize = 9;
/// Levels of the runs of a box.
pub const MAX_LEVELS: usize = 4;
/// Levels of the elements of a run of y.
pub const MAX_WITHIN: usize = 4;
/// Boxes with more levels of runs of x than this have a table of them.
pub const DIRECT_LEVELS: u32 = 2;
/// Bytes that the table of the runs of x has for each of them.
pub const RUN_ENTRY: usize = 8;
/// Bytes that the table of the runs of y has for each of them.
pub const OUT_ENTRY: usize = 16;
/// Bytes of each other table's entries.
pub const ENTRY: usize = 4;

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

/// From a place in x and in shared memory to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of x.
    pub global: i64,
    /// Bytes of shared memory, modulo 2^32.
    pub staged: u32,
    /// Runs of the innermost level.
    pub runs: u32,
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
    /// Of a block's index: tiles of W, tiles of U, or the other way round, then what the boxes have one element of.
    pub digits: [Digit; MAX_DIGITS],
    /// Of the number of a run of x, the innermost first.
    pub runs: [Level; MAX_LEVELS],
    /// Of the number of a run of y.
    pub outs: [Level; MAX_LEVELS],
    /// Of the number of an element in a run of y; `global` has no use.
    pub within: [Level; MAX_WITHIN],
    /// From a run of x to the one that its thread fetches next, and what is added where the innermost level begins again; of
    /// boxes with so few levels that they have no table.
    pub further: [Step; 2],
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
    /// Turns of warps that follow one another: those along a run of y, as far as the lanes side by side go each, so that
    /// what is neighbouring is written at once; of boxes with levels along a run those of other runs, where lanes find
    /// their elements at the same distances.
    pub inner: Divisor,
    /// Elements of a run of y after which places in shared memory repeat, `period_step` further: those of all levels of
    /// `within` but the last.
    pub period: Divisor,
    /// See `period`.
    pub period_step: u32,
    /// Digits of a block's index.
    pub digit_count: u32,
    /// 1 where W is U.
    pub one_tile: u32,
    /// Lanes side by side along a run of y, as a power of two; the others of a warp are on the next runs.
    pub log_lanes: u32,
    /// All turns.
    pub turns: u32,
    /// Runs of y are cut between tiles at multiples of so many bytes: a power of two.
    pub grain: u32,
    /// Bytes by which x begins behind a multiple of 32.
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
    /// Where in shared memory the tables begin: behind the box, first that of the runs of y.
    pub tables: u32,
    /// Elements of a run of y that the table has the places of.
    pub along: u32,
    /// Entries of that table: see [`along_row`].
    pub along_entries: u32,
    /// Elements from one that the table has to the next.
    pub along_step: u32,
    /// Elements of shared memory that lie between as many of the innermost level of `within` as a pack has, where the table has rows and
    /// that level is not two of its own.
    pub skew: u32,
    /// 1 where the table of the runs of y has those with even numbers first, so that lanes next to one another are on every
    /// other run.
    pub apart: u32,
    /// 1 where tiles of U come before those of W among the digits.
    pub u_first: u32,
    /// Of boxes by packs: 1 where L2 is to keep what is written.
    pub keep: u32,
    /// 0, of which compilers do not know: see [`Shared::copy_pack_kept_async`].
    pub zero: u32,
    /// Of turned boxes: bytes of y between the runs of elements that share a word of x.
    pub neighbour: i64,
}
cuda_std::plain_parameter!(Boxes);
const _: () = assert!(
    size_of::<Boxes>()
        == 32 * MAX_DIGITS + 24 * (2 * MAX_LEVELS + MAX_WITHIN) + 2 * 16 + 4 * 24 + 3 * 12 + 23 * 4 + 8
);

/// Where a block's box is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Bytes of x in front of its first element, from a multiple of 32 on.
    pub x: i64,
    /// Bytes of y, from a multiple of 32 on.
    pub y: i64,
    /// The tile of W.
    pub w: u32,
    /// The tile of U.
    pub u: u32,
}

impl Place {
    /// The byte of shared memory where its first element is.
    #[inline(always)]
    pub(crate) fn staged(&self) -> u32 {
        (self.x & 31) as u32
    }
}

impl Boxes {
    /// The block's box.
    #[inline(always)]
    pub(crate) fn place(&self) -> Place {
        let [inner, outer, others @ ..] = &self.digits;
        let (rest, first) = inner.count.div_rem(thread::block_idx_x());
        let (mut rest, second) = outer.count.div_rem(rest);
        let (x, y) = (self.x_phase as i64, self.y_phase as i64);
        let mut x = advanced(advanced(x, inner.x, first), outer.x, second);
        let mut y = advanced(advanced(y, inner.y, first), outer.y, second);
        // Most boxes have none.
        if self.digit_count > 2 {
            for i in 0..const { MAX_DIGITS - 2 } {
                if i as u32 + 2 < self.digit_count {
                    let (next, digit) = others[i].count.div_rem(rest);
                    rest = next;
                    x = advanced(x, others[i].x, digit);
                    y = advanced(y, others[i].y, digit);
                }
            }
        }
        let (w, u) = if self.u_first != 0 { (second, first) } else { (first, second) };
        Place { x, y, w, u: if self.one_tile != 0 { w } else { u } }
    }

    /// Brings the box into shared memory, makes the tables of the way out, and waits for both. Runs of y begin `first`
    /// elements or words behind what their levels say, and their elements have `1 << log_bytes` bytes. WHOLE: runs of x
    /// begin and end at multiples of 16 bytes; else L2 is asked for `AHEAD` bytes at once. ROWS: 1 where the table of places along a run has
    /// rows.
    ///
    /// # Safety
    /// x holds the box, and shared memory has room for it and the tables.
    #[inline(always)]
    pub(crate) unsafe fn stage<const WHOLE: bool, const AHEAD: u32, const ROWS: usize>(
        &self,
        x: Global<u8>,
        place: Place,
        first: u32,
        log_bytes: u32,
    ) {
        let (bytes, runs) = (self.run_bytes.of(place.u), self.run_count.of(place.w));
        let phase = place.staged();
        let tables = self.tables();
        let (first_run, first_copy) = self.copies.div_rem(thread::thread_idx_x());
        // SAFETY: every run is in x; what is read beyond shares 16 bytes with it. Each entry has one thread, and all reach
        // the barriers.
        unsafe {
            if self.run_levels > DIRECT_LEVELS {
                let mut run = thread::thread_idx_x();
                while run < runs {
                    let (global, staged) = offsets(&self.runs, self.run_levels, run);
                    let from = ((phase as i64 + global) >> 4) as u32;
                    tables.runs.set(run, from as u64 | ((phase + staged) as u64) << 32);
                    run += thread::block_dim_x();
                }
                thread::sync_threads();
            }
            let x = x.offset((place.x & !31) - self.x_phase as i64);
            let run = if first_run < self.runs_at_once { first_run } else { runs };
            if self.run_levels > DIRECT_LEVELS {
                self.copy_tabled::<WHOLE, AHEAD>(x, &tables, run..runs, first_copy, bytes);
            } else {
                self.copy_direct::<WHOLE, AHEAD>(x, phase, run..runs, first_copy, bytes);
            }
            async_copy::commit();
            // While that is under way.
            self.tabulate::<ROWS>(&tables, place, first, log_bytes);
            async_copy::wait::<0>();
            thread::sync_threads();
        }
    }

    /// Starts a thread's copies of runs `range.start`, `range.start + runs_at_once` and so on, whose places are from the
    /// table.
    ///
    /// # Safety
    /// As [`Self::stage`].
    #[inline(always)]
    unsafe fn copy_tabled<const WHOLE: bool, const AHEAD: u32>(
        &self,
        x: Global<u8>,
        tables: &Tables,
        range: Range<u32>,
        first_copy: u32,
        bytes: u32,
    ) {
        let mut run = range.start;
        while run < range.end {
            // SAFETY: the caller's contract.
            unsafe {
                let entry = tables.runs.get(run);
                let (from, to) = (entry as u32 + first_copy, (entry >> 32) as u32 + 16 * first_copy);
                self.copy_run::<WHOLE, AHEAD>(x, from as i64 * 16, to, first_copy, bytes);
            }
            run += self.runs_at_once;
        }
    }

    /// As [`Self::copy_tabled`] for at most two levels of runs: there the next place is as far behind the last one as that
    /// behind the one before, but where the inner level begins again.
    ///
    /// # Safety
    /// As [`Self::stage`].
    #[inline(always)]
    unsafe fn copy_direct<const WHOLE: bool, const AHEAD: u32>(
        &self,
        x: Global<u8>,
        phase: u32,
        range: Range<u32>,
        first_copy: u32,
        bytes: u32,
    ) {
        // Levels that do not count have no steps.
        let [inner, outer, ..] = &self.runs;
        let [step, again] = self.further;
        let (next, mut digit) = inner.count.div_rem(range.start);
        let from = phase as i64 + 16 * first_copy as i64;
        let mut from = advanced(advanced(from, inner.global, digit), outer.global, next);
        let mut to = phase + 16 * first_copy + inner.staged * digit + outer.staged * next;
        let mut run = range.start;
        while run < range.end {
            // SAFETY: the caller's contract.
            unsafe { self.copy_run::<WHOLE, AHEAD>(x, from, to, first_copy, bytes) };
            run += self.runs_at_once;
            digit += step.runs;
            (from, to) = (from + step.global, to.wrapping_add(step.staged));
            if digit >= inner.count.value() {
                digit = digit.wrapping_add(again.runs);
                (from, to) = (from + again.global, to.wrapping_add(again.staged));
            }
        }
    }

    /// Starts a thread's copies of a run of `bytes` bytes, its copies `first`, `first + copies_at_once` and so on; the first
    /// is of the pack of `from`, into that of `to`, which is as far behind the pack's beginning.
    ///
    /// # Safety
    /// As [`Self::stage`].
    #[inline(always)]
    unsafe fn copy_run<const WHOLE: bool, const AHEAD: u32>(
        &self,
        x: Global<u8>,
        from: i64,
        to: u32,
        first: u32,
        bytes: u32,
    ) {
        let skew = to & 15;
        let end = skew + bytes;
        let (from, to) = (from & !15, to & !15);
        let copy = |further: u32| {
            let (at, to) = (16 * first + further, to + further);
            if at < end {
                // SAFETY: the caller's contract.
                unsafe {
                    let (staged, from) =
                        (Shared::<u8>::dynamic(0, to + 16), (from + further as i64) as usize);
                    if const { WHOLE } {
                        staged.copy_pack_kept_async(to, x, from, self.zero);
                    } else {
                        let low = if at == 0 { skew } else { 0 };
                        let high = (end - at).min(16);
                        staged.copy_part_async::<AHEAD>(to, x, from, low, high, self.zero);
                    }
                }
            }
        };
        copy(0);
        // Only of runs that are longer than a block is wide.
        let (step, all) = (16 * self.copies_at_once, 16 * self.copies.value());
        let mut further = step;
        while further < all {
            copy(further);
            further += step;
        }
    }

    /// The views of the tables.
    #[inline(always)]
    pub(crate) fn tables(&self) -> Tables {
        let outs = self.out_count.size as u32;
        let runs = if self.run_levels > DIRECT_LEVELS { self.run_count.size as u32 } else { 0 };
        let runs_at = self.tables + outs * OUT_ENTRY as u32;
        let along_at = runs_at + runs * RUN_ENTRY as u32;
        // SAFETY: the launch has room for them.
        unsafe {
            Tables {
                outs: Shared::dynamic(self.tables, 4 * outs),
                runs: Shared::dynamic(runs_at, runs),
                along: Shared::dynamic(along_at, self.along_entries),
            }
        }
    }

    /// Makes the tables of the way out; ROWS as of [`Self::stage`].
    ///
    /// # Safety
    /// As [`Self::stage`].
    #[inline(always)]
    unsafe fn tabulate<const ROWS: usize>(&self, tables: &Tables, place: Place, first: u32, log_bytes: u32) {
        let (outs, phase) = (self.out_count.of(place.u), place.y & 31);
        let (bytes, rest) = (self.out_bytes.of(place.w) as i64, self.out_bytes.rest(place.w) as i64);
        let grain = self.grain as i64;
        // SAFETY: the caller's contract; each entry has one thread.
        unsafe {
            let mut slot = thread::thread_idx_x();
            let even = outs - outs / 2;
            while slot < outs {
                let out = match self.apart != 0 {
                    true if slot < even => 2 * slot,
                    true => 2 * (slot - even) + 1,
                    false => slot,
                };
                let (global, staged) = offsets(&self.outs, self.out_levels, out);
                let start = phase + global;
                let low = if place.w == 0 { start } else { up(start, grain) };
                let high = up(start + bytes, grain).min(start + rest);
                let begin = low & !15;
                let lead = (begin - start) as i32 >> log_bytes;
                let end = (high - begin).max(0) as u32;
                tables.outs.set_pack(4 * slot, [(begin >> 4) as u32, first + staged, end, lead as u32]);
                slot += thread::block_dim_x();
            }
            let mut entry = thread::thread_idx_x();
            while entry < self.along {
                let (_, staged) = offsets(&self.within, self.within_levels, entry * self.along_step);
                if const { ROWS == 0 } {
                    tables.along.set(entry, staged);
                } else {
                    let (_, innermost) = self.within[0].count.div_rem(entry);
                    let staged = staged + (innermost >> (4 - log_bytes)) * self.skew;
                    let at = along_entry(entry, log_bytes);
                    tables.along.set(at, staged);
                    // Packs that begin in the row before end with it.
                    let per_pack = 16 >> log_bytes;
                    if entry >= per_pack {
                        tables.along.set(at - (per_pack + 1), staged);
                    }
                }
                entry += thread::block_dim_x();
            }
        }
    }

    /// y from where the numbers of the table of its runs count.
    ///
    /// # Safety
    /// As [`GlobalMut::offset`].
    #[inline(always)]
    pub(crate) unsafe fn origin(&self, y: GlobalMut<u8>, place: Place) -> GlobalMut<u8> {
        // SAFETY: the caller's contract.
        unsafe { y.offset((place.y & !31) - self.y_phase as i64) }
    }
}

/// What is worked out once for all packs of a box.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    /// Of a run of y, four words: where it begins, in packs of y; where its first element is in shared memory; the bytes
    /// from that beginning to its end; and the number of the element at the beginning, which is negative where the run
    /// begins in the middle of a pack.
    pub outs: Shared<u32>,
    /// Of a run of x: where it begins, in packs of x, and the byte of shared memory.
    pub runs: Shared<u64>,
    /// Of every `along_step`th element of a run of y: how far behind the first it is in shared memory. Of packs in rows: see [`along_row`].
    pub along: Shared<u32>,
}

/// Entries of a row of the table of places along a run of y, for packs of so many elements: those of a pack that begins with any of the first
/// `per_pack` elements are next to one another. Rows are odd, so that lanes whose packs follow one another read from different banks: without
/// rows it took 16 cycles where elements are bytes.
pub const fn along_row(per_pack: usize) -> usize {
    2 * per_pack + 1
}

/// The entry of that table where the places from element `number` on are, of `1 << log_bytes` bytes.
#[inline(always)]
pub(crate) fn along_entry(number: u32, log_bytes: u32) -> u32 {
    let per_pack = 16 >> log_bytes;
    number + (number >> (4 - log_bytes)) * (per_pack + 1)
}

/// The next multiple of a power of two.
#[inline(always)]
fn up(at: i64, grain: i64) -> i64 {
    (at + grain - 1) & -grain
}

/// `at + step * digit`: the product of 64 and 32 bits, of which the compiler would make one of 64 and 64.
#[inline(always)]
pub(crate) fn advanced(at: i64, step: i64, digit: u32) -> i64 {
    let (low, high) = (step as u32, (step >> 32) as u32);
    let carry = high.wrapping_mul(digit) as u64;
    at.wrapping_add((low as u64 * digit as u64) as i64).wrapping_add((carry << 32) as i64)
}

/// Where number `number` of the first `count` levels is, in global and in shared memory.
#[inline(always)]
pub(crate) fn offsets<const N: usize>(levels: &[Level; N], count: u32, number: u32) -> (i64, u32) {
    let (mut global, mut staged, mut rest) = (0, 0, number);
    for i in 0..N {
        if (i as u32) < count {
            // What is left for the last level is its digit.
            let (next, digit) = if i as u32 + 1 < count { levels[i].count.div_rem(rest) } else { (0, rest) };
            global = advanced(global, levels[i].global, digit);
            staged += levels[i].staged * digit;
            rest = next;
        }
    }
    (global, staged)
}
