//! Barriers of a block, a cluster and a grid, and the clocks that they join.

use std::panic::Location;

use crate::clock::{self, join_shared};
use crate::ctx::{At, Block, CLUSTER_BARRIER, Ctx, GRID_BARRIER, Wait, Warp, ctx};
use crate::fault::{fault, other_of_lane};
use crate::report::Kind;
use crate::site;

/// Waits for all threads of the block: `__syncthreads()`.
#[track_caller]
#[inline]
pub fn sync_block() {
    let ctx = ctx();
    if !arrive_block(ctx, 0, Location::caller()) {
        ctx.suspend();
    }
}

/// Waits for all threads of the block and counts those whose predicate holds: `__syncthreads_count()`.
#[track_caller]
#[inline]
pub fn sync_block_count(predicate: bool) -> u32 {
    let ctx = ctx();
    if !arrive_block(ctx, predicate as u32, Location::caller()) {
        ctx.suspend();
    }
    ctx.block().count_result.get()
}

/// Waits for all threads of the block: does the predicate hold for all? `__syncthreads_and()`.
#[track_caller]
#[inline]
pub fn sync_block_and(predicate: bool) -> bool {
    sync_block_count(predicate) == ctx().threads.get()
}

/// Waits for all threads of the block: does the predicate hold for any? `__syncthreads_or()`.
#[track_caller]
#[inline]
pub fn sync_block_or(predicate: bool) -> bool {
    sync_block_count(predicate) != 0
}

/// Waits at named barrier `id` until `threads` threads have arrived: `bar.sync id, threads`.
#[track_caller]
#[inline]
pub fn sync_named(id: u32, threads: u32) {
    let ctx = ctx();
    if !arrive(ctx, id, threads, true, Location::caller()) {
        ctx.suspend();
    }
}

/// Arrives at named barrier `id` and goes on: `bar.arrive id, threads`.
#[track_caller]
#[inline]
pub fn arrive_named(id: u32, threads: u32) {
    arrive(ctx(), id, threads, false, Location::caller());
}

/// Waits for all threads of all blocks of the cluster.
#[track_caller]
#[inline]
pub fn sync_cluster() {
    let ctx = ctx();
    if !arrive_cluster(ctx, Location::caller()) {
        ctx.suspend();
    }
}

/// Waits for all threads of the grid; cooperative launches only.
#[track_caller]
#[inline]
pub fn sync_grid() {
    let ctx = ctx();
    if !arrive_grid(ctx, Location::caller()) {
        ctx.suspend();
    }
}

/// Lanes of one warp that wait at different barriers can never be in step.
fn check_site(ctx: &Ctx, warp: &Warp, at: At) {
    match warp.barrier_site.get() {
        None => warp.barrier_site.set(Some(at)),
        Some(first) if site::same(first, at) => {}
        Some(_) => {
            let waiting = warp.waiting.iter().fold(0, |m, w| m | w.get());
            let other = warp.lanes.get(waiting.trailing_zeros() as usize);
            let other = other.map(|lane| other_of_lane(ctx, warp, lane));
            let detail = "lanes of one warp wait at different barriers".into();
            fault(ctx, Kind::BarrierDivergence, at, other, detail);
        }
    }
}

/// Makes the running lane wait at a barrier.
fn wait(ctx: &Ctx, barrier: usize, at: At) {
    let (warp, lane) = (ctx.warp(), ctx.lane());
    let bit = 1 << (lane.tid.get() % 32);
    let waiting = &warp.waiting[barrier];
    waiting.set(waiting.get() | bit);
    warp.ready.set(warp.ready.get() & !bit);
    lane.wait.set(Wait::Barrier(barrier as u8));
    lane.site.set(Some(at));
}

/// Lets the lanes of a warp that wait at a barrier go on.
fn release(warp: &Warp, barrier: usize) -> u32 {
    let waiting = warp.waiting[barrier].replace(0);
    warp.ready.set(warp.ready.get() | waiting);
    waiting
}

/// All of the block's accesses so far come before all that follow.
fn join_all(ctx: &Ctx, warp: &Warp, clock: u32) {
    warp.joined.set(clock);
    warp.warp_joined.set(clock);
    if warp.seen.borrow().is_some() {
        warp.seen.replace(None);
    }
    if warp.matrix.borrow().is_some() {
        warp.matrix.replace(None);
    }
    warp.barrier_site.set(None);
    ctx.advance(warp, clock + 1);
}

#[inline(never)]
fn arrive_block(ctx: &Ctx, count: u32, at: At) -> bool {
    if ctx.stopping.get() {
        return true;
    }
    let (block, warp) = (ctx.block(), ctx.warp());
    check_site(ctx, warp, at);
    let barrier = &block.barriers[0];
    block.count.set(block.count.get() + count);
    let arrived = barrier.arrived.get() + 1;
    if arrived < ctx.threads.get() {
        barrier.arrived.set(arrived);
        wait(ctx, 0, at);
        return false;
    }
    barrier.arrived.set(0);
    block.count_result.set(block.count.replace(0));
    ctx.progress.set(ctx.progress.get() + 1);
    let mut clock = 0;
    let mut acquired = None;
    ctx.for_warps(block, |w| {
        clock = clock.max(w.clock.get());
        if let Some(map) = &*w.acquired.borrow() {
            join_shared(&mut acquired, map);
        }
    });
    ctx.for_warps(block, |w| {
        release(w, 0);
        join_all(ctx, w, clock);
        if acquired.is_some() {
            w.acquired.replace(acquired.clone());
        }
    });
    true
}

