//! `ops::matmul` against float64: shapes, transposes, strides, batches, types, values at the edges.

#[path = "../src/product.rs"]
mod product;

use product::{tolerance, uniform};
use std::collections::BTreeSet;
use warpwright::ops::matmul::{Choice, Plan};
use warpwright::ops::{self, Matmul, MatmulGradients};
use warpwright::{DType, Desc, Device, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, floats, on_each_device, poisoned,
};

/// Wants the product in the operands' type and, of 16-bit operands, in f32; twice the same bits.
fn check(a: &Tensor, b: &Tensor, parameters: &Matmul, what: &str) -> Result<Tensor> {
    let want = reference::matmul(a, b, parameters)?;
    let k = terms(a, parameters);
    let mut last = None;
    for out in [None, Some(DType::F32)] {
        let parameters = Matmul { out, ..*parameters };
        let shape = ops::matmul_shape(a, b, &parameters)?;
        let y = poisoned(a.device(), shape.dtype(), shape.shape(), POISON)?;
        ops::matmul_into(a, b, &parameters, &y)?;
        let what = format!("{what}: {:?}·{:?} {:?}, out {}", a.desc(), b.desc(), parameters, y.dtype());
        assert_within(&y.to_f64()?, &want, |i| tolerance(y.dtype(), k, scale(&parameters), want[i]), &what);
        let again = ops::matmul(a, b, &parameters)?;
        assert_same(&again.to_bytes()?, &y.to_bytes()?, &what);
        last = last.or(Some(again));
    }
    Ok(last.expect("the operands' type comes first"))
}

/// Wants the product from each of the kernels that can serve and are wanted, whichever the model would take; which they were.
fn check_each(
    a: &Tensor,
    b: &Tensor,
    parameters: &Matmul,
    wanted: impl Fn(&Plan) -> bool,
) -> Result<Vec<Plan>> {
    let want = reference::matmul(a, b, parameters)?;
    let (shape, k) = (ops::matmul_shape(a, b, parameters)?, terms(a, parameters));
    let mut plans = ops::matmul::candidates(a, b, parameters)?;
    plans.retain(wanted);
    for plan in &plans {
        let y = poisoned(a.device(), shape.dtype(), shape.shape(), POISON)?;
        ops::matmul::matmul_into_by(plan.choice, a, b, parameters, &y)?;
        let allowed = |i: usize| tolerance(y.dtype(), k, scale(parameters), want[i]);
        assert_within(&y.to_f64()?, &want, allowed, format!("{:?}·{:?} by {plan}", a.desc(), b.desc()));
    }
    Ok(plans)
}

/// Terms of each sum.
fn terms(a: &Tensor, parameters: &Matmul) -> usize {
    a.shape()[a.rank() - if parameters.transpose_a { 2 } else { 1 }]
}

/// What bounds of errors are multiples of: operands are within ±1, addends within ±2.
fn scale(parameters: &Matmul) -> f32 {
    parameters.alpha.abs().max(1.0)
}

/// Wants both gradients, into memory of the caller's and not, twice the same bits.
fn check_gradients(a: &Tensor, b: &Tensor, dy: &Tensor, parameters: &Matmul) -> Result<()> {
    let want = reference::matmul_backward(a, b, dy, parameters)?;
    let shapes = ops::matmul_backward_shape(a, b, dy, parameters)?;
    let new = |desc: &Desc| poisoned(a.device(), desc.dtype(), desc.shape(), POISON);
    let got = MatmulGradients { da: new(&shapes.da)?, db: new(&shapes.db)? };
    ops::matmul_backward_into(a, b, dy, parameters, &got)?;
    let again = ops::matmul_backward(a, b, dy, parameters)?;
    for (name, got, again, want) in [("da", &got.da, &again.da, want.da), ("db", &got.db, &again.db, want.db)]
    {
        let what = format!("{name} of {:?}·{:?}, {:?}, {parameters:?}", a.desc(), b.desc(), dy.desc());
        // Each number is a sum of as many terms as it has of dy's, and of those that repeat.
        let terms = dy.len().max(1);
        assert_within(&got.to_f64()?, &want, |i| tolerance(got.dtype(), terms, 1.0, want[i]), &what);
        assert_same(&again.to_bytes()?, &got.to_bytes()?, &what);
    }
    Ok(())
}

