//! `dropout` and `dropout_backward`: the mask is a function of seed, offset and element alone.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use pointwise::{Layout, SHAPES, round};
use warpwright::ops::{self, Dropout};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{DTYPES, Random, assert_same, floats, on_each_device};

const HALF: Dropout = Dropout { p: 0.5, seed: 7, offset: 3 };

/// What f32 arithmetic gives of the reference's mask.
fn want(x: &Tensor, dropout: Dropout) -> Result<Vec<f64>> {
    let scale = (1.0 / (1.0 - f64::from(dropout.p))) as f32;
    let values = x.to_f64()?.into_iter().zip(reference::dropout(x, dropout)?);
    let value = |(x, y): (f64, f64)| if y == 0.0 { 0.0 } else { f64::from(x as f32 * scale) };
    Ok(values.map(|pair| round(x.dtype(), value(pair))).collect())
}

on_each_device! {
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(100);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let dtype = DTYPES[(turn + i) % 3];
                let dropout = Dropout { p: [0.1, 0.5, 0.9][i % 3], seed: turn as u64, offset: i as u64 };
                let x = layout.random(device, dtype, shape, (1.0, 9.0), &mut random)?;
                for output in [layout, Layout::Dense] {
                    let y = output.output(device, dtype, shape)?;
                    let what = format!("{layout:?} {dtype} {shape:?}");
                    ops::dropout_into(&x, dropout, &y)?;
                    assert_same(&y.to_f64()?, &want(&x, dropout)?, &what);
                    let dx = output.output(device, dtype, shape)?;
                    ops::dropout_backward_into(&x, dropout, &dx)?;
                    assert_same(&dx.to_bytes()?, &y.to_bytes()?, format!("backward, {what}"));
                }
            }
        }
        Ok(())
    }

    fn runs_may_begin_at_any_word_of_a_group(device: &Device) -> Result<()> {
        // Of the instance for few packs, and once of that for many, whose blocks have at most 8192 elements.
        let mut random = Random::new(101);
        let few = [3, 64, 255, 257, 5000];
        for dtype in DTYPES {
            for by in 1..8 {
                let many = (by == 2).then_some(512 * 8192 + 77);
                for count in few.into_iter().chain(many) {
                    let x = Layout::Offset(by).random(device, dtype, [1, count], (1.0, 9.0), &mut random)?;
                    let y = Layout::Offset(by).output(device, dtype, [1, count])?;
                    let dropout = Dropout { p: 0.3, seed: by as u64, offset: count as u64 };
                    ops::dropout_into(&x, dropout, &y)?;
                    assert_same(&y.to_f64()?, &want(&x, dropout)?, format!("{dtype}, {count} from {by}"));
                }
            }
        }
        Ok(())
    }

    fn the_mask_depends_on_nothing_but_seed_offset_and_element(device: &Device) -> Result<()> {
        let count = 5000;
        let kept = |x: &Tensor, dropout: Dropout| -> Result<Vec<bool>> {
            Ok(ops::dropout(x, dropout)?.to_f64()?.into_iter().map(|y| y != 0.0).collect())
        };
        let ones = |dtype, shape: &[usize]| floats(device, dtype, shape, &vec![1.0; count]);
        let first = kept(&ones(DType::F32, &[count])?, HALF)?;
        for dtype in DTYPES {
            for shape in [&[count][..], &[5, 1000], &[50, 4, 25]] {
                assert_eq!(kept(&ones(dtype, shape)?, HALF)?, first, "{dtype} {shape:?}");
            }
            assert_eq!(kept(&ones(dtype, &[100, 50])?.transpose(0, 1)?, HALF)?, first, "{dtype} transposed");
        }
        let others = [
            Dropout { seed: 8, ..HALF },
            Dropout { seed: 7 | 1 << 32, ..HALF },
            Dropout { offset: 4, ..HALF },
            Dropout { offset: 3 | 1 << 32, ..HALF },
        ];
        for other in others {
            let masks = kept(&ones(DType::F32, &[count])?, other)?;
            let same = first.iter().zip(&masks).filter(|(a, b)| a == b).count();
            // Independent bits agree half of the time: 2500 ± 35.
            assert!((2300..2700).contains(&same), "{other:?}: {same} of {count} agree");
        }
        // What is kept at a low p is kept at a lower one.
        let at = |p| kept(&ones(DType::F32, &[count])?, Dropout { p, ..HALF });
        let (low, high) = (at(0.2)?, at(0.7)?);
        assert!(low.iter().zip(&high).all(|(low, high)| *low || !*high));
        Ok(())
    }

    fn the_dropped_share_is_p(device: &Device) -> Result<()> {
        let count = 100_000;
        let x = floats(device, DType::BF16, &[count], &vec![1.0; count])?;
        for p in [0.01f32, 0.1, 0.5, 0.75, 0.999] {
            let y = ops::dropout(&x, Dropout { p, seed: 42, offset: 0 })?.to_f64()?;
            let dropped = y.iter().filter(|&&y| y == 0.0).count() as f64;
            let (p, n) = (f64::from(p), count as f64);
            let deviation = (n * p * (1.0 - p)).sqrt();
            assert!((dropped - n * p).abs() < 4.0 * deviation, "p = {p}: {dropped} of {count}");
            let scale = round(DType::BF16, 1.0 / (1.0 - p));
            assert!(y.iter().all(|&y| y == 0.0 || y == scale), "p = {p}");
        }
        Ok(())
    }

    fn p_of_0_is_a_copy_and_p_of_1_gives_zeros(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let values = [1.5, -2.0, f32::INFINITY, f32::NAN, 0.0, -0.0, 7.0, 8.0, 9.0];
            let x = floats(device, dtype, &[9], &values)?;
            let with = |p| ops::dropout(&x, Dropout { p, ..HALF })?.to_f64();
            assert_same(&with(0.0)?, &x.to_f64()?, format!("{dtype}, p = 0"));
            assert_same(&with(-0.0)?, &x.to_f64()?, format!("{dtype}, p = -0"));
            // So small that no word is below it.
            assert_same(&with(1e-11)?, &x.to_f64()?, format!("{dtype}, p = 1e-11"));
            assert_same(&with(1.0)?, &[0.0; 9], format!("{dtype}, p = 1"));
        }
        Ok(())
    }

    fn a_p_that_is_no_probability_is_refused(device: &Device) -> Result<()> {
        let x = floats(device, DType::F32, &[2], &[1.0, 2.0])?;
        for (p, got) in [(-0.1, "-0.1"), (1.5, "1.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let dropout = Dropout { p, ..HALF };
            let error = ops::dropout(&x, dropout).unwrap_err();
            assert_eq!(error.to_string(), format!("dropout: `p` must be in 0..=1, got {got}"));
            let error = ops::dropout_backward_shape(&x, dropout).unwrap_err();
            assert_eq!(error.to_string(), format!("dropout_backward: `p` must be in 0..=1, got {got}"));
        }
        let ints = Tensor::zeros(device, DType::I32, &[2])?;
        let error = ops::dropout_backward(&ints, HALF).unwrap_err();
        assert_eq!(error.to_string(), "dropout_backward: `dy` must have dtype f32, f16 or bf16, got i32");
        Ok(())
    }
}
