//! Products too large for the checker: on a GPU, with more than 2^31 elements in the result on one with room for them.

use warpwright::ops::{self, Matmul};
use warpwright::{DType, Result, reference};
use warpwright_tests::{Random, assert_within, first_gpu, floats, roomy_gpu};

/// Bytes that a GPU must have to spare.
const ROOM: usize = 24 << 30;
const SHAPE: [usize; 3] = [46_341, 46_352, 24];

/// Rows at both ends and in the middle, of results in the operands' type, which the accelerator stores, in f32, and of
/// f32 operands.
#[test]
fn elements_past_2_to_the_31_are_written() -> Result<()> {
    let Some(gpu) = roomy_gpu("elements_past_2_to_the_31_are_written", ROOM) else { return Ok(()) };
    let [m, n, k] = SHAPE;
    let mut random = Random::new(150);
    for (dtype, out) in [(DType::BF16, DType::BF16), (DType::F16, DType::F32), (DType::F32, DType::F32)] {
        let a = floats(&gpu, dtype, &[m, k], &random.floats(m * k, -1.0, 1.0))?;
        let b = floats(&gpu, dtype, &[n, k], &random.floats(n * k, -1.0, 1.0))?;
        let parameters = Matmul { transpose_b: true, out: Some(out), ..Default::default() };
        let y = ops::matmul(&a, &b, &parameters)?;
        assert!(y.len() > 1 << 31);
        for row in [0, m / 2, m - 1] {
            let want = reference::matmul(&a.narrow(0, row, 1)?, &b, &parameters)?;
            let digits = if out == DType::BF16 { 8 } else { 20 };
            let allowed = |i: usize| want[i].abs() * 2f64.powi(-digits) + 2f64.powi(-16);
            assert_within(&y.narrow(0, row, 1)?.to_f64()?, &want, allowed, format!("{dtype} row {row}"));
        }
    }
    Ok(())
}

/// Operands whose lines begin within lines of L2 are copied first, one or both, in a batch too.
#[test]
fn operands_that_are_copied_although_they_could_be_read_give_the_same() -> Result<()> {
    let test = "operands_that_are_copied_although_they_could_be_read_give_the_same";
    let Some(gpu) = first_gpu(test) else { return Ok(()) };
    let mut random = Random::new(151);
    for (dtype, [batch, m, n, k], copied) in [
        (DType::BF16, [1, 696, 3216, 3544], [true, false]),
        (DType::F16, [1, 5000, 4000, 4008], [true, true]),
        (DType::F16, [2, 2504, 4000, 4008], [true, true]),
    ] {
        let a = floats(&gpu, dtype, &[batch, m, k], &random.floats(batch * m * k, -1.0, 1.0))?;
        let b = floats(&gpu, dtype, &[batch, n, k], &random.floats(batch * n * k, -1.0, 1.0))?;
        let parameters = Matmul { transpose_b: true, ..Default::default() };
        let plan = ops::matmul::explain(&a, &b, &parameters)?;
        if gpu.info().is_some_and(|info| info.arch == (9, 0)) {
            assert_eq!(plan.sides.map(|side| side.copied), copied, "{plan}");
        }
        let y = ops::matmul(&a, &b, &parameters)?;
        for (matrix, row) in [(0, 0), (batch - 1, m / 2), (batch - 1, m - 1)] {
            let of = |tensor: &warpwright::Tensor| tensor.narrow(0, matrix, 1);
            let want = reference::matmul(&of(&a)?.narrow(1, row, 1)?, &of(&b)?, &parameters)?;
            let digits = if dtype == DType::BF16 { 8 } else { 11 };
            let allowed = |i: usize| want[i].abs() * 2f64.powi(-digits) + 2f64.powi(-12);
            assert_within(
                &of(&y)?.narrow(1, row, 1)?.to_f64()?,
                &want,
                allowed,
                format!("{dtype} row {row}"),
            );
        }
    }
    Ok(())
}
