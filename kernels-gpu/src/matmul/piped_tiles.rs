//! 16-bit products on Hopper's tensor cores, fed by its tensor memory accelerator.
//!
//! A block stays for several tiles, one a multiprocessor, or two where it has one consumer. One of its warpgroups, the producer, does nothing but
//! start copies: a thread of it fills `STAGES` stages of [`PIPELINED_DEPTH`] terms of both operands in turn. The
//! `CONSUMERS` others each multiply 64 rows of 2·`SUMS` columns by `wgmma` and finish them. A stage has two barriers: *full*,
//! where its bytes arrive, and *empty*, where a warp of each consumer arrives when the products that read the stage are
//! done, of which two stages' are under way. The producer runs ahead into the next tile while consumers finish
//! theirs. They do so one after the other: each holds back its last products until the one before it has started all of its own, so that
//! the tensor cores have work while one of them finishes its sums, at a tile's end and at the beginning of the next.
//!
//! Operands of any strides that are multiples of 16 bytes, along k or across it, batches as outer dimensions of the
//! tensor maps; what lies beyond m, n and k is read as zeros and not written. There is at least one term.
//!
//! Ways out: results that the accelerator can store, with a bias and an activation, go through shared memory in their
//! own type and are copied during the next tile's products. What lies beside them, an addend or where slopes are taken, comes through
//! the same stages behind a tile's terms, and into L2 ahead of that; what is kept leaves as the result does. A result of which there is no map, by heads or of rows
//! that begin anywhere, with a bias alone, is stored from there by threads, but by consumers of the widest tiles. Whatever else is asked
//! goes through shared memory as f32, to the epilogue that all kernels share.
//!
//! Launch: 1-D grid of at most as many blocks as fit at once, for the total of [`Blocks`](super::Blocks);
//! [`pipelined_shared_bytes`] of dynamic shared memory.
//!
//! Source: NVIDIA's CUTLASS (warp-specialised persistent kernels), as a technique.

use super::Product;
use super::consumer::{CHUNK, Finisher, GROUP_ROWS, ROOM_BYTES, To, WARPS};
use super::epilogue::{Epilogue, flag};
use super::feed::Feed;
use super::finish::{Finish, Tensors};
use super::part::{PIPELINED_DEPTH, Part, multiply};
use super::ring::barrier_bytes;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Rows of a consumer.
pub const PIPELINED_ROWS: u32 = GROUP_ROWS;
/// Columns of a box of the result.
pub const PIPELINED_CHUNK: u32 = CHUNK;
/// Registers of a producer's and of a consumer's thread, of two consumers, and of three or one.
const FEW_REGISTERS: u32 = 32;
const REGISTERS_OF_TWO: u32 = 232;
const REGISTERS_OF_OTHERS: u32 = 160;

/// Bytes of shared memory of an instance with so many consumers and columns.
pub const fn pipelined_shared_bytes(consumers: u32, cols: u32, stages: u32) -> u32 {
    let stage = (consumers * PIPELINED_ROWS + cols) * PIPELINED_DEPTH * 2;
    stages * stage + consumers * ROOM_BYTES + barrier_bytes(stages, consumers - 1)
}

