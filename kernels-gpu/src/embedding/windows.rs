//! The forward pass for rows that packs do not fit: 767 columns, or tables whose rows lie at any distance.
//!
//! y is contiguous, so it consists of aligned packs whatever its rows are, and a thread writes one of them. What belongs
//! there lies anywhere in the tables: a window of 16 bytes, cut from the two aligned packs that it lies in. A pack of y that
//! begins in one row and ends in the next takes a window for each; a row has at least a pack's elements, so there is no
//! third.
//!
//! Launch: 1-D grid over fewer than 2^31 elements; larger results take several launches of whole rows, each of which begins
//! with a pack of y.

use super::lookup::Lookup;
use super::tokens::record;
use cuda_std::bits::{funnel_right, opaque, select};
use cuda_std::prelude::*;

/// A launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Its units are packs of y, also the last if it is not whole; `per_row` is the columns. The columns of the tables lie
    /// side by side.
    pub lookup: Lookup,
    /// Elements of wte, counted to the end of its last row.
    pub wte_len: i64,
    /// And of wpe.
    pub wpe_len: i64,
    /// Where the first step's row is in wpe.
    pub wpe_first: i64,
    /// Elements of the launch, below 2^31.
    pub elements: u32,
    /// Rows of the launch.
    pub rows: u32,
}
cuda_std::plain_parameter!(Windows);
const _: () = assert!(size_of::<Windows>() == size_of::<Lookup>() + 4 * 8);

/// The operands, as the kernel takes them.
#[derive(Clone, Copy)]
struct Operands<T> {
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    fault: GlobalMut<u64>,
}

/// Packs of y, of rows with any number of elements from a pack's on.
///
/// # Safety
/// As [`lookup_packs()`](fn@super::lookup_packs), with units as [`Windows`] says; tables and y begin at multiples of 16
/// bytes.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [{ WPE: 0; threads: 128, min_blocks: 10 }, { WPE: 1; threads: 128, min_blocks: 8 }],
)]
pub unsafe fn lookup_windows<T: Float, const WPE: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Windows,
) {
    let per_pack = T::PER_PACK as u32;
    let operands = Operands { tokens, starts, wte, wpe, fault };
    let number = thread::index_1d() as u32;
    if number >= p.lookup.units {
        return;
    }
    let at = number * per_pack;
    let (row, column) = p.lookup.per_row.div_rem(at);
    let of_row = p.lookup.per_row.value() - column;
    // SAFETY: the caller's contract; rows and elements beyond the last are not accessed.
    unsafe {
        let mut unit = [0; 4];
        let (mut turn, mut column, mut from) = (0, column as i64, 0);
        // Once, or for two rows; one copy of the code for both.
        let turns = opaque(1 + (of_row < per_pack && row + 1 < p.rows) as u32);
        while turn < turns {
            let part = part::<T, WPE>(operands, row + turn, column, &p);
            for word in 0..4 {
                unit[word] = select(T::from_mask(word, from), part[word], unit[word]);
            }
            (turn, column, from) = (turn + 1, -(of_row as i64), of_row as i32);
        }
        // Rows of y follow one another.
        let place = (p.lookup.first as u64 * p.lookup.per_row.value() as u64 + at as u64) as usize;
        let left = p.elements - at;
        y.set_pack_if(left >= per_pack, place, unit);
        if left < per_pack {
            for i in 0..T::PER_PACK {
                y.set_if((i as u32) < left, place + i, T::element(unit, i));
            }
        }
    }
}

/// What row `row` of the launch has from `column` on: a pack's elements, of which those outside of the row are of no
/// meaning. `column` is negative for a row that begins within the pack.
#[inline(always)]
unsafe fn part<T: Float, const WPE: usize>(
    operands: Operands<T>,
    row: u32,
    column: i64,
    p: &Windows,
) -> Pack {
    let number = p.lookup.first + row;
    // SAFETY: the caller's contract; of a token that has no row nothing is read.
    unsafe {
        let token = p.lookup.tokens.read(operands.tokens, number);
        if column <= 0 && !token.valid {
            record(operands.fault, number, token.value);
        }
        let at = if token.valid { token.value * p.lookup.wte_row } else { 0 } + column;
        let of_token = Window::<T>::load(operands.wte, token.valid, at, p.wte_len);
        if const { WPE == 0 } {
            return of_token.cut(operands.wte, p.wte_len);
        }
        let step = p.lookup.step(operands.starts, &token, number);
        let at = p.wpe_first + step * p.lookup.wpe_row + column;
        let of_step = Window::<T>::load(operands.wpe, true, at, p.wpe_len);
        let mut unit = of_token.cut(operands.wte, p.wte_len);
        let position = of_step.cut(operands.wpe, p.wpe_len);
        for pair in 0..const { T::PER_PACK / 2 } {
            let (x, position) = (T::pair(unit, pair), T::pair(position, pair));
            T::set_pair(&mut unit, pair, [x[0] + position[0], x[1] + position[1]]);
        }
        unit
    }
}

