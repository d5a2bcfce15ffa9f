//! Products of few rows, as decoding has them: b is read once, straight into registers.
//!
//! The product is turned: rows of b are those of the tensor cores' first operand, 16 to a group, and rows of a the
//! columns of the second, so that up to 8 or 16 rows of a cost one or two `mma.sync`. The order of terms is free as
//! long as both operands have the same, so that a lane's 16 bytes of a row are fragments as they are, and nothing
//! goes through shared memory. The warps of a block take turns along k; what they have is added up in their order. f32 is multiplied in three products
//! of [tf32](super::tf32_parts), six `mma.sync` for a pack instead of two.
//!
//! A multiprocessor has registers for two blocks of a group. Where one launch follows another, as in decoding, that evens out where blocks
//! come to lie, and those of the launch behind let the lines that they begin with come while the ones ahead still read. A block of two
//! groups reads a half as often, and is the only one: for a with 16 rows, where blocks fill their waves.
//!
//! As many loads in flight as registers hold are too many: with those of six steps instead of eight a product of 4096 terms takes 8 % less
//! (H100). Fewer still are better for few terms, where the others load nothing, and for very many.
//!
//! f32 takes more registers for its parts: blocks of two for a multiprocessor have three or four steps' loads in flight, those that are alone eight.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks) with a column of tiles of `GROUPS`·[`THIN_COLS`] columns for each block, of one part of k. It may be early.
//!
//! Of few columns and many rows operands change places: what is read once is a then, and rows of tiles are columns of the result.
//!
//! Floor: b once at the copy rate.

use super::Product;
use super::finish::{Finish, Tensors};
use super::tf32_parts::{Again, add_three, are_finite};
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Columns of the result of a group, of which a block computes some.
pub const THIN_COLS: u32 = 16;
/// Rows of a fragment of a.
pub const THIN_ROWS: u32 = 8;
/// Warps of a block.
const WARPS: u32 = 8;
/// Lanes that have packs of a row, one each, in a warp's step.
pub(super) const LANES: u32 = 4;
/// Bytes of a row in a step of all warps of a block.
pub const THIN_STEP_BYTES: u32 = WARPS * LANES * 16;
/// Bytes of a line of L2.
const LINE: u32 = 128;
/// Lines of each row of b that a block of so many groups lets come to L2 ahead of time: 48 or 64 KB for a multiprocessor's columns
/// (24 where a block of f32 is alone).
/// More of them keep the launch ahead waiting, and evict one another.
const fn lines_ahead(groups: usize) -> u32 {
    if groups == 1 { 12 } else { 16 }
}

/// Elements of which packs are fragments as they are.
pub trait OfPacks: Float {
    /// `sums` and the products of the packs of two rows of b, eight apart, and one of a. All 32 lanes must call.
    #[track_caller]
    fn add_products(sums: [f32; 4], of_b: [Pack; 2], of_a: Pack) -> [f32; 4];

    /// The sum of so many terms of a row and a column, of which the tensor cores give `sum`.
    ///
    /// # Safety
    /// The operands have the matrices of `p`, which have them.
    #[inline(always)]
    #[track_caller]
    unsafe fn mended(
        sum: f32,
        _of: [Global<Self>; 2],
        _p: &Product,
        _terms: (u32, u32),
        _place: (u32, u32),
    ) -> f32 {
        sum
    }

    /// Whether some of the sums are to be mended.
    #[inline(always)]
    fn want_mending<const N: usize>(_sums: &[f32; N]) -> bool {
        false
    }
}

macro_rules! of_halves {
    ($($half:ty),*) => {$(
        impl OfPacks for $half {
            #[inline(always)]
            #[track_caller]
            fn add_products(sums: [f32; 4], [upper, lower]: [Pack; 2], [s, t, u, v]: Pack) -> [f32; 4] {
                let first = [upper[0], lower[0], upper[1], lower[1]];
                let second = [upper[2], lower[2], upper[3], lower[3]];
                Self::multiply(second, [u, v], Self::multiply(first, [s, t], sums))
            }
        }
    )*};
}
of_halves!(f16, bf16);

impl OfPacks for f32 {
    #[inline(always)]
    #[track_caller]
    fn add_products(sums: [f32; 4], [upper, lower]: [Pack; 2], of_a: Pack) -> [f32; 4] {
        let (mut large, mut small) = ([0.0; 4], [0.0; 4]);
        for step in 0..2 {
            let (first, second) = (2 * step, 2 * step + 1);
            let of_b = [upper[first], lower[first], upper[second], lower[second]];
            add_three(of_b, [of_a[first], of_a[second]], &mut large, &mut small);
        }
        let mut all = sums;
        for i in 0..4 {
            all[i] += large[i] + small[i];
        }
        all
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn mended(
        sum: f32,
        [a, b]: [Global<f32>; 2],
        p: &Product,
        terms: (u32, u32),
        place: (u32, u32),
    ) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { Again { a, b, p, terms }.mended(sum, place) }
    }

    #[inline(always)]
    fn want_mending<const N: usize>(sums: &[f32; N]) -> bool {
        !are_finite(sums)
    }
}

