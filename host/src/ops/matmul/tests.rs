use super::launch::{Behind, run};
use super::layout::{Layout, Lines, begins, lines, pitch};
use super::maps::{self, mappable};
use super::model::H100_MEMORY;
use super::plan::{Choice, Plan, Request, Side, Target, Wanted, instance};
use super::problem::{Epilogue, Factors, Problem};
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::launch::Grid;
use crate::ops::{Activation, Approximate, LinearBackward};
use crate::reference;
use crate::tensor::{Desc, Tensor};
use cuda_std::{Float, bf16, f16};
use kernels_gpu::matmul::{Matrix, activation, narrow, narrow_f32, tensor_cores, thin, thin_f32};
use kernels_gpu::probe::{BOX, boxes};

const TARGET: Target =
    Target { sms: 132, shared_bytes: 228 << 10, warpgroups: false, fast_tf32: true, memory: H100_MEMORY };
const ALONG_K: Side = Side { along_k: true, copied: false };

fn request([m, n, k]: [usize; 3], dtype: DType) -> Request {
    let lying = Matrix { row: k as i64, col: 1, outer: 0, inner: 0 };
    let begins = [begins(&lying, true, dtype, 0); 2];
    let sides = [ALONG_K; 2];
    Request {
        m,
        n,
        k,
        batch: 1,
        dtype,
        tf32: false,
        sides,
        begins,
        mappable: [true; 2],
        by_columns: false,
        neighbours: true,
        boxed: dtype != DType::F32,
        in_turn: dtype != DType::F32 && n.is_multiple_of(8),
        gelu: false,
        simple: true,
    }
}

fn plan(shape: [usize; 3], dtype: DType) -> Plan {
    Plan::new(&request(shape, dtype), TARGET, None)
}

#[test]
fn every_plan_covers_the_product() {
    for dtype in [DType::F32, DType::BF16] {
        for shape in [
            [1, 1, 0],
            [1, 4096, 4096],
            [17, 33, 100_000],
            [128, 128, 64],
            [4096, 4096, 4096],
            [70_000, 5, 3],
        ] {
            for target in [TARGET, Target { warpgroups: true, ..TARGET }] {
                covers_the_product(&request(shape, dtype), target);
            }
        }
    }
}

fn covers_the_product(request: &Request, target: Target) {
    let (shape @ [m, n, k], plans) = ([request.m, request.n, request.k], Plan::candidates(request, target));
    let best = Plan::new(request, target, None);
    // Where `tensor_cores` stands back others are taken though they are thought to take longer.
    assert!(target.warpgroups || plans.iter().all(|plan| plan.microseconds >= best.microseconds));
    for plan in plans {
        let covers = |extent: usize, tile: u32, tiles: usize| {
            tiles * tile as usize >= extent && (tiles - 1) * (tile as usize) < extent.max(1)
        };
        let [rows, cols] = if plan.by_columns { [n, m] } else { [m, n] };
        assert!(covers(rows, plan.tile[0], plan.tiles[0]), "{shape:?} {plan}");
        assert!(covers(cols, plan.tile[1], plan.tiles[1]), "{shape:?} {plan}");
        // Every split has terms, and all have them all.
        assert!(plan.splits * plan.k_of_split >= k, "{shape:?} {plan}");
        assert!((plan.splits - 1) * plan.k_of_split < k.max(1), "{shape:?} {plan}");
        let total = (plan.tiles[0] * plan.tiles[1] * plan.splits * 3) as u64;
        assert_eq!(plan.total(3), total);
        // Blocks that stay take several each.
        let on_all =
            matches!(plan.choice, Choice::Short { .. } | Choice::Small { .. } | Choice::SmallF32 { .. });
        let stays = (target.warpgroups || on_all) && plan.most_blocks != u64::MAX;
        assert!(stays || plan.blocks(3) == total, "{shape:?} {plan}");
    }
}