/// A pack's elements from anywhere in a table, as the aligned packs that they lie in. The pack that the table ends in, if
/// it is not whole, comes later: few need it.
struct Window<T> {
    low: Pack,
    high: Pack,
    /// The first of the window's elements; the packs begin up to a pack before it.
    at: i64,
    when: bool,
    element: core::marker::PhantomData<T>,
}

impl<T: Float> Window<T> {
    /// Where `when` does not hold, zeros. Elements before the table and behind its `len` are zeros too.
    #[inline(always)]
    unsafe fn load(table: Global<T>, when: bool, at: i64, len: i64) -> Window<T> {
        let (first, per_pack) = (Self::first(at), T::PER_PACK as i64);
        let whole = |first: i64| when && first >= 0 && first + per_pack <= len;
        // SAFETY: the caller's contract: whole packs of the table, which begins with one.
        let [low, high] = unsafe {
            let low = table.get_pack_if(whole(first), first as usize, 0);
            // The same pack again, where the window is one: a load less than a miss.
            let second = first + if at == first { 0 } else { per_pack };
            [low, table.get_pack_if(whole(second), second as usize, 0)]
        };
        Window { low, high, at, when, element: core::marker::PhantomData }
    }

    /// The pack that element `at` lies in.
    #[inline(always)]
    fn first(at: i64) -> i64 {
        at & !(T::PER_PACK as i64 - 1)
    }

    /// The window itself.
    #[inline(always)]
    unsafe fn cut(mut self, table: Global<T>, len: i64) -> Pack {
        let (first, per_pack) = (Self::first(self.at), T::PER_PACK as i64);
        if self.when && first + 2 * per_pack > len {
            // SAFETY: the caller's contract: elements of the table.
            let in_low = first + per_pack > len;
            let rest = unsafe { rest(table, if in_low { first } else { first + per_pack }, len) };
            for word in 0..4 {
                (self.low[word], self.high[word]) =
                    if in_low { (rest[word], self.high[word]) } else { (self.low[word], rest[word]) };
            }
        }
        let bytes = (self.at - first) as u32 * size_of::<T>() as u32;
        shifted::<T>(self.low, self.high, bytes)
    }
}

/// The elements of the pack from `first` on that there are.
#[inline(always)]
unsafe fn rest<T: Float>(table: Global<T>, first: i64, len: i64) -> Pack {
    T::pack_from(|i| {
        let at = first + i as i64;
        // SAFETY: the caller's contract.
        if at >= 0 && at < len { unsafe { table.get(at as usize) } } else { T::from_bits(0) }
    })
}

/// The 16 bytes from byte `bytes` of low and high on; below 16, and a multiple of an element's size.
#[inline(always)]
fn shifted<T: Float>(low: Pack, high: Pack, bytes: u32) -> Pack {
    let ([a, b, c, d], [e, f, g, h]) = (low, high);
    let by_8 = |near: u32, far: u32| if bytes & 8 != 0 { far } else { near };
    let [a, b, c, d, e, f] = [by_8(a, c), by_8(b, d), by_8(c, e), by_8(d, f), by_8(e, g), by_8(f, h)];
    let by_4 = |near: u32, far: u32| if bytes & 4 != 0 { far } else { near };
    let [a, b, c, d, e] = [by_4(a, b), by_4(b, c), by_4(c, d), by_4(d, e), by_4(e, f)];
    if const { T::PER_PACK == 4 } {
        return [a, b, c, d];
    }
    let by_2 = |near: u32, far: u32| funnel_right(near, far, (bytes & 2) * 8);
    [by_2(a, b), by_2(b, c), by_2(c, d), by_2(d, e)]
}
