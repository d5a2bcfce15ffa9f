//! Bit operations, division by a number known before the launch, and random words.

use cuda_std::bits;
use cuda_std::divide::Divisor;
use cuda_std::philox::{Stream, philox4x32_10};
use cuda_std::prelude::*;

/// What [`bit_operations()`](fn@bit_operations) writes for each element.
pub const BIT_RESULTS: usize = 11;

/// `out` is [prmt(a, b, selector), select(selector, a, b), nonzero_bytes(a), opaque(a), shift_left(a, by),
/// funnel_right(a, b, by modulo 32), pinned(a), opaque_64(b:a)'s two words, of_bytes(nonzero_bytes(a)), to_bytes(a)] by element, where
/// `by` is b's low six bits.
///
/// # Safety
/// `count` elements of each input, [`BIT_RESULTS`] times as many results.
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
        let both = bits::opaque_64((b as u64) << 32 | a as u64);
        let results = [
            bits::prmt(a, b, selector),
            bits::select(selector, a, b),
            bits::nonzero_bytes(a),
            bits::opaque(a),
            bits::shift_left(a, b & 63),
            bits::funnel_right(a, b, b & 31),
            bits::pinned(a),
            both as u32,
            (both >> 32) as u32,
            bits::of_bytes(bits::nonzero_bytes(a)),
            bits::to_bytes(a),
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

/// Philox4x32-10 of `counters`, four words each, and `keys`, two each; behind them groups and words of the streams: for each counter of words
/// (a, b, c, d) and key the four of group b:a of seed key and offset d:c, and words 4·(b:a) to 4·(b:a) + 3 one by one.
///
/// # Safety
/// `count` of each; `out` has twelve words for each.
#[kernel(family = "probe", instances = [{ ; threads: 64 }])]
pub unsafe fn random_words(counters: Global<u32>, keys: Global<u32>, out: GlobalMut<u32>, count: u32) {
    let (i, count) = (thread::index_1d() as usize, count as usize);
    if i >= count {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let [a, b, c, d] = counters.get_pack_if(true, 4 * i, 0);
        let [k, l] = keys.get_8_if(true, 2 * i, 0);
        let long = |low: u32, high: u32| (high as u64) << 32 | low as u64;
        let stream = Stream { seed: long(k, l), offset: long(c, d) };
        let group = long(a, b);
        let words = [0, 1, 2, 3].map(|word| stream.word((group << 2) + word));
        out.set_pack_if(true, 4 * i, philox4x32_10([a, b, c, d], [k, l]));
        out.set_pack_if(true, 4 * (count + i), stream.four(group));
        out.set_pack_if(true, 4 * (2 * count + i), words);
    }
}
