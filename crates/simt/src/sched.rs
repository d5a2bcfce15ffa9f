//! Running a group of blocks: which lane next, and what to say when there is none.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::ctx::{Block, CLUSTER_BARRIER, Ctx, GRID_BARRIER, GroupBarrier, Wait, Warp};
use crate::fault::{self, other_of_lane};
use crate::launch::{LaunchState, level};
use crate::report::{Kind, Other};
use crate::site::Site;
use crate::word::{BLOCK_MASK, CLOCK_MAX};

/// How long all OS threads may wait for one another before that is a report.
const STUCK: Duration = Duration::from_millis(150);

impl Ctx {
    /// Takes over a launch's shape.
    pub(crate) fn start_launch(&self, l: &LaunchState) {
        let threads = l.block.iter().product::<u32>();
        self.drop_stale_shadows(l);
        self.level.set(level(l.checks));
        self.parallel.set(l.parallel);
        self.stopping.set(false);
        self.time.set(l.time);
        self.base.set((l.time % (CLOCK_MAX as u64 + 1)) as u32);
        self.era.set(crate::clock::era(l.time));
        self.last_clock.set(self.base.get());
        self.switches.set(0);
        self.statics.borrow_mut().clear();
        self.launch.set(std::ptr::from_ref(l).cast());
        self.block_dim.set(l.block);
        self.grid_dim.set(l.grid);
        self.cluster.set(l.cluster);
        self.threads.set(threads);
        self.warps_per_block.set(threads.div_ceil(32) as usize);
        self.random.set(l.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// Forgets the shadows of shared memory where clocks of an earlier launch could pass for this one's:
    /// launches that overlap in time have overlapping clocks, and this context may have worked for the
    /// other one last.
    fn drop_stale_shadows(&self, l: &LaunchState) {
        let highest = self.highest_clock.get().max(self.last_clock.get());
        if self.time.get() == l.time {
            // More work for the same launch: its count of clocks starts again, and what it came to must be kept.
            self.highest_clock.set(highest);
            return;
        }
        let base = (l.time % (CLOCK_MAX as u64 + 1)) as u32;
        // Of another era the present one has no clocks, but a launch of that era may come back here.
        if self.era.get() != crate::clock::era(l.time) || highest >= base {
            self.blocks.borrow().iter().for_each(|block| block.arena.free_shadow());
            self.highest_clock.set(0);
        } else {
            self.highest_clock.set(highest);
        }
    }

    /// Readies lanes for the blocks from `first` on.
    fn start_group(&self, first: u64, n: usize) {
        let (threads, per) = (self.threads.get(), self.warps_per_block.get());
        let (mut blocks, mut warps) = (self.blocks.borrow_mut(), self.warps.borrow_mut());
        while blocks.len() < n {
            blocks.push(Block::new());
        }
        while warps.len() < n * per {
            warps.push(Warp::new());
            self.configured.set((0, [0; 3]));
        }
        let configured = self.configured.get();
        let fresh = configured.1 != self.block_dim.get() || configured.0 < n;
        let (dynamic, limit) =
            (self.launch().shared_bytes as usize, self.launch().limits.max_shared_per_block);
        for (slot, block) in blocks[..n].iter().enumerate() {
            let linear = first + slot as u64;
            block.linear.set(linear);
            block.masked.set((linear & BLOCK_MASK) as u32);
            block.idx.set(self.block_index(linear));
            block.slot.set(slot);
            block.live.set(threads);
            block.cluster_joined.set(self.base.get() - 1);
            block.count.set(0);
            block.remote.set(0);
            block.barriers[0].arrived.set(0);
            block.mbarriers.borrow_mut().clear();
            if block.named.replace(false) {
                block.barriers.iter().for_each(|b| {
                    b.arrived.set(0);
                    b.clocks.take();
                    b.acquired.take();
                });
            }
            block.arena.start(dynamic, limit as usize, linear & !BLOCK_MASK);
            for (index, warp) in warps[slot * per..(slot + 1) * per].iter().enumerate() {
                self.start_warp(warp, block, index as u32, fresh);
            }
        }
        if fresh {
            self.configured.set((n, self.block_dim.get()));
        }
        self.n_blocks.set(n);
        self.done.set(0);
        self.others.set(self.base.get() - 1);
        self.others_shared.set(if self.cluster.get() == 1 { u32::MAX } else { self.base.get() - 1 });
        self.grid_barrier.arrived.set(0);
        if self.cluster.get() > 1 || n > 1 {
            let mut barriers = self.cluster_barriers.borrow_mut();
            barriers.clear();
            barriers.resize_with(n, GroupBarrier::default);
        } else if self.cluster_barriers.borrow().is_empty() {
            self.cluster_barriers.borrow_mut().push(GroupBarrier::default());
        } else {
            self.cluster_barriers.borrow()[0].arrived.set(0);
        }
    }

    fn start_warp(&self, warp: &Warp, block: &Block, index: u32, fresh: bool) {
        let lanes = (self.threads.get() - 32 * index).min(32);
        let full = u32::MAX >> (32 - lanes);
        warp.index.set(index);
        warp.block.set(block);
        warp.full.set(full);
        warp.ready.set(full);
        warp.live.set(full);
        warp.spinning.set(0);
        warp.started.set(0);
        warp.clock.set(self.base.get());
        warp.proxy_fence.set(self.base.get() - 1);
        warp.warp_joined.set(self.base.get() - 1);
        warp.joined.set(self.base.get() - 1);
        if warp.seen.borrow().is_some() {
            warp.seen.replace(None);
        }
        if warp.acquired.borrow().is_some() {
            warp.acquired.replace(None);
        }
        if warp.matrix.borrow().is_some() {
            warp.matrix.replace(None);
        }
        warp.arrived.set(0);
        if warp.more_slots.replace(false) {
            warp.slots.borrow_mut().clear();
        }
        warp.waiting.iter().for_each(|w| w.set(0));
        warp.barrier_site.set(None);
        if warp.copied.replace(false) {
            warp.lanes.iter().for_each(|lane| {
                drop(lane.copies.take());
                drop(lane.products.take());
                drop(lane.stores.take());
            });
        }
        let fenced = warp.fenced.replace(false);
        if fresh || fenced {
            for (i, lane) in warp.lanes.iter().enumerate() {
                let tid = 32 * index + i as u32;
                lane.tid.set(tid);
                lane.idx.set(self.thread_index(tid));
                lane.fence.set(None);
                lane.pending.take();
            }
        }
    }

    /// Points the context at a lane that is not running, so that a report names it.
    fn point_at(&self, warp: &Warp, index: usize) {
        self.lane.set(&warp.lanes[index]);
        self.warp.set(warp);
        self.block.set(warp.block.get());
    }
}

/// Runs blocks to their end; false when the launch has stopped.
pub(crate) fn run_group(ctx: &Ctx, first: u64, n: usize) -> bool {
    ctx.start_group(first, n);
    let total = n as u64 * ctx.threads.get() as u64;
    let n_warps = n * ctx.warps_per_block.get();
    let warps: Vec<*const Warp> =
        ctx.warps.borrow()[..n_warps].iter().map(|w| std::ptr::from_ref(&**w)).collect();
    let (mut patience, mut held) = (Patience::default(), Held::next(ctx, n));
    while ctx.done.get() < total {
        let mut ran = false;
        let start = if ctx.random.get() == 0 { 0 } else { ctx.next_random() as usize % n_warps };
        for i in 0..n_warps {
            let i = if start + i < n_warps { start + i } else { start + i - n_warps };
            // SAFETY: the warps are boxed and stay for the run.
            let warp = unsafe { &*warps[i] };
            if warp.ready.get() != 0 && !held.holds(i, ctx.warps_per_block.get()) {
                ran = true;
                run_warp(ctx, warp);
                if ctx.stopping.get() {
                    break;
                }
            }
        }
        if held == Held::Nobody {
            if !ran && !ctx.stopping.get() {
                patience.no_lane_ready(ctx, &warps);
            }
            held = Held::next(ctx, n);
        } else if !ran && !patience.woken(ctx, all(&warps)) {
            // Nobody comes further without them.
            held = Held::Nobody;
        }
        if ctx.stopping.get() || ctx.launch().stopped() {
            patience.finish(ctx);
            tear_down(ctx, &warps);
            return false;
        }
    }
    patience.finish(ctx);
    true
}

/// Warps that a seeded order keeps back until all others have come as far as they do without them: what runs ahead of them by more than
/// it may is found so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nobody,
    Block(usize),
    /// Those whose number, modulo 64, has a bit.
    Warps(u64),
}

impl Held {
    /// A choice for a group of so many blocks; nobody in the natural order.
    fn next(ctx: &Ctx, blocks: usize) -> Held {
        if ctx.random.get() == 0 {
            return Held::Nobody;
        }
        let random = ctx.next_random();
        if random.is_multiple_of(2) && blocks > 1 {
            return Held::Block((random / 2) as usize % blocks);
        }
        Held::Warps(random << 32 | ctx.next_random())
    }

