use core::arch::asm;

use super::shared::RawShared;
use crate::warpgroup::Operand;

/// The address in the shared window.
#[inline(always)]
pub fn address(raw: RawShared) -> u32 {
    raw.element::<u8>(0)
}

#[inline(always)]
pub fn fence_copies() {
    // SAFETY: orders memory.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn shrink_registers<const COUNT: u32>() {
    // SAFETY: the caller's contract: the whole warpgroup calls.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const COUNT, options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn grow_registers<const COUNT: u32>() {
    // SAFETY: as above.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const COUNT, options(nostack, preserves_flags)) };
}

#[inline(always)]
pub fn unset<const SUMS: usize>() -> [f32; SUMS] {
    let mut sums = [0.0; SUMS];
    for sum in 0..SUMS {
        // SAFETY: any number will do; the assembler has no instruction for what is never written.
        unsafe { asm!("// {}", out(reg32) sums[sum], options(pure, nomem, nostack, preserves_flags)) };
    }
    sums
}

#[inline(always)]
pub fn wait<const PENDING: u32>() {
    // SAFETY: a barrier to the compiler.
    unsafe { asm!("wgmma.wait_group.sync.aligned {};", const PENDING, options(nostack, preserves_flags)) };
}

/// For sums of a number of columns: four products of 32 bytes of terms as a group, and the wait for all groups. Both name all
/// sums: the assembler keeps them in place between the two, and the compiler does not touch them.
macro_rules! products {
    ($columns:literal, $sums:literal, [$f16:ident $bf16:ident $tf32:ident $finish:ident], $list:literal, [$($i:literal)*]) => {
        products!(@ $columns, $sums, $f16, "k16.f32.f16.f16", ", {A}, {B}", [A B], $list, [$($i)*]);
        products!(@ $columns, $sums, $bf16, "k16.f32.bf16.bf16", ", {A}, {B}", [A B], $list, [$($i)*]);
        products!(@ $columns, $sums, $tf32, "k8.f32.tf32.tf32", "", [], $list, [$($i)*]);

        #[inline(always)]
        unsafe fn $finish(sums: &mut [f32; $sums]) {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!("wgmma.wait_group.sync.aligned 0; // ", $list),
                    $(inout(reg32) sums[$i],)*
                    options(nostack, preserves_flags)
                );
            }
        }
    };
    // Whether the operands run across the terms says 16-bit types alone.
    (@ $columns:literal, $sums:literal, $name:ident, $types:literal, $turned:literal, [$($turn:ident)*], $list:literal,
        [$($i:literal)*]) => {
        #[inline(always)]
        unsafe fn $name<$(const $turn: u32),*>(
            sums: &mut [f32; $sums],
            a: [u64; 4],
            b: [u64; 4],
            more: bool,
        ) {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    "{{ .reg .pred %more; setp.ne.b32 %more, {more}, 0;",
                    "wgmma.fence.sync.aligned;",
                    concat!("wgmma.mma_async.sync.aligned.m64n", $columns, $types,
                        " {{", $list, "}}, {a0}, {b0}, %more, 1, 1", $turned, ";"),
                    concat!("wgmma.mma_async.sync.aligned.m64n", $columns, $types,
                        " {{", $list, "}}, {a1}, {b1}, 1, 1, 1", $turned, ";"),
                    concat!("wgmma.mma_async.sync.aligned.m64n", $columns, $types,
                        " {{", $list, "}}, {a2}, {b2}, 1, 1, 1", $turned, ";"),
                    concat!("wgmma.mma_async.sync.aligned.m64n", $columns, $types,
                        " {{", $list, "}}, {a3}, {b3}, 1, 1, 1", $turned, ";"),
                    "wgmma.commit_group.sync.aligned; }}",
                    $(inout(reg32) sums[$i],)*
                    a0 = in(reg64) a[0], a1 = in(reg64) a[1], a2 = in(reg64) a[2], a3 = in(reg64) a[3],
                    b0 = in(reg64) b[0], b1 = in(reg64) b[1], b2 = in(reg64) b[2], b3 = in(reg64) b[3],
                    more = in(reg32) more as u32, $($turn = const $turn,)* options(nostack, preserves_flags)
                );
            }
        }
    };
}

products!(
    256,
    128,
    [f16_256 bf16_256 tf32_256 finish_256],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}, \
         {17}, {18}, {19}, {20}, {21}, {22}, {23}, {24}, {25}, {26}, {27}, {28}, {29}, {30}, {31}, \
         {32}, {33}, {34}, {35}, {36}, {37}, {38}, {39}, {40}, {41}, {42}, {43}, {44}, {45}, {46}, \
         {47}, {48}, {49}, {50}, {51}, {52}, {53}, {54}, {55}, {56}, {57}, {58}, {59}, {60}, {61}, \
         {62}, {63}, {64}, {65}, {66}, {67}, {68}, {69}, {70}, {71}, {72}, {73}, {74}, {75}, {76}, \
         {77}, {78}, {79}, {80}, {81}, {82}, {83}, {84}, {85}, {86}, {87}, {88}, {89}, {90}, {91}, \
         {92}, {93}, {94}, {95}, {96}, {97}, {98}, {99}, {100}, {101}, {102}, {103}, {104}, {105}, \
         {106}, {107}, {108}, {109}, {110}, {111}, {112}, {113}, {114}, {115}, {116}, {117}, {118}, \
         {119}, {120}, {121}, {122}, {123}, {124}, {125}, {126}, {127}",
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
     35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66
     67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98
     99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122
     123 124 125 126 127]
);

