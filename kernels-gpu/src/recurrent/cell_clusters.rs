//! One step of 16-bit numbers with both products, by clusters of four blocks (sm_90a): for many units, of which [`cell()`](super::cell()) would
//! have every few read all of x and h.
//!
//! A cluster has `UNITS` units and [`CLUSTER_ROWS`] rows of the batch. Two of its blocks multiply x with w_ih, two h with w_hh, each half of
//! the terms. A thread fills `STAGES` stages of [`TERMS`] terms by the accelerator, a box for each gate and one of the rows; each warpgroup
//! multiplies 64 lines of the gates' units. Each block finishes a quarter of the rows, and is sent the others' sums of these into its shared memory.
//!
//! Launch: grid (4·clusters of units, groups of rows) in clusters of [`CLUSTER_BLOCKS`], [`cluster_cell_shared_bytes`] of dynamic shared memory; it
//! may be early.
//!
//! Floor: the weights once at the copy rate. Each block takes in its weights and its terms of the rows: of 1024 units and columns, with 40 units,
//! 184 KB (GRU), 19 MB in all.

use super::math::step;
use super::{GRU, TERMS, has};
use crate::inbox::Inbox;
use cuda_std::bits;
use cuda_std::dependent;
use cuda_std::plain_parameter;
use cuda_std::prelude::*;
use cuda_std::ring::{Ring, Turn};
use cuda_std::tile::{self, Tile};
use cuda_std::tma::TensorMap;
use cuda_std::warpgroup::{self, WarpgroupHalf};

/// Blocks of a cluster.
pub const CLUSTER_BLOCKS: u32 = 4;
/// Rows of the batch of a cluster.
pub const CLUSTER_ROWS: u32 = 64;
/// Warps of a warpgroup, and lines of the weights that one multiplies.
const WARPS: u32 = 4;
const LINES: u32 = 64;
/// Packs of a line's terms.
const PACKS: u32 = TERMS / 8;
/// Bytes of a line's terms, and of the rows' in a stage.
const LINE_BYTES: u32 = TERMS * 2;
const ROWS_BYTES: u32 = CLUSTER_ROWS * LINE_BYTES;
/// Sums of a lane.
const SUMS: usize = (CLUSTER_ROWS / 2) as usize;
/// Results of a thread, at most.
const RESULTS: usize = 3;

/// What an instance is made of.
#[derive(Clone, Copy)]
struct Form {
    /// Lines of the weights: of all gates' units.
    lines: u32,
    /// Units of a cluster.
    units: u32,
    /// Lines that all warpgroups multiply.
    room: u32,
}

impl Form {
    const fn new(gates: usize, units: usize) -> Form {
        let lines = (gates * units) as u32;
        Form { lines, units: units as u32, room: lines.next_multiple_of(LINES) }
    }

    /// Threads that multiply.
    const fn consumers(self) -> u32 {
        self.warps() * warp::SIZE
    }

    const fn warps(self) -> u32 {
        self.room / LINES * WARPS
    }

    const fn stage_bytes(self) -> u32 {
        self.room * LINE_BYTES + ROWS_BYTES
    }

    const fn gates(self) -> u32 {
        self.lines / self.units
    }

    /// Floats between the gates' sums of a row, and between rows: a lane's 8 units and 4 pairs of rows lie in 32 banks, where units are
    /// multiples of 8.
    const fn pitch(self) -> u32 {
        self.units + if self.gates() == GRU as u32 { 4 } else { 1 }
    }

    const fn row(self) -> u32 {
        self.gates() * self.pitch()
    }

    /// Floats of the sums of a block's rows.
    const fn share(self) -> u32 {
        CLUSTER_ROWS / CLUSTER_BLOCKS * self.row()
    }

    /// Bytes of the others' sums of these.
    const fn others_bytes(self) -> u32 {
        (CLUSTER_BLOCKS - 1) * self.share() * 4
    }
}

/// Bytes of shared memory: stages, of which a block's sums take the place, what others send, and barriers.
pub const fn cluster_cell_shared_bytes(gates: usize, units: usize, stages: usize) -> u32 {
    let form = Form::new(gates, units);
    stages as u32 * (form.stage_bytes() + Ring::<1>::BYTES) + Inbox::bytes(form.others_bytes())
}

