use crate::Pack;
use crate::barrier::Barrier;
use core::arch::asm;

/// An address in the shared window.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RawShared(u32);

impl RawShared {
    /// Wraps an address.
    #[inline(always)]
    pub const fn new(address: u32) -> Self {
        RawShared(address)
    }

    /// The address of an element.
    #[inline(always)]
    pub(super) fn element<T>(self, index: u32) -> u32 {
        element::<T>(self, index)
    }
}

core::arch::global_asm!(".extern .shared .align 128 .b8 warpwright_dynamic_shared[];");
// The same memory: arrays without a size begin at one place, at a multiple of the largest alignment.
core::arch::global_asm!(".extern .shared .align 1024 .b8 warpwright_dynamic_slabs[];");

/// As `dynamic`, at a multiple of 1024 bytes; the launch ends where that does not hold.
#[inline(always)]
pub fn dynamic_slabs(offset: u32, _length: u32, _size: u32) -> RawShared {
    let base: u32;
    // SAFETY: takes an address.
    unsafe {
        asm!(
            "mov.u32 {}, warpwright_dynamic_slabs;", out(reg32) base,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    RawShared(base + offset)
}

/// Ends the launch where dynamic shared memory does not begin at a multiple of 1024 bytes.
#[inline(always)]
pub fn expect_slabs() {
    let RawShared(base) = dynamic(0, 0, 1);
    // SAFETY: touches nothing.
    unsafe {
        asm!(
            "{{ .reg .pred %off; .reg .b32 %low; and.b32 %low, {}, 1023; setp.ne.b32 %off, %low, 0; @%off trap; }}",
            in(reg32) base, options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn dynamic(offset: u32, _length: u32, _size: u32) -> RawShared {
    let base: u32;
    // SAFETY: takes an address.
    unsafe {
        asm!(
            "mov.u32 {}, warpwright_dynamic_shared;", out(reg32) base,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    RawShared(base + offset)
}

/// The element's bits through a load or store of its width; accesses by 32-bit shared address avoid
/// generic addressing. Never `pure`: a barrier may lie between two equal loads.
#[inline(always)]
unsafe fn load<T: Copy>(address: u32) -> T {
    // SAFETY: the caller's contract; the transmuted bits are those of a `T`.
    unsafe {
        match size_of::<T>() {
            1 => {
                let v: u16;
                asm!("ld.shared.u8 {}, [{}];", out(reg16) v, in(reg32) address, options(nostack, readonly));
                core::mem::transmute_copy(&(v as u8))
            }
            2 => {
                let v: u16;
                asm!("ld.shared.b16 {}, [{}];", out(reg16) v, in(reg32) address, options(nostack, readonly));
                core::mem::transmute_copy(&v)
            }
            4 => {
                let v: u32;
                asm!("ld.shared.b32 {}, [{}];", out(reg32) v, in(reg32) address, options(nostack, readonly));
                core::mem::transmute_copy(&v)
            }
            _ => {
                const { assert!(size_of::<T>() <= 8) };
                let v: u64;
                asm!("ld.shared.b64 {}, [{}];", out(reg64) v, in(reg32) address, options(nostack, readonly));
                core::mem::transmute_copy(&v)
            }
        }
    }
}
#[inline(always)]
unsafe fn store<T: Copy>(address: u32, value: T) {
    // SAFETY: as `load`.
    unsafe {
        match size_of::<T>() {
            1 => {
                let v: u8 = core::mem::transmute_copy(&value);
                asm!("st.shared.u8 [{}], {};", in(reg32) address, in(reg16) v as u16, options(nostack));
            }
            2 => {
                let v: u16 = core::mem::transmute_copy(&value);
                asm!("st.shared.b16 [{}], {};", in(reg32) address, in(reg16) v, options(nostack));
            }
            4 => {
                let v: u32 = core::mem::transmute_copy(&value);
                asm!("st.shared.b32 [{}], {};", in(reg32) address, in(reg32) v, options(nostack));
            }
            _ => {
                const { assert!(size_of::<T>() <= 8) };
                let v: u64 = core::mem::transmute_copy(&value);
                asm!("st.shared.b64 [{}], {};", in(reg32) address, in(reg64) v, options(nostack));
            }
        }
    }
}

#[inline(always)]
fn element<T>(raw: RawShared, index: u32) -> u32 {
    raw.0 + index * size_of::<T>() as u32
}

#[inline(always)]
pub unsafe fn get<T: Copy>(raw: RawShared, index: u32) -> T {
    // SAFETY: the caller's contract.
    unsafe { load(element::<T>(raw, index)) }
}
#[inline(always)]
pub unsafe fn set<T: Copy>(raw: RawShared, index: u32, value: T) {
    // SAFETY: the caller's contract.
    unsafe { store(element::<T>(raw, index), value) }
}
#[inline(always)]
pub unsafe fn get_pack<T: Copy>(raw: RawShared, index: u32) -> Pack {
    let (a, b, c, d);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.shared.v4.b32 {{ {}, {}, {}, {} }}, [{}];", out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in(reg32) element::<T>(raw, index), options(nostack, readonly)
        );
    }
    [a, b, c, d]
}
#[inline(always)]
pub unsafe fn set_pack<T: Copy>(raw: RawShared, index: u32, pack: Pack) {
    let [a, b, c, d] = pack;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.shared.v4.b32 [{}], {{ {}, {}, {}, {} }};", in(reg32) element::<T>(raw, index), in(reg32) a,
            in(reg32) b, in(reg32) c, in(reg32) d, options(nostack)
        );
    }
}
#[inline(always)]
pub unsafe fn get_8<T: Copy>(raw: RawShared, index: u32) -> [u32; 2] {
    let (low, high);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.shared.v2.b32 {{ {}, {} }}, [{}];", out(reg32) low, out(reg32) high,
            in(reg32) element::<T>(raw, index), options(nostack, readonly)
        );
    }
    [low, high]
}
#[inline(always)]
pub unsafe fn set_8<T: Copy>(raw: RawShared, index: u32, words: [u32; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.shared.v2.b32 [{}], {{ {}, {} }};", in(reg32) element::<T>(raw, index), in(reg32) words[0],
            in(reg32) words[1], options(nostack)
        );
    }
}