    fn holds(self, warp: usize, per_block: usize) -> bool {
        match self {
            Held::Nobody => false,
            Held::Block(block) => warp / per_block == block,
            Held::Warps(bits) => bits >> (warp % 64) & 1 != 0,
        }
    }
}

/// Runs the lanes of a warp until none is ready.
fn run_warp(ctx: &Ctx, warp: &Warp) {
    let mut cursor = 0;
    while warp.ready.get() != 0 && !ctx.stopping.get() {
        let ready = warp.ready.get();
        if ctx.random.get() != 0 {
            cursor = ctx.next_random() as u32 % 32;
        }
        let after = ready & (u32::MAX << cursor);
        let index = if after != 0 { after.trailing_zeros() } else { ready.trailing_zeros() };
        cursor = (index + 1) % 32;
        ctx.resume(warp, index as usize);
    }
}

/// Unwinds the lanes that have begun and not ended.
#[cold]
fn tear_down(ctx: &Ctx, warps: &[*const Warp]) {
    ctx.stopping.set(true);
    for &warp in warps {
        // SAFETY: the warps are boxed and stay for the run.
        let warp = unsafe { &*warp };
        while warp.started.get() != 0 {
            ctx.resume(warp, warp.started.get().trailing_zeros() as usize);
        }
        warp.arrived.set(0);
        warp.slots.borrow_mut().clear();
    }
    // Barriers may hold arrivals of lanes that are gone.
    ctx.blocks.borrow().iter().for_each(|b| b.named.set(true));
}

/// The warps of a group.
fn all(warps: &[*const Warp]) -> impl Iterator<Item = &Warp> + Clone {
    // SAFETY: the warps are boxed and stay for the run.
    warps.iter().map(|&warp| unsafe { &*warp })
}

/// Lets all that poll try again.
fn wake<'a>(warps: impl Iterator<Item = &'a Warp>) {
    warps.for_each(|w| w.ready.set(w.ready.get() | w.spinning.replace(0)));
}

