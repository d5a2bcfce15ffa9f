//! The producer of [`pipelined()`](fn@super::pipelined), [`turned()`](fn@super::turned), [`alternating()`](fn@super::alternating) and [`tf32_pipelined()`](fn@super::tf32_pipelined):
//! a thread that fills the stages of a block in turn, with the terms of its tiles and with what lies beside their sums.

use super::Product;
use super::consumer::{CHUNK, CHUNK_BYTES, GROUP_ROWS, PACKS, ROOM_BYTES, chunks_of_slot};
use super::epilogue::flag;
use super::part::{PIPELINED_DEPTH, Part};
use super::place::Place;
use super::ring::Ring;
use cuda_std::dependent;
use cuda_std::ring::Turn;
use cuda_std::thread;
use cuda_std::tile::{self, Tile};
use cuda_std::tma::TensorMap;
use cuda_std::{Float, Global, Half};

/// The stages, and the operands' parts of each.
#[derive(Clone, Copy)]
pub(super) struct Feed<const STAGES: usize, const A_K: usize, const B_K: usize> {
    pub ring: Ring<STAGES>,
    pub part_a: Part<A_K>,
    pub part_b: Part<B_K>,
    /// Terms of a stage.
    pub depth: u32,
}

impl<const STAGES: usize, const A_K: usize, const B_K: usize> Feed<STAGES, A_K, B_K> {
    /// A block's, of 16-bit types, with what it does before the launch ahead of its own is done: it makes the barriers, behind the stages and the rooms of
    /// its consumers in shared memory, for as many of these as read each stage and as another waits for, and asks for lines of b. One thread does `more`
    /// besides.
    ///
    /// # Safety
    /// The launch gives as much. All threads of the block call.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn begin<T: Half>(
        (part_a, part_b): (Part<A_K>, Part<B_K>),
        consumers: u32,
        [readers, awaited]: [u32; 2],
        b: Global<T>,
        p: &Product,
        more: impl FnOnce(),
    ) -> Self {
        let stage_bytes = part_a.bytes() + part_b.bytes();
        // SAFETY: the caller's contract.
        let ring = unsafe {
            let of_barriers = STAGES as u32 * stage_bytes + consumers * ROOM_BYTES;
            Ring::<STAGES>::new(stage_bytes, of_barriers, [readers, awaited], more)
        };
        tile::expect_slabs();
        if p.asks != 0 {
            let place = p.blocks.at(thread::block_idx_x());
            let lines = (place.tile_col * part_b.width, p.epilogue.n);
            part_b.ask(true, b, p.b, lines, p.terms(place.split), place);
        }
        thread::sync_threads();
        dependent::wait();
        dependent::allow_next();
        Feed { ring, part_a, part_b, depth: PIPELINED_DEPTH }
    }

    /// The operands' tiles in a stage.
    ///
    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn tiles<T: Float>(self, stage: u32) -> (Tile<T>, Tile<T>) {
        let offset = self.ring.at(stage);
        // SAFETY: the caller's contract.
        unsafe { (self.part_a.tile(offset), self.part_b.tile(offset + self.part_a.bytes())) }
    }

    /// The first of a tile's terms, and the stages that they take.
    #[inline(always)]
    pub fn terms(self, p: &Product, place: Place) -> (u32, u32) {
        let (first, end) = p.terms(place.split);
        (first, (end - first).div_ceil(self.depth))
    }

    /// Fills the stages of all tiles of the block: of each its terms, and behind these, where `p` says [`flag::BESIDE`], the boxes of `beside`, as many at
    /// a time as fit into a stage, those of each chunk together: of columns, or where sums are `TURNED` of rows.
    ///
    /// # Safety
    /// The maps are of the operands, and of what lies beside the sums, of 16-bit types. One thread calls; others release each stage that they have read.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn run<T: Float, const TURNED: bool>(
        self,
        [map_a, map_b]: [TensorMap; 2],
        beside: Option<TensorMap>,
        p: &Product,
    ) {
        let Feed { ring, part_a, part_b, depth } = self;
        let (rows, cols) = (part_a.width, part_b.width);
        let (of_groups, of_chunks) = if const { TURNED } { (cols, rows) } else { (rows, cols) };
        let groups = of_groups / GROUP_ROWS;
        let lies = beside.is_some() && p.epilogue.flags & flag::BESIDE != 0;
        let boxes = if lies { of_chunks / CHUNK * groups } else { 0 };
        let of_slot = groups * chunks_of_slot(groups, of_chunks / 2);
        let mut turn = Turn::<STAGES>::first();
        let mut index = thread::block_idx_x();
        // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*.
        unsafe {
            // At first the phase before the first one is over.
            let next = |turn: Turn<STAGES>, bytes: u32| {
                let full = ring.full(turn.stage());
                ring.empty(turn.stage()).wait(turn.parity() ^ 1);
                full.arrive_expecting(bytes);
                full
            };
            while index < p.blocks.total {
                let place = p.blocks.at(index);
                let (mut k, turns) = self.terms(p, place);
                let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
                let [inner, outer] = p.epilogue.beside(place);
                let beside_at = |number: u32| {
                    let (chunk, group) = (number / groups * CHUNK, number % groups * GROUP_ROWS);
                    let (down, along) = if const { TURNED } { (chunk, group) } else { (group, chunk) };
                    [(first_col + along) as i32, (first_row + down) as i32, inner, outer]
                };
                let mut fetched = 0;
                let mut left = turns;
                while left > 0 {
                    let full = next(turn, part_a.bytes() + part_b.bytes());
                    let (tile_a, tile_b) = self.tiles::<T>(turn.stage());
                    part_a.load(map_a, tile_a, first_row, k, place, full);
                    part_b.load(map_b, tile_b, first_col, k, place, full);
                    turn = turn.next();
                    // What lies beside the sums comes as far as L2 meanwhile: all blocks want theirs at about the same time.
                    if let Some(map) = beside.filter(|_| fetched < boxes) {
                        map.prefetch_box(beside_at(fetched));
                        fetched += 1;
                    }
                    k += depth;
                    left -= 1;
                }
                if let Some(map) = beside {
                    let mut number = 0;
                    while number < boxes {
                        let rest = boxes - number;
                        let end = number + if rest < of_slot { rest } else { of_slot };
                        let full = next(turn, (end - number) * CHUNK_BYTES);
                        let mut offset = ring.at(turn.stage());
                        while number < end {
                            let tile = Tile::<T>::dynamic_slabs(offset, GROUP_ROWS, PACKS);
                            tile.shared().load_box(0, map, beside_at(number), full);
                            offset += CHUNK_BYTES;
                            number += 1;
                        }
                        turn = turn.next();
                    }
                }
                index += thread::grid_dim_x();
            }
        }
    }
}
