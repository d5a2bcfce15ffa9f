/// Flushes a subnormal to a zero of its sign, as the GPU's `.ftz` instructions do.
#[inline(always)]
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    flush(flush(x).exp2())
}
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    flush(x).log2()
}
#[inline(always)]
pub fn rcp(x: f32) -> f32 {
    flush(1.0 / flush(x))
}
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    (1.0 / (flush(x) as f64).sqrt()) as f32
}
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    x.sqrt()
}
#[inline(always)]
pub fn tanh_approx(x: f32) -> f32 {
    x.tanh()
}
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}
#[inline(always)]
pub fn max_nan(a: f32, b: f32) -> f32 {
    match a == b {
        // Of two zeros the positive one, as on the GPU.
        true => f32::from_bits(a.to_bits() & b.to_bits()),
        false if a.is_nan() || b.is_nan() => f32::NAN,
        false => a.max(b),
    }
}
#[inline(always)]
pub fn min_nan(a: f32, b: f32) -> f32 {
    match a == b {
        // Of two zeros the negative one, as on the GPU.
        true => f32::from_bits(a.to_bits() | b.to_bits()),
        false if a.is_nan() || b.is_nan() => f32::NAN,
        false => a.min(b),
    }
}
