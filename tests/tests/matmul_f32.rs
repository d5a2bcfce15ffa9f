//! `ops::matmul` of f32 on tensor cores: as exact as f32 is, at every size of numbers; and rounded to tf32 on request.

use std::collections::BTreeSet;

#[path = "../src/product.rs"]
mod product;

use product::{tolerance, uniform};
use warpwright::ops::matmul::{candidates, matmul_into_by};
use warpwright::ops::{self, Matmul};
use warpwright::{DType, Device, Result, Tensor, reference};
use warpwright_tests::{POISON, Random, assert_same, assert_within, floats, on_each_device, poisoned};

/// The product by each kernel that can serve, with its plan.
fn by_each_kernel(a: &Tensor, b: &Tensor, parameters: &Matmul) -> Result<Vec<(String, Vec<f64>)>> {
    let shape = ops::matmul_shape(a, b, parameters)?;
    let mut results = Vec::new();
    for plan in candidates(a, b, parameters)? {
        let y = poisoned(a.device(), shape.dtype(), shape.shape(), POISON)?;
        matmul_into_by(plan.choice, a, b, parameters, &y)?;
        results.push((plan.to_string(), y.to_f64()?));
    }
    Ok(results)
}

/// The nearest number of 11 bits; if there are two, the `even` one or the one that is further from 0.
fn to_tf32(value: f32, even: bool) -> f32 {
    let bits = value.to_bits();
    let half = if even { 0xfff + (bits >> 13 & 1) } else { 0x1000 };
    f32::from_bits((bits + half) & !0x1fff)
}

/// Of operands that are rounded to tf32 the product is exact, but for its sums; by other kernels it is as exact as in f32.
fn check_rounded(a: &Tensor, b: &Tensor, plain: &Matmul, what: &str) -> Result<()> {
    let device = a.device();
    let rounded = |x: &Tensor, even: bool| -> Result<Tensor> {
        let numbers = x.to_vec::<f32>()?.into_iter().map(|value| to_tf32(value, even));
        floats(device, DType::F32, x.shape(), &numbers.collect::<Vec<f32>>())
    };
    let of = |even: bool| reference::matmul(&rounded(a, even)?, &rounded(b, even)?, plain);
    // The accelerator rounds to even.
    let (away, even, exact) = (of(false)?, of(true)?, reference::matmul(a, b, plain)?);
    let results = by_each_kernel(a, b, &Matmul { tf32: true, ..*plain })?;
    let hopper = !device.is_cuda() || device.info().is_some_and(|info| info.arch == (9, 0));
    for kernel in ["tf32_cores (rounded to tf32)", "tf32_pipelined (rounded to tf32)"] {
        let serves = results.iter().any(|(plan, _)| plan.contains(kernel));
        assert!(serves || !hopper, "{what}: {kernel}");
    }
    let few = (17..=32).contains(&a.shape()[a.rank() - 2]) && plain.transpose_b && !plain.transpose_a;
    let narrow = results.iter().any(|(plan, _)| plan.starts_with("narrow_f32 (rounded to tf32)"));
    assert!(narrow || !few || !hopper, "{what}: narrow_f32");
    let k = a.shape()[a.rank() - if plain.transpose_a { 2 } else { 1 }];
    for (plan, got) in results {
        let want = match plan.contains("rounded") {
            true if plan.contains("pipelined") => &even,
            true => &away,
            false => &exact,
        };
        let allowed = |i: usize| 2.0 * tolerance(DType::F32, k, 1.0, want[i]);
        assert_within(&got, want, allowed, format!("{what}: {plan}"));
    }
    Ok(())
}

