//! State of the blocks that an OS thread runs: lanes, warps, blocks, and which lane is running.
//!
//! All of it belongs to one OS thread (coroutines never migrate), hence cells and not locks.

use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, Yielder};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use crate::arena::Arena;
use crate::async_copy::Copies;
use crate::atomic::Scope;
use crate::bulk::Stores;
use crate::clock::{ClockMap, Clocks, IntMap};
use crate::fault::Stop;
use crate::launch::LaunchState;
use crate::mbarrier::Mbarrier;
use crate::stack::{LaneStack, Slab};
use crate::warpgroup::Products;
use crate::word;

pub(crate) type At = &'static Location<'static>;
pub(crate) type LaneCoroutine = Coroutine<(), (), (), LaneStack>;

pub(crate) const NONE: u8 = 0;
pub(crate) const BOUNDS: u8 = 1;
pub(crate) const FULL: u8 = 2;

/// Barriers of a block: 16 named ones (0 is the block's own), then the cluster's and the grid's.
pub(crate) const CLUSTER_BARRIER: usize = 16;
pub(crate) const GRID_BARRIER: usize = 17;
pub(crate) const BARRIERS: usize = 18;

/// What a lane that is not ready waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Nothing,
    Collective,
    Barrier(u8),
    Spin,
}

/// Laid out so that a switch touches two cache lines.
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub co: UnsafeCell<Option<LaneCoroutine>>,
    pub yielder: Cell<*const Yielder<(), ()>>,
    /// Linear index in the block, and the same as x, y, z.
    pub tid: Cell<u32>,
    pub wait: Cell<Wait>,
    pub quit: Cell<bool>,
    pub site: Cell<Option<At>>,
    pub idx: Cell<[u32; 3]>,
    pub spin_count: Cell<u32>,
    /// The canary of a stack without a guard page.
    pub canary: Cell<*const u64>,
    pub spin_addr: Cell<usize>,
    pub spin_value: Cell<u64>,
    pub trap: Cell<Option<CoroutineTrapHandler<()>>>,
    /// Addresses of the stack's lowest page.
    pub guard: Cell<(usize, usize)>,
    /// Scope and clock of the last release fence in this block, if any.
    pub fence: Cell<Option<(Scope, u32)>>,
    /// What relaxed loads have seen and an acquire fence would order.
    pub pending: RefCell<Option<Arc<ClockMap>>>,
    /// Asynchronous copies that it has not waited for.
    pub copies: RefCell<Option<Box<Copies>>>,
    /// Products of its warpgroup that it has not waited for.
    pub products: RefCell<Option<Box<Products>>>,
    /// Boxes that it stores and has not waited for.
    pub stores: RefCell<Option<Box<Stores>>>,
}

/// A collective that some lanes have reached.
#[derive(Clone)]
pub(crate) struct Slot {
    pub name: &'static str,
    pub mask: u32,
    pub arrived: u32,
    pub at: At,
}

pub(crate) struct Warp {
    pub lanes: [Lane; 32],
    pub slab: RefCell<Option<Arc<Slab>>>,
    /// Index in the block, and the block's index in the group.
    pub index: Cell<u32>,
    pub block: Cell<*const Block>,
    pub full: Cell<u32>,
    pub ready: Cell<u32>,
    pub live: Cell<u32>,
    pub spinning: Cell<u32>,
    /// Lanes whose body has begun and not ended.
    pub started: Cell<u32>,
    /// Some lane has met a fence.
    pub fenced: Cell<bool>,
    /// Some lane has copied or multiplied asynchronously.
    pub copied: Cell<bool>,
    /// The clock of the last proxy fence.
    pub proxy_fence: Cell<u32>,
    pub clock: Cell<u32>,
    /// Accesses of the own warp, own block and own cluster up to these clocks come before.
    pub warp_joined: Cell<u32>,
    pub joined: Cell<u32>,
    /// Clocks of the block's warps known through named barriers and atomics.
    pub seen: RefCell<Option<Box<Clocks>>>,
    /// Clocks of other blocks known through atomics.
    pub acquired: RefCell<Option<Arc<ClockMap>>>,
    /// Lane by lane, after a `sync_warp` of part of the warp.
    pub matrix: RefCell<Option<Box<[[u32; 32]; 32]>>>,
    pub values: UnsafeCell<[[u64; 2]; 32]>,
    pub results: UnsafeCell<[u64; 32]>,
    /// The collective that is filling: its mask, who has arrived, its place.
    pub mask: Cell<u32>,
    pub arrived: Cell<u32>,
    pub at: Cell<Option<At>>,
    pub name: Cell<&'static str>,
    /// Others that fill at the same time, when parts of the warp have gone different ways.
    pub slots: RefCell<Vec<Slot>>,
    pub more_slots: Cell<bool>,
    pub waiting: [Cell<u32>; BARRIERS],
    /// Where the first lane of the warp reached the block barrier that is filling.
    pub barrier_site: Cell<Option<At>>,
}

