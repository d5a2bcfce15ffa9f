use super::shared::{self, RawShared};
use crate::atomic::{Atomic, AtomicInt, Kind, Operation, Ordering, Scope};
use crate::global::RawView;
use crate::packed::Pack;
use core::arch::asm;

/// Expands `$body` with the PTX words of an ordering and a scope; both are constants after inlining.
macro_rules! with_semantics {
    ($ordering:expr, $scope:expr, $run:ident!($($args:tt)*)) => {
        match ($ordering, $scope) {
            (Ordering::Relaxed, Scope::Block) => $run!($($args)*, "relaxed", "cta"),
            (Ordering::Relaxed, Scope::Device) => $run!($($args)*, "relaxed", "gpu"),
            (Ordering::Relaxed, Scope::System) => $run!($($args)*, "relaxed", "sys"),
            (Ordering::Acquire, Scope::Block) => $run!($($args)*, "acquire", "cta"),
            (Ordering::Acquire, Scope::Device) => $run!($($args)*, "acquire", "gpu"),
            (Ordering::Acquire, Scope::System) => $run!($($args)*, "acquire", "sys"),
            (Ordering::Release, Scope::Block) => $run!($($args)*, "release", "cta"),
            (Ordering::Release, Scope::Device) => $run!($($args)*, "release", "gpu"),
            (Ordering::Release, Scope::System) => $run!($($args)*, "release", "sys"),
            (Ordering::AcqRel, Scope::Block) => $run!($($args)*, "acq_rel", "cta"),
            (Ordering::AcqRel, Scope::Device) => $run!($($args)*, "acq_rel", "gpu"),
            (Ordering::AcqRel, Scope::System) => $run!($($args)*, "acq_rel", "sys"),
        }
    };
}

/// One `atom` instruction.
macro_rules! atom {
    ($register:ident, $bits:ty, $address:expr, $value:expr, $suffix:literal, $semantics:literal, $scope:literal) => {{
        let before: $bits;
        asm!(
            concat!("atom.", $semantics, ".", $scope, ".global.", $suffix, " {}, [{}], {};"),
            out($register) before, in(reg64) $address, in($register) $value as $bits, options(nostack)
        );
        before as u64
    }};
}

/// One `atom.cas` instruction.
macro_rules! cas {
    ($register:ident, $bits:ty, $address:expr, $expected:expr, $new:expr, $suffix:literal, $semantics:literal, $scope:literal) => {{
        let before: $bits;
        asm!(
            concat!("atom.", $semantics, ".", $scope, ".global.cas.", $suffix, " {}, [{}], {}, {};"),
            out($register) before, in(reg64) $address, in($register) $expected as $bits,
            in($register) $new as $bits, options(nostack)
        );
        before as u64
    }};
}

macro_rules! operation {
    ($register:ident, $bits:ty, $address:expr, $value:expr, $ordering:expr, $scope:expr, $suffix:literal) => {
        with_semantics!($ordering, $scope, atom!($register, $bits, $address, $value, $suffix))
    };
}

#[inline(always)]
fn at<T>(raw: RawView, index: usize) -> u64 {
    crate::imp::global::address(raw) + (index * size_of::<T>()) as u64
}

