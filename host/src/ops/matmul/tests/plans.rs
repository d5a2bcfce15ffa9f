//! What holds for all plans.

use super::{ALONG_K, TARGET, plan, request};
use crate::dtype::DType;
use crate::ops::matmul::choice::{Choice, instance};
use crate::ops::matmul::plan::{Plan, Wanted};
use crate::ops::matmul::request::{Request, Side, Target};
use kernels_gpu::matmul::tensor_cores;

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
