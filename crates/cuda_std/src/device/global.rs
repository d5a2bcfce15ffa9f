use crate::Pack;
use core::arch::asm;

/// An address.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RawView(*mut u8);

#[inline(always)]
pub(super) fn at<T>(raw: RawView, index: usize) -> *mut T {
    // SAFETY: the access's contract puts the element inside the allocation.
    unsafe { raw.0.cast::<T>().add(index) }
}
#[inline(always)]
pub fn address(raw: RawView) -> u64 {
    raw.0 as u64
}
#[inline(always)]
pub fn offset<T>(raw: RawView, elements: i64) -> RawView {
    // SAFETY: `Global::offset`'s contract.
    RawView(unsafe { raw.0.cast::<T>().offset(elements as isize) }.cast())
}
#[inline(always)]
pub unsafe fn get<T: Copy>(raw: RawView, index: usize) -> T {
    // SAFETY: the caller's contract.
    unsafe { at::<T>(raw, index).read() }
}
#[inline(always)]
pub unsafe fn set<T: Copy>(raw: RawView, index: usize, value: T) {
    // SAFETY: the caller's contract.
    unsafe { at::<T>(raw, index).write(value) }
}

/// The policy of loads through [`Global`](crate::global::Global), and of copies of boxes: L2 lets go of what is written before what is read. Written
/// sectors then leave for memory in a steady stream: on an H200 a copy gains 1 to 4 %, a transposition 2 to 4 %.
///
/// Other hints made a copy slower there: `L1::no_allocate` and `L2::256B` by 4 to 6 % together, `.cs` of loads by 4 %, of
/// stores by 1 %.
#[inline(always)]
pub fn reads_stay() -> Policy {
    let policy;
    // SAFETY: a number.
    unsafe {
        asm!(
            "createpolicy.fractional.L2::evict_last.b64 {}, 1.0;", out(reg64) policy,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    policy
}

// Predicates are inside the asm: a Rust `if` would branch around each load.
#[inline(always)]
pub unsafe fn get_pack_or<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: Pack) -> Pack {
    let [mut a, mut b, mut c, mut d] = otherwise;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0;",
            "@p ld.global.nc.L2::cache_hint.v4.b32 {{ {a}, {b}, {c}, {d} }}, [{address}], {policy}; }}",
            a = inout(reg32) a, b = inout(reg32) b, c = inout(reg32) c, d = inout(reg32) d,
            address = in(reg64) at::<T>(raw, index), when = in(reg32) when as u32,
            policy = in(reg64) reads_stay(), options(nostack, readonly, preserves_flags)
        );
    }
    [a, b, c, d]
}

#[inline(always)]
pub fn prefetch_if<T: Copy>(raw: RawView, when: bool, index: usize) {
    let address = raw.0.cast::<T>().wrapping_add(index);
    // SAFETY: a hint, which does not fault.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0; @p prefetch.global.L2 [{address}]; }}",
            address = in(reg64) address, when = in(reg32) when as u32, options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn glimpse<T: Copy>(raw: RawView, index: usize) -> u32 {
    let word;
    // Not `readonly`: it is to stay in front of the wait.
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.relaxed.gpu.global.b32 {}, [{}];", out(reg32) word, in(reg64) at::<T>(raw, index),
            options(nostack, preserves_flags)
        );
    }
    word
}

#[inline(always)]
pub unsafe fn get_pack_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> Pack {
    // SAFETY: the caller's contract.
    unsafe { get_pack_or::<T>(raw, when, index, [otherwise; 4]) }
}

#[inline(always)]
pub unsafe fn get_pack_plain_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> Pack {
    let [mut a, mut b, mut c, mut d] = [otherwise; 4];
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0;",
            "@p ld.global.nc.v4.b32 {{ {a}, {b}, {c}, {d} }}, [{address}]; }}",
            a = inout(reg32) a, b = inout(reg32) b, c = inout(reg32) c, d = inout(reg32) d,
            address = in(reg64) at::<T>(raw, index), when = in(reg32) when as u32,
            options(nostack, readonly, preserves_flags)
        );
    }
    [a, b, c, d]
}

