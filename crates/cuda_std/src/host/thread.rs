#[inline(always)]
pub fn thread_idx<const D: usize>() -> u32 {
    simt::thread_idx()[D]
}
#[inline(always)]
pub fn block_idx<const D: usize>() -> u32 {
    simt::block_idx()[D]
}
#[inline(always)]
pub fn block_dim<const D: usize>() -> u32 {
    simt::block_dim()[D]
}
#[inline(always)]
pub fn grid_dim<const D: usize>() -> u32 {
    simt::grid_dim()[D]
}
#[inline(always)]
#[track_caller]
pub fn sync_threads() {
    simt::sync_block();
}
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: bool) -> u32 {
    simt::sync_block_count(predicate)
}
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: bool) -> bool {
    simt::sync_block_count(!predicate) == 0
}
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: bool) -> bool {
    simt::sync_block_count(predicate) != 0
}
#[inline(always)]
#[track_caller]
pub fn sync_named(id: u32, threads: u32) {
    simt::sync_named(id, threads);
}
#[inline(always)]
#[track_caller]
pub fn arrive_named(id: u32, threads: u32) {
    simt::arrive_named(id, threads);
}
#[inline(always)]
#[track_caller]
pub fn block_fence() {
    simt::fence(simt::Ordering::AcqRel, simt::Scope::Block);
}
#[inline(always)]
#[track_caller]
pub fn device_fence() {
    simt::fence(simt::Ordering::AcqRel, simt::Scope::Device);
}
#[inline(always)]
#[track_caller]
pub fn system_fence() {
    simt::fence(simt::Ordering::AcqRel, simt::Scope::System);
}

#[inline(always)]
#[track_caller]
pub fn spin_wait() {
    simt::spin_wait();
}
