//! Shapes, orders, batches and strides of operands, and requests that are refused.

use super::{check, matrix};
use crate::product::uniform;
use warpwright::ops::{self, Matmul};
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, floats, on_each_device, poisoned};

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
}