/// What a cell is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ClusterCell {
    /// Rows of the batch.
    pub batch: u32,
    /// Columns of x.
    pub input: u32,
    /// Hidden units.
    pub hidden: u32,
    /// [`has::BIAS`] for b_ih, [`has::PRODUCT`] for b_hh.
    pub has: u32,
    /// [`TERMS`] terms each, of x and of h.
    pub chunks: [u32; 2],
}
plain_parameter!(ClusterCell);

/// The stages and their barriers.
#[derive(Clone, Copy)]
struct Stages<const GATES: usize, const UNITS: usize, const STAGES: usize> {
    ring: Ring<STAGES>,
    /// Sums, which take the place of the stages.
    inbox: Inbox,
}

impl<const GATES: usize, const UNITS: usize, const STAGES: usize> Stages<GATES, UNITS, STAGES> {
    const FORM: Form = Form::new(GATES, UNITS);

    /// # Safety
    /// The launch gives [`cluster_cell_shared_bytes`].
    #[inline(always)]
    unsafe fn new() -> Self {
        const {
            let sums = CLUSTER_BLOCKS * Self::FORM.share() * 4;
            assert!(sums <= STAGES as u32 * Self::FORM.stage_bytes());
            assert!(UNITS.is_multiple_of(8) && STAGES > 1);
            assert!((Self::FORM.room - Self::FORM.lines) * PACKS <= Self::FORM.consumers());
            let results = UNITS as u32 * CLUSTER_ROWS / CLUSTER_BLOCKS;
            assert!(results <= RESULTS as u32 * Self::FORM.consumers());
        }
        let (first, others) = const { (STAGES as u32 * Self::FORM.stage_bytes(), Self::FORM.others_bytes()) };
        // SAFETY: the caller's contract.
        unsafe {
            let inbox = Inbox::dynamic(first, others, Self::FORM.share());
            Stages { ring: Ring::dynamic(first + Inbox::bytes(others)), inbox }
        }
    }

    /// So many lines of the weights, from `first` on, a multiple of 8.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn weights<T: Half>(self, stage: u32, first: u32, lines: u32) -> Tile<T> {
        let at = stage * Self::FORM.stage_bytes() + first * LINE_BYTES;
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(at, lines, PACKS) }
    }

    /// The rows of the batch.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    unsafe fn rows<T: Half>(self, stage: u32) -> Tile<T> {
        let at = stage * Self::FORM.stage_bytes() + Self::FORM.room * LINE_BYTES;
        // SAFETY: the caller's contract.
        unsafe { Tile::dynamic_slabs(at, CLUSTER_ROWS, PACKS) }
    }

    /// Asks for a chunk of terms, in a stage that is empty.
    ///
    /// # Safety
    /// One thread calls; the maps are of the weights and of the rows.
    #[inline(always)]
    unsafe fn fetch<T: Half>(
        self,
        stage: u32,
        [weights, rows]: [TensorMap; 2],
        chunk: u32,
        (unit, row): (u32, u32),
    ) {
        let (full, term) = (self.ring.full(stage), (chunk * TERMS) as i32);
        // SAFETY: the caller's contract.
        unsafe {
            full.arrive_expecting(const { Self::FORM.lines * LINE_BYTES + ROWS_BYTES });
            for gate in 0..GATES as u32 {
                let at = [term, unit as i32, gate as i32, 0];
                self.weights::<T>(stage, gate * UNITS as u32, UNITS as u32)
                    .shared()
                    .load_box(0, weights, at, full);
            }
            self.rows::<T>(stage).shared().load_box(0, rows, [term, row as i32, 0, 0], full);
        }
    }
}