#[test]
fn rows_of_a_batch_are_rows_of_one_product_as_long_as_kernels_count_them() {
    let device = Device::cpu();
    let layout = |batch: usize, rows: usize| {
        let desc = |shape: &[usize]| Desc::new(&device, DType::BF16, shape).unwrap();
        let (x, weight) = (desc(&[batch, rows, 8]), desc(&[8, 8]));
        let factors = Factors::new("linear", ("x", &x, false), ("weight", &weight, false)).unwrap();
        let problem = Problem::new("linear", factors, Epilogue::default(), DType::BF16, &device).unwrap();
        let layout = Layout::new(&problem).unwrap();
        (layout.m, layout.products())
    };
    assert_eq!(layout(6, 7), (42, 1));
    assert_eq!(layout(2, 1 << 29), (1 << 30, 1));
    assert_eq!(layout(8, 1 << 29), (1 << 29, 8));
}

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

#[test]
fn large_products_take_large_tiles_and_small_ones_fill_the_gpu() {
    let large = plan([8192, 8192, 8192], DType::BF16);
    assert_eq!((large.tile, large.splits), ([128, 128], 1));
    assert_eq!(plan([8192, 8192, 1024], DType::F32).tile, [64, 128]);
    let small = plan([256, 256, 256], DType::BF16);
    assert_eq!(small.tile, [64, 64]);
    // A tile or two of many terms.
    let deep = plan([64, 64, 65_536], DType::BF16);
    assert!(deep.splits > 8 && deep.blocks(1) <= 132 * 3, "{deep}");
    assert_eq!(plan([64, 64, 256], DType::BF16).splits, 1);
}

#[test]
fn the_model_orders_what_differs_in_one_thing() {
    let time = |m, n, k| plan([m, n, k], DType::BF16).microseconds;
    assert!(time(4096, 4096, 8192) > 1.8 * time(4096, 4096, 4096));
    assert!(time(2048, 4096, 4096) < 0.6 * time(4096, 4096, 4096));
    let smaller = Target { sms: 66, ..TARGET };
    let request = request([4096, 4096, 4096], DType::BF16);
    let (half, whole) =
        (Plan::new(&request, smaller, None).microseconds, Plan::new(&request, TARGET, None).microseconds);
    assert!(half > 1.8 * whole, "{half} {whole}");
    // Less shared memory: fewer blocks of a multiprocessor.
    let tight = Target { shared_bytes: 100 << 10, ..TARGET };
    assert!(Plan::new(&request, tight, None).microseconds >= whole);
}

#[test]
fn instances_are_found_by_shape_and_order() {
    let across = Side { along_k: false, copied: false };
    for (shape, tile) in [(0, [4, 8]), (1, [4, 4]), (2, [2, 4])] {
        for (i, sides) in [[ALONG_K, ALONG_K], [ALONG_K, across], [across, ALONG_K], [across, across]]
            .into_iter()
            .enumerate()
        {
            let kernel = &tensor_cores::kernels::<half::f16>()[instance(shape, sides)];
            assert_eq!(["MI", "NI"].map(|name| kernel.constant(name)), tile);
            let want = sides.map(|side| usize::from(side.along_k));
            assert_eq!(["A_K", "B_K"].map(|name| kernel.constant(name)), want, "{i}");
        }
    }
}

#[test]
fn lines_start_at_packs_or_the_operand_is_copied() {
    let of = |row, col| Matrix { row, col, outer: 64, inner: 8 };
    let along = |step| Some(Lines { along_k: true, step });
    let across = |step| Some(Lines { along_k: false, step });
    for (matrix, extents, want) in [
        (of(40, 1), (5, 33), along(40)),
        (of(33, 1), (5, 33), None),
        (of(1, 40), (33, 5), across(40)),
        (of(1, 33), (33, 5), None),
        (of(40, 2), (5, 20), None),
        // Of one row, or one column, the other step does not matter.
        (of(33, 1), (1, 33), along(40)),
        (of(1, 33), (33, 1), across(40)),
        (of(8, 33), (5, 1), along(8)),
        (of(0, 1), (5, 33), along(0)),
        (Matrix { inner: 4, ..of(40, 1) }, (5, 33), None),
        (Matrix { outer: 4, ..of(40, 1) }, (5, 33), None),
    ] {
        assert_eq!(lines(&matrix, extents.0, extents.1, 8), want, "{matrix:?} {extents:?}");
    }
}

