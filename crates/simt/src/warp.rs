//! Collectives of a warp: shuffles, votes, reductions, `sync_warp`.

use std::panic::Location;

use crate::ctx::{At, Ctx, Slot, Wait, Warp, ctx};
use crate::fault::{fault, other_of_lane};
use crate::report::Kind;
use crate::site;

/// Computes the results of a collective: the lanes' inputs (valid in the mask only), the mask, the results.
pub type Compute = fn(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32]);

/// Meets the lanes of `mask` at this call: the last to arrive computes all results.
///
/// Every lane of the mask must make the same call (name, mask, place in the source). A collective exchanges
/// values and does not order memory: only [`sync_warp`] does.
#[track_caller]
#[inline]
pub fn collective(name: &'static str, mask: u32, value: [u64; 2], compute: Compute) -> u64 {
    let ctx = ctx();
    if !meet(ctx, name, mask, value, Some(compute), Location::caller()) {
        ctx.suspend();
    }
    let lane = ctx.lane().tid.get() as usize % 32;
    // SAFETY: lanes of a warp run one at a time; nothing holds a reference to the results.
    unsafe { (*ctx.warp().results.get())[lane] }
}

/// Waits for the lanes of the mask and orders their memory accesses: `__syncwarp(mask)`.
#[track_caller]
#[inline]
pub fn sync_warp(mask: u32) {
    let ctx = ctx();
    if !meet(ctx, "sync_warp", mask, [0; 2], None, Location::caller()) {
        ctx.suspend();
    }
}

/// Lanes of the warp that exist and have not exited.
#[inline]
pub fn active_mask() -> u32 {
    ctx().warp().live.get()
}

impl Warp {
    /// The collectives that are filling.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Slot> {
        let first = self.at.get().filter(|_| self.arrived.get() != 0);
        let first = first.map(|at| Slot {
            name: self.name.get(),
            mask: self.mask.get(),
            arrived: self.arrived.get(),
            at,
        });
        first.into_iter().chain(self.slots.borrow().clone())
    }
}

/// Records the arrival; true for the lane that completes the collective.
#[inline(never)]
fn meet(ctx: &Ctx, name: &'static str, mask: u32, value: [u64; 2], compute: Option<Compute>, at: At) -> bool {
    if ctx.stopping.get() {
        return true;
    }
    let (warp, lane) = (ctx.warp(), ctx.lane());
    let index = lane.tid.get() % 32;
    let bit = 1u32 << index;
    // SAFETY: lanes of a warp run one at a time; nothing holds a reference to the values.
    unsafe { (*warp.values.get())[index as usize] = value };
    if mask & bit == 0 || mask & !warp.live.get() != 0 {
        bad_mask(ctx, warp, name, mask, index, at);
    }
    let mut arrived = warp.arrived.get();
    let known = warp.mask.get() == mask && warp.at.get().is_some_and(|a| std::ptr::eq(a, at));
    if arrived == 0 && !warp.more_slots.get() {
        warp.mask.set(mask);
        warp.at.set(Some(at));
        warp.name.set(name);
    } else if !known || arrived == 0 || !std::ptr::eq(warp.name.get(), name) {
        return match meet_apart(ctx, warp, name, mask, index, at) {
            true => complete(ctx, warp, mask, compute),
            false => false,
        };
    }
    arrived |= bit;
    if arrived == mask {
        warp.arrived.set(0);
        return complete(ctx, warp, mask, compute);
    }
    warp.arrived.set(arrived);
    wait(ctx, at);
    false
}

/// Makes the running lane wait in a collective.
#[inline]
fn wait(ctx: &Ctx, at: At) {
    let (warp, lane) = (ctx.warp(), ctx.lane());
    warp.ready.set(warp.ready.get() & !(1 << (lane.tid.get() % 32)));
    lane.wait.set(Wait::Collective);
    lane.site.set(Some(at));
}

#[inline]
fn complete(ctx: &Ctx, warp: &Warp, mask: u32, compute: Option<Compute>) -> bool {
    warp.ready.set(warp.ready.get() | mask);
    match compute {
        Some(compute) => finish(warp, mask, compute),
        None => order(ctx, warp, mask),
    }
    true
}