#[inline(never)]
fn arrive(ctx: &Ctx, id: u32, threads: u32, sync: bool, at: At) -> bool {
    if ctx.stopping.get() {
        return true;
    }
    let (block, warp) = (ctx.block(), ctx.warp());
    if id >= 16
        || threads == 0
        || !threads.is_multiple_of(32)
        || threads > ctx.threads.get().next_multiple_of(32)
    {
        let detail = format!(
            "named barrier {id} for {threads} threads: ids go to 15, threads in whole warps of the block"
        );
        fault(ctx, Kind::LaunchLimit, at, None, detail);
    }
    let barrier = &block.barriers[id as usize];
    if barrier.arrived.get() > 0 && barrier.expected.get() != threads {
        let detail = format!(
            "barrier {id} for {threads} threads, while others wait there for {}",
            barrier.expected.get()
        );
        fault(ctx, Kind::BarrierDivergence, at, None, detail);
    }
    block.named.set(true);
    barrier.expected.set(threads);
    contribute(warp, barrier);
    let arrived = barrier.arrived.get() + 1;
    barrier.arrived.set(arrived);
    if sync {
        wait(ctx, id as usize, at);
    } else {
        ctx.advance(warp, warp.clock.get() + 1);
    }
    if arrived < threads {
        return !sync;
    }
    complete_named(ctx, block, id as usize);
    true
}

/// Adds what the running warp has done and knows to a barrier.
pub(crate) fn contribute(warp: &Warp, barrier: &crate::ctx::Barrier) {
    let mut clocks = barrier.clocks.borrow_mut();
    let clocks = clocks.get_or_insert_with(|| Box::new([0; 32]));
    clock::join(clocks, &warp.seen_mut());
    let own = &mut clocks[warp.index.get() as usize];
    *own = (*own).max(warp.clock.get());
    if let Some(map) = &*warp.acquired.borrow() {
        join_shared(&mut barrier.acquired.borrow_mut(), map);
    }
}

fn complete_named(ctx: &Ctx, block: &Block, id: usize) {
    let barrier = &block.barriers[id];
    barrier.arrived.set(0);
    ctx.progress.set(ctx.progress.get() + 1);
    let clocks = barrier.clocks.take();
    let acquired = barrier.acquired.take();
    ctx.for_warps(block, |w| {
        let woken = release(w, id);
        if woken == 0 {
            return;
        }
        if let Some(clocks) = &clocks {
            clock::join(&mut w.seen_mut(), clocks);
        }
        if let Some(map) = &acquired {
            join_shared(&mut w.acquired.borrow_mut(), map);
        }
        let clock = w.clock.get();
        if woken == w.live.get() {
            w.warp_joined.set(clock);
        }
        ctx.advance(w, clock + 1);
    });
}

#[inline(never)]
fn arrive_cluster(ctx: &Ctx, at: At) -> bool {
    if ctx.stopping.get() {
        return true;
    }
    let size = ctx.cluster.get() as usize;
    let cluster = ctx.block().slot.get() / size;
    check_site(ctx, ctx.warp(), at);
    let arrived = {
        let barriers = ctx.cluster_barriers.borrow();
        let arrived = &barriers[cluster].arrived;
        arrived.set(arrived.get() + 1);
        arrived.get()
    };
    if arrived < size as u64 * ctx.threads.get() as u64 {
        wait(ctx, CLUSTER_BARRIER, at);
        return false;
    }
    ctx.cluster_barriers.borrow()[cluster].arrived.set(0);
    let per = ctx.warps_per_block.get() * size;
    let clock = complete(ctx, CLUSTER_BARRIER, cluster * per..(cluster + 1) * per, true);
    for block in &ctx.blocks.borrow()[cluster * size..(cluster + 1) * size] {
        block.cluster_joined.set(clock);
    }
    true
}

#[inline(never)]
fn arrive_grid(ctx: &Ctx, at: At) -> bool {
    if ctx.stopping.get() {
        return true;
    }
    if !ctx.launch().cooperative {
        fault(ctx, Kind::LaunchLimit, at, None, "sync_grid in a launch that is not cooperative".into());
    }
    check_site(ctx, ctx.warp(), at);
    let arrived = ctx.grid_barrier.arrived.get() + 1;
    ctx.grid_barrier.arrived.set(arrived);
    if arrived < ctx.n_blocks.get() as u64 * ctx.threads.get() as u64 {
        wait(ctx, GRID_BARRIER, at);
        return false;
    }
    ctx.grid_barrier.arrived.set(0);
    let all = 0..ctx.n_blocks.get() * ctx.warps_per_block.get();
    let clock = complete(ctx, GRID_BARRIER, all, false);
    ctx.others.set(clock);
    true
}

/// Completes a barrier over the warps of several blocks; gives the clock that they had.
fn complete(ctx: &Ctx, barrier: usize, range: std::ops::Range<usize>, keep_acquired: bool) -> u32 {
    ctx.progress.set(ctx.progress.get() + 1);
    let warps = ctx.warps.borrow();
    let warps = &warps[range];
    let clock = warps.iter().map(|w| w.clock.get()).max().unwrap_or(0);
    let mut acquired = None;
    for w in warps {
        if let (true, Some(map)) = (keep_acquired, &*w.acquired.borrow()) {
            join_shared(&mut acquired, map);
        }
    }
    for w in warps {
        release(w, barrier);
        join_all(ctx, w, clock);
        w.acquired.replace(acquired.clone());
    }
    clock
}
