#[inline(always)]
pub fn rank() -> u32 {
    simt::cluster_rank()
}
#[inline(always)]
pub fn index() -> u32 {
    simt::block_idx()[0] / simt::cluster_size()
}
#[inline(always)]
pub fn count() -> u32 {
    simt::grid_dim()[0] / simt::cluster_size()
}
#[inline(always)]
pub fn size() -> u32 {
    simt::cluster_size()
}
#[inline(always)]
pub fn arrive() {}
#[inline(always)]
pub fn arrive_relaxed() {}
#[inline(always)]
#[track_caller]
pub fn wait() {
    simt::sync_cluster();
}
#[inline(always)]
#[track_caller]
pub fn sync() {
    simt::sync_cluster();
}
