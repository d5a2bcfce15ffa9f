//! Atomic operations on global memory, and relaxed ones on shared memory of a cluster, with an explicit ordering and scope.
//!
//! `Scope` says who takes part: an operation at block scope is not atomic for other blocks. `Ordering`
//! says what it orders: a flag that guards other data needs `Release` where it is set and `Acquire`
//! where it is read.

use crate::Shared;
use crate::global::GlobalMut;
use crate::imp::atomic as imp;
use crate::packed::Pack;

/// What an atomic operation orders, as in `core::sync::atomic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Nothing but the operation itself.
    Relaxed,
    /// Later accesses stay after it.
    Acquire,
    /// Earlier accesses stay before it.
    Release,
    /// Both.
    AcqRel,
}

/// Which threads an atomic operation is atomic for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The block.
    Block,
    /// All of the GPU.
    Device,
    /// The host and other GPUs as well.
    System,
}

/// Which PTX type an operation works on.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U32,
    I32,
    U64,
    I64,
    F32,
}

/// A read-modify-write operation.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
}

/// A type that has atomic operations.
pub trait Atomic: Copy + PartialEq + 'static {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn to_bits64(self) -> u64;
    #[doc(hidden)]
    fn from_bits64(bits: u64) -> Self;
    #[doc(hidden)]
    fn combine(self, operation: Operation, operand: Self) -> Self;
}

macro_rules! atomic_int {
    ($($ty:ty => $kind:ident),*) => {$(
        impl Atomic for $ty {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn to_bits64(self) -> u64 { self as u64 }
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self { bits as $ty }
            #[inline(always)]
            fn combine(self, operation: Operation, operand: Self) -> Self {
                match operation {
                    Operation::Add => self.wrapping_add(operand),
                    Operation::Min => Ord::min(self, operand),
                    Operation::Max => Ord::max(self, operand),
                    Operation::And => self & operand,
                    Operation::Or => self | operand,
                    Operation::Xor => self ^ operand,
                    Operation::Exchange => operand,
                }
            }
        }
    )*};
}
atomic_int!(u32 => U32, i32 => I32, u64 => U64, i64 => I64);

impl Atomic for f32 {
    const KIND: Kind = Kind::F32;
    #[inline(always)]
    fn to_bits64(self) -> u64 {
        self.to_bits() as u64
    }
    #[inline(always)]
    fn from_bits64(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn combine(self, operation: Operation, operand: Self) -> Self {
        match operation {
            Operation::Add => self + operand,
            _ => operand,
        }
    }
}

/// An integer type that has atomic minimum, maximum and bitwise operations.
pub trait AtomicInt: Atomic {}
impl AtomicInt for u32 {}
impl AtomicInt for i32 {}
impl AtomicInt for u64 {}
impl AtomicInt for i64 {}

macro_rules! operations {
    ($($bound:ident { $($name:ident: $operation:ident, $what:literal;)* })*) => {$(
        impl<T: $bound> GlobalMut<T> {$(
            #[doc = $what]
            /// Returns the value before.
            ///
            /// # Safety
            /// The element must exist and be initialised, and be accessed atomically by all threads that
            /// are not ordered with this one.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn $name(self, index: usize, value: T, ordering: Ordering, scope: Scope) -> T {
                // SAFETY: the caller's contract.
                unsafe { imp::rmw(self.raw(), Operation::$operation, index, value, ordering, scope) }
            }
        )*}
    )*};
}

operations! {
    Atomic {
        atomic_add: Add, "Adds `value` to element `index`; integers wrap. On a GPU, subnormal f32 count as 0.";
        atomic_exchange: Exchange, "Replaces element `index` by `value`.";
    }
    AtomicInt {
        atomic_min: Min, "Lowers element `index` to `value` if that is less.";
        atomic_max: Max, "Raises element `index` to `value` if that is more.";
        atomic_and: And, "Bitwise and of element `index` and `value`.";
        atomic_or: Or, "Bitwise or of element `index` and `value`.";
        atomic_xor: Xor, "Bitwise exclusive or of element `index` and `value`.";
    }
}