#[inline(always)]
pub unsafe fn rmw<T: Atomic>(
    raw: RawView,
    operation: Operation,
    index: usize,
    value: T,
    ordering: Ordering,
    scope: Scope,
) -> T {
    let (address, value) = (at::<T>(raw, index), value.to_bits64());
    // SAFETY: the caller's contract.
    let before = unsafe {
        match (operation, T::KIND) {
            (Operation::Add, Kind::U32) => operation!(reg32, u32, address, value, ordering, scope, "add.u32"),
            (Operation::Add, Kind::I32) => operation!(reg32, u32, address, value, ordering, scope, "add.u32"),
            (Operation::Add, Kind::U64) => operation!(reg64, u64, address, value, ordering, scope, "add.u64"),
            (Operation::Add, Kind::I64) => operation!(reg64, u64, address, value, ordering, scope, "add.u64"),
            (Operation::Min, Kind::U32) => operation!(reg32, u32, address, value, ordering, scope, "min.u32"),
            (Operation::Min, Kind::I32) => operation!(reg32, u32, address, value, ordering, scope, "min.s32"),
            (Operation::Min, Kind::U64) => operation!(reg64, u64, address, value, ordering, scope, "min.u64"),
            (Operation::Min, Kind::I64) => operation!(reg64, u64, address, value, ordering, scope, "min.s64"),
            (Operation::Max, Kind::U32) => operation!(reg32, u32, address, value, ordering, scope, "max.u32"),
            (Operation::Max, Kind::I32) => operation!(reg32, u32, address, value, ordering, scope, "max.s32"),
            (Operation::Max, Kind::U64) => operation!(reg64, u64, address, value, ordering, scope, "max.u64"),
            (Operation::Max, Kind::I64) => operation!(reg64, u64, address, value, ordering, scope, "max.s64"),
            (Operation::Add, Kind::F32) => operation!(reg32, u32, address, value, ordering, scope, "add.f32"),
            (Operation::And, Kind::U32 | Kind::I32 | Kind::F32) => {
                operation!(reg32, u32, address, value, ordering, scope, "and.b32")
            }
            (Operation::And, Kind::U64 | Kind::I64) => {
                operation!(reg64, u64, address, value, ordering, scope, "and.b64")
            }
            (Operation::Or, Kind::U32 | Kind::I32 | Kind::F32) => {
                operation!(reg32, u32, address, value, ordering, scope, "or.b32")
            }
            (Operation::Or, Kind::U64 | Kind::I64) => {
                operation!(reg64, u64, address, value, ordering, scope, "or.b64")
            }
            (Operation::Xor, Kind::U32 | Kind::I32 | Kind::F32) => {
                operation!(reg32, u32, address, value, ordering, scope, "xor.b32")
            }
            (Operation::Xor, Kind::U64 | Kind::I64) => {
                operation!(reg64, u64, address, value, ordering, scope, "xor.b64")
            }
            (Operation::Exchange, Kind::U32 | Kind::I32 | Kind::F32) => {
                operation!(reg32, u32, address, value, ordering, scope, "exch.b32")
            }
            (Operation::Exchange, Kind::U64 | Kind::I64) => {
                operation!(reg64, u64, address, value, ordering, scope, "exch.b64")
            }
            // `AtomicInt` keeps these from being reached.
            (Operation::Min | Operation::Max, Kind::F32) => 0,
        }
    };
    T::from_bits64(before)
}

#[inline(always)]
pub unsafe fn compare_exchange<T: AtomicInt>(
    raw: RawView,
    index: usize,
    expected: T,
    new: T,
    ordering: Ordering,
    scope: Scope,
) -> T {
    let (address, expected, new) = (at::<T>(raw, index), expected.to_bits64(), new.to_bits64());
    // SAFETY: the caller's contract.
    let before = unsafe {
        match size_of::<T>() {
            4 => with_semantics!(ordering, scope, cas!(reg32, u32, address, expected, new, "b32")),
            _ => with_semantics!(ordering, scope, cas!(reg64, u64, address, expected, new, "b64")),
        }
    };
    T::from_bits64(before)
}

/// `ld.relaxed` or `ld.acquire`.
macro_rules! plain_load {
    ($register:ident, $bits:ty, $address:expr, $suffix:literal, $semantics:literal, $scope:literal) => {{
        let value: $bits;
        asm!(
            concat!("ld.", $semantics, ".", $scope, ".global.", $suffix, " {}, [{}];"),
            out($register) value, in(reg64) $address, options(nostack)
        );
        value as u64
    }};
}

/// `st.relaxed` or `st.release`.
macro_rules! plain_store {
    ($register:ident, $bits:ty, $address:expr, $value:expr, $suffix:literal, $semantics:literal, $scope:literal) => {
        asm!(
            concat!("st.", $semantics, ".", $scope, ".global.", $suffix, " [{}], {};"),
            in(reg64) $address, in($register) $value as $bits, options(nostack)
        )
    };
}

macro_rules! with_scope {
    ($scope:expr, $semantics:literal, $run:ident!($($args:tt)*)) => {
        match $scope {
            Scope::Block => $run!($($args)*, $semantics, "cta"),
            Scope::Device => $run!($($args)*, $semantics, "gpu"),
            Scope::System => $run!($($args)*, $semantics, "sys"),
        }
    };
}

#[inline(always)]
pub unsafe fn load<T: Atomic>(raw: RawView, index: usize, ordering: Ordering, scope: Scope) -> T {
    let address = at::<T>(raw, index);
    // SAFETY: the caller's contract.
    T::from_bits64(unsafe {
        match (size_of::<T>(), ordering) {
            (4, Ordering::Relaxed) => with_scope!(scope, "relaxed", plain_load!(reg32, u32, address, "b32")),
            (4, _) => with_scope!(scope, "acquire", plain_load!(reg32, u32, address, "b32")),
            (_, Ordering::Relaxed) => with_scope!(scope, "relaxed", plain_load!(reg64, u64, address, "b64")),
            (_, _) => with_scope!(scope, "acquire", plain_load!(reg64, u64, address, "b64")),
        }
    })
}

