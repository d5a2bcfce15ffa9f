//! Products with more than 2^31 elements in the result: on a GPU with room for them.

use warpwright::ops::{self, Matmul};
use warpwright::{DType, Result, reference};
use warpwright_tests::{Random, assert_within, floats, roomy_gpu};

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