/// A block-wide barrier that is filling.
#[derive(Default)]
pub(crate) struct Barrier {
    pub arrived: Cell<u32>,
    pub expected: Cell<u32>,
    pub clocks: RefCell<Option<Box<Clocks>>>,
    pub acquired: RefCell<Option<Arc<ClockMap>>>,
}

pub(crate) struct Block {
    pub linear: Cell<u64>,
    pub masked: Cell<u32>,
    pub idx: Cell<[u32; 3]>,
    pub slot: Cell<usize>,
    pub live: Cell<u32>,
    pub barriers: [Barrier; 16],
    /// Named barriers were used.
    pub named: Cell<bool>,
    /// All accesses of the cluster up to this clock come before.
    pub cluster_joined: Cell<u32>,
    /// Shadow word of the last access that another block made to this one's shared memory.
    pub remote: Cell<u64>,
    pub count: Cell<u32>,
    pub count_result: Cell<u32>,
    /// Barriers in shared memory, by their address.
    pub mbarriers: RefCell<IntMap<u32, Mbarrier>>,
    pub arena: Arena,
}

/// A barrier over the blocks of a cluster or grid.
#[derive(Default)]
pub(crate) struct GroupBarrier {
    pub arrived: Cell<u64>,
}

/// What a lane reaches through the OS thread.
pub(crate) struct Ctx {
    pub level: Cell<u8>,
    pub parallel: Cell<bool>,
    pub stopping: Cell<bool>,
    pub in_lane: Cell<bool>,
    /// First clock of the launch, and its era.
    pub base: Cell<u32>,
    /// The highest clock that shadows of shared memory may hold from launches before the last.
    pub highest_clock: Cell<u32>,
    pub era: Cell<u64>,
    pub time: Cell<u64>,
    pub last_clock: Cell<u32>,
    /// Shadow word of the running lane, without site and flags.
    pub word: Cell<u64>,
    /// Accesses up to these clocks come before: those of the own block, of other blocks to global memory, of
    /// other blocks to shared memory. What they do not settle takes the slow path.
    pub joined: Cell<u32>,
    pub others: Cell<u32>,
    pub others_shared: Cell<u32>,
    pub lane: Cell<*const Lane>,
    pub warp: Cell<*const Warp>,
    pub block: Cell<*const Block>,
    /// Accesses until the clock on the wall is looked at.
    pub budget: Cell<u32>,
    pub started: Cell<Option<std::time::Instant>>,
    pub progress: Cell<u64>,
    pub switches: Cell<u64>,
    pub cluster: Cell<u32>,
    pub cluster_barriers: RefCell<Vec<GroupBarrier>>,
    pub grid_barrier: GroupBarrier,
    pub statics: RefCell<Vec<(usize, u32)>>,
    pub launch: Cell<*const LaunchState<'static>>,
    pub block_dim: Cell<[u32; 3]>,
    pub grid_dim: Cell<[u32; 3]>,
    pub n_blocks: Cell<usize>,
    /// Blocks and block shape that the lanes' indices were computed for.
    pub configured: Cell<(usize, [u32; 3])>,
    pub warps_per_block: Cell<usize>,
    pub threads: Cell<u32>,
    pub done: Cell<u64>,
    pub random: Cell<u64>,
    /// Boxed: lanes point at them while the vectors grow.
    #[allow(clippy::vec_box)]
    pub warps: RefCell<Vec<Box<Warp>>>,
    #[allow(clippy::vec_box)]
    pub blocks: RefCell<Vec<Box<Block>>>,
}

thread_local! {
    static CURRENT: Cell<*const Ctx> = const { Cell::new(ptr::null()) };
}

/// The state of this OS thread while it runs a launch.
#[inline]
pub(crate) fn ctx() -> &'static Ctx {
    let p = CURRENT.get();
    if p.is_null() {
        outside();
    }
    // SAFETY: `run` sets the pointer only while the state is alive and being run on this thread; the
    // reference never leaves a kernel call.
    unsafe { &*p }
}

