//! What stands around `permute`: contiguous copies, casts and biases on the way, matrices in their place, mistakes.

use half::{bf16, f16};
use warpwright::{DType, Device, Error, Result, Tensor, ops, reference};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, floats, on_each_device, poisoned};

fn numbers(device: &Device, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor> {
    let values = Random::new(seed).floats(shape.iter().product(), -100.0, 100.0);
    floats(device, dtype, shape, &values)
}

/// A number rounded to a type.
fn rounded(dtype: DType, value: f32) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_f64(),
        DType::BF16 => bf16::from_f32(value).to_f64(),
        _ => value.into(),
    }
}

on_each_device! {
    fn views_become_contiguous(device: &Device) -> Result<()> {
        let x = numbers(device, DType::F32, &[6, 10, 14], 1)?;
        for view in [
            x.clone(),
            x.transpose(0, 2)?,
            x.narrow(2, 3, 5)?,
            x.narrow(1, 2, 7)?.transpose(1, 2)?,
            x.step(2, 3)?,
            x.step(1, 2)?.transpose(0, 2)?,
            x.narrow(1, 4, 1)?.expand(&[6, 9, 14])?,
            x.narrow(2, 4, 1)?.expand(&[6, 10, 3])?,
            x.narrow(0, 2, 0)?,
        ] {
            let y = ops::contiguous(&view)?;
            assert!(y.is_contiguous() && y.shape() == view.shape());
            assert_same(&y.to_vec::<f32>()?, &view.to_vec::<f32>()?, format!("{view:?}"));
            let y = poisoned(device, DType::F32, view.shape(), POISON)?;
            ops::contiguous_into(&view, &y)?;
            assert_same(&y.to_vec::<f32>()?, &view.to_vec::<f32>()?, format!("{view:?}, into"));
        }
        Ok(())
    }

    /// Of more memory than is copied for a few numbers.
    fn columns_of_a_large_matrix_are_read(device: &Device) -> Result<()> {
        let values: Vec<f32> = (0..700 * 800).map(|i| i as f32).collect();
        let x = Tensor::from_slice(device, &[700, 800], &values)?;
        let of_column: Vec<f32> = (0..700).map(|row| (row * 800 + 417) as f32).collect();
        assert_same(&x.narrow(1, 417, 1)?.to_vec::<f32>()?, &of_column, "f32");
        let x = Tensor::from_slice(device, &[700, 2, 800], &vec![true; 2 * 700 * 800])?;
        assert_same(&x.narrow(2, 3, 2)?.transpose(0, 1)?.to_vec::<bool>()?, &[true; 2800], "bool");
        Ok(())
    }

    fn a_scalar_and_nothing_are_permuted(device: &Device) -> Result<()> {
        let scalar = Tensor::from_slice(device, &[], &[5u8])?;
        assert_eq!(ops::permute(&scalar, &[])?.to_vec::<u8>()?, [5]);
        let none = Tensor::zeros(device, DType::I64, &[3, 0, 2])?;
        assert_eq!(ops::permute(&none, &[2, 0, 1])?.shape(), [2, 3, 0]);
        let ones = Tensor::from_slice(device, &[1, 1, 1], &[7i32])?;
        assert_eq!(ops::permute(&ones, &[-1, 0, 1])?.to_vec::<i32>()?, [7]);
        Ok(())
    }

    fn the_inverse_leads_back(device: &Device) -> Result<()> {
        let x = numbers(device, DType::BF16, &[3, 17, 5, 20], 2)?;
        let back = ops::permute(&ops::permute(&x, &[2, 0, 3, 1])?, &[1, 3, 0, 2])?;
        assert_same(&back.to_bytes()?, &x.to_bytes()?, "twice");
        Ok(())
    }

    fn casts_on_the_way_are_those_of_cast(device: &Device) -> Result<()> {
        for from in DTYPES {
            for (shape, dims) in [
                (&[64, 96][..], &[1, 0][..]), (&[37, 53], &[1, 0]), (&[2, 3, 70], &[0, 2, 1]), (&[5, 6, 7], &[1, 0, 2]),
                (&[40, 3, 5], &[0, 2, 1]),
            ] {
                let x = numbers(device, from, shape, 3)?;
                for to in DTYPES {
                    let y = ops::permute_cast(&x, dims, to)?;
                    assert_eq!(y.dtype(), to);
                    let want = ops::cast(&x.permute(dims)?, to)?;
                    assert_same(&y.to_bytes()?, &want.to_bytes()?, format!("{x:?} by {dims:?} to {to}"));
                }
            }
            let strided = numbers(device, from, &[8, 30], 4)?.step(1, 3)?;
            let y = ops::permute_cast(&strided, &[1, 0], DType::F16)?;
            let want = ops::cast(&strided.permute(&[1, 0])?, DType::F16)?;
            assert_same(&y.to_bytes()?, &want.to_bytes()?, "strided");
        }
        Ok(())
    }

    fn heads_are_split_and_merged(device: &Device) -> Result<()> {
        for [b, s, p, h, d] in [[2, 5, 3, 4, 16], [1, 7, 3, 2, 5], [3, 2, 1, 3, 8]] {
            let x = numbers(device, DType::F16, &[b, s, p, h, d], 5)?;
            let split = ops::split_heads(&x, None)?;
            assert_eq!(split.shape(), [p, b, h, s, d]);
            assert_same(&split.to_bytes()?, &reference::permute(&x, &[2, 0, 3, 1, 4])?, "split");
            let merged = ops::merge_heads(&split, None)?;
            assert_eq!(merged.shape(), x.shape());
            assert_same(&merged.to_bytes()?, &x.to_bytes()?, "merged");
        }
        Ok(())
    }

    fn biases_of_heads_are_added_and_rounded_once(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            for [b, s, p, h, d] in [[2, 5, 3, 4, 16], [1, 7, 3, 2, 5]] {
                let x = numbers(device, dtype, &[b, s, p, h, d], 6)?;
                let bias = numbers(device, dtype, &[p, h, d], 7)?;
                let (values, biases) = (x.to_f64()?, bias.to_f64()?);
                let sum = |at: usize| rounded(dtype, values[at] as f32 + biases[at % (p * h * d)] as f32);
                let sums: Vec<f64> = (0..values.len()).map(sum).collect();
                let want = Tensor::from_slice(&Device::cpu(), &[b, s, p, h, d], &sums)?;
                let split = ops::split_heads(&x, Some(&bias))?.to_f64()?;
                let of = want.permute(&[2, 0, 3, 1, 4])?;
                assert_same(&split, &of.to_f64()?, format!("{dtype} split"));
                // The way back adds it again, to heads without one.
                let heads = ops::split_heads(&x, None)?;
                let merged = ops::merge_heads(&heads, Some(&bias))?.to_f64()?;
                assert_same(&merged, &sums, format!("{dtype} merged"));
            }
        }
        Ok(())
    }

    fn square_matrices_turn_in_their_place(device: &Device) -> Result<()> {
        for n in [1usize, 2, 31, 32, 33, 64, 65, 100, 144] {
            let sizes = [DType::U8, DType::I16, DType::F32, DType::F64, DType::C128];
            for (i, dtype) in sizes.into_iter().enumerate() {
                let words = Random::new(i as u64).words(3 * n * n * dtype.size().div_ceil(4));
                let bytes: Vec<u8> =
                    words.iter().flat_map(|word| word.to_ne_bytes()).take(3 * n * n * dtype.size()).collect();
                let x = Tensor::from_bytes(device, dtype, &[3, n, n], &bytes)?;
                let want = reference::permute(&x, &[0, 2, 1])?;
                ops::transpose_in_place(&x)?;
                assert_same(&x.to_bytes()?, &want, format!("{n} rows of {dtype}"));
            }
        }
        let none = Tensor::zeros(device, DType::F32, &[0, 3, 3])?;
        ops::transpose_in_place(&none)
    }

    fn mistakes_are_named(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[2, 3, 4])?;
        let ints = Tensor::zeros(device, DType::I32, &[2, 3])?;
        let text = |result: Result<Tensor>| result.map_or_else(|error| error.to_string(), |_| "accepted".to_owned());
        for (got, want) in [
            (text(ops::permute(&x, &[0, 1])), "permute: `dims` must be each of the 3 dimensions once, got [0, 1]"),
            (text(ops::permute(&x, &[0, 1, 1])), "permute: `dims` must be each of the 3 dimensions once, got [0, 1, 1]"),
            (text(ops::permute(&x, &[0, -1, 2])), "permute: `dims` must be each of the 3 dimensions once, got [0, -1, 2]"),
            (text(ops::permute(&x, &[0, 1, 3])), "permute: `dims` must be in -3..=2, got 3"),
            (text(ops::permute_cast(&ints, &[1, 0], DType::F32)), "permute_cast: `x` must have dtype f32, f16 or bf16, got i32"),
            (text(ops::permute_cast(&x, &[1, 0, 2], DType::I8)), "permute_cast: `dtype` must be f32, f16 or bf16, got i8"),
            (text(ops::split_heads(&x, None)), "split_heads: `x` must have shape [B, S, P, H, D], got [2, 3, 4]"),
            (text(ops::merge_heads(&x, None)), "merge_heads: `x` must have shape [P, B, H, S, D], got [2, 3, 4]"),
            (
                text(ops::transpose_in_place(&x).map(|()| x.clone())),
                "transpose_in_place: `x` must have shape [.., N, N], got [2, 3, 4]",
            ),
        ] {
            assert_eq!(got, want);
        }
        let heads = Tensor::zeros(device, DType::F32, &[1, 2, 3, 4, 5])?;
        let bias = Tensor::zeros(device, DType::F32, &[3, 4])?;
        let error = ops::split_heads(&heads, Some(&bias)).unwrap_err().to_string();
        assert_eq!(error, "split_heads: `bias` must have shape [3, 4, 5], got [3, 4]");
        let half = Tensor::zeros(device, DType::F16, &[3, 4, 5])?;
        assert!(matches!(ops::split_heads(&heads, Some(&half)), Err(Error::DType { arg: "bias", .. })));
        let square = Tensor::zeros(device, DType::F32, &[4, 4])?;
        let part = Tensor::zeros(device, DType::F32, &[4, 8])?.narrow(1, 0, 4)?;
        let error = ops::transpose_in_place(&part).unwrap_err().to_string();
        assert_eq!(error, "transpose_in_place: `x` must have contiguous strides, got strides [8, 1]");
        let error = ops::permute_into(&square, &[1, 0], &square).unwrap_err().to_string();
        assert!(error.starts_with("permute: `y` must have memory apart from the inputs'"), "{error}");
        let error = ops::permute_into(&x, &[2, 0, 1], &x).unwrap_err().to_string();
        assert_eq!(error, "permute: `y` must have shape [4, 2, 3], got [2, 3, 4]");
        Ok(())
    }
}

