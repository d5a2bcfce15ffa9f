//! Copies from global to shared memory that go on while their thread does something else.
//!
//! A copy reads its source when it is issued and its target holds nothing until its thread has waited for it:
//! a read before is one of memory that nothing wrote. The target counts as written at both times, so other
//! threads must keep away from it in between.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::Location;

use crate::ctx::{At, FULL, ctx};
use crate::memory::POISON;
use crate::shared::SharedView;

/// Bytes of the largest copy.
const MOST: usize = 16;

struct Pending {
    to: SharedView<u8>,
    index: usize,
    bytes: [u8; MOST],
    /// 4, 8 or 16.
    count: usize,
    /// Which of the bytes the target holds afterwards.
    written: Range<usize>,
    at: At,
}

impl Pending {
    fn land<const N: usize>(&self) {
        let bytes: [u8; N] = std::array::from_fn(|i| self.bytes[i]);
        // SAFETY: bounds were checked when it was issued; races are looked for once more.
        unsafe { self.to.store_vector_at(self.index, bytes, self.at) };
        mark_unwritten(self.to, self.index, 0..self.written.start);
        mark_unwritten(self.to, self.index, self.written.end..N);
    }
}

/// The copies of a thread that it has not waited for.
#[derive(Default)]
pub(crate) struct Copies {
    groups: VecDeque<Vec<Pending>>,
    open: Vec<Pending>,
}

fn with_copies<R>(use_them: impl FnOnce(&mut Copies) -> R) -> R {
    let ctx = ctx();
    ctx.warp().copied.set(true);
    use_them(ctx.lane().copies.borrow_mut().get_or_insert_with(Box::default))
}

/// Starts a copy, to the 4, 8 or 16 aligned bytes at `to[index..]`, of a value that has been read from its source.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn copy_async<const N: usize>(to: SharedView<u8>, index: usize, bytes: [u8; N]) {
    // SAFETY: the caller's contract.
    unsafe { copy_part_async(to, index, bytes, 0..N) }
}

/// As [`copy_async`], of a value of which only the bytes `written` are known: the rest of the target counts as not
/// written, though nothing else may touch it.
///
/// # Safety
/// As for [`SharedView`].
#[track_caller]
pub unsafe fn copy_part_async<const N: usize>(
    to: SharedView<u8>,
    index: usize,
    bytes: [u8; N],
    written: Range<usize>,
) {
    const { assert!(N == 4 || N == 8 || N == 16, "a copy is of 4, 8 or 16 bytes") };
    let at = Location::caller();
    // SAFETY: the caller's contract.
    unsafe { to.store_vector_at(index, [POISON; N], at) };
    mark_unwritten(to, index, 0..N);
    let bytes = std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(POISON));
    with_copies(|copies| copies.open.push(Pending { to, index, bytes, count: N, written, at }));
}

/// The bytes of a target hold nothing.
fn mark_unwritten(to: SharedView<u8>, index: usize, bytes: Range<usize>) {
    let ctx = ctx();
    if ctx.level.get() == FULL && !ctx.stopping.get() {
        let first = to.byte_offset() as usize + index + bytes.start;
        ctx.block().arena.mark_unwritten(first, bytes.len());
    }
}

/// Makes a group of the thread's copies since the last.
pub fn commit_copies() {
    with_copies(|copies| {
        let group = std::mem::take(&mut copies.open);
        copies.groups.push_back(group);
    });
}

/// Waits until at most the thread's last `pending` groups are still under way.
pub fn wait_copies(pending: usize) {
    let done = with_copies(|copies| {
        let count = copies.groups.len().saturating_sub(pending);
        copies.groups.drain(..count).flatten().collect::<Vec<_>>()
    });
    for copy in done {
        match copy.count {
            4 => copy.land::<4>(),
            8 => copy.land::<8>(),
            _ => copy.land::<16>(),
        }
    }
}
