//! Rows that fit in registers: read once, written once.
//!
//! Short rows take a part of a warp (`LANES` ≤ 32), with up to seven packs a thread, so that enough loads are
//! in flight; longer rows take a block of `LANES` threads, whose warps meet once: each brings its own
//! maximum and its sum relative to that.

use super::ending::{End, Ending, Part, Share, Sink, Softmax};
use super::held::{Held, Normaliser, column, finite_or_zero, read_x};
use super::joined_rows::{joins, store_joined};
use super::kept_powers::{self, Kept};
use super::locate::{Row, locate};
use super::nan_row::store_nan_row;
use super::packed_scores::Packed;
use super::wide_scores::Wide;
use super::{Operands, Params};
use cuda_std::prelude::*;

/// Rows held packed: no mask or a byte mask. Registers for the row: `4·PACKS`, and
/// `8·PACKS` for the exponentials of 16-bit scores where these are kept (`kept_powers`).
///
/// # Safety
/// The operands match `p`, whose rows have at most `LANES·PACKS` packs; the grid covers the rows, which follow one another
/// in y where `LANES` is below 32.
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    instances = [
        { LANES: 1, PACKS: 1; threads: 128, min_blocks: 8 },
        { LANES: 1, PACKS: 2; threads: 128 },
        { LANES: 1, PACKS: 4; threads: 128, min_blocks: 8 },
        { LANES: 2, PACKS: 4; threads: 128 },
        { LANES: 4, PACKS: 3; threads: 128 },
        { LANES: 4, PACKS: 4; threads: 128 },
        { LANES: 4, PACKS: 5; threads: 128 },
        { LANES: 8, PACKS: 3; threads: 128 },
        { LANES: 8, PACKS: 4; threads: 128 },
        { LANES: 16, PACKS: 2; threads: 128 },
        { LANES: 8, PACKS: 5; threads: 128 },
        { LANES: 16, PACKS: 3; threads: 128 },
        { LANES: 8, PACKS: 7; threads: 128 },
        { LANES: 16, PACKS: 4; threads: 128 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 16, PACKS: 5; threads: 128 },
        { LANES: 32, PACKS: 3; threads: 128 },
        { LANES: 16, PACKS: 7; threads: 128 },
        { LANES: 32, PACKS: 4; threads: 128 },
        { LANES: 64, PACKS: 2; threads: 64 },
        { LANES: 64, PACKS: 3; threads: 64 },
        { LANES: 64, PACKS: 4; threads: 64, min_blocks: 16 },
        { LANES: 128, PACKS: 2; threads: 128 },
        { LANES: 128, PACKS: 3; threads: 128 },
        { LANES: 128, PACKS: 4; threads: 128, min_blocks: 8 },
        { LANES: 256, PACKS: 2; threads: 256 },
        { LANES: 128, PACKS: 5; threads: 128, min_blocks: 8 },
        { LANES: 256, PACKS: 4; threads: 256, min_blocks: 4 },
        { LANES: 256, PACKS: 5; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512, min_blocks: 2 },
    ],
)]
pub unsafe fn row<T: Float, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { packed_rows::<T, LANES, PACKS>(&operands, &p) }
}

/// Longer rows held packed, for Hopper alone: the ptxas of other GPUs spills eight packs of a ragged row.
///
/// # Safety
/// As [`row()`](fn@row).
#[kernel(
    family = "masked_softmax_hopper",
    types = [f32, f16, bf16],
    requires = "sm_90a",
    instances = [
        { LANES: 256, PACKS: 8; threads: 256, min_blocks: 4 },
        { LANES: 512, PACKS: 8; threads: 512, min_blocks: 2 },
        { LANES: 1024, PACKS: 8; threads: 1024, min_blocks: 1 },
    ],
)]
pub unsafe fn long_row<T: Float, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { packed_rows::<T, LANES, PACKS>(&operands, &p) }
}

