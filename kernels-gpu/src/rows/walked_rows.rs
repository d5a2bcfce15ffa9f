//! Rows one after another, by blocks that stay: what is the same for all rows is read once, and the next rows are on their way
//! to shared memory while one is computed.
//!
//! A block walks every n-th row, n the number of blocks, or every n-th bundle of neighbours; rows of at most 32 threads side by side. A thread has the same columns
//! of every row: the vectors stay in its registers, and so do the sums along columns, of operations that have them. These come
//! as a row of f32 for each block, which `column_sums` adds up: no atomics, and an order that the launch alone determines.
//!
//! Bundles are for rows that end within a line of 128 bytes: one that two blocks write, each a part of it and when it comes to that, may leave
//! L2 in between, and comes back for its other part.
//!
//! Where rows begin at any place of a pack, a block has those that begin at the same: one in 2, 4 or 8, its neighbours the others.
//! A pack is fetched as soon as the one in its place has been done with, so that copies are under way all the time.

use super::columns::{ColumnSums, classes, takes_third};
use super::share::Share;
use super::staged::{Of, Staged};
use super::statistic::Statistic;
use super::{Operands, Params, RowOp, given};
use core::marker::PhantomData;
use cuda_std::async_copy;
use cuda_std::bits::pinned;
use cuda_std::prelude::*;

/// Rows that a block takes side by side.
pub const fn side_by_side(lanes: usize, threads: u32) -> u32 {
    threads / lanes as u32
}

/// Whether a block may walk bundles: with the most packs a thread has no register left for them.
pub const fn bundles(packs: usize) -> bool {
    packs < 8
}

/// Bytes of dynamic shared memory of a block, for so many inputs that are there.
pub const fn walked_shared_bytes([lanes, depth]: [usize; 2], threads: u32, inputs: usize) -> u32 {
    (side_by_side(lanes, threads) as usize * depth * inputs * lanes * 16) as u32
}

/// # Safety
/// The operands match `p`: one dimension of rows, in every input, of at most `LANES·PACKS` packs. With `PACKED` rows are whole
/// aligned packs, and the vectors aligned; else the number of blocks is a multiple of [`classes`]. The launch has
/// [`walked_shared_bytes`]; `sums` a row for each block in as many matrices as the operation has sums.
#[inline(always)]
pub(super) unsafe fn run<
    T: Float,
    Op: RowOp<T>,
    const PACKED: usize,
    const LANES: usize,
    const PACKS: usize,
    const DEPTH: usize,
>(
    operands: &Operands<T>,
    sums_of_columns: GlobalMut<f32>,
    p: &Params,
) {
    // Two inputs to be joined are more bytes to one vector: held in registers, such rows are faster.
    const { assert!(!Op::JOINS) };
    let (thread, lanes, per_pack) = (thread::thread_idx_x(), LANES as u32, T::PER_PACK as u32);
    let (lane, group, side_by_side) = if const { LANES > 32 } {
        (thread, 0, 1)
    } else {
        (thread % lanes, thread / lanes, thread::block_dim_x() / lanes)
    };
    // Rows of a block begin at the same place of a pack.
    let classes = if const { PACKED == 1 } { 1 } else { classes(p.cols, per_pack) };
    let class = thread::block_idx_x() & (classes - 1);
    let log_bundle = if const { bundles(PACKS) } { p.log_bundle } else { 0 };
    let bundle = 1 << log_bundle;
    // The first row of a turn, of those side by side.
    let row_of = |turn: u32| {
        let blocks = (turn >> log_bundle) * thread::grid_dim_x() + thread::block_idx_x() - class;
        (blocks * bundle + (turn & (bundle - 1)) * classes) * side_by_side + class
    };
    let mut sums = ColumnSums::ZERO;
    // SAFETY: a block's threads go round the loop equally often; packs are a thread's own.
    unsafe {
        let last = p.rows - 1;
        let has_all = Op::INPUTS < 3 || p.given & given::THIRD != 0;
        let inputs = if has_all { Op::INPUTS } else { 2 };
        let ring = (inputs * DEPTH * LANES) as u32 * per_pack;
        let from = group * ring + lane * per_pack;
        let ring = Shared::dynamic(from * size_of::<T>() as u32, side_by_side * ring - from);
        let phase = p.phase.wrapping_add(class.wrapping_mul(p.cols));
        let mut share = Share::<T, PACKED, LANES, PACKS, DEPTH>::new(p, lane, p.cols, phase, ring);
        share.clear::<Op>();
        let number_of = |turn: u32| row_of(turn) + group * classes;
        for i in 0..DEPTH {
            let row = number_of((i / PACKS) as u32);
            share.fetch::<Op, 0>(operands, row, i % PACKS, (i * LANES) as u32 * per_pack);
        }
        let mut vectors = share.vectors::<Op>(operands);
        let (mut at, mut turn) = (0, 0);
        let mut known = Op::begin(operands, number_of(0).min(last));
        let mut loose = share.loose::<Op>(operands, number_of(0));
        while row_of(turn) < p.rows {
            let number = number_of(turn);
            let is_there = const { LANES > 32 } || number < p.rows;
            let row = if const { LANES > 32 } { number } else { number.min(last) };
            let next_number = number_of(turn + 1);
            let next = Op::begin(operands, next_number.min(last));
            let next_loose = share.loose::<Op>(operands, next_number);
            vectors = vectors.renewed();
            // What follows from these, a predicate for each pack and the vectors' addresses, is computed again rather than kept in
            // registers all the time.
            (share.lane, share.present) = (pinned(lane), pinned(share.present));
            let mut staged = Staged { share, operands, row, at, loose, vectors };
            let mut mine = Op::Statistic::EMPTY;
            if is_there {
                mine = Op::statistic(known, &Of(&staged, PhantomData::<Op>));
            }
            let statistic = if const { LANES > 32 } {
                mine.over_block::<LANES>(turn & 1)
            } else {
                mine.over_lanes::<LANES>()
            };
            let total = Op::finish(operands, p, staged.row, lane == 0 && is_there, known, statistic);
            // Widened again rather than kept so over the barrier.
            staged.vectors = staged.vectors.renewed();
            (staged.share.lane, staged.share.present, staged.at) =
                (pinned(lane), pinned(share.present), pinned(at));
            vectors = staged.vectors;
            if is_there {
                let ahead = [0, 1].map(|more| number_of(turn + const { (DEPTH / PACKS) as u32 } + more));
                // Twice, so that an input that is not there costs nothing.
                if const { Op::INPUTS == 3 } && (!has_all || !takes_third(Op::SUMS, PACKS, T::PER_PACK)) {
                    staged.results::<Op, 1>(known, total, &mut sums, ahead);
                } else {
                    staged.results::<Op, 0>(known, total, &mut sums, ahead);
                }
            }
            at = share.next_place(at);
            turn += 1;
            (known, loose) = (next, next_loose);
        }
        if const { Op::SUMS > 0 } {
            async_copy::wait::<0>();
            thread::sync_threads();
            for which in 0..Op::SUMS {
                let matrix = which as u64 * thread::grid_dim_x() as u64 + thread::block_idx_x() as u64;
                let row = sums_of_columns.offset((matrix * p.cols as u64) as i64);
                share.write(row, sums.packs[which], sums.loose[which]);
            }
        }
    }
}
