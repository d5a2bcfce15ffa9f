//! Choices for few rows, few columns and small matrices.

use super::{ALONG_K, TARGET, plan, request};
use crate::dtype::DType;
use crate::ops::matmul::choice::Choice;
use crate::ops::matmul::plan::Plan;
use crate::ops::matmul::request::{Request, Side, Target};
use cuda_std::{bf16, f16};
use kernels_gpu::matmul::{narrow, narrow_f32, thin, thin_f32};

#[test]
fn few_rows_take_the_kernel_that_reads_b_once() {
    let cases = [
        ([1, 4096, 4096], [1, 1, 6]),
        ([8, 4096, 4096], [1, 1, 6]),
        ([8, 2048, 2048], [1, 1, 8]),
        ([8, 50304, 768], [1, 1, 3]),
        ([8, 4096, 14336], [1, 1, 3]),
        ([9, 4096, 4096], [2, 2, 8]),
        ([16, 4096, 4096], [2, 2, 8]),
        // Wide blocks would be few, would leave most of a second wave empty, or have very few or many terms.
        ([16, 1024, 4096], [2, 1, 4]),
        ([16, 6144, 2048], [2, 1, 4]),
        ([16, 50304, 768], [2, 1, 3]),
        ([16, 4096, 14336], [2, 1, 3]),
    ];
    for (shape, instance) in cases {
        let Choice::Thin { index } = plan(shape, DType::F16).choice else { panic!("{shape:?}") };
        let kernel = &thin::kernels::<f16>()[index];
        assert_eq!(["FRAGMENTS", "GROUPS", "DEPTH"].map(|name| kernel.constant(name)), instance, "{shape:?}");
    }
    assert!(matches!(plan([17, 4096, 4096], DType::F16).choice, Choice::TensorCores { .. }));
    let of_f32 = [([1, 768, 768], 8), ([8, 512, 512], 4), ([1, 3072, 768], 3), ([1, 4096, 1024], 4)];
    for (shape, depth) in of_f32 {
        let Choice::ThinF32 { index } = plan(shape, DType::F32).choice else { panic!("{shape:?}") };
        assert_eq!(thin_f32::ALL[index].constant("DEPTH"), depth, "{shape:?}");
    }
    for shape in [[9, 4096, 4096], [1, 768, 767]] {
        assert!(matches!(plan(shape, DType::F32).choice, Choice::Tf32Cores { .. }), "{shape:?}");
    }
    let graphics = Target { fast_tf32: false, ..TARGET };
    let token = Plan::new(&request([1, 768, 768], DType::F32), graphics, None);
    assert!(matches!(token.choice, Choice::CudaCores { .. }), "{token}");
    // It reads whole packs along k.
    assert!(matches!(plan([1, 4096, 4095], DType::F16).choice, Choice::TensorCores { .. }));
    let across = Request {
        sides: [ALONG_K, Side { along_k: false, copied: false }],
        ..request([1, 64, 640], DType::F16)
    };
    assert!(matches!(Plan::new(&across, TARGET, None).choice, Choice::TensorCores { .. }));
}

/// Of weights that are not small, where there are warpgroups.
#[test]
fn few_rows_take_narrow_tiles() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let instance = |shape| {
        let plan = Plan::new(&request(shape, DType::BF16), hopper, None);
        let Choice::Narrow { index } = plan.choice else { panic!("{plan}") };
        let kernel = &narrow::kernels::<bf16>()[index];
        (["SUMS", "STAGES"].map(|name| kernel.constant(name)), plan.splits, plan.early)
    };
    // As many multiprocessors as there are have a block each, and another launch's beside it.
    assert_eq!(instance([16, 4096, 4096]), ([8, 10], 2, true));
    assert_eq!(instance([8, 4096, 14336]), ([4, 11], 2, true));
    assert_eq!(instance([32, 4096, 4096]), ([16, 9], 2, true));
    // Some have two blocks, and others one; the same in a last wave.
    assert_eq!(instance([16, 14336, 4096]), ([8, 6], 1, false));
    assert_eq!(instance([16, 28672, 8192]), ([8, 6], 1, false));
    // Three each, several times.
    assert_eq!(instance([16, 50304, 768]), ([8, 6], 1, true));
    // Clusters of as many parts as make a block each.
    assert_eq!(instance([16, 1024, 4096]), ([8, 6], 8, true));
    let of_f32 = |shape, tf32| {
        let plan = Plan::new(&Request { tf32, ..request(shape, DType::F32) }, hopper, None);
        let Choice::NarrowF32 { index } = plan.choice else { panic!("{plan}") };
        let kernel = &narrow_f32::ALL[index];
        (["PRODUCTS", "SUMS", "STAGES"].map(|name| kernel.constant(name)), plan.splits)
    };
    assert_eq!(of_f32([1, 4096, 4096], false), ([3, 4, 11], 2));
    assert_eq!(of_f32([8, 50304, 768], false), ([3, 4, 7], 1));
    assert_eq!(of_f32([16, 14336, 4096], true), ([3, 8, 6], 1));
    // Three products of 32 rows take longer than memory.
    assert_eq!(of_f32([24, 1024, 1024], false), ([3, 16, 8], 4));
    assert_eq!(of_f32([24, 4096, 4096], true).0[0], 1);
    let others = [[1, 4096, 4096], [16, 1024, 1024], [33, 4096, 4096], [16, 4096, 0]];
    let unmapped = Request { mappable: [false; 2], ..request([16, 4096, 4096], DType::BF16) };
    for request in others.map(|shape| request(shape, DType::BF16)).into_iter().chain([unmapped]) {
        let plan = Plan::new(&request, hopper, None);
        assert!(!matches!(plan.choice, Choice::Narrow { .. }), "{plan}");
    }
}

