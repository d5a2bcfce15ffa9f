//! A lane's coroutine: made once, reused over blocks and launches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::ctx::{Ctx, Lane, LaneCoroutine, Warp};
use crate::fault;
use crate::report::{Kind, Report};
use crate::site::Site;
use crate::stack::Slab;

/// Lanes kept between launches; those beyond give their stacks back.
const KEPT_WARPS: usize = 128;

impl Ctx {
    /// Makes the coroutine of a lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_lane(&self, warp: &Warp, index: usize) {
        let mut slab = warp.slab.borrow_mut();
        let slab = slab.get_or_insert_with(|| Slab::new().expect("no memory for the stacks of a warp"));
        let stack = slab.stack(index);
        let lane = &warp.lanes[index];
        let guard = stack.guard();
        lane.guard.set((guard.start, guard.end));
        lane.canary.set(stack.canary());
        stack.reset_canary();
        let (ctx, me): (*const Ctx, *const Lane) = (self, lane);
        let co = LaneCoroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the coroutine belongs to the lane, which belongs to a warp boxed in `ctx`.
            let lane = unsafe { &*me };
            lane.yielder.set(yielder);
            while !lane.quit.get() {
                // SAFETY: the lane is resumed by its `ctx` only, within a launch.
                let ctx = unsafe { &*ctx };
                let body = ctx.launch().body;
                if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                    fault::caught(ctx, payload);
                }
                ctx.exited();
                yielder.suspend(());
            }
        });
        lane.trap.set(Some(co.trap_handler()));
        // SAFETY: the lane is not running.
        unsafe { *lane.co.get() = Some(co) };
    }

    /// The running lane's body has ended.
    pub(crate) fn exited(&self) {
        let (warp, lane, block) = (self.warp(), self.lane(), self.block());
        let index = lane.tid.get() % 32;
        let bit = 1 << index;
        warp.ready.set(warp.ready.get() & !bit);
        warp.live.set(warp.live.get() & !bit);
        warp.started.set(warp.started.get() & !bit);
        block.live.set(block.live.get() - 1);
        self.done.set(self.done.get() + 1);
        self.progress.set(self.progress.get() + 1);
        lane.site.set(None);
        if warp.copied.get() && !self.stopping.get() {
            crate::bulk::check_exit(self);
        }
        if block.live.get() == 0 && !self.stopping.get() {
            if block.remote.get() != 0 {
                crate::race::check_exit(self, block.remote.get());
            }
            crate::mbarrier::check_exit(self);
        }
        if !lane.canary.get().is_null() {
            self.check_canary();
        }
        if (warp.arrived.get() != 0 || warp.more_slots.get()) && !self.stopping.get() {
            self.left_a_collective(warp, index);
        }
    }

    #[cold]
    fn check_canary(&self) {
        let canary = self.lane().canary.get();
        // SAFETY: the lowest word of this lane's stack, which is mapped.
        if unsafe { canary.read() } != crate::stack::CANARY {
            // SAFETY: as above.
            unsafe { canary.cast_mut().write(crate::stack::CANARY) };
            let detail = "the thread used up its stack (SIMT_STACK_KB raises it)".into();
            fault::record(self, Kind::StackOverflow, Site::unknown(), None, detail);
        }
    }

    /// A lane that others wait for in a collective has exited.
    #[cold]
    fn left_a_collective(&self, warp: &Warp, index: u32) {
        let Some(slot) = warp.pending().find(|s| s.mask >> index & 1 != 0) else { return };
        let waits = slot.arrived.trailing_zeros();
        let detail = format!(
            "lane {waits} waits in {} with mask {:#010x}, but lane {index} has exited",
            slot.name, slot.mask
        );
        let other = fault::other_of_lane(self, warp, self.lane());
        let report = Report {
            kind: Kind::WarpMask,
            kernel: self.launch().kernel.to_string(),
            block: self.block().idx.get(),
            thread: warp.lanes[waits as usize].idx.get(),
            site: Site::from(slot.at),
            other: Some(other),
            detail,
        };
        self.launch().stop_with(report);
        self.stopping.set(true);
    }

    /// Resumes a lane.
    #[inline]
    pub(crate) fn resume(&self, warp: &Warp, index: usize) {
        let lane = &warp.lanes[index];
        self.lane.set(lane);
        self.warp.set(warp);
        self.block.set(warp.block.get());
        self.refresh();
        self.started.set(None);
        self.switches.set(self.switches.get() + 1);
        warp.started.set(warp.started.get() | 1 << index);
        // SAFETY: coroutines of this OS thread run one at a time, and this one is not running.
        let co = unsafe { &mut *lane.co.get() };
        if co.is_none() {
            self.make_lane(warp, index);
        }
        let Some(co) = co else { unreachable!("a lane has a coroutine") };
        self.in_lane.set(true);
        let result = co.resume(());
        self.in_lane.set(false);
        if result.as_return().is_some() {
            self.trapped(warp, index);
        }
    }

    /// The signal handler ended a lane that ran into its guard page.
    #[cold]
    fn trapped(&self, warp: &Warp, index: usize) {
        let lane = &warp.lanes[index];
        // SAFETY: the coroutine has ended.
        unsafe { *lane.co.get() = None };
        let site = lane.site.get().map_or_else(Site::unknown, Site::from);
        let detail = "the thread used up its stack (SIMT_STACK_KB raises it)".into();
        fault::record(self, Kind::StackOverflow, site, None, detail);
        self.exited();
    }

    /// Gives back the stacks of a launch with very many live lanes.
    pub(crate) fn trim(&self) {
        let mut warps = self.warps.borrow_mut();
        if warps.len() > KEPT_WARPS {
            warps.truncate(KEPT_WARPS);
            self.blocks.borrow_mut().truncate(KEPT_WARPS);
            self.configured.set((0, [0; 3]));
        }
    }
}

impl Drop for Warp {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            lane.quit.set(true);
            if let Some(co) = lane.co.get_mut()
                && co.started()
                && !co.done()
            {
                // The body has ended: the coroutine waits at its root and returns.
                co.resume(());
            }
            *lane.co.get_mut() = None;
            lane.yielder.set(ptr::null());
        }
    }
}
