//! Bit operations, and division by a number known before the launch.

use cuda_std::bits;
use cuda_std::divide::Divisor;
use cuda_std::prelude::*;

/// `out` is [prmt(a, b, selector), select(selector, a, b), nonzero_bytes(a), opaque(a), shift_left(a, by),
/// funnel_right(a, b, by modulo 32)] by element, where `by` is b's low six bits.
///
/// # Safety
/// `count` elements of each input, six times as many results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn bit_operations(
    a: Global<u32>,
    b: Global<u32>,
    selector: Global<u32>,
    out: GlobalMut<u32>,
    count: u32,
) {
    let i = thread::index_1d() as usize;
    if i >= count as usize {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let (a, b, selector) = (a.get(i), b.get(i), selector.get(i));
        let results = [
            bits::prmt(a, b, selector),
            bits::select(selector, a, b),
            bits::nonzero_bytes(a),
            bits::opaque(a),
            bits::shift_left(a, b & 63),
            bits::funnel_right(a, b, b & 31),
        ];
        for (r, result) in results.into_iter().enumerate() {
            out.set(r * count as usize + i, result);
        }
    }
}

/// The parameters of [`divide()`](fn@divide), as one struct.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// Dividends.
    pub count: u32,
    /// What they are divided by.
    pub divisor: Divisor,
}
cuda_std::plain_parameter!(Division);

/// `out` is [quotient, remainder, divisor] by element.
///
/// # Safety
/// `count` dividends below 2^31, three times as many results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn divide(dividends: Global<u32>, out: GlobalMut<u32>, division: Division) {
    let (i, count) = (thread::index_1d() as usize, division.count as usize);
    if i >= count {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let (quotient, remainder) = division.divisor.div_rem(dividends.get(i));
        out.set(i, quotient);
        out.set(count + i, remainder);
        out.set(2 * count + i, division.divisor.value());
    }
}