#[test]
fn a_kernel_can_be_chosen_and_the_fastest_comes_first() {
    let target = Target { warpgroups: true, ..TARGET };
    let request = request([4096, 4096, 4096], DType::BF16);
    let plans = Plan::of_each_kernel(&request, target);
    assert_eq!(plans.len(), 14);
    assert_eq!(plans[0], Plan::new(&request, target, None));
    assert!(matches!(plans[0].choice, Choice::Pipelined { .. }));
    assert!(plans.windows(2).all(|pair| pair[0].microseconds <= pair[1].microseconds));
    for plan in plans {
        assert_eq!(
            Plan::new(&request, target, Some(Wanted { choice: plan.choice, splits: None, sides: None })),
            plan
        );
    }
    // A kernel that cannot serve.
    assert_eq!(
        Plan::new(
            &request,
            target,
            Some(Wanted { choice: Choice::Thin { index: 0 }, splits: None, sides: None })
        ),
        Plan::new(&request, target, None)
    );
}

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

#[test]
fn lines_that_are_one_and_the_same_have_no_map() {
    let matrix = |row: i64| Matrix { row, col: 1, outer: 0, inner: 0 };
    assert!(mappable(&matrix(64), 2, 9, true) && mappable(&matrix(0), 2, 1, true));
    assert!(!mappable(&matrix(0), 2, 9, true) && !mappable(&matrix(-64), 2, 9, true));
    assert!(!mappable(&matrix(1 << 39), 2, 9, true));
    let across = Matrix { row: 1, col: 0, outer: 0, inner: 0 };
    assert!(!mappable(&across, 2, 9, false) && mappable(&across, 2, 1, false));
}

#[test]
fn hopper_takes_the_pipelines_unless_they_cannot_read() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let large = request([4096, 4096, 4096], DType::BF16);
    let plan = Plan::new(&large, hopper, None);
    assert_eq!((plan.choice, plan.tile, plan.blocks(1)), (Choice::Pipelined { shape: 0 }, [128, 256], 128));
    let few = Plan::new(&request([3072, 1024, 1024], DType::BF16), hopper, None);
    assert_eq!((few.tile, few.splits), ([192, 128], 1));
    for request in [Request { mappable: [false; 2], ..large }, request([256, 256, 0], DType::BF16)] {
        assert!(matches!(Plan::new(&request, hopper, None).choice, Choice::TensorCores { .. }));
    }
    // Few terms and many results: what does not use warpgroups stands back.
    let flat = Plan::new(&request([1664, 6904, 40], DType::BF16), hopper, None);
    assert!(!matches!(flat.choice, Choice::TensorCores { .. }), "{flat}");
    let split = Plan::new(&request([128, 4096, 4096], DType::BF16), hopper, None);
    assert!(split.splits > 1 && split.is_clustered(), "{split}");
}

#[test]
fn tiles_are_taken_in_turn_where_their_ends_are_long_or_many() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let in_turn = |request: Request| {
        let plan = Plan::new(&request, hopper, None);
        matches!(plan.choice, Choice::Alternating { .. }) && plan.splits == 1
    };
    let gelu = |shape| Request { gelu: true, ..request(shape, DType::BF16) };
    assert!(in_turn(gelu([3072, 4096, 1024])) && in_turn(request([8192, 50304, 768], DType::BF16)));
    assert!(!in_turn(gelu([4096, 4096, 4096])) && !in_turn(gelu([3072, 1024, 1024])));
    // With something beside the sums, or results that leave otherwise.
    assert!(!in_turn(Request { in_turn: false, ..gelu([3072, 4096, 1024]) }));
    assert!(!in_turn(Request { boxed: false, ..gelu([3072, 4096, 1024]) }));
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

