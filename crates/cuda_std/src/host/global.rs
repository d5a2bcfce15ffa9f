use crate::Pack;
use simt::{Memory, View};

/// An address and, on the CPU, the allocation that the checker watches.
#[derive(Clone, Copy, Debug)]
pub struct RawView {
    address: *mut u8,
    bytes: usize,
    memory: *const Memory,
}

// SAFETY: an address; each access has its own contract, and the checker finds races.
unsafe impl Send for RawView {}
// SAFETY: as above.
unsafe impl Sync for RawView {}

impl RawView {
    /// A window on checked memory, from byte `offset`.
    pub fn checked(memory: &Memory, offset: usize, bytes: usize) -> RawView {
        RawView { address: memory.as_ptr().wrapping_add(offset), bytes, memory }
    }

    /// Memory of a GPU: the CPU can pass it on, not look at it.
    pub const fn device(address: u64, bytes: usize) -> RawView {
        RawView { address: address as *mut u8, bytes, memory: core::ptr::null() }
    }

    /// No memory: for a parameter that the launch does not use.
    pub const fn none() -> RawView {
        RawView::device(0, 0)
    }

    /// Bytes from the first to the end of the allocation.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn view<T>(self) -> View<T> {
        View { ptr: self.address.cast(), len: self.bytes / size_of::<T>(), memory: self.memory }
    }

    /// The view in words of type `W`, and the word that holds element `index` of type `T`.
    #[inline(always)]
    fn words<T, W>(self, index: usize) -> (View<W>, usize) {
        let byte = index.wrapping_mul(size_of::<T>());
        // An index that is no whole number of words would be misaligned on the GPU: shift the base, so
        // that the checker sees the same address and reports it.
        let skew = byte % size_of::<W>();
        let shifted = RawView { address: self.address.wrapping_add(skew), ..self };
        (shifted.view(), byte / size_of::<W>())
    }
}

