//! Products of few tiles, on Hopper: small tiles, and the terms shared out among the blocks of a cluster.
//!
//! A multiprocessor takes in 64 bytes a cycle at most, so that a product of few tiles takes as long as one of them needs to
//! fetch its operands. Here the blocks of a cluster each take a part of k of the same tile. In the end each finishes some of the rows: the others
//! send it their sums of these, rows by rows from shared memory to shared memory, and it adds them up in the order of the parts. There is one launch, and partial
//! sums do not go through global memory. (Sums that are read out of the others' shared memory behind a barrier of the cluster take up to 1 µs longer, for that
//! barrier waits for memory; those written there in pieces of 32 bytes longer still.)
//!
//! `CONSUMERS` warpgroups multiply 64 rows each by 2·`SUMS` columns by `wgmma`, or where sums are turned 64 columns by as many rows; another fills `STAGES` stages of
//! lines of 128 bytes, which are [`PIPELINED_DEPTH`](super::PIPELINED_DEPTH) terms of 16 bits:
//!
//! | kernel | operands | fetched by |
//! | --- | --- | --- |
//! | [`clustered()`](fn@super::clustered) | as [`pipelined()`](fn@super::pipelined) | the accelerator |
//! | [`narrow()`](fn@super::narrow) | a along k; a consumer multiplies columns by all rows | the accelerator |
//! | [`narrow_f32()`](fn@super::narrow_f32) | f32, a along k; two warpgroups multiply half of the terms each, by `mma.sync`, and one warp fills stages | the accelerator |
//! | [`loose()`](fn@super::loose) | terms or lines are neighbours in memory, at any alignment | threads, four bytes or twice two at a time |
//!
//! Launch: 1-D grid of a cluster for each of the total of [`Blocks`](super::Blocks), of which the cluster's blocks are the splits: 1, 2, 4 or 8;
//! [`clustered_shared_bytes`] of dynamic shared memory. It may be early.

use super::Product;
use super::finish::{Finish, PACK};
use super::part::{LINE_BYTES, Part, depth_of, multiply};
use super::piped_tiles::PIPELINED_ROWS as ROWS;
use super::place::Place;
use crate::inbox::Inbox;
use cuda_std::dependent;
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile::{self, Tile};
use cuda_std::tma::{self, TensorMap};
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Most blocks of a cluster.
pub const CLUSTERED_MOST: u32 = 8;
/// Warps of a warpgroup.
pub(super) const WARPS: u32 = 4;
/// Elements of padding behind a row of sums: four rows of a fragment fall on different banks, and of those that are turned, which are few, two by two.
pub(super) const PAD: u32 = 8;

/// Bytes of a tile's sums.
const fn sums_bytes(rows: u32, cols: u32) -> u32 {
    rows * (cols + PAD) * 4
}

/// Bytes of its stages, and of its sums, which come where these were.
const fn room_bytes(rows: u32, cols: u32, stages: u32) -> u32 {
    let (stages, sums) = (stages * (rows + cols) * LINE_BYTES, sums_bytes(rows, cols));
    if stages > sums { stages } else { sums }
}

/// Bytes of the others' sums of a block's share of rows: of all parts but its own, at most.
const fn others_bytes(rows: u32, cols: u32) -> u32 {
    sums_bytes(rows, cols) / CLUSTERED_MOST * (CLUSTERED_MOST - 1)
}

/// Bytes of shared memory of an instance with tiles of `rows`×`cols`.
pub const fn clustered_shared_bytes(rows: u32, cols: u32, stages: u32) -> u32 {
    room_bytes(rows, cols, stages) + Inbox::bytes(others_bytes(rows, cols)) + stages * Ring::<1>::BYTES
}

/// What a block has in shared memory: stages, and then in their place the sums of its part in rows of the columns and
/// [`PAD`]; and barriers.
#[derive(Clone, Copy)]
pub(super) struct Room<const STAGES: usize, const A_K: usize, const B_K: usize> {
    pub part_a: Part<A_K>,
    pub part_b: Part<B_K>,
    inbox: Inbox,
    /// Blocks of the cluster, and rows that each of them finishes.
    size: u32,
    share: u32,
    pub ring: Ring<STAGES>,
}

