//! Kernel parameters of every type.

use cuda_std::prelude::*;

/// Writes its numbers to `out`, each as the bits of an 8-byte integer (sign-extended where it is signed).
///
/// # Safety
/// One block; `out` holds ten numbers.
#[kernel(family = "probe", instances = [{ ; threads: 32 }])]
#[allow(clippy::too_many_arguments)]
pub unsafe fn parameters(
    a: u8,
    b: i64,
    c: i8,
    d: f32,
    e: u16,
    f: f64,
    g: i16,
    out: GlobalMut<u64>,
    h: u32,
    i: u64,
    j: i32,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let numbers = [
        a as u64,
        b as u64,
        c as i64 as u64,
        d.to_bits() as u64,
        e as u64,
        f.to_bits(),
        g as i64 as u64,
        h as u64,
        i,
        j as i64 as u64,
    ];
    // SAFETY: ten numbers, one thread.
    unsafe {
        for (at, number) in numbers.into_iter().enumerate() {
            out.set(at, number);
        }
    }
}
