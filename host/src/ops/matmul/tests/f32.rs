//! Choices for f32.

use super::{ALONG_K, TARGET, request};
use crate::dtype::DType;
use crate::ops::matmul::choice::Choice;
use crate::ops::matmul::model::H100_MEMORY;
use crate::ops::matmul::plan::{Plan, Wanted};
use crate::ops::matmul::request::{Request, Side, Target};

/// f32 goes to tensor cores where they are faster, in three products or in the one that was asked for, and stays off
/// them where operands would be copied for few terms of many sums.
#[test]
fn f32_takes_tensor_cores_where_they_are_faster() {
    let wide = request([4096, 4096, 4096], DType::F32);
    let of = |request: &Request, target| Plan::new(request, target, None);
    let three = of(&wide, TARGET);
    assert!(three.to_string().starts_with("tf32_cores (three products) 64x128"), "{three}");
    let one = of(&Request { tf32: true, ..wide }, TARGET);
    assert!(one.to_string().starts_with("tf32_cores (rounded to tf32) 128x128"), "{one}");
    assert!(one.microseconds < 0.6 * three.microseconds);
    // A few tokens: three products in small tiles before one in large ones.
    for tf32 in [false, true] {
        let tokens = of(&Request { tf32, ..request([16, 4096, 4096], DType::F32) }, TARGET);
        assert_eq!(tokens.tile, [16, 64], "{tokens}");
    }
    let graphics = Target { fast_tf32: false, shared_bytes: 100 << 10, ..TARGET };
    assert!(matches!(of(&wide, graphics).choice, Choice::CudaCores { .. }));
    assert!(matches!(of(&Request { tf32: true, ..wide }, graphics).choice, Choice::Tf32Cores { .. }));
    let lying = Side { along_k: true, copied: true };
    let copied = Request { sides: [lying; 2], ..wide };
    let plan = of(&copied, TARGET);
    assert!(matches!(plan.choice, Choice::Tf32Cores { .. }) && plan.sides == copied.sides, "{plan}");
    let flat = of(&Request { sides: [lying; 2], ..request([1010, 1561, 17], DType::F32) }, TARGET);
    assert!(flat.choice.reads_any() && flat.sides == [ALONG_K; 2], "{flat}");
    // A launch copies both.
    let small = of(&Request { sides: [lying; 2], ..request([16, 16, 145], DType::F32) }, TARGET);
    assert!(matches!(small.choice, Choice::Tf32Cores { .. }) && small.sides == [lying; 2], "{small}");
    assert!(matches!(of(&request([64, 64, 0], DType::F32), TARGET).choice, Choice::CudaCores { .. }));
}

/// Hopper multiplies parts of f32 numbers, where there is enough to do, whatever their strides.
#[test]
fn f32_is_taken_apart_on_hopper() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |request: &Request| Plan::new(request, hopper, None);
    let wide = request([4096, 4096, 4096], DType::F32);
    let parted = of(&wide);
    assert!(parted.to_string().starts_with("parted (two of f16) 128x128, 32x32 tiles"), "{parted}");
    assert_eq!(parted.blocks(1), 128);
    let rounded = Request { tf32: true, ..wide };
    let one = of(&rounded);
    assert!(one.to_string().starts_with("tf32_pipelined (rounded to tf32) 128x256"), "{one}");
    assert!(one.microseconds < 0.7 * parted.microseconds);
    // What the accelerator cannot read: rows that are one and the same, or lie backwards.
    let lying = of(&Request { mappable: [false; 2], ..rounded });
    assert!(!matches!(lying.choice, Choice::Tf32Pipelined { .. }), "{lying}");
    let across = Side { along_k: false, copied: false };
    let transposed = of(&Request { sides: [across, ALONG_K], ..rounded });
    assert_eq!(transposed.sides, [Side { along_k: true, copied: true }, ALONG_K], "{transposed}");
    assert!(one.microseconds < transposed.microseconds, "{transposed}");
    let lying = Side { along_k: false, copied: true };
    let plan = of(&Request { sides: [lying; 2], ..wide });
    assert_eq!(plan.sides, [Side { copied: false, ..lying }; 2], "{plan}");
    assert!(matches!(plan.choice, Choice::Parted { .. }));
    // Where there is no memory for parts.
    let copied = Request { sides: [Side { copied: true, ..ALONG_K }; 2], begins: [4; 2], ..wide };
    let less = of(&copied).with_less_memory(&copied, hopper, None);
    assert!(matches!(less[0].choice, Choice::Tf32Cores { .. }) && less[0].sides[0].copied, "{}", less[0]);
    assert!(matches!(less[1].choice, Choice::CudaCores { .. }) && !less[1].sides[0].copied, "{}", less[1]);
    assert_eq!(less.len(), 2);
    let whole = of(&wide).with_less_memory(&wide, hopper, None)[0];
    assert!(matches!(whole.choice, Choice::Tf32Cores { .. }), "{whole}");
    assert_eq!(Plan::new(&wide, hopper, Some(Wanted::exactly(&whole))), whole);
    assert!(matches!(of(&request([1, 4096, 4096], DType::F32)).choice, Choice::NarrowF32 { .. }));
    assert!(matches!(of(&request([4096, 4096, 0], DType::F32)).choice, Choice::CudaCores { .. }));
}

/// Taking weights apart takes memory's time, of which an H200 needs two thirds.
#[test]
fn fast_memory_takes_more_numbers_apart() {
    let tokens = request([128, 14_336, 4096], DType::F32);
    let of = |memory| Plan::new(&tokens, Target { warpgroups: true, memory, ..TARGET }, None);
    let [h100, h200] = [of(H100_MEMORY), of(4900.0)];
    assert!(matches!(h100.choice, Choice::Tf32Cores { .. }), "{h100}");
    assert!(matches!(h200.choice, Choice::Parted { .. }), "{h200}");
}
