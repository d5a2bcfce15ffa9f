use crate::Pack;
use crate::barrier::Barrier;
use simt::SharedView;

/// Bytes of the current block's shared memory.
#[derive(Clone, Copy)]
pub struct RawShared(SharedView<u8>);

impl RawShared {
    /// The array declared at one place in the source.
    pub fn from_static<T>(array: &'static simt::StaticShared, length: u32) -> Self {
        RawShared(simt::static_array::<u8>(array, length * size_of::<T>() as u32))
    }

    /// The array's bytes.
    #[inline(always)]
    pub(super) fn bytes(self) -> SharedView<u8> {
        self.0
    }

    #[inline(always)]
    pub(super) fn cast<T>(self) -> SharedView<T> {
        self.0.cast::<T>()
    }
}

#[inline(always)]
#[track_caller]
pub fn dynamic(offset: u32, length: u32, size: u32) -> RawShared {
    RawShared(simt::dynamic::<u8>(offset, length * size))
}
/// The checker's shared memory begins at a multiple of 1024.
#[inline(always)]
#[track_caller]
pub fn dynamic_slabs(offset: u32, length: u32, size: u32) -> RawShared {
    dynamic(offset, length, size)
}
#[inline(always)]
pub fn expect_slabs() {}
#[inline(always)]
#[track_caller]
pub unsafe fn get<T: Copy>(raw: RawShared, index: u32) -> T {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<T>().load(index as usize) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set<T: Copy>(raw: RawShared, index: u32, value: T) {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<T>().store(index as usize, value) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_pack<T: Copy>(raw: RawShared, index: u32) -> Pack {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().load_vector::<4>(index as usize * size_of::<T>() / 4) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_pack<T: Copy>(raw: RawShared, index: u32, pack: Pack) {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().store_vector::<4>(index as usize * size_of::<T>() / 4, pack) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_8<T: Copy>(raw: RawShared, index: u32) -> [u32; 2] {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().load_vector::<2>(index as usize * size_of::<T>() / 4) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_8<T: Copy>(raw: RawShared, index: u32, words: [u32; 2]) {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<u32>().store_vector::<2>(index as usize * size_of::<T>() / 4, words) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_remote<T: Copy>(raw: RawShared, rank: u32, index: u32) -> T {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<T>().load_remote(rank, index as usize) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_bits_remote_if<T: Copy>(raw: RawShared, when: bool, rank: u32, index: u32) -> u32 {
    const { assert!(size_of::<T>() == 4) };
    // SAFETY: the checker tests the access.
    if when { unsafe { raw.cast::<u32>().load_remote(rank, index as usize) } } else { 0 }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_pack_remote_if<T: Copy>(raw: RawShared, when: bool, rank: u32, index: u32) -> Pack {
    let first = index as usize * size_of::<T>() / 4;
    let mut pack = [0; 4];
    if when {
        for (i, word) in pack.iter_mut().enumerate() {
            // SAFETY: the checker tests the access.
            *word = unsafe { raw.cast::<u32>().load_remote(rank, first + i) };
        }
    }
    pack
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_remote<T: Copy>(raw: RawShared, rank: u32, index: u32, value: T) {
    // SAFETY: the checker tests the access.
    unsafe { raw.cast::<T>().store_remote(rank, index as usize, value) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn post(raw: RawShared, rank: u32, index: u32, value: u64, barrier: Barrier) {
    let (barriers, number) = barrier.raw();
    let barriers = super::barrier::view(barriers);
    // SAFETY: the checker tests the access.
    unsafe { simt::mbarrier::post(raw.cast(), rank, index as usize, value, barriers, number as usize) };
}

#[inline(always)]
#[track_caller]
pub unsafe fn send<T: Copy>(
    from: RawShared,
    index: u32,
    count: u32,
    to: RawShared,
    rank: u32,
    at: u32,
    barrier: Barrier,
) {
    let (barriers, number) = barrier.raw();
    let size = size_of::<T>() as u32;
    let (from, to) = (from.bytes().offset(index * size), to.bytes().offset(at * size));
    let barriers = super::barrier::view(barriers);
    // SAFETY: the checker tests the accesses.
    unsafe { simt::bulk::send(from, to, count * size, rank, barriers, number as usize) };
}