impl<const STAGES: usize, const A_K: usize, const B_K: usize> Room<STAGES, A_K, B_K> {
    /// Makes the barriers: a stage is full when so many have arrived, and empty when so many warps have. One thread does `more` besides: behind a branch of its own
    /// the compiler would copy the barrier that follows into both arms.
    ///
    /// # Safety
    /// The launch has the memory. All threads call, and a barrier follows.
    #[inline(always)]
    pub unsafe fn new(
        rows: u32,
        cols: u32,
        p: &Product,
        share: u32,
        [fillers, readers]: [u32; 2],
        more: impl FnOnce(),
    ) -> Self {
        let (part_a, part_b) = (Part::new(rows, p.a), Part::new(cols, p.b));
        // SAFETY: the caller's contract.
        unsafe {
            let (room, others) = (room_bytes(rows, cols, STAGES as u32), others_bytes(rows, cols));
            let inbox = Inbox::dynamic(room, others, share * (cols + PAD));
            let ring = Ring::dynamic(room + Inbox::bytes(others));
            if thread::thread_idx_x() == 0 {
                inbox.init();
                ring.init(fillers, readers);
                more();
            }
            tile::expect_slabs();
            Room { part_a, part_b, inbox, size: cluster::size(), share, ring }
        }
    }

    #[inline(always)]
    pub const fn stage_bytes(self) -> u32 {
        self.part_a.bytes() + self.part_b.bytes()
    }