#[inline(always)]
pub unsafe fn get_8_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
    // SAFETY: the caller's contract.
    unsafe { get_8_with::<T>(raw, when, index, otherwise, reads_stay()) }
}
#[inline(always)]
pub unsafe fn get_8_once_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> [u32; 2] {
    let policy;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "createpolicy.fractional.L2::evict_first.b64 {}, 1.0;", out(reg64) policy,
            options(pure, nomem, nostack, preserves_flags)
        );
        get_8_with::<T>(raw, when, index, otherwise, policy)
    }
}
#[inline(always)]
unsafe fn get_8_with<T: Copy>(
    raw: RawView,
    when: bool,
    index: usize,
    otherwise: u32,
    policy: u64,
) -> [u32; 2] {
    let (a, b);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0; mov.b32 {a}, {otherwise}; mov.b32 {b}, {otherwise};",
            "@p ld.global.nc.L2::cache_hint.v2.b32 {{ {a}, {b} }}, [{address}], {policy}; }}",
            a = out(reg32) a, b = out(reg32) b, address = in(reg64) at::<T>(raw, index),
            when = in(reg32) when as u32, otherwise = in(reg32) otherwise, policy = in(reg64) policy,
            options(nostack, readonly, preserves_flags)
        );
    }
    [a, b]
}
#[inline(always)]
pub unsafe fn get_4_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> u32 {
    let a;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0; mov.b32 {a}, {otherwise};",
            "@p ld.global.nc.L2::cache_hint.b32 {a}, [{address}], {policy}; }}",
            a = out(reg32) a, address = in(reg64) at::<T>(raw, index), when = in(reg32) when as u32,
            otherwise = in(reg32) otherwise, policy = in(reg64) reads_stay(),
            options(nostack, readonly, preserves_flags)
        );
    }
    a
}
#[inline(always)]
pub unsafe fn get_words_around<T: Copy, const N: usize>(
    raw: RawView,
    index: usize,
    low: u32,
    high: u32,
) -> [u32; N] {
    let size = const { size_of::<T>() as u32 };
    let (low, high, address, policy) = (low * size, high * size, at::<T>(raw, index), reads_stay());
    let mut words = [0; N];
    macro_rules! load {
        ($($i:literal)*) => {$(
            if const { $i < N } {
                // SAFETY: the caller's contract; the word has one of the elements, so that its memory exists.
                unsafe {
                    asm!(
                        "{{ .reg .pred p; setp.gt.u32 p, {high}, {begin}; setp.lt.and.u32 p, {low}, {end}, p;",
                        "@p ld.global.nc.L2::cache_hint.b32 {word}, [{address} + {begin}], {policy}; }}",
                        word = out(reg32) words[$i], address = in(reg64) address, low = in(reg32) low, high = in(reg32) high,
                        begin = const 4 * $i, end = const 4 * $i + 4, policy = in(reg64) policy,
                        options(nostack, readonly, preserves_flags)
                    );
                }
            }
        )*};
    }
    load!(0 1 2 3 4);
    const { assert!(N <= 5) };
    words
}
#[inline(always)]
pub unsafe fn get_bits_if<T: Copy>(raw: RawView, when: bool, index: usize, otherwise: u32) -> u32 {
    let address = at::<T>(raw, index);
    let mut bits = otherwise;
    macro_rules! load {
        ($ty:literal) => {
            asm!(
                concat!("{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p ld.global.nc.", $ty, " {}, [{}]; }}"),
                in(reg32) when as u32, inout(reg32) bits, in(reg64) address,
                options(nostack, readonly, preserves_flags)
            )
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match size_of::<T>() {
            1 => load!("u8"),
            2 => load!("u16"),
            _ => load!("b32"),
        }
    }
    bits
}
#[inline(always)]
pub unsafe fn set_pack_if<T: Copy>(raw: RawView, when: bool, index: usize, pack: Pack) {
    let [a, b, c, d] = pack;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0;",
            "@p st.global.v4.b32 [{address}], {{ {a}, {b}, {c}, {d} }}; }}",
            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
            address = in(reg64) at::<T>(raw, index), when = in(reg32) when as u32,
            options(nostack, preserves_flags)
        );
    }
}
/// What accesses and copies tell L2 to do.
pub type Policy = u64;

