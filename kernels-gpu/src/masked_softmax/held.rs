//! A row's scores in registers, `LANES` packs apart, and the result on its way out.
//!
//! Loading goes in phases, so that all loads of a thread are in flight before the first is used: the words
//! of x ([`read_x`]), the mask's ([`Held::read_mask`]), then arithmetic alone ([`Held::prepare`]). What a
//! phase cannot read as a pack (the end of x, a mask that is not aligned with x) it reads element by element
//! in a rolled loop behind a branch that aligned rows never take.

use super::{Exponent, Operands, Params, locate::Row, mask_kind};
use cuda_std::bits;
use cuda_std::prelude::*;

/// Sixteen bytes of x on their way to y. `p.exponent` turns a difference of held scores into an exponent:
/// the host sets it for the kernel's way of holding.
pub(crate) trait Held<T: Float>: Copy {
    /// The mask of one pack.
    type Mask: Copy;
    /// Nothing yet.
    const EMPTY: Self;
    /// Reads the masks of packs `LANES` apart, the first at pack `first`.
    ///
    /// # Safety
    /// The operands match the parameters, and `row` came from `locate`.
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS];
    /// The scores, −∞ at masked columns.
    fn prepare<const LANES: usize, const PACKS: usize>(
        x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS];
    /// The larger score at each place of two; NaN wins.
    fn max_words(self, other: Self) -> Self;
    /// The largest held score; NaN wins.
    fn max(self) -> f32;
    /// Adds exp(score − maximum) of each score to `start`; may keep the exponentials.
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32;
    /// The results.
    fn normalise(self, exponent: Exponent, end: &Normaliser) -> Pack;
}

/// What turns exponentials into results.
#[derive(Clone, Copy)]
pub(crate) struct Normaliser {
    /// The maximum that recomputed exponentials are relative to.
    maximum: f32,
    /// log2 of the sum; +∞ for a sum of 0.
    log2_sum: f32,
    /// What kept exponentials are multiplied by.
    factor: f32,
}

impl Normaliser {
    /// `kept_maximum` is what [`Held::exponentiate`] was given, `maximum` and `sum` are the whole row's.
    #[inline(always)]
    pub fn new(exponent: Exponent, kept_maximum: f32, maximum: f32, sum: f32) -> Self {
        let empty = sum == 0.0;
        // A part of the row with nothing kept has 0 for its maximum, perhaps above the row's.
        let below = float::min_nan(kept_maximum - maximum, 0.0);
        Normaliser {
            maximum,
            log2_sum: if empty { f32::INFINITY } else { float::log2(sum) },
            factor: if empty { 0.0 } else { exponent.exp(below) * float::rcp(sum) },
        }
    }
}

/// A maximum that can be subtracted from −∞: a row with nothing but −∞ counts from 0.
#[inline(always)]
pub(crate) fn finite_or_zero(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

/// Window column of pack `first + LANES·i`.
#[inline(always)]
pub(crate) fn column<T: Float, const LANES: usize>(first: u32, i: usize) -> i32 {
    (first + (LANES * i) as u32) as i32 * T::PER_PACK as i32
}

/// The words of x of packs `LANES` apart; −∞, before the flip of signs, where a pack has no kept column.
///
/// # Safety
/// As [`Held::read_mask`].
#[inline(always)]
pub(crate) unsafe fn read_x<T: Float, const LANES: usize, const PACKS: usize>(
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    first: u32,
) -> [Pack; PACKS] {
    let pack = T::PER_PACK as i64;
    // SAFETY: a pack that is read whole is inside x, and so are kept elements.
    unsafe {
        let mut x = [[T::NEG_INFINITY_WORD ^ p.flip; 4]; PACKS];
        // The rare branch first, while few registers are in use.
        if p.ragged != 0 && row.x + row.end as i64 + pack > p.x_len {
            for i in 0..PACKS {
                let column = column::<T, LANES>(first, i);
                let at = row.x + column as i64;
                if row.keeps_some::<T>(column) && at + pack > p.x_len {
                    x[i] = gather::<T>(row, column, |e| operands.x.get((at + e as i64) as usize).bits());
                }
            }
        }
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            let at = row.x + column as i64;
            let when = row.keeps_some::<T>(column) & ((p.ragged == 0) | (at + pack <= p.x_len));
            x[i] = operands.x.get_pack_streaming_or(when, at as usize, x[i]);
        }
        x
    }
}