/// Takes a step.
///
/// # Safety
/// The tensors are as of [`cell()`](super::cell()), contiguous. The maps are of w_ih and w_hh `[GATES, hidden, columns]`, with boxes of
/// `UNITS` lines of a gate, and of x and h, with boxes of [`CLUSTER_ROWS`] lines, all of [`TERMS`] columns. The grid is as the module
/// says. Blocks are of whole warpgroups, of which the last has one warp that fills stages.
#[kernel(
    family = "recurrent_hopper",
    requires = "sm_90a",
    types = [f16, bf16],
    instances = [
        { GATES: 3, UNITS: 32, STAGES: 8; threads: 384, min_blocks: 1 },
        { GATES: 3, UNITS: 40, STAGES: 8; threads: 384, min_blocks: 1 },
        { GATES: 3, UNITS: 48, STAGES: 6; threads: 512, min_blocks: 1 },
        { GATES: 3, UNITS: 64, STAGES: 5; threads: 512, min_blocks: 1 },
        { GATES: 3, UNITS: 72, STAGES: 4; threads: 640, min_blocks: 1 },
        { GATES: 4, UNITS: 32, STAGES: 8; threads: 384, min_blocks: 1 },
        { GATES: 4, UNITS: 40, STAGES: 6; threads: 512, min_blocks: 1 },
        { GATES: 4, UNITS: 48, STAGES: 5; threads: 512, min_blocks: 1 },
        { GATES: 4, UNITS: 64, STAGES: 4; threads: 640, min_blocks: 1 },
        { GATES: 4, UNITS: 72, STAGES: 3; threads: 768, min_blocks: 1 },
    ],
)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn cluster_cell<T: WarpgroupHalf, const GATES: usize, const UNITS: usize, const STAGES: usize>(
    map_w_ih: TensorMap,
    map_x: TensorMap,
    map_w_hh: TensorMap,
    map_h: TensorMap,
    w_ih: Global<T>,
    w_hh: Global<T>,
    h: Global<T>,
    c: Global<T>,
    b_ih: Global<T>,
    b_hh: Global<T>,
    h_next: GlobalMut<T>,
    c_next: GlobalMut<T>,
    p: ClusterCell,
) {
    let (form, is_lstm) = const { (Form::new(GATES, UNITS), GATES != GRU) };
    let warps = const { Form::new(GATES, UNITS).warps() };
    // Known to be the same in all lanes.
    let warp = warp::warp_shuffle_idx(u32::MAX, warp::warp_id(), 0, 32).0;
    let (rank, thread) = (cluster::rank(), thread::thread_idx_x());
    let first_unit = thread::block_idx_x() / CLUSTER_BLOCKS * UNITS as u32;
    let first_row = thread::block_idx_y() * CLUSTER_ROWS;
    let of_h = rank >= CLUSTER_BLOCKS / 2;
    let chunks = if of_h { p.chunks[1] } else { p.chunks[0] };
    let half = chunks.div_ceil(2);
    let first = if rank % 2 == 0 { 0 } else { half };
    let turns = half.min(chunks - first);
    let fills = warp == warps && warp::lane_id() == 0;
    // SAFETY: the caller's contract. A stage is written between the ends of a phase of *empty* and of *full*, and read between the ends of
    // *full* and of the next phase of *empty*; at first all stages are empty.
    unsafe {
        let stages = Stages::<GATES, UNITS, STAGES>::new();
        let maps = if of_h { [map_w_hh, map_h] } else { [map_w_ih, map_x] };
        let place = (first_unit, first_row);
        if fills {
            stages.inbox.init();
            stages.ring.init(1, warps);
        }
        tile::expect_slabs();
        if const { Form::new(GATES, UNITS).lines < Form::new(GATES, UNITS).room } {
            // Lines that are multiplied and not looked at.
            let spare = form.room - form.lines;
            for stage in 0..STAGES as u32 {
                if thread < spare * PACKS {
                    let tile = stages.weights::<T>(stage, form.lines, spare);
                    tile.shared().set_pack(thread * T::PER_PACK as u32, [0; 4]);
                }
            }
            warpgroup::fence_copies();
        }
        // All blocks have made their barriers, which their own fence has made known.
        warp::sync_warp(u32::MAX);
        cluster::arrive_relaxed();
        cluster::wait();
        let (weight, columns) = if of_h { (w_hh, p.hidden) } else { (w_ih, p.input) };
        let terms = (first * TERMS, ((first + turns) * TERMS).min(columns));
        ask::<T, GATES, UNITS>(weight, first_unit, terms, (columns, p.hidden));
        // What is ahead of an early launch has its results from here on.
        dependent::wait();
        dependent::allow_next();
        if fills {
            for stage in 0..STAGES as u32 {
                if stage < turns {
                    stages.fetch::<T>(stage, maps, first + stage, place);
                }
            }
        }
        // While that is on its way, what the results need besides.
        let results = Results::<GATES, UNITS> { place, rank, p: &p };
        let mut beside = [Beside::NOTHING; RESULTS];
        if warp < warps {
            for i in 0..RESULTS {
                beside[i] = results.beside(i, [b_ih, b_hh], if is_lstm { c } else { h });
            }
        }
        thread::sync_threads();
        // Not known to be the number of before: the compiler would have the barrier twice, for those who multiply and for the others.
        let warp = bits::opaque(warp);
        let sums = stages.inbox.sums();
        if warp < warps {
            let own = multiply::<T, GATES, UNITS, STAGES>(stages, warp, turns);
            // All products are done with the stages.
            thread::sync_named(1, form.consumers());
            let lane = warp::lane_id();
            for i in 0..SUMS as u32 {
                let line = warp * 16 + lane / 4 + i / 2 % 2 * 8;
                let row = i / 4 * 8 + lane % 4 * 2 + i % 2;
                if line < form.lines {
                    let (gate, unit) = (line / UNITS as u32, line % UNITS as u32);
                    sums.set(row * form.row() + gate * form.pitch() + unit, own[i as usize]);
                }
            }
            // Rows are sent whole, with what lies between the gates.
            let mut spare = thread;
            while spare < GATES as u32 * CLUSTER_ROWS {
                for unit in UNITS as u32..form.pitch() {
                    sums.set(spare * form.pitch() + unit, 0.0);
                }
                spare += form.consumers();
            }
            warpgroup::fence_copies();
            thread::sync_named(1, form.consumers());
            if warp == 0 {
                stages.inbox.send();
            }
        } else if warp == warps {
            // All lanes go round: after a branch that one alone takes the compiler would have the cluster's barrier twice, for it and for the
            // others, and each would count as the warp.
            let (mut turn, mut stage) = (STAGES as u32, Turn::<STAGES>::first());
            while turn < turns {
                stages.ring.empty(stage.stage()).wait(stage.parity());
                if fills {
                    stages.fetch::<T>(stage.stage(), maps, first + turn, place);
                }
                stage = stage.next();
                turn += 1;
            }
        }
        if warp < warps {
            stages.inbox.wait();
        }
        // What others sent has come, so that they may end.
        warp::sync_warp(u32::MAX);
        cluster::arrive_relaxed();
        if warp < warps {
            let of_part = [0, 1, 2, 3].map(|part| stages.inbox.first_of(part));
            for i in 0..RESULTS {
                if let Some(to) = results.at(i) {
                    let (unit, row) = results.place_of(i);
                    let (mut gx, mut gh) = (beside[i].of_x, beside[i].of_h);
                    let row = row - rank * (CLUSTER_ROWS / CLUSTER_BLOCKS);
                    for gate in 0..GATES {
                        let at = row * form.row() + gate as u32 * form.pitch() + unit;
                        let of = |part: usize| sums.get(of_part[part] + at);
                        gx[gate] += of(0) + of(1);
                        gh[gate] += of(2) + of(3);
                    }
                    let state = beside[i].state;
                    let (next_h, next_c) = step(gx, gh, state, state);
                    h_next.set(to, T::from_f32(next_h));
                    if is_lstm {
                        c_next.set(to, T::from_f32(next_c));
                    }
                }
            }
        }
        // No block ends while what it sends is on its way.
        cluster::wait();
    }
}

