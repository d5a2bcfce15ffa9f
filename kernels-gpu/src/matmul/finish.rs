//! What is done with a sum on its way out, in one place for all kernels.

use cuda_std::bits;
use cuda_std::float::fma;
use cuda_std::prelude::*;

use super::Matrix;
use super::activations::Activation;
use super::epilogue::{Epilogue, flag};
use super::place::Place;

/// The tensors.
#[derive(Clone, Copy)]
pub(super) struct Tensors<T> {
    pub bias: Global<T>,
    pub addend: Global<T>,
    pub aux: GlobalMut<T>,
    pub out: GlobalMut<T>,
}

/// Most elements of a pack.
pub(super) const PACK: usize = 8;

/// The epilogue of one product of the batch.
#[derive(Clone, Copy)]
pub(super) struct Finish<T> {
    tensors: Tensors<T>,
    p: Epilogue,
}

impl<T: Float> Finish<T> {
    /// The activation, or its slopes at `aux` times the values.
    #[inline(always)]
    fn activate<const N: usize>(&self, values: [f32; N], aux: [f32; N]) -> [f32; N] {
        if self.has(flag::SLOPE) {
            Activation::<T>::times_slope(self.p.activation, values, aux)
        } else {
            Activation::<T>::apply(self.p.activation, values)
        }
    }

    /// # Safety
    /// The tensors have the matrices of the batch that `place` names.
    #[inline(always)]
    pub unsafe fn new(tensors: Tensors<T>, p: &Epilogue, place: Place) -> Self {
        let out = place.of(p.out) + place.split as i64 * p.split;
        // SAFETY: the caller's contract.
        let tensors = unsafe {
            Tensors {
                bias: tensors.bias,
                addend: tensors.addend.offset(place.of(p.addend)),
                aux: tensors.aux.offset(place.of(p.aux)),
                // An f32 result starts as many f32 further on.
                out: if p.flags & flag::WIDE != 0 {
                    let wide = GlobalMut::<f32>::from_raw(tensors.out.raw()).offset(out);
                    GlobalMut::from_raw(wide.raw())
                } else {
                    tensors.out.offset(out)
                },
            }
        };
        Finish { tensors, p: *p }
    }

    #[inline(always)]
    fn has(&self, flag: u32) -> bool {
        self.p.flags & flag != 0
    }

    /// Where the result has the element.
    #[inline(always)]
    fn at(&self, row: u32, col: u32) -> usize {
        let at = if self.p.heads.are_split() {
            self.p.row_by_heads(row) + self.p.col_by_heads(col)
        } else {
            row as i64 * self.p.out.row + col as i64
        };
        at as usize
    }

    /// The same of every `step`-th row from `row` on: one question for all of them whether there are heads, and without any the places
    /// are evenly spaced.
    #[inline(always)]
    fn places<const N: usize>(&self, row: u32, step: u32, col: u32) -> [usize; N] {
        let mut places = [0; N];
        if self.p.heads.are_split() {
            for i in 0..N {
                places[i] = self.at(row + i as u32 * step, col);
            }
        } else {
            let (first, further) = (row as i64 * self.p.out.row + col as i64, step as i64 * self.p.out.row);
            for i in 0..N {
                places[i] = (first + i as i64 * further) as usize;
            }
        }
        places
    }

    /// Whether results go out in whole packs; if not, they are best finished by [`Self::columns`].
    #[inline(always)]
    pub fn is_packed(&self) -> bool {
        self.has(flag::PACKED)
    }

    /// Whether the result has the element.
    #[inline(always)]
    pub fn is_within(&self, row: u32, col: u32) -> bool {
        row < self.p.m && col < self.p.n
    }

    /// Writes `N` whole packs of results by heads, in 16 bits: of every `step`-th row from `row` on, from `col` on, as far as they are within
    /// the result.
    ///
    /// # Safety
    /// The result is there, and has whole packs alone. One thread takes a pack.
    #[cfg(feature = "matmul_hopper")]
    #[inline(always)]
    pub unsafe fn put_packs<const N: usize>(&self, (row, step): (u32, u32), col: u32, packs: [[u32; 4]; N]) {
        let along = self.p.col_by_heads(col);
        for i in 0..N {
            let row = row + i as u32 * step;
            let at = (self.p.row_by_heads(row) + along) as usize;
            // SAFETY: the caller's contract.
            unsafe { self.tensors.out.set_pack_if(self.is_within(row, col), at, packs[i]) };
        }
    }