/// Rows with a bias, held in f32: registers for a row of 16-bit scores are `8·PACKS`.
///
/// # Safety
/// As [`row()`](fn@row).
#[kernel(
    family = "masked_softmax",
    types = [f32, f16, bf16],
    instances = [
        { LANES: 1, PACKS: 2; threads: 128 },
        { LANES: 4, PACKS: 2; threads: 128 },
        { LANES: 8, PACKS: 2; threads: 128 },
        { LANES: 16, PACKS: 2; threads: 128 },
        { LANES: 32, PACKS: 2; threads: 128 },
        { LANES: 64, PACKS: 2; threads: 64, min_blocks: 16 },
        { LANES: 128, PACKS: 2; threads: 128, min_blocks: 8 },
        { LANES: 128, PACKS: 4; threads: 128 },
        { LANES: 256, PACKS: 4; threads: 256 },
        { LANES: 512, PACKS: 4; threads: 512, min_blocks: 1 },
    ],
)]
pub unsafe fn row_bias<T: Float, const LANES: usize, const PACKS: usize>(
    x: Global<T>,
    mask: Global<u8>,
    lengths: Global<i32>,
    starts: Global<i32>,
    y: GlobalMut<T>,
    lengths_fault: GlobalMut<u64>,
    starts_fault: GlobalMut<u64>,
    p: Params,
) {
    let operands = Operands { x, mask, lengths, starts, y, lengths_fault, starts_fault };
    // SAFETY: the caller's contract.
    unsafe { rows::<T, Wide, _, LANES, PACKS>(&operands, &p, &Softmax) }
}

/// Rows of a launch of the [`row()`](fn@row) kernels that one block takes.
pub const fn rows_per_block(lanes: usize, threads: u32) -> u32 {
    if lanes > 32 { 1 } else { threads / lanes as u32 }
}

/// [`rows`] without a bias.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn packed_rows<T: Float, const LANES: usize, const PACKS: usize>(operands: &Operands<T>, p: &Params) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { T::PER_WORD == 2 && PACKS <= kept_powers::MOST } {
            rows::<T, Kept, _, LANES, PACKS>(operands, p, &Softmax);
        } else {
            rows::<T, Packed, _, LANES, PACKS>(operands, p, &Softmax);
        }
    }
}

/// # Safety
/// As [`row()`](fn@row), and the ending's.
#[inline(always)]
pub(super) unsafe fn rows<T: Float, H: Held<T>, E: Ending<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    ending: &E,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { LANES > 32 } {
            block_row::<T, H, E, LANES, PACKS>(operands, p, ending);
        } else {
            warp_rows::<T, H, E, LANES, PACKS>(operands, p, ending);
        }
    }
}

/// Loads `PACKS` packs of a row, `LANES` apart, the first at pack `first`.
///
/// # Safety
/// As [`Held::read_mask`].
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(super) unsafe fn load_packs<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    first: u32,
) -> [H; PACKS] {
    // SAFETY: the caller's contract.
    unsafe {
        let x = read_x::<T, LANES, PACKS>(operands, p, row, first);
        // Masks in parts where the registers hold no more: each part waits for its own loads.
        let mut held = [H::EMPTY; PACKS];
        if const { PACKS >= 4 && size_of::<H::Mask>() > 16 } {
            for start in 0..PACKS {
                prepare_part::<T, H, LANES, PACKS, 1>(&x, &mut held, start, operands, p, row, first);
            }
        } else if const { PACKS == 8 && T::PER_WORD == 2 } {
            prepare_part::<T, H, LANES, PACKS, 4>(&x, &mut held, 0, operands, p, row, first);
            prepare_part::<T, H, LANES, PACKS, 4>(&x, &mut held, 4, operands, p, row, first);
        } else {
            prepare_part::<T, H, LANES, PACKS, PACKS>(&x, &mut held, 0, operands, p, row, first);
        }
        held
    }
}

