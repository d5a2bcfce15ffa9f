#[inline(always)]
pub fn rank() -> u32 {
    simt::cluster_rank()
}
#[inline(always)]
pub fn index() -> u32 {
    simt::block_idx()[0] / simt::cluster_size()
}
#[inline(always)]
pub fn size() -> u32 {
    simt::cluster_size()
}
#[inline(always)]
#[track_caller]
pub fn sync() {
    simt::sync_cluster();
}
