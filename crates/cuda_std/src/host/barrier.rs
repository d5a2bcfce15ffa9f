use super::shared::RawShared;
use simt::{SharedView, mbarrier};

#[inline(always)]
pub(super) fn view(raw: RawShared) -> SharedView<u64> {
    raw.bytes().cast()
}

#[inline(always)]
#[track_caller]
pub unsafe fn init(raw: RawShared, index: u32, arrivals: u32) {
    // SAFETY: the checker tests the access.
    unsafe { mbarrier::init(view(raw), index as usize, arrivals) }
}

#[inline(always)]
pub fn fence_init() {
    mbarrier::fence_init();
}

#[inline(always)]
#[track_caller]
pub unsafe fn arrive_if(raw: RawShared, index: u32, when: bool) {
    if when {
        // SAFETY: the checker tests the access.
        unsafe { mbarrier::arrive(view(raw), index as usize, 0) }
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn arrive_expecting(raw: RawShared, index: u32, bytes: u32) {
    // SAFETY: the checker tests the access.
    unsafe { mbarrier::arrive(view(raw), index as usize, bytes) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn wait(raw: RawShared, index: u32, parity: u32) {
    // SAFETY: the checker tests the access.
    unsafe { mbarrier::wait(view(raw), index as usize, parity) }
}