/// Tiles of 192×128 are turned wherever results leave in boxes or by threads, whatever lies beside the sums.
#[test]
fn tiles_of_192_rows_are_turned() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |request: Request| Plan::new(&request, hopper, None);
    let layer = request([3072, 1024, 1024], DType::BF16);
    for request in [layer, Request { gelu: true, ..layer }, Request { in_turn: false, ..layer }] {
        let plan = of(request);
        assert_eq!((plan.choice, plan.tile), (Choice::Turned { shape: 0 }, [192, 128]), "{plan}");
    }
    let plan = of(Request { boxed: false, ..layer });
    assert!(!matches!(plan.choice, Choice::Turned { .. }), "{plan}");
    assert!(
        Plan::candidates(&layer, TARGET).iter().all(|plan| !matches!(plan.choice, Choice::Turned { .. }))
    );
}

/// At the limit of power a tile of 128×256 has to be the better one by more than a little.
#[test]
fn long_products_take_turns_where_much_is_done_behind_them() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |request: Request| Plan::new(&request, hopper, None);
    let large = request([8192; 3], DType::BF16);
    assert_eq!(of(large).tile, [128, 256], "{}", of(large));
    let gradient = request([8192, 768, 50304], DType::BF16);
    for request in [Request { gelu: true, ..large }, gradient] {
        let plan = of(request);
        assert!(matches!(plan.choice, Choice::Alternating { .. }) && plan.tile == [192, 128], "{plan}");
    }
}

#[test]
fn blocks_that_stay_end_together_unless_many_would_be_idle() {
    let plan = Plan { most_blocks: 132, tiles: [1, 1], splits: 1, ..plan([4096, 4096, 4096], DType::BF16) };
    let blocks = |tiles| Plan { tiles: [tiles, 1], ..plan }.blocks(1);
    for (tiles, want) in
        [(0, 0), (1, 1), (132, 132), (133, 132), (195, 132), (250, 125), (384, 128), (512, 128)]
    {
        assert_eq!(blocks(tiles), want, "{tiles}");
    }
    let waves = Plan { most_blocks: u64::MAX, ..plan };
    assert_eq!(Plan { tiles: [1000, 3], ..waves }.blocks(2), 6000);
}

#[test]
fn few_tiles_take_clusters() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |shape, sides| Plan::new(&Request { sides, ..request(shape, DType::BF16) }, hopper, None);
    let deep = of([88, 24, 2272], [ALONG_K; 2]);
    assert!(matches!(deep.choice, Choice::Clustered { .. }) && deep.splits > 1 && deep.early, "{deep}");
    let any = Side { along_k: true, copied: true };
    let odd = of([111, 6068, 53], [any; 2]);
    assert!(matches!(odd.choice, Choice::Loose { .. }) && odd.sides == [ALONG_K; 2], "{odd}");
    // More clusters at a time than fit would take turns.
    let wide = of([64, 1024, 1024], [ALONG_K; 2]);
    assert_eq!((wide.tile, wide.splits), ([64, 64], 4), "{wide}");
    // What is read often is worth a copy.
    let large = of([1000, 2000, 3001], [any; 2]);
    assert!(matches!(large.choice, Choice::Pipelined { .. }) && large.sides == [any; 2], "{large}");
    for m in [16, 100] {
        for plan in Plan::candidates(&request([m, 100, 1000], DType::F16), hopper) {
            assert!(!plan.is_clustered() || plan.splits.is_power_of_two() && plan.splits <= 8, "{plan}");
        }
    }
}

