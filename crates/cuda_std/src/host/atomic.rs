use super::shared::RawShared;
use crate::atomic::{Atomic, AtomicInt, Operation, Ordering, Scope};
use crate::global::RawView;
use crate::packed::Pack;

fn order(ordering: Ordering) -> simt::Ordering {
    match ordering {
        Ordering::Relaxed => simt::Ordering::Relaxed,
        Ordering::Acquire => simt::Ordering::Acquire,
        Ordering::Release => simt::Ordering::Release,
        Ordering::AcqRel => simt::Ordering::AcqRel,
    }
}

fn scope_of(scope: Scope) -> simt::Scope {
    match scope {
        Scope::Block => simt::Scope::Block,
        Scope::Device => simt::Scope::Device,
        Scope::System => simt::Scope::System,
    }
}

fn view<T>(raw: RawView) -> simt::View<T> {
    raw.view()
}

#[inline(always)]
#[track_caller]
pub unsafe fn rmw<T: Atomic>(
    raw: RawView,
    operation: Operation,
    index: usize,
    value: T,
    ordering: Ordering,
    scope: Scope,
) -> T {
    // SAFETY: the checker tests the access.
    unsafe {
        view::<T>(raw)
            .atomic_rmw(index, order(ordering), scope_of(scope), |before| before.combine(operation, value))
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn compare_exchange<T: AtomicInt>(
    raw: RawView,
    index: usize,
    expected: T,
    new: T,
    ordering: Ordering,
    scope: Scope,
) -> T {
    // SAFETY: the checker tests the access.
    unsafe {
        view::<T>(raw).atomic_rmw(index, order(ordering), scope_of(scope), |before| {
            if before == expected { new } else { before }
        })
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn load<T: Atomic>(raw: RawView, index: usize, ordering: Ordering, scope: Scope) -> T {
    // SAFETY: the checker tests the access.
    unsafe { view::<T>(raw).atomic_load(index, order(ordering), scope_of(scope)) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn store<T: Atomic>(raw: RawView, index: usize, value: T, ordering: Ordering, scope: Scope) {
    // SAFETY: the checker tests the access.
    unsafe { view::<T>(raw).atomic_store(index, value, order(ordering), scope_of(scope)) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn load_pack(raw: RawView, index: usize) -> Pack {
    let mut pack = [0; 4];
    for (i, word) in pack.iter_mut().enumerate() {
        // SAFETY: the checker tests the access.
        *word = unsafe { load::<u32>(raw, index + i, Ordering::Relaxed, Scope::Device) };
    }
    pack
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_pack(raw: RawView, index: usize, pack: Pack) {
    for (i, word) in pack.into_iter().enumerate() {
        // SAFETY: the checker tests the access.
        unsafe { store::<u32>(raw, index + i, word, Ordering::Relaxed, Scope::Device) };
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn load_pack_or(raw: RawView, when: bool, index: usize, otherwise: Pack) -> Pack {
    // SAFETY: the caller's contract.
    if when { unsafe { load_pack(raw, index) } } else { otherwise }
}

#[inline(always)]
#[track_caller]
pub unsafe fn load_shared(raw: RawShared, index: u32) -> u32 {
    let (order, scope) = (simt::Ordering::Relaxed, simt::Scope::Cluster);
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().atomic_load(index as usize, order, scope) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_shared(raw: RawShared, index: u32, value: u32) {
    let (order, scope) = (simt::Ordering::Relaxed, simt::Scope::Cluster);
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().atomic_store(index as usize, value, order, scope) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_shared_remote(raw: RawShared, rank: u32, index: u32, value: u32) {
    let (order, scope) = (simt::Ordering::Relaxed, simt::Scope::Cluster);
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().atomic_store_remote(rank, index as usize, value, order, scope) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn load_shared_pack(raw: RawShared, index: u32) -> Pack {
    // SAFETY: the checker tests the accesses.
    [0, 1, 2, 3].map(|i| unsafe { load_shared(raw, index + i) })
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_shared_pack(raw: RawShared, index: u32, pack: Pack) {
    for (i, word) in pack.into_iter().enumerate() {
        // SAFETY: the checker tests the access.
        unsafe { store_shared(raw, index + i as u32, word) };
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_shared_pack_remote(raw: RawShared, rank: u32, index: u32, pack: Pack) {
    for (i, word) in pack.into_iter().enumerate() {
        // SAFETY: the checker tests the access.
        unsafe { store_shared_remote(raw, rank, index + i as u32, word) };
    }
}
