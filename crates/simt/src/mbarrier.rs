//! Barriers in shared memory that count arrivals and bytes: `mbarrier`.
//!
//! A phase ends when all arrivals have come and all announced bytes have been copied. Whoever waits names the parity
//! of a phase, and gets through when that phase has ended: with a wrong parity it gets through too early, which shows
//! as a race, or never, which is reported as a spin. Arrivals release, waits acquire.

use std::panic::Location;
use std::sync::Arc;

use crate::atomic::spin_wait;
use crate::barrier::contribute;
use crate::bulk::{Load, Sent};
use crate::clock::{self, ClockMap, Clocks, join_shared};
use crate::ctx::{At, Barrier, Block, Ctx, FULL, Warp, ctx};
use crate::fault::{fault, other_of_word, record};
use crate::race;
use crate::report::Kind;
use crate::shared::{self, SharedView};
use crate::site::{self, Site};

/// Bytes of a barrier.
const BYTES: u32 = 8;
/// Most arrivals of a phase.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

/// One barrier of a block.
pub(crate) struct Mbarrier {
    /// Arrivals of a phase, and those that this one still waits for.
    count: u32,
    pending: u32,
    /// Bytes announced and not yet copied; below 0 where they were copied first.
    bytes: i64,
    phases: u32,
    /// What the arrivals of the present phase know.
    arrivals: Barrier,
    /// What the arrivals of all phases that have ended knew.
    ended: Option<Box<Clocks>>,
    /// And of other blocks.
    ended_elsewhere: Option<Arc<ClockMap>>,
    /// Shadow word of the initialisation.
    made: u64,
    /// Whether copies may complete on it.
    fenced: bool,
    /// Copies under way that count their bytes here.
    loads: Vec<Load>,
    /// What is under way from other blocks, likewise.
    posts: Vec<Post>,
}

/// Something under way to the block that waits for it.
pub(crate) enum Post {
    Word { to: SharedView<u64>, index: usize, value: u64, at: At },
    Bytes(Sent),
}

impl Post {
    fn at(&self) -> At {
        match self {
            Post::Word { at, .. } => at,
            Post::Bytes(sent) => sent.at(),
        }
    }

    fn bytes(&self) -> u32 {
        match self {
            Post::Word { .. } => size_of::<u64>() as u32,
            Post::Bytes(sent) => sent.bytes(),
        }
    }

    /// Writes it, as the running lane.
    fn land(&self) {
        match self {
            // SAFETY: the checker tests the access.
            Post::Word { to, index, value, at } => unsafe { to.store_vector_at(*index, [*value], at) },
            Post::Bytes(sent) => sent.land(),
        }
    }
}

/// Runs `use_it` on a block's barrier at element `index`, which must have been made, before the running lane's present.
fn with<R>(
    block: &Block,
    view: SharedView<u64>,
    index: usize,
    at: At,
    use_it: impl FnOnce(&mut Mbarrier) -> R,
) -> Option<R> {
    let ctx = ctx();
    if ctx.stopping.get() {
        return None;
    }
    let place = view.byte_offset() + index as u32 * BYTES;
    let mut barriers = block.mbarriers.borrow_mut();
    let Some(barrier) = barriers.get_mut(&place) else {
        drop(barriers);
        let detail = format!("no barrier has been made at byte {place} of shared memory");
        fault(ctx, Kind::Uninitialized, at, None, detail);
    };
    if ctx.level.get() == FULL && !race::comes_before(ctx, barrier.made) {
        let other = other_of_word(ctx, barrier.made);
        drop(barriers);
        let detail =
            format!("the barrier at byte {place} is used without waiting for the thread that makes it");
        fault(ctx, Kind::Race, at, Some(other), detail);
    }
    Some(use_it(barrier))
}

/// Makes a barrier of `count` arrivals at element `index`: `mbarrier.init`.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn init(view: SharedView<u64>, index: usize, count: u32) {
    let (ctx, at) = (ctx(), Location::caller());
    // SAFETY: the caller's contract; the checker tests the access.
    unsafe { view.store_vector_at(index, [u64::from(count)], at) };
    if count == 0 || count > MOST_ARRIVALS {
        let detail = format!("a barrier of {count} arrivals: 1 to {MOST_ARRIVALS} are possible");
        fault(ctx, Kind::LaunchLimit, at, None, detail);
    }
    let place = view.byte_offset() + index as u32 * BYTES;
    let barrier = Mbarrier {
        count,
        pending: count,
        bytes: 0,
        phases: 0,
        arrivals: Barrier::default(),
        ended: None,
        ended_elsewhere: None,
        made: ctx.word.get() | site::number(at),
        fenced: false,
        loads: Vec::new(),
        posts: Vec::new(),
    };
    ctx.block().mbarriers.borrow_mut().insert(place, barrier);
}

/// Makes the barriers that the thread has made known to copies: `fence.mbarrier_init`.
pub fn fence_init() {
    let ctx = ctx();
    let me = ctx.word.get();
    for barrier in ctx.block().mbarriers.borrow_mut().values_mut() {
        barrier.fenced |= crate::word::same_thread(barrier.made, me);
    }
}

