//! Taking [numbers apart](super::parts) whose lines are along k: each line, in each split, is a row with a scale.
//!
//! `LANES` threads go through a row, first for the sizes of its numbers and then for their parts; what they read first they keep, `AT_A_TIME`
//! packs each, the rest they read again, from the first-level cache.
//!
//! Launch: 1-D grid with `LANES` threads for each row and split.

use super::parts::{Numbers, PACK, PACK_OF_PARTS, Parting};
use super::scale::{HAS_FAINT, Sizes, word};
use cuda_std::atomic::{Ordering, Scope};
use cuda_std::block;
use cuda_std::dependent;
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: usize = 256;

/// Takes rows apart.
///
/// # Safety
/// `source` has the elements that `p` names, `scales` room for the words of all rows, `out` for the parts of all packs; the grid is as
/// the module says.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    instances = [
        { LANES: 8, AT_A_TIME: 2; threads: 256, min_blocks: 4 },
        { LANES: 32, AT_A_TIME: 4; threads: 256, min_blocks: 2 },
        { LANES: 256, AT_A_TIME: 2; threads: 256, min_blocks: 4 },
    ],
)]
pub unsafe fn part_rows<const LANES: usize, const AT_A_TIME: usize>(
    source: Global<f32>,
    scales: GlobalMut<u32>,
    out: GlobalMut<f16>,
    p: Parting,
) {
    let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % LANES as u32);
    let index = thread::block_idx_x() * (THREADS / LANES) as u32 + thread / LANES as u32;
    dependent::wait();
    dependent::allow_next();
    // All lanes of a warp go on together.
    let exists = index < p.total;
    let of = p.of(if exists { index } else { 0 });
    let step = LANES as u32 * PACK;
    // SAFETY: the caller's contract.
    unsafe {
        let load = |at: u32| {
            let mut packs: [Numbers; AT_A_TIME] = [[0.0; PACK_OF_PARTS]; AT_A_TIME];
            for i in 0..AT_A_TIME {
                let at = at + i as u32 * step;
                packs[i] = p.load(source, of, exists && at < of.end, of.across, at, of.end);
            }
            packs
        };
        let first = of.first + lane * PACK;
        let mut held = load(first);
        let (mut packs, mut at, mut sizes) = (held, first, Sizes::NONE);
        loop {
            for i in 0..AT_A_TIME {
                for j in 0..PACK_OF_PARTS {
                    sizes = sizes.with(packs[i][j]);
                }
            }
            at += AT_A_TIME as u32 * step;
            if at >= of.end {
                break;
            }
            packs = load(at);
        }
        let sizes = match LANES {
            8 => {
                Sizes { largest: warp::max::<u32, 8>(sizes.largest), total: warp::sum::<f32, 8>(sizes.total) }
            }
            32 => Sizes {
                largest: warp::max::<u32, 32>(sizes.largest),
                total: warp::sum::<f32, 32>(sizes.total),
            },
            _ => Sizes { largest: block::max_u32(sizes.largest), total: block::sum_f32(sizes.total) },
        };
        let at_word = p.word_of(of, of.across);
        scales.set_if(exists && lane == 0, at_word, word(sizes, p.k_of_split));
        // The word is there before it is marked.
        if const { LANES == THREADS } {
            thread::sync_threads();
        } else {
            warp::sync_warp(u32::MAX);
        }
        let (mut at, mut faint) = (first, 0);
        loop {
            for i in 0..AT_A_TIME {
                let at = at + i as u32 * step;
                let when = exists && at < of.end;
                let bits = p.store(out, of, when, of.across, at, held[i], [sizes.largest; PACK_OF_PARTS]);
                faint |= bits;
            }
            at += AT_A_TIME as u32 * step;
            if at >= of.end {
                break;
            }
            held = load(at);
        }
        // Rarely.
        if faint != 0 {
            scales.atomic_or(at_word, HAS_FAINT, Ordering::Relaxed, Scope::Device);
        }
    }
}
