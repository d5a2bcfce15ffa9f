//! 16-bit products on Hopper's tensor cores, of several tiles a multiprocessor: one is finished while the next is multiplied.
//!
//! As in [`pipelined()`](fn@super::pipelined) a block stays for several tiles, and its producer fills `STAGES` stages. But each of its two consumers
//! has tiles of its own, of 128 rows and 2·`SUMS` columns, every other one of the block: the tensor cores have work
//! for as long as a tile takes to be finished. A consumer begins when the other has started all products of the tile before. So all of the ends but the
//! block's last are hidden; where the consumers of `pipelined` share a tile of twice the size, most of each is not, but that takes
//! three quarters of the copies. It pays where ends are long, as those of GELU, or frequent, with few terms.
//!
//! Operands and launch are those of `pipelined`, with [`alternating_shared_bytes`]. Results leave by the accelerator, with a bias and an activation,
//! of which the operand may be kept; nothing lies beside the sums: it would hold a stage from before a tile's end until behind it.
//!
//! Source: NVIDIA's CUTLASS (its ping-pong kernels), as a technique.

use super::Product;
use super::consumer::{Finisher, GROUP_ROWS, ROOM_BYTES, WARPS};
use super::feed::Feed;
use super::part::{LINE_BYTES, PIPELINED_DEPTH, Part, multiply};
use super::ring::{Ring, barrier_bytes};
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

const CONSUMERS: u32 = 2;
/// Rows of a tile: a consumer multiplies 64 of them at a time.
pub const ALTERNATING_ROWS: u32 = 2 * GROUP_ROWS;
/// Registers of a producer's and of a consumer's thread.
const FEW_REGISTERS: u32 = 32;
const REGISTERS: u32 = 232;

/// Bytes of shared memory of an instance with so many columns.
pub const fn alternating_shared_bytes(cols: u32, stages: u32) -> u32 {
    stages * (ALTERNATING_ROWS + cols) * LINE_BYTES
        + CONSUMERS * ROOM_BYTES
        + barrier_bytes(stages, CONSUMERS)
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// As [`pipelined()`](fn@super::pipelined). `p` says [`flag::STORED`](super::flag::STORED) and not [`flag::BESIDE`](super::flag::BESIDE), and there is one split.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { SUMS: 64, STAGES: 6, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { SUMS: 64, STAGES: 6, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { SUMS: 64, STAGES: 6, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { SUMS: 64, STAGES: 6, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn alternating<
    T: WarpgroupHalf,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    map_kept: TensorMap,
    b: Global<T>,
    bias: Global<T>,
    _addend: Global<T>,
    _aux: GlobalMut<T>,
    _out: GlobalMut<T>,
    p: Product,
) {
    let cols = 2 * SUMS as u32;
    let part_a = Part::<A_K>::new(ALTERNATING_ROWS, p.a);
    let part_b = Part::<B_K>::new(cols, p.b);
    let stage_bytes = part_a.bytes() + part_b.bytes();
    let rooms = STAGES as u32 * stage_bytes;
    // Known to be the same in all lanes, as in `pipelined`.
    let warp_id = || warp::warp_shuffle_idx(u32::MAX, thread::thread_idx_x() / 32, 0, 32).0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read
    // between the ends of *full* and of the next phase of *empty*.
    unsafe {
        // What is known before the launch ahead of this one is done.
        if p.is_nothing() {
            return;
        }
        let prefetch = || {
            map_a.prefetch();
            map_b.prefetch();
            map_out.prefetch();
        };
        // A stage is read by the consumer whose tile it is of.
        let of_barriers = rooms + CONSUMERS * ROOM_BYTES;
        let ring = Ring::<STAGES>::new(stage_bytes, of_barriers, [1, CONSUMERS], prefetch);
        let feed = Feed { ring, part_a, part_b, depth: PIPELINED_DEPTH };
        tile::expect_slabs();
        if p.asks != 0 {
            let place = p.blocks.at(thread::block_idx_x());
            part_b.ask(true, b, p.b, (place.tile_col * cols, p.epilogue.n), p.terms(place.split), place);
        }
        thread::sync_threads();
        dependent::wait();
        dependent::allow_next();
        if warp_id() / WARPS == CONSUMERS {
            warpgroup::shrink_registers::<FEW_REGISTERS>();
            if thread::thread_idx_x() == CONSUMERS * WARPS * 32 {
                feed.run::<T>([map_a, map_b], None, &p);
            }
            return;
        }
        warpgroup::grow_registers::<REGISTERS>();
        let (warp, lane) = (warp_id(), warp::lane_id());
        let group = warp / WARPS;
        let mut index = thread::block_idx_x();
        // Stages of a tile, of which there are as many in all.
        let (_, turns) = feed.terms(&p, p.blocks.at(index));
        let mut turn = Turn::<STAGES>::first();
        // The phase in which the other has started its products of the tile before: the first has none before its first one.
        let mut round = 1;
        if group == 1 {
            turn = turn.after(turns);
            index += p.blocks.blocks;
            round = 0;
        }
        let (mut upper, mut lower) = ([0.0f32; SUMS], [0.0f32; SUMS]);
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (row, col) = (place.tile_row * ALTERNATING_ROWS, place.tile_col * cols);
            // A shuffle stays in its loop, and so does what comes of it.
            let lane = warp::warp_shuffle_idx(u32::MAX, lane, lane, 32).0;
            let room = rooms + group * ROOM_BYTES;
            let of_upper = Finisher { lane, warp: warp % WARPS, group, room, row, col };
            let of_lower = Finisher { row: row + GROUP_ROWS, ..of_upper };
            // On their way during the products.
            let biases = of_upper.biases::<T, SUMS>(&p.epilogue, bias);
            // All stages before this tile's first have been full: no phase is taken for a later one of the same stage.
            ring.started(1 - group).wait(round);
            round ^= 1;
            let mut done = 0;
            while done < turns {
                ring.full(turn.stage()).wait(turn.parity());
                let (tile_a, tile_b) = feed.tiles::<T>(turn.stage());
                let (of_b, more) = (part_b.operand(tile_b, 0), done > 0);
                multiply::<T, SUMS, A_K, B_K>(&mut upper, part_a.operand(tile_a, 0), of_b, more);
                multiply::<T, SUMS, A_K, B_K>(&mut lower, part_a.operand(tile_a, GROUP_ROWS), of_b, more);
                // The products of the turn before are done.
                warpgroup::wait::<2>();
                ring.empty(turn.stage_before()).arrive_if(more && lane == 0);
                turn = turn.next();
                done += 1;
            }
            ring.started(group).arrive_if(lane == 0);
            warpgroup::finish(&mut upper);
            warpgroup::finish(&mut lower);
            ring.empty(turn.stage_before()).arrive_if(lane == 0);
            for (sums, finisher) in [(&upper, of_upper), (&lower, of_lower)] {
                let maps = [map_out, map_kept];
                finisher.store_alone::<T, SUMS, 1, STAGES>(
                    sums,
                    &p.epilogue,
                    &biases,
                    maps,
                    place,
                    ring,
                    turn,
                );
            }
            // The tile between is the other's.
            turn = turn.after(turns);
            index += 2 * p.blocks.blocks;
        }
        tma::wait_stores_read::<0>();
    }
}