#[cold]
#[inline(never)]
fn outside() -> ! {
    panic!("simt: device function called outside a launch");
}

pub(crate) fn current() -> *const Ctx {
    CURRENT.get()
}

pub(crate) fn set_current(p: *const Ctx) {
    CURRENT.set(p);
}

impl Ctx {
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        // SAFETY: set before a lane is resumed; warps are boxed and outlive the run.
        unsafe { &*self.lane.get() }
    }
    #[inline]
    pub(crate) fn warp(&self) -> &Warp {
        // SAFETY: as for `lane`.
        unsafe { &*self.warp.get() }
    }
    #[inline]
    pub(crate) fn block(&self) -> &Block {
        // SAFETY: as for `lane`.
        unsafe { &*self.block.get() }
    }
    pub(crate) fn launch(&self) -> &LaunchState<'static> {
        // SAFETY: the launch outlives the run of its blocks.
        unsafe { &*self.launch.get() }
    }

    /// Gives the OS thread to the next lane. Inlined into the kernel's frame: each `ret` executed after a
    /// switch of stacks is mispredicted.
    #[inline(always)]
    pub(crate) fn suspend(&self) {
        let yielder = self.lane().yielder.get();
        // SAFETY: the yielder lives at the root of the stack we are running on.
        unsafe { (*yielder).suspend(()) };
        if self.stopping.get() {
            unwind();
        }
    }

    /// Recomputes the running lane's shadow word after its warp's clock moved.
    #[inline]
    pub(crate) fn refresh(&self) {
        let (block, warp, lane) = (self.block(), self.warp(), self.lane());
        self.word.set(word::pack(block.masked.get(), warp.clock.get(), lane.tid.get()));
        self.joined.set(warp.joined.get());
    }

    /// Moves a warp's clock on. A clock at its limit stays there: everything then counts as ordered.
    #[inline]
    pub(crate) fn advance(&self, warp: &Warp, clock: u32) {
        let clock = clock.min(word::CLOCK_MAX - 1);
        warp.clock.set(clock);
        if clock > self.last_clock.get() {
            self.last_clock.set(clock);
        }
        if ptr::eq(warp, self.warp.get()) {
            self.refresh();
        }
    }

    /// Runs `act` as if another lane of the block did, so that what it accesses counts as that lane's.
    pub(crate) fn on_behalf<R>(
        &self,
        (lane, warp): (*const Lane, *const Warp),
        act: impl FnOnce() -> R,
    ) -> R {
        /// Restores the lane, however `act` ends.
        struct Back<'a>(&'a Ctx, *const Lane, *const Warp);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.lane.set(self.1);
                self.0.warp.set(self.2);
                self.0.refresh();
            }
        }
        let _back = Back(self, self.lane.replace(lane), self.warp.replace(warp));
        self.refresh();
        act()
    }

    pub(crate) fn block_index(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.grid_dim.get().map(u64::from);
        [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
    }

    pub(crate) fn thread_index(&self, tid: u32) -> [u32; 3] {
        let [x, y, _] = self.block_dim.get();
        [tid % x, tid / x % y, tid / x / y]
    }

    /// Block of the running lane's cluster with the given rank.
    pub(crate) fn cluster_block(&self, rank: u32) -> &Block {
        let slot = self.block().slot.get();
        let first = slot / self.cluster.get() as usize * self.cluster.get() as usize;
        let block: *const Block = &*self.blocks.borrow()[first + rank as usize];
        // SAFETY: blocks are boxed and outlive the run.
        unsafe { &*block }
    }

    /// Is the block with this number one of the running lane's cluster?
    pub(crate) fn in_cluster(&self, masked: u32) -> bool {
        let size = self.cluster.get();
        size > 1 && self.block().masked.get() / size == masked / size
    }

    /// Calls `f` for each warp of a block of the group.
    pub(crate) fn for_warps(&self, block: &Block, mut f: impl FnMut(&Warp)) {
        let per = self.warps_per_block.get();
        let first = block.slot.get() * per;
        for w in &self.warps.borrow()[first..first + per] {
            f(w);
        }
    }

    /// The next pseudo-random number of a seeded order.
    pub(crate) fn next_random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

#[cold]
#[inline(never)]
fn unwind() {
    if !std::thread::panicking() {
        std::panic::resume_unwind(Box::new(Stop));
    }
}

impl Lane {
    fn new() -> Lane {
        Lane {
            co: UnsafeCell::new(None),
            yielder: Cell::new(ptr::null()),
            quit: Cell::new(false),
            trap: Cell::new(None),
            guard: Cell::new((0, 0)),
            canary: Cell::new(ptr::null()),
            tid: Cell::new(0),
            idx: Cell::new([0; 3]),
            wait: Cell::new(Wait::Nothing),
            site: Cell::new(None),
            spin_addr: Cell::new(0),
            spin_value: Cell::new(0),
            spin_count: Cell::new(0),
            fence: Cell::new(None),
            pending: RefCell::new(None),
            copies: RefCell::new(None),
            products: RefCell::new(None),
            stores: RefCell::new(None),
        }
    }
}

impl Warp {
    pub(crate) fn new() -> Box<Warp> {
        Box::new(Warp {
            lanes: std::array::from_fn(|_| Lane::new()),
            slab: RefCell::new(None),
            index: Cell::new(0),
            block: Cell::new(ptr::null()),
            full: Cell::new(0),
            ready: Cell::new(0),
            live: Cell::new(0),
            spinning: Cell::new(0),
            started: Cell::new(0),
            fenced: Cell::new(false),
            copied: Cell::new(false),
            proxy_fence: Cell::new(0),
            clock: Cell::new(0),
            warp_joined: Cell::new(0),
            joined: Cell::new(0),
            seen: RefCell::new(None),
            acquired: RefCell::new(None),
            matrix: RefCell::new(None),
            values: UnsafeCell::new([[0; 2]; 32]),
            results: UnsafeCell::new([0; 32]),
            mask: Cell::new(0),
            arrived: Cell::new(0),
            at: Cell::new(None),
            name: Cell::new(""),
            slots: RefCell::default(),
            more_slots: Cell::new(false),
            waiting: Default::default(),
            barrier_site: Cell::new(None),
        })
    }

    /// The clocks known of the block's warps, to be raised.
    pub(crate) fn seen_mut(&self) -> std::cell::RefMut<'_, Box<Clocks>> {
        let joined = self.joined.get();
        std::cell::RefMut::map(self.seen.borrow_mut(), |s| s.get_or_insert_with(|| Box::new([joined; 32])))
    }
}