on_each_device! {
    /// Sums of many terms are no further off than twice what plain steps in f32 give, whichever the kernel.
    fn long_sums_are_as_good_as_plain_ones(device: &Device) -> Result<()> {
        let mut random = Random::new(110);
        let [m, n, k] = [24, 40, if device.is_cuda() { 8192 } else { 1024 }];
        let (x, w) = (random.floats(m * k, -1.0, 1.0), random.floats(n * k, 0.0, 1.0));
        let (a, b) = (floats(device, DType::F32, &[m, k], &x)?, floats(device, DType::F32, &[n, k], &w)?);
        let parameters = Matmul { transpose_b: true, ..Default::default() };
        let want = reference::matmul(&a, &b, &parameters)?;
        let error = |got: &[f64]| {
            let squares = got.iter().zip(&want).map(|(got, want)| (got - want).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let plain: Vec<f64> = (0..m * n)
            .map(|i| {
                let (x, w) = (&x[i / n * k..][..k], &w[i % n * k..][..k]);
                f64::from(x.iter().zip(w).fold(0.0f32, |sum, (x, w)| x.mul_add(*w, sum)))
            })
            .collect();
        for (plan, got) in by_each_kernel(&a, &b, &parameters)? {
            assert!(error(&got) <= 2.0 * error(&plain), "{plan}: {} of {}", error(&got), error(&plain));
        }
        Ok(())
    }

    /// From subnormal numbers to some that are close to the largest: off by 2^-21 of the products, and by what multiples of
    /// 2^-133 cannot say of an operand.
    fn numbers_of_any_size_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(111);
        let [m, n, k] = [16, 24, 20];
        for (low, high) in [(-140, 100), (-126, 120), (-115, 0), (-70, -70), (0, 0), (60, 60), (120, -120)] {
            let mut of = |shape: [usize; 2], exponent: i32| {
                let numbers = random.floats(shape[0] * shape[1], -1.0, 1.0);
                let scaled: Vec<f32> =
                    numbers.iter().map(|&x| (f64::from(x) * 2f64.powi(exponent)) as f32).collect();
                floats(device, DType::F32, &shape, &scaled)
            };
            let (a, b) = (of([m, k], low)?, of([k, n], high)?);
            let want = reference::matmul(&a, &b, &Matmul::default())?;
            let two_to = |exponent: i32| f64::from(exponent).exp2();
            let products = two_to(-21) * two_to(low + high) + two_to(-134) * (two_to(low) + two_to(high));
            let allowed = k as f64 * (products + two_to(-149));
            let along_k = ops::contiguous(&b.transpose(0, 1)?)?;
            let turned = Matmul { transpose_b: true, ..Default::default() };
            for (b, parameters) in [(&b, Matmul::default()), (&along_k, turned)] {
                for (plan, got) in by_each_kernel(&a, b, &parameters)? {
                    assert_within(&got, &want, |_| allowed, format!("2^{low}, 2^{high}: {plan}"));
                }
            }
        }
        Ok(())
    }

    /// Rows with numbers of very different size, and zeros of the other operand that keep the large ones out of some sums: as good as plain sums in f32 of
    /// what is left, whichever way the operands lie, and in parts of k.
    fn small_numbers_beside_large_ones_count(device: &Device) -> Result<()> {
        let mut random = Random::new(112);
        for ([m, n, k], aligned) in [([40, 24, 200], true), ([37, 21, 75], false), ([24, 40, 1400], true)] {
            let mut of = |rows: usize, zeros_below: usize| -> Vec<f32> {
                let numbers = random.floats(rows * k, -1.0, 1.0);
                let exponents = random.floats(rows * k, -30.0, 30.0);
                let number = |i: usize| {
                    let (row, term) = (i / k, i % k);
                    // The large ones of every other row are among the first terms.
                    let exponent = if term < 8 { 45.0 } else { exponents[i] };
                    let is_zero = term < 8 && row % 3 < zeros_below;
                    if is_zero { 0.0 } else { numbers[i] * exponent.exp2() }
                };
                (0..rows * k).map(number).collect()
            };
            let (a, b) = (of(m, 0), of(n, 2));
            let (a, b) = (floats(device, DType::F32, &[m, k], &a)?, floats(device, DType::F32, &[n, k], &b)?);
            let sizes = |x: &Tensor| -> Result<Tensor> {
                let sizes: Vec<f32> = x.to_vec::<f32>()?.into_iter().map(f32::abs).collect();
                floats(device, DType::F32, x.shape(), &sizes)
            };
            let parameters = Matmul { transpose_b: true, ..Default::default() };
            let want = reference::matmul(&a, &b, &parameters)?;
            let total = reference::matmul(&sizes(&a)?, &sizes(&b)?, &parameters)?;
            let allowed = |i: usize| 2f64.powi(-20) * total[i];
            for (plan, got) in by_each_kernel(&a, &b, &parameters)? {
                assert_within(&got, &want, allowed, format!("{m}, {n}, {k}: {plan}"));
            }
            // Lines across k.
            let turned = |x: &Tensor| -> Result<Tensor> { ops::contiguous(&x.transpose(0, 1)?) };
            let across = Matmul { transpose_a: true, ..Default::default() };
            for (plan, got) in by_each_kernel(&turned(&a)?, &turned(&b)?, &across)? {
                assert_within(&got, &want, allowed, format!("{m}, {n}, {k}, turned: {plan}"));
                assert!(!aligned || !plan.contains("parted") || plan.contains("along its rows"), "{plan}");
            }
        }
        Ok(())
    }

    /// Infinities and NaN among zeros, remainders of 0 and numbers that tf32 rounds to infinity, at the edges of tiles and of the
    /// result: what plain f32 gives.
    fn what_is_not_finite_is_as_in_f32(device: &Device) -> Result<()> {
        let special = [
            f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7f80_0001), f32::MAX, -f32::MAX,
            f32::from_bits(0x7f7f_f000),
        ];
        let mut serving = BTreeSet::new();
        // The first has too many rows for some kernels; of the last they take the terms in parts, as many do.
        for [m, n, k] in [[67, 70, 44], [30, 70, 44], [14, 70, 44], [7, 70, 44], [8, 70, 520]] {
            let mut a: Vec<f32> = (0..m * k).map(|i| [0.5, -0.25, 0.0, 0.1][i * 7 % 4]).collect();
            let mut b: Vec<f32> = (0..n * k).map(|i| [0.25, 0.5, 0.3, 0.0, 1e-40][i * 3 % 5]).collect();
            for (i, &value) in special.iter().enumerate() {
                a[(m / 7 * i + 3) % m * k + i * k / 7] = value;
                b[(10 * i + 9) * k + k - 1 - 5 * i] = value;
            }
            let (a, b) = (floats(device, DType::F32, &[m, k], &a)?, floats(device, DType::F32, &[n, k], &b)?);
            let parameters = Matmul { transpose_b: true, ..Default::default() };
            let want = reference::matmul(&a, &b, &parameters)?;
            for (plan, got) in by_each_kernel(&a, &b, &parameters)? {
                for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
                    // A sum in f64 may pass f32's largest number.
                    let want = f64::from(want as f32);
                    let same = got == want || got.is_nan() && want.is_nan();
                    let close = (got - want).abs() <= 2f64.powi(-18) * (1.0 + want.abs());
                    assert!(same || close && want.is_finite(), "{plan}: {got} for {want} at {}, {}", i / n, i % n);
                }
                let few = ["narrow_f32", "thin_f32"].into_iter().find(|name| plan.starts_with(name));
                serving.extend(few.map(|name| (name, m, plan.contains("parts"))));
            }
            // The same turned, with a along its rows: few columns.
            let parameters = Matmul { transpose_b: true, ..Default::default() };
            let turned = Matmul { transpose_a: true, transpose_b: false, ..parameters };
            let (a, b) = (b.transpose(0, 1)?, a.transpose(0, 1)?);
            for (plan, got) in by_each_kernel(&ops::contiguous(&a)?, &ops::contiguous(&b)?, &turned)? {
                for (i, &got) in got.iter().enumerate() {
                    let want = f64::from(want[i % m * n + i / m] as f32);
                    let same = got == want || got.is_nan() && want.is_nan();
                    let close = (got - want).abs() <= 2f64.powi(-18) * (1.0 + want.abs());
                    assert!(same || close && want.is_finite(), "{plan}: {got} for {want} at {}, {}", i / m, i % m);
                }
            }
        }
        let has_warpgroups = device.info().is_none_or(|info| info.arch == (9, 0));
        let wanted = [("narrow_f32", 30, false), ("narrow_f32", 14, false), ("narrow_f32", 8, true), ("thin_f32", 7, false)];
        assert!(!has_warpgroups || wanted.iter().all(|of| serving.contains(of)), "{serving:?}");
        Ok(())
    }

    fn tf32_rounds_the_operands(device: &Device) -> Result<()> {
        let mut random = Random::new(112);
        for [m, n, k] in [[130, 136, 72], [17, 40, 260], [33, 57, 31]] {
            for order in 0..4 {
                let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 2);
                let mut of = |shape: [usize; 2], swapped: bool| {
                    let [rows, cols] = if swapped { [shape[1], shape[0]] } else { shape };
                    uniform(device, DType::F32, &[rows, cols], &mut random)
                };
                let (a, b) = (of([m, k], transpose_a)?, of([k, n], transpose_b)?);
                let c = uniform(device, DType::F32, &[n], &mut random)?;
                let plain = Matmul { transpose_a, transpose_b, c: Some(&c), beta: 0.5, ..Default::default() };
                check_rounded(&a, &b, &plain, &format!("{m}x{n}x{k} {order}"))?;
                let parameters = Matmul { tf32: true, ..plain };
                let first = ops::matmul(&a, &b, &parameters)?;
                assert_same(&ops::matmul(&a, &b, &parameters)?.to_bytes()?, &first.to_bytes()?, "twice");
            }
        }
        Ok(())
    }

    /// Batches of which either operand repeats, lines with gaps between them, and lines across the terms.
    fn tf32_rounds_batches_and_views(device: &Device) -> Result<()> {
        let mut random = Random::new(113);
        let (m, n, k) = (70, 37, 48);
        for [front_a, front_b] in [[[2, 3], [2, 3]], [[2, 1], [1, 3]], [[1, 1], [2, 3]], [[2, 3], [1, 1]]] {
            for order in 0..4 {
                let (transpose_a, transpose_b) = (order & 1 == 1, order & 2 == 2);
                let mut of = |front: [usize; 2], shape: [usize; 2], swapped: bool, gap: usize| {
                    let [rows, cols] = if swapped { [shape[1], shape[0]] } else { shape };
                    let whole = [front[0], front[1], rows, cols + gap];
                    uniform(device, DType::F32, &whole, &mut random)?.narrow(3, 0, cols)
                };
                let a = of(front_a, [m, k], transpose_a, 4)?;
                let b = of(front_b, [k, n], transpose_b, order)?;
                let plain = Matmul { transpose_a, transpose_b, ..Default::default() };
                check_rounded(&a, &b, &plain, &format!("{front_a:?} {front_b:?} {order}"))?;
            }
        }
        Ok(())
    }

    fn tf32_keeps_what_is_not_finite(device: &Device) -> Result<()> {
        let a = floats(device, DType::F32, &[4, 4], &[[f32::INFINITY, 1.0, 1.0, 1.0], [f32::NAN, 1.0, 1.0, 1.0],
            [1.0; 4], [f32::NEG_INFINITY, 1.0, 0.0, 1.0]].concat())?;
        let b = floats(device, DType::F32, &[4, 4], &[1.0; 16])?;
        for (plan, got) in by_each_kernel(&a, &b, &Matmul { tf32: true, ..Default::default() })? {
            assert_same(&got[..4], &[f64::INFINITY; 4], &plan);
            assert!(got[4..8].iter().all(|y| y.is_nan()), "{plan}");
            assert_same(&got[8..], &[[4.0; 4], [f64::NEG_INFINITY; 4]].concat(), &plan);
        }
        Ok(())
    }

    fn tf32_is_for_f32_alone(device: &Device) -> Result<()> {
        let a = Tensor::zeros(device, DType::BF16, &[8, 8])?;
        let error = ops::matmul(&a, &a, &Matmul { tf32: true, ..Default::default() }).expect_err("16 bits");
        assert_eq!(error.to_string(), "matmul: `tf32` must be false for operands in bf16, got true");
        let layer = ops::Linear { tf32: true, ..Default::default() };
        let error = ops::linear(&a, &a, &layer).expect_err("16 bits").to_string();
        assert_eq!(error, "linear: `tf32` must be false for operands in bf16, got true");
        let x = floats(device, DType::F32, &[1, 4], &[1.0 + 2f32.powi(-12); 4])?;
        let weight = floats(device, DType::F32, &[2, 4], &[1.0; 8])?;
        let rounded = ops::linear_explain(&x, &weight, &layer)?.to_string().contains("rounded to tf32");
        let want = if rounded { 4.0 } else { 4.0 + 2f64.powi(-10) };
        assert_same(&ops::linear(&x, &weight, &layer)?.to_f64()?, &[want; 2], "linear");
        Ok(())
    }
}
