//! Products of small matrices, and of few terms: each warp multiplies tiles of 32 columns by itself, from registers into memory.
//!
//! A small matrix has no work for a block, and one of few terms none for a pipeline of stages: what takes time is the launch of blocks, their filling and
//! their ends. Here packs of both operands are fragments of the tensor cores as they are, since the order of terms is free as long as both have the same. So
//! is the order of lines: a lane has neighbouring rows of the first operand, and those of the second of which the sums come to be packs of the result.
//! Nothing goes through shared memory, nobody waits for another warp, and blocks stay for as many tiles as it takes.
//!
//! Operands that are not of whole packs along k are [read as they lie](super::small_reads), and nothing is copied first; what is read comes from L1 after
//! the first of a sector. Where the result is not of whole packs it goes by way of shared memory of the warp's own, so that neighbours are stored by
//! neighbouring lanes.
//!
//! It has no GELU, no slopes and no f32 results of 16-bit operands, which leaves it registers for two blocks of a multiprocessor.
//!
//! Launch: 1-D grid of [`Blocks`](super::Blocks) that stay, [`SMALL_WARPS`] tiles to a block at a time. It may be early.
//!
//! Floor: both operands and the result once at the copy rate.

use super::Product;
use super::epilogue::Epilogue;
use super::few_rows::{LANES, OfPacks};
use super::finish::{Finish, PACK, Tensors};
use super::place::Place;
use super::small_reads::{Kind, Operand};
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Columns of a tile.
pub const SMALL_COLS: u32 = 32;
/// Rows of a tile for each of `HEIGHT`.
pub const SMALL_ROWS: u32 = 16;
/// Bytes of a row in a step.
pub const SMALL_STEP_BYTES: u32 = LANES * 16;
/// Warps of a block.
pub const SMALL_WARPS: u32 = 8;

/// Groups of eight columns.
const GROUPS: usize = 4;
/// Elements from row to row of sums in shared memory, in different banks.
const PITCH: u32 = SMALL_COLS + 1;

