//! How a consumer of [`pipelined()`](fn@super::pipelined), [`turned()`](fn@super::turned) or [`alternating()`](fn@super::alternating) finishes its sums: number i of a lane is that of row
//! 16·w + lane / 4 + 8·(i / 2 % 2) and column 8·(i / 4) + 2·(lane % 4) + i % 2, with w its warp. Where sums are `TURNED`, these are a column and a row
//! of the result.
//!
//! They go out [`CHUNK`] columns, or turned rows, at a time by way of shared memory: 128 bytes of results, or as many rows of these. Plain results leave by copies of the accelerator,
//! which go on during the next tile's products, and those of which there can be no map by threads (`scatter.rs`); tried instead for all: packs of
//! rows written by each warp, without waiting for the others, which took 1 to 5 % longer.

use super::activations::Activation;
use super::epilogue::{Epilogue, activation, flag};
use super::finish::{Finish, PACK, Tensors};
use super::place::Place;
use super::ring::Ring;
pub(super) use super::staged::{CHUNK, ROWS, WARPS};
use super::staged::{STAGED_BYTES, SUMS_OF_CHUNK, Staged};
use cuda_std::bits;
use cuda_std::float::fma;
use cuda_std::prelude::*;
use cuda_std::ring::Turn;
use cuda_std::tile::Tile;
use cuda_std::tma::{self, TensorMap};

/// Rows of a warpgroup.
pub(super) const GROUP_ROWS: u32 = WARPS * ROWS;
/// Bytes of a chunk of results of a warpgroup, and of its room: two of these in turn, or a chunk in f32.
pub(super) const CHUNK_BYTES: u32 = GROUP_ROWS * CHUNK * 2;
const BUFFERS: u32 = 2;
pub(super) const ROOM_BYTES: u32 = BUFFERS * CHUNK_BYTES;
/// Packs of a chunk's row, and rows of packs that a warp takes at a time.
pub(super) const PACKS: u32 = CHUNK / PACK as u32;
pub(super) const ROWS_AT_A_TIME: u32 = 32 / PACKS;
/// Pairs of neighbours in a row of a lane's sums of a chunk.
pub(super) const PAIRS: usize = 8;

/// Most chunks of a tile.
const MOST_CHUNKS: usize = 4;
/// A lane's pairs of the bias; turned the two numbers of its columns, twice each.
pub(super) type Biases = [[u32; PAIRS]; MOST_CHUNKS];

/// Most sums of a lane whose results may be [`flag::SCATTERED`], or finished several of a column at once: with more there are no registers for it.
pub const MOST_SCATTERED: usize = 96;

/// Whether these may be of rows that begin anywhere. A consumer of `alternating` has the sums of two halves of a tile, and no registers for it.
const fn puts_rows(turned: bool, consumers: usize) -> bool {
    !turned || consumers > 1
}

/// What lies beside the sums.
mod beside {
    pub const NOTHING: u32 = 0;
    /// An addend.
    pub const ADDED: u32 = 1;
    /// Where the activation's slope is taken.
    pub const SLOPED: u32 = 2;
}

/// Where results go: the tensors, and maps of the result and of what is kept.
#[derive(Clone, Copy)]
pub(super) struct To<T> {
    pub tensors: Tensors<T>,
    pub out: TensorMap,
    pub kept: TensorMap,
}

/// Chunks that lie beside those of a tile in a stage of the ring: as many as fit, of all consumers, with so many sums of a lane.
pub(super) const fn chunks_of_slot(consumers: u32, sums: u32) -> u32 {
    // Lines of 128 bytes both.
    (consumers * GROUP_ROWS + 2 * sums) / (consumers * GROUP_ROWS)
}

/// A lane of a consumer, at a tile.
#[derive(Clone, Copy)]
pub(super) struct Finisher<const TURNED: bool> {
    pub lane: u32,
    /// Its warp among four.
    pub warp: u32,
    /// Its warpgroup, which meets at the named barrier behind the block's, of this number and one.
    pub group: u32,
    /// The byte of dynamic shared memory where its warpgroup's [`ROOM_BYTES`] begin, a multiple of 1024.
    pub room: u32,
    /// Where its warpgroup's part of the result begins.
    pub row: u32,
    pub col: u32,
}

