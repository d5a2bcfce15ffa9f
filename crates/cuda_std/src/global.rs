//! Typed views of global memory.
//!
//! On the GPU a view is a bare pointer and an access is one `ld` or `st`. On the CPU a view knows its
//! allocation and every access goes through the checker. Kernels cannot check bounds at a cost of
//! nothing, so access is `unsafe` and the launch code guarantees the extents; the checker proves it on
//! every test.
//!
//! Indices count elements and are 64 bits wide. A *pack* is 16 aligned bytes.

use crate::imp::global as imp;
use crate::packed::{Float, Pack};
use core::marker::PhantomData;

pub use imp::RawView;

/// Global memory that the kernel only reads, and nothing writes during the launch: loads may use the
/// non-coherent path. L2 keeps what they read rather than what is written, which leaves for memory the sooner.
#[repr(transparent)]
pub struct Global<T> {
    raw: RawView,
    element: PhantomData<*const T>,
}

/// Global memory that the kernel writes, and may read.
#[repr(transparent)]
pub struct GlobalMut<T> {
    raw: RawView,
    element: PhantomData<*mut T>,
}

/// Whether L2 is to keep what stores write, as it does what loads read, or lets go of it the sooner. What several blocks write of a
/// line leaves for memory once where it is kept until all have; what is complete at once may as well leave.
#[derive(Clone, Copy)]
pub struct Keep(imp::Policy);

impl Keep {
    /// Kept where `kept`.
    #[inline(always)]
    pub fn when(kept: bool) -> Self {
        Self(imp::writes_stay(kept))
    }
}

macro_rules! view {
    ($view:ident) => {
        impl<T> Clone for $view<T> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $view<T> {}
        // SAFETY: a view is an address; what may be done through it is each access's contract.
        unsafe impl<T> Send for $view<T> {}
        // SAFETY: as above.
        unsafe impl<T> Sync for $view<T> {}

        impl<T: Copy> $view<T> {
            /// Wraps a raw view.
            ///
            /// # Safety
            /// `raw` must point to elements of type `T`, aligned to its size.
            #[inline(always)]
            pub const unsafe fn from_raw(raw: RawView) -> Self {
                Self { raw, element: PhantomData }
            }

            /// The raw view.
            #[inline(always)]
            pub const fn raw(self) -> RawView {
                self.raw
            }

            /// The view that starts `elements` further on (or back).
            ///
            /// # Safety
            /// The start must lie within the same allocation, or one past its end.
            #[inline(always)]
            pub unsafe fn offset(self, elements: i64) -> Self {
                Self { raw: imp::offset::<T>(self.raw, elements), element: PhantomData }
            }

            /// The address of the first element, in bytes.
            #[inline(always)]
            pub fn address(self) -> u64 {
                imp::address(self.raw)
            }

            /// Reads element `index`.
            ///
            /// # Safety
            /// The element must exist and be initialised.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn get(self, index: usize) -> T {
                // SAFETY: the caller's contract.
                unsafe { imp::get::<T>(self.raw, index) }
            }
        }
    };
}
view!(Global);
view!(GlobalMut);

impl<T: Copy> Global<T> {
    /// Where `when` holds, lets the line of L2 come that has element `index`, which is to exist: PTX says nothing of other addresses,
    /// and the checker reports them. Nothing is read, so that others may write there meanwhile.
    #[inline(always)]
    #[track_caller]
    pub fn prefetch_if(self, when: bool, index: usize) {
        imp::prefetch_if::<T>(self.raw, when, index);
    }