/// A pack from its kept elements, read one by one in a loop that is not unrolled; 0 elsewhere.
#[inline(always)]
fn gather<T: Float>(row: &Row, column: i32, read: impl Fn(u32) -> u32) -> Pack {
    let mut pack = [0; 4];
    let width = 32 / T::PER_WORD as u32;
    let mut element = 0;
    while element < bits::opaque(T::PER_PACK as u32) {
        if row.keeps(column + element as i32) {
            let value = read(element) << (width * (element % T::PER_WORD as u32));
            for w in 0..4 {
                pack[w] |= if w as u32 == element / T::PER_WORD as u32 { value } else { 0 };
            }
        }
        element += 1;
    }
    pack
}

/// The kept bytes of a pack's mask, read one by one in a loop that is not unrolled; 0 elsewhere.
#[inline(always)]
fn gather_bytes<T: Float>(row: &Row, column: i32, read: impl Fn(i32) -> u32) -> [u32; 2] {
    let mut bytes = [0; 2];
    let mut element = 0;
    while element < bits::opaque(T::PER_PACK as u32) {
        if row.keeps(column + element as i32) {
            let byte = read(element as i32) << (8 * (element % 4));
            bytes[0] |= if element < 4 { byte } else { 0 };
            bytes[1] |= if element < 4 { 0 } else { byte };
        }
        element += 1;
    }
    bytes
}

/// The window columns whose index in an operand, `origin` + column, is in `0..length`; saturated, so that
/// it can be compared in 32 bits.
#[inline(always)]
fn columns_inside(origin: i64, length: i64) -> (i32, i32) {
    let saturate = |column: i64| column.max(-(1 << 30)).min(i32::MAX as i64 - 64) as i32;
    (saturate(-origin), saturate(length - origin))
}

/// Whether elements `at..at + count` are an aligned part of an operand of `length` elements.
#[inline(always)]
fn is_whole(at: i64, count: usize, length: i64) -> bool {
    (at & (count as i64 - 1) == 0) & (at >= 0) & (at + count as i64 <= length)
}

/// Scores as x has them, still to be scaled: 16-bit scores stay packed.
#[derive(Clone, Copy)]
pub(crate) struct Packed(Pack);