/// Multiplies by blocks of so many `GROUPS`. m is at most `FRAGMENTS`·8. The loads of `DEPTH` steps are in flight.
///
/// # Safety
/// The tensors have the matrices of `p`; rows of both operands start at multiples of 16 bytes and are whole packs;
/// the grid is `p.blocks`'.
#[kernel(
    family = "matmul",
    types = [f16, bf16],
    instances = [
        { FRAGMENTS: 1, GROUPS: 1, DEPTH: 3; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 1, GROUPS: 1, DEPTH: 6; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 1, GROUPS: 1, DEPTH: 8; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, GROUPS: 1, DEPTH: 3; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, GROUPS: 1, DEPTH: 4; threads: 256, min_blocks: 2 },
        { FRAGMENTS: 2, GROUPS: 2, DEPTH: 8; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn thin<T: OfPacks, const FRAGMENTS: usize, const GROUPS: usize, const DEPTH: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, FRAGMENTS, GROUPS, DEPTH>([a, b], Tensors { bias, addend, aux, out }, &p) }
}

/// The same of f32, by blocks of one group. m is at most 8.
///
/// # Safety
/// As [`thin()`](fn@thin).
#[kernel(
    family = "matmul",
    instances = [
        { DEPTH: 3; threads: 256, min_blocks: 2 },
        { DEPTH: 4; threads: 256, min_blocks: 2 },
        { DEPTH: 8; threads: 256, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn thin_f32<const DEPTH: usize>(
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<f32, 1, 1, DEPTH>([a, b], Tensors { bias, addend, aux, out }, &p) }
}

/// All of the kernel.
///
/// # Safety
/// As [`thin()`](fn@thin).
#[inline(always)]
unsafe fn run<T: OfPacks, const FRAGMENTS: usize, const GROUPS: usize, const DEPTH: usize>(
    [a, b]: [Global<T>; 2],
    tensors: Tensors<T>,
    p: &Product,
) {
    let place = p.blocks.place();
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let (row, turn) = (lane / 4, lane % 4);
    let cols = GROUPS as u32 * THIN_COLS;
    let first_col = place.tile_col * cols;
    let ((m, n), (first_term, k)) = (p.extents_of_few(), p.terms(place.split));
    let mut sums = [[[0.0f32; 4]; FRAGMENTS]; GROUPS];
    // SAFETY: the caller's contract; rows are below their number and packs within a row by the predicates.
    unsafe {
        let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
        let (col, first_line) = (first_col + thread::thread_idx_x() % cols, thread::thread_idx_x() / cols);
        let (lines, of_thread) = (const { lines_ahead(GROUPS) }, WARPS * 32 / cols);
        for i in 0..lines.div_ceil(of_thread) {
            let line = first_line + i * of_thread;
            let term = first_term + line * (LINE / size_of::<T>() as u32);
            let exists = line < lines && col < n && term < k;
            b.prefetch_if(exists, (col as i64 * p.b.row + term as i64) as usize);
        }
        dependent::begin();
        let pack = |of: Global<T>, stride: i64, row: u32, rows: u32, term: u32| {
            let at = row as i64 * stride + term as i64;
            of.get_pack_if(row < rows && term < k, at as usize, 0)
        };
        let terms = LANES * T::PER_PACK as u32;
        let mut term = first_term + warp * terms + turn * T::PER_PACK as u32;
        while term < k + turn * T::PER_PACK as u32 {
            let mut of_b = [[[[0; 4]; 2]; GROUPS]; DEPTH];
            let mut of_a = [[[0; 4]; FRAGMENTS]; DEPTH];
            for i in 0..DEPTH {
                let term = term + i as u32 * WARPS * terms;
                for group in 0..GROUPS {
                    for half in 0..2 {
                        let col = first_col + group as u32 * THIN_COLS + half as u32 * 8 + row;
                        of_b[i][group][half] = pack(b, p.b.row, col, n, term);
                    }
                }
                for f in 0..FRAGMENTS {
                    of_a[i][f] = pack(a, p.a.row, f as u32 * THIN_ROWS + row, m, term);
                }
            }
            for i in 0..DEPTH {
                for group in 0..GROUPS {
                    for f in 0..FRAGMENTS {
                        sums[group][f] = T::add_products(sums[group][f], of_b[i][group], of_a[i][f]);
                    }
                }
            }
            term += DEPTH as u32 * WARPS * terms;
        }
        // Sums of a warp: [rows of a][columns].
        let of_warps = if const { GROUPS == 1 } {
            shared_array!(matmul_thin_sums: [f32; 2048])
        } else {
            shared_array!(matmul_thin_sums_of_two: [f32; 4096])
        };
        let rows = FRAGMENTS as u32 * THIN_ROWS;
        // Of four pairs of rows, which a warp of two groups stores at once, each in banks of its own; narrow blocks gain nothing.
        let slot = |warp: u32, down: u32, across: u32| {
            let apart = if const { GROUPS == 1 } { 0 } else { down / 2 % 4 * 8 };
            ((warp * rows + down) * cols + across) ^ apart
        };
        for group in 0..GROUPS {
            for f in 0..FRAGMENTS {
                for i in 0..4 {
                    let down = f as u32 * THIN_ROWS + turn * 2 + (i % 2) as u32;
                    let across = group as u32 * THIN_COLS + row + (i / 2) as u32 * 8;
                    of_warps.set(slot(warp, down, across), sums[group][f][i]);
                }
            }
        }
        thread::sync_threads();
        let finish = Finish::new(tensors, &p.epilogue, place);
        // Neighbours in the result by neighbouring threads.
        let by_columns = finish.is_by_columns();
        let mut next = thread::thread_idx_x();
        while next < rows * cols {
            let (down, across) =
                if by_columns { (next % rows, next / rows) } else { (next / cols, next % cols) };
            if down < m && first_col + across < n {
                let mut total = 0.0;
                for warp in 0..WARPS {
                    total += of_warps.get(slot(warp, down, across));
                }
                let place = (down, first_col + across);
                finish.one_of_few(place, T::mended(total, [a, b], p, (first_term, k), place));
            }
            next += WARPS * 32;
        }
    }
}
