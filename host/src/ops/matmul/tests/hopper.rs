//! Choices among the pipelines of Hopper.

use super::{ALONG_K, TARGET, request};
use crate::cuda::shared::blocks_that_fit;
use crate::device::Device;
use crate::dtype::DType;
use crate::ops::Matmul;
use crate::ops::matmul::choice::{Choice, LAYOUTS};
use crate::ops::matmul::plan::{Plan, Wanted};
use crate::ops::matmul::request::{Request, Side, Target};
use crate::ops::matmul::{candidates, explain};
use crate::tensor::Desc;

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

#[test]
fn sums_of_parts_are_not_held_where_there_is_no_memory_for_them() {
    let request = request([696, 1680, 6880], DType::BF16);
    let plan = Plan::new(&request, HOPPER, None);
    assert!(plan.splits > 1 && !plan.is_clustered(), "{plan}");
    let less = plan.with_less_memory(&request, HOPPER, None);
    assert!(less.iter().any(|plan| plan.splits == 1 || plan.is_clustered()), "{less:?}");
    assert!(less.iter().all(|less| *less != plan));
}

/// Blocks that a multiprocessor has shared memory for.
fn room(plan: &Plan) -> u32 {
    blocks_that_fit(HOPPER.shared_bytes, plan.shared_bytes)
}

/// That of the plan for tiles of 64×64 that is meant.
fn room_of(request: Request, is: impl Fn(&Plan) -> bool) -> u32 {
    let plans = Plan::candidates(&request, HOPPER);
    room(plans.iter().find(|plan| plan.tile == [64, 64] && is(plan)).unwrap())
}

fn with_copies(request: Request) -> Request {
    Request { sides: [Side { copied: true, ..ALONG_K }; 2], begins: [2; 2], ..request }
}

#[test]
fn blocks_of_f32_have_room_for_no_more_than_their_share() {
    let instances = kernels_gpu::matmul::tf32_cores::ALL;
    for shape in [[48, 40, 632], [42, 1236, 89], [1416, 88, 448], [1190, 2050, 61], [4096, 4096, 64]] {
        let lies = request(shape, DType::F32);
        for request in [lies, with_copies(lies)] {
            for plan in Plan::candidates(&request, HOPPER) {
                let Choice::Tf32Cores { shape: index } = plan.choice else { continue };
                let of_each = plan.blocks(1).div_ceil(HOPPER.sms.into()) as u32;
                let most = instances[index * LAYOUTS].bounds.min_blocks;
                let spread = of_each < most;
                assert!(room(&plan) == of_each || !spread && room(&plan) >= most, "{shape:?} {plan}");
                // Those that are not spread would come to lie where those of copies are fewest.
                assert_eq!(plan.beside_copies, spread, "{shape:?} {plan}");
            }
        }
    }
}

#[test]
fn few_tiles_have_a_multiprocessor_each() {
    let of = |request| room_of(request, |plan| matches!(plan.choice, Choice::Pipelined { .. }));
    let tiles = |count: usize| request([64, 64 * count, 1000], DType::BF16);
    // Beside those of a launch before it that has as many; behind copies all of them are its own.
    assert_eq!([66, 67, 132].map(|count| of(tiles(count))), [1, 2, 2]);
    assert_eq!([66, 132, 133].map(|count| of(with_copies(tiles(count)))), [1, 1, 2]);
}

#[test]
fn clusters_are_alone_where_all_of_them_fit() {
    let of = |count: usize, splits: usize| {
        let is = |plan: &Plan| matches!(plan.choice, Choice::Clustered { .. }) && plan.splits == splits;
        room_of(request([64, 64 * count, 1000], DType::BF16), is)
    };
    // 30 clusters of four fit, and 15 of eight.
    assert_eq!([(30, 4), (31, 4), (15, 8), (16, 8)].map(|(count, splits)| of(count, splits)), [1, 2, 1, 2]);
}

/// The result of `turned` leaves with what is added in boxes, which a row that repeats has none of.
#[test]
fn what_is_added_may_keep_a_kernel_from_serving() {
    let device = Device::cpu();
    let desc = |shape: &[usize]| Desc::new(&device, DType::BF16, shape).unwrap();
    let (a, b) = (desc(&[3072, 1024]), desc(&[1024, 1024]));
    let of = |c: &[usize], beta: f32| {
        let c = desc(c);
        let parameters = Matmul { c: Some(&c), beta, transpose_b: true, ..Matmul::default() };
        (explain(&a, &b, &parameters).unwrap(), candidates(&a, &b, &parameters).unwrap())
    };
    let is_turned = |plan: &Plan| matches!(plan.choice, Choice::Turned { .. });
    let ((whole, plans), (row, plans_of_row)) = (of(&[3072, 1024], 1.0), of(&[1024], 1.0));
    assert!(is_turned(&whole) && plans.iter().any(is_turned), "{whole}");
    assert!(!is_turned(&row) && !plans_of_row.iter().any(is_turned), "{row}");
    // What is not read makes no difference.
    let without = explain(&a, &b, &Matmul { transpose_b: true, ..Matmul::default() }).unwrap();
    assert_eq!(of(&[1024], 0.0).0, without);
}

/// Of no whole packs they go out number by number, as what is added comes in.
#[test]
fn ends_of_ragged_results_are_weighed() {
    let layer = |shape, beside: bool| Request {
        boxed: false,
        in_turn: false,
        gelu: !beside,
        beside,
        ..request(shape, DType::BF16)
    };
    let of = |shape, beside| Plan::new(&layer(shape, beside), HOPPER, None);
    let large = [3001, 4095, 1024];
    let (gelu, residual) = (of(large, false), of(large, true));
    assert!(matches!(gelu.choice, Choice::Pipelined { .. }) && gelu.tile == [192, 128], "{gelu}");
    assert!(matches!(residual.choice, Choice::Clustered { .. }) && residual.tile == [128, 128], "{residual}");
    let small = of([300, 1001, 768], true);
    assert!(matches!(small.choice, Choice::Clustered { .. }), "{small}");
}