#[test]
fn operands_are_copied_where_their_lines_would_be_looked_up_for_longer() {
    let hopper = Target { warpgroups: true, ..TARGET };
    let of = |shape| Plan::new(&request(shape, DType::BF16), hopper, None);
    let misaligned = request([696, 3216, 3544], DType::BF16);
    assert_eq!(misaligned.begins, [16; 2]);
    let copied = Side { copied: true, ..ALONG_K };
    let plan = Plan::new(&misaligned, hopper, None);
    assert_eq!(plan.sides, [copied, ALONG_K], "{plan}");
    assert_eq!(Plan::new(&misaligned, hopper, Some(Wanted::exactly(&plan))), plan);
    let lying = plan.with_less_memory(&misaligned, hopper, Some(Wanted::exactly(&plan)))[0];
    assert_eq!((lying.sides, lying.choice), ([ALONG_K; 2], plan.choice), "{lying}");
    // What must be copied is read by threads that take it as it lies, where there is no memory.
    let odd = Request { sides: [copied; 2], begins: [2; 2], ..request([5000, 5001, 5003], DType::BF16) };
    let plan = Plan::new(&odd, hopper, None);
    let less = plan.with_less_memory(&odd, hopper, None);
    assert!(plan.sides == [copied; 2] && less.len() == 1, "{plan}");
    assert!(matches!(less[0].choice, Choice::Loose { .. }) && less[0].sides == [ALONG_K; 2], "{}", less[0]);
    assert_eq!(of([5000, 5000, 5000]).sides, [copied; 2]);
    // Nothing to gain, or too little.
    for shape in [[4096; 3], [696, 3216, 3584], [8192, 50_304, 768], [300, 300, 3544], [64, 4096, 4104]] {
        assert_eq!(of(shape).sides, [ALONG_K; 2], "{shape:?}");
    }
}

#[test]
fn copies_begin_at_lines_of_l2_where_that_is_little_more() {
    for (length, dtype, want) in [
        (17, DType::BF16, 24),
        (255, DType::F16, 256),
        (257, DType::F16, 320),
        (3544, DType::BF16, 3584),
        (100, DType::F32, 100),
        (130, DType::F32, 160),
    ] {
        assert_eq!(pitch(length, dtype), want, "{length} {dtype}");
    }
}

/// Copies the box at a corner of a tensor, whose lines have a gap behind them, from one to another, raised by 1.
fn copies_a_clipped_box<T: Element + Float + boxes::Instances>(device: &Device, width: usize) -> Result<()> {
    let (lines, step) = (40, 104);
    let [box_width, box_lines] = BOX.map(|extent| extent as usize);
    let (x, y) = (64, 32);
    let bytes = |of: &[u16]| of.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
    let numbers: Vec<u16> = (0..lines * step).map(|number| number as u16).collect();
    let poison = vec![0xa5a5; numbers.len()];
    let from = Tensor::from_bytes(device, T::DTYPE, &[lines, step], &bytes(&numbers))?;
    let to = Tensor::from_bytes(device, T::DTYPE, &[lines, step], &bytes(&poison))?;
    let seen = Tensor::zeros(device, T::DTYPE, &[box_lines, box_width])?;
    let matrix = Matrix { row: step as i64, col: 1, ..Matrix::default() };
    let map = |tensor| maps::result(tensor, &matrix, [lines, width], [1, 1], BOX);
    let grid = Grid::new(1)?.shared(2 * BOX[0] * BOX[1] + 8);
    let args = (map(&from)?, map(&to)?, seen.view_mut::<T>()?, x as i32, y as i32);
    // SAFETY: the tensors and the shared memory have the sizes that the kernel states.
    unsafe { device.launch(&boxes::kernels::<T>()[0], grid, args)? };
    let inside = |line: usize, column: usize| line < lines && column < width;
    let mut want_seen = Vec::new();
    let mut want_to = poison;
    for (line, column) in (0..box_lines).flat_map(|line| (0..box_width).map(move |column| (line, column))) {
        let (line, column) = (y + line, x + column);
        let at = line * step + column;
        want_seen.push(if inside(line, column) { numbers[at] } else { 0 });
        if inside(line, column) {
            want_to[at] = numbers[at] + 1;
        }
    }
    for (what, got, want, step) in [("seen", &seen, want_seen, box_width), ("stored", &to, want_to, step)] {
        let got: Vec<u16> =
            got.to_bytes()?.as_chunks().0.iter().map(|&number| u16::from_ne_bytes(number)).collect();
        let wrong: Vec<usize> = (0..want.len()).filter(|&at| got[at] != want[at]).collect();
        let first: Vec<_> =
            wrong.iter().take(9).map(|&at| ([at / step, at % step], got[at], want[at])).collect();
        assert!(
            wrong.is_empty(),
            "{} of {width} columns, {what}: {} wrong, {first:?}",
            T::DTYPE,
            wrong.len()
        );
    }
    Ok(())
}

