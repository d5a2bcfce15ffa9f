//! Loads and stores of global memory.

use std::panic::Location;
use std::ptr;

use crate::check;
use crate::ctx::{At, Ctx, FULL, NONE, ctx};
use crate::fault::fault;
use crate::memory::{Inner, Memory, View};
use crate::race::Space;
use crate::report::Kind;

/// Accesses between two looks at the clock on the wall.
pub(crate) const BUDGET: u32 = 1 << 20;

impl Ctx {
    /// Counts an access; now and then looks at the clock.
    #[inline]
    pub(crate) fn spend(&self, at: At) {
        let left = self.budget.get();
        if left == 0 {
            self.check_time(at);
        } else {
            self.budget.set(left - 1);
        }
    }

    #[cold]
    fn check_time(&self, at: At) {
        self.budget.set(BUDGET);
        if (self.launch().stopped() || self.launch().is_suspect()) && !std::thread::panicking() {
            self.stopping.set(true);
            std::panic::resume_unwind(Box::new(crate::fault::Stop));
        }
        let now = std::time::Instant::now();
        let limit = self.launch().limits.watchdog;
        match self.started.get() {
            Some(start) if now.duration_since(start) > limit => {
                let detail = format!(
                    "the thread has run for {limit:?} without a barrier or collective: an endless loop?"
                );
                fault(self, Kind::Spin, at, None, detail);
            }
            Some(_) => {}
            None => self.started.set(Some(now)),
        }
    }
}

/// Checks an access of `count` elements at `index` and gives its memory and byte offset there.
#[inline(always)]
pub(crate) fn enter<T>(
    ctx: &Ctx,
    v: View<T>,
    index: usize,
    count: usize,
    align: usize,
    at: At,
) -> (&Inner, usize) {
    if v.memory.is_null() {
        null_view(ctx, at);
    }
    // SAFETY: a view's memory outlives the launch, as `View` demands.
    let inner = unsafe { (*v.memory).inner() };
    if index.checked_add(count).is_none_or(|end| end > v.len) {
        out_of_bounds(ctx, inner, index, count, v.len, at);
    }
    let address = (v.ptr as usize).wrapping_add(index * size_of::<T>());
    if !address.is_multiple_of(align) {
        misaligned(ctx, inner, address, align, at);
    }
    let offset = address.wrapping_sub(inner.base as usize);
    if offset > inner.len || inner.len - offset < count * size_of::<T>() {
        outside(ctx, inner, offset, count * size_of::<T>(), at);
    }
    ctx.spend(at);
    (inner, offset)
}

#[cold]
#[inline(never)]
fn null_view(ctx: &Ctx, at: At) -> ! {
    fault(ctx, Kind::InvalidAccess, at, None, "access through a null view".into())
}

#[cold]
#[inline(never)]
fn out_of_bounds(ctx: &Ctx, inner: &Inner, index: usize, count: usize, len: usize, at: At) -> ! {
    let what =
        if count == 1 { format!("element {index}") } else { format!("elements {index}..{index}+{count}") };
    let name = inner.name();
    let name = if name.is_empty() { String::new() } else { format!(" of `{name}`") };
    fault(ctx, Kind::OutOfBounds, at, None, format!("{what}{name} in a view of {len} elements"))
}

#[cold]
#[inline(never)]
fn misaligned(ctx: &Ctx, inner: &Inner, address: usize, align: usize, at: At) -> ! {
    let what = inner.describe(address.wrapping_sub(inner.base as usize));
    fault(ctx, Kind::Misaligned, at, None, format!("{what} is not a multiple of {align}"))
}

#[cold]
#[inline(never)]
fn outside(ctx: &Ctx, inner: &Inner, offset: usize, bytes: usize, at: At) -> ! {
    let detail = format!("{bytes} bytes at {} lie outside it", inner.describe(offset as isize as usize));
    fault(ctx, Kind::InvalidAccess, at, None, detail)
}

