//! A launch: its shape, its limits, and its blocks handed out to OS threads.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::ctx::{self, BOUNDS, Ctx, FULL, NONE};
use crate::report::{Kind, Report};
use crate::site::Site;
use crate::{clock, fault, sched, signal};

/// How much a launch checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Checks {
    /// Shapes, barriers, masks and deadlocks only, which cost nothing.
    None,
    /// Bounds and alignment of accesses as well.
    Bounds,
    /// Initialisation and races as well.
    #[default]
    Full,
}

/// What the hardware allows; the defaults are those of an H100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads of a block.
    pub max_threads_per_block: u32,
    /// Shared memory of a block, dynamic and static, in bytes.
    pub max_shared_per_block: u32,
    /// Blocks along each axis.
    pub max_grid: [u32; 3],
    /// Threads along each axis.
    pub max_block: [u32; 3],
    /// Blocks of a cluster.
    pub max_cluster: u32,
    /// Multiprocessors, which bound a cooperative grid together with the next three.
    pub multiprocessors: u32,
    /// Threads resident on a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Blocks resident on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor; each block takes 1 KiB more than it asks for.
    pub shared_per_multiprocessor: u32,
    /// How long a thread may run without a barrier or collective.
    pub watchdog: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_threads_per_block: 1024,
            max_shared_per_block: 232_448,
            max_grid: [i32::MAX as u32, 65_535, 65_535],
            max_block: [1024, 1024, 64],
            max_cluster: 16,
            multiprocessors: 132,
            threads_per_multiprocessor: 2048,
            blocks_per_multiprocessor: 32,
            shared_per_multiprocessor: 233_472,
            watchdog: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// Blocks of this size that are resident at once: the largest cooperative grid.
    pub fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> u64 {
        let by_threads = self.threads_per_multiprocessor / threads.next_multiple_of(32).max(32);
        let by_shared = self.shared_per_multiprocessor / (shared_bytes + 1024);
        by_threads.min(by_shared).min(self.blocks_per_multiprocessor) as u64 * self.multiprocessors as u64
    }
}

/// What to launch.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Name of the kernel, for reports.
    pub kernel: &'a str,
    /// Blocks along each axis; a grid of no blocks does nothing.
    pub grid: [u32; 3],
    /// Threads of a block along each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of each block.
    pub shared_bytes: u32,
    /// Blocks of a cluster, along x; 0 or 1 for none.
    pub cluster: u32,
    /// Are all blocks live at once, so that `sync_grid` works?
    pub cooperative: bool,
    /// How much to check.
    pub checks: Checks,
    /// What the hardware allows.
    pub limits: Limits,
    /// Order of lanes, warps and blocks; 0 is the natural one, others keep some back until all others wait for them.
    pub seed: u64,
}

impl Launch<'_> {
    /// A launch with all checks, no shared memory, no clusters, in natural order.
    pub fn new(kernel: &str, grid: [u32; 3], block: [u32; 3]) -> Launch<'_> {
        Launch {
            kernel,
            grid,
            block,
            shared_bytes: 0,
            cluster: 1,
            cooperative: false,
            checks: Checks::Full,
            limits: Limits::default(),
            seed: 0,
        }
    }
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CUDA threads.
    pub threads: u64,
    /// Blocks.
    pub blocks: u64,
    /// Times that a lane was resumed.
    pub switches: u64,
}

/// A launch in progress, shared by the OS threads that run it.
pub(crate) struct LaunchState<'a> {
    pub kernel: &'a str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub cluster: u32,
    pub cooperative: bool,
    pub checks: Checks,
    pub limits: Limits,
    pub seed: u64,
    pub body: &'a (dyn Fn() + Sync),
    pub blocks: u64,
    pub time: u64,
    pub parallel: bool,
    /// Static shared arrays: identity, offset, end.
    pub statics: Mutex<Vec<(usize, u32, u32)>>,
    stop: AtomicBool,
    report: Mutex<Option<Report>>,
    /// A read of unwritten memory: kept back until the block ends, since it may turn out to be one half of a
    /// race, which says more.
    provisional: AtomicBool,
    suspect: Mutex<Option<Report>>,
    next: AtomicU64,
    /// OS threads at work, and how many of them only wait for the others.
    pub active: AtomicUsize,
    pub waiting: AtomicUsize,
    last_clock: AtomicU32,
    switches: AtomicU64,
}