/// Reads the masks of `PART` packs from pack number `start`, and prepares these.
///
/// # Safety
/// As [`Held::read_mask`].
#[inline(always)]
unsafe fn prepare_part<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize, const PART: usize>(
    x: &[Pack; PACKS],
    held: &mut [H; PACKS],
    start: usize,
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    first: u32,
) {
    let first = first + (LANES * start) as u32;
    let mut part = [[0; 4]; PART];
    for i in 0..PART {
        part[i] = x[start + i];
    }
    // SAFETY: the caller's contract.
    let mask = unsafe { H::read_mask::<LANES, PART>(operands, p, row, first) };
    let prepared = H::prepare::<LANES, PART>(part, mask, p, row, first);
    for i in 0..PART {
        held[start + i] = prepared[i];
    }
}

/// Writes what [`load_packs`] loaded, normalised.
///
/// # Safety
/// `row` came from `locate`, and the sink takes it.
#[inline(always)]
pub(super) unsafe fn store_packs<T: Float, H: Held<T>, S: Sink<T>, const LANES: usize, const PACKS: usize>(
    sink: S,
    p: &Params,
    row: &Row,
    first: u32,
    held: [H; PACKS],
    end: &Normaliser,
) {
    // Where there are many packs, a branch for each keeps ptxas from computing all of them before the first is stored.
    let is_long = const { PACKS >= 6 };
    let shift = if const { H::RECOMPUTES } { p.exponent.shift(end.maximum) } else { None };
    let column = |i: usize| column::<T, LANES>(first, i);
    let store = |when: bool, i: usize, pack: Pack| {
        let pack = [pack[0] ^ end.signs, pack[1] ^ end.signs, pack[2] ^ end.signs, pack[3] ^ end.signs];
        // SAFETY: the columns are the row's.
        unsafe {
            sink.set_pack(
                when,
                (row.y + column(i) as i64) as usize,
                pack,
                Part::of_row::<T>(p, row, column(i)),
            )
        };
    };
    if let Some(shift) = shift {
        let shift = shift + end.log2_sum;
        if skips::<LANES, PACKS>(p) {
            for i in 0..PACKS {
                let mut pack = [0; 4];
                if row.keeps_some::<T>(column(i)) {
                    pack = held[i].normalise_by(p.exponent, shift);
                }
                store(column(i) < row.stop, i, pack);
            }
        } else {
            for i in 0..PACKS {
                let when = column(i) < row.stop;
                if !is_long || when {
                    store(is_long || when, i, held[i].normalise_by(p.exponent, shift));
                }
            }
        }
    } else {
        for i in 0..PACKS {
            let when = column(i) < row.stop;
            if !is_long || when {
                store(is_long || when, i, held[i].normalise(p.exponent, end));
            }
        }
    }
}

/// The largest held score.
#[inline(always)]
pub(super) fn max_of<T: Float, H: Held<T>, const PACKS: usize>(held: &[H; PACKS]) -> f32 {
    let mut most = held[0];
    for i in 1..PACKS {
        most = most.max_words(held[i]);
    }
    most.max()
}

/// Whether packs without kept columns are left out of the arithmetic of 16-bit scores: where a warp has one row, whose bounds
/// leave out whole warps' packs. Without bounds a branch for each would keep packs from overlapping. Eight packs leave no
/// register for it.
#[inline(always)]
fn skips<const LANES: usize, const PACKS: usize>(p: &Params) -> bool {
    (const { LANES >= warp::SIZE as usize && PACKS < 8 }) && p.bounds_rows()
}

/// [`Held::exponentiate`] over all packs, `LANES` apart, the first at pack `first`.
#[inline(always)]
pub(super) fn exponentiate<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize>(
    held: &mut [H; PACKS],
    p: &Params,
    row: &Row,
    first: u32,
    maximum: f32,
    start: f32,
) -> f32 {
    let mut sum = start;
    if const { H::SHIFTS }
        && let Some(shift) = p.exponent.shift(maximum)
    {
        if skips::<LANES, PACKS>(p) {
            for i in 0..PACKS {
                if row.keeps_some::<T>(column::<T, LANES>(first, i)) {
                    sum = held[i].exponentiate_by(p.exponent, shift, sum);
                }
            }
        } else {
            for i in 0..PACKS {
                sum = held[i].exponentiate_by(p.exponent, shift, sum);
            }
        }
    } else {
        for i in 0..PACKS {
            sum = held[i].exponentiate(p.exponent, maximum, sum);
        }
    }
    sum
}