impl<T: Float> Held<T> for Packed {
    /// A byte an element.
    type Mask = [u32; 2];
    const EMPTY: Self = Packed([0; 4]);

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        if p.mask_kind != mask_kind::BYTES {
            return [[0; 2]; PACKS];
        }
        let mut masks = [[0; 2]; PACKS];
        // SAFETY: words that are read are inside the mask, and so are kept elements.
        unsafe {
            if row.mask & (T::PER_PACK as i64 - 1) == 0 {
                // Aligned like the packs of x; a pack that leaves the mask at either end waits.
                let (begin, end) = columns_inside(row.mask, p.mask_len);
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let when = row.keeps_some::<T>(column)
                        & ((p.ragged == 0) | ((column >= begin) & (column + T::PER_PACK as i32 <= end)));
                    let at = (row.mask + column as i64) as usize;
                    masks[i] = if const { T::PER_PACK == 8 } {
                        operands.mask.get_8_if(when, at, 0)
                    } else {
                        [operands.mask.get_4_if(when, at, 0), 0]
                    };
                }
            } else {
                // The aligned words that cover the bytes, shifted into place.
                let skew = (row.mask & 3) as i32;
                let (begin, end) = columns_inside(row.mask - skew as i64, p.mask_len);
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let kept = row.keeps_some::<T>(column);
                    let word = |number: i32| {
                        let at = column + 4 * number;
                        let inside = kept & (at >= begin) & (at + 4 <= end);
                        operands.mask.get_4_if(inside, (row.mask - skew as i64 + at as i64) as usize, 0)
                    };
                    let words = [word(0), word(1), if const { T::PER_PACK == 8 } { word(2) } else { 0 }];
                    let by = 8 * skew as u32;
                    masks[i][0] = bits::funnel_right(words[0], words[1], by);
                    if const { T::PER_PACK == 8 } {
                        masks[i][1] = bits::funnel_right(words[1], words[2], by);
                    }
                }
            }
            // At the ends of the mask, byte by byte: a rare loop, not unrolled.
            let (begin, end) = columns_inside(row.mask, p.mask_len);
            if p.ragged != 0 && (row.low < begin + 8 || row.high + 8 > end) || row.mask & 3 != 0 {
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let near_end = column < begin + 8 || column + T::PER_PACK as i32 + 8 > end;
                    if row.keeps_some::<T>(column) && near_end {
                        masks[i] = gather_bytes::<T>(row, column, |element| {
                            operands.mask.get((row.mask + (column + element) as i64) as usize) as u32
                        });
                    }
                }
            }
        }
        masks
    }

    #[inline(always)]
    fn prepare<const LANES: usize, const PACKS: usize>(
        mut x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS] {
        // Index loops: array iterators would keep the arrays in local memory.
        for i in 0..PACKS {
            for w in 0..4 {
                x[i][w] ^= p.flip;
            }
        }
        if p.scale == 0.0 {
            for i in 0..PACKS {
                for w in 0..4 {
                    x[i][w] = T::map(x[i][w], |v| v * 0.0);
                }
            }
        }
        if p.mask_kind == mask_kind::BYTES {
            for i in 0..PACKS {
                let sign = |bytes| bits::nonzero_bytes(bytes) ^ (p.mask_invert & 0x8080_8080);
                let signs = [sign(mask[i][0]), sign(mask[i][1])];
                for w in 0..4 {
                    let kept = T::byte_mask(signs, w);
                    x[i][w] = bits::select(kept, x[i][w], T::NEG_INFINITY_WORD);
                }
            }
        }
        if p.scale == 0.0 || row.splits_packs::<T>() {
            for i in 0..PACKS {
                let column = column::<T, LANES>(first, i);
                // Clamped to the pack, so that bit positions do not overflow.
                let low = (row.low - column).max(0).min(T::PER_PACK as i32);
                let high = (row.high - column).max(0).min(T::PER_PACK as i32);
                if low != 0 || high != T::PER_PACK as i32 {
                    for w in 0..4 {
                        let kept = T::range_mask(w, low, high);
                        x[i][w] = bits::select(kept, x[i][w], T::NEG_INFINITY_WORD);
                    }
                }
            }
        }
        let mut held = [<Self as Held<T>>::EMPTY; PACKS];
        for i in 0..PACKS {
            held[i] = Packed(x[i]);
        }
        held
    }

    #[inline(always)]
    fn max_words(self, other: Self) -> Self {
        let mut most = self.0;
        for w in 0..4 {
            most[w] = T::max_words(most[w], other.0[w]);
        }
        Packed(most)
    }

    #[inline(always)]
    fn max(self) -> f32 {
        let most = T::max_words(T::max_words(self.0[0], self.0[1]), T::max_words(self.0[2], self.0[3]));
        T::fold(most, f32::NEG_INFINITY, float::max_nan)
    }

    #[inline(always)]
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        let mut sum = start;
        if const { T::PER_WORD == 1 } {
            for w in 0..4 {
                self.0[w] = T::map(self.0[w], |v| exponent.exp(v - maximum));
                sum = T::fold(self.0[w], sum, |sum, e| sum + e);
            }
        } else {
            for w in 0..4 {
                sum = T::fold(self.0[w], sum, |sum, v| sum + exponent.exp_fast(v - maximum));
            }
            self.0 = packed::renew(self.0, exponent.zero);
        }
        sum
    }

    #[inline(always)]
    fn normalise(self, exponent: Exponent, end: &Normaliser) -> Pack {
        let mut pack = self.0;
        for w in 0..4 {
            pack[w] = T::map(pack[w], |v| {
                if const { T::PER_WORD == 1 } {
                    v * end.factor
                } else {
                    exponent.exp_over(v - end.maximum, end.log2_sum)
                }
            });
        }
        pack
    }
}

/// Scores with scale and bias applied, in f32; the first `T::PER_PACK` count.
#[derive(Clone, Copy)]
pub(crate) struct Wide([f32; 8]);