impl LaunchState<'_> {
    /// Stops the launch; the first report is kept.
    pub(crate) fn stop_with(&self, report: Report) {
        let mut kept = self.report.lock().unwrap_or_else(|e| e.into_inner());
        kept.get_or_insert(report);
        self.stop.store(true, Ordering::Release);
    }

    /// Keeps a read of unwritten memory in mind.
    pub(crate) fn suspect(&self, report: Report) {
        let mut kept = self.suspect.lock().unwrap_or_else(|e| e.into_inner());
        kept.get_or_insert(report);
        self.provisional.store(true, Ordering::Release);
    }

    /// Has some thread read unwritten memory?
    pub(crate) fn is_suspect(&self) -> bool {
        self.provisional.load(Ordering::Relaxed)
    }

    /// What to report: a race explains a read of unwritten memory, anything else may be its consequence.
    fn verdict(&mut self) -> Option<Report> {
        let report = self.report.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        let suspect = self.suspect.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        match report {
            Some(r) if r.kind == Kind::Race => Some(r),
            report => suspect.or(report),
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Blocks that are live together: one, a cluster, or the grid.
    fn group(&self) -> u64 {
        if self.cooperative { self.blocks } else { self.cluster as u64 }
    }
}

thread_local! {
    static POOL: RefCell<Option<Box<Ctx>>> = const { RefCell::new(None) };
}

/// Runs a kernel over a grid. Stops at the first mistake and reports it.
///
/// Blocks run in parallel on rayon's threads, the blocks of a cluster or of a cooperative grid on one of them.
///
/// # Panics
/// When called by a kernel.
#[track_caller]
pub fn launch(l: &Launch, body: &(dyn Fn() + Sync)) -> Result<Stats, Box<Report>> {
    assert!(ctx::current().is_null(), "simt: launch inside a launch");
    let at = Location::caller();
    let blocks = l.grid.iter().map(|&n| n as u64).product::<u64>();
    if blocks == 0 {
        return Ok(Stats::default());
    }
    if let Some((kind, detail)) = refuse(l, blocks) {
        let (kernel, site) = (l.kernel.to_string(), Site::from(at));
        return Err(Box::new(Report {
            kind,
            kernel,
            block: [0; 3],
            thread: [0; 3],
            site,
            other: None,
            detail,
        }));
    }
    fault::install_hook();
    signal::install();
    let threads = l.block.iter().map(|&n| n as u64).product::<u64>();
    let cluster = l.cluster.max(1);
    let groups = if l.cooperative { 1 } else { blocks / cluster as u64 };
    let workers = if blocks * threads <= 2048 { 1 } else { groups.min(rayon::current_num_threads() as u64) };
    let mut state = LaunchState {
        kernel: l.kernel,
        grid: l.grid,
        block: l.block,
        shared_bytes: l.shared_bytes,
        cluster,
        cooperative: l.cooperative,
        checks: l.checks,
        limits: l.limits.clone(),
        seed: l.seed,
        body,
        blocks,
        time: clock::start(),
        parallel: workers > 1,
        statics: Mutex::default(),
        stop: AtomicBool::new(false),
        report: Mutex::default(),
        provisional: AtomicBool::new(false),
        suspect: Mutex::default(),
        next: AtomicU64::new(0),
        active: AtomicUsize::new(0),
        waiting: AtomicUsize::new(0),
        last_clock: AtomicU32::new(0),
        switches: AtomicU64::new(0),
    };
    if workers == 1 {
        work(&state, groups);
    } else {
        rayon::in_place_scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|_| work(&state, groups));
            }
        });
    }
    clock::finish(state.time, state.last_clock.load(Ordering::Acquire));
    match state.verdict() {
        Some(report) => Err(Box::new(report)),
        None => Ok(Stats { threads: blocks * threads, blocks, switches: state.switches.into_inner() }),
    }
}

