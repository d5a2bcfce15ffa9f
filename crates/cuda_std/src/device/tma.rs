use super::shared::RawShared;
use crate::barrier::Barrier;
use core::arch::asm;

/// A tensor map: where in the launch's parameters it lies.
#[derive(Clone, Copy)]
pub struct TensorMap(u64);

impl TensorMap {
    /// The map at a generic address.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn at(address: u64) -> TensorMap {
        TensorMap(address)
    }
}

/// The parameter itself, which an entry never reads: it takes its address.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapBytes([u64; 16]);

#[inline(always)]
pub fn prefetch(map: TensorMap) {
    // SAFETY: a hint.
    unsafe { asm!("prefetch.tensormap [{}];", in(reg64) map.0, options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn prefetch_box(map: TensorMap, at: [i32; 4]) {
    // SAFETY: a hint.
    unsafe {
        asm!(
            "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [{}, {{ {}, {}, {}, {} }}];",
            in(reg64) map.0, in(reg32) at[0], in(reg32) at[1], in(reg32) at[2], in(reg32) at[3],
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn load_box<T: Copy>(to: RawShared, index: u32, map: TensorMap, at: [i32; 4], barrier: Barrier) {
    let (barriers, number) = barrier.raw();
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{}], \
             [{}, {{ {}, {}, {}, {} }}], [{}];",
            in(reg32) to.element::<T>(index), in(reg64) map.0, in(reg32) at[0], in(reg32) at[1], in(reg32) at[2],
            in(reg32) at[3], in(reg32) barriers.element::<u64>(number), options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn store_box_if<T: Copy>(from: RawShared, when: bool, index: u32, map: TensorMap, at: [i32; 4]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred %when; setp.ne.b32 %when, {}, 0; @%when \
             cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [{}, {{ {}, {}, {}, {} }}], [{}]; }}",
            in(reg32) when as u32, in(reg64) map.0, in(reg32) at[0], in(reg32) at[1], in(reg32) at[2], in(reg32) at[3],
            in(reg32) from.element::<T>(index), options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn fence_loads() {
    // SAFETY: orders memory.
    unsafe { asm!("fence.proxy.async.global;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn commit_stores() {
    // SAFETY: a barrier to the compiler.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn wait_stores_read<const PENDING: u32>() {
    // SAFETY: as above.
    unsafe {
        asm!("cp.async.bulk.wait_group.read {};", const PENDING, options(nostack, preserves_flags));
    }
}