/// The address of the same place in block `rank`'s shared memory.
#[inline(always)]
pub(super) fn remote(address: u32, rank: u32) -> u32 {
    let mapped;
    // SAFETY: address arithmetic.
    unsafe {
        asm!(
            "mapa.shared::cluster.u32 {}, {}, {};", out(reg32) mapped, in(reg32) address, in(reg32) rank,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    mapped
}
#[inline(always)]
pub unsafe fn get_remote<T: Copy>(raw: RawShared, rank: u32, index: u32) -> T {
    const { assert!(size_of::<T>() == 4, "remote access is by 32-bit elements") };
    let v: u32;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "ld.shared::cluster.b32 {}, [{}];", out(reg32) v, in(reg32) remote(element::<T>(raw, index), rank),
            options(nostack, readonly)
        );
        core::mem::transmute_copy(&v)
    }
}
#[inline(always)]
pub unsafe fn get_bits_remote_if<T: Copy>(raw: RawShared, when: bool, rank: u32, index: u32) -> u32 {
    const { assert!(size_of::<T>() == 4) };
    let mut bits = 0u32;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0; @p ld.shared::cluster.b32 {bits}, [{address}]; }}",
            bits = inout(reg32) bits, address = in(reg32) remote(element::<T>(raw, index), rank),
            when = in(reg32) when as u32, options(nostack, readonly)
        );
    }
    bits
}
#[inline(always)]
pub unsafe fn get_pack_remote_if<T: Copy>(raw: RawShared, when: bool, rank: u32, index: u32) -> Pack {
    let [mut a, mut b, mut c, mut d] = [0u32; 4];
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .pred p; setp.ne.u32 p, {when}, 0;",
            "@p ld.shared::cluster.v4.b32 {{ {a}, {b}, {c}, {d} }}, [{address}]; }}",
            a = inout(reg32) a, b = inout(reg32) b, c = inout(reg32) c, d = inout(reg32) d,
            address = in(reg32) remote(element::<T>(raw, index), rank), when = in(reg32) when as u32,
            options(nostack, readonly)
        );
    }
    [a, b, c, d]
}
#[inline(always)]
pub unsafe fn set_remote<T: Copy>(raw: RawShared, rank: u32, index: u32, value: T) {
    const { assert!(size_of::<T>() == 4, "remote access is by 32-bit elements") };
    // SAFETY: the caller's contract.
    unsafe {
        let v: u32 = core::mem::transmute_copy(&value);
        asm!(
            "st.shared::cluster.b32 [{}], {};", in(reg32) remote(element::<T>(raw, index), rank), in(reg32) v,
            options(nostack)
        );
    }
}

#[inline(always)]
pub unsafe fn post(raw: RawShared, rank: u32, index: u32, value: u64, barrier: Barrier) {
    let (barriers, number) = barrier.raw();
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [{}], {}, [{}];",
            in(reg32) remote(element::<u64>(raw, index), rank), in(reg64) value,
            in(reg32) remote(element::<u64>(barriers, number), rank), options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
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
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) remote(element::<T>(to, at), rank), in(reg32) element::<T>(from, index),
            in(reg32) count * size_of::<T>() as u32, in(reg32) remote(element::<u64>(barriers, number), rank),
            options(nostack, preserves_flags)
        );
    }
}