/// Runs groups of blocks until none is left or the launch has stopped.
fn work(state: &LaunchState, groups: u64) {
    state.active.fetch_add(1, Ordering::AcqRel);
    let ctx = POOL.take().unwrap_or_else(Ctx::new);
    ctx.start_launch(state);
    let set = SetCurrent::new(&ctx);
    let order = Order::new(groups, state.seed);
    loop {
        let turn = state.next.fetch_add(1, Ordering::Relaxed);
        if turn >= groups || state.stopped() || state.is_suspect() {
            break;
        }
        if !sched::run_group(&ctx, order.at(turn) * state.group(), state.group() as usize) {
            break;
        }
    }
    drop(set);
    state.active.fetch_sub(1, Ordering::AcqRel);
    state.last_clock.fetch_max(ctx.last_clock.get(), Ordering::AcqRel);
    state.switches.fetch_add(ctx.switches.get(), Ordering::Relaxed);
    ctx.trim();
    POOL.set(Some(ctx));
}

/// Makes a state the OS thread's own for as long as it lives.
struct SetCurrent;

impl SetCurrent {
    fn new(ctx: &Ctx) -> SetCurrent {
        ctx::set_current(ctx);
        SetCurrent
    }
}

impl Drop for SetCurrent {
    fn drop(&mut self) {
        ctx::set_current(std::ptr::null());
    }
}

/// The order of the groups: natural, or an affine permutation chosen by the seed.
struct Order {
    n: u64,
    factor: u64,
    shift: u64,
}

impl Order {
    fn new(n: u64, seed: u64) -> Order {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let factor = if seed == 0 { 1 } else { (mixed % n..).find(|&f| gcd(f, n) == 1).unwrap_or(1) };
        Order { n, factor, shift: if seed == 0 { 0 } else { (mixed >> 32) % n } }
    }

    fn at(&self, turn: u64) -> u64 {
        ((turn as u128 * self.factor as u128 + self.shift as u128) % self.n as u128) as u64
    }
}

/// Why the hardware would refuse the launch.
fn refuse(l: &Launch, blocks: u64) -> Option<(Kind, String)> {
    let limits = &l.limits;
    let threads = l.block.iter().map(|&n| n as u64).product::<u64>();
    let refused = |what: String| Some((Kind::LaunchLimit, what));
    for axis in 0..3 {
        let (grid, block) = (l.grid[axis], l.block[axis]);
        let name = ["x", "y", "z"][axis];
        if grid > limits.max_grid[axis] {
            return refused(format!("{grid} blocks along {name}, the limit is {}", limits.max_grid[axis]));
        }
        if block == 0 || block > limits.max_block[axis] {
            return refused(format!(
                "{block} threads along {name}, the limits are 1 and {}",
                limits.max_block[axis]
            ));
        }
    }
    if threads > limits.max_threads_per_block.min(1024) as u64 {
        return refused(format!(
            "{threads} threads a block, the limit is {}",
            limits.max_threads_per_block.min(1024)
        ));
    }
    if l.cluster > limits.max_cluster {
        return refused(format!("{} blocks a cluster, the limit is {}", l.cluster, limits.max_cluster));
    }
    if !l.grid[0].is_multiple_of(l.cluster.max(1)) {
        return refused(format!("{} blocks along x do not divide into clusters of {}", l.grid[0], l.cluster));
    }
    if l.shared_bytes > limits.max_shared_per_block {
        let (want, have) = (l.shared_bytes, limits.max_shared_per_block);
        return Some((
            Kind::SharedLimit,
            format!("{want} bytes of dynamic shared memory a block, the limit is {have}"),
        ));
    }
    let resident = limits.resident_blocks(threads as u32, l.shared_bytes);
    if l.cooperative && blocks > resident {
        return refused(format!(
            "a cooperative grid of {blocks} blocks, at most {resident} are resident at once"
        ));
    }
    None
}

/// The level as the hot paths test it.
pub(crate) fn level(checks: Checks) -> u8 {
    match checks {
        Checks::None => NONE,
        Checks::Bounds => BOUNDS,
        Checks::Full => FULL,
    }
}
