//! Every form of mask with every pattern of broadcasting, and the causal limit alone and beside each.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, Masking, check, check_against, scores};
use warpwright::ops::masked_softmax::Causal;
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, Random, assert_same, assert_within, floats, on_each_device};

/// Masks of x `[2, 3, 5, cols]`: dimensions missing, and of size 1 at each place and at several.
fn patterns(cols: usize) -> Vec<Vec<usize>> {
    vec![
        vec![],
        vec![1],
        vec![cols],
        vec![1, cols],
        vec![5, 1],
        vec![5, cols],
        vec![3, 1, cols],
        vec![3, 5, 1],
        vec![1, 5, cols],
        vec![1, 1, 1, 1],
        vec![2, 1, 1, cols],
        vec![2, 1, 1, 1],
        vec![1, 3, 1, cols],
        vec![2, 1, 5, cols],
        vec![2, 3, 1, cols],
        vec![1, 3, 5, cols],
        vec![2, 3, 5, 1],
        vec![2, 3, 5, cols],
    ]
}

/// What replaces masked elements, where it must not matter.
const GARBAGE: [f32; 5] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MAX];

/// Where the reference, on moderate scores, has exactly 0.
fn masked_columns(x: &Tensor, parameters: &MaskedSoftmax) -> Result<Vec<bool>> {
    Ok(reference::masked_softmax(x, parameters)?.into_iter().map(|p| p == 0.0).collect())
}

fn zeros(tensor: &Tensor) -> Result<bool> {
    Ok(tensor.to_f64()?.iter().all(|&y| y == 0.0))
}