#[inline(always)]
fn before_load<T>(v: View<T>, index: usize, count: usize, align: usize, at: At) {
    let ctx = ctx();
    if ctx.level.get() != NONE && !ctx.stopping.get() {
        let (inner, offset) = enter(ctx, v, index, count, align, at);
        if ctx.level.get() == FULL {
            check::read(ctx, inner, offset, count * size_of::<T>(), at);
        }
    }
}

#[inline(always)]
fn before_store<T>(v: View<T>, index: usize, count: usize, align: usize, value: *const u8, at: At) {
    let ctx = ctx();
    if ctx.level.get() != NONE && !ctx.stopping.get() {
        let (inner, offset) = enter(ctx, v, index, count, align, at);
        if ctx.level.get() == FULL {
            // SAFETY: callers give as many bytes, and so has the memory at `offset`, checked by `enter`.
            unsafe { check::write(ctx, inner, offset, count * size_of::<T>(), value, at) };
        } else {
            inner.untracked_store();
        }
    } else if !v.memory.is_null() {
        // SAFETY: a view's memory outlives the launch.
        unsafe { (*v.memory).inner().untracked_store() };
    }
}

/// Loads and stores. All are valid inside a launch only and panic elsewhere.
///
/// # Safety
/// Under `Checks::Bounds` and `Checks::Full` every access is checked and none is unsafe in fact, as long as the
/// view's memory is alive and `T` is valid for the bytes that are there. Under `Checks::None` the index must be
/// in bounds.
#[allow(clippy::missing_safety_doc)] // stated once, above
impl<T: Copy> View<T> {
    /// Reads an element.
    #[track_caller]
    #[inline]
    pub unsafe fn load(self, index: usize) -> T {
        before_load(self, index, 1, align_of::<T>(), Location::caller());
        // SAFETY: checked, or the caller's promise.
        unsafe { self.ptr.add(index).read() }
    }

    /// Writes an element.
    #[track_caller]
    #[inline]
    pub unsafe fn store(self, index: usize, value: T) {
        before_store(self, index, 1, align_of::<T>(), (&raw const value).cast(), Location::caller());
        // SAFETY: checked, or the caller's promise.
        unsafe { self.ptr.add(index).write(value) }
    }

    /// Wants an element that is there, and does not read it.
    #[track_caller]
    #[inline]
    pub fn prefetch(self, index: usize) {
        let ctx = ctx();
        if ctx.level.get() != NONE && !ctx.stopping.get() {
            enter(ctx, self, index, 1, align_of::<T>(), Location::caller());
        }
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
        before_load(self, index, N, N * size_of::<T>(), at);
        // SAFETY: checked, or the caller's promise.
        unsafe { self.ptr.add(index).cast::<[T; N]>().read() }
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
        before_store(self, index, N, N * size_of::<T>(), (&raw const value).cast(), at);
        // SAFETY: checked, or the caller's promise.
        unsafe { self.ptr.add(index).cast::<[T; N]>().write(value) }
    }
}

impl<T> View<T> {
    /// The window moved by a number of elements. Forwards its length shrinks; backwards it grows, and what lies
    /// before the memory is reported when touched.
    #[inline]
    pub fn offset(self, elements: isize) -> View<T> {
        let len = if elements >= 0 {
            self.len.saturating_sub(elements as usize)
        } else {
            self.len.saturating_add(elements.unsigned_abs())
        };
        View { ptr: self.ptr.wrapping_offset(elements), len, memory: self.memory }
    }

    /// The same bytes as elements of another type; a tail that does not fill an element is dropped.
    #[inline]
    pub fn cast<U>(self) -> View<U> {
        let len = (self.len * size_of::<T>()).checked_div(size_of::<U>()).unwrap_or(0);
        View { ptr: self.ptr.cast(), len, memory: self.memory }
    }

    /// Is this a view of nothing?
    pub fn is_null(self) -> bool {
        ptr::eq(self.memory, ptr::null::<Memory>())
    }
}
