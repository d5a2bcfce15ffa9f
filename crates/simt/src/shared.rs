//! Shared memory of the running block, and of the other blocks of its cluster.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::check;
use crate::ctx::{At, Block, Ctx, FULL, NONE, ctx};
use crate::fault::fault;
use crate::report::Kind;

/// A shared array declared in a kernel: one `static` for each declaration.
#[derive(Debug)]
pub struct StaticShared {
    bytes: u32,
    align: u32,
}

impl StaticShared {
    /// An array of `bytes` bytes, aligned to `align`.
    pub const fn new(bytes: u32, align: u32) -> StaticShared {
        assert!(align.is_power_of_two() && align <= 1024);
        StaticShared { bytes, align }
    }
}

/// A window on the running block's shared memory.
pub struct SharedView<T> {
    offset: u32,
    len: u32,
    marker: PhantomData<*mut T>,
}

impl<T> Clone for SharedView<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedView<T> {}

impl<T> fmt::Debug for SharedView<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedView({} elements at byte {})", self.len, self.offset)
    }
}

// SAFETY: a window is an offset; each use is an unsafe, checked call inside a launch.
unsafe impl<T> Send for SharedView<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SharedView<T> {}

/// The launch's dynamic shared memory from a byte offset on.
#[track_caller]
#[inline]
pub fn dynamic<T>(byte_offset: u32, len: u32) -> SharedView<T> {
    let ctx = ctx();
    let end = byte_offset as u64 + len as u64 * size_of::<T>() as u64;
    if end > ctx.launch().shared_bytes as u64 && !ctx.stopping.get() {
        let have = ctx.launch().shared_bytes;
        let detail = format!("the kernel uses {end} bytes of dynamic shared memory, the launch gave {have}");
        fault(ctx, Kind::SharedLimit, Location::caller(), None, detail);
    }
    SharedView { offset: byte_offset, len, marker: PhantomData }
}

/// A statically declared shared array.
#[track_caller]
#[inline]
pub fn static_array<T>(id: &'static StaticShared, len: u32) -> SharedView<T> {
    let ctx = ctx();
    let key = std::ptr::from_ref(id) as usize;
    let known = ctx.statics.borrow().iter().find(|s| s.0 == key).map(|s| s.1);
    let offset = known.unwrap_or_else(|| place(ctx, id, Location::caller()));
    let end = (offset + id.bytes) as usize;
    if ctx.block().arena.used.get() < end {
        // Every block of the cluster has the array at the same offset.
        let limit = ctx.launch().limits.max_shared_per_block as usize;
        for rank in 0..ctx.cluster.get() {
            ctx.cluster_block(rank).arena.extend(end, limit);
        }
    }
    if len as u64 * size_of::<T>() as u64 > id.bytes as u64 && !ctx.stopping.get() {
        let detail =
            format!("{len} elements of {} bytes in a shared array of {} bytes", size_of::<T>(), id.bytes);
        fault(ctx, Kind::OutOfBounds, Location::caller(), None, detail);
    }
    SharedView { offset, len, marker: PhantomData }
}

/// Gives a static array its place, the same one in all blocks of the launch.
#[cold]
fn place(ctx: &Ctx, id: &'static StaticShared, at: At) -> u32 {
    let launch = ctx.launch();
    let key = std::ptr::from_ref(id) as usize;
    let mut placed = launch.statics.lock().unwrap_or_else(|e| e.into_inner());
    let offset = match placed.iter().find(|s| s.0 == key) {
        Some(s) => s.1,
        None => {
            let end = placed.last().map_or(launch.shared_bytes, |s| s.2);
            let offset = end.next_multiple_of(id.align);
            let (total, limit) = (offset as u64 + id.bytes as u64, launch.limits.max_shared_per_block);
            if total > limit as u64 {
                drop(placed);
                let detail = format!("the block needs {total} bytes of shared memory, the limit is {limit}");
                fault(ctx, Kind::SharedLimit, at, None, detail);
            }
            placed.push((key, offset, total as u32));
            offset
        }
    };
    ctx.statics.borrow_mut().push((key, offset));
    offset
}