#[test]
fn few_columns_are_rows_of_kernels_of_few_rows() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |request: &Request| Plan::new(request, hopper, None);
    for dtype in [DType::F32, DType::BF16] {
        let plan = |shape| of(&request(shape, dtype));
        let head = plan([8192, 1, 1024]);
        assert!(head.by_columns && head.choice.is_of_few() && head.tile[0] == 8, "{head}");
        assert_eq!(head.tiles[1], 8192usize.div_ceil(head.tile[1] as usize));
        for shape in [[1_048_576, 1, 64], [1, 1_048_576, 16]] {
            let short = plan(shape);
            assert!(matches!(short.choice, Choice::Short { .. }), "{short}");
            assert_eq!(short.by_columns, shape[1] == 1);
        }
        // As many rows as columns are rows.
        assert!(!plan([4, 4, 1024]).by_columns);
        // Very long sums, in more parts than others.
        let long = plan([1, 1, 1_048_576]);
        assert!(long.splits > 32 && long.k_of_split % 64 == 0, "{long}");
        // What is read once lies across k, and is not copied; the operand of few lies so, and is.
        let across = Side { along_k: false, copied: false };
        let rows = of(&Request { sides: [ALONG_K, across], ..request([16, 4096, 4096], dtype) });
        assert!(!rows.by_columns && rows.choice.is_of_few() && rows.sides == [ALONG_K, across], "{rows}");
        let columns = of(&Request { sides: [across, across], ..request([65_536, 2, 768], dtype) });
        assert!(columns.by_columns && columns.choice.is_of_few(), "{columns}");
        assert_eq!(columns.sides, [Side { along_k: true, copied: true }, across]);
        let text = columns.to_string();
        assert!(text.contains(" by columns") && text.contains("; b along k, copied first"), "{text}");
    }
}

/// Small matrices and few terms go to warps by themselves, unless there is more to do than these have registers for.
#[test]
fn small_matrices_are_tiles_of_warps() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let many = |shape, dtype| Request { batch: 4096, ..request(shape, dtype) };
    for (dtype, tile) in [(DType::BF16, [32, 32]), (DType::F32, [16, 32])] {
        for target in [TARGET, hopper] {
            let of = |request: Request| Plan::new(&request, target, None);
            let is_small =
                |plan: &Plan| matches!(plan.choice, Choice::Small { .. } | Choice::SmallF32 { .. });
            let plan = of(many([32, 32, 32], dtype));
            assert!(is_small(&plan) && plan.tile == tile && !plan.choice.reads_any(), "{plan}");
            // A warp has several tiles, of which a block takes eight at a time.
            let tiles = plan.total(4096);
            assert!(plan.abreast == 8 && plan.blocks(4096) <= 2 * 132, "{tiles} by {}", plan.blocks(4096));
            assert_eq!(plan.blocks(1), plan.total(1).div_ceil(8));
            let few = of(request([65_536, 30, 24], dtype));
            assert!(is_small(&few), "{few}");
            // Nothing is copied first, whatever the strides.
            let copied = Side { along_k: false, copied: true };
            let lying =
                of(Request { sides: [copied, ALONG_K], begins: [2, 128], ..many([17, 19, 21], dtype) });
            assert!(is_small(&lying) && lying.choice.reads_any(), "{lying}");
            assert_eq!(lying.sides, [Side { copied: false, ..copied }, ALONG_K], "{lying}");
            for request in
                [Request { simple: false, ..many([32, 32, 32], dtype) }, many([32, 32, 512], dtype)]
            {
                assert!(!is_small(&of(request)));
            }
            assert!(!is_small(&of(Request { simple: true, ..many([32, 32, 0], dtype) })));
        }
    }
}