#[inline(always)]
pub unsafe fn store<T: Atomic>(raw: RawView, index: usize, value: T, ordering: Ordering, scope: Scope) {
    let (address, value) = (at::<T>(raw, index), value.to_bits64());
    // SAFETY: the caller's contract.
    unsafe {
        match (size_of::<T>(), ordering) {
            (4, Ordering::Relaxed) => {
                with_scope!(scope, "relaxed", plain_store!(reg32, u32, address, value, "b32"))
            }
            (4, _) => with_scope!(scope, "release", plain_store!(reg32, u32, address, value, "b32")),
            (_, Ordering::Relaxed) => {
                with_scope!(scope, "relaxed", plain_store!(reg64, u64, address, value, "b64"))
            }
            (_, _) => with_scope!(scope, "release", plain_store!(reg64, u64, address, value, "b64")),
        }
    }
}

#[inline(always)]
pub unsafe fn load_pack(raw: RawView, index: usize) -> Pack {
    let (a, b, c, d);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.relaxed.gpu.global.v4.b32 {{ {}, {}, {}, {} }}, [{}];", out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in(reg64) at::<u32>(raw, index), options(nostack)
        );
    }
    [a, b, c, d]
}

#[inline(always)]
pub unsafe fn store_pack(raw: RawView, index: usize, [a, b, c, d]: Pack) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.relaxed.gpu.global.v4.b32 [{}], {{ {}, {}, {}, {} }};", in(reg64) at::<u32>(raw, index),
            in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack)
        );
    }
}

#[inline(always)]
pub unsafe fn load_pack_or(raw: RawView, when: bool, index: usize, otherwise: Pack) -> Pack {
    let [mut a, mut b, mut c, mut d] = otherwise;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0;",
            "@p ld.relaxed.gpu.global.v4.b32 {{ {a}, {b}, {c}, {d} }}, [{address}]; }}",
            a = inout(reg32) a, b = inout(reg32) b, c = inout(reg32) c, d = inout(reg32) d,
            address = in(reg64) at::<u32>(raw, index), when = in(reg32) when as u32, options(nostack)
        );
    }
    [a, b, c, d]
}

#[inline(always)]
pub unsafe fn load_shared(raw: RawShared, index: u32) -> u32 {
    let value: u32;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.relaxed.cluster.shared::cta.b32 {}, [{}];", out(reg32) value, in(reg32) raw.element::<u32>(index),
            options(nostack, preserves_flags)
        );
    }
    value
}

#[inline(always)]
pub unsafe fn store_shared(raw: RawShared, index: u32, value: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.relaxed.cluster.shared::cta.b32 [{}], {};", in(reg32) raw.element::<u32>(index), in(reg32) value,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn store_shared_remote(raw: RawShared, rank: u32, index: u32, value: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.relaxed.cluster.shared::cluster.b32 [{}], {};",
            in(reg32) shared::remote(raw.element::<u32>(index), rank), in(reg32) value,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn load_shared_pack(raw: RawShared, index: u32) -> Pack {
    let (a, b, c, d);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.relaxed.cluster.shared::cta.v4.b32 {{ {}, {}, {}, {} }}, [{}];", out(reg32) a, out(reg32) b,
            out(reg32) c, out(reg32) d, in(reg32) raw.element::<u32>(index), options(nostack, preserves_flags)
        );
    }
    [a, b, c, d]
}

#[inline(always)]
pub unsafe fn store_shared_pack(raw: RawShared, index: u32, [a, b, c, d]: Pack) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.relaxed.cluster.shared::cta.v4.b32 [{}], {{ {}, {}, {}, {} }};", in(reg32) raw.element::<u32>(index),
            in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn store_shared_pack_remote(raw: RawShared, rank: u32, index: u32, [a, b, c, d]: Pack) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.relaxed.cluster.shared::cluster.v4.b32 [{}], {{ {}, {}, {}, {} }};",
            in(reg32) shared::remote(raw.element::<u32>(index), rank), in(reg32) a, in(reg32) b, in(reg32) c,
            in(reg32) d, options(nostack, preserves_flags)
        );
    }
}