/// Multiplies. `A_K` and `B_K` are 1 where the operand's columns are neighbours in memory, 0 where its rows are.
///
/// # Safety
/// The tensors have the matrices of `p`, and so do the maps, with the boxes of this instance; there is one of the result
/// where `p` says [`flag::STORED`] and not [`flag::SCATTERED`]; the grid is as the module says, with its shared memory.
#[kernel(
    family = "matmul_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 128, STAGES: 4, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 1, B_K: 1; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 1, B_K: 0; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 0, B_K: 1; threads: 512, min_blocks: 1 },
        { CONSUMERS: 3, SUMS: 64, STAGES: 4, A_K: 0, B_K: 0; threads: 512, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 64, STAGES: 6, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 1, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 1; threads: 384, min_blocks: 1 },
        { CONSUMERS: 2, SUMS: 32, STAGES: 8, A_K: 0, B_K: 0; threads: 384, min_blocks: 1 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 1, B_K: 1; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 1, B_K: 0; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 0, B_K: 1; threads: 256, min_blocks: 2 },
        { CONSUMERS: 1, SUMS: 32, STAGES: 6, A_K: 0, B_K: 0; threads: 256, min_blocks: 2 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn pipelined<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const A_K: usize,
    const B_K: usize,
>(
    map_a: TensorMap,
    map_b: TensorMap,
    map_out: TensorMap,
    map_beside: TensorMap,
    b: Global<T>,
    bias: Global<T>,
    addend: Global<T>,
    aux: GlobalMut<T>,
    out: GlobalMut<T>,
    p: Product,
) {
    let maps = [map_a, map_b, map_out, map_beside];
    let tensors = Tensors { bias, addend, aux, out };
    // SAFETY: the caller's contract.
    unsafe { stay::<T, CONSUMERS, SUMS, STAGES, false, A_K, B_K>(maps, b, tensors, &p) }
}

/// All of the kernel. Consumers multiply rows of a by columns of b or, where sums are `TURNED`, 64 columns of b each by rows of a, for results
/// that `p` says are [`flag::STORED`].
///
/// # Safety
/// As [`pipelined()`]; the maps are of a, of b, of the result and of what lies beside it.
#[inline(always)]
pub(super) unsafe fn stay<
    T: WarpgroupHalf,
    const CONSUMERS: usize,
    const SUMS: usize,
    const STAGES: usize,
    const TURNED: bool,
    const A_K: usize,
    const B_K: usize,
>(
    [map_a, map_b, map_out, map_beside]: [TensorMap; 4],
    b: Global<T>,
    tensors: Tensors<T>,
    p: &Product,
) {
    let (of_consumers, of_each) = (CONSUMERS as u32 * PIPELINED_ROWS, 2 * SUMS as u32);
    let (rows, cols) = if const { TURNED } { (of_each, of_consumers) } else { (of_consumers, of_each) };
    let part_a = Part::<A_K>::new(rows, p.a);
    let part_b = Part::<B_K>::new(cols, p.b);
    let rooms = STAGES as u32 * (part_a.bytes() + part_b.bytes());
    // Known to be the same in all lanes, so that what comes of it stays in uniform registers. Each role asks anew: what
    // both know takes registers of which there are few.
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
        let consumers = CONSUMERS as u32;
        let (parts, barriers) = ((part_a, part_b), [consumers, consumers - 1]);
        let feed = Feed::<STAGES, A_K, B_K>::begin(parts, consumers, barriers, b, p, prefetch);
        let ring = feed.ring;
        if warp_id() / WARPS == consumers {
            warpgroup::shrink_registers::<FEW_REGISTERS>();
            if thread::thread_idx_x() == consumers * WARPS * 32 {
                feed.run::<T, TURNED>([map_a, map_b], Some(map_beside), p);
            }
            return;
        }
        if const { CONSUMERS == 2 } {
            warpgroup::grow_registers::<REGISTERS_OF_TWO>();
        } else {
            warpgroup::grow_registers::<REGISTERS_OF_OTHERS>();
        }
        let (warp, lane) = (warp_id(), warp::lane_id());
        let group = warp / WARPS;
        let mut turn = Turn::<STAGES>::first();
        let mut index = thread::block_idx_x();
        let mut round = 0;
        let mut sums = [0.0f32; SUMS];
        while index < p.blocks.total {
            let place = p.blocks.at(index);
            let (_, turns) = feed.terms(p, place);
            let (first_row, first_col) = (place.tile_row * rows, place.tile_col * cols);
            // A shuffle stays in its loop, and so does what comes of it.
            let lane = warp::warp_shuffle_idx(u32::MAX, lane, lane, 32).0;
            let own = group * PIPELINED_ROWS;
            let (row, col) =
                if const { TURNED } { (first_row, first_col + own) } else { (first_row + own, first_col) };
            let room = rooms + group * ROOM_BYTES;
            let finisher = Finisher::<TURNED> { lane, warp: warp % WARPS, group, room, row, col };
            // On their way during the products.
            let biases = finisher.biases::<T, SUMS>(&p.epilogue, tensors.bias);
            let last = STAGES as u32 - if p.epilogue.flags & flag::BESIDE == 0 { 1 } else { 2 };
            let start = |sums: &mut [f32; SUMS], stage: u32, more: bool| {
                let (tile_a, tile_b) = feed.tiles::<T>(stage);
                if const { TURNED } {
                    let (of_a, of_b) = (part_a.operand(tile_a, 0), part_b.operand(tile_b, own));
                    multiply::<T, SUMS, B_K, A_K>(sums, of_b, of_a, more);
                } else {
                    let (of_a, of_b) = (part_a.operand(tile_a, own), part_b.operand(tile_b, 0));
                    multiply::<T, SUMS, A_K, B_K>(sums, of_a, of_b, more);
                }
            };
            let of = [group, consumers];
            ring.consume(&mut sums, &mut turn, &mut round, turns, last, of, lane, start);
            if const { TURNED } || p.epilogue.flags & flag::STORED != 0 {
                let to = To { tensors, out: map_out, kept: map_beside };
                turn = finisher.store::<T, SUMS, CONSUMERS, STAGES>(
                    &sums,
                    &p.epilogue,
                    &biases,
                    to,
                    place,
                    ring,
                    turn,
                );
            } else {
                // A shuffle as above, so that what comes of the flags is not kept from tile to tile by those who do not come here.
                let flags = warp::warp_shuffle_idx(u32::MAX, p.epilogue.flags, lane, 32).0;
                let epilogue = Epilogue { flags, ..p.epilogue };
                let as_it_is = Finisher::<false> { lane, warp: warp % WARPS, group, room, row, col };
                as_it_is.finish(&sums, Finish::new(tensors, &epilogue, place), p.epilogue.n);
            }
            // The grid's own extent would take a register.
            index += p.blocks.blocks;
        }
        tma::wait_stores_read::<0>();
    }
}