/// [rows, cols], or its transpose as it would lie in memory.
fn matrix(
    device: &Device,
    dtype: DType,
    [rows, cols]: [usize; 2],
    transposed: bool,
    random: &mut Random,
) -> Result<Tensor> {
    let shape = if transposed { [cols, rows] } else { [rows, cols] };
    uniform(device, dtype, &shape, random)
}

on_each_device! {
    /// Around the edges of tiles, packs, stages and splits, in all four orders, with rows of whole packs and without.
    fn every_shape_and_order_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(90);
        let shapes = [
            [1, 1, 1], [2, 3, 5], [8, 8, 8], [16, 16, 16], [17, 33, 31], [64, 64, 64], [65, 63, 72],
            [128, 128, 32], [129, 136, 40], [40, 200, 264], [20, 24, 1000], [130, 72, 7],
        ];
        for (turn, [m, n, k]) in shapes.into_iter().enumerate() {
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                for order in 0..4 {
                    // Under the checker, a third of the orders of a large shape.
                    if !device.is_cuda() && m * n * k > 30_000 && (turn + i + order) % 3 != 0 {
                        continue;
                    }
                    let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 2);
                    let a = matrix(device, dtype, [m, k], transpose_a, &mut random)?;
                    let b = matrix(device, dtype, [k, n], transpose_b, &mut random)?;
                    check(&a, &b, &Matmul { transpose_a, transpose_b, ..Default::default() }, "order")?;
                }
            }
        }
        Ok(())
    }

    /// Every kernel that could serve, whichever the model would take: tiles that are cut at each end, terms that end
    /// within a pack, a stage and a split, in all four orders.
    fn every_kernel_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(95);
        for (turn, dtype) in [DType::F16, DType::BF16, DType::F32].into_iter().enumerate() {
            for (i, [m, n, k]) in [[130, 264, 72], [33, 57, 200], [9, 20, 1100]].into_iter().enumerate() {
                for order in 0..4 {
                    if !device.is_cuda() && (turn + i + order) % 2 != 0 {
                        continue;
                    }
                    let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 2);
                    let a = matrix(device, dtype, [m, k], transpose_a, &mut random)?;
                    let b = matrix(device, dtype, [k, n], transpose_b, &mut random)?;
                    let parameters = Matmul { transpose_a, transpose_b, ..Default::default() };
                    assert!(check_each(&a, &b, &parameters, |_| true)?.len() > 1);
                }
            }
        }
        Ok(())
    }

    /// Something is added to the products of each kernel, at edges and within.
    fn each_kernel_adds(device: &Device) -> Result<()> {
        let mut random = Random::new(96);
        for dtype in [DType::F16, DType::BF16] {
            let [m, n, k] = [300, 520, 576];
            let mut of = |shape: [usize; 2]| matrix(device, dtype, shape, false, &mut random);
            let (a, b, c) = (of([m, k])?, of([k, n])?, of([m, n])?);
            let parameters = Matmul { c: Some(&c), alpha: 0.5, beta: -2.0, ..Default::default() };
            check_each(&a, &b, &parameters, |_| true)?;
        }
        Ok(())
    }

    /// More tiles than a GPU has multiprocessors, so that blocks take several, each of more terms than a block has on their way.
    fn each_kernel_takes_several_tiles(device: &Device) -> Result<()> {
        let mut random = Random::new(97);
        // Each of the two consumers of `alternating` has several; matrices of the second kind begin anywhere, and leave by threads.
        for ([batch, m, n, k], adds) in [([270, 24, 40, 400], true), ([270, 23, 37, 72], false)] {
            let mut of = |shape: &[usize]| uniform(device, DType::BF16, shape, &mut random);
            let (a, b, c) = (of(&[batch, m, k])?, of(&[batch, n, k])?, of(&[batch, m, n])?);
            for c in [None].into_iter().chain(adds.then_some(Some(&c))) {
                let parameters = Matmul { transpose_b: true, c, ..Default::default() };
                // The checker computes whole tiles.
                let small = |plan: &Plan| plan.tile[0] * plan.tile[1] <= 128 * 64;
                let turned =
                    |plan: &Plan| matches!(plan.choice, Choice::Turned { .. } | Choice::Alternating { .. });
                check_each(&a, &b, &parameters, |plan| device.is_cuda() || small(plan) || turned(plan))?;
            }
        }
        Ok(())
    }

    /// As decoding has them: one row to sixteen, and some more; by whatever the model takes, and by each instance of `thin`, `narrow`, `thin_f32`
    /// and, but for those that round, `narrow_f32`; in batches, too, of which either operand repeats.
    fn few_rows_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(91);
        let shapes = [
            (1, 16, 32), (3, 40, 1048), (8, 17, 264), (9, 33, 72), (16, 50, 2048), (17, 48, 136),
            (2, 24, 4104), (5, 20, 2040), (1, 17, 8712), (12, 24, 8712), (10, 3810, 1032),
            (32, 72, 1416), (20, 130, 200), (4, 20, 496),
        ];
        for dtype in DTYPES {
            let (mut thin, mut narrow) = (BTreeSet::new(), BTreeSet::new());
            for (m, n, k) in shapes {
                // The checker computes whole tiles, of which the widest are for `thin` of 16 bits.
                let few_columns = device.is_cuda() || n < 1000;
                if dtype == DType::F32 && !few_columns {
                    continue;
                }
                let a = matrix(device, dtype, [m, k], false, &mut random)?;
                let b = matrix(device, dtype, [k, n], true, &mut random)?;
                let c = uniform(device, dtype, &[n], &mut random)?;
                let parameters = Matmul { transpose_b: true, alpha: -1.5, c: Some(&c), ..Default::default() };
                check(&a, &b, &parameters, "few rows")?;
                let few = |plan: &Plan| match plan.choice {
                    Choice::Thin { .. } | Choice::ThinF32 { .. } => true,
                    Choice::Narrow { .. } | Choice::NarrowF32 { .. } => few_columns,
                    _ => false,
                };
                for plan in check_each(&a, &b, &parameters, few)? {
                    match plan.choice {
                        Choice::Thin { index } | Choice::ThinF32 { index } => thin.insert(index),
                        Choice::Narrow { index } | Choice::NarrowF32 { index } => {
                            narrow.insert((index, plan.splits))
                        }
                        _ => unreachable!("no other was wanted"),
                    };
                }
            }
            // Wide blocks are taken for as many columns as a GPU has multiprocessors for; the checker plans for 132 of them.
            // GPUs for graphics multiply f32 on other cores.
            let fast_tf32 = device.info().is_none_or(|info| info.arch.1 == 0 && info.arch.0 < 12);
            let instances = match dtype {
                DType::F32 => if fast_tf32 { 3 } else { 0 },
                _ if device.is_cuda() => 5,
                _ => 6,
            };
            assert!(thin.len() >= instances, "{thin:?}");
            let instances: BTreeSet<_> = narrow.iter().map(|&(index, _)| index).collect();
            let all = if dtype == DType::F32 { 5 } else { 6 };
            let splits: BTreeSet<_> = narrow.iter().map(|&(_, splits)| splits).collect();
            let has_warpgroups = device.info().is_none_or(|info| info.arch == (9, 0));
            assert!(!has_warpgroups || instances.len() == all && splits.len() > 2, "{narrow:?}");
            for [front_a, front_b] in [[[2, 1], [1, 3]], [[1, 1], [2, 3]], [[2, 3], [2, 1]]] {
                let mut of = |[outer, inner]: [usize; 2], rows: usize| {
                    uniform(device, dtype, &[outer, inner, rows, 136], &mut random)
                };
                let (a, b) = (of(front_a, 5)?, of(front_b, 40)?);
                let parameters = Matmul { transpose_b: true, ..Default::default() };
                let few = |plan: &Plan| plan.tile[0] < 64 && plan.tile[1] <= 64;
                let plans = check_each(&a, &b, &parameters, few)?;
                let thin = |plan: &Plan| matches!(plan.choice, Choice::Thin { .. } | Choice::ThinF32 { .. });
                // Other clusters have more rows.
                assert!(!has_warpgroups || plans.iter().any(Plan::is_clustered) && plans.iter().any(thin), "{plans:?}");
            }
        }
        Ok(())
    }

    /// Few columns of many rows, as heads of classifiers have them, and few rows, in all four orders: by each kernel of few rows, whose rows are the result's
    /// columns then, in parts of very long sums, with something beside the sums, in batches.
    fn few_columns_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(94);
        let shapes = [
            (40, 1, 1048), (72, 2, 136), (130, 8, 200), (100, 13, 72), (80, 17, 264), (33, 30, 520), (5, 3, 9000), (1, 70, 264),
            (9, 72, 136), (20, 136, 96), (16, 15, 6000),
            (1100, 4, 16), (300, 16, 48), (7, 260, 8), (12, 70, 200),
        ];
        let has_warpgroups = device.info().is_none_or(|info| info.arch == (9, 0));
        for dtype in DTYPES {
            let (mut by_columns, mut across, mut parts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            for (turn, (m, n, k)) in shapes.into_iter().enumerate() {
                for order in 0..4 {
                    // Under the checker, every other order.
                    if !device.is_cuda() && (turn + order) % 2 != 0 {
                        continue;
                    }
                    let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 0);
                    let a = matrix(device, dtype, [m, k], transpose_a, &mut random)?;
                    let b = matrix(device, dtype, [k, n], transpose_b, &mut random)?;
                    let shape = [m, n];
                    let c = uniform(device, dtype, &shape[1 - turn % 2..], &mut random)?;
                    let parameters =
                        Matmul { transpose_a, transpose_b, alpha: 0.75, beta: -1.5, c: Some(&c), ..Default::default() };
                    check(&a, &b, &parameters, "few columns")?;
                    let few = |plan: &Plan| {
                        matches!(
                            plan.choice,
                            Choice::Thin { .. }
                                | Choice::ThinF32 { .. }
                                | Choice::Short { .. }
                                | Choice::Narrow { .. }
                                | Choice::NarrowF32 { .. }
                        )
                    };
                    for plan in check_each(&a, &b, &parameters, few)? {
                        assert_eq!(plan.by_columns, n < m, "{plan}");
                        let name = format!("{:?}", plan.choice);
                        if plan.by_columns {
                            by_columns.insert(name.clone());
                        }
                        if !plan.sides[1].along_k {
                            across.insert(name.clone());
                        }
                        if plan.splits > 1 && !plan.is_clustered() {
                            parts.insert(name);
                        }
                    }
                }
            }
            // Tiles of 8, 16 and 32 rows with two depths each, of f32 one of 32 and across k one of 16; and what reads operands by itself.
            let [all, of_across] = if dtype == DType::F32 { [5, 4] } else { [6, 6] };
            let of_columns = by_columns.len() > all + 6;
            assert!(!has_warpgroups || of_columns && across.len() == of_across, "{by_columns:?}, {across:?}");
            assert!(!has_warpgroups || !parts.is_empty(), "{dtype}");
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (a, b) = (of(&[2, 3, 40, 136])?, of(&[3, 5, 136])?);
            let parameters = Matmul { transpose_b: true, ..Default::default() };
            let plans = check_each(&a, &b, &parameters, |plan| plan.by_columns)?;
            assert!(!has_warpgroups || plans.len() > 1, "{plans:?}");
        }
        Ok(())
    }

    /// Small matrices, and few terms of larger ones, by each kernel whose warps multiply tiles by themselves: in all four orders, of whole packs and not, several
    /// tiles of a warp, something added to them, and batches that repeat.
    fn small_matrices_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(98);
        let small = |plan: &Plan| matches!(plan.choice, Choice::Small { .. } | Choice::SmallF32 { .. });
        let shapes =
            [(3, 8, 8, 8), (70, 16, 16, 24), (2, 50, 50, 50), (5, 33, 40, 17), (1, 5, 70, 3), (1, 100, 136, 130), (1, 40, 64, 1)];
        let fast_tf32 = device.info().is_none_or(|info| info.arch.1 == 0 && info.arch.0 < 12);
        for dtype in DTYPES {
            let mut instances = BTreeSet::new();
            for (turn, (batch, m, n, k)) in shapes.into_iter().enumerate() {
                for order in 0..4 {
                    // Under the checker, every other order.
                    if !device.is_cuda() && (turn + order) % 2 != 0 {
                        continue;
                    }
                    let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 0);
                    let mut of = |[rows, cols]: [usize; 2], turned: bool| {
                        let [rows, cols] = if turned { [cols, rows] } else { [rows, cols] };
                        uniform(device, dtype, &[batch, rows, cols], &mut random)
                    };
                    let (a, b) = (of([m, k], transpose_a)?, of([k, n], transpose_b)?);
                    let c = of([m, n], false)?;
                    let c = if turn % 2 == 0 { c } else { c.narrow(0, 0, 1)? };
                    let plain = Matmul { transpose_a, transpose_b, alpha: 0.75, ..Default::default() };
                    for parameters in [plain, Matmul { c: Some(&c), beta: -1.5, ..plain }] {
                        let plans = check_each(&a, &b, &parameters, small)?;
                        instances.extend(plans.iter().map(|plan| format!("{:?}", plan.choice)));
                    }
                }
            }
            let all = match dtype {
                DType::F32 => if fast_tf32 { 2 } else { 0 },
                _ => 4,
            };
            assert_eq!(instances.len(), all, "{instances:?}");
            // Either operand is the same for all, or for some.
            for [front_a, front_b] in [[[2, 1], [1, 3]], [[1, 1], [2, 3]], [[2, 3], [2, 1]]] {
                let mut of = |[outer, inner]: [usize; 2], rows: usize| {
                    uniform(device, dtype, &[outer, inner, rows, 40], &mut random)
                };
                let (a, b) = (of(front_a, 20)?, of(front_b, 36)?);
                let parameters = Matmul { transpose_b: true, ..Default::default() };
                let plans = check_each(&a, &b, &parameters, small)?;
                assert!(plans.len() == if dtype == DType::F32 { usize::from(fast_tf32) } else { 2 }, "{plans:?}");
            }
        }
        Ok(())
    }

    /// Few tiles of many terms are split along k, with every epilogue behind the last part.
    fn splits_are_added_up(device: &Device) -> Result<()> {
        let mut random = Random::new(92);
        for (dtype, [m, n, k]) in
            [(DType::F32, [33, 40, 2100]), (DType::BF16, [24, 72, 4104]), (DType::F16, [30, 51, 3000])]
        {
            let a = matrix(device, dtype, [m, k], true, &mut random)?;
            let b = matrix(device, dtype, [k, n], false, &mut random)?;
            let c = uniform(device, dtype, &[m, n], &mut random)?;
            let parameters = Matmul { transpose_a: true, c: Some(&c), beta: 2.0, alpha: 0.5, ..Default::default() };
            assert!(ops::matmul::explain(&a, &b, &parameters)?.splits > 1, "{m}x{n}x{k}");
            check(&a, &b, &parameters, "splits")?;
        }
        Ok(())
    }

    /// Dimensions in front that are missing, 1, equal, repeated and in another order.
    fn batches_broadcast(device: &Device) -> Result<()> {
        let mut random = Random::new(93);
        for dtype in DTYPES {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (m, n, k) = (9, 24, 40);
            let heads = of(&[2, m, 3, k])?.permute(&[0, 2, 1, 3])?;
            let odd = of(&[2, m, 3, k + 1])?.narrow(3, 1, k)?.permute(&[0, 2, 1, 3])?;
            let turned = of(&[2, 2, 3, 2, m, k])?.permute(&[3, 1, 0, 2, 4, 5])?;
            let cases = [
                (of(&[4, m, k])?, of(&[4, k, n])?),
                (of(&[4, m, k])?, of(&[k, n])?),
                (of(&[m, k])?, of(&[4, k, n])?),
                (of(&[2, 1, m, k])?, of(&[3, k, n])?),
                (heads.clone(), of(&[2, 3, k, n])?),
                (heads.clone(), of(&[k, n])?),
                (odd, of(&[2, 1, k, n])?),
                (turned, of(&[2, 1, 3, k, n])?),
                (of(&[1, m, k])?.expand(&[3, m, k])?, of(&[1, 1, k, n])?),
            ];
            for (a, b) in &cases {
                let y = check(a, b, &Matmul::default(), "batch")?;
                let c = uniform(device, dtype, &[y.shape()[y.rank() - 2], 1], &mut Random::new(3))?;
                check(a, b, &Matmul { c: Some(&c), ..Default::default() }, "batch and a column")?;
            }
            // The queries and keys of attention.
            let q = &cases[4].0;
            check(q, q, &Matmul { transpose_b: true, alpha: 0.125, ..Default::default() }, "scores")?;
        }
        Ok(())
    }

    /// Views of every kind, that are read as they lie or copied first.
    fn any_strides_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(94);
        for dtype in DTYPES {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (m, n, k) = (20, 24, 48);
            let views = [
                of(&[m, k])?,
                of(&[m, k + 8])?.narrow(1, 8, k)?,
                of(&[m, k + 3])?.narrow(1, 3, k)?,
                of(&[m, 2 * k])?.step(1, 2)?,
                of(&[3 * m, k])?.step(0, 3)?,
                of(&[k, m])?.transpose(0, 1)?,
                of(&[k, m + 1])?.narrow(1, 1, m)?.transpose(0, 1)?,
                of(&[1, k])?.expand(&[m, k])?,
                of(&[m, 1])?.expand(&[m, k])?,
                of(&[m * k + 1])?.narrow(0, 1, m * k)?.reshape(&[m, k])?,
            ];
            let b = of(&[n, k])?;
            let odd = of(&[n, k + 1])?.narrow(1, 1, k)?;
            for view in &views {
                let c = of(&[m, 2 * n])?.step(1, 2)?;
                check(view, &b, &Matmul { transpose_b: true, c: Some(&c), ..Default::default() }, "view")?;
                check(&odd, view, &Matmul { transpose_b: true, ..Default::default() }, "view as b")?;
            }
            // Rows that all begin with the allocation's second element.
            let y = poisoned(device, dtype, &[m * n + 1], POISON)?.narrow(0, 1, m * n)?.reshape(&[m, n])?;
            let parameters = Matmul { transpose_b: true, ..Default::default() };
            ops::matmul_into(&views[0], &b, &parameters, &y)?;
            assert_same(&y.to_bytes()?, &ops::matmul(&views[0], &b, &parameters)?.to_bytes()?, "an odd start");
        }
        Ok(())
    }

    fn extents_of_0_are_right(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            for [m, n, k] in [[0, 3, 4], [3, 0, 4], [0, 0, 0], [3, 5, 0], [40, 16, 0]] {
                let (a, b) = (Tensor::zeros(device, dtype, &[m, k])?, Tensor::zeros(device, dtype, &[k, n])?);
                let c = floats(device, dtype, &[n], &vec![1.5; n])?;
                let y = poisoned(device, dtype, &[m, n], POISON)?;
                ops::matmul_into(&a, &b, &Matmul { c: Some(&c), beta: 2.0, ..Default::default() }, &y)?;
                assert_same(&y.to_f64()?, &vec![3.0; m * n], format!("{m}x{n}x{k}"));
            }
            let (a, b) = (Tensor::zeros(device, dtype, &[0, 2, 3])?, Tensor::zeros(device, dtype, &[0, 3, 4])?);
            assert_eq!(ops::matmul(&a, &b, &Matmul::default())?.shape(), [0, 2, 4]);
            // Batches that do not merge, of operands without elements.
            let zeros = |shape: &[usize]| Tensor::zeros(device, dtype, shape);
            let (a, b) = (zeros(&[2, 2, 2, 1, 0])?, zeros(&[2, 1, 2, 0, 3])?);
            let c = floats(device, dtype, &[2, 1, 1, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
            let y = ops::matmul(&a, &b, &Matmul { c: Some(&c), beta: 2.0, ..Default::default() })?;
            let want: Vec<f64> = (0..24).map(|i| 2.0 * (i / 12 * 3 + i % 3 + 1) as f64).collect();
            assert_same(&y.to_f64()?, &want, "no terms");
            let c = floats(device, dtype, &[2, 1, 2, 1, 3], &[0.5; 12])?;
            let y = ops::matmul(&a, &b, &Matmul { c: Some(&c), ..Default::default() })?;
            assert_same(&y.to_f64()?, &[0.5; 24], "no terms, and an addend that does not merge either");
            let (a, b, dy) = (zeros(&[2, 2, 2, 1, 1])?, zeros(&[2, 1, 2, 1, 0])?, zeros(&[2, 2, 2, 1, 0])?);
            let gradients = ops::matmul_backward(&a, &b, &dy, &Matmul::default())?;
            assert_same(&gradients.da.to_f64()?, &[0.0; 8], "no columns");
        }
        Ok(())
    }

    /// NaN and infinities reach their row and column and nothing else, whatever lies around the operands.
    fn what_is_not_finite_stays_in_its_row_and_column(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let (m, n, k) = (37, 43, 29);
            let surrounded = |rows: usize, cols: usize, at: usize, value: f32| -> Result<Tensor> {
                // Rows are parts of longer ones, and what is not theirs is NaN.
                let pitch = cols + 11;
                let numbers: Vec<f32> = (0..rows * pitch)
                    .map(|i| match i % pitch {
                        col if col >= cols => f32::NAN,
                        col if i / pitch * cols + col == at => value,
                        _ => 0.5,
                    })
                    .collect();
                floats(device, dtype, &[rows, pitch], &numbers)?.narrow(1, 0, cols)
            };
            let (a, b) = (surrounded(m, k, 7 * k + 28, f32::NAN)?, surrounded(k, n, 28 * n + 41, f32::INFINITY)?);
            let y = ops::matmul(&a, &b, &Matmul::default())?.to_f64()?;
            for (i, y) in y.into_iter().enumerate() {
                let (row, col) = (i / n, i % n);
                match (row == 7, col == 41) {
                    (true, _) => assert!(y.is_nan(), "{dtype} {row} {col}: {y}"),
                    (false, true) => assert_eq!(y, f64::INFINITY, "{dtype} {row} {col}"),
                    _ => assert_eq!(y, 0.25 * k as f64, "{dtype} {row} {col}"),
                }
            }
        }
        Ok(())
    }

    /// A factor of 0 leaves out what it would multiply, as in BLAS.
    fn factors_of_0_leave_operands_out(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let nan = |shape: &[usize]| floats(device, dtype, shape, &vec![f32::NAN; shape.iter().product()]);
            let ones = |shape: &[usize]| floats(device, dtype, shape, &vec![1.0; shape.iter().product()]);
            let (alpha, beta) = (0.0, 0.0);
            let nans = nan(&[9, 10])?;
            let without_c = Matmul { c: Some(&nans), beta, ..Default::default() };
            let y = ops::matmul(&ones(&[9, 12])?, &ones(&[12, 10])?, &without_c)?;
            assert_same(&y.to_f64()?, &[12.0; 90], format!("{dtype}"));
            let c = ones(&[9, 10])?;
            let only_c = Matmul { c: Some(&c), alpha, ..Default::default() };
            let y = ops::matmul(&nan(&[9, 12])?, &nan(&[12, 10])?, &only_c)?;
            assert_same(&y.to_f64()?, &[1.0; 90], format!("{dtype}"));
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let a = zeros(DType::F32, &[2, 3])?;
        let text = |a: &Tensor, b: &Tensor, parameters: &Matmul| {
            ops::matmul(a, b, parameters).expect_err("the arguments are wrong").to_string()
        };
        let plain = Matmul::default();
        for (shape, want) in [
            (&[4, 5][..], "matmul: `b` must have shape [.., 3, N], got [4, 5]"),
            (&[3], "matmul: `b` must have shape [.., K, N], got [3]"),
        ] {
            assert_eq!(text(&a, &zeros(DType::F32, shape)?, &plain), want);
        }
        let b = zeros(DType::F32, &[3, 4])?;
        assert_eq!(text(&zeros(DType::F32, &[3])?, &b, &plain), "matmul: `a` must have shape [.., M, K], got [3]");
        let transposed = Matmul { transpose_b: true, ..plain };
        assert_eq!(text(&a, &b, &transposed), "matmul: `b` must have shape [.., N, 3], got [3, 4]");
        let other = zeros(DType::F16, &[3, 4])?;
        assert_eq!(text(&a, &other, &plain), "matmul: `b` must have dtype f32, got f16");
        let integers = zeros(DType::I32, &[2, 3])?;
        assert_eq!(text(&integers, &b, &plain), "matmul: `a` must have dtype f32, f16 or bf16, got i32");
        let (two, three) = (zeros(DType::F32, &[2, 2, 3])?, zeros(DType::F32, &[3, 3, 4])?);
        let want = "matmul: `b` must have shape [.., _, _] whose leading dimensions broadcast with [2], got [3, 3, 4]";
        assert_eq!(text(&two, &three, &plain), want);
        let c = zeros(DType::F32, &[3, 4])?;
        let want = "matmul: `c` must have shape [2, 4], where dimensions may be missing in front or be 1, got [3, 4]";
        assert_eq!(text(&a, &b, &Matmul { c: Some(&c), ..plain }), want);
        let c = zeros(DType::F16, &[2, 4])?;
        assert_eq!(text(&a, &b, &Matmul { c: Some(&c), ..plain }), "matmul: `c` must have dtype f32, got f16");
        let want = "matmul: `out` must have dtype f32, got f16";
        assert_eq!(text(&a, &b, &Matmul { out: Some(DType::F16), ..plain }), want);
        let want = "matmul: `alpha` must be finite, got NaN";
        assert_eq!(text(&a, &b, &Matmul { alpha: f32::NAN, ..plain }), want);
        let y = zeros(DType::F32, &[4, 2])?;
        let error = ops::matmul_into(&a, &b, &plain, &y).expect_err("y is wrong").to_string();
        assert_eq!(error, "matmul: `y` must have shape [2, 4], got [4, 2]");
        Ok(())
    }

    /// Of products in all four orders, of batches, and of operands that repeat, whose gradients are sums.
    fn gradients_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(98);
        type Fronts = [&'static [usize]; 2];
        let fronts: [Fronts; 9] = [
            [&[], &[]], [&[3], &[3]], [&[3], &[]], [&[], &[2, 3]], [&[2, 1], &[3]], [&[2, 1, 2], &[1, 3, 1]], [&[2, 3], &[1, 3]],
            [&[1], &[1]], [&[0], &[1]],
        ];
        for (turn, [of_a, of_b]) in fronts.into_iter().enumerate() {
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                for order in 0..4 {
                    let [m, n, k] = [[17, 24, 40], [8, 16, 33], [1, 9, 64]][(turn + i + order) % 3];
                    let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 2);
                    let mut of = |front: &[usize], [rows, cols]: [usize; 2], turned: bool| {
                        let rest = if turned { [cols, rows] } else { [rows, cols] };
                        uniform(device, dtype, &[front, &rest].concat(), &mut random)
                    };
                    let (a, b) = (of(of_a, [m, k], transpose_a)?, of(of_b, [k, n], transpose_b)?);
                    let parameters = Matmul { transpose_a, transpose_b, alpha: 0.5, ..Default::default() };
                    let y = ops::matmul_shape(&a, &b, &parameters)?;
                    let dy = of(&y.shape()[..y.rank() - 2], [m, n], false)?;
                    check_gradients(&a, &b, &dy, &parameters)?;
                }
            }
        }
        Ok(())
    }

    /// Operands and dy with gaps, and in other orders; nothing to add up; nothing at all.
    fn gradients_of_views_and_of_nothing_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(99);
        for dtype in DTYPES {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let a = of(&[5, 3, 32])?.transpose(0, 1)?.narrow(2, 3, 17)?;
            let (b, dy) = (of(&[24, 17])?.transpose(0, 1)?, of(&[3, 5, 48])?.step(2, 2)?);
            check_gradients(&a, &b, &dy, &Matmul::default())?;
            let (row, one) = (of(&[1, 1, 17])?.expand(&[3, 5, 17])?, of(&[1, 1, 1])?.expand(&[3, 5, 24])?);
            check_gradients(&row, &b, &one, &Matmul::default())?;
            for [m, n, k] in [[0, 4, 5], [4, 0, 5], [4, 5, 0]] {
                check_gradients(&of(&[2, m, k])?, &of(&[k, n])?, &of(&[2, m, n])?, &Matmul::default())?;
            }
        }
        let zeros = |shape: &[usize]| Tensor::zeros(device, DType::F32, shape);
        let (a, b, parameters) = (zeros(&[2, 3])?, zeros(&[3, 4])?, Matmul::default());
        let error = ops::matmul_backward(&a, &b, &zeros(&[2, 3])?, &parameters).expect_err("dy is wrong").to_string();
        assert_eq!(error, "matmul_backward: `dy` must have shape [2, 4], got [2, 3]");
        let error = ops::matmul_backward(&a, &a, &zeros(&[2, 4])?, &parameters).expect_err("b is wrong").to_string();
        assert!(error.starts_with("matmul_backward: `b` must have shape [.., 3, N]"), "{error}");
        Ok(())
    }
}
