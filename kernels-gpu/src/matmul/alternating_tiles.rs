//! 16-bit products on Hopper's tensor cores, of several tiles a multiprocessor: one is finished while the next is multiplied.
//!
//! As in [`pipelined()`](fn@super::pipelined) a block stays for several tiles, and its producer fills `STAGES` stages. But each of its two consumers
//! has tiles of its own, of 2·`SUMS` rows and 128 columns, every other one of the block, turned as in [`turned()`](fn@super::turned): the tensor cores have work
//! for as long as a tile takes to be finished. A consumer begins when the other has started all products of the tile before. So all of the ends but the
//! block's last are hidden, where the consumers of `pipelined` finish the halves of a tile together, but of 128×256 sums: that takes fewer copies. It pays
//! where ends are long, as those of GELU, or frequent, with few terms.
//!
//! Tiles of 192×128 are 192 sums of a lane: nothing of an epilogue may be computed ahead, or they do not fit into registers. For each product they take
//! five sixths of the copies of tiles of 128×128 and eight ninths of what tensor cores read from shared memory, of which the latter want more than there is.
//!
//! Operands and launch are those of `pipelined`, with [`alternating_shared_bytes`]. Results leave by the accelerator, with a bias and an activation,
//! of which the operand may be kept, or by heads by threads, in packs; nothing lies beside the sums: it would hold a stage from before a tile's end until behind it.
//!
//! Source: NVIDIA's CUTLASS (its ping-pong kernels), as a technique.

use super::Product;
use super::consumer::{Finisher, GROUP_ROWS, ROOM_BYTES, To, WARPS};
use super::feed::Feed;
use super::finish::Tensors;
use super::part::{LINE_BYTES, Part, multiply};
use super::ring::barrier_bytes;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

const CONSUMERS: u32 = 2;
/// Columns of a tile: a consumer multiplies 64 of them at a time.
pub const ALTERNATING_COLS: u32 = 2 * GROUP_ROWS;
/// Registers of a producer's and of a consumer's thread.
const FEW_REGISTERS: u32 = 24;
const REGISTERS: u32 = 240;

/// Bytes of shared memory of an instance with so many rows.
pub const fn alternating_shared_bytes(rows: u32, stages: u32) -> u32 {
    stages * (rows + ALTERNATING_COLS) * LINE_BYTES
        + CONSUMERS * ROOM_BYTES
        + barrier_bytes(stages, CONSUMERS)
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// As [`pipelined()`](fn@super::pipelined). `p` says [`flag::STORED`](super::flag::STORED) and not [`flag::BESIDE`](super::flag::BESIDE),
/// [`flag::SCATTERED`](super::flag::SCATTERED) of results by heads alone, and there is one split.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { SUMS: 96, STAGES: 4, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { SUMS: 96, STAGES: 4, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { SUMS: 96, STAGES: 4, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { SUMS: 96, STAGES: 4, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
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
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let (rows, cols) = (2 * SUMS as u32, ALTERNATING_COLS);
    let part_a = Part::<A_K>::new(rows, p.a);
    let part_b = Part::<B_K>::new(cols, p.b);
    let rooms = STAGES as u32 * (part_a.bytes() + part_b.bytes());
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
            if p.epilogue.is_mapped() {
                map_out.prefetch();
            }
        };
        let to = To { tensors: Tensors { bias, addend, aux, out }, out: map_out, kept: map_kept };
        // A stage is read by the consumer whose tile it is of.
        let parts = (part_a, part_b);
        let feed = Feed::<STAGES, A_K, B_K>::begin(parts, CONSUMERS, [1, CONSUMERS], b, &p, prefetch);
        let ring = feed.ring;
        if warp_id() / WARPS == CONSUMERS {
            warpgroup::shrink_registers::<FEW_REGISTERS>();
            if thread::thread_idx_x() == CONSUMERS * WARPS * 32 {
                feed.run::<T, false>([map_a, map_b], None, &p);
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
        let (mut left, mut right) = ([0.0f32; SUMS], [0.0f32; SUMS]);
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (row, col) = (place.tile_row * rows, place.tile_col * cols);
            // A shuffle stays in its loop, and so does what comes of it.
            let lane = warp::warp_shuffle_idx(u32::MAX, lane, lane, 32).0;
            let room = rooms + group * ROOM_BYTES;
            let of_left = Finisher::<true> { lane, warp: warp % WARPS, group, room, row, col };
            let of_right = Finisher { col: col + GROUP_ROWS, ..of_left };
            // On their way during the products.
            let biases_of = |half: Finisher<true>| half.biases::<T, SUMS>(&p.epilogue, bias);
            let (left_biases, right_biases) = (biases_of(of_left), biases_of(of_right));
            // All stages before this tile's first have been full: no phase is taken for a later one of the same stage.
            ring.started(1 - group).wait(round);
            round ^= 1;
            let mut done = 0;
            while done < turns {
                ring.full(turn.stage()).wait(turn.parity());
                let (tile_a, tile_b) = feed.tiles::<T>(turn.stage());
                let (of_a, more) = (part_a.operand(tile_a, 0), done > 0);
                multiply::<T, SUMS, B_K, A_K>(&mut left, part_b.operand(tile_b, 0), of_a, more);
                multiply::<T, SUMS, B_K, A_K>(&mut right, part_b.operand(tile_b, GROUP_ROWS), of_a, more);
                // The products of the turn before are done.
                warpgroup::wait::<2>();
                ring.empty(turn.stage_before()).arrive_if(more && lane == 0);
                turn = turn.next();
                done += 1;
            }
            ring.started(group).arrive_if(lane == 0);
            warpgroup::finish(&mut left);
            warpgroup::finish(&mut right);
            ring.empty(turn.stage_before()).arrive_if(lane == 0);
            for (sums, finisher, biases) in
                [(&left, of_left, &left_biases), (&right, of_right, &right_biases)]
            {
                finisher.store_alone::<T, SUMS, 1, STAGES>(sums, &p.epilogue, biases, to, place, ring, turn);
            }
            // The tile between is the other's.
            turn = turn.after(turns);
            index += 2 * p.blocks.blocks;
        }
        tma::wait_stores_read::<0>();
    }
}