    /// Reads element `index`, of four bytes, as it is at this moment, past L1: for hints, in front of the wait for the launch ahead, while others
    /// may be writing it. What is read afterwards does not come from a line that this has left in L1.
    ///
    /// # Safety
    /// The element must exist.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn glimpse(self, index: usize) -> u32 {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: the caller's contract.
        unsafe { imp::glimpse::<T>(self.raw, index) }
    }

    /// Reads the pack that starts at element `index`, or gives `otherwise` in every word.
    ///
    /// # Safety
    /// Where `when` holds, the whole pack must exist, be initialised and start at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_pack_if(self, when: bool, index: usize, otherwise: u32) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::get_pack_if::<T>(self.raw, when, index, otherwise) }
    }

    /// [`Self::get_pack_if`] with the usual policy of L2, as a plain copy has it; for what L2 gives anyway, where registers are few.
    ///
    /// # Safety
    /// As [`Self::get_pack_if`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_pack_plain_if(self, when: bool, index: usize, otherwise: u32) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::get_pack_plain_if::<T>(self.raw, when, index, otherwise) }
    }

    /// Reads the pack that starts at element `index`, or gives `otherwise`.
    ///
    /// # Safety
    /// As [`Self::get_pack_if`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_pack_or(self, when: bool, index: usize, otherwise: Pack) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::get_pack_or::<T>(self.raw, when, index, otherwise) }
    }

    /// Reads the eight bytes that start at element `index`, or gives `otherwise` in both words.
    ///
    /// # Safety
    /// Where `when` holds, the bytes must exist, be initialised and start at a multiple of 8 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_8_if(self, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe { imp::get_8_if::<T>(self.raw, when, index, otherwise) }
    }

    /// [`Self::get_8_if`] of what nobody reads again: L2 lets go of it before anything else.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_8_once_if(self, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe { imp::get_8_once_if::<T>(self.raw, when, index, otherwise) }
    }

    /// Reads the four bytes that start at element `index`, or gives `otherwise`.
    ///
    /// # Safety
    /// Where `when` holds, the bytes must exist, be initialised and start at a multiple of 4 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_4_if(self, when: bool, index: usize, otherwise: u32) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { imp::get_4_if::<T>(self.raw, when, index, otherwise) }
    }

    /// Reads of the `N` words that start at element `index` those that have elements of `low..high`, counted from there. What other
    /// elements are is not defined: the GPU reads all of a word where it reads one, and the checker none of the others.
    ///
    /// # Safety
    /// Elements `low..high` of these words must exist and be initialised, and there is one. The words start at multiples of 4 bytes, and
    /// so does the memory that they are in.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_words_around<const N: usize>(self, index: usize, low: u32, high: u32) -> [u32; N] {
        // SAFETY: the caller's contract.
        unsafe { imp::get_words_around::<T, N>(self.raw, index, low, high) }
    }
}

impl<T: Copy> Global<T> {
    /// Reads the bits of element `index`, of one, two or four bytes, or gives `otherwise`: a predicated load, without a
    /// branch.
    ///
    /// # Safety
    /// Where `when` holds, the element must exist and be initialised.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_bits_if(self, when: bool, index: usize, otherwise: u32) -> u32 {
        const { assert!(size_of::<T>() <= 4) };
        // SAFETY: the caller's contract.
        unsafe { imp::get_bits_if::<T>(self.raw, when, index, otherwise) }
    }
}

