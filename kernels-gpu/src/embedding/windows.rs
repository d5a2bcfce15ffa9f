//! The forward pass for rows that packs do not fit: 767 columns, or tables whose rows lie at any distance.
//!
//! Rows of y follow one another, so that all of y is packs, and threads side by side have packs side by side. A pack of y lies in one
//! row, somewhere in it; then it is a window on a row of the table, cut from the two aligned packs that it lies in. Or it lies in two
//! rows, or is the last and not whole, or the table ends within the second of its two: these go element by element, a lane each.
//!
//! Launch: 1-D grid; launches begin with a pack of y, and have fewer than 2^31 elements.

use super::lookup::added;
use super::strips::Strips;
use super::tokens::{Token, record};
use cuda_std::bits::funnel_right;
use cuda_std::prelude::*;

/// Rows of any number of elements from a pack's on, below 2^31.
///
/// # Safety
/// As [`lookup_packs()`](fn@super::lookup_packs), with elements for units, and a grid that has a thread for each of their packs; tables and y begin at
/// multiples of 16 bytes.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [
        { WPE: 0; threads: 128, min_blocks: 16 },
        { WPE: 1; threads: 128, min_blocks: 12 },
        { WPE: 2; threads: 128, min_blocks: 12 },
    ],
)]
pub unsafe fn lookup_windows<T: Float, const WPE: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Strips,
) {
    let (per_pack, lane) = (const { T::PER_PACK as u32 }, warp::lane_id());
    let number = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    p.lookup.begin(tokens);
    // The launch begins with a pack.
    let y_first = p.lookup.first as u64 * p.cols as u64;
    // SAFETY: the caller's contract; of a token that has no row nothing is read.
    unsafe {
        let near = p.lookup.first_sequence::<WPE>(starts, (number - lane) * per_pack);
        let place = |element: u32| Place::of::<WPE>(&p, tokens, starts, near, element);
        let source = |place: &Place| {
            (Source::<T>::new(wte, place.row_at, p.wte_len), Source::<T>::new(wpe, place.step_at, p.wpe_len))
        };
        let element = number * per_pack;
        let is_there = element < p.lookup.units;
        let of_pack = place(if is_there { element } else { 0 });
        let (of_row, of_step) = source(&of_pack);
        let whole = is_there
            && element + per_pack <= p.lookup.units
            && of_pack.column + per_pack <= p.cols
            && of_row.has_packs(of_pack.column)
            && (const { WPE == added::NOTHING } || of_step.has_packs(of_pack.column));
        if whole {
            of_pack.record(fault);
        }
        let row = of_row.load(const { WPE == added::NOTHING }, whole && of_pack.token.valid, of_pack.column);
        let mut step = [[0; 4]; 2];
        if const { WPE != added::NOTHING } {
            step = of_step.load(true, whole, of_pack.column);
        }
        let mut pack = of_row.cut(of_pack.column, row);
        if const { WPE != added::NOTHING } {
            let position = of_step.cut(of_pack.column, step);
            for pair in 0..const { T::PER_PACK / 2 } {
                let (x, position) = (T::pair(pack, pair), T::pair(position, pair));
                T::set_pair(&mut pack, pair, [x[0] + position[0], x[1] + position[1]]);
            }
        }
        y.set_pack_if(whole, (y_first + element as u64) as usize, pack);
        let mut others = warp::warp_vote_ballot(warp::FULL, !whole);
        while others != 0 {
            let element = (number - lane + others.trailing_zeros()) * per_pack + lane;
            others &= others - 1;
            if lane < per_pack && element < p.lookup.units {
                let place = place(element);
                place.record(fault);
                let (of_row, of_step) = source(&place);
                let valid = place.token.valid;
                let mut value = if valid { of_row.element(place.column) } else { T::from_bits(0) };
                if const { WPE != added::NOTHING } {
                    value = T::from_f32(value.to_f32() + of_step.element(place.column).to_f32());
                }
                y.set((y_first + element as u64) as usize, value);
            }
        }
    }
}

