//! Gradients of both operands.

use super::check_gradients;
use crate::product::uniform;
use warpwright::ops::{self, Matmul};
use warpwright::{DType, Device, Result, Tensor};
use warpwright_tests::{DTYPES, Random, on_each_device};

on_each_device! {
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
