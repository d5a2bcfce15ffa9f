//! Element types: rounding, widening, and what [`Float`] does with words and packs.

use cuda_std::prelude::*;

/// y = x, rounded.
///
/// # Safety
/// `count` elements each.
#[kernel(family = "probe", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn narrow<T: Float>(x: Global<f32>, y: GlobalMut<T>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        // SAFETY: below `count`.
        unsafe { y.set(i, T::from_f32(x.get(i))) }
    }
}

/// y = x, widened.
///
/// # Safety
/// `count` elements each.
#[kernel(family = "probe", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn widen<T: Float>(x: Global<T>, y: GlobalMut<f32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        // SAFETY: below `count`.
        unsafe { y.set(i, x.get(i).to_f32()) }
    }
}

/// `out` is [pair_f16, pair_bf16] of `low` and `high`, by element.
///
/// # Safety
/// `count` elements of each input, twice as many results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn pairs(low: Global<f32>, high: Global<f32>, out: GlobalMut<u32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i < count as usize {
        // SAFETY: below `count`.
        unsafe {
            let (low, high) = (low.get(i), high.get(i));
            out.set(i, packed::pair_f16(low, high));
            out.set(count as usize + i, packed::pair_bf16(low, high));
        }
    }
}

/// Packs that [`words()`](fn@words) makes of a pair of packs.
pub const WORD_RESULTS: usize = 9;

/// What [`Float`] makes of packs `a` and `b`, for each pair [`WORD_RESULTS`] packs:
/// 0: words of `max_words(a, b)`; 1: of `map(a, |v| 0.5·v)`; 2: of the bits of `fold(a, 1, |s, v| 2·s + v)`;
/// 3: `pack_from` of `a`'s elements in reverse; 4: words of `byte_mask(b's first two words)`; 5: words of
/// `range_mask(low, high)`; 6: `renew(a, zero)`; 7: the bits of elements 0 and PER_PACK − 1 of `a`,
/// there and back through `from_bits`, and of `b`; 8: NEG_INFINITY_WORD, SIGN_WORD, PER_WORD, PER_PACK.
///
/// # Safety
/// `count` packs of each input; `zero` is 0.
#[kernel(family = "probe", types = [f32, f16, bf16], instances = [{ ; threads: 128 }])]
pub unsafe fn words<T: Float>(
    a: Global<u32>,
    b: Global<u32>,
    out: GlobalMut<u32>,
    low: i32,
    high: i32,
    zero: u32,
    count: u32,
) {
    let i = thread::index_1d() as usize;
    if i >= count as usize {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let (a, b) = (a.get_pack_if(true, 4 * i, 0), b.get_pack_if(true, 4 * i, 0));
        let each = |f: &dyn Fn(usize) -> u32| [f(0), f(1), f(2), f(3)];
        let last = T::PER_PACK - 1;
        let bits = |pack: Pack, index: usize| T::from_bits(T::element(pack, index).bits()).bits();
        let results = [
            each(&|w| T::max_words(a[w], b[w])),
            each(&|w| T::map(a[w], |v| 0.5 * v)),
            each(&|w| T::fold(a[w], 1.0f32, |s, v| float::fma(2.0, s, v)).to_bits()),
            T::pack_from(|index| T::element(a, last - index)),
            each(&|w| T::byte_mask([b[0], b[1]], w)),
            each(&|w| T::range_mask(w, low, high)),
            packed::renew(a, zero),
            [bits(a, 0), bits(a, last), bits(b, 0), bits(b, last)],
            [T::NEG_INFINITY_WORD, T::SIGN_WORD, T::PER_WORD as u32, T::PER_PACK as u32],
        ];
        for (r, result) in results.into_iter().enumerate() {
            out.set_pack_if(true, 4 * (WORD_RESULTS * i + r), result);
        }
    }
}