    /// Writes 64 results of a row that begins anywhere, in 16 bits, from `col` on, of which each lane has two neighbours, as far as they are
    /// within the result.
    ///
    /// # Safety
    /// The result is there, and not by heads. One warp takes a result; all of its lanes call.
    #[cfg(feature = "matmul_hopper")]
    #[inline(always)]
    pub unsafe fn put_row(&self, row: u32, col: u32, lane: u32, own: u32) {
        let out = self.tensors.out;
        let at = (row as i64 * self.p.out.row + col as i64) as usize;
        let left = if row < self.p.m { self.p.n.saturating_sub(col) } else { 0 };
        let count = if left < 64 { left } else { 64 };
        // Words begin at multiples of four bytes: at the second result, if the first does not.
        let odd = (out.address() / 2 + at as u64) as u32 & 1;
        let next = warp::warp_shuffle_down(u32::MAX, own, 1, 32).0;
        let word = if odd == 1 { own >> 16 | next << 16 } else { own };
        let first = 2 * lane + odd;
        let alone = |word: u32| T::element([word, 0, 0, 0], 0);
        // SAFETY: the caller's contract.
        unsafe {
            out.set_4_if(first + 1 < count, at + first as usize, word);
            out.set_if(first + 1 == count, at + first as usize, alone(word));
            out.set_if(odd == 1 && lane == 0 && count > 0, at, alone(own));
        }
    }

    /// Finishes the pack from (row, col) on from all its `sums`, where it goes out as a whole; else as many elements one by one, of
    /// which `place` gives row and column and `sum` the sum. Where [`Self::is_packed`] these must be the pack's own; otherwise any, so that
    /// neighbouring lanes can have neighbours. What is not within the result is left out, and its sums are not asked for.
    ///
    /// # Safety
    /// The tensors are there as the parameters say. One thread takes an element.
    #[inline(always)]
    pub unsafe fn pack(
        &self,
        row: u32,
        col: u32,
        sums: impl FnOnce() -> [f32; PACK],
        place: impl Fn(u32) -> (u32, u32),
        sum: impl Fn(u32) -> f32,
    ) {
        let (per_pack, m, n) = (T::PER_PACK as u32, self.p.m, self.p.n);
        // SAFETY: the caller's contract; rows are below m and columns below n.
        unsafe {
            if self.is_packed() && col + per_pack <= n {
                if row < m {
                    self.whole(true, row, col, sums());
                }
            } else {
                // Not to be unrolled.
                let (mut next, end) = (0, bits::opaque(per_pack));
                while next < end {
                    let (row, col) = place(next);
                    if self.is_within(row, col) {
                        self.one(row, col, sum(next));
                    }
                    next += 1;
                }
            }
        }
    }