#[inline(always)]
pub fn writes_stay(kept: bool) -> Policy {
    let policy;
    // SAFETY: a number.
    unsafe {
        asm!(
            "{{ .reg .pred p; .reg .b64 stay; setp.ne.u32 p, {kept}, 0;",
            "createpolicy.fractional.L2::evict_last.b64 stay, 1.0;",
            "createpolicy.fractional.L2::evict_normal.b64 {policy}, 1.0;",
            "selp.b64 {policy}, stay, {policy}, p; }}",
            policy = out(reg64) policy, kept = in(reg32) kept as u32,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    policy
}

#[inline(always)]
pub unsafe fn set_pack_keeping<T: Copy>(raw: RawView, policy: Policy, index: usize, pack: Pack) {
    let [a, b, c, d] = pack;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.global.L2::cache_hint.v4.b32 [{address}], {{ {a}, {b}, {c}, {d} }}, {policy};",
            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
            address = in(reg64) at::<T>(raw, index), policy = in(reg64) policy,
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub unsafe fn set_piece_keeping<T: Copy, const BYTES: usize>(
    raw: RawView,
    policy: Policy,
    when: bool,
    index: usize,
    [a, b]: [u32; 2],
) {
    let (address, when) = (at::<T>(raw, index), when as u32);
    // SAFETY: the caller's contract; a store of fewer bits takes the low ones of its register.
    unsafe {
        if const { BYTES == 8 } {
            asm!(
                "{{ .reg .pred p; setp.ne.u32 p, {}, 0;",
                "@p st.global.L2::cache_hint.v2.b32 [{}], {{ {}, {} }}, {}; }}",
                in(reg32) when, in(reg64) address, in(reg32) a, in(reg32) b, in(reg64) policy,
                options(nostack, preserves_flags)
            );
        } else {
            asm!(
                "{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p st.global.L2::cache_hint.b{} [{}], {}, {}; }}",
                in(reg32) when, const 8 * BYTES, in(reg64) address, in(reg32) a, in(reg64) policy,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[inline(always)]
pub unsafe fn set_if<T: Copy>(raw: RawView, when: bool, index: usize, value: T) {
    let address = at::<T>(raw, index);
    let when = when as u32;
    // SAFETY: the caller's contract; the transmuted bits are those of `value`.
    unsafe {
        match size_of::<T>() {
            2 => asm!(
                "{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p st.global.b16 [{}], {}; }}", in(reg32) when,
                in(reg64) address, in(reg16) core::mem::transmute_copy::<T, u16>(&value), options(nostack)
            ),
            4 => asm!(
                "{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p st.global.b32 [{}], {}; }}", in(reg32) when,
                in(reg64) address, in(reg32) core::mem::transmute_copy::<T, u32>(&value), options(nostack)
            ),
            _ => {
                if when != 0 {
                    set(raw, index, value);
                }
            }
        }
    }
}
#[inline(always)]
pub unsafe fn set_8_if<T: Copy>(raw: RawView, when: bool, index: usize, words: [u32; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p st.global.v2.b32 [{}], {{ {}, {} }}; }}",
            in(reg32) when as u32, in(reg64) at::<T>(raw, index), in(reg32) words[0], in(reg32) words[1],
            options(nostack)
        );
    }
}
#[inline(always)]
pub unsafe fn set_4_if<T: Copy>(raw: RawView, when: bool, index: usize, word: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {}, 0; @p st.global.b32 [{}], {}; }}", in(reg32) when as u32,
            in(reg64) at::<T>(raw, index), in(reg32) word, options(nostack)
        );
    }
}