impl<T: Copy> GlobalMut<T> {
    /// Writes element `index`.
    ///
    /// # Safety
    /// The element must exist, and no other thread may access it without synchronisation.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(self, index: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { imp::set::<T>(self.raw, index, value) }
    }

    /// Writes element `index` where `when` holds: a predicated store, without a branch.
    ///
    /// # Safety
    /// As [`Self::set`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_if(self, when: bool, index: usize, value: T) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_if::<T>(self.raw, when, index, value) }
    }

    /// Writes the eight bytes that start at element `index` where `when` holds.
    ///
    /// # Safety
    /// As [`Self::set`], for each element, starting at a multiple of 8 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_8_if(self, when: bool, index: usize, words: [u32; 2]) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_8_if::<T>(self.raw, when, index, words) }
    }

    /// Writes the four bytes that start at element `index` where `when` holds.
    ///
    /// # Safety
    /// As [`Self::set`], for each element, starting at a multiple of 4 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_4_if(self, when: bool, index: usize, word: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_4_if::<T>(self.raw, when, index, word) }
    }

    /// Writes the pack that starts at element `index` where `when` holds.
    ///
    /// # Safety
    /// The whole pack must exist and start at a multiple of 16 bytes, and no other thread may access it
    /// without synchronisation.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_pack_if(self, when: bool, index: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_pack_if::<T>(self.raw, when, index, pack) }
    }

    /// Writes the pack that starts at element `index`, for L2 to keep or not.
    ///
    /// # Safety
    /// As [`Self::set_pack_if`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_pack_keeping(self, keep: Keep, index: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::set_pack_keeping::<T>(self.raw, keep.0, index, pack) }
    }

    /// Writes the first `BYTES` bytes of `words`, 1, 2, 4 or 8, to where element `index` starts, for L2 to keep or not, where `when`
    /// holds.
    ///
    /// # Safety
    /// As [`Self::set`], for whole elements that start at a multiple of `BYTES` bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_piece_keeping<const BYTES: usize>(
        self,
        keep: Keep,
        when: bool,
        index: usize,
        words: [u32; 2],
    ) {
        const { assert!(matches!(BYTES, 1 | 2 | 4 | 8) && BYTES.is_multiple_of(size_of::<T>())) };
        // SAFETY: the caller's contract.
        unsafe { imp::set_piece_keeping::<T, BYTES>(self.raw, keep.0, when, index, words) }
    }
}

impl<T: Float> GlobalMut<T> {
    /// Writes elements `low..high` of the pack that starts at element `index`, as far as it has them, and nothing else: a
    /// few stores, each as wide as the alignment allows.
    ///
    /// # Safety
    /// As [`Self::set`], for each of these elements; the pack starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set_pack_part(self, index: usize, pack: Pack, low: i32, high: i32) {
        let per_pack = T::PER_PACK as i32;
        // SAFETY: the caller's contract.
        unsafe {
            if low > 0 && high < per_pack {
                for element in 0..T::PER_PACK {
                    let when = low <= element as i32 && (element as i32) < high;
                    self.set_if(when, index + element, T::element(pack, element));
                }
            } else if low > 0 {
                self.set_pack_end(index, pack, (per_pack - low).max(0) as u32);
            } else {
                self.set_pack_begin(index, pack, high.max(0) as u32);
            }
        }
    }

    /// Writes the first `count` elements of a pack, fewer than it has.
    #[inline(always)]
    #[track_caller]
    unsafe fn set_pack_begin(self, index: usize, pack: Pack, count: u32) {
        let per_word = T::PER_WORD;
        let words = count / per_word as u32;
        let (two, one) = (words & 2 != 0, words & 1 != 0);
        // SAFETY: the caller's contract.
        unsafe {
            self.set_8_if(two, index, [pack[0], pack[1]]);
            let (at, word) = if two { (2, pack[2]) } else { (0, pack[0]) };
            self.set_4_if(one, index + at * per_word, word);
            if const { T::PER_WORD == 2 } {
                let word = if two { [pack[2], pack[3]] } else { [pack[0], pack[1]] };
                let word = if one { word[1] } else { word[0] };
                self.set_if(count & 1 != 0, index + 2 * words as usize, T::from_bits(word & 0xffff));
            }
        }
    }

    /// Writes the last `count` elements of a pack, fewer than it has.
    #[inline(always)]
    #[track_caller]
    unsafe fn set_pack_end(self, index: usize, pack: Pack, count: u32) {
        let per_word = T::PER_WORD;
        let words = count / per_word as u32;
        let (two, one) = (words & 2 != 0, words & 1 != 0);
        // SAFETY: the caller's contract.
        unsafe {
            self.set_8_if(two, index + 2 * per_word, [pack[2], pack[3]]);
            let (at, word) = if two { (1, pack[1]) } else { (3, pack[3]) };
            self.set_4_if(one, index + at * per_word, word);
            if const { T::PER_WORD == 2 } {
                let word = if two { [pack[1], pack[0]] } else { [pack[3], pack[2]] };
                let word = if one { word[1] } else { word[0] };
                self.set_if(count & 1 != 0, index + 7 - 2 * words as usize, T::from_bits(word >> 16));
            }
        }
    }
}