/// Multiplies. `PACKED` is 1 where both operands are read in packs, 0 where as they lie.
///
/// # Safety
/// The tensors have the matrices of `p`; rows of both operands start at multiples of 16 bytes and are whole packs along k, unless they are read as they lie;
/// the epilogue has no GELU, no slopes and no f32 results of 16-bit operands; the grid is `p.blocks`'.
#[kernel(
    family = "matmul",
    types = [f16, bf16],
    instances = [
        { HEIGHT: 1, PACKED: 1; threads: 256, min_blocks: 2 },
        { HEIGHT: 2, PACKED: 1; threads: 256, min_blocks: 2 },
        { HEIGHT: 1, PACKED: 0; threads: 256, min_blocks: 2 },
        { HEIGHT: 2, PACKED: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn small<T: OfPacks, const HEIGHT: usize, const PACKED: usize>(
    a: Global<T>,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<T, HEIGHT, PACKED>([a, b], Tensors { bias, addend, aux, out }, &p) }
}

/// The same of f32, whose parts leave registers for half as many rows.
///
/// # Safety
/// As [`small()`](fn@small).
#[kernel(
    family = "matmul",
    instances = [
        { PACKED: 1; threads: 256, min_blocks: 2 },
        { PACKED: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn small_f32<const PACKED: usize>(
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    // SAFETY: the caller's contract.
    unsafe { run::<f32, 1, PACKED>([a, b], Tensors { bias, addend, aux, out }, &p) }
}

/// All of the kernel.
///
/// # Safety
/// As [`small()`](fn@small).
#[inline(always)]
unsafe fn run<T: OfPacks, const HEIGHT: usize, const PACKED: usize>(
    [a, b]: [Global<T>; 2],
    tensors: Tensors<T>,
    p: &Product,
) {
    let rooms = shared_array!(matmul_small_sums: [f32; 8512]);
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let kind = |of, matrix, lines, run| {
        if const { PACKED == 1 } { Kind::Packs } else { Kind::of::<T>(of, matrix, lines, p.k, run) }
    };
    let kind_a = kind(a, p.a, p.epilogue.m, 2);
    let kind_b = kind(b, p.b, p.epilogue.n, T::PER_PACK as u32 / 2);
    dependent::begin();
    let mut index = thread::block_idx_x() * SMALL_WARPS + warp;
    while index < p.blocks.total {
        let place = p.blocks.at(index);
        // Pinned, so that what follows from these takes no registers from tile to tile.
        let (warp, flags) = (bits::pinned(warp), bits::pinned(p.epilogue.flags));
        let tile = Tile::<HEIGHT> { place, lane, from: warp * Tile::<HEIGHT>::ROOM };
        let epilogue = Epilogue { flags, ..p.epilogue }.simple();
        // SAFETY: the caller's contract; what is read is within the operands by the predicates.
        unsafe {
            let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
            let of_a = Operand { of: a, matrix: p.a, lines: epilogue.m, k: p.k, kind: kind_a };
            let of_b = Operand { of: b, matrix: p.b, lines: epilogue.n, k: p.k, kind: kind_b };
            let mut sums = tile.multiply::<T>(of_a, of_b);
            let mut wanted = false;
            for down in 0..HEIGHT {
                for group in 0..GROUPS {
                    wanted |= T::want_mending(&sums[down][group]);
                }
            }
            if wanted {
                tile.mend(&mut sums, rooms, [a, b], p);
            }
            let finish = Finish::new(tensors, &epilogue, place);
            if finish.is_packed() && epilogue.n.is_multiple_of(T::PER_PACK as u32) {
                tile.store(finish, &sums);
            } else {
                tile.spread(finish, &sums, rooms);
            }
        }
        index += p.blocks.blocks * SMALL_WARPS;
    }
}

/// A lane's sums: of two rows of each 16, and of two columns of each group.
type Sums<const HEIGHT: usize> = [[[f32; 4]; GROUPS]; HEIGHT];

/// A warp's tile, and a lane of it.
#[derive(Clone, Copy)]
struct Tile<const HEIGHT: usize> {
    place: Place,
    lane: u32,
    /// Where sums of the warp lie in shared memory.
    from: u32,
}

impl<const HEIGHT: usize> Tile<HEIGHT> {
    const ROWS: u32 = HEIGHT as u32 * SMALL_ROWS;
    /// Rows that a lane has sums of.
    const OWN: u32 = 2 * HEIGHT as u32;
    /// Elements of its sums in shared memory.
    const ROOM: u32 = Self::ROWS * PITCH + Self::ROWS / Self::OWN;

    /// Where it begins.
    #[inline(always)]
    fn first(self) -> (u32, u32) {
        (self.place.tile_row * Self::ROWS, self.place.tile_col * SMALL_COLS)
    }

    /// The row of sum `i` of number `down`, within the tile: a lane's are neighbours.
    #[inline(always)]
    fn row(self, down: usize, i: usize) -> u32 {
        self.lane / LANES * Self::OWN + (2 * down + i / 2) as u32
    }

    /// Column `at` of a group, within the tile. It is of a lane that reads the same of all groups that make a pack of the result, which are neighbours; the
    /// sums of two such columns are the pack.
    #[inline(always)]
    fn col<T: Float>(group: usize, at: u32) -> u32 {
        let run = T::PER_PACK / 2;
        ((group / run) * run * 8 + group % run) as u32 + at * run as u32
    }

    /// # Safety
    /// As [`small()`](fn@small).
    #[inline(always)]
    unsafe fn multiply<T: OfPacks>(self, a: Operand<T>, b: Operand<T>) -> Sums<HEIGHT> {
        let (first_row, first_col) = self.first();
        let mut sums = [[[0.0f32; 4]; GROUPS]; HEIGHT];
        let mut first = 0;
        while first < a.k {
            let term = first + self.lane % LANES * T::PER_PACK as u32;
            let (mut of_a, mut of_b) = ([[[0; 4]; 2]; HEIGHT], [[0; 4]; GROUPS]);
            // SAFETY: the caller's contract.
            unsafe {
                let col = |group: usize| first_col + Self::col::<T>(group, self.lane / LANES);
                if const { T::PER_PACK == 8 } {
                    of_b = b.packs::<GROUPS>(col(0), term);
                } else {
                    [of_b[0], of_b[1]] = b.packs::<2>(col(0), term);
                    [of_b[2], of_b[3]] = b.packs::<2>(col(2), term);
                }
                for down in 0..HEIGHT {
                    of_a[down] = a.packs::<2>(first_row + self.row(down, 0), term);
                }
            }
            for down in 0..HEIGHT {
                for group in 0..GROUPS {
                    sums[down][group] = T::add_products(sums[down][group], of_a[down], of_b[group]);
                }
            }
            first += LANES * T::PER_PACK as u32;
        }
        sums
    }

    /// Where a sum lies in shared memory: what lanes store at once in banks of its own, one further for each that has other rows.
    #[inline(always)]
    fn slot(self, row: u32, col: u32) -> u32 {
        self.from + row * PITCH + row / Self::OWN + col
    }

    /// That of sum `i` of a group.
    #[inline(always)]
    fn slot_of<T: Float>(self, down: usize, group: usize, i: usize) -> u32 {
        let col = Self::col::<T>(group, self.lane % LANES * 2 + (i % 2) as u32);
        self.slot(self.row(down, i), col)
    }

    /// Leaves the lane's sums there.
    ///
    /// # Safety
    /// The memory is the warp's, and nobody reads it.
    #[inline(always)]
    unsafe fn leave<T: Float>(self, sums: &Sums<HEIGHT>, rooms: Shared<f32>) {
        for down in 0..HEIGHT {
            for group in 0..GROUPS {
                for i in 0..4 {
                    // SAFETY: the caller's contract.
                    unsafe { rooms.set(self.slot_of::<T>(down, group, i), sums[down][group][i]) };
                }
            }
        }
    }

    /// Mends those of the lane's sums that want it, by way of shared memory, since registers are told apart by constants alone.
    ///
    /// # Safety
    /// As [`Self::leave`] and [`Self::multiply`].
    #[inline(always)]
    unsafe fn mend<T: OfPacks>(
        self,
        sums: &mut Sums<HEIGHT>,
        rooms: Shared<f32>,
        operands: [Global<T>; 2],
        p: &Product,
    ) {
        let (first_row, first_col) = self.first();
        // SAFETY: the caller's contract; a sum is the lane's own.
        unsafe {
            self.leave::<T>(sums, rooms);
            // Not to be unrolled.
            let (mut next, end) = (0, bits::opaque((HEIGHT * GROUPS * 4) as u32) as usize);
            while next < end {
                let (down, group, i) = (next / (4 * GROUPS), next / 4 % GROUPS, next % 4);
                let col = Self::col::<T>(group, self.lane % LANES * 2 + (i % 2) as u32);
                let (row, col) = (first_row + self.row(down, i), first_col + col);
                if row < p.epilogue.m && col < p.epilogue.n {
                    let at = self.slot_of::<T>(down, group, i);
                    rooms.set(at, T::mended(rooms.get(at), operands, p, (0, p.k), (row, col)));
                }
                next += 1;
            }
            for down in 0..HEIGHT {
                for group in 0..GROUPS {
                    for i in 0..4 {
                        sums[down][group][i] = rooms.get(self.slot_of::<T>(down, group, i));
                    }
                }
            }
        }
    }

    /// Finishes the sums in packs, of which each lane has some.
    ///
    /// # Safety
    /// As [`Finish::pack`]; the result is packed, and its rows are whole packs.
    #[inline(always)]
    unsafe fn store<T: Float>(self, finish: Finish<T>, sums: &Sums<HEIGHT>) {
        if finish.is_bare() {
            self.packs::<T>(sums, |row, col, pack| {
                // SAFETY: the caller's contract.
                unsafe { finish.bare(finish.is_within(row, col), row, col, pack) }
            });
        } else {
            self.packs::<T>(sums, |row, col, pack| {
                // SAFETY: as above.
                unsafe { finish.whole(finish.is_within(row, col), row, col, pack) }
            });
        }
    }

    /// Each pack of sums of the lane, with the row and the column where it begins.
    #[inline(always)]
    fn packs<T: Float>(self, sums: &Sums<HEIGHT>, each: impl Fn(u32, u32, [f32; PACK])) {
        let (run, (first_row, first_col)) = (T::PER_PACK / 2, self.first());
        for down in 0..HEIGHT {
            for half in 0..2 {
                for first in (0..GROUPS).step_by(run) {
                    let mut pack = [0.0; PACK];
                    for i in 0..T::PER_PACK {
                        pack[i] = sums[down][first + i % run][half * 2 + i / run];
                    }
                    let col = Self::col::<T>(first, self.lane % LANES * 2);
                    each(first_row + self.row(down, half * 2), first_col + col, pack);
                }
            }
        }
    }

    /// Finishes the sums one by one, by way of the warp's shared memory.
    ///
    /// # Safety
    /// As [`Finish::columns`]; nobody else uses that memory. All lanes call.
    #[inline(always)]
    unsafe fn spread<T: Float>(self, finish: Finish<T>, sums: &Sums<HEIGHT>, rooms: Shared<f32>) {
        let ((first_row, first_col), rows) = (self.first(), bits::opaque(Self::ROWS));
        // SAFETY: the caller's contract; all lanes have written before any reads, and read before any goes on.
        unsafe {
            self.leave::<T>(sums, rooms);
            warp::sync_warp(u32::MAX);
            if finish.is_bare() {
                let mut row = 0;
                while row < rows {
                    // Some at a time.
                    for i in 0..4 {
                        let (down, col) = (first_row + row + i, first_col + self.lane);
                        let sum = rooms.get(self.slot(row + i, self.lane));
                        finish.bare_one(finish.is_within(down, col), down, col, sum);
                    }
                    row += 4;
                }
            } else {
                let sums = |rows: [u32; 4], col: u32| {
                    let mut column = [0.0; 4];
                    for i in 0..4 {
                        column[i] = rooms.get(self.slot(rows[i], col));
                    }
                    column
                };
                finish.columns((first_row, first_col), (rows, SMALL_COLS), (self.lane, 32), sums);
            }
            warp::sync_warp(u32::MAX);
        }
    }
}
