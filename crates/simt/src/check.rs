//! What loads, stores and atomics go through under full checks, in global and in shared memory.
//!
//! Most loads and stores touch one granule whose last accesses are settled. These need no stack frame: whatever is rare is called at a
//! function's end, with arguments that registers hold.

use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::ctx::{At, Ctx};
use crate::fault::{fault, suspect};
use crate::race::{self, Access, Space, exchange, settled};
use crate::report::Kind;
use crate::shadow::{Shadow, granule_of};
use crate::site;
use crate::word::ALSO;

/// Checks a read of so many bytes, a number that the compiler knows.
#[inline(always)]
pub(crate) fn read<S: Space>(ctx: &Ctx, space: &S, offset: usize, bytes: usize, at: At) {
    match bytes {
        1 => read_of::<S, 1>(ctx, space, offset, at),
        2 => read_of::<S, 2>(ctx, space, offset, at),
        4 => read_of::<S, 4>(ctx, space, offset, at),
        8 => read_of::<S, 8>(ctx, space, offset, at),
        16 => read_of::<S, 16>(ctx, space, offset, at),
        bytes => read_slowly(ctx, space, offset, bytes, at),
    }
}

/// Checks a write of so many bytes, a number that the compiler knows, before it is made.
///
/// # Safety
/// `value` has as many bytes, and so has the memory at `offset`.
#[inline(always)]
pub(crate) unsafe fn write<S: Space>(
    ctx: &Ctx,
    space: &S,
    offset: usize,
    bytes: usize,
    value: *const u8,
    at: At,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => write_of::<S, 1>(ctx, space, offset, value, at),
            2 => write_of::<S, 2>(ctx, space, offset, value, at),
            4 => write_of::<S, 4>(ctx, space, offset, value, at),
            8 => write_of::<S, 8>(ctx, space, offset, value, at),
            16 => write_of::<S, 16>(ctx, space, offset, value, at),
            bytes => write_slowly(ctx, space, offset, bytes, value, at),
        }
    }
}

fn plain(offset: usize, bytes: usize, at: At) -> Access {
    Access { offset, bytes, flags: 0, at }
}

#[inline(never)]
fn read_of<S: Space, const B: usize>(ctx: &Ctx, space: &S, offset: usize, at: At) {
    if let Some(shadow) = space.ready_shadow(B, offset, ctx.era.get())
        && space.is_written::<B>(offset)
        && let Some(site) = site::known(at)
    {
        if !S::SHARED {
            shadow.prefetch(offset / B);
        }
        let (writer, reader) = shadow.granule(offset / B);
        let (me, r) = (ctx.word.get(), reader.load(Relaxed));
        if settled::<S>(ctx, r, me) && r & ALSO == 0 {
            exchange::<S>(ctx, reader, me | site);
            let w = writer.load(SeqCst);
            if !settled::<S>(ctx, w, me) {
                read_behind_write::<S, B>(ctx, space, offset, at, w);
            }
            return;
        }
    }
    read_closely::<S, B>(ctx, space, offset, at);
}

/// The table that a function's end looks at again, and the granule there: another thread may have split it meanwhile.
fn again<'a, S: Space>(ctx: &Ctx, space: &'a S, offset: usize, bytes: usize) -> (&'a Shadow, usize) {
    let shadow = space.shadow(granule_of(offset, bytes), ctx.time.get());
    (shadow, offset >> shadow.log)
}

/// The rest of a read of a granule whose last write, with word `w`, is not settled.
#[inline(never)]
fn read_behind_write<S: Space, const B: usize>(ctx: &Ctx, space: &S, offset: usize, at: At, w: u64) {
    let (shadow, granule) = again(ctx, space, offset, B);
    race::read_behind_write(ctx, space, shadow, granule, w, plain(offset, B, at));
}

/// Any read of `B` bytes.
#[inline(never)]
fn read_closely<S: Space, const B: usize>(ctx: &Ctx, space: &S, offset: usize, at: At) {
    match space.ready_shadow(B, offset, ctx.era.get()) {
        Some(shadow) if space.is_written::<B>(offset) => {
            race::read_granule(ctx, space, shadow, offset / B, plain(offset, B, at));
        }
        _ => read_slowly(ctx, space, offset, B, at),
    }
}