#[test]
fn negative_strides_are_refused_by_name() -> Result<()> {
    let test = "negative_strides_are_refused_by_name";
    let Some(gpu) = warpwright_tests::first_gpu(test) else { return Ok(()) };
    let owner = Tensor::from_slice(&gpu, &[4], &[1.0f32, 2.0, 3.0, 4.0])?;
    // SAFETY: all four elements are the owner's, who outlives the view.
    let back = unsafe { Tensor::from_foreign(&gpu, owner.address() + 12, DType::F32, &[4], &[-1])? };
    let error = ops::contiguous(&back).unwrap_err().to_string();
    assert_eq!(error, "contiguous: `x` must have strides that are not negative, got strides [-1]");
    Ok(())
}

/// Zeros of more than 2^32 bytes on a GPU, and room for as many of another shape; nothing where there is no such GPU.
fn large(test: &str, shape: &[usize], turned: &[usize]) -> Result<Option<(Device, Tensor, Tensor)>> {
    let Some(gpu) = warpwright_tests::first_gpu(test) else { return Ok(None) };
    let tensors =
        Tensor::zeros(&gpu, DType::I8, shape).and_then(|x| Ok((x, Tensor::uninit(&gpu, DType::I8, turned)?)));
    match tensors {
        Ok((x, y)) => {
            assert!(x.len() > 1 << 32);
            Ok(Some((gpu, x, y)))
        }
        Err(error) => {
            warpwright_tests::skipped("large", test, &error.to_string());
            Ok(None)
        }
    }
}