impl<T: Float> Held<T> for Wide {
    /// The bias as it is in memory: four words of x's type, or eight of f32.
    type Mask = [Pack; 2];
    const EMPTY: Self = Wide([0.0; 8]);

    #[inline(always)]
    unsafe fn read_mask<const LANES: usize, const PACKS: usize>(
        operands: &Operands<T>,
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self::Mask; PACKS] {
        // SAFETY: a pack that is read whole is inside the bias, and so are kept elements.
        unsafe {
            let like_x = Global::<T>::from_raw(operands.mask.raw());
            let wide = Global::<f32>::from_raw(operands.mask.raw());
            let is_wide = const { T::PER_PACK == 8 } && p.mask_kind == mask_kind::BIAS_F32;
            let mut masks = [[[0; 4]; 2]; PACKS];
            for i in 0..PACKS {
                let column = column::<T, LANES>(first, i);
                let at = row.mask + column as i64;
                let when = row.keeps_some::<T>(column) & is_whole(at, T::PER_PACK, p.mask_len);
                let at = at as usize;
                // Predicated loads of both kinds rather than a branch for each pack.
                masks[i][0] = like_x.get_pack_if(when & !is_wide, at, 0);
                if const { T::PER_PACK == 8 } {
                    let low = wide.get_pack_if(when & is_wide, at, 0);
                    for w in 0..4 {
                        masks[i][0][w] |= low[w];
                    }
                    masks[i][1] = wide.get_pack_if(when & is_wide, at.wrapping_add(4), 0);
                }
            }
            if p.ragged != 0 || row.mask & (T::PER_PACK as i64 - 1) != 0 {
                for i in 0..PACKS {
                    let column = column::<T, LANES>(first, i);
                    let at = row.mask + column as i64;
                    if row.keeps_some::<T>(column) && !is_whole(at, T::PER_PACK, p.mask_len) {
                        if is_wide {
                            let read = |e: u32| wide.get((at + e as i64) as usize).to_bits();
                            masks[i][0] = gather::<f32>(row, column, read);
                            masks[i][1] = gather::<f32>(row, column + 4, |e| read(e + 4));
                        } else {
                            let read = |e: u32| like_x.get((at + e as i64) as usize).bits();
                            masks[i][0] = gather::<T>(row, column, read);
                        }
                    }
                }
            }
            masks
        }
    }

    #[inline(always)]
    fn prepare<const LANES: usize, const PACKS: usize>(
        x: [Pack; PACKS],
        mask: [Self::Mask; PACKS],
        p: &Params,
        row: &Row,
        first: u32,
    ) -> [Self; PACKS] {
        let is_wide = const { T::PER_PACK == 8 } && p.mask_kind == mask_kind::BIAS_F32;
        let mut held = [<Self as Held<T>>::EMPTY; PACKS];
        for i in 0..PACKS {
            let column = column::<T, LANES>(first, i);
            for e in 0..T::PER_PACK {
                let wide = f32::from_bits(mask[i][e / 4][e % 4]);
                let bias = if is_wide { wide } else { T::element(mask[i][0], e).to_f32() };
                let score = float::fma(T::element(x[i], e).to_f32(), p.scale, bias);
                held[i].0[e] = if row.keeps(column + e as i32) { score } else { f32::NEG_INFINITY };
            }
        }
        held
    }

    #[inline(always)]
    fn max_words(mut self, other: Self) -> Self {
        for i in 0..T::PER_PACK {
            self.0[i] = float::max_nan(self.0[i], other.0[i]);
        }
        self
    }

    #[inline(always)]
    fn max(self) -> f32 {
        let mut most = f32::NEG_INFINITY;
        for i in 0..T::PER_PACK {
            most = float::max_nan(most, self.0[i]);
        }
        most
    }

    #[inline(always)]
    fn exponentiate(&mut self, exponent: Exponent, maximum: f32, start: f32) -> f32 {
        let mut sum = start;
        for i in 0..T::PER_PACK {
            self.0[i] = exponent.exp(self.0[i] - maximum);
            sum += self.0[i];
        }
        sum
    }

