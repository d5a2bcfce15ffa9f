//! The forward pass. Work is cut into units, packs or elements, and a thread has some of them, a block's width apart:
//! threads side by side have units side by side, whatever the length of a row. Each unit finds its own row; the
//! token is one word for neighbouring threads, and comes from L1 but for the first time.
//!
//! Launch: 1-D grid over fewer than 2^31 units; larger results take several launches.

use super::boundaries::{sequence_of_warp, step_from};
use super::tokens::{Token, Tokens, record};
use cuda_std::dependent;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// Words of a sector of memory, which comes to L2 as a whole.
pub const SECTOR_WORDS: usize = 8;

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// The tokens.
    pub tokens: Tokens,
    /// Elements of wte from row to row.
    pub wte_row: i64,
    /// And from column to column: 1 with packs.
    pub wte_column: i64,
    /// Elements of wpe from row to row.
    pub wpe_row: i64,
    /// And from column to column.
    pub wpe_column: i64,
    /// The number of the launch's first token.
    pub first: u32,
    /// Units of the launch, from 1 to below 2^31.
    pub units: u32,
    /// Units of a row.
    pub per_row: Divisor,
    /// How many packed sequences there are, at least one, or 0 where sequences are of one length.
    pub sequences: u32,
    /// With packed sequences: rows of wpe, at least one.
    pub positions: u32,
    /// Sectors of memory that the launch's tokens fill; 0 where they do not follow one another.
    pub sectors: u32,
    /// The blocks that let their rows come to L2 while they wait for the launch ahead: those that find a place at once.
    pub early: u32,
    /// Fills the struct, which has no padding.
    pub unused: u32,
}
cuda_std::plain_parameter!(Lookup);
const _: () = assert!(size_of::<Lookup>() == size_of::<Tokens>() + 4 * 8 + 2 * 4 + 12 + 5 * 4);

/// What is added to rows of wte, by number: the `WPE` of the kernels.
pub mod added {
    /// Nothing.
    pub const NOTHING: usize = 0;
    /// Rows of wpe, with sequences of one length.
    pub const POSITIONS: usize = 1;
    /// Rows of wpe, with packed sequences.
    pub const PACKED: usize = 2;
}

impl Lookup {
    /// Lets the launch's tokens come to L2, by its first blocks, and waits for the launch ahead.
    #[inline(always)]
    pub(super) fn begin(&self, tokens: Global<u32>) {
        let sector = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
        let words = self.tokens.words_of(self.first) + sector as usize * SECTOR_WORDS;
        tokens.prefetch_if(sector < self.sectors, words);
        dependent::begin();
    }

    /// Lets the pack of a unit come to L2 from the row that its token has at this moment, and from that of wpe: the launch ahead may still be
    /// writing tokens, which costs no more than the hint.
    ///
    /// # Safety
    /// As [`lookup_packs()`](fn@lookup_packs); the launch has the unit.
    #[inline(always)]
    unsafe fn prefetch_row<T: Float, const WPE: usize>(
        &self,
        tokens: Global<u32>,
        tables: [Global<T>; 2],
        unit: u32,
    ) {
        let (row, within) = self.per_row.div_rem(unit);
        // SAFETY: the caller's contract.
        let token = unsafe { self.tokens.glimpse(tokens, self.first + row) };
        let column = (within * const { T::PER_PACK as u32 }) as i64;
        // Of a token that has no row the place may be any.
        let at = token.value.wrapping_mul(self.wte_row).wrapping_add(column);
        tables[0].prefetch_if(token.valid, at as usize);
        if const { WPE == added::POSITIONS } {
            tables[1].prefetch_if(true, (token.step as i64 * self.wpe_row + column) as usize);
        }
    }

    /// The sequence of the first token that the warp has, whose unit is `unit` or, if there are fewer, the last.
    ///
    /// # Safety
    /// With packed sequences `starts` are their boundaries; all lanes of the warp call.
    #[inline(always)]
    pub(super) unsafe fn first_sequence<const WPE: usize>(&self, starts: Global<u32>, unit: u32) -> u32 {
        if const { WPE != added::PACKED } {
            return 0;
        }
        let (row, _) = self.per_row.div_rem(unit.min(self.units - 1));
        // SAFETY: the caller's contract.
        unsafe { sequence_of_warp(starts, self.sequences, self.first + row) }
    }

    /// The step of token `number` in its sequence, which is no earlier than `near`.
    ///
    /// # Safety
    /// With packed sequences `starts` are their boundaries, and `near` is one of them.
    #[inline(always)]
    pub(super) unsafe fn step<const WPE: usize>(
        &self,
        starts: Global<u32>,
        near: u32,
        token: &Token,
        number: u32,
    ) -> i64 {
        if const { WPE != added::PACKED } {
            return token.step as i64;
        }
        // SAFETY: the caller's contract. Of boundaries that are wrong, still a row of wpe.
        unsafe { step_from(starts, self.sequences, near, number).min(self.positions - 1) as i64 }
    }
}

