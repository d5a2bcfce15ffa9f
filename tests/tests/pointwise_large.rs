//! Operations on each element of more than 2^31 of them: on a GPU with room for them.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use cuda_std::philox::Stream;
use pointwise::ulp;
use warpwright::ops::{self, Approximate, Dropout};
use warpwright::{DType, Desc, Device, Result, Tensor, reference};
use warpwright_tests::{Random, assert_same, assert_within, floats, roomy_gpu};

/// Bytes that a GPU must have to spare.
const ROOM: usize = 24 << 30;
/// Rows that differ, and their columns: primes, so that nothing lines up with them.
const PERIOD: usize = 97;
const COLS: usize = 1009;

#[test]
fn elements_past_2_to_the_31_are_read_and_written() -> Result<()> {
    let Some(gpu) = roomy_gpu("elements_past_2_to_the_31_are_read_and_written", ROOM) else { return Ok(()) };
    let blocks = (1 << 31) / (PERIOD * COLS) + 3;
    let mut random = Random::new(110);
    let part = floats(&gpu, DType::BF16, &[PERIOD, COLS], &random.floats(PERIOD * COLS, -6.0, 6.0))?;
    let bias = floats(&gpu, DType::BF16, &[COLS], &random.floats(COLS, -1.0, 1.0))?;
    let samples = [0, 1, blocks / 2, blocks - 2, blocks - 1];
    let same = |y: &Tensor, what: &str| -> Result<Tensor> {
        assert!(y.len() > 1 << 31);
        let first = y.narrow(0, 0, 1)?.squeeze(0)?;
        for block in samples {
            assert_same(
                &y.narrow(0, block, 1)?.to_bytes()?,
                &first.to_bytes()?,
                format!("{what}: block {block}"),
            );
        }
        Ok(first)
    };

    // Written beyond, by the strided kernel: x repeats its rows.
    let x = ops::cast(&part.expand(&[blocks, PERIOD, COLS])?, DType::BF16)?;
    assert_same(&same(&x, "copy")?.to_bytes()?, &part.to_bytes()?, "the copy");

    // Read beyond, as one run.
    let y = same(&ops::gelu(&x, Approximate::Tanh)?, "gelu")?;
    let want = reference::gelu(&part, Approximate::Tanh)?;
    assert_within(&y.to_f64()?, &want, |i| 0.7 * ulp(DType::BF16, want[i]), "gelu");
    same(&ops::gelu_backward(&x, &x, Approximate::None)?, "gelu_backward")?;
    same(&ops::bias_gelu(&x, &bias, Approximate::None)?, "bias_gelu")?;
    let (dx, _) = ops::bias_gelu_backward(&x, &bias, &x, Approximate::None)?;
    same(&dx, "bias_gelu_backward")?;
    drop(dx);

    // The mask goes on beyond.
    let dropout = Dropout { p: 0.5, seed: 3, offset: 1 };
    let y = ops::dropout(&x, dropout)?.reshape(&[blocks * PERIOD * COLS])?;
    let stream = Stream { seed: 3, offset: 1 };
    for start in [0, (1 << 30) - 50, (1 << 31) - 50, y.len() - 100] {
        let kept: Vec<bool> = y.narrow(0, start, 100)?.to_f64()?.iter().map(|&y| y != 0.0).collect();
        let want: Vec<bool> = (start..start + 100).map(|i| stream.word(i as u64) >= 1 << 31).collect();
        assert_eq!(kept, want, "elements from {start}");
    }
    Ok(())
}

#[test]
fn shapes_beyond_32_bits_are_accepted() -> Result<()> {
    let device = Device::cpu();
    for shape in [&[1 << 40, 3][..], &[1 << 20, 1 << 20, 7], &[1 << 45]] {
        let x = Desc::new(&device, DType::F16, shape)?;
        assert_eq!(ops::gelu_shape(&x)?.shape(), shape);
        assert_eq!(ops::cast_shape(&x, DType::F32)?.dtype(), DType::F32);
        assert_eq!(ops::add_shape(&x, &x)?.shape(), shape);
    }
    let x = Desc::new(&device, DType::F16, &[1 << 40, 3])?;
    let bias = Desc::new(&device, DType::F16, &[3])?;
    assert_eq!(ops::bias_gelu_shape(&x, &bias)?.shape(), x.shape());
    let error = ops::bias_gelu_backward_shape(&x, &bias, &x).unwrap_err();
    let want = "bias_gelu_backward: rows of `x` must be at most 2147483647, got 1099511627776";
    assert_eq!(error.to_string(), want);
    let (x, bias) =
        (Desc::new(&device, DType::F16, &[2, 1 << 31])?, Desc::new(&device, DType::F16, &[1 << 31])?);
    let error = ops::bias_gelu_shape(&x, &bias).unwrap_err();
    assert_eq!(error.to_string(), "bias_gelu: columns of `x` must be at most 1073741824, got 2147483648");
    Ok(())
}