#[inline(never)]
fn read_slowly<S: Space>(ctx: &Ctx, space: &S, offset: usize, bytes: usize, at: At) {
    if let Some(byte) = space.unwritten(offset, bytes) {
        suspect(ctx, at, format!("read of {}, never written{}", space.describe(byte), S::LIFETIME));
    }
    let shadow = space.shadow(granule_of(offset, bytes), ctx.time.get());
    race::read(ctx, space, shadow, plain(offset, bytes, at));
}

/// # Safety
/// As [`write`].
#[inline(never)]
unsafe fn write_of<S: Space, const B: usize>(ctx: &Ctx, space: &S, offset: usize, value: *const u8, at: At) {
    if let Some(shadow) = space.ready_shadow(B, offset, ctx.era.get())
        && let Some(site) = site::known(at)
    {
        if !S::SHARED {
            shadow.prefetch(offset / B);
        }
        space.mark_written(offset, B);
        let (writer, reader) = shadow.granule(offset / B);
        let me = ctx.word.get();
        let w = exchange::<S>(ctx, writer, me | site);
        if !settled::<S>(ctx, w, me) {
            // SAFETY: the caller's promise.
            unsafe { write_behind_write::<S, B>(ctx, space, offset, value, at, w) };
            return;
        }
        let r = reader.load(SeqCst);
        if !settled::<S>(ctx, r, me) || r & ALSO != 0 {
            write_behind_read::<S, B>(ctx, space, offset, at, r);
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { write_slowly(ctx, space, offset, B, value, at) };
}

/// The rest of a write of a granule whose last write, with word `w`, is not settled.
///
/// # Safety
/// As [`write`].
#[inline(never)]
unsafe fn write_behind_write<S: Space, const B: usize>(
    ctx: &Ctx,
    space: &S,
    offset: usize,
    value: *const u8,
    at: At,
    w: u64,
) {
    let (access, (shadow, granule)) = (plain(offset, B, at), again(ctx, space, offset, B));
    // SAFETY: the caller's promise.
    unsafe { race::write_behind_write(ctx, space, shadow, granule, w, access, value, space.byte(offset)) };
    race::write_behind_reads(ctx, space, shadow, granule, access);
}

/// The rest of a write of a granule whose last read, with word `r`, is not settled.
#[inline(never)]
fn write_behind_read<S: Space, const B: usize>(ctx: &Ctx, space: &S, offset: usize, at: At, r: u64) {
    let (shadow, granule) = again(ctx, space, offset, B);
    race::write_behind_read(ctx, space, shadow, granule, r, plain(offset, B, at));
}

/// # Safety
/// As [`write`].
#[inline(never)]
unsafe fn write_slowly<S: Space>(
    ctx: &Ctx,
    space: &S,
    offset: usize,
    bytes: usize,
    value: *const u8,
    at: At,
) {
    let shadow = space.shadow(granule_of(offset, bytes), ctx.time.get());
    // SAFETY: the caller's promise.
    unsafe { race::write(ctx, space, shadow, plain(offset, bytes, at), value, space.byte(offset)) };
    space.mark_written(offset, bytes);
}

/// Checks an atomic that reads, writes or does both, with the flags of its scope, before it is made.
pub(crate) fn atomic<S: Space>(
    ctx: &Ctx,
    space: &S,
    offset: usize,
    bytes: usize,
    (reads, writes): (bool, bool),
    flags: u64,
    at: At,
) {
    if reads && let Some(byte) = space.unwritten(offset, bytes) {
        let detail = format!("atomic on {}, never written{}", space.describe(byte), S::LIFETIME);
        fault(ctx, Kind::Uninitialized, at, None, detail);
    }
    let shadow = space.shadow(granule_of(offset, bytes), ctx.time.get());
    let access = Access { offset, bytes, flags, at };
    if writes {
        // SAFETY: of atomics no bytes are compared.
        unsafe { race::write(ctx, space, shadow, access, ptr::null(), ptr::null()) };
        space.mark_written(offset, bytes);
    } else {
        race::read(ctx, space, shadow, access);
    }
}
