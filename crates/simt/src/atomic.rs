//! Atomics and fences, with the order that they establish.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};

use crate::check;
use crate::clock::{self, ClockMap, SyncCell, SyncCells, join_shared};
use crate::ctx::{At, Ctx, FULL, NONE, Wait, ctx};
use crate::memory::View;
use crate::shared::{self, SharedView};
use crate::word::{ATOMIC, BLOCK_SCOPE, CLUSTER_SCOPE};

/// Memory order of an atomic or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// Atomic, orders nothing else.
    Relaxed,
    /// What follows comes after the release that wrote the value read.
    Acquire,
    /// What came before is visible to who acquires the value.
    Release,
    /// Both.
    AcqRel,
    /// Both, and in one order with all others of the kind.
    SeqCst,
}

impl Ordering {
    fn acquires(self) -> bool {
        matches!(self, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
    }
    fn releases(self) -> bool {
        matches!(self, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
    }
}

/// Threads among which an atomic or a fence has its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The block.
    Block,
    /// The cluster.
    Cluster,
    /// The device.
    Device,
    /// All devices and the host.
    System,
}

impl Scope {
    fn flags(self) -> u64 {
        ATOMIC
            | match self {
                Scope::Block => BLOCK_SCOPE,
                Scope::Cluster => CLUSTER_SCOPE,
                Scope::Device | Scope::System => 0,
            }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Load,
    Store,
    Update,
}

/// Polls of one address, with one value, after which the lane gives way.
const POLLS: u32 = 64;

/// An atomic's value and its clocks change under one lock, chosen by address.
static LOCKS: [AtomicBool; 256] = [const { AtomicBool::new(false) }; 256];

struct Guard(Option<&'static AtomicBool>);

impl Guard {
    fn lock(ctx: &Ctx, address: usize) -> Guard {
        if !ctx.parallel.get() {
            return Guard(None);
        }
        let lock = &LOCKS[(address >> 2) % LOCKS.len()];
        while lock.swap(true, Std::Acquire) {
            std::hint::spin_loop();
        }
        Guard(Some(lock))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(false, Std::Release);
        }
    }
}

/// Orders accesses around it: `fence.acq_rel.scope`, `__threadfence()`.
///
/// A release fence before a relaxed store or update makes that a release; an acquire fence after a relaxed load
/// makes that an acquire.
#[inline(never)]
pub fn fence(order: Ordering, scope: Scope) {
    let ctx = ctx();
    if ctx.level.get() != FULL || ctx.stopping.get() {
        return;
    }
    let (warp, lane) = (ctx.warp(), ctx.lane());
    if order.acquires()
        && let Some(map) = lane.pending.take()
    {
        acquire(ctx, &map);
    }
    if order.releases() {
        warp.fenced.set(true);
        lane.fence.set(Some((scope, warp.clock.get())));
        ctx.advance(warp, warp.clock.get() + 1);
    }
}

/// Tells that the thread waits for others, as `nanosleep` in a polling loop does: it runs again when all others
/// wait too, and a round of them without progress is reported as a spin.
#[track_caller]
#[inline]
pub fn spin_wait() {
    let ctx = ctx();
    give_way(ctx, Location::caller());
    ctx.suspend();
}

fn give_way(ctx: &Ctx, at: At) {
    let (warp, lane) = (ctx.warp(), ctx.lane());
    let bit = 1 << (lane.tid.get() % 32);
    warp.ready.set(warp.ready.get() & !bit);
    warp.spinning.set(warp.spinning.get() | bit);
    lane.wait.set(Wait::Spin);
    lane.site.set(Some(at));
}

/// Joins what a release has published into the running warp.
fn acquire(ctx: &Ctx, map: &Arc<ClockMap>) {
    let warp = ctx.warp();
    if let Some(own) = map.get(ctx.block().masked.get()) {
        clock::join(&mut warp.seen_mut(), own);
    }
    join_shared(&mut warp.acquired.borrow_mut(), map);
}

/// Does a release of this cell's scope reach the running lane, at the lane's own scope?
fn reaches(ctx: &Ctx, cell: &SyncCell, scope: Scope) -> bool {
    match cell.scope.min(scope) {
        Scope::Block => cell.block == ctx.block().masked.get(),
        Scope::Cluster => cell.cluster == ctx.block().linear.get() / ctx.cluster.get() as u64,
        Scope::Device | Scope::System => true,
    }
}

/// The clocks' side of an atomic.
fn order_clocks(ctx: &Ctx, cells: &mut SyncCells, key: usize, op: Op, order: Ordering, scope: Scope) {
    let (warp, lane, block) = (ctx.warp(), ctx.lane(), ctx.block());
    let valid = cells.get(&key).filter(|c| c.time == ctx.time.get());
    if op != Op::Store
        && let Some(cell) = valid.filter(|c| reaches(ctx, c, scope))
    {
        if order.acquires() {
            acquire(ctx, &cell.map.clone());
        } else {
            warp.fenced.set(true);
            join_shared(&mut lane.pending.borrow_mut(), &cell.map);
        }
    }
    if op == Op::Load {
        return;
    }
    let release = if order.releases() {
        Some((scope, warp.clock.get()))
    } else {
        lane.fence.get().map(|(s, clock)| (s.min(scope), clock))
    };
    let Some((scope, clock)) = release else {
        // A relaxed update keeps what earlier releases published, a relaxed store ends it.
        if op == Op::Store {
            cells.remove(&key);
        }
        return;
    };
    let mut map = match cells.remove(&key).filter(|c| op == Op::Update && c.time == ctx.time.get()) {
        Some(cell) => cell.map,
        None => Arc::default(),
    };
    let known = Arc::make_mut(&mut map);
    if let Some(acquired) = &*warp.acquired.borrow() {
        known.join(acquired);
    }
    let mut clocks = match &*warp.seen.borrow() {
        Some(seen) => **seen,
        None => [warp.joined.get(); 32],
    };
    clocks[warp.index.get() as usize] = clock;
    known.join_block(block.masked.get(), &Arc::new(clocks));
    let size = ctx.cluster.get();
    if size > 1 {
        let joined = Arc::new([block.cluster_joined.get(); 32]);
        let first = block.masked.get() / size * size;
        (first..first + size).for_each(|mate| known.join_block(mate, &joined));
    }
    let cluster = block.linear.get() / size as u64;
    cells.insert(key, SyncCell { time: ctx.time.get(), map, scope, block: block.masked.get(), cluster });
    if order.releases() {
        ctx.advance(warp, warp.clock.get() + 1);
    }
}

/// Counts polls that find nothing new; true when the lane should give way.
fn polled(ctx: &Ctx, address: usize, value: u64, changed: bool) -> bool {
    let lane = ctx.lane();
    if changed || lane.spin_addr.get() != address || lane.spin_value.get() != value {
        let waited = lane.spin_count.replace(0) > POLLS;
        if changed || waited {
            ctx.progress.set(ctx.progress.get() + 1);
        }
        lane.spin_addr.set(if changed { 0 } else { address });
        lane.spin_value.set(value);
        return false;
    }
    let count = lane.spin_count.get() + 1;
    lane.spin_count.set(count.min(POLLS + 1));
    count > POLLS
}

fn bits<T: Copy>(value: &T) -> u64 {
    const { assert!(size_of::<T>() <= 8) };
    let mut raw = [0u8; 8];
    // SAFETY: `T` has at most 8 bytes; atomics are used with integers and floats, which have no padding.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *value).cast(), raw.as_mut_ptr(), size_of::<T>()) };
    u64::from_le_bytes(raw)
}

/// Runs `op` on the value at `target`; gives the old value, and whether it changed.
#[inline]
fn apply<T: Copy>(target: *mut T, op: impl FnOnce(T) -> Option<T>) -> (T, bool) {
    // SAFETY: the callers have checked the address; the lock keeps other atomics out.
    unsafe {
        let old = target.read_volatile();
        match op(old) {
            None => (old, false),
            Some(new) => {
                target.write_volatile(new);
                (old, bits(&old) != bits(&new))
            }
        }
    }
}

/// An atomic on global memory. The value that `op` gives is stored.
#[inline]
fn global<T: Copy>(
    v: View<T>,
    index: usize,
    how: (Op, Ordering, Scope),
    at: At,
    op: impl FnOnce(T) -> Option<T>,
) -> T {
    let ctx = ctx();
    let (kind, order, scope) = how;
    let target = v.ptr.wrapping_add(index);
    let mut place = None;
    if ctx.level.get() != NONE && !ctx.stopping.get() {
        place = Some(crate::access::enter(ctx, v, index, 1, size_of::<T>(), at));
    }
    let guard = Guard::lock(ctx, target as usize);
    let full = ctx.level.get() == FULL && place.is_some();
    if let (true, Some((inner, offset))) = (full, place) {
        check::atomic(
            ctx,
            inner,
            offset,
            size_of::<T>(),
            (kind != Op::Store, kind != Op::Load),
            scope.flags(),
            at,
        );
    } else if let (Some((inner, _)), true) = (place, kind != Op::Load) {
        inner.untracked_store();
    }
    let (old, changed) = apply(target, op);
    if let (true, Some((inner, offset))) = (full, place)
        && (inner.has_sync.load(Std::Acquire) || order.releases() || ctx.lane().fence.get().is_some())
    {
        inner.has_sync.store(true, Std::Release);
        let mut cells = inner.sync.lock().unwrap_or_else(|e| e.into_inner());
        order_clocks(ctx, &mut cells, offset, kind, order, scope);
    }
    drop(guard);
    if !ctx.stopping.get() && polled(ctx, target as usize, bits(&old), changed) && kind != Op::Store {
        give_way(ctx, at);
        ctx.suspend();
    }
    old
}

/// An atomic on shared memory of a block of the cluster: one OS thread runs them all, so there is no lock.
#[inline]
fn on_shared<T: Copy>(
    v: SharedView<T>,
    rank: Option<u32>,
    index: usize,
    how: (Op, Ordering, Scope),
    at: At,
    op: impl FnOnce(T) -> Option<T>,
) -> T {
    let ctx = ctx();
    let (kind, order, scope) = how;
    let block = rank.map_or_else(|| ctx.block(), |rank| shared::remote(ctx, rank, at));
    let target = v.address(block, index);
    let mut full = false;
    if ctx.level.get() != NONE && !ctx.stopping.get() {
        let offset = shared::enter(ctx, v, block, index, 1, size_of::<T>(), at);
        full = ctx.level.get() == FULL;
        if full {
            check::atomic(
                ctx,
                &block.arena,
                offset,
                size_of::<T>(),
                (kind != Op::Store, kind != Op::Load),
                scope.flags(),
                at,
            );
        }
    }
    let (old, changed) = apply(target, op);
    if full {
        order_clocks(ctx, &mut block.arena.sync.borrow_mut(), target as usize, kind, order, scope);
    }
    if !ctx.stopping.get() && polled(ctx, target as usize, bits(&old), changed) && kind != Op::Store {
        give_way(ctx, at);
        ctx.suspend();
    }
    old
}

macro_rules! atomics {
    ($($view:ident, |$v:ident, $index:ident, $how:ident, $at:ident, $op:ident| $call:expr);*) => {$(
        /// Atomics, for 32- and 64-bit types (16-bit ones work as well).
        ///
        /// # Safety
        /// As for the loads and stores.
        #[allow(clippy::missing_safety_doc)] // stated once, above
        impl<T: Copy> $view<T> {
            /// Reads atomically.
            #[track_caller]
            #[inline]
            pub unsafe fn atomic_load(self, index: usize, order: Ordering, scope: Scope) -> T {
                let ($v, $index, $how, $at) = (self, index, (Op::Load, order, scope), Location::caller());
                let $op = |_| None;
                $call
            }

            /// Writes atomically.
            #[track_caller]
            #[inline]
            pub unsafe fn atomic_store(self, index: usize, value: T, order: Ordering, scope: Scope) {
                let ($v, $index, $how, $at) = (self, index, (Op::Store, order, scope), Location::caller());
                let $op = |_| Some(value);
                $call;
            }

            /// Replaces the value by a function of it; gives the old one.
            #[track_caller]
            #[inline]
            pub unsafe fn atomic_rmw(self, index: usize, order: Ordering, scope: Scope, f: impl FnOnce(T) -> T) -> T {
                let ($v, $index, $how, $at) = (self, index, (Op::Update, order, scope), Location::caller());
                let $op = |old| Some(f(old));
                $call
            }

            /// Replaces the value if its bits are those of `current`; gives the old one, `Ok` if replaced.
            #[track_caller]
            #[inline]
            pub unsafe fn compare_exchange(
                self,
                index: usize,
                current: T,
                new: T,
                order: Ordering,
                scope: Scope,
            ) -> Result<T, T> {
                let ($v, $index, $how, $at) = (self, index, (Op::Update, order, scope), Location::caller());
                let wanted = bits(&current);
                let $op = |old: T| (bits(&old) == wanted).then_some(new);
                let old = $call;
                if bits(&old) == wanted { Ok(old) } else { Err(old) }
            }
        }
    )*};
}

atomics! {
    View, |v, index, how, at, op| global(v, index, how, at, op);
    SharedView, |v, index, how, at, op| on_shared(v, None, index, how, at, op)
}

/// Atomics on another block's shared memory.
///
/// # Safety
/// As for the loads and stores.
#[allow(clippy::missing_safety_doc)] // stated once, above
impl<T: Copy> SharedView<T> {
    /// [`SharedView::atomic_load`] in the block `rank` of the cluster.
    #[track_caller]
    #[inline]
    pub unsafe fn atomic_load_remote(self, rank: u32, index: usize, order: Ordering, scope: Scope) -> T {
        on_shared(self, Some(rank), index, (Op::Load, order, scope), Location::caller(), |_| None)
    }

    /// [`SharedView::atomic_store`] in the block `rank` of the cluster.
    #[track_caller]
    #[inline]
    pub unsafe fn atomic_store_remote(
        self,
        rank: u32,
        index: usize,
        value: T,
        order: Ordering,
        scope: Scope,
    ) {
        on_shared(self, Some(rank), index, (Op::Store, order, scope), Location::caller(), |_| Some(value));
    }

    /// [`SharedView::atomic_rmw`] in the block `rank` of the cluster.
    #[track_caller]
    #[inline]
    pub unsafe fn atomic_rmw_remote(
        self,
        rank: u32,
        index: usize,
        order: Ordering,
        scope: Scope,
        f: impl FnOnce(T) -> T,
    ) -> T {
        let how = (Op::Update, order, scope);
        on_shared(self, Some(rank), index, how, Location::caller(), |old| Some(f(old)))
    }
}
