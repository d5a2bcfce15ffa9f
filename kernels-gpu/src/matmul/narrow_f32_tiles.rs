//! [`narrow_f32()`](fn@narrow_f32): [`narrow()`](fn@super::narrow) of f32, of which the accelerator fetches both operands as they are.
//!
//! Two warps multiply 16 columns of b by all 2·`SUMS` rows of a, with `PRODUCTS` = 3 in as many products of [tf32](super::tf32_parts). Of up to 16 rows memory
//! takes longer than these; of 32 it does not, and with `PRODUCTS` = 1 operands are rounded to tf32, for those who ask for it.
//!
//! Floor: b once at the copy rate.

use super::Product;
use super::clusters::{PAD, Room, WARPS, begin, part_of, share_of};
use super::finish::{Finish, Tensors};
use super::narrow_tiles::NARROW_COLS;
use super::part::LINE_BYTES;
use super::tf32_parts::{Again, add_three, are_finite, nearest};
use cuda_std::bits;
use cuda_std::matrix::multiply_tf32;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile::Tile;
use cuda_std::tma::TensorMap;

/// Columns of b, and rows of a, of a fragment.
const COLS: u32 = 16;
const ROWS: u32 = 8;
/// Warps that multiply: two for each fragment of b, with half of a stage's terms each.
const READERS: u32 = 2 * WARPS;
/// The barrier of all of these; that of the first half's is [`Room::put`]'s.
const ALL: u32 = 2;
/// Elements of a pack.
const PER_PACK: u32 = 4;
/// Packs of a half of a line: of two steps of the tensor cores, of which `ldmatrix` loads a fragment of a at once.
const PACKS: u32 = 4;

/// A lane's words of half a stage.
#[derive(Clone, Copy)]
struct HalfStage<const PRODUCTS: usize, const SUMS: usize> {
    /// Of each step, those of 16 columns of b.
    of_b: [[u32; 4]; 2],
    /// Two for each step of each fragment of a.
    of_a: [u32; SUMS],
}

impl<const PRODUCTS: usize, const SUMS: usize> HalfStage<PRODUCTS, SUMS> {
    /// Of the columns from `col` of the tile on, and the terms from `pack` on.
    ///
    /// # Safety
    /// All lanes call; the tiles have come.
    #[inline(always)]
    #[track_caller]
    unsafe fn load<const B_K: usize>(tile_a: Tile<f32>, tile_b: Tile<f32>, col: u32, pack: u32) -> Self {
        let lane = warp::lane_id();
        let mut half = HalfStage { of_b: [[0; 4]; 2], of_a: [0; SUMS] };
        // SAFETY: within the tiles. Lane 8·i + r names row r of matrix i.
        unsafe {
            for step in 0..2 {
                let pack = pack + step as u32 * 2;
                if const { B_K == 1 } {
                    let place = tile_b.place(col + lane % COLS, pack + lane / COLS);
                    half.of_b[step] = tile_b.load_matrices::<false>(place);
                } else {
                    for i in 0..4 {
                        let (col, term) =
                            (col + lane / 4 + i % 2 * ROWS, (pack + i / 2) * PER_PACK + lane % 4);
                        let place = tile_b.place(term, col / PER_PACK) + col % PER_PACK;
                        half.of_b[step][i as usize] = tile_b.shared().get(place).to_bits();
                    }
                }
            }
            for first in (0..SUMS).step_by(4) {
                let row = first as u32 / 4 * ROWS + lane % ROWS;
                let words = tile_a.load_matrices::<false>(tile_a.place(row, pack + lane / ROWS));
                let of_a = &mut half.of_a;
                [of_a[first], of_a[first + 1], of_a[first + 2], of_a[first + 3]] = words;
            }
        }
        half
    }

    /// Its products. All lanes call.
    #[inline(always)]
    #[track_caller]
    fn multiply(&self) -> [f32; SUMS] {
        let mut sums = [0.0; SUMS];
        for fragment in (0..SUMS).step_by(4) {
            let (mut large, mut small) = ([0.0; 4], [0.0; 4]);
            for step in 0..2 {
                let (of_b, first) = (self.of_b[step], fragment + 2 * step);
                let of_a = [self.of_a[first], self.of_a[first + 1]];
                if const { PRODUCTS == 3 } {
                    add_three(of_b, of_a, &mut large, &mut small);
                } else {
                    let [s, t, u, v] = of_b;
                    let of_b = [nearest(s), nearest(t), nearest(u), nearest(v)];
                    large = multiply_tf32(of_b, [nearest(of_a[0]), nearest(of_a[1])], large);
                }
            }
            for i in 0..4 {
                sums[fragment + i] = if const { PRODUCTS == 3 } { large[i] + small[i] } else { large[i] };
            }
        }
        sums
    }
}

