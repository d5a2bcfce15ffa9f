use core::arch::nvptx;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_sync(id: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn barrier_sync_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    fn barrier_arrive_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier0.popc"]
    fn barrier_popc(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.barrier0.and"]
    fn barrier_and(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.barrier0.or"]
    fn barrier_or(predicate: i32) -> i32;
    #[link_name = "llvm.nvvm.membar.cta"]
    fn membar_cta();
    #[link_name = "llvm.nvvm.membar.gl"]
    fn membar_gl();
    #[link_name = "llvm.nvvm.membar.sys"]
    fn membar_sys();
}

macro_rules! registers {
    ($($name:ident = $x:ident, $y:ident, $z:ident;)*) => {$(
        #[inline(always)]
        pub fn $name<const D: usize>() -> u32 {
            // SAFETY: reads a special register.
            unsafe {
                match D {
                    0 => nvptx::$x() as u32,
                    1 => nvptx::$y() as u32,
                    _ => nvptx::$z() as u32,
                }
            }
        }
    )*};
}
registers! {
    thread_idx = _thread_idx_x, _thread_idx_y, _thread_idx_z;
    block_idx = _block_idx_x, _block_idx_y, _block_idx_z;
    block_dim = _block_dim_x, _block_dim_y, _block_dim_z;
    grid_dim = _grid_dim_x, _grid_dim_y, _grid_dim_z;
}

#[inline(always)]
pub fn sync_threads() {
    // SAFETY: the caller's contract: all threads of the block arrive.
    unsafe { barrier_sync(0) }
}
#[inline(always)]
pub fn sync_threads_count(predicate: bool) -> u32 {
    // SAFETY: as above.
    unsafe { barrier_popc(predicate as i32) as u32 }
}
#[inline(always)]
pub fn sync_threads_and(predicate: bool) -> bool {
    // SAFETY: as above.
    unsafe { barrier_and(predicate as i32) != 0 }
}
#[inline(always)]
pub fn sync_threads_or(predicate: bool) -> bool {
    // SAFETY: as above.
    unsafe { barrier_or(predicate as i32) != 0 }
}
#[inline(always)]
pub fn sync_named(id: u32, threads: u32) {
    // SAFETY: the caller's contract: `threads` threads arrive at `id`.
    unsafe { barrier_sync_count(id, threads) }
}
#[inline(always)]
pub fn arrive_named(id: u32, threads: u32) {
    // SAFETY: as above.
    unsafe { barrier_arrive_count(id, threads) }
}
#[inline(always)]
pub fn block_fence() {
    // SAFETY: orders memory, touches none.
    unsafe { membar_cta() }
}
#[inline(always)]
pub fn device_fence() {
    // SAFETY: as above.
    unsafe { membar_gl() }
}
#[inline(always)]
pub fn system_fence() {
    // SAFETY: as above.
    unsafe { membar_sys() }
}

#[inline(always)]
pub fn spin_wait() {}
