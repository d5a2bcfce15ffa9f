use super::shared::RawShared;
use core::arch::asm;

macro_rules! multiply {
    ($($name:ident: $form:literal;)*) => {$(
        #[inline(always)]
        pub fn $name(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
            let [mut c0, mut c1, mut c2, mut c3] = c;
            // SAFETY: arithmetic on registers. Not `pure`, so that LLVM leaves it where it is.
            unsafe {
                asm!(
                    concat!(
                        "mma.sync.aligned.", $form, ".f32 {{ {c0}, {c1}, {c2}, {c3} }}, ",
                        "{{ {a0}, {a1}, {a2}, {a3} }}, {{ {b0}, {b1} }}, {{ {c0}, {c1}, {c2}, {c3} }};"
                    ),
                    c0 = inout(reg32) c0, c1 = inout(reg32) c1, c2 = inout(reg32) c2, c3 = inout(reg32) c3,
                    a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                    b0 = in(reg32) b[0], b1 = in(reg32) b[1], options(nomem, nostack, preserves_flags)
                );
            }
            [c0, c1, c2, c3]
        }
    )*};
}
multiply! {
    multiply_f16: "m16n8k16.row.col.f32.f16.f16";
    multiply_bf16: "m16n8k16.row.col.f32.bf16.bf16";
    multiply_tf32: "m16n8k8.row.col.f32.tf32.tf32";
}

/// `ldmatrix` of so many matrices into so many words.
macro_rules! load {
    ($address:expr, $count:literal, $trans:literal, $text:literal, $($word:ident),*) => {
        asm!(
            concat!("ldmatrix.sync.aligned.m8n8.", $count, $trans, ".shared.b16 {{ ", $text, " }}, [{address}];"),
            $($word = out(reg32) $word,)* address = in(reg32) $address, options(nostack, readonly, preserves_flags)
        )
    };
}

#[inline(always)]
pub unsafe fn load_matrices<T: Copy, const COUNT: usize, const TRANSPOSED: bool>(
    raw: RawShared,
    index: u32,
) -> [u32; COUNT] {
    const { assert!(COUNT == 1 || COUNT == 2 || COUNT == 4, "ldmatrix loads one, two or four matrices") };
    let address = raw.element::<T>(index);
    let [mut a, mut b, mut c, mut d] = [0u32; 4];
    // SAFETY: the caller's contract.
    unsafe {
        match const { (COUNT, TRANSPOSED) } {
            (1, false) => load!(address, "x1", "", "{a}", a),
            (1, true) => load!(address, "x1", ".trans", "{a}", a),
            (2, false) => load!(address, "x2", "", "{a}, {b}", a, b),
            (2, true) => load!(address, "x2", ".trans", "{a}, {b}", a, b),
            (_, false) => load!(address, "x4", "", "{a}, {b}, {c}, {d}", a, b, c, d),
            (_, true) => load!(address, "x4", ".trans", "{a}, {b}, {c}, {d}", a, b, c, d),
        }
    }
    let words = [a, b, c, d];
    let mut loaded = [0; COUNT];
    for i in 0..COUNT {
        loaded[i] = words[i];
    }
    loaded
}

/// `stmatrix` of four words.
macro_rules! store {
    ($address:expr, $trans:literal, [$a:expr, $b:expr, $c:expr, $d:expr]) => {
        asm!(
            concat!("stmatrix.sync.aligned.m8n8.x4", $trans, ".shared.b16 [{}], {{ {}, {}, {}, {} }};"),
            in(reg32) $address, in(reg32) $a, in(reg32) $b, in(reg32) $c, in(reg32) $d,
            options(nostack, preserves_flags)
        )
    };
}

#[inline(always)]
pub unsafe fn store_matrices<T: Copy, const TRANSPOSED: bool>(raw: RawShared, index: u32, words: [u32; 4]) {
    let (address, [a, b, c, d]) = (raw.element::<T>(index), words);
    // SAFETY: the caller's contract.
    unsafe {
        if const { TRANSPOSED } {
            store!(address, ".trans", [a, b, c, d]);
        } else {
            store!(address, "", [a, b, c, d]);
        }
    }
}
