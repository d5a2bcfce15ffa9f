//! Choices among the pipelines of Hopper.

use super::{ALONG_K, TARGET, request};
use crate::cuda::shared::blocks_that_fit;
use crate::dtype::DType;
use crate::ops::matmul::plan::{Choice, Plan, Request, Side, Target, Wanted};

const HOPPER: Target = Target { warpgroups: true, ..TARGET };

#[test]
fn hopper_takes_the_pipelines_unless_they_cannot_read() {
    let large = request([4096, 4096, 4096], DType::BF16);
    let plan = Plan::new(&large, HOPPER, None);
    assert_eq!((plan.choice, plan.tile, plan.blocks(1)), (Choice::Pipelined { shape: 0 }, [128, 256], 128));
    let few = Plan::new(&request([3072, 1024, 1024], DType::BF16), HOPPER, None);
    assert_eq!((few.tile, few.splits), ([192, 128], 1));
    for request in [Request { mappable: [false; 2], ..large }, request([256, 256, 0], DType::BF16)] {
        assert!(matches!(Plan::new(&request, HOPPER, None).choice, Choice::TensorCores { .. }));
    }
    // Few terms and many results: what does not use warpgroups stands back.
    let flat = Plan::new(&request([1664, 6904, 40], DType::BF16), HOPPER, None);
    assert!(!matches!(flat.choice, Choice::TensorCores { .. }), "{flat}");
    let split = Plan::new(&request([128, 4096, 4096], DType::BF16), HOPPER, None);
    assert!(split.splits > 1 && split.is_clustered(), "{split}");
}

#[test]
fn tiles_are_taken_in_turn_where_their_ends_are_long_or_many() {
    let in_turn = |request: Request| {
        let plan = Plan::new(&request, HOPPER, None);
        matches!(plan.choice, Choice::Alternating { .. }) && plan.splits == 1
    };
    let gelu = |shape| Request { gelu: true, ..request(shape, DType::BF16) };
    assert!(in_turn(gelu([3072, 4096, 1024])) && in_turn(request([8192, 50304, 768], DType::BF16)));
    assert!(!in_turn(gelu([4096, 4096, 4096])) && !in_turn(gelu([3072, 1024, 1024])));
    // With something beside the sums, or results that leave otherwise.
    assert!(!in_turn(Request { in_turn: false, ..gelu([3072, 4096, 1024]) }));
    assert!(!in_turn(Request { boxed: false, ..gelu([3072, 4096, 1024]) }));
}

/// Tiles of 192×128 are turned wherever results leave in boxes or by threads, whatever lies beside the sums.
#[test]
fn tiles_of_192_rows_are_turned() {
    let of = |request: Request| Plan::new(&request, HOPPER, None);
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
    let of = |request: Request| Plan::new(&request, HOPPER, None);
    let large = request([8192; 3], DType::BF16);
    assert_eq!(of(large).tile, [128, 256], "{}", of(large));
    let gradient = request([8192, 768, 50304], DType::BF16);
    for request in [Request { gelu: true, ..large }, gradient] {
        let plan = of(request);
        assert!(matches!(plan.choice, Choice::Alternating { .. }) && plan.tile == [192, 128], "{plan}");
    }
}

#[test]
fn few_tiles_take_clusters() {
    let of = |shape, sides| Plan::new(&Request { sides, ..request(shape, DType::BF16) }, HOPPER, None);
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
        for plan in Plan::candidates(&request([m, 100, 1000], DType::F16), HOPPER) {
            assert!(!plan.is_clustered() || plan.splits.is_power_of_two() && plan.splits <= 8, "{plan}");
        }
    }
}