impl Block {
    pub(crate) fn new() -> Box<Block> {
        Box::new(Block {
            linear: Cell::new(0),
            masked: Cell::new(0),
            idx: Cell::new([0; 3]),
            slot: Cell::new(0),
            live: Cell::new(0),
            barriers: Default::default(),
            named: Cell::new(false),
            cluster_joined: Cell::new(0),
            remote: Cell::new(0),
            count: Cell::new(0),
            count_result: Cell::new(0),
            mbarriers: RefCell::default(),
            arena: Arena::new(),
        })
    }
}

impl Ctx {
    pub(crate) fn new() -> Box<Ctx> {
        Box::new(Ctx {
            level: Cell::new(NONE),
            parallel: Cell::new(false),
            stopping: Cell::new(false),
            in_lane: Cell::new(false),
            base: Cell::new(1),
            highest_clock: Cell::new(0),
            era: Cell::new(0),
            time: Cell::new(0),
            last_clock: Cell::new(0),
            word: Cell::new(0),
            joined: Cell::new(0),
            others: Cell::new(0),
            others_shared: Cell::new(0),
            lane: Cell::new(ptr::null()),
            warp: Cell::new(ptr::null()),
            block: Cell::new(ptr::null()),
            budget: Cell::new(0),
            started: Cell::new(None),
            progress: Cell::new(0),
            switches: Cell::new(0),
            cluster: Cell::new(1),
            cluster_barriers: RefCell::new(Vec::new()),
            grid_barrier: GroupBarrier::default(),
            statics: RefCell::new(Vec::new()),
            launch: Cell::new(ptr::null()),
            block_dim: Cell::new([0; 3]),
            grid_dim: Cell::new([0; 3]),
            n_blocks: Cell::new(0),
            configured: Cell::new((0, [0; 3])),
            warps_per_block: Cell::new(0),
            threads: Cell::new(0),
            done: Cell::new(0),
            random: Cell::new(0),
            warps: RefCell::new(Vec::new()),
            blocks: RefCell::new(Vec::new()),
        })
    }
}
