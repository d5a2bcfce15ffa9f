//! Kernel parameters of every type, and launches that begin before the one ahead is done.

use cuda_std::dependent;
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

/// One launch of several in a row, each of which reads what the one before wrote: y is x back to front, plus 1.
///
/// # Safety
/// `count` elements each, apart.
#[inline(always)]
unsafe fn relay(x: GlobalMut<u32>, y: GlobalMut<u32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        // SAFETY: below `count`; a thread's own element.
        unsafe { y.set(i, x.get(count as usize - 1 - i).wrapping_add(1)) }
    }
}

/// y is x back to front, plus 1; begins while the launch ahead ends, by [`dependent::begin`].
///
/// # Safety
/// `count` elements each, apart.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn relay_begun(x: GlobalMut<u32>, y: GlobalMut<u32>, count: u32) {
    dependent::begin();
    // SAFETY: the caller's contract.
    unsafe { relay(x, y, count) }
}

/// [`relay_begun()`](fn@relay_begun) by [`dependent::wait`] and [`dependent::allow_next`].
///
/// # Safety
/// As there.
#[kernel(family = "probe", instances = [{ ; threads: 128 }], requires = "sm_90a")]
pub unsafe fn relay_waited(x: GlobalMut<u32>, y: GlobalMut<u32>, count: u32) {
    dependent::wait();
    dependent::allow_next();
    // SAFETY: the caller's contract.
    unsafe { relay(x, y, count) }
}
