use super::barrier::view;
use super::global::RawView;
use super::shared::RawShared;
use crate::barrier::Barrier;
use crate::kernel::{ArgBuffer, KernelArg};
use simt::bulk;

/// A tensor map: the driver's encoding of it, for a launch on a GPU, or what it says, for the CPU.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap {
    encoded: [u64; 16],
    data: RawView,
    element: usize,
    extents: [u64; 4],
    strides: [u64; 4],
    boxed: [u32; 4],
    tf32: bool,
}

impl TensorMap {
    /// Of a tensor of elements of so many bytes: extents, innermost first, steps in bytes of the dimensions beyond the
    /// innermost, and the extents of a box. `encoded` is the driver's form, or zeros for the CPU.
    pub fn new(
        data: RawView,
        element: usize,
        extents: [u64; 4],
        [y, z, w]: [u64; 3],
        boxed: [u32; 4],
        encoded: [u64; 16],
    ) -> TensorMap {
        TensorMap { encoded, data, element, extents, strides: [element as u64, y, z, w], boxed, tf32: false }
    }

    /// The same with f32 elements that loads round to tf32, as `encoded` has it too.
    pub fn of_tf32(self) -> TensorMap {
        TensorMap { tf32: true, ..self }
    }

    /// No tensor: for a parameter that the launch does not use.
    pub fn none() -> TensorMap {
        TensorMap::new(RawView::none(), 2, [1; 4], [16; 3], [8, 1, 1, 1], [0; 16])
    }

    fn described(&self) -> bulk::TensorMap {
        let TensorMap { data, element, extents, strides, boxed, tf32, .. } = *self;
        bulk::TensorMap { data: data.view(), element, extents, strides, boxed, tf32 }
    }
}

// SAFETY: the driver's 128 bytes, at the alignment that the entry's parameter has.
unsafe impl KernelArg for TensorMap {
    fn push(self, buffer: &mut ArgBuffer) {
        let bytes: [[u8; 8]; 16] = self.encoded.map(u64::to_ne_bytes);
        buffer.push(bytes.as_flattened(), 64);
    }

    fn operand_bytes(&self) -> u64 {
        self.data.bytes() as u64
    }
}

#[inline(always)]
pub fn prefetch(_: TensorMap) {}

#[inline(always)]
pub fn prefetch_box(_: TensorMap, _: [i32; 4]) {}

#[inline(always)]
#[track_caller]
pub unsafe fn load_box<T: Copy>(to: RawShared, index: u32, map: TensorMap, at: [i32; 4], barrier: Barrier) {
    let (barriers, number) = barrier.raw();
    let to = to.bytes().offset(index * size_of::<T>() as u32);
    // SAFETY: the checker tests the accesses.
    unsafe { bulk::load_box(to, &map.described(), at, view(barriers), number as usize) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn store_box_if<T: Copy>(from: RawShared, when: bool, index: u32, map: TensorMap, at: [i32; 4]) {
    if !when {
        return;
    }
    let from = from.bytes().offset(index * size_of::<T>() as u32);
    // SAFETY: the checker tests the accesses.
    unsafe { bulk::store_box(from, &map.described(), at) }
}

#[inline(always)]
pub fn fence_loads() {}

#[inline(always)]
pub fn commit_stores() {
    bulk::commit_stores();
}

#[inline(always)]
#[track_caller]
pub fn wait_stores_read<const PENDING: u32>() {
    bulk::wait_stores(PENDING as usize);
}