/// What to do while lanes wait.
#[derive(Default)]
struct Patience {
    progress: Option<u64>,
    rounds: u64,
    waiting: bool,
    stuck_since: Option<Instant>,
}

impl Patience {
    /// No lane can run: lets those that poll try again, or reports.
    #[cold]
    fn no_lane_ready(&mut self, ctx: &Ctx, warps: &[*const Warp]) {
        let warps = || all(warps);
        let spinning: u32 = warps().map(|w| w.spinning.get().count_ones()).sum();
        if spinning == 0 {
            return stalled(ctx, warps());
        }
        if self.woken(ctx, warps()) {
            return;
        }
        self.rounds += 1;
        let enough = self.rounds >= (2_000_000 / spinning as u64).clamp(100, 50_000);
        if enough && (!ctx.launch().parallel || self.others_stuck(ctx)) {
            return spin(ctx, warps());
        }
        wake(warps());
    }

    /// Lets those that poll try again where something has changed since they last did.
    fn woken<'a>(&mut self, ctx: &Ctx, warps: impl Iterator<Item = &'a Warp> + Clone) -> bool {
        let progress = ctx.progress.get();
        let woken = self.progress != Some(progress) && warps.clone().any(|w| w.spinning.get() != 0);
        if woken {
            self.progress = Some(progress);
            self.rounds = 0;
            self.finish(ctx);
            wake(warps);
        }
        woken
    }

    /// Waits a little for other OS threads; true when they all have waited, too, for long.
    fn others_stuck(&mut self, ctx: &Ctx) -> bool {
        let launch = ctx.launch();
        if !self.waiting {
            self.waiting = true;
            launch.waiting.fetch_add(1, Ordering::AcqRel);
        }
        std::thread::sleep(Duration::from_micros(50));
        if launch.waiting.load(Ordering::Acquire) < launch.active.load(Ordering::Acquire) {
            self.stuck_since = None;
            return false;
        }
        self.stuck_since.get_or_insert_with(Instant::now).elapsed() > STUCK
    }

    /// This OS thread makes progress again.
    fn finish(&mut self, ctx: &Ctx) {
        self.stuck_since = None;
        if std::mem::take(&mut self.waiting) {
            ctx.launch().waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn spin<'a>(ctx: &Ctx, mut warps: impl Iterator<Item = &'a Warp>) {
    let Some(warp) = warps.find(|w| w.spinning.get() != 0) else { return };
    let index = warp.spinning.get().trailing_zeros() as usize;
    ctx.point_at(warp, index);
    let site = warp.lanes[index].site.get().map_or_else(Site::unknown, Site::from);
    let detail = if ctx.launch().cooperative {
        "the thread polls a value that no thread changes any more".into()
    } else {
        "the thread polls a value that no thread changes any more (blocks of a launch that is not cooperative \
         may run one after the other)"
            .into()
    };
    fault::record(ctx, Kind::Spin, site, None, detail);
}

/// Every live lane waits at a barrier or in a collective.
#[cold]
fn stalled<'a>(ctx: &Ctx, warps: impl Iterator<Item = &'a Warp> + Clone) {
    let summary = summary(ctx, warps.clone());
    for warp in warps.clone() {
        if let Some(slot) = warp.pending().next() {
            ctx.point_at(warp, slot.arrived.trailing_zeros() as usize);
            let missing = (slot.mask & !slot.arrived).trailing_zeros() as usize;
            let other = other_of_lane(ctx, warp, &warp.lanes[missing]);
            let detail = format!(
                "{} with mask {:#010x} waits for lane {missing}, which never arrives; {summary}",
                slot.name, slot.mask
            );
            return fault::record(ctx, Kind::WarpMask, Site::from(slot.at), Some(other), detail);
        }
    }
    for (barriers, kind) in
        [(0..1, Kind::BarrierDivergence), (1..16, Kind::Deadlock), (16..18, Kind::BarrierDivergence)]
    {
        for barrier in barriers {
            let Some(warp) = warps.clone().find(|w| w.waiting[barrier].get() != 0) else { continue };
            let index = warp.waiting[barrier].get().trailing_zeros() as usize;
            ctx.point_at(warp, index);
            let site = warp.lanes[index].site.get().map_or_else(Site::unknown, Site::from);
            let other = absent(ctx, warps, barrier);
            let name = match barrier {
                0 => "sync_block".to_string(),
                CLUSTER_BARRIER => "sync_cluster".into(),
                GRID_BARRIER => "sync_grid".into(),
                id => format!("named barrier {id}"),
            };
            let detail = format!("only part of the threads reach {name}; {summary}");
            return fault::record(ctx, kind, site, other, detail);
        }
    }
    fault::record(ctx, Kind::Deadlock, Site::unknown(), None, format!("no thread can run; {summary}"));
}

