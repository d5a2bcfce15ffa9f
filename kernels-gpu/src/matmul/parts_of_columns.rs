//! Taking [numbers apart](super::parts) whose lines are across k: each number of a line is of another row, and has that one's scale.
//!
//! The blocks of a cluster share out the terms of a split, of a group of [`COLUMNS_OF_GROUP`] neighbours: four threads for a line, and as many lines at a
//! time as that makes. They go through their lines first for the sizes of their numbers, which they tell one another, and then for the parts; what they read first
//! they keep, [`AT_A_TIME`] packs each, the rest they read again, from the first-level cache.
//!
//! Launch: 1-D grid with a cluster for each group and split.

use super::parts::{Numbers, PACK, PACK_OF_PARTS, Parting};
use super::scale::{HAS_FAINT, Sizes, word};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::shared_array;

/// Numbers of a line of a group: 128 bytes.
pub const COLUMNS_OF_GROUP: u32 = 32;
/// Lines that a block goes through at a time.
pub const LINES_AT_A_TIME: u32 = LINES * AT_A_TIME as u32;
/// Packs of a line of a group.
const PACKS: u32 = COLUMNS_OF_GROUP / PACK;
/// Lines that the threads of a block are for, packs of a thread that are on their way at a time, and warps.
const LINES: u32 = 256 / PACKS;
const AT_A_TIME: usize = 4;
const WARPS: u32 = 8;

/// Takes columns apart.
///
/// # Safety
/// `source` has the elements that `p` names, `scales` room for the words of all rows, `out` for the parts of all packs; the grid is as
/// the module says, and the shares of the cluster's blocks are the split.
#[kernel(family = "matmul_hopper", requires = "sm_90a", instances = [{ ; threads: 256, min_blocks: 2 }])]
pub unsafe fn part_columns(source: Global<f32>, scales: GlobalMut<u32>, out: GlobalMut<f16>, p: Parting) {
    let (thread, lane, warp) = (thread::thread_idx_x(), warp::lane_id(), warp::warp_id());
    let (rank, size) = (cluster::rank(), cluster::size());
    let (pack, slot) = (thread % PACKS, thread / PACKS);
    dependent::wait();
    dependent::allow_next();
    let of = p.of(cluster::index());
    let first = of.first + rank * p.share;
    let end = if first + p.share < of.end { first + p.share } else { of.end };
    let column = of.across * COLUMNS_OF_GROUP + pack * PACK;
    // SAFETY: the caller's contract; shared memory is read behind the barrier behind its writes, that of others behind the cluster's.
    unsafe {
        // Two words for each column: of each warp, and of the block.
        let of_warps = shared_array!(part_columns_of_warps: [u32; 512]);
        let of_block = shared_array!(part_columns_of_block: [u32; 64]);
        let of_all = shared_array!(part_columns_of_all: [u32; 32]);
        let get = |from: Shared<u32>, column: u32| {
            let [largest, total] = from.get_8(2 * column);
            Sizes { largest, total: f32::from_bits(total) }
        };
        let set = |to: Shared<u32>, column: u32, sizes: Sizes| {
            to.set_8(2 * column, [sizes.largest, sizes.total.to_bits()]);
        };
        let load = |line: u32| {
            let mut packs: [Numbers; AT_A_TIME] = [[0.0; PACK_OF_PARTS]; AT_A_TIME];
            for i in 0..AT_A_TIME {
                let line = line + i as u32 * LINES;
                packs[i] = p.load(source, of, line < end && column < p.length, line, column, p.length);
            }
            packs
        };
        let mut held = load(first + slot);
        let (mut packs, mut line, mut sizes) = (held, first + slot, [Sizes::NONE; PACK_OF_PARTS]);
        loop {
            for i in 0..AT_A_TIME {
                for j in 0..PACK_OF_PARTS {
                    sizes[j] = sizes[j].with(packs[i][j]);
                }
            }
            line += LINES_AT_A_TIME;
            if line >= end {
                break;
            }
            packs = load(line);
        }
        // Of the lanes with the same columns, of the warps, and of the blocks.
        for j in 0..PACK_OF_PARTS {
            for distance in [4, 8, 16] {
                let other = Sizes {
                    largest: warp::warp_shuffle_xor(u32::MAX, sizes[j].largest, distance, 32).0,
                    total: warp::warp_shuffle_xor(u32::MAX, sizes[j].total, distance, 32).0,
                };
                sizes[j] = sizes[j].and(other);
            }
            if lane < PACKS {
                set(of_warps, warp * COLUMNS_OF_GROUP + lane * PACK + j as u32, sizes[j]);
            }
        }
        thread::sync_threads();
        let mut of_column = Sizes::NONE;
        if warp == 0 {
            for other in 0..WARPS {
                of_column = of_column.and(get(of_warps, other * COLUMNS_OF_GROUP + lane));
            }
            set(of_block, lane, of_column);
        }
        if size > 1 {
            cluster::sync();
        }
        if warp == 0 {
            for other in 0..size {
                if other != rank {
                    let [largest, total] = [0, 1].map(|i| of_block.get_remote(other, 2 * lane + i));
                    of_column = of_column.and(Sizes { largest, total: f32::from_bits(total) });
                }
            }
            of_all.set(lane, of_column.largest);
            let row = of.across * COLUMNS_OF_GROUP + lane;
            let exists = rank == 0 && row < p.length;
            scales.set_if(exists, p.word_of(of, row), word(of_column, p.k_of_split));
        }
        // The words are there before they are marked, and no block ends while others read what it has found.
        if size > 1 {
            cluster::sync();
        } else {
            thread::sync_threads();
        }
        let mut largest = [0; PACK_OF_PARTS];
        for j in 0..PACK_OF_PARTS {
            largest[j] = of_all.get(pack * PACK + j as u32);
        }
        let mut line = first + slot;
        loop {
            for i in 0..AT_A_TIME {
                let line = line + i as u32 * LINES;
                let when = line < end && column < p.length;
                let faint = p.store(out, of, when, line, column, held[i], largest);
                // Rarely.
                if faint != 0 {
                    for j in 0..PACK_OF_PARTS {
                        if faint >> j & 1 != 0 {
                            let word = p.word_of(of, column + j as u32);
                            scales.atomic_or(word, HAS_FAINT, Ordering::Relaxed, Scope::Device);
                        }
                    }
                }
            }
            line += LINES_AT_A_TIME;
            if line >= end {
                break;
            }
            held = load(line);
        }
    }
}
