//! The race detector: FastTrack on shadow words, with clocks per warp.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::ctx::{At, Ctx};
use crate::fault::{fault, other_of_word, record};
use crate::report::Kind;
use crate::shadow::Shadow;
use crate::site;
use crate::word::{self, ATOMIC, BLOCK_SCOPE, CLUSTER_SCOPE};

/// Where an access goes: global memory or a block's shared memory.
///
/// Offsets are within it.
pub(crate) trait Space {
    /// Words of other blocks mean nothing here: the memory is reused from block to block.
    const SHARED: bool;
    /// How long what was written stays, for the sentence in a report.
    const LIFETIME: &'static str;
    /// Names the byte.
    fn describe(&self, offset: usize) -> String;
    /// Where the byte is.
    fn byte(&self, offset: usize) -> *const u8;
    /// Are these bytes all known to be written?
    fn is_written<const B: usize>(&self, offset: usize) -> bool;
    /// The first of these bytes that nothing has written.
    fn unwritten(&self, offset: usize, bytes: usize) -> Option<usize>;
    /// Marks bytes as written.
    fn mark_written(&self, offset: usize, bytes: usize);
    /// The shadow table if its granule is just this access.
    fn ready_shadow(&self, bytes: usize, offset: usize, era: u64) -> Option<&Shadow>;
    /// The shadow table for an access that needs granules of at most `1 << log` bytes.
    fn shadow(&self, log: u32, time: u64) -> &Shadow;
}

/// One access that the detector looks at.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub offset: usize,
    pub bytes: usize,
    /// `ATOMIC` and the scope bits, 0 for a plain access.
    pub flags: u64,
    pub at: At,
}

/// A block exits: have the others of its cluster done with its shared memory?
#[cold]
pub(crate) fn check_exit(ctx: &Ctx, e: u64) {
    let same_block = word::block(e ^ ctx.word.get()) == 0;
    let known = |warp: &crate::ctx::Warp| {
        let acquired = warp.acquired.borrow();
        let clocks = acquired.as_ref().and_then(|m| m.get(word::block(e)));
        clocks.is_some_and(|c| c[word::thread(e) as usize / 32] >= word::clock(e))
    };
    let mut ordered = same_block || word::clock(e) <= ctx.others.get().max(ctx.block().cluster_joined.get());
    ctx.for_warps(ctx.block(), |w| ordered |= known(w));
    if !ordered {
        let other = other_of_word(ctx, e);
        let detail = "the block may exit before another has accessed its shared memory".into();
        record(ctx, Kind::InvalidAccess, other.site.clone(), Some(other), detail);
    }
}

/// Is the access with word `e` of this launch and of a block that can meet this lane?
#[inline]
fn current<S: Space>(ctx: &Ctx, e: u64) -> bool {
    word::clock(e) >= ctx.base.get()
        && (!S::SHARED
            || word::block(e ^ ctx.word.get()) == 0
            || (ctx.cluster.get() > 1 && ctx.in_cluster(word::block(e))))
}

/// Does the access with word `e`, of this launch, come before the running lane's next one?
#[inline]
fn ordered(ctx: &Ctx, e: u64) -> bool {
    let me = ctx.word.get();
    let (warp, clock) = (ctx.warp(), word::clock(e));
    if word::block(e ^ me) == 0 {
        let x = word::thread(e ^ me);
        if x == 0 {
            return true;
        }
        if clock <= warp.joined.get() {
            return true;
        }
        if x < 32 {
            // What a barrier that counts has told the warp covers its own lanes' copies, too.
            return clock <= warp.warp_joined.get() || ordered_by_part(ctx, e) || ordered_by_clocks(ctx, e);
        }
        ordered_by_clocks(ctx, e)
    } else {
        clock <= ctx.others.get()
            || (clock <= ctx.block().cluster_joined.get() && ctx.in_cluster(word::block(e)))
            || ordered_by_atomics(ctx, e)
    }
}

/// Does the access with word `e`, of this launch, come before what the running lane does next?
pub(crate) fn comes_before(ctx: &Ctx, e: u64) -> bool {
    ordered(ctx, e)
}

#[cold]
fn ordered_by_part(ctx: &Ctx, e: u64) -> bool {
    let mine = word::thread(ctx.word.get()) as usize % 32;
    let matrix = ctx.warp().matrix.borrow();
    matrix.as_ref().is_some_and(|m| m[mine][word::thread(e) as usize % 32] >= word::clock(e))
}

fn ordered_by_clocks(ctx: &Ctx, e: u64) -> bool {
    let seen = ctx.warp().seen.borrow();
    seen.as_ref().is_some_and(|v| v[word::thread(e) as usize / 32] >= word::clock(e))
}

fn ordered_by_atomics(ctx: &Ctx, e: u64) -> bool {
    let acquired = ctx.warp().acquired.borrow();
    let clocks = acquired.as_ref().and_then(|m| m.get(word::block(e)));
    clocks.is_some_and(|c| c[word::thread(e) as usize / 32] >= word::clock(e))
}