/// Packs: rows of whole packs, aligned in every operand.
///
/// # Safety
/// The operands hold what `p` says, `starts` the boundaries of packed sequences if there are such, `fault` is one word, and
/// the grid covers the units at UNITS a thread.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [
        { WPE: 0, UNITS: 2; threads: 128 }, { WPE: 1, UNITS: 2; threads: 128 }, { WPE: 2, UNITS: 2; threads: 128 },
    ],
)]
pub unsafe fn lookup_packs<T: Float, const WPE: usize, const UNITS: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Lookup,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, true, WPE, UNITS>(tokens, starts, [wte, wpe], y, fault, &p) }
}

/// Elements, of tables with any strides.
///
/// # Safety
/// As [`lookup_packs()`](fn@lookup_packs).
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [
        { WPE: 0, UNITS: 4; threads: 128 }, { WPE: 1, UNITS: 4; threads: 128 }, { WPE: 2, UNITS: 2; threads: 128 },
    ],
)]
pub unsafe fn lookup_elements<T: Float, const WPE: usize, const UNITS: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Lookup,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, false, WPE, UNITS>(tokens, starts, [wte, wpe], y, fault, &p) }
}

/// `tables` are wte and, with positions, wpe.
#[inline(always)]
unsafe fn run<T: Float, const PACKS: bool, const WPE: usize, const UNITS: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    tables: [Global<T>; 2],
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: &Lookup,
) {
    let width = thread::block_dim_x();
    let first = thread::block_idx_x() * width * UNITS as u32 + thread::thread_idx_x();
    let unit = const { if PACKS { T::PER_PACK } else { 1 } };
    if const { PACKS } && thread::block_idx_x() < p.early {
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            // SAFETY: the caller's contract; units beyond the last read the launch's first token.
            unsafe { p.prefetch_row::<T, WPE>(tokens, tables, if number < p.units { number } else { 0 }) };
        }
    }
    p.begin(tokens);
    let (mut a, mut b) = ([[0; 4]; UNITS], [[0; 4]; UNITS]);
    let (mut rows, mut valid) = ([0; UNITS], [false; UNITS]);
    let (mut steps, mut columns) = ([0; UNITS], [0; UNITS]);
    // SAFETY: the caller's contract; units beyond the last read the launch's first token, and of a token that
    // has no row nothing is read.
    unsafe {
        let near = p.first_sequence::<WPE>(starts, first - warp::lane_id());
        // All tokens before the first row, and all rows before the first sum: one latency each.
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            let when = number < p.units;
            let (row, within) = p.per_row.div_rem(if when { number } else { 0 });
            let token = p.tokens.read(tokens, p.first + row);
            if when && within == 0 && !token.valid {
                record(fault, p.first + row, token.value);
            }
            valid[i] = when && token.valid;
            rows[i] = if valid[i] { token.value } else { 0 };
            columns[i] = (within * unit as u32) as i64;
            if const { WPE != added::NOTHING } {
                steps[i] = p.step::<WPE>(starts, near, &token, p.first + row);
            }
        }
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            let (wte, wpe) = (rows[i] * p.wte_row, steps[i] * p.wpe_row);
            a[i] = load_row::<T, PACKS, WPE>(tables[0], valid[i], wte + columns[i] * p.wte_column);
            if const { WPE != added::NOTHING } {
                b[i] = load::<T, PACKS>(tables[1], number < p.units, wpe + columns[i] * p.wpe_column);
            }
        }
        // Rows of y follow one another.
        let y_first = p.first as u64 * p.per_row.value() as u64;
        for i in 0..UNITS {
            let number = first + i as u32 * width;
            if const { WPE != added::NOTHING } {
                for pair in 0..const { if PACKS { T::PER_PACK / 2 } else { 1 } } {
                    let (x, position) = (T::pair(a[i], pair), T::pair(b[i], pair));
                    T::set_pair(&mut a[i], pair, [x[0] + position[0], x[1] + position[1]]);
                }
            }
            let at = ((y_first + number as u64) * unit as u64) as usize;
            if const { PACKS } {
                y.set_pack_if(number < p.units, at, a[i]);
            } else {
                y.set_if(number < p.units, at, T::from_bits(a[i][0]));
            }
        }
    }
}

/// [`load`] of a row of wte. Beside positions L2 is not asked to keep it, so that it keeps the rows of wpe, which all sequences want: 4 % of
/// f32 on an H100.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn load_row<T: Float, const PACKS: bool, const WPE: usize>(
    wte: Global<T>,
    when: bool,
    at: i64,
) -> Pack {
    // SAFETY: the caller's contract.
    unsafe {
        if const { PACKS && WPE != added::NOTHING } {
            wte.get_pack_plain_if(when, at as usize, 0)
        } else {
            load::<T, PACKS>(wte, when, at)
        }
    }
}

/// A pack, or an element in the low bits of its first word.
#[inline(always)]
unsafe fn load<T: Float, const PACKS: bool>(x: Global<T>, when: bool, at: i64) -> Pack {
    // SAFETY: the caller's contract.
    unsafe {
        if const { PACKS } {
            x.get_pack_if(when, at as usize, 0)
        } else {
            [if when { x.get(at as usize).bits() } else { 0 }, 0, 0, 0]
        }
    }
}
