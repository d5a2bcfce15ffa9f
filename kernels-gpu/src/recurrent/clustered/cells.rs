//! What the blocks of a cluster give one another: in each of them all of it.

use super::{CLUSTERED_BLOCKS, PARTS};
use crate::recurrent::LSTM;
use crate::recurrent::exchange::{CHUNK, POISON};
use cuda_std::cluster;
use cuda_std::prelude::*;

/// Words of a row of a chunk.
const ROW_WORDS: u32 = CHUNK / 2;
/// Packs of it.
const ROW_PACKS: u32 = ROW_WORDS / 4;
/// Words of a row of the chunks of all gates.
pub const ASIDE_WORDS: u32 = LSTM as u32 * ROW_WORDS;

/// Slots: of the step that is received, the one behind, which may come already, and two before, of which one is emptied.
const SLOTS: u32 = 4;

/// Words of all slots.
pub const fn words(chunks: u32, rows: u32) -> u32 {
    SLOTS * chunks * rows * ROW_WORDS
}

/// Slots of `[chunks][rows][CHUNK]` 16-bit numbers in the block's shared memory, of which each part of the columns has `PAIRS` chunks.
#[derive(Clone, Copy)]
pub struct Cells<const PAIRS: usize> {
    words: Shared<u32>,
    /// Rows of the cluster.
    pub rows: u32,
    /// Chunks that are sent; those behind are zeros.
    chunks: u32,
}

impl<const PAIRS: usize> Cells<PAIRS> {
    /// Chunks that there is room for.
    const ROOM: u32 = (PARTS * PAIRS) as u32;