#[inline(always)]
pub fn address(raw: RawView) -> u64 {
    raw.address as u64
}
#[inline(always)]
pub fn offset<T>(raw: RawView, elements: i64) -> RawView {
    let bytes = elements.wrapping_mul(size_of::<T>() as i64) as isize;
    RawView {
        address: raw.address.wrapping_offset(bytes),
        bytes: raw.bytes.saturating_add_signed(bytes.wrapping_neg()),
        memory: raw.memory,
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get<T: Copy>(raw: RawView, index: usize) -> T {
    // SAFETY: the checker tests the access.
    unsafe { raw.view::<T>().load(index) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set<T: Copy>(raw: RawView, index: usize, value: T) {
    // SAFETY: the checker tests the access.
    unsafe { raw.view::<T>().store(index, value) }
}
#[inline(always)]
#[track_caller]
pub fn prefetch_if<T: Copy>(raw: RawView, when: bool, index: usize) {
    if when {
        raw.view::<T>().prefetch(index);
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn glimpse<T: Copy>(raw: RawView, index: usize) -> u32 {
    let (view, word) = raw.words::<T, u32>(index);
    // SAFETY: the checker tests the access. Launches follow one another here.
    unsafe { view.load(word) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_pack_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> Pack {
    if !when {
        return [otherwise; 4];
    }
    let (view, word) = raw.words::<T, u32>(index);
    // SAFETY: the checker tests the access.
    unsafe { view.load_vector::<4>(word) }
}
pub use get_pack_if as get_pack_plain_if;
#[inline(always)]
#[track_caller]
pub unsafe fn get_pack_or<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: Pack) -> Pack {
    if !when {
        return otherwise;
    }
    // SAFETY: the caller's contract.
    unsafe { get_pack_if::<T>(raw, true, index, 0) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_8_once_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
    // SAFETY: the caller's contract.
    unsafe { get_8_if::<T>(raw, when, index, otherwise) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_8_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
    if !when {
        return [otherwise; 2];
    }
    let (view, word) = raw.words::<T, u32>(index);
    // SAFETY: the checker tests the access.
    unsafe { view.load_vector::<2>(word) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_4_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> u32 {
    if !when {
        return otherwise;
    }
    let (view, word) = raw.words::<T, u32>(index);
    // SAFETY: the checker tests the access.
    unsafe { view.load(word) }
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_words_around<T: Copy, const N: usize>(
    raw: RawView,
    index: usize,
    low: u32,
    high: u32,
) -> [u32; N] {
    let mut words = [u32::from_ne_bytes([simt::POISON; 4]); N];
    assert!(high as usize * size_of::<T>() <= 4 * N, "element {high} is behind {N} words");
    for i in low as usize..high as usize {
        // SAFETY: the checker tests the access; the element is within the words.
        unsafe {
            let value = get::<T>(raw, index.wrapping_add(i));
            words.as_mut_ptr().cast::<T>().add(i).write_unaligned(value);
        }
    }
    words
}
#[inline(always)]
#[track_caller]
pub unsafe fn get_bits_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> u32 {
    if !when {
        return otherwise;
    }
    // SAFETY: the caller's contract; the transmuted bits are those of the element.
    unsafe {
        let element = get::<T>(raw, index);
        match size_of::<T>() {
            1 => u32::from(core::mem::transmute_copy::<T, u8>(&element)),
            2 => u32::from(core::mem::transmute_copy::<T, u16>(&element)),
            _ => core::mem::transmute_copy::<T, u32>(&element),
        }
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_pack_if<T: Copy>(raw: RawView, when: bool, index: usize, pack: Pack) {
    if when {
        let (view, word) = raw.words::<T, u32>(index);
        // SAFETY: the checker tests the access.
        unsafe { view.store_vector::<4>(word, pack) }
    }
}
/// There is no cache to tell.
#[derive(Clone, Copy)]
pub struct Policy;

#[inline(always)]
pub fn writes_stay(_: bool) -> Policy {
    Policy
}

#[inline(always)]
#[track_caller]
pub unsafe fn set_pack_keeping<T: Copy>(raw: RawView, Policy: Policy, index: usize, pack: Pack) {
    // SAFETY: the caller's contract.
    unsafe { set_pack_if::<T>(raw, true, index, pack) }
}

#[inline(always)]
#[track_caller]
pub unsafe fn set_piece_keeping<T: Copy, const BYTES: usize>(
    raw: RawView,
    Policy: Policy,
    when: bool,
    index: usize,
    words: [u32; 2],
) {
    if when {
        let [low, high] = words;
        // SAFETY: the checker tests the access.
        unsafe {
            match BYTES {
                1 => {
                    let (view, byte) = raw.words::<T, u8>(index);
                    view.store(byte, low as u8);
                }
                2 => {
                    let (view, half) = raw.words::<T, u16>(index);
                    view.store(half, low as u16);
                }
                4 => set_4_if::<T>(raw, true, index, low),
                _ => set_8_if::<T>(raw, true, index, [low, high]),
            }
        }
    }
}

#[inline(always)]
#[track_caller]
pub unsafe fn set_if<T: Copy>(raw: RawView, when: bool, index: usize, value: T) {
    if when {
        // SAFETY: the caller's contract.
        unsafe { set(raw, index, value) }
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_8_if<T: Copy>(raw: RawView, when: bool, index: usize, value: [u32; 2]) {
    if when {
        let (view, word) = raw.words::<T, u32>(index);
        // SAFETY: the checker tests the access.
        unsafe { view.store_vector::<2>(word, value) }
    }
}
#[inline(always)]
#[track_caller]
pub unsafe fn set_4_if<T: Copy>(raw: RawView, when: bool, index: usize, value: u32) {
    if when {
        let (view, word) = raw.words::<T, u32>(index);
        // SAFETY: the checker tests the access.
        unsafe { view.store(word, value) }
    }
}
