//! Values at the edges.

use warpwright::ops::{self, Matmul};
use warpwright::{Device, Result, Tensor};
use warpwright_tests::{DTYPES, assert_same, floats, on_each_device};

on_each_device! {
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
}
