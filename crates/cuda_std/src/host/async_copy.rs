use super::global::{self, RawView};
use super::shared::RawShared;

#[inline(always)]
#[track_caller]
pub unsafe fn copy_pack<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, count: u32) {
    let mut pack = [0u8; 16];
    let size = size_of::<T>();
    // SAFETY: the checker tests the accesses; the bytes are those of elements.
    unsafe {
        if count as usize * size == 16 {
            let words = global::get_pack_if::<T>(source, true, from, 0);
            pack = core::mem::transmute::<[u32; 4], [u8; 16]>(words);
        } else {
            for i in 0..count as usize {
                let value = global::get::<T>(source, from + i);
                pack.as_mut_ptr().cast::<T>().add(i).write_unaligned(value);
            }
        }
        simt::copy_async(to.bytes(), index as usize * size, pack);
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn copy_part<T: Copy, const AHEAD: u32>(
    to: RawShared,
    index: u32,
    source: RawView,
    from: usize,
    low: u32,
    high: u32,
    zero: u32,
) {
    assert_eq!(zero, 0, "a GPU would copy to another place");
    let size = size_of::<T>();
    let (low, high) = (low as usize, high as usize);
    // SAFETY: the checker tests the accesses; the bytes are those of elements.
    unsafe {
        if (high - low) * size == 16 {
            return copy_pack::<T>(to, index, source, from, high as u32);
        }
        let mut pack = [simt::POISON; 16];
        for i in low..high {
            let value = global::get::<T>(source, from + i);
            pack.as_mut_ptr().cast::<T>().add(i).write_unaligned(value);
        }
        simt::copy_part_async(to.bytes(), index as usize * size, pack, low * size..high * size);
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn copy_pack_kept<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, zero: u32) {
    assert_eq!(zero, 0, "a GPU would copy to another place");
    // SAFETY: the checker tests the accesses.
    unsafe { copy_pack::<T>(to, index, source, from, 16 / size_of::<T>() as u32) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn copy_pack_if<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
    if when {
        // SAFETY: the checker tests the accesses.
        unsafe { copy_pack::<T>(to, index, source, from, 16 / size_of::<T>() as u32) }
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn copy_4<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
    // SAFETY: the checker tests the accesses.
    unsafe {
        let word = global::get_4_if::<T>(source, when, from, 0);
        simt::copy_async(to.bytes(), index as usize * size_of::<T>(), word.to_ne_bytes());
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn copy_16<T: Copy>(to: RawShared, index: u32, source: RawView, from: usize, when: bool) {
    // SAFETY: the checker tests the accesses.
    unsafe { copy_pack::<T>(to, index, source, from, if when { 16 / size_of::<T>() as u32 } else { 0 }) }
}

#[inline(always)]
pub fn commit() {
    simt::commit_copies();
}

#[inline(always)]
pub fn wait<const PENDING: u32>() {
    simt::wait_copies(PENDING as usize);
}
