//! The forward pass for rows that packs do not fit: 767 columns, or tables whose rows lie at any distance.
//!
//! A warp has a strip of one row: PACKS packs of y for each lane. Each row of y begins somewhere within a pack, and its source in
//! a table within another, so a pack of y is a window on the table, cut from the two aligned packs that it lies in; by how
//! much is the same for all of a row. What a row has before its first whole pack of y and behind its last, which it shares
//! with its neighbours, goes element by element.
//!
//! Launch: 1-D grid, a warp for each strip; larger results take several launches.

use super::strips::Strips;
use cuda_std::bits::funnel_right;
use cuda_std::prelude::*;

/// Rows of any number of elements from a pack's on.
///
/// # Safety
/// As [`lookup_packs()`](fn@super::lookup_packs), with units of 32·PACKS packs of y, of which a row has one at
/// least: the grid has a warp for each; tables and y
/// begin at multiples of 16 bytes.
#[kernel(
    family = "embedding",
    types = [f32, f16, bf16],
    instances = [{ WPE: 0, PACKS: 1; threads: 128, min_blocks: 12 }, { WPE: 1, PACKS: 1; threads: 128, min_blocks: 8 }],
)]
pub unsafe fn lookup_windows<T: Float, const WPE: usize, const PACKS: usize>(
    tokens: Global<u32>,
    starts: Global<u32>,
    wte: Global<T>,
    wpe: Global<T>,
    y: GlobalMut<T>,
    fault: GlobalMut<u64>,
    p: Strips,
) {
    let (per_pack, lane) = (T::PER_PACK as u32, warp::lane_id());
    // SAFETY: the caller's contract; packs and elements beyond the row are not accessed, and of a token that has no row
    // nothing is read.
    unsafe {
        let Some(strip) = p.strip::<WPE>(tokens, starts) else { return };
        let (y_at, within, token) = (strip.y_at, strip.within, strip.token);
        let head = (y_at as u32).wrapping_neg() & (per_pack - 1);
        let packs = (p.cols - head) / const { T::PER_PACK as u32 };
        let (of_row, of_step) =
            (Source::<T>::new(wte, strip.row_at, p.wte_len), Source::<T>::new(wpe, strip.step_at, p.wpe_len));
        let first = within * warp::SIZE * PACKS as u32 + lane;
        let (mut a, mut b) = ([[[0; 4]; 2]; PACKS], [[[0; 4]; 2]; PACKS]);
        for i in 0..PACKS {
            let pack = first + i as u32 * warp::SIZE;
            let column = head + pack * per_pack;
            a[i] = of_row.load(token.valid && pack < packs, column);
            if const { WPE == 1 } {
                b[i] = of_step.load(pack < packs, column);
            }
        }
        for i in 0..PACKS {
            let pack = first + i as u32 * warp::SIZE;
            let column = head + pack * per_pack;
            let mut unit = of_row.cut(token.valid && pack < packs, column, a[i]);
            if const { WPE == 1 } {
                let position = of_step.cut(pack < packs, column, b[i]);
                for pair in 0..const { T::PER_PACK / 2 } {
                    let (x, position) = (T::pair(unit, pair), T::pair(position, pair));
                    T::set_pair(&mut unit, pair, [x[0] + position[0], x[1] + position[1]]);
                }
            }
            y.set_pack_if(pack < packs, (y_at + column as u64) as usize, unit);
        }
        strip.record(fault);
        if within > 0 {
            return;
        }
        // Fewer than two packs' elements.
        let in_packs = packs * per_pack;
        if lane < p.cols - in_packs {
            let column = if lane < head { lane } else { lane + in_packs };
            let mut value = if token.valid { of_row.element(column) } else { T::from_bits(0) };
            if const { WPE == 1 } {
                value = T::from_f32(value.to_f32() + of_step.element(column).to_f32());
            }
            y.set((y_at + column as u64) as usize, value);
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

    /// The packs that a pack's elements from `column` on lie in; zeros where `when` does not hold. Of the second, zeros too
    /// where the table ends in it or nothing of it is wanted.
    #[inline(always)]
    unsafe fn load(self, when: bool, column: u32) -> [Pack; 2] {
        let ((first, before), per_pack) = (self.pack(column), T::PER_PACK as i64);
        let second = when && before > 0 && first + 2 * per_pack <= self.len;
        // SAFETY: the caller's contract. The elements are the row's, so that the first pack ends before the table does.
        unsafe {
            [
                self.table.get_pack_if(when, first as usize, 0),
                self.table.get_pack_if(second, (first + per_pack) as usize, 0),
            ]
        }
    }

    /// The elements themselves, from what `load` gave.
    #[inline(always)]
    unsafe fn cut(self, when: bool, column: u32, [low, mut high]: [Pack; 2]) -> Pack {
        let ((first, before), per_pack) = (self.pack(column), T::PER_PACK as i64);
        if when && before > 0 && first + 2 * per_pack > self.len {
            // The table's last elements, of which there is no whole pack.
            high = T::pack_from(|i| {
                let at = first + per_pack + i as i64;
                // SAFETY: the caller's contract.
                if at < self.len { unsafe { self.table.get(at as usize) } } else { T::from_bits(0) }
            });
        }
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
