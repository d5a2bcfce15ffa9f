//! `add` and `cast`: exact results, of operands that lie in any way.

#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use half::{bf16, f16};
use pointwise::{Layout, SHAPES, round};
use warpwright::{DType, Device, Result, Tensor, ops, reference};
use warpwright_tests::{DTYPES, EDGES, Random, assert_same, floats, on_each_device, poisoned};

/// Exact sums of f32 inputs rounded once, as f64 holds them: f64's own rounding is far below.
fn rounded(dtype: DType, values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|value| round(dtype, value)).collect()
}

/// Floats at which roundings differ: ties, their neighbours, the ends of each type.
fn hard_to_round() -> Vec<f32> {
    let mut values: Vec<f32> = EDGES.iter().flat_map(|&x| [x, x.next_up(), x.next_down(), -x]).collect();
    for base in [1.0f32, 3.0, 1000.0, 6e-5, 6e-8, 3e-8, 65504.0, 65519.9, 65520.0, 3.3895e38, 1e-40] {
        // Halves of the last bit of f16 and of bf16.
        for step in [2f32.powi(-12), 2f32.powi(-11), 2f32.powi(-9), 2f32.powi(-8)] {
            for k in 0..8 {
                let value = base * (1.0 + k as f32 * step);
                values.extend([value, -value, value.next_up(), value.next_down()]);
            }
        }
    }
    values.extend(Random::new(90).words(20_000).into_iter().map(f32::from_bits));
    values
}

on_each_device! {
    fn casts_round_to_nearest_even(device: &Device) -> Result<()> {
        let values = hard_to_round();
        for (from, to) in DTYPES.into_iter().flat_map(|from| DTYPES.map(|to| (from, to))) {
            let x = floats(device, from, &[values.len()], &values)?;
            let y = ops::cast(&x, to)?;
            assert_eq!((y.dtype(), y.shape()), (to, x.shape()));
            let of_f32 = |x: f64| match to {
                DType::F16 => f16::from_f32(x as f32).to_f64(),
                DType::BF16 => bf16::from_f32(x as f32).to_f64(),
                _ => x,
            };
            let want: Vec<f64> = x.to_f64()?.into_iter().map(of_f32).collect();
            assert_same(&y.to_f64()?, &want, format!("{from} to {to}"));
        }
        Ok(())
    }

    fn casts_take_operands_that_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(91);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let (from, to) = (DTYPES[(turn + i) % 3], DTYPES[(turn + i / 3) % 3]);
                let x = layout.random(device, from, shape, (-9.0, 9.0), &mut random)?;
                for output in [layout, Layout::Dense] {
                    let y = output.output(device, to, shape)?;
                    ops::cast_into(&x, &y)?;
                    let want = rounded(to, x.to_f64()?);
                    assert_same(&y.to_f64()?, &want, format!("{layout:?} {from} to {to} {shape:?}"));
                }
            }
        }
        Ok(())
    }

    fn sums_are_rounded_once(device: &Device) -> Result<()> {
        let mut random = Random::new(92);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let dtype = DTYPES[(turn + i) % 3];
                let a = layout.random(device, dtype, shape, (-9.0, 9.0), &mut random)?;
                for of_b in [layout, Layout::Dense, Layout::ALL[(i + 4) % 9]] {
                    let b = of_b.random(device, dtype, shape, (-9.0, 9.0), &mut random)?;
                    let y = layout.output(device, dtype, shape)?;
                    ops::add_into(&a, &b, &y)?;
                    let want = rounded(dtype, reference::add(&a, &b)?);
                    assert_same(&y.to_f64()?, &want, format!("{layout:?} + {of_b:?} {dtype} {shape:?}"));
                }
            }
        }
        Ok(())
    }

    fn sums_of_edges_are_those_of_ieee(device: &Device) -> Result<()> {
        let a: Vec<f32> = EDGES.iter().flat_map(|&a| EDGES.map(|_| a)).collect();
        let b: Vec<f32> = EDGES.iter().flat_map(|_| EDGES).collect();
        let of = |values: &[f32]| Tensor::from_slice(device, &[values.len()], values);
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_same(&ops::add(&of(&a)?, &of(&b)?)?.to_vec::<f32>()?, &want, "f32");
        // Sums beyond the type, and ones that cancel.
        let (a, b) = ([60000.0, -60000.0, 1.0, 0.0], [60000.0, -60000.0, -1.0, -0.0]);
        let sum = ops::add(&floats(device, DType::F16, &[4], &a)?, &floats(device, DType::F16, &[4], &b)?)?;
        assert_same(&sum.to_f64()?, &[f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0], "f16");
        Ok(())
    }

    fn large_tensors_take_the_larger_instance(device: &Device) -> Result<()> {
        let count = (1 << 21) + 1027;
        let values: Vec<f32> = (0..count).map(|i| (i % 4099) as f32 - 2000.0).collect();
        let x = Tensor::from_slice(device, &[count], &values)?;
        let sum = ops::add(&x, &x)?.to_vec::<f32>()?;
        let halves = ops::cast(&x, DType::F16)?;
        let back = ops::cast(&halves, DType::F32)?.to_vec::<f32>()?;
        for i in 0..count {
            assert_eq!((sum[i], back[i]), (2.0 * values[i], f16::from_f32(values[i]).to_f32()), "element {i}");
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let x = Tensor::zeros(device, DType::F32, &[2, 3])?;
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let want = "cast: `dtype` must be f32, f16 or bf16, got i32";
        assert_eq!(text(ops::cast(&x, DType::I32).map(drop)), want);
        let bytes = Tensor::zeros(device, DType::U8, &[3])?;
        let want = "cast: `x` must have dtype f32, f16 or bf16, got u8";
        assert_eq!(text(ops::cast(&bytes, DType::F32).map(drop)), want);
        let y = poisoned(device, DType::F16, &[3, 2], 0)?;
        assert_eq!(text(ops::cast_into(&x, &y)), "cast: `y` must have shape [2, 3], got [3, 2]");
        let b = Tensor::zeros(device, DType::F32, &[1, 3])?;
        assert_eq!(text(ops::add(&x, &b).map(drop)), "add: `b` must have shape [2, 3], got [1, 3]");
        let b = Tensor::zeros(device, DType::BF16, &[2, 3])?;
        assert_eq!(text(ops::add(&x, &b).map(drop)), "add: `b` must have dtype f32, got bf16");
        let want = "add: `y` must have memory apart from the inputs', got strides [3, 1]";
        assert_eq!(text(ops::add_into(&x, &x.clone(), &x)), want);
        Ok(())
    }
}
