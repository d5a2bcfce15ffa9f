//! Every kernel that could serve, whichever the model would take.

use super::{check, check_each, matrix};
use crate::product::uniform;
use warpwright::ops::matmul::{Choice, Plan};
use warpwright::ops::{self, Matmul};
use warpwright::{DType, Device, Result};
use warpwright_tests::{Random, on_each_device};

on_each_device! {
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
}