    #[inline(always)]
    fn normalise(self, _: Exponent, end: &Normaliser) -> Pack {
        T::pack_from(|i| T::from_f32(self.0[i] * end.factor))
    }
}

/// Writes the pack of results at window column `column`: whole where the row fills it, else the row's
/// elements alone.
///
/// # Safety
/// `row` came from `locate`, and y holds it.
#[inline(always)]
pub(crate) unsafe fn store<T: Float>(y: GlobalMut<T>, p: &Params, row: &Row, column: i32, pack: Pack) {
    let at = row.y + column as i64;
    let whole = row.first <= column && column + T::PER_PACK as i32 <= row.end;
    // SAFETY: the elements written are the row's.
    unsafe {
        y.set_pack_if(whole, at as usize, pack);
        if p.ragged != 0 && !whole && column < row.end {
            let from = (row.first - column).max(0);
            let to = (row.end - column).min(T::PER_PACK as i32);
            store_part(y, at as usize, pack, from as u32, to as u32);
        }
    }
}

/// Writes elements `from..to` of a pack: its end, its beginning, or some in between.
///
/// A beginning or an end of n elements goes out in one store for each binary digit of n, each aligned to
/// its size.
///
/// # Safety
/// y holds the elements, and `at` is a multiple of a pack.
#[inline(always)]
unsafe fn store_part<T: Float>(y: GlobalMut<T>, at: usize, pack: Pack, from: u32, to: u32) {
    let full = T::PER_PACK as u32;
    let is_end = to == full;
    let count = to - from;
    // SAFETY: the caller's contract.
    unsafe {
        if from != 0 && !is_end {
            for i in 0..T::PER_PACK {
                y.set_if((from <= i as u32) & ((i as u32) < to), at + i, T::element(pack, i));
            }
            return;
        }
        // Elements per word, so that digits count words first.
        let per_word = T::PER_WORD as u32;
        let words = count / per_word;
        let half = if is_end { [pack[2], pack[3]] } else { [pack[0], pack[1]] };
        let half_at = if is_end { 2 * T::PER_WORD } else { 0 };
        y.set_8_if(words & 2 != 0, at + half_at, half);
        // The odd word lies inside of the half that is written, or at the edge.
        let word = if is_end { 4 - words } else { words & 2 };
        let odd = if word >= 2 {
            if word == 3 { pack[3] } else { pack[2] }
        } else if word == 1 {
            pack[1]
        } else {
            pack[0]
        };
        y.set_4_if(words & 1 != 0, at + (word * per_word) as usize, odd);
        if const { T::PER_WORD == 2 } {
            // The odd element is the upper one of its word at an end, the lower one at a beginning.
            let word = if is_end { 3u32.wrapping_sub(words) } else { words };
            let mut value = pack[0];
            for i in 1..4 {
                value = if word == i as u32 { pack[i] } else { value };
            }
            let value = if is_end { value >> 16 } else { value };
            let element = if is_end { from } else { to.wrapping_sub(1) };
            y.set_if(count & 1 != 0, at + element as usize, T::from_bits(value & 0xffff));
        }
    }
}

/// Overwrites a row whose sum is NaN: NaN at every kept column, 0 elsewhere. Reads the mask again, since
/// a masked column and a kept −∞ look the same in registers.
///
/// # Safety
/// As [`Held::read_mask`]; the threads `thread` of `threads` of the row all call.
#[inline(always)]
pub(crate) unsafe fn store_nan_row<T: Float>(
    operands: &Operands<T>,
    p: &Params,
    row: &Row,
    thread: u32,
    threads: u32,
) {
    let mut column = row.first + thread as i32;
    while column < row.end {
        let mut kept = row.keeps(column);
        // SAFETY: the columns are the row's.
        unsafe {
            if kept && p.mask_kind == mask_kind::BYTES {
                let index = row.mask + row.first as i64 + (column - row.first) as i64 * p.mask_stride;
                kept = (operands.mask.get(index as usize) != 0) != (p.mask_invert != 0);
            }
            let value = T::from_f32(if kept { f32::NAN } else { 0.0 });
            operands.y.set((row.y + column as i64) as usize, value);
        }
        column += threads as i32;
    }
}