/// An arrival while other collectives of the warp are filling; true when it completes one.
#[inline(never)]
fn meet_apart(ctx: &Ctx, warp: &Warp, name: &'static str, mask: u32, lane: u32, at: At) -> bool {
    let bit = 1u32 << lane;
    let mut slots: Vec<Slot> = warp.pending().collect();
    let same = |s: &Slot| s.mask == mask && s.name == name && site::same(s.at, at);
    let index = slots.iter().position(same).unwrap_or_else(|| {
        // Somebody waits for this lane elsewhere, and this lane is about to wait for them.
        if let Some(s) = slots.iter().find(|s| s.mask & bit != 0 && s.arrived & mask != 0) {
            let waits = (s.arrived & mask).trailing_zeros() as usize;
            let detail = format!(
                "lane {lane} calls {name} with mask {mask:#010x}, lane {waits} waits for it in {} with mask {:#010x}",
                s.name, s.mask
            );
            let other = other_of_lane(ctx, warp, &warp.lanes[waits]);
            fault(ctx, Kind::WarpMask, at, Some(other), detail);
        }
        slots.push(Slot { name, mask, arrived: 0, at });
        slots.len() - 1
    });
    slots[index].arrived |= bit;
    let done = slots[index].arrived == mask;
    if done {
        slots.swap_remove(index);
    } else {
        wait(ctx, at);
    }
    warp.arrived.set(0);
    if let Some(first) = slots.pop() {
        warp.mask.set(first.mask);
        warp.arrived.set(first.arrived);
        warp.at.set(Some(first.at));
        warp.name.set(first.name);
    }
    warp.more_slots.set(!slots.is_empty());
    warp.slots.replace(slots);
    done
}

#[inline]
fn finish(warp: &Warp, mask: u32, compute: Compute) {
    // SAFETY: lanes of a warp run one at a time; `compute` is a plain function of its arguments.
    let (values, results) = unsafe { (&*warp.values.get(), &mut *warp.results.get()) };
    if mask == u32::MAX {
        compute(values, mask, results);
    } else {
        // Lanes outside the mask may not have fetched the result of a collective of theirs yet.
        let mut out = [0; 32];
        compute(values, mask, &mut out);
        for lane in (0..32).filter(|l| mask >> l & 1 != 0) {
            results[lane] = out[lane];
        }
    }
}

/// The accesses of the mask's lanes so far come before those that follow.
fn order(ctx: &Ctx, warp: &Warp, mask: u32) {
    let clock = warp.clock.get();
    if mask == warp.live.get() {
        warp.warp_joined.set(clock);
        warp.matrix.replace(None);
    } else {
        let joined = warp.warp_joined.get();
        let mut matrix = warp.matrix.borrow_mut();
        let matrix = matrix.get_or_insert_with(|| Box::new([[joined; 32]; 32]));
        let mut all = [0; 32];
        for lane in (0..32).filter(|l| mask >> l & 1 != 0) {
            crate::clock::join(&mut all, &matrix[lane]);
            all[lane] = clock;
        }
        for lane in (0..32).filter(|l| mask >> l & 1 != 0) {
            matrix[lane] = all;
        }
    }
    ctx.advance(warp, clock + 1);
}

#[cold]
#[inline(never)]
fn bad_mask(ctx: &Ctx, warp: &Warp, name: &str, mask: u32, lane: u32, at: At) -> ! {
    let missing = mask & !warp.full.get();
    let gone = mask & warp.full.get() & !warp.live.get();
    let mut other = None;
    let detail = if mask >> lane & 1 == 0 {
        format!("lane {lane} calls {name} with mask {mask:#010x}, which does not name it")
    } else if missing != 0 {
        let have = warp.full.get().count_ones();
        format!("{name} with mask {mask:#010x} in a partial warp of {have} threads")
    } else {
        let l = gone.trailing_zeros();
        other = Some(other_of_lane(ctx, warp, &warp.lanes[l as usize]));
        format!("{name} with mask {mask:#010x}, but lane {l} has exited")
    };
    fault(ctx, Kind::WarpMask, at, other, detail)
}
