//! Products of few rows, columns or terms, and of small matrices.

use super::{check, check_each, matrix};
use crate::product::uniform;
use std::collections::BTreeSet;
use warpwright::ops::Matmul;
use warpwright::ops::matmul::{Choice, Plan};
use warpwright::{DType, Device, Result};
use warpwright_tests::{DTYPES, Random, on_each_device};

on_each_device! {
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
}
