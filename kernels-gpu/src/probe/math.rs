//! Float math.

use cuda_std::prelude::*;

/// The function that [`unary()`](fn@unary) has for each number.
pub const UNARY: [&str; 10] =
    ["exp2", "log2", "rcp", "rsqrt", "sqrt", "exp", "ln", "tanh", "tanh_approx", "erf"];

/// y = f(x), elementwise over `count` elements; f is [`UNARY`]'s `FUNCTION`.
///
/// # Safety
/// `count` elements each.
#[kernel(
    family = "probe",
    instances = [
        { FUNCTION: 0; threads: 128 }, { FUNCTION: 1; threads: 128 }, { FUNCTION: 2; threads: 128 },
        { FUNCTION: 3; threads: 128 }, { FUNCTION: 4; threads: 128 }, { FUNCTION: 5; threads: 128 },
        { FUNCTION: 6; threads: 128 }, { FUNCTION: 7; threads: 128 }, { FUNCTION: 8; threads: 128 },
        { FUNCTION: 9; threads: 128 },
    ],
)]
pub unsafe fn unary<const FUNCTION: usize>(x: Global<f32>, y: GlobalMut<f32>, count: u32) {
    let i = thread::index_1d() as usize;
    if i >= count as usize {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let x = x.get(i);
        let value = match FUNCTION {
            0 => float::exp2(x),
            1 => float::log2(x),
            2 => float::rcp(x),
            3 => float::rsqrt(x),
            4 => float::sqrt(x),
            5 => float::exp(x),
            6 => float::ln(x),
            7 => float::tanh(x),
            8 => float::tanh_approx(x),
            _ => float::erf(x),
        };
        y.set(i, value);
    }
}

/// `out` is [fma(a, b, c), max_nan(a, b), min_nan(a, b)] by element.
///
/// # Safety
/// `count` elements of each input, `3·count` results.
#[kernel(family = "probe", instances = [{ ; threads: 128 }])]
pub unsafe fn ternary(a: Global<f32>, b: Global<f32>, c: Global<f32>, out: GlobalMut<f32>, count: u32) {
    let i = thread::index_1d() as usize;
    let count = count as usize;
    if i >= count {
        return;
    }
    // SAFETY: below `count`.
    unsafe {
        let (a, b, c) = (a.get(i), b.get(i), c.get(i));
        out.set(i, float::fma(a, b, c));
        out.set(count + i, float::max_nan(a, b));
        out.set(2 * count + i, float::min_nan(a, b));
    }
}