/// Lines of memory, of [`TERMS`] each, that a block asks for of each row of its weights.
const LINES_ASKED: u32 = 4;

/// Lets the first lines of the block's weights come to L2: terms `k..end` of rows of `columns`.
#[inline(always)]
fn ask<T: Half, const GATES: usize, const UNITS: usize>(
    weight: Global<T>,
    first_unit: u32,
    (k, end): (u32, u32),
    (columns, hidden): (u32, u32),
) {
    // Neighbours of a row by neighbouring threads.
    let (mut row, line) = (thread::thread_idx_x() / LINES_ASKED, thread::thread_idx_x() % LINES_ASKED);
    let term = k + line * TERMS;
    while row < (GATES * UNITS) as u32 {
        let (gate, unit) = (row / UNITS as u32, first_unit + row % UNITS as u32);
        let at = (gate * hidden + unit) as usize * columns as usize + term as usize;
        weight.prefetch_if(unit < hidden && term < end, at);
        row += thread::block_dim_x() / LINES_ASKED;
    }
}

/// A lane's sums of the block's terms, by line of the weights and row of the batch as a warpgroup has them.
///
/// # Safety
/// All threads that multiply call; stages are filled.
#[inline(always)]
unsafe fn multiply<T: WarpgroupHalf, const GATES: usize, const UNITS: usize, const STAGES: usize>(
    stages: Stages<GATES, UNITS, STAGES>,
    warp: u32,
    turns: u32,
) -> [f32; SUMS] {
    let (mut place, mut turn) = (Turn::<STAGES>::first(), 0);
    let mut sums = [0.0f32; SUMS];
    // SAFETY: the caller's contract; products are waited for before their stage is empty.
    unsafe {
        while turn < turns {
            let stage = place.stage();
            stages.ring.full(stage).wait(place.parity());
            let weights = stages.weights::<T>(stage, warp / WARPS * LINES, LINES).rows_along_terms(0);
            let rows = stages.rows::<T>(stage).rows_along_terms(0);
            T::multiply_tiles::<SUMS, 0, 0>(&mut sums, weights, rows, turn > 0);
            // The products of the turn before are done.
            warpgroup::wait::<1>();
            stages.ring.empty(place.stage_before()).arrive_if(turn > 0 && warp::lane_id() == 0);
            place = place.next();
            turn += 1;
        }
        if turns > 0 {
            warpgroup::finish(&mut sums);
        }
    }
    sums
}