/// Arrives once, having announced so many bytes: `mbarrier.arrive`, with `.expect_tx`.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn arrive(view: SharedView<u64>, index: usize, bytes: u32) {
    let (ctx, at) = (ctx(), Location::caller());
    let excess = with(ctx.block(), view, index, at, |barrier| {
        if barrier.pending == 0 {
            return true;
        }
        contribute(ctx.warp(), &barrier.arrivals);
        barrier.pending -= 1;
        barrier.bytes += i64::from(bytes);
        barrier.end_phase(ctx);
        false
    });
    if excess == Some(true) {
        fault(ctx, Kind::Deadlock, at, None, "more arrivals at a barrier than its phase has".into());
    }
    ctx.advance(ctx.warp(), ctx.warp().clock.get() + 1);
}

/// A copy that counts its bytes at a barrier is under way: it lands, as the running lane's, when somebody waits there.
pub(crate) fn expect_copy(view: SharedView<u64>, index: usize, load: Load, at: At) {
    expect(ctx().block(), view, index, at, |barrier| barrier.loads.push(load));
}

/// Gives a block's barrier something to land that counts its bytes there.
fn expect(block: &Block, view: SharedView<u64>, index: usize, at: At, give: impl FnOnce(&mut Mbarrier)) {
    let fenced = with(block, view, index, at, |barrier| {
        give(barrier);
        barrier.fenced
    });
    if fenced == Some(false) {
        let detail =
            "a copy completes on a barrier that was made without a fence behind it (fence_init)".into();
        fault(ctx(), Kind::InvalidAccess, at, None, detail);
    }
}

/// Sends a word to the same window in block `rank` of the cluster, and counts its bytes at the same barrier there:
/// `st.async`. It lands when a thread of that block waits for the barrier, as that thread's own store.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn post(
    to: SharedView<u64>,
    rank: u32,
    index: usize,
    value: u64,
    barrier: SharedView<u64>,
    number: usize,
) {
    let (ctx, at) = (ctx(), Location::caller());
    if ctx.stopping.get() {
        return;
    }
    deliver(ctx, rank, Post::Word { to, index, value, at }, barrier, number);
}

/// Gives what is on its way to block `rank` to the barrier there that counts its bytes.
pub(crate) fn deliver(ctx: &Ctx, rank: u32, post: Post, barrier: SharedView<u64>, number: usize) {
    let at = post.at();
    expect(shared::living(ctx, rank, at), barrier, number, at, |barrier| barrier.posts.push(post));
    ctx.progress.set(ctx.progress.get() + 1);
}

/// Reports what no thread of the running lane's block has waited for when its last one ends.
pub(crate) fn check_exit(ctx: &Ctx) {
    let barriers = ctx.block().mbarriers.borrow();
    if let Some(post) = barriers.values().find_map(|barrier| barrier.posts.first()) {
        let detail = "the block ends before what another has posted or sent to it has come".into();
        record(ctx, Kind::InvalidAccess, Site::from(post.at()), None, detail);
    }
}

/// Lands the copies that a barrier waits for, each on behalf of the lane that has started it, and what other blocks have sent.
fn land(ctx: &Ctx, view: SharedView<u64>, index: usize, at: At) {
    use std::mem::take;
    let landed = |warp: &Warp, bytes: u32| {
        with(ctx.block(), view, index, at, |barrier| {
            contribute(warp, &barrier.arrivals);
            barrier.bytes -= i64::from(bytes);
            barrier.end_phase(ctx);
        });
    };
    let under_way =
        with(ctx.block(), view, index, at, |barrier| (take(&mut barrier.loads), take(&mut barrier.posts)));
    let (loads, posts) = under_way.unwrap_or_default();
    for load in loads {
        let (bytes, warp) = ctx.on_behalf(load.issuer(), || {
            load.land();
            (load.bytes(), ctx.warp())
        });
        landed(warp, bytes);
    }
    for post in posts {
        post.land();
        landed(ctx.warp(), post.bytes());
    }
}

/// Waits until the phase with this parity (0 for the first) has ended: `mbarrier.try_wait.parity` in a loop.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn wait(view: SharedView<u64>, index: usize, parity: u32) {
    let at = Location::caller();
    loop {
        let ctx = ctx();
        land(ctx, view, index, at);
        let through = with(ctx.block(), view, index, at, |barrier| {
            let through = barrier.phases & 1 != parity & 1;
            if let (true, Some(clocks)) = (through, &barrier.ended) {
                clock::join(&mut ctx.warp().seen_mut(), clocks);
            }
            if let (true, Some(map)) = (through, &barrier.ended_elsewhere) {
                join_shared(&mut ctx.warp().acquired.borrow_mut(), map);
            }
            through
        });
        if through != Some(false) {
            return;
        }
        spin_wait();
    }
}

impl Mbarrier {
    fn end_phase(&mut self, ctx: &Ctx) {
        if self.pending > 0 || self.bytes != 0 {
            return;
        }
        self.pending = self.count;
        self.phases = self.phases.wrapping_add(1);
        ctx.progress.set(ctx.progress.get() + 1);
        if let Some(arrived) = self.arrivals.clocks.take() {
            let ended = self.ended.get_or_insert_with(|| Box::new([0; 32]));
            clock::join(ended, &arrived);
        }
        if let Some(map) = self.arrivals.acquired.take() {
            join_shared(&mut self.ended_elsewhere, &map);
        }
    }
}