    /// Finishes a whole pack, where there is one.
    ///
    /// # Safety
    /// As [`Self::pack`], of a result that is packed.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub unsafe fn whole(&self, exists: bool, row: u32, col: u32, sums: [f32; PACK]) {
        let (p, t) = (&self.p, &self.tensors);
        let at = |matrix: Matrix| (row as i64 * matrix.row + col as i64) as usize;
        // SAFETY: whole packs within the tensors, by the caller's contract.
        unsafe {
            // All loads before the arithmetic.
            let bias = t.bias.get_pack_if(exists && self.has(flag::BIAS), col as usize, 0);
            let added = t.addend.get_pack_if(exists && self.has(flag::ADDEND), at(p.addend), 0);
            // A kept pre-activation is written, not read.
            let slopes = Global::<T>::from_raw(t.aux.raw());
            let aux = unpack::<T>(slopes.get_pack_if(exists && self.has(flag::SLOPE), at(p.aux), 0));
            let (bias, added) = (unpack::<T>(bias), unpack::<T>(added));
            let mut values = [0.0; PACK];
            for i in 0..T::PER_PACK {
                values[i] = fma(p.alpha, sums[i], bias[i]);
            }
            t.aux.set_pack_if(exists && self.has(flag::KEEP), at(p.aux), pack::<T>(values));
            values = self.activate(values, aux);
            if self.has(flag::ADDEND) {
                for i in 0..T::PER_PACK {
                    values[i] = fma(p.beta, added[i], values[i]);
                }
            }
            if self.has(flag::WIDE) {
                let out = GlobalMut::<f32>::from_raw(t.out.raw());
                out.set_pack_if(exists, self.at(row, col), pack::<f32>(values));
                if const { T::PER_PACK == PACK } {
                    let [_, _, _, _, a, b, c, d] = values.map(f32::to_bits);
                    out.set_pack_if(exists, self.at(row, col) + 4, [a, b, c, d]);
                }
            } else {
                t.out.set_pack_if(exists, self.at(row, col), pack::<T>(values));
            }
        }
    }

    /// Whether there is nothing to do with the sums but alpha: [`Self::bare`] does it.
    #[cfg(feature = "matmul")]
    #[inline(always)]
    pub fn is_bare(&self) -> bool {
        let beside = flag::BIAS | flag::ADDEND | flag::KEEP | flag::SLOPE | flag::WIDE;
        self.p.flags & beside | self.p.activation == 0 && !self.p.heads.are_split()
    }

    /// [`Self::whole`] of what is bare.
    ///
    /// # Safety
    /// As [`Self::whole`].
    #[cfg(feature = "matmul")]
    #[inline(always)]
    pub unsafe fn bare(&self, exists: bool, row: u32, col: u32, sums: [f32; PACK]) {
        let mut values = [0.0; PACK];
        for i in 0..T::PER_PACK {
            values[i] = self.p.alpha * sums[i];
        }
        let at = (row as i64 * self.p.out.row + col as i64) as usize;
        // SAFETY: the caller's contract.
        unsafe { self.tensors.out.set_pack_if(exists, at, pack::<T>(values)) }
    }

    /// [`Self::one`] of what is bare, where there is one.
    ///
    /// # Safety
    /// As [`Self::one`].
    #[cfg(feature = "matmul")]
    #[inline(always)]
    pub unsafe fn bare_one(&self, exists: bool, row: u32, col: u32, sum: f32) {
        let at = (row as i64 * self.p.out.row + col as i64) as usize;
        // SAFETY: the caller's contract.
        unsafe { self.tensors.out.set_if(exists, at, T::from_f32(self.p.alpha * sum)) }
    }

    /// Finishes the sum of (row, col).
    ///
    /// # Safety
    /// As [`Self::pack`]; (row, col) is within the result.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub unsafe fn one(&self, row: u32, col: u32, sum: f32) {
        let (p, t) = (&self.p, &self.tensors);
        let at = |matrix: Matrix| (row as i64 * matrix.row + col as i64 * matrix.col) as usize;
        // SAFETY: the caller's contract.
        unsafe {
            let bias = if self.has(flag::BIAS) { t.bias.get(col as usize).to_f32() } else { 0.0 };
            let aux = if self.has(flag::SLOPE) { t.aux.get(at(p.aux)).to_f32() } else { 0.0 };
            let value = fma(p.alpha, sum, bias);
            if self.has(flag::KEEP) {
                t.aux.set(at(p.aux), T::from_f32(value));
            }
            let [mut value] = self.activate([value], [aux]);
            if self.has(flag::ADDEND) {
                value = fma(p.beta, t.addend.get(at(p.addend)).to_f32(), value);
            }
            if self.has(flag::WIDE) {
                GlobalMut::<f32>::from_raw(t.out.raw()).set(self.at(row, col), value);
            } else {
                t.out.set(self.at(row, col), T::from_f32(value));
            }
        }
    }

    /// Whether rows of tiles are columns of the result.
    #[inline(always)]
    pub fn is_by_columns(&self) -> bool {
        self.has(flag::BY_COLUMNS)
    }

    /// [`Self::one`] of a row and column of tiles of few rows.
    ///
    /// # Safety
    /// As [`Self::one`].
    #[inline(always)]
    pub unsafe fn one_of_few(&self, (row, col): (u32, u32), sum: f32) {
        let (row, col) = if self.is_by_columns() { (col, row) } else { (row, col) };
        // SAFETY: the caller's contract.
        unsafe { self.one(row, col, sum) }
    }

    /// Finishes `N` sums of column `col`, of every `step`-th row from `row` on, as far as they are before row `end` and within the
    /// result: several at once, so that their loads are under way together.
    ///
    /// # Safety
    /// As [`Self::pack`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub unsafe fn column<const N: usize>(&self, (row, step, end): (u32, u32, u32), col: u32, sums: [f32; N]) {
        let (p, t) = (&self.p, &self.tensors);
        if col >= p.n {
            return;
        }
        let end = if end < p.m { end } else { p.m };
        let exists = |i: usize| row + i as u32 * step < end;
        let at = |matrix: Matrix, i: usize| {
            let row = row + i as u32 * step;
            (row as i64 * matrix.row + col as i64 * matrix.col) as usize
        };
        // SAFETY: the caller's contract.
        unsafe {
            let bias = if self.has(flag::BIAS) { t.bias.get(col as usize).to_f32() } else { 0.0 };
            let (mut values, mut aux) = ([0.0; N], [0.0; N]);
            for i in 0..N {
                values[i] = fma(p.alpha, sums[i], bias);
            }
            if self.has(flag::SLOPE) {
                for i in 0..N {
                    aux[i] = if exists(i) { t.aux.get(at(p.aux, i)).to_f32() } else { 0.0 };
                }
            }
            if self.has(flag::KEEP) {
                for i in 0..N {
                    t.aux.set_if(exists(i), at(p.aux, i), T::from_f32(values[i]));
                }
            }
            values = self.activate(values, aux);
            if self.has(flag::ADDEND) {
                let mut added = [0.0; N];
                for i in 0..N {
                    added[i] = if exists(i) { t.addend.get(at(p.addend, i)).to_f32() } else { 0.0 };
                }
                for i in 0..N {
                    values[i] = fma(p.beta, added[i], values[i]);
                }
            }
            let places = self.places::<N>(row, step, col);
            if self.has(flag::WIDE) {
                let out = GlobalMut::<f32>::from_raw(t.out.raw());
                for i in 0..N {
                    out.set_if(exists(i), places[i], values[i]);
                }
            } else {
                for i in 0..N {
                    t.out.set_if(exists(i), places[i], T::from_f32(values[i]));
                }
            }
        }
    }

    /// Finishes `rows`×`cols` sums from (first_row, first_col) on one by one, as far as they are within the result: neighbours of a row by
    /// neighbouring threads, and of each column `N` at a time, so that what is read for them is under way together. `sums` gives those of so
    /// many rows of a column, counted from the first.
    ///
    /// # Safety
    /// As [`Self::pack`]. All `threads` call, each with its number `thread`; one of `threads` and `cols` is a multiple of the other.
    #[inline(always)]
    pub unsafe fn columns<const N: usize>(
        &self,
        (first_row, first_col): (u32, u32),
        (rows, cols): (u32, u32),
        (thread, threads): (u32, u32),
        sums: impl Fn([u32; N], u32) -> [f32; N],
    ) {
        let step = if threads > cols { threads / cols } else { 1 };
        let mut col = thread % cols;
        while col < cols && first_col + col < self.p.n {
            let mut row = thread / cols;
            while row < rows && first_row + row < self.p.m {
                let mut of_rows = [row; N];
                for i in 1..N {
                    let down = row + i as u32 * step;
                    // Beyond the last any will do.
                    if down < rows {
                        of_rows[i] = down;
                    }
                }
                let sums = sums(of_rows, col);
                // SAFETY: the caller's contract.
                unsafe { self.column((first_row + row, step, first_row + rows), first_col + col, sums) };
                row += N as u32 * step;
            }
            col += threads;
        }
    }

    /// Finishes the `rows`×`cols` sums that a block has in shared memory, in rows of `pitch` elements, for the tile
    /// that begins at (first_row, first_col).
    ///
    /// # Safety
    /// As [`Self::columns`]; all `threads` threads of the block call, and the sums have been synchronised.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn tile(
        &self,
        sums: Shared<f32>,
        pitch: u32,
        (rows, cols): (u32, u32),
        (first_row, first_col): (u32, u32),
        threads: u32,
    ) {
        let per_pack = T::PER_PACK as u32;
        let packs = cols / per_pack;
        let thread = thread::thread_idx_x();
        // Not to be unrolled.
        let rows = bits::opaque(rows);
        // SAFETY: within the sums; the rest is the caller's contract.
        unsafe {
            if self.is_packed() {
                let (mut row, col) = (thread / packs, thread % packs * per_pack);
                while row < rows {
                    let at = row * pitch + col;
                    let all = || {
                        let [a, b, c, d] = sums.get_pack(at);
                        let wide = const { T::PER_PACK == PACK };
                        let [e, f, g, h] = if wide { sums.get_pack(at + 4) } else { [0; 4] };
                        [a, b, c, d, e, f, g, h].map(f32::from_bits)
                    };
                    let place = |i: u32| (first_row + row, first_col + col + i);
                    self.pack(first_row + row, first_col + col, all, place, |i| sums.get(at + i));
                    row += threads / packs;
                }
            } else {
                let of_rows = |rows: [u32; 4], col: u32| {
                    let mut column = [0.0; 4];
                    for i in 0..4 {
                        column[i] = sums.get(rows[i] * pitch + col);
                    }
                    column
                };
                self.columns((first_row, first_col), (rows, cols), (thread, threads), of_rows);
            }
        }
    }
}

#[inline(always)]
pub(super) fn unpack<T: Float>(pack: Pack) -> [f32; PACK] {
    let mut values = [0.0; PACK];
    for i in 0..T::PER_PACK / 2 {
        [values[2 * i], values[2 * i + 1]] = T::pair(pack, i);
    }
    values
}

#[inline(always)]
pub(super) fn pack<T: Float>(values: [f32; PACK]) -> Pack {
    let mut pack = [0; 4];
    for i in 0..T::PER_PACK / 2 {
        T::set_pair(&mut pack, i, [values[2 * i], values[2 * i + 1]]);
    }
    pack
}