impl<const TURNED: bool> Finisher<TURNED> {
    /// Waits for all threads of the warpgroup.
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        thread::sync_named(1 + self.group, WARPS * 32);
    }

    /// The lane's pairs of the bias, chunk by chunk; zeros where there is none or results are not [`flag::STORED`].
    ///
    /// # Safety
    /// There is a bias where `p` says so.
    #[inline(always)]
    pub unsafe fn biases<T: Half, const SUMS: usize>(self, p: &Epilogue, bias: Global<T>) -> Biases {
        let mut words = [[0; PAIRS]; MOST_CHUNKS];
        if const { TURNED } {
            for i in 0..2 {
                let col = self.col + self.warp * ROWS + i * 8 + self.lane / 4;
                let exists = p.flags & flag::BIAS != 0 && col < p.n;
                // SAFETY: columns are below n.
                let own = unsafe { bias.get_bits_if(exists, col as usize, 0) };
                // What the compiler knows of it costs registers.
                words[0][i as usize] = bits::opaque(own | own << 16);
            }
            return words;
        }
        for chunk in 0..SUMS / SUMS_OF_CHUNK {
            for i in 0..PAIRS {
                let col = self.col + chunk as u32 * CHUNK + i as u32 * 8 + self.lane % 4 * 2;
                let wanted = flag::BIAS | flag::STORED;
                let (exists, anywhere) = (p.flags & wanted == wanted && col < p.n, !p.is_mapped());
                let one = |col: u32, when: bool| {
                    // SAFETY: columns are below n.
                    unsafe { bias.get_bits_if(exists && anywhere && when, col as usize, 0) }
                };
                // SAFETY: as above; where results have a map n is even.
                words[chunk][i] = unsafe { bias.get_4_if(exists && !anywhere, col as usize, 0) };
                if const { SUMS <= MOST_SCATTERED } {
                    words[chunk][i] |= one(col, true) | one(col + 1, col + 1 < p.n) << 16;
                }
            }
        }
        words
    }

    /// Finishes sums of which `p` says [`flag::STORED`]: alpha, a bias and an activation, of which the operand may be kept; or an addend;
    /// or an activation's slopes. What lies beside the sums comes from the ring, at `turn`; gives the turn behind it.
    ///
    /// # Safety
    /// The maps are of the result and of what is kept, the tensors as `p` says. All lanes of the warpgroup call; the stores are waited for before the block
    /// ends. The ring gets [`chunks_of_slot`] of what lies beside at a time.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn store<T: Half, const SUMS: usize, const CONSUMERS: usize, const STAGES: usize>(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        biases: &Biases,
        to: To<T>,
        place: Place,
        ring: Ring<STAGES>,
        turn: Turn<STAGES>,
    ) -> Turn<STAGES> {
        macro_rules! store {
            ($activation:ident, $beside:ident) => {
                self.store_as::<T, SUMS, CONSUMERS, STAGES, { activation::$activation }, { beside::$beside }>(
                    sums, p, biases, to, place, ring, turn,
                )
            };
        }
        // SAFETY: the caller's contract.
        unsafe {
            if p.flags & flag::ADDEND != 0 {
                store!(NONE, ADDED)
            } else if p.flags & flag::SLOPE != 0 {
                match p.activation {
                    activation::RELU => store!(RELU, SLOPED),
                    activation::GELU_TANH => store!(GELU_TANH, SLOPED),
                    _ => store!(GELU_ERF, SLOPED),
                }
            } else {
                self.store_alone::<T, SUMS, CONSUMERS, STAGES>(sums, p, biases, to, place, ring, turn)
            }
        }
    }

    /// [`Self::store`] of sums that nothing lies beside.
    ///
    /// # Safety
    /// As [`Self::store`].
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn store_alone<T: Half, const SUMS: usize, const CONSUMERS: usize, const STAGES: usize>(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        biases: &Biases,
        to: To<T>,
        place: Place,
        ring: Ring<STAGES>,
        turn: Turn<STAGES>,
    ) -> Turn<STAGES> {
        macro_rules! store {
            ($activation:ident) => {
                self.store_as::<T, SUMS, CONSUMERS, STAGES, { activation::$activation }, { beside::NOTHING }>(
                    sums, p, biases, to, place, ring, turn,
                )
            };
        }
        // SAFETY: the caller's contract.
        unsafe {
            match p.activation {
                activation::NONE => store!(NONE),
                activation::RELU => store!(RELU),
                activation::GELU_TANH => store!(GELU_TANH),
                _ => store!(GELU_ERF),
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[allow(clippy::too_many_arguments)]
    unsafe fn store_as<
        T: Half,
        const SUMS: usize,
        const CONSUMERS: usize,
        const STAGES: usize,
        const ACTIVATION: u32,
        const BESIDE: u32,
    >(
        self,
        sums: &[f32; SUMS],
        p: &Epilogue,
        biases: &Biases,
        To { tensors, out, kept }: To<T>,
        place: Place,
        ring: Ring<STAGES>,
        mut turn: Turn<STAGES>,
    ) -> Turn<STAGES> {
        let chunks = const { SUMS / SUMS_OF_CHUNK };
        let leads = self.warp == 0 && self.lane == 0;
        let of_slot = const { chunks_of_slot(CONSUMERS as u32, SUMS as u32) };
        let keeps = const { ACTIVATION != activation::NONE && BESIDE == beside::NOTHING }
            && p.flags & flag::KEEP != 0;
        // SAFETY: the caller's contract; a buffer is written again when the store from it has read it.
        unsafe {
            for chunk in 0..chunks {
                let buffer = |number: u32| {
                    Tile::<T>::dynamic_slabs(self.room + number * CHUNK_BYTES, GROUP_ROWS, PACKS)
                };
                let (tile, keep) = (buffer(if keeps { 0 } else { chunk as u32 % BUFFERS }), buffer(1));
                let last = chunk + 1 == chunks;
                let in_slot = chunk as u32 % of_slot;
                if const { BESIDE != beside::NOTHING } && in_slot == 0 {
                    ring.full(turn.stage()).wait(turn.parity());
                }
                let number = in_slot * CONSUMERS as u32 + self.group;
                let beside =
                    Tile::<T>::dynamic_slabs(ring.at(turn.stage()) + number * CHUNK_BYTES, GROUP_ROWS, PACKS);
                // With two results of each chunk, or an odd number of these, it may be the last one's buffer.
                if keeps || chunk == 0 && chunks % BUFFERS as usize != 0 {
                    tma::wait_stores_read::<0>();
                } else {
                    tma::wait_stores_read::<{ BUFFERS - 1 }>();
                }
                self.sync();
                // Of 16×16 numbers the matrices go down before they go along: lane 8·i + r names row r of matrix i, and what comes of
                // it in memory.
                let pack_of = |sixteen: usize| {
                    let first = sixteen as u32 * 2;
                    if const { TURNED } {
                        let (across, down) = (self.lane / 8 % 2, self.lane / 16);
                        tile.place((first + down) * 8 + self.lane % 8, self.warp * 2 + across)
                    } else {
                        tile.place(self.warp * ROWS + self.lane % 16, first + self.lane / 16)
                    }
                };
                let pair = |word: u32| T::pair([word, 0, 0, 0], 0);
                let packed = |values: [f32; 2]| {
                    let mut word = [0; 4];
                    T::set_pair(&mut word, 0, values);
                    word[0]
                };
                // What the activation gets.
                let before = |alpha: f32, sixteen: usize, matrix: usize| {
                    let i = chunk * SUMS_OF_CHUNK + sixteen * 8 + matrix * 2;
                    let word = if const { TURNED } {
                        biases[0][matrix % 2]
                    } else {
                        biases[chunk][2 * sixteen + matrix / 2]
                    };
                    let [left, right] = pair(word);
                    [fma(alpha, sums[i], left), fma(alpha, sums[i + 1], right)]
                };
                if keeps {
                    // Else all of it would be computed in front of the condition, for which there are no registers.
                    let alpha = f32::from_bits(bits::opaque(p.alpha.to_bits()));
                    for sixteen in 0..PAIRS / 2 {
                        let words = [0, 1, 2, 3].map(|matrix| packed(before(alpha, sixteen, matrix)));
                        keep.shared().store_matrices::<TURNED>(pack_of(sixteen), words);
                    }
                }
                for sixteen in 0..PAIRS / 2 {
                    let words = match const { BESIDE == beside::NOTHING } {
                        true => [0; 4],
                        false => beside.load_matrices::<TURNED>(pack_of(sixteen)),
                    };
                    let mut results = [0u32; 4];
                    for matrix in 0..4 {
                        let (mut values, at) = (before(p.alpha, sixteen, matrix), pair(words[matrix]));
                        values = match const { BESIDE } {
                            beside::SLOPED => Activation::<T>::times_slope(ACTIVATION, values, at),
                            _ => Activation::<T>::apply(ACTIVATION, values),
                        };
                        if const { BESIDE == beside::ADDED } {
                            values = [fma(p.beta, at[0], values[0]), fma(p.beta, at[1], values[1])];
                        }
                        results[matrix] = packed(values);
                    }
                    tile.shared().store_matrices::<TURNED>(pack_of(sixteen), results);
                    if const { ACTIVATION != activation::NONE } && sixteen % 2 == 1 {
                        // Keeps the assembler from computing everything at once, for which it lacks registers.
                        warp::sync_warp(u32::MAX);
                    }
                }
                if const { BESIDE != beside::NOTHING } && (in_slot + 1 == of_slot || last) {
                    warp::sync_warp(u32::MAX);
                    ring.empty(turn.stage()).arrive_if(self.lane == 0);
                    turn = turn.next();
                }
                tma::fence_writes();
                self.sync();
                let behind = chunk as u32 * CHUNK;
                let (row, col) = if const { TURNED } {
                    (self.row + behind, self.col)
                } else {
                    (self.row, self.col + behind)
                };
                let mut at = [col as i32, row as i32, place.inner as i32, place.outer as i32];
                let stores = leads && col < p.n && row < p.m;
                if const { ACTIVATION == activation::NONE && BESIDE == beside::NOTHING } {
                    let scatters = const { SUMS <= MOST_SCATTERED } && !p.is_mapped();
                    let by_heads = p.heads.are_split();
                    if scatters && (by_heads || const { puts_rows(TURNED, CONSUMERS) }) {
                        // Else the result's place would be worked out in front of the condition, for which there are no registers.
                        let (inner, outer) = (bits::pinned(place.inner), bits::pinned(place.outer));
                        // Of one split.
                        let finish = Finish::new(tensors, p, Place { inner, outer, split: 0, ..place });
                        // A shuffle stays where it is, and so does what comes of it.
                        let lane = warp::warp_shuffle_idx(u32::MAX, self.lane, self.lane, 32).0;
                        let buffer = self.room + chunk as u32 % BUFFERS * CHUNK_BYTES;
                        let scattered = Finisher { lane, ..self };
                        if by_heads {
                            scattered.put_packs(buffer, finish, row, col);
                        } else {
                            scattered.put_rows(buffer, finish, row, col);
                        }
                        continue;
                    }
                    if by_heads {
                        at = p.box_of_heads(place, row, col);
                    }
                }
                tile.shared().store_box_if(stores, 0, out, at);
                if keeps {
                    keep.shared().store_box_if(stores, 0, kept, at);
                }
                tma::commit_stores();
            }
        }
        turn
    }
}

impl Finisher<false> {
    /// Finishes any sums of a warp, chunk by chunk in f32.
    ///
    /// # Safety
    /// As [`Finish::pack`]. All lanes call.
    #[inline(always)]
    pub unsafe fn finish<T: Half, const SUMS: usize>(self, sums: &[f32; SUMS], finish: Finish<T>, n: u32) {
        // SAFETY: each warp by itself, in the group's room.
        let staged = unsafe { Staged::new(self.room + self.warp * STAGED_BYTES, self.lane) };
        // Not to be unrolled: the epilogue is long.
        let rows = bits::opaque(ROWS);
        let mut chunk = 0;
        while chunk < SUMS / SUMS_OF_CHUNK && self.col + chunk as u32 * CHUNK < n {
            let at = (self.row + self.warp * ROWS, self.col + chunk as u32 * CHUNK);
            // SAFETY: the caller's contract; all lanes meet between the writes to the chunk and the reads.
            unsafe {
                warp::sync_warp(u32::MAX);
                staged.leave(sums, chunk);
                warp::sync_warp(u32::MAX);
                if const { SUMS <= MOST_SCATTERED } {
                    staged.finish(finish, rows, at);
                } else {
                    staged.finish_sparing(finish, rows, at);
                }
            }
            chunk += 1;
        }
    }
}