#[test]
fn more_than_2_to_the_32_bytes_are_permuted() -> Result<()> {
    const SHAPE: [usize; 2] = [65_536, 65_600];
    let test = "more_than_2_to_the_32_bytes_are_permuted";
    let Some((gpu, x, y)) = large(test, &SHAPE, &[SHAPE[1], SHAPE[0]])? else { return Ok(()) };
    let rows = [0, 1, 32_767, 50_000, 65_535];
    let of = |row: usize| -> Vec<u8> {
        Random::new(row as u64).words(SHAPE[1] / 4).iter().flat_map(|word| word.to_ne_bytes()).collect()
    };
    for row in rows {
        x.narrow(0, row, 1)?.copy_from(&Tensor::from_bytes(&gpu, DType::I8, &[1, SHAPE[1]], &of(row))?)?;
    }
    ops::permute_into(&x, &[1, 0], &y)?;
    for row in rows {
        let column = ops::contiguous(&y.narrow(1, row, 1)?)?;
        assert_same(&column.to_bytes()?, &of(row), format!("row {row}"));
    }
    Ok(())
}

/// Rows of odd bytes by a launch each, which begin and end inside a pack of y: what lies at their ends is that of both.
#[test]
fn rows_of_more_than_2_to_the_32_bytes_are_permuted() -> Result<()> {
    const SHAPE: [usize; 3] = [3, 2, 715_827_889];
    const PIECE: usize = 4096;
    let test = "rows_of_more_than_2_to_the_32_bytes_are_permuted";
    let Some((gpu, x, y)) = large(test, &SHAPE, &[SHAPE[1], SHAPE[0], SHAPE[2]])? else { return Ok(()) };
    let rows = || (0..SHAPE[0]).flat_map(|i| (0..SHAPE[1]).map(move |j| [i, j]));
    let places = [0, SHAPE[2] / 2, SHAPE[2] - PIECE];
    let piece = |of: &Tensor, [i, j]: [usize; 2], at: usize| {
        of.narrow(0, i, 1)?.narrow(1, j, 1)?.narrow(2, at, PIECE)
    };
    let of = |[i, j]: [usize; 2], at: usize| -> Vec<u8> {
        let words = Random::new((at + 2 * i + j) as u64).words(PIECE / 4);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    };
    for row in rows() {
        for at in places {
            let bytes = Tensor::from_bytes(&gpu, DType::I8, &[1, 1, PIECE], &of(row, at))?;
            piece(&x, row, at)?.copy_from(&bytes)?;
        }
    }
    ops::permute_into(&x, &[1, 0, 2], &y)?;
    for row in rows() {
        for at in places {
            let got = ops::contiguous(&piece(&y, [row[1], row[0]], at)?)?;
            assert_same(&got.to_bytes()?, &of(row, at), format!("row {row:?} from {at}"));
        }
    }
    Ok(())
}
