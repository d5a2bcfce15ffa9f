use core::arch::asm;

#[inline(always)]
pub fn widen_f16(word: u32) -> (f32, f32) {
    let (low, high): (f32, f32);
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "{{ .reg .b16 l, h; mov.b32 {{l, h}}, {word}; cvt.f32.f16 {low}, l; cvt.f32.f16 {high}, h; }}",
            word = in(reg32) word, low = out(reg32) low, high = out(reg32) high,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    (low, high)
}
#[inline(always)]
pub fn widen_bf16(word: u32) -> (f32, f32) {
    (f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000))
}

macro_rules! pair {
    ($name:ident, $instruction:literal) => {
        #[inline(always)]
        pub fn $name(low: f32, high: f32) -> u32 {
            let word;
            // SAFETY: arithmetic.
            unsafe {
                asm!(
                    concat!($instruction, " {word}, {high}, {low};"),
                    word = out(reg32) word, high = in(reg32) high, low = in(reg32) low,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            word
        }
    };
}
pair!(pair_f16, "cvt.rn.f16x2.f32");
pair!(pair_bf16, "cvt.rn.bf16x2.f32");

macro_rules! max {
    ($name:ident, $instruction:literal) => {
        #[inline(always)]
        pub fn $name(a: u32, b: u32) -> u32 {
            let most;
            // SAFETY: arithmetic.
            unsafe {
                asm!(
                    concat!($instruction, " {most}, {a}, {b};"), most = out(reg32) most, a = in(reg32) a,
                    b = in(reg32) b, options(pure, nomem, nostack, preserves_flags)
                );
            }
            most
        }
    };
}
max!(max_f16x2, "max.NaN.f16x2");
max!(max_bf16x2, "max.NaN.bf16x2");