/// What the threads of a block finish: all units of a quarter of the cluster's rows.
#[derive(Clone, Copy)]
struct Results<'a, const GATES: usize, const UNITS: usize> {
    /// The cluster's first unit and first row.
    place: (u32, u32),
    rank: u32,
    p: &'a ClusterCell,
}

/// What a result needs beside sums.
#[derive(Clone, Copy)]
struct Beside<const GATES: usize> {
    /// Biases.
    of_x: [f32; GATES],
    of_h: [f32; GATES],
    /// Of a GRU h, of an LSTM c.
    state: f32,
}

impl<const GATES: usize> Beside<GATES> {
    const NOTHING: Self = Beside { of_x: [0.0; GATES], of_h: [0.0; GATES], state: 0.0 };
}

impl<const GATES: usize, const UNITS: usize> Results<'_, GATES, UNITS> {
    /// Rows of a block.
    const ROWS: u32 = CLUSTER_ROWS / CLUSTER_BLOCKS;

    /// The unit and the row of the thread's result `i` among the cluster's.
    #[inline(always)]
    fn place_of(&self, i: usize) -> (u32, u32) {
        let number = thread::thread_idx_x() + i as u32 * const { Form::new(GATES, UNITS).consumers() };
        (number % UNITS as u32, self.rank * Self::ROWS + number / UNITS as u32)
    }

    /// Where it is among all results, if it is one.
    #[inline(always)]
    fn at(&self, i: usize) -> Option<usize> {
        let (unit, row) = self.place_of(i);
        let (of_block, unit, row) = (row - self.rank * Self::ROWS, self.place.0 + unit, self.place.1 + row);
        let exists = of_block < Self::ROWS && row < self.p.batch && unit < self.p.hidden;
        exists.then_some(row as usize * self.p.hidden as usize + unit as usize)
    }

    /// # Safety
    /// The tensors are as of the kernel.
    #[inline(always)]
    unsafe fn beside<T: Float>(
        &self,
        i: usize,
        [b_ih, b_hh]: [Global<T>; 2],
        state: Global<T>,
    ) -> Beside<GATES> {
        let (p, mut beside, at) = (self.p, Beside::NOTHING, self.at(i));
        // SAFETY: the caller's contract; what does not exist is not read.
        let read = |of: Global<T>, when: bool, at: usize| unsafe {
            T::from_bits(of.get_bits_if(when, at, 0)).to_f32()
        };
        let unit = (self.place.0 + self.place_of(i).0) as usize;
        for gate in 0..GATES {
            let of_gate = gate * p.hidden as usize + unit;
            let has = |bit| at.is_some() && p.has & bit != 0;
            beside.of_x[gate] = read(b_ih, has(has::BIAS), of_gate);
            beside.of_h[gate] = read(b_hh, has(has::PRODUCT), of_gate);
        }
        beside.state = read(state, at.is_some(), at.unwrap_or(0));
        beside
    }
}