/// Two atomics whose scopes do not include one another race like plain accesses.
fn scopes_meet(ctx: &Ctx, a: u64, b: u64, flags: u64) -> bool {
    let narrow = (a | flags) & (BLOCK_SCOPE | CLUSTER_SCOPE);
    let same_block = word::block(a ^ b) == 0;
    if narrow & BLOCK_SCOPE != 0 {
        same_block
    } else if narrow & CLUSTER_SCOPE != 0 {
        same_block || ctx.in_cluster(word::block(a))
    } else {
        true
    }
}

/// Puts a word in a cell's place. What shared memory belongs to runs on one thread of the processor: a block, or a cluster.
#[inline(always)]
pub(crate) fn exchange<S: Space>(ctx: &Ctx, cell: &AtomicU64, new: u64) -> u64 {
    if !S::SHARED && ctx.parallel.get() {
        // Sequentially consistent: of two racing accesses, one sees the other's word.
        cell.swap(new, SeqCst)
    } else {
        let old = cell.load(Relaxed);
        cell.store(new, Relaxed);
        old
    }
}

/// Is the access with word `e` old, or settled by a barrier? False means: look closer.
#[inline(always)]
pub(crate) fn settled<S: Space>(ctx: &Ctx, e: u64, me: u64) -> bool {
    let others = if S::SHARED { &ctx.others_shared } else { &ctx.others };
    let limit = if word::block(e ^ me) == 0 { ctx.joined.get() } else { others.get() };
    word::clock(e) <= limit
}

/// Records and checks a read of all granules of an access.
#[inline(never)]
pub(crate) fn read<S: Space>(ctx: &Ctx, space: &S, shadow: &Shadow, a: Access) {
    let first = a.offset >> shadow.log;
    let count = (a.bytes >> shadow.log).max(1);
    for g in first..first + count {
        read_granule(ctx, space, shadow, g, a);
    }
}

/// Records and checks a read of one granule.
#[inline(always)]
pub(crate) fn read_granule<S: Space>(ctx: &Ctx, space: &S, shadow: &Shadow, g: usize, a: Access) {
    let (writer, reader) = shadow.granule(g);
    let me = ctx.word.get();
    let r = reader.load(Relaxed);
    if settled::<S>(ctx, r, me) && r & word::ALSO == 0 {
        exchange::<S>(ctx, reader, me | a.flags & ATOMIC | site::number(a.at));
    } else if (r ^ me) >> word::THREAD_SHIFT == 0 && (r ^ a.flags) & ATOMIC == 0 {
        return; // read before at this clock: a write since would have been reported by its writer
    } else if !current::<S>(ctx, r) {
        exchange::<S>(ctx, reader, me | a.flags & ATOMIC | site::number(a.at));
    } else {
        read_again::<S>(ctx, reader, r, a);
    }
    let w = writer.load(SeqCst);
    if !settled::<S>(ctx, w, me) {
        read_behind_write(ctx, space, shadow, g, w, a);
    }
}

/// Checks a read of a granule against the last write, with word `w`.
#[inline(never)]
pub(crate) fn read_behind_write<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    g: usize,
    w: u64,
    a: Access,
) {
    let me = ctx.word.get();
    if current::<S>(ctx, w) && !word::same_thread(w, me) {
        let both_atomic = w & a.flags & ATOMIC != 0 && scopes_meet(ctx, w, me, a.flags);
        if !both_atomic && !ordered(ctx, w) {
            race(ctx, space, shadow, g, w, "read", "write", a);
        }
    }
}

/// A granule that was read in this launch: the reader's word stays with the first unordered one.
#[inline(never)]
fn read_again<S: Space>(ctx: &Ctx, reader: &AtomicU64, r: u64, a: Access) {
    let me = ctx.word.get();
    let weaker = r & ATOMIC != 0 && a.flags & ATOMIC == 0;
    if weaker || ordered(ctx, r) {
        // Keep the marks of a word that is merely one's own or the warp's.
        let keep = if weaker { 0 } else { r & still_unordered(ctx, r) };
        exchange::<S>(ctx, reader, me | keep | a.flags & ATOMIC | site::number(a.at));
        return;
    }
    let x = r ^ me;
    let mark = if word::block(x) != 0 {
        word::ALSO_BLOCKS
    } else if word::thread(x) >= 32 {
        word::ALSO_WARPS
    } else {
        word::ALSO_LANES
    };
    if r & mark == 0 {
        exchange::<S>(ctx, reader, r | mark);
    }
}