#[test]
fn operands_are_copied_where_their_lines_would_be_looked_up_for_longer() {
    let of = |shape| Plan::new(&request(shape, DType::BF16), HOPPER, None);
    let misaligned = request([696, 3216, 3544], DType::BF16);
    assert_eq!(misaligned.begins, [16; 2]);
    let copied = Side { copied: true, ..ALONG_K };
    let plan = Plan::new(&misaligned, HOPPER, None);
    assert_eq!(plan.sides, [copied, ALONG_K], "{plan}");
    assert_eq!(Plan::new(&misaligned, HOPPER, Some(Wanted::exactly(&plan))), plan);
    let lying = plan.with_less_memory(&misaligned, HOPPER, Some(Wanted::exactly(&plan)))[0];
    assert_eq!((lying.sides, lying.choice), ([ALONG_K; 2], plan.choice), "{lying}");
    // What must be copied is read by threads that take it as it lies, where there is no memory.
    let odd = Request { sides: [copied; 2], begins: [2; 2], ..request([5000, 5001, 5003], DType::BF16) };
    let plan = Plan::new(&odd, HOPPER, None);
    let less = plan.with_less_memory(&odd, HOPPER, None);
    assert!(plan.sides == [copied; 2] && less.len() == 1, "{plan}");
    assert!(matches!(less[0].choice, Choice::Loose { .. }) && less[0].sides == [ALONG_K; 2], "{}", less[0]);
    assert_eq!(of([5000, 5000, 5000]).sides, [copied; 2]);
    // Nothing to gain, or too little.
    for shape in [[4096; 3], [696, 3216, 3584], [8192, 50_304, 768], [300, 300, 3544], [64, 4096, 4104]] {
        assert_eq!(of(shape).sides, [ALONG_K; 2], "{shape:?}");
    }
}

/// Whether the multiprocessor of such a block has room for another.
fn has_room_for_two(plan: &Plan, target: Target) -> bool {
    blocks_that_fit(target.shared_bytes, plan.shared_bytes) > 1
}

#[test]
fn blocks_beside_those_of_copies_are_alone_where_all_of_them_can_be() {
    for dtype in [DType::BF16, DType::F32] {
        for shape in [[85, 335, 588], [42, 1236, 89], [1589, 19, 372], [1190, 2050, 61]] {
            let lies = request(shape, dtype);
            let copied = Request { sides: [Side { copied: true, ..ALONG_K }; 2], begins: [2; 2], ..lies };
            for plan in Plan::candidates(&copied, HOPPER) {
                let copies = plan.sides.iter().any(|side| side.copied) && !plan.choice.reads_any();
                if copies && !plan.is_clustered() {
                    let can_be = plan.blocks(1) <= u64::from(HOPPER.sms);
                    assert!(!can_be || !has_room_for_two(&plan, HOPPER), "{shape:?} {plan}");
                }
                // Of f32 others begin when copies are done.
                let alone = !has_room_for_two(&plan, HOPPER) && plan.blocks(1) <= u64::from(HOPPER.sms);
                assert!(!copies || dtype != DType::F32 || alone || !plan.beside_copies, "{shape:?} {plan}");
            }
            // Of what is read as it lies two are together.
            for plan in Plan::candidates(&lies, HOPPER) {
                let of_two = matches!(plan.choice, Choice::Pipelined { .. } | Choice::Clustered { .. });
                assert!(!of_two || plan.tile != [64, 64] || has_room_for_two(&plan, HOPPER), "{plan}");
            }
        }
    }
}

#[test]
fn clusters_beside_copies_are_alone_where_all_of_them_fit() {
    let copied = |shape| {
        let request = request(shape, DType::BF16);
        let request = Request { sides: [Side { copied: true, ..ALONG_K }; 2], begins: [2; 2], ..request };
        let plans = Plan::candidates(&request, HOPPER).into_iter();
        plans.filter(|plan| plan.tile == [64, 64] && plan.is_clustered()).collect::<Vec<_>>()
    };
    let two_fit = |shape, splits: usize| {
        let plans = copied(shape);
        let of = |plan: &&Plan| plan.splits == splits && matches!(plan.choice, Choice::Clustered { .. });
        has_room_for_two(plans.iter().find(of).unwrap(), HOPPER)
    };
    // 30 clusters of four fit, and 15 of eight.
    assert!(!two_fit([64, 30 * 64, 1000], 4) && two_fit([64, 31 * 64, 1000], 4));
    assert!(!two_fit([64, 15 * 64, 1000], 8) && two_fit([64, 16 * 64, 1000], 8));
}