/// Checks the place of an access of `count` elements and gives its byte offset.
#[inline(always)]
pub(crate) fn enter<T>(
    ctx: &Ctx,
    v: SharedView<T>,
    block: &Block,
    index: usize,
    count: usize,
    align: usize,
    at: At,
) -> usize {
    let offset = (v.offset as usize).wrapping_add(index.wrapping_mul(size_of::<T>()));
    if index.checked_add(count).is_none_or(|end| end > v.len as usize)
        || offset + count * size_of::<T>() > block.arena.used.get()
    {
        out_of_bounds(ctx, index, count, v.len, at);
    }
    if !offset.is_multiple_of(align) {
        misaligned(ctx, offset, align, at);
    }
    ctx.spend(at);
    offset
}

#[cold]
#[inline(never)]
fn out_of_bounds(ctx: &Ctx, index: usize, count: usize, len: u32, at: At) -> ! {
    let what =
        if count == 1 { format!("element {index}") } else { format!("elements {index}..{index}+{count}") };
    fault(ctx, Kind::OutOfBounds, at, None, format!("{what} in a shared view of {len} elements"))
}

#[cold]
#[inline(never)]
fn misaligned(ctx: &Ctx, offset: usize, align: usize, at: At) -> ! {
    fault(
        ctx,
        Kind::Misaligned,
        at,
        None,
        format!("byte {offset} of shared memory is not a multiple of {align}"),
    )
}