    /// # Safety
    /// The launch gives as much.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn tiles<T: Float>(self, stage: u32) -> (Tile<T>, Tile<T>) {
        let offset = stage * self.stage_bytes();
        // SAFETY: the caller's contract.
        unsafe { (self.part_a.tile(offset), self.part_b.tile(offset + self.part_a.bytes())) }
    }

    /// Has the accelerator fill `turns` stages with what lies from a row of a and a row of b on, the terms from `k` on.
    ///
    /// # Safety
    /// One thread calls; others read as many stages, and say when they have.
    #[inline(always)]
    pub unsafe fn fill<T: Float>(
        self,
        [map_a, map_b]: [TensorMap; 2],
        (first_row, first_col): (u32, u32),
        mut k: u32,
        turns: u32,
        place: Place,
    ) {
        let mut turn = Turn::<STAGES>::first();
        let mut left = turns;
        while left > 0 {
            // SAFETY: a stage is written between the ends of a phase of *empty* and of *full*.
            unsafe {
                // At first the phase before the first one is over.
                let full = self.ring.full(turn.stage());
                self.ring.empty(turn.stage()).wait(turn.parity() ^ 1);
                full.arrive_expecting(self.stage_bytes());
                let (tile_a, tile_b) = self.tiles::<T>(turn.stage());
                self.part_a.load(map_a, tile_a, first_row, k, place, full);
                self.part_b.load(map_b, tile_b, first_col, k, place, full);
            }
            turn = turn.next();
            k += depth_of::<T>();
            left -= 1;
        }
    }

    /// Multiplies `turns` stages, and leaves the sums in shared memory. A warpgroup multiplies 64 rows of a by all columns of b or, where sums are
    /// `TURNED`, 64 columns of b by all rows of a.
    ///
    /// # Safety
    /// The first warps call, as many as multiply; others fill as many stages, each when it is empty.
    #[inline(always)]
    pub unsafe fn multiply<T: WarpgroupHalf, const SUMS: usize, const TURNED: bool>(self, turns: u32) {
        // Known to be the same in all lanes.
        let (lane, warp) = (warp::lane_id(), warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0);
        let mut turn = Turn::<STAGES>::first();
        let mut sums = [0.0f32; SUMS];
        let mut done = 0;
        // SAFETY: a stage is read between the ends of a phase of *full* and of *empty*. A sum is one lane's.
        unsafe {
            while done < turns {
                self.ring.full(turn.stage()).wait(turn.parity());
                let (tile_a, tile_b) = self.tiles::<T>(turn.stage());
                let (own, more) = (warp / WARPS * ROWS, done > 0);
                if const { TURNED } {
                    let (of_a, of_b) = (self.part_a.operand(tile_a, 0), self.part_b.operand(tile_b, own));
                    multiply::<T, SUMS, B_K, A_K>(&mut sums, of_b, of_a, more);
                } else {
                    let (of_a, of_b) = (self.part_a.operand(tile_a, own), self.part_b.operand(tile_b, 0));
                    multiply::<T, SUMS, A_K, B_K>(&mut sums, of_a, of_b, more);
                }
                // The products of the turn before are done.
                warpgroup::wait::<1>();
                self.ring.empty(turn.stage_before()).arrive_if(more && lane == 0);
                turn = turn.next();
                done += 1;
            }
            warpgroup::finish(&mut sums);
            self.put::<SUMS, TURNED>(&sums);
            self.send::<TURNED>();
        }
    }

    /// Threads of those that multiply who have the sums in the end: the first.
    #[inline(always)]
    const fn holders<const TURNED: bool>(self) -> u32 {
        (if const { TURNED } { self.part_b.width } else { self.part_a.width }) / ROWS * WARPS * 32
    }

    /// Of a warp's lane's sum `i`, row and column in the tile.
    #[inline(always)]
    pub fn place_of<const TURNED: bool>(self, warp: u32, i: u32) -> (u32, u32) {
        let lane = warp::lane_id();
        let (down, across) = (warp * 16 + lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i / 4 * 8 + i % 2);
        if const { TURNED } { (across, down) } else { (down, across) }
    }

    /// Where the sum of a row and column of the tile lies, of the part's own.
    #[inline(always)]
    pub fn own(self, (row, col): (u32, u32)) -> u32 {
        row * (self.part_b.width + PAD) + col
    }

    /// The part's own sums.
    #[inline(always)]
    pub fn sums(self) -> Shared<f32> {
        self.inbox.sums()
    }

    /// Leaves sums in shared memory, in the place of stages.
    ///
    /// # Safety
    /// The first [`Self::holders`] threads call, when all have read what they will. Barrier 1 is theirs.
    #[inline(always)]
    pub unsafe fn put<const SUMS: usize, const TURNED: bool>(self, sums: &[f32; SUMS]) {
        // SAFETY: the caller's contract.
        unsafe {
            // Nobody reads stages any more.
            thread::sync_named(1, self.holders::<TURNED>());
            for i in 0..SUMS / 2 {
                let (one, two) = (sums[2 * i], sums[2 * i + 1]);
                let (row, col) = self.place_of::<TURNED>(warp::warp_id(), 2 * i as u32);
                let at = self.own((row, col));
                if const { TURNED } {
                    self.sums().set(at, one);
                    self.sums().set(self.own((row + 1, col)), two);
                } else {
                    self.sums().set_8(at, [one.to_bits(), two.to_bits()]);
                }
            }
        }
    }

    /// Sends the others of the cluster their shares of the sums.
    ///
    /// # Safety
    /// As [`Self::put`], which has left them.
    #[inline(always)]
    pub unsafe fn send<const TURNED: bool>(self) {
        if self.size > 1 {
            let (rows, cols) = (self.part_a.width, self.part_b.width);
            // Rows are sent whole.
            let (row, half) = (thread::thread_idx_x() / 2, thread::thread_idx_x() % 2);
            // SAFETY: within the sums; the rest is the caller's contract.
            unsafe {
                if const { !TURNED } || row < rows {
                    self.sums().set_pack(self.own((row, cols)) + half * 4, [0; 4]);
                }
                tma::fence_writes();
                thread::sync_named(1, self.holders::<TURNED>());
                // Known to be the same in all lanes.
                if warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0 == 0 {
                    self.inbox.send();
                }
            }
        }
    }

    /// The sums of a pack of results of all parts, from number `at` of the share on.
    ///
    /// # Safety
    /// All parts are there.
    #[inline(always)]
    unsafe fn pack<T: Float>(self, at: u32) -> [f32; PACK] {
        let mut pack = [0.0f32; PACK];
        for part in 0..self.size {
            let first = self.inbox.first_of(part) + at;
            let mut sums = [[0; 4]; PACK / 4];
            for i in 0..T::PER_PACK / 4 {
                // SAFETY: the caller's contract.
                sums[i] = unsafe { self.sums().get_pack(first + i as u32 * 4) };
            }
            for i in 0..T::PER_PACK {
                pack[i] += f32::from_bits(sums[i / 4][i % 4]);
            }
        }
        pack
    }

    /// Sums of all parts, each by itself.
    ///
    /// # Safety
    /// As [`Self::pack`].
    #[inline(always)]
    unsafe fn each<const N: usize>(self, at: [u32; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        for part in 0..self.size {
            let first = self.inbox.first_of(part);
            for i in 0..N {
                // SAFETY: the caller's contract.
                sums[i] += unsafe { self.sums().get(first + at[i]) };
            }
        }
        sums
    }

    /// [`Self::finish`] of so many rows that are columns of the result, of which a row's neighbours go to neighbouring threads.
    ///
    /// # Safety
    /// As [`Self::finish`]; all parts are there.
    #[inline(always)]
    unsafe fn finish_columns<T: Float>(
        self,
        finish: Finish<T>,
        share: u32,
        (first_row, first_col): (u32, u32),
        (thread, threads): (u32, u32),
    ) {
        let (rows, cols, per_pack) = (self.part_a.width, self.part_b.width, T::PER_PACK as u32);
        // A pack of the result is of neighbouring rows here.
        let packed = finish.is_packed() && share.is_multiple_of(per_pack);
        let (of_column, times) = if packed { (rows / per_pack, per_pack) } else { (rows, 1) };
        // As many turns for all threads: where these differ, the assembler has the lanes of all of the kernel meet in the end, and yield while they wait for
        // stages, which takes an f32 product of 4096² 0.8 µs.
        let mut first = 0;
        while first < of_column * cols {
            let next = first + thread;
            let (row, col) = (next % of_column * times, next / of_column);
            let (down, across) = (first_col + col, first_row + row);
            let exists = row < share && col < cols;
            // SAFETY: within the sums, and the result; the rest is the caller's contract.
            unsafe {
                if exists && packed {
                    let each = |i: u32| self.each([self.own((row + i, col))])[0];
                    let all = || {
                        let mut sums = [0.0; PACK];
                        for i in 0..T::PER_PACK {
                            sums[i] = each(i as u32);
                        }
                        sums
                    };
                    finish.pack(down, across, all, |i| (down, across + i), each);
                } else if exists && finish.is_within(down, across) {
                    let [sum] = self.each([self.own((row, col))]);
                    finish.one_of_few((across, down), sum);
                }
            }
            first += threads;
        }
    }

    /// Adds up the block's share of rows, in the order of the parts, and finishes them.
    ///
    /// # Safety
    /// All threads of all blocks of the cluster call, of which the first `threads` do it. The rest is as [`Finish::pack`].
    #[inline(always)]
    pub unsafe fn finish<T: Float, const SUMS: usize, const TURNED: bool>(
        self,
        finish: Finish<T>,
        (first_row, first_col): (u32, u32),
        threads: u32,
    ) {
        let cols = self.part_b.width;
        let (per_pack, pitch) = (T::PER_PACK as u32, cols + PAD);
        let packs = cols / per_pack;
        let thread = thread::thread_idx_x();
        let (size, share) = (self.size, if thread < threads { self.share } else { 0 });
        let first_row = first_row + cluster::rank() * self.share;
        thread::sync_threads();
        // SAFETY: within the sums, all of which have come; the rest is the caller's contract.
        unsafe {
            if size > 1 {
                self.inbox.wait();
                // What others sent has come, so that they may end.
                cluster::arrive_relaxed();
            }
            if const { TURNED } && finish.is_by_columns() {
                self.finish_columns(finish, share, (first_row, first_col), (thread, threads));
            } else if finish.is_packed() {
                let (mut row, col) = (thread / packs, thread % packs * per_pack);
                while row < share {
                    let at = row * pitch + col;
                    let all = || self.pack::<T>(at);
                    let one = |i: u32| self.each([at + i])[0];
                    let place = |i: u32| (first_row + row, first_col + col + i);
                    finish.pack(first_row + row, first_col + col, all, place, one);
                    row += threads / packs;
                }
            } else {
                // One part has a loop of its own in large tiles, which have many rows; in small ones its instructions would take longer to
                // come than they save.
                let of_one = |at: [u32; 4]| at.map(|at| self.sums().get(at));
                let places = |rows: [u32; 4], col: u32| rows.map(|row| row * pitch + col);
                let (first, extents, thread) = ((first_row, first_col), (share, cols), (thread, threads));
                if const { SUMS > 32 } && size == 1 {
                    finish.columns(first, extents, thread, |rows, col| of_one(places(rows, col)));
                } else {
                    let sums = |at| if size == 1 { of_one(at) } else { self.each(at) };
                    finish.columns(first, extents, thread, |rows, col| sums(places(rows, col)));
                }
            }
        }
        if size > 1 {
            // No block ends while what it sends is on its way.
            cluster::wait();
        }
    }
}

/// Rows that each block of the cluster finishes, of the tile of `rows` from `first_row` on, as far as there are any of all `m`.
#[inline(always)]
pub(super) fn share_of(rows: u32, first_row: u32, m: u32) -> u32 {
    let (left, size) = (m - first_row, cluster::size());
    // Sizes are powers of two.
    ((if left < rows { left } else { rows }) + size - 1) >> size.trailing_zeros()
}

/// The block's tile and its part of the terms, from where on and how many stages.
#[inline(always)]
pub(super) fn part_of<T>(p: &Product) -> (Place, u32, u32) {
    let place = p.blocks.at(cluster::index());
    let (k, end) = p.terms(cluster::rank());
    (place, k, (end - k).div_ceil(depth_of::<T>()))
}

/// Waits for the block's barriers, and for what came before this launch.
#[inline(always)]
pub(super) fn begin() {
    thread::sync_threads();
    if cluster::size() > 1 {
        // Barriers are known to the cluster by their own fence.
        cluster::arrive_relaxed();
        cluster::wait();
    }
    dependent::wait();
    dependent::allow_next();
}