products!(
    192,
    96,
    [f16_192 bf16_192 tf32_192 finish_192],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}, {17}, \
         {18}, {19}, {20}, {21}, {22}, {23}, {24}, {25}, {26}, {27}, {28}, {29}, {30}, {31}, {32}, \
         {33}, {34}, {35}, {36}, {37}, {38}, {39}, {40}, {41}, {42}, {43}, {44}, {45}, {46}, {47}, \
         {48}, {49}, {50}, {51}, {52}, {53}, {54}, {55}, {56}, {57}, {58}, {59}, {60}, {61}, {62}, \
         {63}, {64}, {65}, {66}, {67}, {68}, {69}, {70}, {71}, {72}, {73}, {74}, {75}, {76}, {77}, \
         {78}, {79}, {80}, {81}, {82}, {83}, {84}, {85}, {86}, {87}, {88}, {89}, {90}, {91}, {92}, \
         {93}, {94}, {95}",
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
     35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66
     67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95]
);

products!(
    128,
    64,
    [f16_128 bf16_128 tf32_128 finish_128],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}, \
         {17}, {18}, {19}, {20}, {21}, {22}, {23}, {24}, {25}, {26}, {27}, {28}, {29}, {30}, {31}, \
         {32}, {33}, {34}, {35}, {36}, {37}, {38}, {39}, {40}, {41}, {42}, {43}, {44}, {45}, {46}, \
         {47}, {48}, {49}, {50}, {51}, {52}, {53}, {54}, {55}, {56}, {57}, {58}, {59}, {60}, {61}, \
         {62}, {63}",
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
     35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63]
);

products!(
    64,
    32,
    [f16_64 bf16_64 tf32_64 finish_64],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}, \
         {17}, {18}, {19}, {20}, {21}, {22}, {23}, {24}, {25}, {26}, {27}, {28}, {29}, {30}, {31}",
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31]
);

products!(
    32,
    16,
    [f16_32 bf16_32 tf32_32 finish_32],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}",
    [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]
);

products!(
    16,
    8,
    [f16_16 bf16_16 tf32_16 finish_16],
    "{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}",
    [0 1 2 3 4 5 6 7]
);

products!(8, 4, [f16_8 bf16_8 tf32_8 finish_8], "{0}, {1}, {2}, {3}", [0 1 2 3]);

/// Calls the function for so many sums.
macro_rules! of_sums {
    ($sums:ident: [$of_256:ident $of_192:ident $of_128:ident $of_64:ident $of_32:ident $of_16:ident $of_8:ident], $generics:tt; $($rest:expr),*) => {{
        let sums = (&raw mut *$sums).cast::<f32>();
        match const { SUMS } {
            128 => of_sums!(@ $of_256, $generics, sums, $($rest),*),
            96 => of_sums!(@ $of_192, $generics, sums, $($rest),*),
            64 => of_sums!(@ $of_128, $generics, sums, $($rest),*),
            32 => of_sums!(@ $of_64, $generics, sums, $($rest),*),
            16 => of_sums!(@ $of_32, $generics, sums, $($rest),*),
            8 => of_sums!(@ $of_16, $generics, sums, $($rest),*),
            4 => of_sums!(@ $of_8, $generics, sums, $($rest),*),
            _ => const {
                let has = matches!(SUMS, 4 | 8 | 16 | 32 | 64 | 96 | 128);
                assert!(has, "8, 16, 32, 64, 128, 192 or 256 columns")
            },
        }
    }};
    (@ $name:ident, [$($turn:ident),*], $sums:ident, $($rest:expr),*) => {
        $name::<$($turn),*>(&mut *$sums.cast(), $($rest),*)
    };
}

macro_rules! multiply {
    ($($name:ident<$($turn:ident),*>: [$($of:ident)*];)*) => {$(
        #[inline(always)]
        pub unsafe fn $name<const SUMS: usize, $(const $turn: u32),*>(
            sums: &mut [f32; SUMS],
            a: Operand,
            b: Operand,
            more: bool,
        ) {
            let (a, b) = (a.steps(), b.steps());
            // SAFETY: as many sums as each function takes; the rest is the caller's contract.
            unsafe { of_sums!(sums: [$($of)*], [$($turn),*]; a, b, more) }
        }
    )*};
}
multiply! {
    multiply_f16<A, B>: [f16_256 f16_192 f16_128 f16_64 f16_32 f16_16 f16_8];
    multiply_bf16<A, B>: [bf16_256 bf16_192 bf16_128 bf16_64 bf16_32 bf16_16 bf16_8];
    multiply_tf32<>: [tf32_256 tf32_192 tf32_128 tf32_64 tf32_32 tf32_16 tf32_8];
}

#[inline(always)]
pub unsafe fn finish<const SUMS: usize>(sums: &mut [f32; SUMS]) {
    // SAFETY: as many sums as each function takes.
    unsafe { of_sums!(sums: [finish_256 finish_192 finish_128 finish_64 finish_32 finish_16 finish_8], [];) }
}