on_each_device! {
    fn every_mask_broadcasts_along_missing_dimensions_and_those_of_size_1(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 37), (dtype, 40)]) {
            let mut random = Random::new(cols as u64);
            let x = scores(device, dtype, &[2, 3, 5, cols], &mut random)?;
            for (form, shape) in
                Form::ALL.into_iter().flat_map(|form| patterns(cols).into_iter().map(move |s| (form, s)))
            {
                let masking = form.random(device, dtype, cols, &shape, &mut random)?;
                let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                check(&x, &parameters, &format!("{form:?} {shape:?}"))?;
            }
        }
        Ok(())
    }

    fn a_causal_limit_joins_every_mask(device: &Device) -> Result<()> {
        for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
            for (queries, cols) in [(5, 37), (40, 40), (41, 19), (1, 33)] {
                for causal in [Causal::BottomRight, Causal::Offset(0), Causal::Offset(3)] {
                    let mut random = Random::new(cols as u64);
                    let x = scores(device, dtype, &[2, queries, cols], &mut random)?;
                    for shape in [vec![2, 1, cols], vec![queries, cols]] {
                        let masking = form.random(device, dtype, cols, &shape, &mut random)?;
                        let mask = masking.mask();
                        let parameters = MaskedSoftmax { scale: 0.5, mask, causal: Some(causal) };
                        check(&x, &parameters, &format!("{form:?} {causal:?} {shape:?}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn any_causal_offset_is_taken(device: &Device) -> Result<()> {
        let (queries, cols) = (7, 9);
        let x = scores(device, DType::F32, &[2, queries, cols], &mut Random::new(1))?;
        for offset in [0, 1, 2, 8, 9, 100, -1, -6, -7, -100, i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 1] {
            let parameters = MaskedSoftmax { causal: Some(Causal::Offset(offset)), ..Default::default() };
            let y = check(&x, &parameters, &format!("offset {offset}"))?.to_f64()?;
            // Counted apart from the reference: query q keeps columns 0..=q + offset.
            for (row, y) in y.chunks(cols).enumerate() {
                let keep = ((row % queries) as i64 + i64::from(offset) + 1).clamp(0, cols as i64) as usize;
                assert!(y[..keep].iter().all(|&p| p > 0.0), "offset {offset}, row {row}: {y:?}");
                assert!(y[keep..].iter().all(|&p| p == 0.0), "offset {offset}, row {row}: {y:?}");
            }
        }
        Ok(())
    }

    fn the_default_causal_limit_lets_the_last_query_see_every_key(device: &Device) -> Result<()> {
        assert_eq!(Causal::default(), Causal::BottomRight);
        for (queries, cols) in [(3, 8), (8, 8), (8, 3), (1, 5)] {
            let x = scores(device, DType::F16, &[queries, cols], &mut Random::new(2))?;
            let with = |causal| MaskedSoftmax { causal: Some(causal), ..Default::default() };
            let y = check(&x, &with(Causal::default()), "bottom right")?;
            let same = ops::masked_softmax(&x, &with(Causal::Offset(cols as i32 - queries as i32)))?;
            assert_same(&y.to_bytes()?, &same.to_bytes()?, "the offset K - Q");
            assert!(y.narrow(0, queries - 1, 1)?.to_f64()?.iter().all(|&p| p > 0.0));
        }
        // A single row is query 0.
        let x = floats(device, DType::F32, &[4], &[1.0; 4])?;
        let parameters = MaskedSoftmax { causal: Some(Causal::Offset(1)), ..Default::default() };
        assert_eq!(ops::masked_softmax(&x, &parameters)?.to_vec::<f32>()?, [0.5, 0.5, 0.0, 0.0]);
        Ok(())
    }

    fn each_byte_but_0_is_set(device: &Device) -> Result<()> {
        let bytes: Vec<u8> = (0..=255).collect();
        for (dtype, start) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 0), (dtype, 3)]) {
            let (x, mask) =
                (floats(device, dtype, &[256], &[1.0; 256])?, Tensor::from_slice(device, &[256], &bytes)?);
            // From an odd start, bytes are read one by one.
            let (x, mask) = (x.narrow(0, start, 253)?, mask.narrow(0, start, 253)?);
            let set: Vec<bool> = bytes[start..start + 253].iter().map(|&byte| byte != 0).collect();
            for (mask, kept) in [(Mask::Keep(&mask), true), (Mask::Drop(&mask), false)] {
                let y = ops::masked_softmax(&x, &MaskedSoftmax { mask, ..Default::default() })?.to_f64()?;
                let positive: Vec<bool> = y.iter().map(|&p| p > 0.0).collect();
                let want: Vec<bool> = set.iter().map(|&set| set == kept).collect();
                assert_same(&positive, &want, format!("{dtype} from {start}, keep {kept}"));
            }
        }
        Ok(())
    }

    fn keep_is_the_opposite_of_drop_and_a_prefix_is_a_length(device: &Device) -> Result<()> {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 21), (dtype, 64), (dtype, 1000)]) {
            let x = scores(device, dtype, &[6, cols], &mut Random::new(3))?;
            let lengths: Vec<i32> = (0..6).map(|row| (row * cols / 5) as i32).collect();
            let starts: Vec<i32> = lengths.iter().map(|length| length / 3).collect();
            let kept: Vec<u8> = (0..6 * cols)
                .map(|i| ((starts[i / cols]..lengths[i / cols]).contains(&((i % cols) as i32))).into())
                .collect();
            let dropped: Vec<u8> = kept.iter().map(|keep| 1 - keep).collect();
            let bias: Vec<f32> =
                kept.iter().map(|&keep| if keep == 1 { 0.0 } else { f32::NEG_INFINITY }).collect();
            let int = |values: &[i32]| Tensor::from_slice(device, &[6], values).map(Some);
            let byte = |values: &[u8]| Tensor::from_slice(device, &[6, cols], values);
            let range = Masking::Range { lengths: int(&lengths)?, starts: int(&starts)? };
            let of = |masking: &Masking| {
                check(&x, &MaskedSoftmax { mask: masking.mask(), ..Default::default() }, "one of four")
            };
            let want = of(&Masking::Keep(byte(&kept)?))?;
            for other in [Masking::Drop(byte(&dropped)?), range] {
                assert_same(
                    &of(&other)?.to_bytes()?,
                    &want.to_bytes()?,
                    format!("{dtype}, {cols} columns, {other:?}"),
                );
            }
            // A bias is added in f32, which rounds otherwise: only zeros must be where they were.
            let biased = of(&Masking::Bias(floats(device, dtype, &[6, cols], &bias)?))?.to_f64()?;
            let zero = |y: &[f64]| y.iter().map(|&p| p == 0.0).collect::<Vec<bool>>();
            assert_same(&zero(&biased), &zero(&want.to_f64()?), "zeros of a bias of -inf");
        }
        Ok(())
    }

    /// Such long rows that a row asks for the length of one that is not the last.
    fn lengths_are_asked_for_ahead(device: &Device) -> Result<()> {
        let (rows, cols) = (13, 1 << 18);
        let x = scores(device, DType::F32, &[rows, cols], &mut Random::new(8))?;
        let of_row = |row: usize| row * 1001 % cols;
        let lengths: Vec<i32> = (0..rows).map(|row| of_row(row) as i32).collect();
        let lengths = Tensor::from_slice(device, &[rows], &lengths)?;
        let mask = Mask::Range { lengths: Some(&lengths), starts: None };
        let y = ops::masked_softmax(&x, &MaskedSoftmax { mask, ..Default::default() })?.to_f64()?;
        for (row, y) in y.chunks(cols).enumerate() {
            let (kept, masked) = y.split_at(of_row(row));
            let sum: f64 = kept.iter().sum();
            assert!(row == 0 || (sum - 1.0).abs() < 1e-4, "{sum} of row {row}");
            assert!(kept.iter().all(|&p| p > 0.0) && masked.iter().all(|&p| p == 0.0), "row {row}");
        }
        Ok(())
    }

    fn masked_columns_are_0_and_without_effect_whatever_x_holds_there(device: &Device) -> Result<()> {
        for (dtype, cols) in
            DTYPES.into_iter().flat_map(|dtype| [3, 37, 64, 700, 5000].map(|cols| (dtype, cols)))
        {
            for (form, causal) in Form::UNBIASED
                .into_iter()
                .zip([None, Some(Causal::Offset(cols as i32 / 2))].into_iter().cycle())
            {
                let mut random = Random::new(4);
                let values = random.floats(3 * cols, -8.0, 8.0);
                let x = floats(device, dtype, &[3, cols], &values)?;
                let masking = form.random(device, dtype, cols, &[3, cols], &mut random)?;
                // A negative scale flips bits of what is loaded, and 0 makes NaN of infinities.
                for scale in [1.0, -0.5, 0.0] {
                    let parameters = MaskedSoftmax { scale, mask: masking.mask(), causal };
                    let masked = masked_columns(&x, &parameters)?;
                    let garbage: Vec<f32> = (0..3 * cols)
                        .map(|i| if masked[i] { GARBAGE[i % GARBAGE.len()] } else { values[i] })
                        .collect();
                    let clean = ops::masked_softmax(&x, &parameters)?;
                    let dirty =
                        ops::masked_softmax(&floats(device, dtype, &[3, cols], &garbage)?, &parameters)?;
                    let what = format!("{dtype}, {cols} columns, {form:?}, {causal:?}, {scale}");
                    assert_same(&dirty.to_bytes()?, &clean.to_bytes()?, &what);
                    let at_masked = dirty.to_f64()?.into_iter().zip(&masked).filter(|(_, masked)| **masked);
                    assert!(at_masked.map(|(y, _)| y.to_bits()).all(|bits| bits == 0), "{what}");
                }
            }
        }
        Ok(())
    }

    fn rows_without_a_kept_column_are_zeros(device: &Device) -> Result<()> {
        for (dtype, cols) in
            DTYPES.into_iter().flat_map(|dtype| [1, 5, 64, 300, 4100].map(|cols| (dtype, cols)))
        {
            let k = cols as i32;
            let byte = |value: u8| Tensor::from_slice(device, &[1, cols], &vec![value; cols]);
            let int = |value: i32| Tensor::from_slice(device, &[1], &[value]).map(Some);
            let maskings = [
                Masking::Keep(byte(0)?),
                Masking::Drop(byte(7)?),
                Masking::Range { lengths: int(0)?, starts: None },
                Masking::Range { lengths: None, starts: int(k)? },
                Masking::Range { lengths: int(k / 2)?, starts: int(k / 2)? },
                Masking::Range { lengths: int(k / 3)?, starts: int(k)? },
            ];
            for (masking, value) in maskings.iter().flat_map(|masking| GARBAGE.map(|value| (masking, value)))
            {
                let x = floats(device, dtype, &[2, cols], &vec![value; 2 * cols])?;
                let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                let y =
                    check_against(&vec![0.0; 2 * cols], &x, &parameters, &format!("{masking:?} of {value}"))?;
                assert!(zeros(&y)?);
            }
            let x = scores(device, dtype, &[2, cols], &mut Random::new(5))?;
            let bias = floats(device, DType::F32, &[1], &[f32::NEG_INFINITY])?;
            assert!(zeros(&ops::masked_softmax(
                &x,
                &MaskedSoftmax { mask: Mask::Bias(&bias), ..Default::default() }
            )?)?);
            let causal = Some(Causal::Offset(-2));
            assert!(zeros(&ops::masked_softmax(&x, &MaskedSoftmax { causal, ..Default::default() })?)?);
        }
        Ok(())
    }

    /// The checker reports reads of memory that nothing wrote, which on a GPU hold anything.
    fn columns_past_the_length_are_not_read(device: &Device) -> Result<()> {
        for (dtype, length) in
            DTYPES.into_iter().flat_map(|dtype| [16, 64, 512, 4096].map(|length| (dtype, length)))
        {
            let (cols, pack) = (3 * length, 16 / dtype.size());
            let memory = Tensor::uninit(device, dtype, &[cols])?;
            let written = memory.narrow(0, 0, length)?;
            ops::masked_softmax_into(
                &scores(device, dtype, &[length], &mut Random::new(6))?,
                &MaskedSoftmax::default(),
                &written,
            )?;
            let want = reference::masked_softmax(&written, &MaskedSoftmax::default())?;
            let lengths = Tensor::from_slice(device, &[], &[length as i32])?;
            let mask = Mask::Range { lengths: Some(&lengths), starts: None };
            for causal in [None, Some(Causal::Offset(cols as i32))] {
                let y = ops::masked_softmax(&memory, &MaskedSoftmax { mask, causal, ..Default::default() })?
                    .to_f64()?;
                let plain = ops::masked_softmax(&written, &MaskedSoftmax::default())?.to_f64()?;
                assert_within(&y[..length], &want, |i| plain[i] * 0.01, format!("{dtype}, {pack} a pack"));
                assert!(y[length..].iter().all(|&p| p == 0.0), "{dtype}, length {length}");
            }
            let causal = Some(Causal::Offset(length as i32 - 1));
            let y =
                ops::masked_softmax(&memory, &MaskedSoftmax { causal, ..Default::default() })?.to_f64()?;
            assert!(y[..length].iter().all(|&p| p > 0.0) && y[length..].iter().all(|&p| p == 0.0), "{dtype}");
        }
        Ok(())
    }
}