#[inline(always)]
unsafe fn warp_rows<T: Float, H: Held<T>, E: Ending<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    ending: &E,
) {
    let (group, lane) = (thread::thread_idx_x() / LANES as u32, thread::thread_idx_x() % LANES as u32);
    let number = thread::block_idx_x() * (thread::block_dim_x() / LANES as u32) + group;
    // SAFETY: the caller's contract. Lanes beyond the last row take part with an empty row, so the
    // collectives are whole.
    unsafe {
        let is_row = number < p.rows;
        let row = if is_row { locate(operands, p, number) } else { Row::NONE };
        let (known, row) = ending.begin(p, number.min(p.rows - 1), row);
        let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &row, lane);
        let maximum = finite_or_zero(warp::max::<f32, LANES>(max_of::<T, H, PACKS>(&held)));
        let sum = exponentiate::<T, H, LANES, PACKS>(&mut held, p, &row, lane, maximum, 0.0);
        let sum = warp::sum::<f32, LANES>(sum);
        let share = Share::of_row::<T>(&row, lane, LANES);
        // A row that is not there has no results, and no loss either.
        let is_nan = is_row && E::is_nan(known, sum);
        let softmax = Normaliser::new(p.exponent, maximum, maximum, sum);
        if const { E::ZEROS && LANES < 32 } && joins::<T>(p, is_nan) {
            let end = E::normaliser(known, softmax);
            store_joined::<T, H, _, LANES, PACKS>(ending.sink(operands), p, &row, number, held, &end);
        } else if is_nan {
            if ending.stores() {
                store_nan_row(ending.sink(operands), operands, p, &row, lane, LANES as u32, false);
            }
            ending.finish(operands, p, known, &share, End::Nan);
        } else {
            if ending.stores() {
                let end = E::normaliser(known, softmax);
                store_packs::<T, H, _, LANES, PACKS>(ending.sink(operands), p, &row, lane, held, &end);
            }
            if is_row {
                ending.finish(operands, p, known, &share, End::Number(softmax));
            }
        }
    }
}

/// A maximum and the sum of exponentials relative to it.
#[derive(Clone, Copy)]
pub(super) struct Partial {
    pub maximum: f32,
    pub sum: f32,
}

impl Partial {
    /// Nothing yet.
    pub const EMPTY: Partial = Partial { maximum: f32::NEG_INFINITY, sum: 0.0 };