/// A lane that should have come to the barrier and has not.
fn absent<'a>(ctx: &Ctx, mut warps: impl Iterator<Item = &'a Warp>, barrier: usize) -> Option<Other> {
    let mine = ctx.block();
    let warp = warps.find(|w| {
        // SAFETY: the block of a warp of the running group is alive.
        let block = unsafe { &*w.block.get() };
        let concerned = match barrier {
            GRID_BARRIER => true,
            CLUSTER_BARRIER => {
                block.linear.get() / ctx.cluster.get() as u64 == mine.linear.get() / ctx.cluster.get() as u64
            }
            _ => std::ptr::eq(block, mine),
        };
        concerned && w.waiting[barrier].get() != w.full.get()
    })?;
    let index = (warp.full.get() & !warp.waiting[barrier].get()).trailing_zeros() as usize;
    Some(other_of_lane(ctx, warp, &warp.lanes[index]))
}

/// How many threads wait where, in one sentence.
fn summary<'a>(ctx: &Ctx, warps: impl Iterator<Item = &'a Warp>) -> String {
    let mut groups: Vec<(String, u32)> = Vec::new();
    let mut exited = 0;
    for warp in warps {
        exited += (warp.full.get() & !warp.live.get()).count_ones();
        for lane in (0..32).filter(|l| warp.live.get() >> l & 1 != 0) {
            let lane = &warp.lanes[lane];
            let what = match lane.wait.get() {
                Wait::Nothing => "running".to_string(),
                Wait::Collective => "in a collective".into(),
                Wait::Barrier(0) => "at sync_block".into(),
                Wait::Barrier(16) => "at sync_cluster".into(),
                Wait::Barrier(17) => "at sync_grid".into(),
                Wait::Barrier(id) => format!("at named barrier {id}"),
                Wait::Spin => "polling".into(),
            };
            let site = lane.site.get().map_or_else(Site::unknown, Site::from);
            let key = format!("{what} ({}:{})", site.file, site.line);
            match groups.iter_mut().find(|g| g.0 == key) {
                Some(g) => g.1 += 1,
                None => groups.push((key, 1)),
            }
        }
    }
    let total = ctx.n_blocks.get() as u64 * ctx.threads.get() as u64;
    let mut parts: Vec<String> = groups.into_iter().take(6).map(|(k, n)| format!("{n} wait {k}")).collect();
    if exited > 0 {
        parts.push(format!("{exited} have exited"));
    }
    format!("of {total} threads {}", parts.join(", "))
}
