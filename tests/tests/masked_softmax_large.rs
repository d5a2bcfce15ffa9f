//! More than 2^31 elements and more than 2^31 rows: on a GPU with room for them.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use cuda_std::divide::Divisor;
use softmax::scores;
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Desc, Device, Error, Result, Tensor, reference};
use warpwright_tests::{Random, assert_same, assert_within, floats, roomy_gpu};

/// Bytes that a GPU must have to spare.
const ROOM: usize = 16 << 30;
/// Rows that differ: a prime, so that no stride of a kernel lines up with them.
const PERIOD: usize = 97;

#[test]
fn elements_past_2_to_the_31_are_read_and_written() -> Result<()> {
    let Some(gpu) = roomy_gpu("elements_past_2_to_the_31_are_read_and_written", ROOM) else { return Ok(()) };
    let (cols, blocks) = (1000, 22_141);
    let rows = blocks * PERIOD;
    assert!((rows - PERIOD) * cols > 1 << 31);
    let mut random = Random::new(30);
    let part = scores(&gpu, DType::F16, &[PERIOD, cols], &mut random)?;
    let keep: Vec<u8> = (0..PERIOD * cols).map(|i| u8::from(i % 5 != 2)).collect();
    let keep = Tensor::from_slice(&gpu, &[PERIOD, cols], &keep)?;
    let of_keep = MaskedSoftmax { scale: 0.5, mask: Mask::Keep(&keep), causal: None };

    // Written beyond: x repeats its rows, y has all of them.
    let y = ops::masked_softmax(&part.expand(&[blocks, PERIOD, cols])?, &of_keep)?;
    assert!(y.len() > 1 << 31);
    let want = reference::masked_softmax(&part, &of_keep)?;
    let tolerance = softmax::tolerances(&want, &part, &of_keep)?;
    let first = y.narrow(0, 0, 1)?;
    assert_within(&first.to_f64()?, &want, |i| tolerance[i], "the first rows");
    for block in [blocks / 2, blocks - 2, blocks - 1] {
        assert_same(&y.narrow(0, block, 1)?.to_bytes()?, &first.to_bytes()?, format!("block {block} of y"));
    }

    // Read beyond: that y is the next x, dense; lengths and bias have a place for each row and element.
    let x = y.reshape(&[rows, cols])?;
    let lengths: Vec<i32> = (0..rows).map(|row| (row * 7 % (cols + 1)) as i32).collect();
    let lengths = Tensor::from_slice(&gpu, &[rows], &lengths)?;
    let of_lengths = Mask::Range { lengths: Some(&lengths), starts: None };
    for mask in [of_lengths, Mask::Bias(&x)] {
        let parameters = MaskedSoftmax { scale: 300.0, mask, causal: None };
        let z = ops::masked_softmax(&x, &parameters)?;
        for start in [0, rows / 2, rows - 5] {
            let part = x.narrow(0, start, 5)?;
            let lengths = lengths.narrow(0, start, 5)?;
            let mask = match mask {
                Mask::Bias(_) => Mask::Bias(&part),
                _ => Mask::Range { lengths: Some(&lengths), starts: None },
            };
            let parameters = MaskedSoftmax { scale: 300.0, mask, causal: None };
            let want = reference::masked_softmax(&part, &parameters)?;
            let tolerance = softmax::tolerances(&want, &part, &parameters)?;
            assert_within(
                &z.narrow(0, start, 5)?.to_f64()?,
                &want,
                |i| tolerance[i],
                format!("rows from {start}"),
            );
        }
    }
    Ok(())
}

#[test]
fn more_rows_than_2_to_the_31_are_cut_into_launches() -> Result<()> {
    let Some(gpu) = roomy_gpu("more_rows_than_2_to_the_31_are_cut_into_launches", ROOM) else {
        return Ok(());
    };
    let blocks = (1 << 31) / PERIOD + 3;
    assert!(blocks * PERIOD > 1 << 31);
    // A row of one column is 1 where it is kept: a pattern that tells the rows of a period apart.
    let keep: Vec<u8> = (0..PERIOD).map(|row| u8::from(row * row % 11 < 5)).collect();
    let want: Vec<f64> = keep.iter().map(|&keep| keep.into()).collect();
    let keep = Tensor::from_slice(&gpu, &[PERIOD, 1], &keep)?;
    let x = floats(&gpu, DType::F16, &[1, 1, 1], &[2.0])?.expand(&[blocks, PERIOD, 1])?;
    let y = ops::masked_softmax(&x, &MaskedSoftmax { mask: Mask::Keep(&keep), ..Default::default() })?;
    for block in [0, 1, blocks / 2, blocks - 2, blocks - 1] {
        assert_same(&y.narrow(0, block, 1)?.to_f64()?, &want, format!("block {block}"));
    }
    Ok(())
}

#[test]
fn shapes_beyond_32_bits_are_planned() -> Result<()> {
    let device = Device::cpu();
    for shape in [&[1 << 40, 3][..], &[1 << 20, 1 << 20, 7], &[1, (1 << 31) - (1 << 15)]] {
        let desc = Desc::new(&device, DType::F16, shape)?;
        let y = ops::masked_softmax_shape(&desc, &MaskedSoftmax::default())?;
        assert_eq!((y.shape(), y.dtype()), (shape, DType::F16));
        assert!(ops::masked_softmax::explain(&desc, &MaskedSoftmax::default()).is_ok());
    }
    Ok(())
}

/// Row numbers are below 2^31 and are divided by multiplication.
#[test]
fn row_numbers_divide_as_the_hardware_does() {
    let top = (1u32 << 31) - 1;
    let mut random = Random::new(31);
    let divisors =
        [1, 2, 3, 97, 1000, 65_535, 65_536, 65_537, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, top - 1, top];
    let drawn: Vec<u32> = (0..20_000).map(|_| 1 + random.below(u64::from(top)) as u32).collect();
    for divisor in divisors.into_iter().chain(drawn.iter().map(|&d| (d >> (d % 31)).max(1))) {
        let Some(by) = Divisor::new(divisor) else { panic!("{divisor} is a divisor") };
        let multiple = top / divisor * divisor;
        for row in
            [0, 1, divisor - 1, divisor, multiple - 1, multiple, top - 1, top, random.below(1 << 31) as u32]
        {
            assert_eq!(by.div_rem(row), (row / divisor, row % divisor), "{row} / {divisor}");
        }
    }
}

#[test]
fn results_that_no_memory_holds_are_an_error() -> Result<()> {
    let x = floats(&Device::cpu(), DType::F32, &[1, 1], &[1.0])?.expand(&[1 << 50, 2])?;
    let error = ops::masked_softmax(&x, &MaskedSoftmax::default()).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == 8 << 50), "{error}");
    Ok(())
}