    /// With nothing received yet: to be sent to when all of the cluster have passed a barrier. All threads of the block call.
    ///
    /// # Safety
    /// The launch gives [`words`] from byte `first` on.
    #[inline(always)]
    pub unsafe fn empty(first: u32, rows: u32, chunks: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let cells = Cells { words: Shared::dynamic(first, words(Self::ROOM, rows)), rows, chunks };
            let mut chunk = warp::warp_id();
            while chunk < SLOTS * Self::ROOM {
                let word = if chunk % Self::ROOM < chunks { POISON } else { 0 };
                let mut of_chunk = warp::lane_id();
                while of_chunk < rows * ROW_WORDS {
                    cells.words.store_relaxed(chunk * rows * ROW_WORDS + of_chunk, word);
                    of_chunk += warp::SIZE;
                }
                chunk += thread::block_dim_x() / warp::SIZE;
            }
            cells
        }
    }

    /// Parts of the columns that have chunks to receive: the others have nothing to wait for.
    #[inline(always)]
    pub fn receivers(&self) -> u32 {
        self.chunks.div_ceil(PAIRS as u32)
    }

    /// Where the slot of a step begins.
    #[inline(always)]
    fn slot(&self, step: u32) -> u32 {
        step % SLOTS * (Self::ROOM * self.rows * ROW_WORDS)
    }

    /// The first word of a row of a chunk, behind that of the slot.
    #[inline(always)]
    fn of_row(&self, chunk: u32, row: u32) -> u32 {
        (chunk * self.rows + row) * ROW_WORDS
    }

    /// Sends a row of a chunk to all blocks of the cluster, whose units the lanes have: the word of each even lane. All lanes call.
    ///
    /// # Safety
    /// Nobody else sends it, and all blocks have emptied its slot.
    #[inline(always)]
    pub unsafe fn send(&self, step: u32, chunk: u32, row: u32, word: u32) {
        let (lane, size) = (warp::lane_id(), cluster::size());
        let (of_row, first_rank) = (lane % ROW_PACKS, lane / ROW_PACKS);
        let mut pack = [0; 4];
        for i in 0..4 {
            pack[i] = warp::warp_shuffle_idx(u32::MAX, word, of_row * 8 + 2 * i as u32, warp::SIZE).0;
        }
        let at = self.slot(step) + self.of_row(chunk, row) + of_row * 4;
        for turn in 0..CLUSTERED_BLOCKS.div_ceil(warp::SIZE / ROW_PACKS) {
            let rank = first_rank + turn * (warp::SIZE / ROW_PACKS);
            if rank < size {
                // SAFETY: the caller's contract.
                unsafe { self.words.store_pack_relaxed_remote(rank, at, pack) };
            }
        }
    }

    /// Sends a row of `CHUNKS` chunks, the block's of every gate, to all blocks of the cluster: of each the word of each even lane. All lanes call.
    ///
    /// # Safety
    /// As [`Self::send`]; `aside` has room for the words, which all lanes have read that were there before.
    #[inline(always)]
    pub unsafe fn send_gates<const GATES: usize>(
        &self,
        step: u32,
        row: u32,
        words: [u32; GATES],
        aside: Shared<u32>,
    ) {
        let (lane, rank, size) = (warp::lane_id(), cluster::rank(), cluster::size());
        // SAFETY: the caller's contract.
        unsafe {
            for gate in 0..GATES {
                if lane % 2 == 0 {
                    aside.set(gate as u32 * ROW_WORDS + lane / 2, words[gate]);
                }
            }
            warp::sync_warp(u32::MAX);
            let (pack, first_rank) = (lane % (warp::SIZE / 2), lane / (warp::SIZE / 2));
            if pack < GATES as u32 * ROW_PACKS {
                let given = aside.get_pack(pack * 4);
                let chunk = pack / ROW_PACKS * size + rank;
                let at = self.slot(step) + self.of_row(chunk, row) + pack % ROW_PACKS * 4;
                for turn in 0..CLUSTERED_BLOCKS / 2 {
                    let rank = first_rank + 2 * turn;
                    if rank < size {
                        self.words.store_pack_relaxed_remote(rank, at, given);
                    }
                }
            }
        }
    }

    /// Where the lane's pack of the first chunk of a part is, behind the first word of the slot: that of the row of its column. Of the second half of the units
    /// columns change places by twos; beyond the rows they are those before again.
    #[inline(always)]
    fn of_lane(&self, part: u32, half: u32) -> u32 {
        let row = ((warp::lane_id() / ROW_PACKS) ^ half) & (self.rows - 1);
        self.of_row(part * PAIRS as u32, row) + warp::lane_id() % ROW_PACKS * 4
    }

    /// A part's chunks as lanes want them, as soon as all of them are there. All lanes call.
    ///
    /// # Safety
    /// They come.
    #[inline(always)]
    pub unsafe fn receive(&self, step: u32, (part, half): (u32, u32)) -> [Pack; PAIRS] {
        let first = self.slot(step) + self.of_lane(part, half);
        loop {
            let mut packs = [[0; 4]; PAIRS];
            // POISON is the largest.
            let mut largest = 0;
            for pair in 0..PAIRS {
                // SAFETY: the caller's contract.
                packs[pair] = unsafe { self.words.load_pack_relaxed(first + self.of_row(pair as u32, 0)) };
                let [a, b, c, d] = packs[pair];
                largest = largest.max(a.max(b).max(c.max(d)));
            }
            if !warp::warp_vote_any(u32::MAX, largest == POISON) {
                return packs;
            }
            thread::spin_wait();
        }
    }

    /// Empties the slot of two steps before of what one of both halves has received of a part: every second chunk.
    ///
    /// # Safety
    /// Something of this step has been received. So all of the block have received that of two steps before: who sent it had what this block sent behind. And what
    /// comes into this slot again is sent by those who have what this block sends behind the warp's next barrier.
    #[inline(always)]
    pub unsafe fn clear(&self, step: u32, (part, half): (u32, u32)) {
        let first = self.slot(step + SLOTS - 2) + self.of_lane(part, half);
        for turn in 0..PAIRS.div_ceil(2) as u32 {
            let pair = 2 * turn + half;
            let is_sent = (pair < PAIRS as u32) & (part * PAIRS as u32 + pair < self.chunks);
            if is_sent & (warp::lane_id() < self.rows * ROW_PACKS) {
                // SAFETY: the caller's contract.
                unsafe { self.words.store_pack_relaxed(first + self.of_row(pair, 0), [POISON; 4]) };
            }
        }
    }
}