    /// In one word, which is not 0: in the sum beside a maximum of 0 is that score's own exponential.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.maximum.to_bits() as u64 | (self.sum.to_bits() as u64) << 32
    }

    /// From [`Self::word`].
    #[inline(always)]
    pub fn of_word(word: u64) -> Partial {
        Partial { maximum: f32::from_bits(word as u32), sum: f32::from_bits((word >> 32) as u32) }
    }

    /// Combines one partial of each lane over the warp.
    #[inline(always)]
    pub fn over_warp(self, p: &Params) -> Partial {
        let maximum = warp::max::<f32, 32>(self.maximum);
        let below = self.maximum - finite_or_zero(maximum);
        Partial { maximum, sum: warp::sum::<f32, 32>(self.sum * p.exponent.exp(below)) }
    }

    /// The partial of a warp whose lanes hold parts of a row: the exponentials are left relative to
    /// `finite_or_zero` of the warp's maximum.
    #[inline(always)]
    pub fn of_held<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize>(
        held: &mut [H; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> Partial {
        let maximum = warp::max::<f32, 32>(max_of::<T, H, PACKS>(held));
        let base = finite_or_zero(maximum);
        let sum = exponentiate::<T, H, LANES, PACKS>(held, p, row, first, base, 0.0);
        Partial { maximum, sum: warp::sum::<f32, 32>(sum) }
    }

    /// The partial of both parts.
    #[inline(always)]
    pub fn and(self, other: Partial, p: &Params) -> Partial {
        let maximum = float::max_nan(self.maximum, other.maximum);
        let rescaled = |part: Partial| part.sum * p.exponent.exp(part.maximum - finite_or_zero(maximum));
        Partial { maximum, sum: rescaled(self) + rescaled(other) }
    }

    /// The partial with these scores, which become exponentials relative to `finite_or_zero` of its maximum.
    #[inline(always)]
    pub fn and_held<T: Float, H: Held<T>, const LANES: usize, const PACKS: usize>(
        self,
        held: &mut [H; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> Partial {
        let most = float::max_nan(self.maximum, max_of::<T, H, PACKS>(held));
        let maximum = finite_or_zero(most);
        let empty = self.maximum == f32::NEG_INFINITY;
        let rescaled = if empty { 0.0 } else { self.sum * p.exponent.exp(self.maximum - maximum) };
        let sum = exponentiate::<T, H, LANES, PACKS>(held, p, row, first, maximum, rescaled);
        Partial { maximum: most, sum }
    }

    /// What normalises exponentials relative to this part's maximum, for the whole row's partial.
    #[inline(always)]
    pub fn normaliser(self, total: Partial, p: &Params) -> Normaliser {
        Normaliser::new(p.exponent, finite_or_zero(self.maximum), finite_or_zero(total.maximum), total.sum)
    }

    /// Combines one partial of each warp over the block.
    ///
    /// # Safety
    /// All threads of the block call, once a launch: the scratch is not guarded for a second use.
    #[inline(always)]
    pub unsafe fn over_block(self, p: &Params, scratch: Shared<f32>) -> Partial {
        let (warps, lane) = (thread::block_dim_x() / warp::SIZE, warp::lane_id());
        // SAFETY: each warp writes its own two elements before the barrier.
        unsafe {
            if lane == 0 {
                scratch.set(2 * warp::warp_id(), self.maximum);
                scratch.set(2 * warp::warp_id() + 1, self.sum);
            }
            thread::sync_threads();
            let mut mine = Partial::EMPTY;
            if lane < warps {
                mine = Partial { maximum: scratch.get(2 * lane), sum: scratch.get(2 * lane + 1) };
            }
            mine.over_warp(p)
        }
    }
}

#[inline(always)]
unsafe fn block_row<T: Float, H: Held<T>, E: Ending<T>, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    ending: &E,
) {
    let (number, lane) = (thread::block_idx_x(), thread::thread_idx_x());
    // SAFETY: the caller's contract; the grid has one block a row.
    unsafe {
        let (known, row) = ending.begin(p, number, locate(operands, p, number));
        let mut held = load_packs::<T, H, LANES, PACKS>(operands, p, &row, lane);
        let mine = Partial::of_held::<T, H, LANES, PACKS>(&mut held, p, &row, lane);
        let scratch = shared_array!(masked_softmax_row_partials: [f32; 64]);
        let total = mine.over_block(p, scratch);
        let share = Share::of_row::<T>(&row, lane, LANES);
        if E::is_nan(known, total.sum) {
            if ending.stores() {
                store_nan_row(ending.sink(operands), operands, p, &row, lane, LANES as u32, H::BITS);
            }
            ending.finish(operands, p, known, &share, End::Nan);
        } else {
            let softmax = mine.normaliser(total, p);
            if ending.stores() {
                let end = E::normaliser(known, softmax);
                store_packs::<T, H, _, LANES, PACKS>(ending.sink(operands), p, &row, lane, held, &end);
            }
            ending.finish(operands, p, known, &share, End::Number(softmax));
        }
    }
}
