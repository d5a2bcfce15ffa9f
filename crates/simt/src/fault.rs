//! Stopping a launch: the report, the unwinding, and the panic hook that stays silent for kernels.

use std::any::Any;
use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use crate::ctx::{At, Ctx, Lane, Warp, current};
use crate::report::{Kind, Other, Report};
use crate::site::{self, Site};
use crate::word;

/// Payload that unwinds a lane of a stopped launch.
pub(crate) struct Stop;

/// Records a mistake of the running lane and unwinds it.
#[cold]
#[inline(never)]
pub(crate) fn fault(ctx: &Ctx, kind: Kind, at: At, other: Option<Other>, detail: String) -> ! {
    record(ctx, kind, Site::from(at), other, detail);
    panic::resume_unwind(Box::new(Stop));
}

/// Records a mistake of the running lane and stops the launch; the first one is kept.
#[cold]
pub(crate) fn record(ctx: &Ctx, kind: Kind, site: Site, other: Option<Other>, detail: String) {
    let (block, thread) = (ctx.block().idx.get(), ctx.lane().idx.get());
    let kernel = ctx.launch().kernel.to_string();
    ctx.launch().stop_with(Report { kind, kernel, block, thread, site, other, detail });
    ctx.stopping.set(true);
}

/// Accesses that a block may still make after a read of unwritten memory.
const GRACE: u32 = 1 << 16;

/// Notes a read of unwritten memory. The block goes on for a while: should another thread write there
/// unordered, the report is that race.
#[cold]
#[inline(never)]
pub(crate) fn suspect(ctx: &Ctx, at: At, detail: String) {
    let (block, thread, kernel) =
        (ctx.block().idx.get(), ctx.lane().idx.get(), ctx.launch().kernel.to_string());
    let site = Site::from(at);
    ctx.launch().suspect(Report {
        kind: Kind::Uninitialized,
        kernel,
        block,
        thread,
        site,
        other: None,
        detail,
    });
    ctx.budget.set(ctx.budget.get().min(GRACE));
}

/// The other party, from a shadow word.
pub(crate) fn other_of_word(ctx: &Ctx, w: u64) -> Other {
    let grid = ctx.grid_dim.get().map(u64::from);
    let total = grid[0] * grid[1] * grid[2];
    // The word holds 18 bits of the block: take the nearest block with these bits.
    let mine = ctx.block().linear.get();
    let span = word::BLOCK_MASK + 1;
    let low = word::block(w) as u64;
    let near = mine / span * span + low;
    let block = if near < total { near } else { near.saturating_sub(span) };
    Other {
        block: ctx.block_index(block),
        thread: ctx.thread_index(word::thread(w)),
        site: site::lookup(word::site(w)),
    }
}

/// The other party, from a lane that waits or has gone.
pub(crate) fn other_of_lane(ctx: &Ctx, warp: &Warp, lane: &Lane) -> Other {
    // SAFETY: the block of a warp of the running group is alive.
    let block = unsafe { &*warp.block.get() };
    let site = lane.site.get().map_or_else(Site::unknown, Site::from);
    Other { block: block.idx.get(), thread: ctx.thread_index(lane.tid.get()), site }
}

thread_local! {
    static MESSAGE: RefCell<Option<(String, Site)>> = const { RefCell::new(None) };
}

/// Installs, once, a hook that notes the panics of kernels instead of printing them.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let ctx = current();
            // SAFETY: non-null means that this thread is running that state.
            if ctx.is_null() || !unsafe { &*ctx }.in_lane.get() {
                return previous(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without a message").to_string();
            let site = info.location().map_or_else(Site::unknown, |at| Site {
                file: at.file().into(),
                line: at.line(),
                column: at.column(),
            });
            MESSAGE.with_borrow_mut(|m| *m = Some((message, site)));
        }));
    });
}

/// Turns what a lane's body unwound with into a report, unless it is our own `Stop`.
#[cold]
pub(crate) fn caught(ctx: &Ctx, payload: Box<dyn Any + Send>) {
    let noted = MESSAGE.with_borrow_mut(Option::take);
    if payload.is::<Stop>() {
        return;
    }
    let (message, site) = noted.unwrap_or_else(|| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
        (text.unwrap_or_else(|| "a panic without a message".into()), Site::unknown())
    });
    record(ctx, Kind::Panic, site, None, format!("the kernel panicked: {message}"));
}