#[test]
fn boxes_of_a_map_are_clipped_at_the_ends_of_the_tensor() {
    let hopper = Device::cuda(0).ok().filter(|device| device.info().is_some_and(|info| info.arch == (9, 0)));
    for device in hopper.into_iter().chain([Device::cpu()]) {
        // Of 100 columns an H100 would write 4 more to each line: the rest of a line's last 16 bytes.
        copies_a_clipped_box::<f16>(&device, 96).unwrap();
        copies_a_clipped_box::<bf16>(&device, 96).unwrap();
    }
}

/// The slopes of an activation behind the product of each kernel that could serve: tiles that are cut at both ends.
fn each_kernel_takes_slopes<T: Element + Float>(device: &Device) -> Result<()> {
    let [m, n, k] = [200, 264, 136];
    let of = |shape: [usize; 2], step: usize| {
        let number = |i: usize| T::from_f32((i * step % 61) as f32 / 32.0 - 1.0);
        Tensor::from_slice(device, &shape, &(0..shape[0] * shape[1]).map(number).collect::<Vec<_>>())
    };
    let (dy, weight, input) = (of([m, k], 37)?, of([k, n], 23)?, of([m, n], 19)?);
    let layer =
        LinearBackward { input: Some((&input, Activation::Gelu(Approximate::Tanh))), ..Default::default() };
    let want = reference::linear_backward(&input, &weight, &dy, &layer)?.dx;
    let factors = Factors::new("linear", ("dy", dy.desc(), false), ("weight", weight.desc(), true))?;
    let epilogue = Epilogue { activation: activation::GELU_TANH, slope: true, ..Epilogue::default() };
    let problem = Problem::new("linear", factors, epilogue, T::DTYPE, device)?;
    let plans = problem.plans();
    assert!(plans.iter().any(|plan| matches!(plan.choice, Choice::Turned { .. })) || device.is_cuda());
    for plan in plans {
        let dx = Tensor::from_slice(device, &[m, n], &vec![T::from_f32(77.0); m * n])?;
        let behind = Behind { aux: Some(&input), ..Behind::default() };
        run(&problem.clone().by(plan.choice), &dy, &weight, &behind, &dx)?;
        for (i, (got, want)) in dx.to_f64()?.into_iter().zip(&want).enumerate() {
            assert!((got - want).abs() <= want.abs() / 256.0 + 1e-3, "{plan}, {i}: {got} for {want}");
        }
    }
    Ok(())
}

#[test]
fn slopes_are_taken_behind_each_kernel() {
    for device in Device::cuda(0).ok().into_iter().chain([Device::cpu()]) {
        each_kernel_takes_slopes::<f16>(&device).unwrap();
        each_kernel_takes_slopes::<bf16>(&device).unwrap();
    }
}