/// Where an element of y comes from.
#[derive(Clone, Copy)]
struct Place {
    column: u32,
    /// Where its row begins in wte (nowhere, for a token that has none) and in wpe.
    row_at: i64,
    step_at: i64,
    number: u32,
    token: Token,
}

impl Place {
    /// # Safety
    /// As [`lookup_packs()`](fn@super::lookup_packs); the launch has the element.
    #[inline(always)]
    unsafe fn of<const WPE: usize>(
        p: &Strips,
        tokens: Global<u32>,
        starts: Global<u32>,
        near: u32,
        element: u32,
    ) -> Place {
        let (row, column) = p.lookup.per_row.div_rem(element);
        let number = p.lookup.first + row;
        // SAFETY: the caller's contract.
        unsafe {
            let token = p.lookup.tokens.read(tokens, number);
            let row_at = if token.valid { token.value * p.lookup.wte_row } else { 0 };
            let mut step_at = 0;
            if const { WPE != added::NOTHING } {
                step_at = p.wpe_first + p.lookup.step::<WPE>(starts, near, &token, number) * p.lookup.wpe_row;
            }
            Place { column, row_at, step_at, number, token }
        }
    }

    /// Records a token that has no row, once for all of the row.
    ///
    /// # Safety
    /// `fault` is one word.
    #[inline(always)]
    unsafe fn record(&self, fault: GlobalMut<u64>) {
        if self.column == 0 && !self.token.valid {
            // SAFETY: the caller's contract.
            unsafe { record(fault, self.number, self.token.value) };
        }
    }
}

/// A row of a table.
#[derive(Clone, Copy)]
struct Source<T> {
    table: Global<T>,
    /// Where the row begins.
    at: i64,
    /// Where the table ends.
    len: i64,
}

impl<T: Float> Source<T> {
    #[inline(always)]
    fn new(table: Global<T>, at: i64, len: i64) -> Source<T> {
        Source { table, at, len }
    }

    /// The aligned pack that `column` lies in, and how many elements of it come before.
    #[inline(always)]
    fn pack(self, column: u32) -> (i64, u32) {
        let at = self.at + column as i64;
        let before = at as u32 & (T::PER_PACK as u32 - 1);
        (at - before as i64, before)
    }

    #[inline(always)]
    unsafe fn element(self, column: u32) -> T {
        // SAFETY: the caller's contract.
        unsafe { self.table.get((self.at + column as i64) as usize) }
    }

    /// Whether the packs that a pack's elements from `column` on lie in are all in the table.
    #[inline(always)]
    fn has_packs(self, column: u32) -> bool {
        let (first, before) = self.pack(column);
        before == 0 || first + 2 * T::PER_PACK as i64 <= self.len
    }

    /// The packs that a pack's elements from `column` on lie in; zeros where `when` does not hold. Of the second, zeros too
    /// where nothing of it is wanted. L2 is asked to keep what is `kept`.
    ///
    /// # Safety
    /// Where `when` holds, the elements are the row's, and [`Self::has_packs`].
    #[inline(always)]
    unsafe fn load(self, kept: bool, when: bool, column: u32) -> [Pack; 2] {
        let ((first, before), per_pack) = (self.pack(column), T::PER_PACK as i64);
        // SAFETY: the caller's contract.
        let pack = |when: bool, at: i64| unsafe {
            if kept {
                self.table.get_pack_if(when, at as usize, 0)
            } else {
                self.table.get_pack_plain_if(when, at as usize, 0)
            }
        };
        [pack(when, first), pack(when && before > 0, first + per_pack)]
    }

    /// The elements themselves, from what `load` gave.
    #[inline(always)]
    fn cut(self, column: u32, [low, high]: [Pack; 2]) -> Pack {
        let (_, before) = self.pack(column);
        shifted::<T>(low, high, before * size_of::<T>() as u32)
    }
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