impl<T: AtomicInt> GlobalMut<T> {
    /// Replaces element `index` by `new` if it equals `expected`; returns the value before.
    ///
    /// # Safety
    /// As the other atomic operations.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic_compare_exchange(
        self,
        index: usize,
        expected: T,
        new: T,
        ordering: Ordering,
        scope: Scope,
    ) -> T {
        // SAFETY: the caller's contract.
        unsafe { imp::compare_exchange(self.raw(), index, expected, new, ordering, scope) }
    }
}

impl GlobalMut<u32> {
    /// Reads the pack that starts at element `index`, each word atomically and relaxed at device scope: a poll of four words
    /// at once.
    ///
    /// # Safety
    /// As the other atomic operations for each word, and the pack starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_pack_relaxed(self, index: usize) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::load_pack(self.raw(), index) }
    }

    /// Writes the pack that starts at element `index`, each word atomically and relaxed at device scope.
    ///
    /// # Safety
    /// As [`Self::load_pack_relaxed`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_pack_relaxed(self, index: usize, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_pack(self.raw(), index, pack) }
    }

    /// [`Self::load_pack_relaxed`] where `when` holds, otherwise `otherwise`.
    ///
    /// # Safety
    /// Where `when` holds, as the other atomic operations for each word, and the pack starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_pack_relaxed_or(self, when: bool, index: usize, otherwise: Pack) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::load_pack_or(self.raw(), when, index, otherwise) }
    }
}

/// Relaxed, among the blocks of a cluster.
impl Shared<u32> {
    /// Reads element `index`.
    ///
    /// # Safety
    /// As [`Shared::get`], but others may write it by [`Self::store_relaxed`] and [`Self::store_relaxed_remote`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_relaxed(self, index: u32) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { imp::load_shared(self.raw(), index) }
    }

    /// Writes element `index`.
    ///
    /// # Safety
    /// As [`Shared::set`], but others may read it by [`Self::load_relaxed`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_relaxed(self, index: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_shared(self.raw(), index, value) }
    }

    /// Writes element `index` of the same array in block `rank` of the cluster.
    ///
    /// # Safety
    /// As [`Shared::set_remote`], but others may read it by [`Self::load_relaxed`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_relaxed_remote(self, rank: u32, index: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_shared_remote(self.raw(), rank, index, value) }
    }

    /// Reads four elements from `index` on, each as [`Self::load_relaxed`] does, in any order.
    ///
    /// # Safety
    /// As [`Self::load_relaxed`] for each, and the first starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn load_pack_relaxed(self, index: u32) -> Pack {
        // SAFETY: the caller's contract.
        unsafe { imp::load_shared_pack(self.raw(), index) }
    }

    /// Writes four elements from `index` on, each as [`Self::store_relaxed`] does, in any order.
    ///
    /// # Safety
    /// As [`Self::store_relaxed`] for each, and the first starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_pack_relaxed(self, index: u32, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_shared_pack(self.raw(), index, pack) }
    }

    /// Writes four elements from `index` on of the same array in block `rank` of the cluster, each as [`Self::store_relaxed_remote`] does, in any order.
    ///
    /// # Safety
    /// As [`Self::store_relaxed_remote`] for each, and the first starts at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn store_pack_relaxed_remote(self, rank: u32, index: u32, pack: Pack) {
        // SAFETY: the caller's contract.
        unsafe { imp::store_shared_pack_remote(self.raw(), rank, index, pack) }
    }
}

impl<T: Atomic> GlobalMut<T> {
    /// Reads element `index`; `Relaxed` or `Acquire`.
    ///
    /// # Safety
    /// As the other atomic operations.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic_load(self, index: usize, ordering: Ordering, scope: Scope) -> T {
        // SAFETY: the caller's contract.
        unsafe { imp::load(self.raw(), index, ordering, scope) }
    }

    /// Writes element `index`; `Relaxed` or `Release`.
    ///
    /// # Safety
    /// As the other atomic operations.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn atomic_store(self, index: usize, value: T, ordering: Ordering, scope: Scope) {
        // SAFETY: the caller's contract.
        unsafe { imp::store(self.raw(), index, value, ordering, scope) }
    }
}
