//! A device crate for the builder's tests.

#![no_std]
#![feature(abi_ptx, asm_experimental_arch)]

use core::arch::{asm, global_asm};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

fn thread() -> u32 {
    let x: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {}, %tid.x;", out(reg32) x) };
    x
}

#[repr(C)]
pub struct Params {
    offset: u32,
    terms: [u64; 3],
}

global_asm!(
    "//@kernel scale maxntid=256 minnctapersm=2 max_regs=32",
    "//@expect scale ==1 ld.global.b32",
    "//@expect scale ==0 call"
);

/// # Safety
/// `x` and `y` have `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn scale(x: *const f32, y: *mut f32, n: u32, by: f32, more: f32) {
    let i = thread();
    if i < n {
        // SAFETY: i < n.
        unsafe { *y.add(i as usize) = *x.add(i as usize) * by + more }
    }
}

#[cfg(not(feature = "unbounded"))]
global_asm!("//@kernel add reqntid=32");

/// # Safety
/// `y` has an element for each thread.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add(y: *mut u64, p: Params) {
    // SAFETY: one element for each thread.
    unsafe { *y.add(thread() as usize) = p.terms[1] + p.offset as u64 }
}

#[cfg(feature = "sm_90a")]
global_asm!("//@kernel hopper maxntid=32 cluster=2");

#[cfg(feature = "sm_90a")]
#[unsafe(no_mangle)]
pub extern "ptx-kernel" fn hopper() {}

#[cfg(feature = "unfit")]
global_asm!("//@kernel unfit maxntid=32");

/// # Safety
/// `y` has 64 elements.
#[cfg(feature = "unfit")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn unfit(y: *mut u64, n: u32) {
    let mut sums = [0u64; 64];
    for i in 0..64 {
        // SAFETY: i < 64.
        sums[(i * thread()) as usize % 64] += unsafe { *y.add(i as usize) };
    }
    // SAFETY: 64 elements.
    unsafe { *y = sums[n as usize] }
}

#[cfg(feature = "broken")]
pub fn broken() -> u32 {
    "not a number"
}
