//! `masked_softmax` of packed sequences against float64.

use warpwright::ops::masked_softmax::{Causal, PackedKeys};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, Random, apart, assert_within, floats, on_each_device};

/// Lengths of sequences: empty ones, one, many.
const LENGTHS: [&[usize]; 5] = [&[5], &[3, 0, 1, 7], &[0, 0, 4], &[1; 9], &[40, 2, 77, 128]];

fn boundaries(lengths: &[usize]) -> Vec<i32> {
    let ends = lengths.iter().scan(0, |end, &length| {
        *end += length as i32;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[track_caller]
fn check(x: &Tensor, parameters: &MaskedSoftmax, what: &str) -> Result<Tensor> {
    let y = ops::masked_softmax(x, parameters)?;
    let want = reference::masked_softmax(x, parameters)?;
    let unit = match x.dtype() {
        DType::F32 => 1e-6,
        DType::F16 => 1e-3,
        _ => 8e-3,
    };
    assert_within(&y.to_f64()?, &want, |i| want[i] * (1e-5 + unit) + 1e-7, format!("{what}: {:?}", x.desc()));
    Ok(y)
}

on_each_device! {
    fn rows_keep_the_columns_of_their_own_sequence(device: &Device) -> Result<()> {
        let mut random = Random::new(410);
        for (turn, lengths) in LENGTHS.into_iter().enumerate() {
            let total: usize = lengths.iter().sum();
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let begins = boundaries(lengths);
            let wide: Vec<i64> = begins.iter().map(|&begin| i64::from(begin)).collect();
            let cu_seqlens = [Tensor::from_slice(device, &[begins.len()], &begins)?,
                Tensor::from_slice(device, &[begins.len()], &wide)?];
            for (i, dtype) in DTYPES.into_iter().enumerate() {
                let cu_seqlens = &cu_seqlens[(turn + i) % 2];
                for (keys, cols) in
                    [(PackedKeys::Padded, longest), (PackedKeys::Padded, longest + 3), (PackedKeys::Packed, total)]
                {
                    let x = floats(device, dtype, &[2, total, cols], &random.floats(2 * total * cols, -4.0, 4.0))?;
                    for causal in [None, Some(Causal::BottomRight), Some(Causal::Offset(-1)), Some(Causal::Offset(2))] {
                        let parameters = MaskedSoftmax { scale: 0.5, mask: Mask::Packed { cu_seqlens, keys }, causal };
                        check(&x, &parameters, &format!("{lengths:?} {keys:?} {causal:?}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a batch padded to one length gives, sequence by sequence.
    fn packed_is_padded_without_the_padding(device: &Device) -> Result<()> {
        let lengths = [3usize, 9, 6];
        let (total, longest, heads) = (18, 9, 2);
        let scores = Random::new(411).floats(heads * total * longest, -3.0, 3.0);
        let x = floats(device, DType::F32, &[heads, total, longest], &scores)?;
        let cu_seqlens = Tensor::from_slice(device, &[4], &boundaries(&lengths))?;
        let mask = Mask::Packed { cu_seqlens: &cu_seqlens, keys: PackedKeys::Padded };
        let y = ops::masked_softmax(&x, &MaskedSoftmax { mask, ..Default::default() })?;
        let mut begin = 0;
        for length in lengths {
            let of = Tensor::from_slice(device, &[1], &[length as i32])?;
            let mask = Mask::Range { lengths: Some(&of), starts: None };
            let alone = ops::masked_softmax(&x.narrow(1, begin, length)?, &MaskedSoftmax { mask, ..Default::default() })?;
            // Rows that lie otherwise are added up in another order.
            assert_within(&y.narrow(1, begin, length)?.to_f64()?, &alone.to_f64()?, |_| 1e-6, format!("{length}"));
            begin += length;
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[4, 6])?;
        let text = |x: &Tensor, cu_seqlens: &Tensor, keys| {
            let parameters = MaskedSoftmax { mask: Mask::Packed { cu_seqlens, keys }, ..Default::default() };
            let result = ops::masked_softmax(x, &parameters).map(drop);
            result.and_then(|()| x.device().synchronize()).expect_err("the arguments are wrong").to_string()
        };
        let of = |values: &[i32]| Tensor::from_slice(device, &[values.len()], values);
        let want = "masked_softmax: `x` must have shape [.., T, T] with packed keys, got [4, 6]";
        assert_eq!(text(&x, &of(&[0, 4])?, PackedKeys::Packed), want);
        let row = Tensor::zeros(device, DType::F32, &[6])?;
        let want = "masked_softmax: `x` must have shape [.., T, K] with `cu_seqlens`, got [6]";
        assert_eq!(text(&row, &of(&[0, 1])?, PackedKeys::Padded), want);
        let want = "masked_softmax: `cu_seqlens` must have shape [sequences + 1], got [1]";
        assert_eq!(text(&x, &of(&[0])?, PackedKeys::Padded), want);
        let bytes = Tensor::zeros(device, DType::U8, &[2])?;
        let want = "masked_softmax: `cu_seqlens` must have dtype i32 or i64, got u8";
        assert_eq!(text(&x, &bytes, PackedKeys::Padded), want);
        Ok(())
    }

    fn boundaries_are_checked_before_they_are_used(device: &Device) -> Result<()> {
        for (values, want) in [
            (vec![1, 4], "masked_softmax: `cu_seqlens[0]` must be in 0..=0, got 1"),
            (vec![0, 3], "masked_softmax: `cu_seqlens[1]` must be in 4..=4, got 3"),
            (vec![0, 3, 2, 4], "masked_softmax: `lengths by cu_seqlens[1]` must be in 0..=3, got -1"),
            (vec![0, 4], "masked_softmax: `lengths by cu_seqlens[0]` must be in 0..=3, got 4"),
            (vec![i32::MIN, i32::MAX, 4], "masked_softmax: `cu_seqlens[0]` must be in 0..=0, got -2147483648"),
        ] {
            let device = &apart(device)?;
            let x = Tensor::zeros(device, DType::F32, &[4, 3])?;
            let cu_seqlens = Tensor::from_slice(device, &[values.len()], &values)?;
            let mask = Mask::Packed { cu_seqlens: &cu_seqlens, keys: PackedKeys::Padded };
            let result = ops::masked_softmax(&x, &MaskedSoftmax { mask, ..Default::default() }).map(drop);
            let error = result.and_then(|()| device.synchronize()).expect_err("the boundaries are wrong");
            assert_eq!(error.to_string(), want, "{values:?}");
        }
        Ok(())
    }
}