/// Which "also" marks of a reader's word name readers that may still be unordered with this lane.
fn still_unordered(ctx: &Ctx, r: u64) -> u64 {
    let also = r & (word::ALSO_LANES | word::ALSO_WARPS | word::ALSO_BLOCKS);
    if also == 0 {
        return 0;
    }
    let (warp, clock) = (ctx.warp(), word::clock(r));
    let same_block = word::block(r ^ ctx.word.get()) == 0;
    let mut left = 0;
    if also & word::ALSO_LANES != 0
        && same_block
        && word::thread(r ^ ctx.word.get()) < 32
        && clock > warp.warp_joined.get().max(warp.joined.get())
        && warp.matrix.borrow().is_none()
    {
        left |= word::ALSO_LANES;
    }
    if also & word::ALSO_WARPS != 0 && same_block && clock > warp.joined.get() && warp.seen.borrow().is_none()
    {
        left |= word::ALSO_WARPS;
    }
    let joined = ctx.others.get().max(ctx.block().cluster_joined.get());
    if also & word::ALSO_BLOCKS != 0 && clock > joined && warp.acquired.borrow().is_none() {
        left |= word::ALSO_BLOCKS;
    }
    left
}

/// Records and checks a write of `value` to all granules of an access, before it is made at `target`.
///
/// # Safety
/// `value` and `target` must have `a.bytes` readable bytes, or be null for an atomic.
#[inline(never)]
pub(crate) unsafe fn write<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    a: Access,
    value: *const u8,
    target: *const u8,
) {
    let first = a.offset >> shadow.log;
    let count = (a.bytes >> shadow.log).max(1);
    for g in first..first + count {
        // SAFETY: the caller's promise.
        unsafe { write_granule(ctx, space, shadow, g, a, value, target) };
    }
}

/// Records and checks a write of one granule.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
pub(crate) unsafe fn write_granule<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    g: usize,
    a: Access,
    value: *const u8,
    target: *const u8,
) {
    let (writer, _) = shadow.granule(g);
    let me = ctx.word.get();
    let w = exchange::<S>(ctx, writer, me | a.flags | site::number(a.at));
    if !settled::<S>(ctx, w, me) {
        // SAFETY: the caller's promise.
        unsafe { write_behind_write(ctx, space, shadow, g, w, a, value, target) };
    }
    write_behind_reads(ctx, space, shadow, g, a);
}

/// Checks a write of a granule against the last reads, if they are not settled.
#[inline(always)]
pub(crate) fn write_behind_reads<S: Space>(ctx: &Ctx, space: &S, shadow: &Shadow, g: usize, a: Access) {
    let r = shadow.granule(g).1.load(SeqCst);
    if !settled::<S>(ctx, r, ctx.word.get()) || r & word::ALSO != 0 {
        write_behind_read(ctx, space, shadow, g, r, a);
    }
}

/// Checks a write of a granule, which is recorded, against the one before it with word `w`.
///
/// # Safety
/// As for [`write`].
#[inline(never)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn write_behind_write<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    g: usize,
    w: u64,
    a: Access,
    value: *const u8,
    target: *const u8,
) {
    let me = ctx.word.get() | a.flags | site::number(a.at);
    if !current::<S>(ctx, w) || word::same_thread(w, me) {
        return;
    }
    let both_atomic = w & a.flags & ATOMIC != 0 && scopes_meet(ctx, w, me, a.flags);
    if both_atomic || ordered(ctx, w) {
        return;
    }
    // Lanes of a warp that store the same value in one instruction are well defined.
    let together = (w ^ me) & !(31 << word::THREAD_SHIFT) == 0 && a.flags & ATOMIC == 0;
    // SAFETY: the caller's promise; plain writes bring both pointers.
    if !together || !unsafe { same_bytes(value, target, a.bytes) } {
        race(ctx, space, shadow, g, w, "write", "write", a);
    }
}

/// Checks a write of a granule against the last read, with word `r`, and others that it tells of.
#[inline(never)]
pub(crate) fn write_behind_read<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    g: usize,
    r: u64,
    a: Access,
) {
    if !current::<S>(ctx, r) || r & a.flags & ATOMIC != 0 {
        return;
    }
    if !ordered(ctx, r) || still_unordered(ctx, r) != 0 {
        race(ctx, space, shadow, g, r, "write", "read", a);
    }
}

unsafe fn same_bytes(a: *const u8, b: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(a, bytes) == std::slice::from_raw_parts(b, bytes) }
}

#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn race<S: Space>(
    ctx: &Ctx,
    space: &S,
    shadow: &Shadow,
    g: usize,
    e: u64,
    mine: &str,
    theirs: &str,
    a: Access,
) -> ! {
    let offset = (g << shadow.log).max(a.offset);
    let atomic = |flags: u64| if flags & ATOMIC != 0 { "atomic " } else { "" };
    let scope = if e & a.flags & ATOMIC != 0 { "; the scopes do not include one another" } else { "" };
    let others =
        if word::same_thread(e, ctx.word.get()) { " and by other threads at the same time" } else { "" };
    let detail = format!(
        "{}{mine} of {} bytes races with an earlier {}{theirs}{others}, at {}{scope}",
        atomic(a.flags),
        a.bytes,
        atomic(e),
        space.describe(offset),
    );
    fault(ctx, Kind::Race, a.at, Some(other_of_word(ctx, e)), detail)
}