/// Multiplies `turns` stages, and leaves the sums in shared memory.
///
/// # Safety
/// As [`Room::multiply`]; `again` has the operands, of which rows and columns of the tile begin at `first`.
#[inline(always)]
unsafe fn multiply<const PRODUCTS: usize, const SUMS: usize, const STAGES: usize, const B_K: usize>(
    room: Room<STAGES, 1, B_K>,
    turns: u32,
    again: Again,
    first: (u32, u32),
) {
    // Both halves' sums lie where stages were.
    const {
        assert!(
            2 * 2 * SUMS as u32 * (NARROW_COLS + PAD) * 4
                <= STAGES as u32 * (2 * SUMS as u32 + NARROW_COLS) * LINE_BYTES
        )
    };
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let (own, half) = (warp % WARPS, warp / WARPS);
    let mut turn = Turn::<STAGES>::first();
    let mut sums = [0.0f32; SUMS];
    let mut done = 0;
    // SAFETY: a stage is read between the ends of a phase of *full* and of *empty*. A sum is one lane's of each half.
    unsafe {
        while done < turns {
            room.ring.full(turn.stage()).wait(turn.parity());
            let (tile_a, tile_b) = room.tiles::<f32>(turn.stage());
            let words = HalfStage::<PRODUCTS, SUMS>::load::<B_K>(tile_a, tile_b, own * COLS, half * PACKS);
            warp::sync_warp(u32::MAX);
            room.ring.empty(turn.stage()).arrive_if(lane == 0);
            let products = words.multiply();
            for i in 0..SUMS {
                sums[i] += products[i];
            }
            turn = turn.next();
            done += 1;
        }
        // Sums lie where stages were, until those of the first half have been added to those of the second. All are stored: behind a branch of some
        // the compiler would copy the barrier that follows into both arms.
        let place = |i: u32| room.place_of::<true>(own, i);
        let below = |(row, col): (u32, u32), half: u32| room.own((row + half * 2 * SUMS as u32, col));
        thread::sync_named(ALL, READERS * 32);
        for i in 0..SUMS {
            room.sums().set(below(place(i as u32), half), sums[i]);
        }
        thread::sync_named(ALL, READERS * 32);
        if half == 1 {
            return;
        }
        for i in 0..SUMS {
            sums[i] += room.sums().get(below(place(i as u32), 1));
        }
        room.put::<SUMS, true>(&sums);
        if PRODUCTS == 3 && !are_finite(&sums) {
            // Not to be unrolled.
            let (mut next, end) = (0, bits::opaque(SUMS as u32));
            while next < end {
                let (row, col) = place(next);
                again.repair(room.sums(), room.own((row, col)), (first.0 + row, first.1 + col));
                next += 1;
            }
        }
        warp::sync_warp(u32::MAX);
        room.send::<true>();
    }
}

/// Multiplies. a's columns are neighbours in memory, and b's where `B_K` is 1; where it is 0 b's rows are.
///
/// # Safety
/// As [`narrow()`](fn@super::narrow).
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    instances = [
        { PRODUCTS: 3, SUMS: 4, STAGES: 7, B_K: 1; threads: 288, min_blocks: 3 },
        { PRODUCTS: 3, SUMS: 4, STAGES: 7, B_K: 0; threads: 288, min_blocks: 3 },
        { PRODUCTS: 3, SUMS: 4, STAGES: 11, B_K: 1; threads: 288, min_blocks: 2 },
        { PRODUCTS: 3, SUMS: 4, STAGES: 11, B_K: 0; threads: 288, min_blocks: 2 },
        { PRODUCTS: 3, SUMS: 8, STAGES: 6, B_K: 1; threads: 288, min_blocks: 3 },
        { PRODUCTS: 3, SUMS: 8, STAGES: 10, B_K: 1; threads: 288, min_blocks: 2 },
        { PRODUCTS: 3, SUMS: 8, STAGES: 10, B_K: 0; threads: 288, min_blocks: 2 },
        { PRODUCTS: 3, SUMS: 16, STAGES: 8, B_K: 1; threads: 288, min_blocks: 2 },
        { PRODUCTS: 3, SUMS: 16, STAGES: 8, B_K: 0; threads: 288, min_blocks: 2 },
        { PRODUCTS: 1, SUMS: 16, STAGES: 5, B_K: 1; threads: 288, min_blocks: 3 },
        { PRODUCTS: 1, SUMS: 16, STAGES: 5, B_K: 0; threads: 288, min_blocks: 3 },
        { PRODUCTS: 1, SUMS: 16, STAGES: 8, B_K: 1; threads: 288, min_blocks: 2 },
        { PRODUCTS: 1, SUMS: 16, STAGES: 8, B_K: 0; threads: 288, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn narrow_f32<const PRODUCTS: usize, const SUMS: usize, const STAGES: usize, const B_K: usize>(
    map_a: TensorMap,
    map_b: TensorMap,
    a: Global<f32>,
    b: Global<f32>,
    bias: Global<f32>,
    addend: Global<f32>,
    aux: GlobalMut<f32>,
    out: GlobalMut<f32>,
    p: Product,
) {
    let rows = 2 * SUMS as u32;
    // SAFETY: the caller's contract.
    unsafe {
        if p.is_nothing() {
            return;
        }
        let prefetch = || {
            map_a.prefetch();
            map_b.prefetch();
        };
        let (place, k, turns) = part_of::<f32>(&p);
        let first = (place.tile_row * rows, place.tile_col * NARROW_COLS);
        let share = share_of(rows, first.0, p.extents_of_few().0);
        let room = Room::<STAGES, 1, B_K>::new(rows, NARROW_COLS, &p, share, [1, READERS], prefetch);
        begin();
        if warp::warp_id() >= READERS {
            if thread::thread_idx_x() == READERS * 32 {
                room.fill::<f32>([map_a, map_b], first, k, turns, place);
            }
            warp::sync_warp(u32::MAX);
        } else {
            let (a, b) = (a.offset(place.of(p.a)), b.offset(place.of(p.b)));
            let again = Again { a, b, p: &p, terms: p.terms(cluster::rank()) };
            multiply::<PRODUCTS, SUMS, STAGES, B_K>(room, turns, again, first);
        }
        let finish = Finish::new(Tensors { bias, addend, aux, out }, &p.epilogue, place);
        room.finish::<f32, SUMS, true>(finish, first, READERS * 32);
    }
}