/// Loads and stores, valid inside a launch only.
///
/// # Safety
/// As for [`View`](crate::View): checked under `Checks::Bounds` and `Checks::Full`, the caller's care otherwise.
#[allow(clippy::missing_safety_doc)] // stated once, above
impl<T: Copy> SharedView<T> {
    #[inline(always)]
    fn before_load(self, ctx: &Ctx, block: &Block, index: usize, count: usize, align: usize, at: At) {
        if ctx.level.get() != NONE && !ctx.stopping.get() {
            let offset = enter(ctx, self, block, index, count, align, at);
            if ctx.level.get() == FULL {
                check::read(ctx, &block.arena, offset, count * size_of::<T>(), at);
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn before_store(
        self,
        ctx: &Ctx,
        block: &Block,
        index: usize,
        count: usize,
        align: usize,
        value: *const u8,
        at: At,
    ) {
        if ctx.level.get() != NONE && !ctx.stopping.get() {
            let offset = enter(ctx, self, block, index, count, align, at);
            if ctx.level.get() == FULL {
                // SAFETY: callers give as many bytes, and so has the memory at `offset`, checked by `enter`.
                unsafe { check::write(ctx, &block.arena, offset, count * size_of::<T>(), value, at) };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn address(self, block: &Block, index: usize) -> *mut T {
        block.arena.data().wrapping_add(self.offset as usize + index * size_of::<T>()).cast()
    }

    /// Reads an element.
    #[track_caller]
    #[inline]
    pub unsafe fn load(self, index: usize) -> T {
        // SAFETY: the caller's contract.
        unsafe { self.load_at(index, Location::caller()) }
    }

    /// [`Self::load`] on behalf of another place in the source.
    #[inline]
    pub(crate) unsafe fn load_at(self, index: usize, at: At) -> T {
        let ctx = ctx();
        self.before_load(ctx, ctx.block(), index, 1, align_of::<T>(), at);
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(ctx.block(), index).read() }
    }

    /// Writes an element.
    #[track_caller]
    #[inline]
    pub unsafe fn store(self, index: usize, value: T) {
        let ctx = ctx();
        let bytes = (&raw const value).cast();
        self.before_store(ctx, ctx.block(), index, 1, align_of::<T>(), bytes, Location::caller());
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(ctx.block(), index).write(value) }
    }

    /// Reads `N` elements in one access, aligned to its size.
    #[track_caller]
    #[inline]
    pub unsafe fn load_vector<const N: usize>(self, index: usize) -> [T; N] {
        // SAFETY: the caller's contract.
        unsafe { self.load_vector_at(index, Location::caller()) }
    }

    /// [`Self::load_vector`] on behalf of another place in the source.
    #[inline]
    pub(crate) unsafe fn load_vector_at<const N: usize>(self, index: usize, at: At) -> [T; N] {
        let ctx = ctx();
        self.before_load(ctx, ctx.block(), index, N, N * size_of::<T>(), at);
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(ctx.block(), index).cast::<[T; N]>().read() }
    }

    /// Writes `N` elements in one access, aligned to its size.
    #[track_caller]
    #[inline]
    pub unsafe fn store_vector<const N: usize>(self, index: usize, value: [T; N]) {
        // SAFETY: the caller's contract.
        unsafe { self.store_vector_at(index, value, Location::caller()) }
    }

    /// [`Self::store_vector`] on behalf of another place in the source.
    #[inline]
    pub(crate) unsafe fn store_vector_at<const N: usize>(self, index: usize, value: [T; N], at: At) {
        let ctx = ctx();
        let bytes = (&raw const value).cast();
        self.before_store(ctx, ctx.block(), index, N, N * size_of::<T>(), bytes, at);
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(ctx.block(), index).cast::<[T; N]>().write(value) }
    }

    /// Reads an element of the same window in the block `rank` of the cluster.
    #[track_caller]
    #[inline]
    pub unsafe fn load_remote(self, rank: u32, index: usize) -> T {
        let ctx = ctx();
        let block = remote(ctx, rank, Location::caller());
        self.before_load(ctx, block, index, 1, align_of::<T>(), Location::caller());
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(block, index).read() }
    }

    /// Writes an element of the same window in the block `rank` of the cluster.
    #[track_caller]
    #[inline]
    pub unsafe fn store_remote(self, rank: u32, index: usize, value: T) {
        let ctx = ctx();
        let block = remote(ctx, rank, Location::caller());
        let bytes = (&raw const value).cast();
        self.before_store(ctx, block, index, 1, align_of::<T>(), bytes, Location::caller());
        // SAFETY: checked, or the caller's promise.
        unsafe { self.address(block, index).write(value) }
    }
}

/// A block of the cluster that has not exited.
pub(crate) fn living(ctx: &Ctx, rank: u32, at: At) -> &Block {
    let size = ctx.cluster.get();
    if rank >= size {
        fault(ctx, Kind::InvalidAccess, at, None, format!("rank {rank} in a cluster of {size} blocks"));
    }
    let block = ctx.cluster_block(rank);
    if block.live.get() == 0 && ctx.level.get() != NONE && !ctx.stopping.get() {
        let detail = format!("shared memory of block {rank} of the cluster, which has exited");
        fault(ctx, Kind::InvalidAccess, at, None, detail);
    }
    block
}

/// A block of the cluster whose shared memory is alive, and now waits with its end for the running lane's access.
pub(crate) fn remote(ctx: &Ctx, rank: u32, at: At) -> &Block {
    let block = living(ctx, rank, at);
    if ctx.level.get() == FULL && !std::ptr::eq(block, ctx.block()) {
        let word = ctx.word.get();
        if crate::word::clock(word) >= crate::word::clock(block.remote.get()) {
            block.remote.set(word | crate::site::number(at));
        }
    }
    block
}

impl<T> SharedView<T> {
    /// The window without its first elements.
    #[inline]
    pub fn offset(self, elements: u32) -> SharedView<T> {
        let offset = self.offset.wrapping_add(elements.wrapping_mul(size_of::<T>() as u32));
        SharedView { offset, len: self.len.saturating_sub(elements), marker: PhantomData }
    }

    /// The same bytes as elements of another type; a tail that does not fill an element is dropped.
    #[inline]
    pub fn cast<U>(self) -> SharedView<U> {
        let len = (self.len as usize * size_of::<T>()).checked_div(size_of::<U>()).unwrap_or(0) as u32;
        SharedView { offset: self.offset, len, marker: PhantomData }
    }

    /// Elements.
    #[inline]
    pub fn len(self) -> u32 {
        self.len
    }

    /// True for a window of no elements.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Offset of the first byte in the block's shared memory: its address on the device.
    #[inline]
    pub fn byte_offset(self) -> u32 {
        self.offset
    }
}

/// A window from its address in shared memory, as an instruction's descriptor holds it. Accesses are checked
/// against what the block uses.
#[inline]
pub fn from_address<T>(byte_offset: u32, len: u32) -> SharedView<T> {
    SharedView { offset: byte_offset, len, marker: PhantomData }
}
