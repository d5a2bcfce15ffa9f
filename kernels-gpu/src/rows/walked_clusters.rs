//! Rows walked by clusters that stay (sm_90a): as by blocks, but each block of a cluster has a slice of every row.
//!
//! So a thread has half of the sums of columns, or a quarter, which leave registers for the vectors; what the blocks tell one
//! another is a row's statistic. It is taken, and announced, before the results of the row in front of it, so that it has come when it
//! is needed: the ring holds both rows, and what is on its way.

use super::columns::ColumnSums;
use super::rounds::Rounds;
use super::share::Share;
use super::staged::{Of, Staged};
use super::{Operands, Params, RowOp};
use core::marker::PhantomData;
use cuda_std::async_copy;
use cuda_std::bits::pinned;
use cuda_std::prelude::*;

/// Packs that lie in one line of the cache: slices begin at lines.
const LINE: u32 = 8;

/// # Safety
/// The operands match `p`: one dimension of rows, in every input, of whole aligned packs, at most `LANES·PACKS` for each block of
/// a cluster; the vectors are aligned. The launch has [`walked_shared_bytes`](super::walked_shared_bytes), and clusters of 2 or
/// [`MOST_WALKING`](super::MOST_WALKING) blocks; `sums` a row for each cluster in as many matrices as the operation has sums.
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
    const { assert!(!Op::JOINS && PACKED == 2 && DEPTH.is_multiple_of(PACKS) && DEPTH >= 2 * PACKS) };
    let (thread, clusters, per_pack) = (thread::thread_idx_x(), cluster::count(), T::PER_PACK as u32);
    let mut row = cluster::index();
    // A slice for each block, of whole lines; sizes of clusters are powers of two.
    let packs = p.cols / per_pack;
    let size = cluster::size();
    let slice = ((packs + size - 1) >> size.trailing_zeros()).next_multiple_of(LINE);
    let first = cluster::rank() * slice;
    let end = (first + slice).min(packs) * per_pack;
    let mut sums = ColumnSums::ZERO;
    // SAFETY: a cluster's threads go round the loop equally often; packs are a thread's own.
    unsafe {
        let rounds = Rounds::<LANES>::begin();
        let inputs = if Op::INPUTS < 3 || p.given & super::given::THIRD != 0 { Op::INPUTS } else { 2 };
        let (ring, from) = ((inputs * DEPTH * LANES) as u32 * per_pack, thread * per_pack);
        let ring = Shared::dynamic(from * size_of::<T>() as u32, ring - from);
        let lane = first + thread;
        let mut share = Share::<T, PACKED, LANES, PACKS, DEPTH>::new(p, lane, end, 0, ring);
        share.clear::<Op>();
        for i in 0..DEPTH {
            let row = row + (i / PACKS) as u32 * clusters;
            share.fetch::<Op, 0>(operands, row, i % PACKS, (i * LANES) as u32 * per_pack);
        }
        let last = p.rows - 1;
        let mut vectors = share.vectors::<Op>(operands);
        let mut known = Op::begin(operands, row);
        let mut known_next = Op::begin(operands, (row + clusters).min(last));
        let loose = [T::from_bits(0); super::MAX_INPUTS];
        let (mut at, mut round) = (0, 0);
        rounds.ready();
        let staged = Staged { share, operands, row, at, loose, vectors };
        rounds.announce(0, Op::statistic(known, &Of(&staged, PhantomData::<Op>)));
        while row < p.rows {
            let known_later = Op::begin(operands, (row + 2 * clusters).min(last));
            vectors = vectors.renewed();
            (share.lane, share.present) = (pinned(lane), pinned(share.present));
            let mut staged = Staged { share, operands, row, at, loose, vectors };
            let next_at = share.next_place(at);
            if row + clusters < p.rows {
                let next = Staged { at: next_at, ..staged };
                rounds.announce(round + 1, Op::statistic(known_next, &Of(&next, PhantomData::<Op>)));
            }
            let total = Op::finish(operands, p, row, lane == 0, known, rounds.agreed(round));
            // Widened again rather than kept so over the wait.
            staged.vectors = staged.vectors.renewed();
            (staged.share.lane, staged.share.present, staged.at) =
                (pinned(lane), pinned(share.present), pinned(at));
            vectors = staged.vectors;
            let turns = const { (DEPTH / PACKS) as u32 };
            let ahead = [row + turns * clusters, row + (turns + 1) * clusters];
            // Twice, so that an input that is not there costs nothing.
            if const { Op::INPUTS == 3 } && inputs < 3 {
                staged.results::<Op, 1>(known, total, &mut sums, ahead);
            } else {
                staged.results::<Op, 0>(known, total, &mut sums, ahead);
            }
            (at, round, row) = (next_at, round + 1, row + clusters);
            (known, known_next) = (known_next, known_later);
        }
        async_copy::wait::<0>();
        for which in 0..Op::SUMS {
            let matrix = which as u64 * clusters as u64 + cluster::index() as u64;
            let row = sums_of_columns.offset((matrix * p.cols as u64) as i64);
            share.write(row, sums.packs[which], sums.loose[which]);
        }
    }
}
