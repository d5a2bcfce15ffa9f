//! `ops::linear` and its gradients against float64.

#[allow(dead_code)] // of what these share, one is used here
#[path = "../src/pointwise.rs"]
mod pointwise;
#[path = "../src/product.rs"]
mod product;

use pointwise::ulp;
use product::{tolerance, uniform};
use warpwright::ops::matmul::Choice;
use warpwright::ops::{self, Activation, Approximate, Heads, Linear, LinearBackward};
use warpwright::{DType, Device, Graph, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, first_gpu_apart, floats, on_each_device, poisoned,
};

const ACTIVATIONS: [Activation; 4] = [
    Activation::None,
    Activation::Relu,
    Activation::Gelu(Approximate::Tanh),
    Activation::Gelu(Approximate::None),
];

/// What GELU and its slopes may be off by, for operands of some units.
fn of_activation(dtype: DType, want: f64) -> f64 {
    if dtype == DType::F32 { 4e-6 * (1.0 + want.abs()) } else { 2.5e-4 * (1.0 + want.abs()) }
}

fn check(x: &Tensor, weight: &Tensor, layer: &Linear, what: &str) -> Result<()> {
    let (dtype, k) = (x.dtype(), weight.shape()[1]);
    let want = reference::linear(x, weight, layer)?;
    let shape = ops::linear_shape(x, weight, layer)?;
    let y = poisoned(x.device(), dtype, shape.shape(), POISON)?;
    ops::linear_into(x, weight, layer, &y)?;
    let what = format!("{what}: {:?}·{:?} {layer:?}", x.desc(), weight.desc());
    let allowed = |i: usize| tolerance(dtype, k, 1.0, want[i]) + of_activation(dtype, want[i]);
    assert_within(&y.to_f64()?, &want, allowed, &what);
    // What is kept is the activation's operand, and y is the same bits.
    let (again, pre) = ops::linear_keeping(x, weight, layer)?;
    assert_same(&again.to_bytes()?, &y.to_bytes()?, &what);
    let want = reference::linear_pre(x, weight, layer)?;
    assert_within(&pre.to_f64()?, &want, |i| tolerance(dtype, k, 1.0, want[i]), &what);
    Ok(())
}

/// [B, S, K] by a weight of P·H·D rows: the reference's numbers in the place of each, and the bits of the two operations apart.
fn check_heads(x: &Tensor, weight: &Tensor, layer: &Linear, what: &str) -> Result<()> {
    let (dtype, k) = (x.dtype(), weight.shape()[1]);
    let want = reference::linear(x, weight, layer)?;
    let shape = ops::linear_shape(x, weight, layer)?;
    let what = format!("{what}: {:?}·{:?} {layer:?}", x.desc(), weight.desc());
    let y = poisoned(x.device(), dtype, shape.shape(), POISON)?;
    ops::linear_into(x, weight, layer, &y)?;
    let allowed = |i: usize| tolerance(dtype, k, 1.0, want[i]) + of_activation(dtype, want[i]);
    assert_within(&y.to_f64()?, &want, allowed, &what);
    let &[parts, batch, heads, rows, width] = shape.shape() else { panic!("{what}: five dimensions") };
    let whole = ops::linear(x, weight, &Linear { heads: None, ..*layer })?;
    let apart = ops::split_heads(&whole.reshape(&[batch, rows, parts, heads, width])?, None)?;
    assert_same(&y.to_bytes()?, &apart.to_bytes()?, &what);
    Ok(())
}

/// By each kernel that could serve; under the checker by those whose results leave as they lie in shared memory alone.
fn check_heads_by_each(x: &Tensor, weight: &Tensor, layer: &Linear) -> Result<()> {
    let (device, dtype, k) = (x.device(), x.dtype(), weight.shape()[1]);
    let want = reference::linear(x, weight, layer)?;
    let shape = ops::linear_shape(x, weight, layer)?;
    for plan in ops::linear_candidates(x, weight, layer)? {
        if device.is_cuda() || matches!(plan.choice, Choice::Turned { .. } | Choice::Alternating { .. }) {
            let y = poisoned(device, dtype, shape.shape(), POISON)?;
            ops::linear_into_by(plan.choice, x, weight, layer, None, &y)?;
            let what = format!("{:?} {layer:?} by {plan}", shape.shape());
            assert_within(&y.to_f64()?, &want, |i| tolerance(dtype, k, 1.0, want[i]), &what);
        }
    }
    Ok(())
}

/// Gradients are sums of numbers that were rounded to `dtype` before.
fn gradient_tolerance(dtype: DType, terms: usize, want: f64) -> f64 {
    let half_bit = match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => 0.0,
    };
    let terms = terms as f64;
    // d is within ±2.3, and so are the errors of its terms in half bits; a random walk of them.
    let walk = 4.0 * (terms.sqrt() + 1.0) * 2.3 * (half_bit + if half_bit > 0.0 { 2.5e-4 } else { 4e-6 });
    walk + tolerance(dtype, terms as usize, 2.3, want)
}

fn check_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    layer: &LinearBackward,
    what: &str,
) -> Result<()> {
    let (n, k) = (weight.shape()[0], weight.shape()[1]);
    let rows = x.len() / k.max(1);
    let want = reference::linear_backward(x, weight, dy, layer)?;
    let got = ops::linear_backward(x, weight, dy, layer)?;
    let what = format!("{what}: {:?}, {:?}, {layer:?}", x.desc(), weight.desc());
    assert_eq!((got.dx.shape(), got.dweight.shape()), (x.shape(), weight.shape()), "{what}");
    let close = |name: &str, got: &Tensor, want: &[f64], terms: usize| -> Result<()> {
        let tolerance = |i: usize| gradient_tolerance(x.dtype(), terms, want[i]);
        assert_within(&got.to_f64()?, want, tolerance, format!("{name} of {what}"));
        Ok(())
    };
    close("dx", &got.dx, &want.dx, n)?;
    close("dweight", &got.dweight, &want.dweight, rows)?;
    assert_eq!(got.dbias.is_some(), layer.bias, "{what}");
    if let (Some(got), Some(want)) = (&got.dbias, &want.dbias) {
        close("dbias", got, want, rows)?;
    }
    let again = ops::linear_backward(x, weight, dy, layer)?;
    assert_same(&again.dx.to_bytes()?, &got.dx.to_bytes()?, &what);
    assert_same(&again.dweight.to_bytes()?, &got.dweight.to_bytes()?, &what);
    Ok(())
}

on_each_device! {
    /// In every combination, with rows of whole packs and without, on tiles, on few rows and in splits.
    fn every_epilogue_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(100);
        let shapes = [[70, 72, 40], [33, 37, 21], [5, 48, 64], [24, 16, 2056], [12, 19, 1544]];
        for (turn, dtype) in DTYPES.into_iter().enumerate() {
            for (i, [m, n, k]) in shapes.into_iter().enumerate() {
                let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
                let (x, weight) = (of(&[m, k])?, of(&[n, k])?);
                let (bias, residual, row) = (of(&[n])?, of(&[m, n])?, of(&[n])?);
                for (j, activation) in ACTIVATIONS.into_iter().enumerate() {
                    // Each shape with each activation, and with what goes with it in turns.
                    let bias = ((turn + i + j) % 3 != 0).then_some(&bias);
                    let residual = [None, Some(&residual), Some(&row)][(turn + i + 2 * j) % 3];
                    check(&x, &weight, &Linear { bias, activation, residual, ..Default::default() }, "epilogue")?;
                }
            }
        }
        Ok(())
    }

    /// Tiles of more terms than a block has on their way: what is stored, kept and added, and slopes behind a product.
    fn layers_of_many_terms_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(105);
        let [m, n, k] = [600, 584, 520];
        let (tanh, erf) = (Activation::Gelu(Approximate::Tanh), Activation::Gelu(Approximate::None));
        for (dtype, activation, added) in [(DType::BF16, tanh, false), (DType::F16, Activation::None, true)] {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (x, weight, bias, residual) = (of(&[m, k])?, of(&[n, k])?, of(&[n])?, of(&[m, n])?);
            let residual = added.then_some(&residual);
            let layer = Linear { bias: Some(&bias), activation, residual, ..Default::default() };
            check(&x, &weight, &layer, "many terms")?;
        }
        for (dtype, activation) in [(DType::F16, tanh), (DType::BF16, erf)] {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            // dx is as large as x, of as many terms as the weight has rows.
            let (x, weight, dy, input) = (of(&[m, n])?, of(&[k, n])?, of(&[m, k])?, of(&[m, n])?);
            let layer = LinearBackward { input: Some((&input, activation)), ..Default::default() };
            check_backward(&x, &weight, &dy, &layer, "many terms")?;
        }
        Ok(())
    }

    /// Whichever kernel the model would take, with each activation, of which the operand is kept and not: tiles that are cut at each end, few
    /// rows of many terms, and so many that blocks take several in turn.
    fn every_kernel_finishes(device: &Device) -> Result<()> {
        let mut random = Random::new(108);
        for (turn, dtype) in [DType::BF16, DType::F16, DType::F32].into_iter().enumerate() {
            for (i, [m, n, k]) in [[130, 264, 72], [130, 261, 72], [16, 72, 1032], [7, 72, 1032], [2308, 1544, 16], [2308, 1544, 440]].into_iter().enumerate() {
                let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
                let (x, weight, bias) = (of(&[m, k])?, of(&[n, k])?, of(&[n])?);
                for (j, activation) in ACTIVATIONS.into_iter().enumerate() {
                    // Under the checker few of the large ones, on the kernels that take tiles in turn.
                    let large = !device.is_cuda() && i > 3;
                    let of_f32 = dtype == DType::F32;
                    if large && (i > 4 || j != 3 - turn) || of_f32 && !(2..4).contains(&i) {
                        continue;
                    }
                    let layer = Linear { bias: Some(&bias), activation, ..Default::default() };
                    let (want, kept) = (reference::linear(&x, &weight, &layer)?, reference::linear_pre(&x, &weight, &layer)?);
                    for plan in ops::linear_candidates(&x, &weight, &layer)? {
                        // Of f32 those of few rows: the others are checked by what the model takes.
                        let few = matches!(plan.choice, Choice::NarrowF32 { .. } | Choice::ThinF32 { .. });
                        if large && !matches!(plan.choice, Choice::Alternating { .. }) || of_f32 && !few {
                            continue;
                        }
                        let new = || poisoned(device, dtype, &[m, n], POISON);
                        let (y, pre) = (new()?, ((i + j) % 2 == 0).then(new).transpose()?);
                        ops::linear_into_by(plan.choice, &x, &weight, &layer, pre.as_ref(), &y)?;
                        let what = format!("{m}x{n}x{k} {dtype} {activation:?} by {plan}");
                        let allowed = |i: usize| tolerance(dtype, k, 1.0, want[i]) + of_activation(dtype, want[i]);
                        assert_within(&y.to_f64()?, &want, allowed, &what);
                        if let Some(pre) = pre {
                            assert_within(&pre.to_f64()?, &kept, |i| tolerance(dtype, k, 1.0, kept[i]), &what);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// GELU from its tail to infinity, whichever kernel the model would take: numbers that are not finite stay in their rows and columns.
    fn gelu_is_right_beside_anything(device: &Device) -> Result<()> {
        let [m, n, k] = [144, 200, 8];
        let mut random = Random::new(110);
        for dtype in [DType::F16, DType::BF16] {
            // Rows and columns of a term each: what the activation gets is their sum, exactly but for its rounding to f32.
            let mut ends = |count: usize| {
                let mut ends = random.floats(count, -6.0, 3.0);
                for (i, end) in [(3, f32::NAN), (10, f32::INFINITY), (21, f32::NEG_INFINITY), (40, 1e4), (77, -1e4), (90, f32::NAN)] {
                    ends[i] = end;
                }
                ends
            };
            let x: Vec<f32> = ends(m).into_iter().flat_map(|end| (0..k).map(move |i| if i == 5 { end } else { 0.0 })).collect();
            let (x, bias) = (floats(device, dtype, &[m, k], &x)?, floats(device, dtype, &[n], &ends(n))?);
            let weight = floats(device, dtype, &[n, k], &vec![1.0; n * k])?;
            for approximate in [Approximate::Tanh, Approximate::None] {
                let layer = Linear { bias: Some(&bias), activation: Activation::Gelu(approximate), ..Default::default() };
                let want = reference::linear(&x, &weight, &layer)?;
                for plan in ops::linear_candidates(&x, &weight, &layer)? {
                    let y = poisoned(device, dtype, &[m, n], POISON)?;
                    ops::linear_into_by(plan.choice, &x, &weight, &layer, None, &y)?;
                    // Half an ulp of rounding, 0.2 of arithmetic; results below 2^-120 may be 0.
                    let allowed = |i: usize| 0.7 * ulp(dtype, want[i]) + 0.5f64.powi(120);
                    assert_within(&y.to_f64()?, &want, allowed, format!("{dtype} {approximate:?} by {plan}"));
                }
            }
        }
        Ok(())
    }

    /// Whichever kernel the model would take, where bias and result begin between packs: those that cannot serve give way.
    fn results_begin_anywhere(device: &Device) -> Result<()> {
        let mut random = Random::new(109);
        let [m, n, k] = [130, 264, 72];
        for dtype in [DType::F16, DType::BF16] {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (x, weight, bias) = (of(&[m, k])?, of(&[n, k])?, of(&[n + 1])?.narrow(0, 1, n)?);
            for activation in [Activation::None, Activation::Relu] {
                for bias in [None, Some(&bias)] {
                    let layer = Linear { bias, activation, ..Default::default() };
                    let want = reference::linear(&x, &weight, &layer)?;
                    for first in [0, 1, 2] {
                        for plan in ops::linear_candidates(&x, &weight, &layer)? {
                            let room = poisoned(device, dtype, &[m * n + 4], POISON)?;
                            let y = room.narrow(0, first, m * n)?.reshape(&[m, n])?;
                            ops::linear_into_by(plan.choice, &x, &weight, &layer, None, &y)?;
                            let what = format!("{dtype} {activation:?}, from {first} on, for {plan}");
                            assert_within(&y.to_f64()?, &want, |i| tolerance(dtype, k, 1.0, want[i]), &what);
                            let around = room.to_bytes()?;
                            let (before, behind) = (&around[..2 * first], &around[2 * (first + m * n)..]);
                            assert!(before.iter().chain(behind).all(|&byte| byte == POISON), "{what}");
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Heads of whole packs and boxes and without, that end within a tile; sequences that do; few terms, many and none, few rows and
    /// splits; with a bias and an activation.
    fn heads_go_where_they_belong(device: &Device) -> Result<()> {
        let mut random = Random::new(106);
        // Sequences, rows, parts, heads, their columns, terms.
        let shapes = [
            [2, 64, 3, 2, 64, 72], [1, 128, 1, 1, 128, 64], [3, 37, 3, 2, 32, 40], [2, 50, 2, 3, 80, 136],
            [5, 17, 3, 1, 96, 24], [2, 33, 3, 2, 8, 40], [7, 9, 2, 2, 20, 33], [19, 1, 3, 2, 64, 48],
            [1, 5, 3, 2, 16, 64], [3, 4, 1, 2, 5, 9], [2, 9, 2, 1, 64, 2056], [2, 1, 1, 3, 32, 1544],
            [1, 1, 3, 2, 64, 40], [2, 3, 2, 2, 8, 0], [0, 3, 2, 2, 8, 8], [2, 3, 2, 2, 0, 8],
        ];
        for (turn, dtype) in DTYPES.into_iter().enumerate() {
            for (i, [batch, rows, parts, heads, width, k]) in shapes.into_iter().enumerate() {
                let n = parts * heads * width;
                let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
                let (x, weight, bias) = (of(&[batch, rows, k])?, of(&[n, k])?, of(&[n])?);
                let activation = ACTIVATIONS[if i % 3 == 0 { turn + i / 3 } else { 0 } % ACTIVATIONS.len()];
                let layer = Linear {
                    bias: ((turn + i) % 4 != 0).then_some(&bias),
                    activation,
                    heads: Some(Heads { parts, heads }),
                    ..Default::default()
                };
                check_heads(&x, &weight, &layer, "heads")?;
                if i < 4 {
                    // Sequences that are no rows of one matrix, and rows that are not read as they lie.
                    let turned = of(&[rows, batch, k])?.transpose(0, 1)?;
                    check_heads(&turned, &weight, &layer, "turned heads")?;
                    let gaps = of(&[batch, rows, k + 1])?.narrow(-1, 1, k)?;
                    check_heads(&gaps, &weight, &layer, "heads with gaps")?;
                }
            }
        }
        Ok(())
    }

    /// Many tiles, of which blocks take several, with tiles that hold the ends of several sequences and heads, or of one and of none.
    fn many_heads_go_where_they_belong(device: &Device) -> Result<()> {
        let mut random = Random::new(107);
        let shapes = [
            [4, 150, 3, 5, 64, 80], [30, 20, 3, 6, 48, 72], [2, 256, 3, 2, 128, 136], [1, 150, 3, 5, 64, 80],
            [2, 144, 2, 3, 64, 40],
        ];
        for (turn, [batch, rows, parts, heads, width, k]) in shapes.into_iter().enumerate() {
            let dtype = [DType::BF16, DType::F16, DType::BF16, DType::F16, DType::F32][turn];
            let n = parts * heads * width;
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (x, weight, bias) = (of(&[batch, rows, k])?, of(&[n, k])?, of(&[n])?);
            let heads = Some(Heads { parts, heads });
            let layer = Linear { bias: Some(&bias), heads, ..Default::default() };
            check_heads(&x, &weight, &layer, "many")?;
            check_heads_by_each(&x, &weight, &layer)?;
            // Sequences that are no rows of one matrix.
            let turned = of(&[rows, batch, k])?.transpose(0, 1)?;
            check_heads(&turned, &weight, &layer, "many turned")?;
        }
        Ok(())
    }

    /// Dimensions in front that are one, none, several, and in an order that is no matrix.
    fn dimensions_in_front_are_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(101);
        for dtype in DTYPES {
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let (weight, bias, residual) = (of(&[24, 16])?, of(&[24])?, of(&[3, 1, 24])?);
            let layer = Linear { bias: Some(&bias), activation: Activation::Relu, ..Default::default() };
            for x in [of(&[16])?, of(&[1, 16])?, of(&[2, 3, 5, 16])?, of(&[0, 5, 16])?] {
                check(&x, &weight, &layer, "in front")?;
            }
            let turned = of(&[5, 3, 16])?.transpose(0, 1)?;
            check(&turned, &weight, &Linear { residual: Some(&residual), ..layer }, "turned")?;
            let many = of(&[2, 3, 2, 5, 16])?.permute(&[2, 1, 3, 0, 4])?;
            check(&many, &weight, &layer, "many")?;
            let of_windows = of(&[5, 2, 3, 2, 24])?.permute(&[1, 2, 0, 3, 4])?;
            check(&many, &weight, &Linear { residual: Some(&of_windows), ..layer }, "many, with a residual")?;
            // A weight as [K, N] in memory, and a bias with gaps.
            let (weight, bias) = (of(&[16, 24])?.transpose(0, 1)?, of(&[48])?.step(0, 2)?);
            check(&turned, &weight, &Linear { bias: Some(&bias), ..layer }, "strides")?;
        }
        Ok(())
    }

    fn gradients_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(102);
        for (turn, dtype) in DTYPES.into_iter().enumerate() {
            for (i, [m, n, k]) in [[70, 72, 40], [33, 37, 21], [300, 24, 16], [1, 8, 5]].into_iter().enumerate() {
                let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
                let (x, weight, dy) = (of(&[m, k])?, of(&[n, k])?, of(&[m, n])?);
                let (pre, input) = (of(&[m, n])?, of(&[m, k])?);
                for (j, activation) in ACTIVATIONS.into_iter().enumerate() {
                    let input = (j % 2 == 0).then(|| (&input, ACTIVATIONS[(i + turn) % 4]));
                    let bias = (i + j) % 3 != 0;
                    let layer = LinearBackward { activation, pre: Some(&pre), bias, input, tf32: false };
                    check_backward(&x, &weight, &dy, &layer, "gradients")?;
                }
            }
            // Operands in several dimensions, with gaps, and in another order.
            let mut of = |shape: &[usize]| uniform(device, dtype, shape, &mut random);
            let x = of(&[3, 4, 16])?.transpose(0, 1)?;
            let (dy, pre) = (of(&[4, 3, 48])?.step(2, 2)?, of(&[3, 4, 24])?.transpose(0, 1)?);
            let layer = LinearBackward {
                activation: Activation::Gelu(Approximate::Tanh),
                pre: Some(&pre),
                bias: true,
                ..Default::default()
            };
            check_backward(&x, &of(&[24, 16])?, &dy, &layer, "views")?;
            // What x is an activation of: a half of each row, one row for all, another order.
            let inputs = [
                of(&[4, 3, 32])?.narrow(2, 16, 16)?,
                of(&[1, 1, 16])?.expand(&[4, 3, 16])?,
                of(&[3, 4, 16])?.transpose(0, 1)?,
            ];
            for input in &inputs {
                let layer = LinearBackward { input: Some((input, Activation::Relu)), ..Default::default() };
                check_backward(&x, &of(&[24, 16])?, &dy, &layer, "views of the input")?;
            }
        }
        Ok(())
    }

    /// Operands of 11 bits are what rounding to tf32 leaves, so that gradients are those of f32; those of 16 bits refuse.
    fn gradients_may_be_of_tf32(device: &Device) -> Result<()> {
        let mut random = Random::new(104);
        let [m, n, k] = [300, 72, 136];
        let mut of = |shape: &[usize]| -> Result<Tensor> {
            let numbers = random.floats(shape.iter().product(), -1.0, 1.0);
            let short: Vec<f32> = numbers.iter().map(|x| f32::from_bits(x.to_bits() & !0x1fff)).collect();
            floats(device, DType::F32, shape, &short)
        };
        let (x, weight, dy) = (of(&[m, k])?, of(&[n, k])?, of(&[m, n])?);
        let layer = LinearBackward { bias: true, tf32: true, ..Default::default() };
        check_backward(&x, &weight, &dy, &layer, "tf32")?;
        let halves = |tensor: &Tensor| ops::cast(tensor, DType::F16);
        let refused = ops::linear_backward(&halves(&x)?, &halves(&weight)?, &halves(&dy)?, &layer);
        let want = "linear_backward: `tf32` must be false for operands in f16, got true";
        assert_eq!(refused.expect_err("f16 is not rounded").to_string(), want);
        Ok(())
    }

    /// Without rows the gradients of the parameters are 0; without columns there is nothing.
    fn gradients_of_nothing_are_0(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let zeros = |shape: &[usize]| Tensor::zeros(device, dtype, shape);
            let layer = LinearBackward { bias: true, ..Default::default() };
            let got = ops::linear_backward(&zeros(&[0, 3])?, &zeros(&[4, 3])?, &zeros(&[0, 4])?, &layer)?;
            assert_same(&got.dweight.to_f64()?, &[0.0; 12], format!("{dtype}"));
            assert_same(&got.dbias.expect("a bias").to_f64()?, &[0.0; 4], format!("{dtype}"));
            let got = ops::linear_backward(&zeros(&[2, 3])?, &zeros(&[0, 3])?, &zeros(&[2, 0])?, &layer)?;
            assert_same(&got.dx.to_f64()?, &[0.0; 6], format!("{dtype}"));
        }
        Ok(())
    }

    fn what_is_not_finite_goes_through(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let x = floats(device, dtype, &[3, 1], &[f32::NAN, f32::NEG_INFINITY, f32::INFINITY])?;
            let weight = floats(device, dtype, &[9, 1], &[1.0; 9])?;
            for activation in ACTIVATIONS {
                let y = ops::linear(&x, &weight, &Linear { activation, ..Default::default() })?.to_f64()?;
                let low = if activation == Activation::None { f64::NEG_INFINITY } else { 0.0 };
                for (i, y) in y.into_iter().enumerate() {
                    match i / 9 {
                        0 => assert!(y.is_nan(), "{dtype} {activation:?}: {y}"),
                        1 => assert_eq!(y, low, "{dtype} {activation:?}"),
                        _ => assert_eq!(y, f64::INFINITY, "{dtype} {activation:?}"),
                    }
                }
            }
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let (x, weight) = (zeros(DType::F32, &[2, 3])?, zeros(DType::F32, &[4, 3])?);
        let text = |x: &Tensor, weight: &Tensor, layer: &Linear| {
            ops::linear(x, weight, layer).expect_err("the arguments are wrong").to_string()
        };
        let plain = Linear::default();
        let wrong = zeros(DType::F32, &[3, 4])?;
        assert_eq!(text(&x, &wrong, &plain), "linear: `weight` must have shape [N, 3], got [3, 4]");
        let scalar = zeros(DType::F32, &[])?;
        assert_eq!(text(&scalar, &weight, &plain), "linear: `x` must have shape [.., K], got []");
        let other = zeros(DType::BF16, &[4, 3])?;
        assert_eq!(text(&x, &other, &plain), "linear: `weight` must have dtype f32, got bf16");
        let bias = zeros(DType::F32, &[3])?;
        let want = "linear: `bias` must have shape [4], got [3]";
        assert_eq!(text(&x, &weight, &Linear { bias: Some(&bias), ..plain }), want);
        let want = "linear: `residual` must have shape [2, 4], where dimensions may be missing in front or be 1, got [3]";
        assert_eq!(text(&x, &weight, &Linear { residual: Some(&bias), ..plain }), want);
        let by = |parts, heads| Linear { heads: Some(Heads { parts, heads }), ..plain };
        assert_eq!(text(&x, &weight, &by(1, 2)), "linear: `x` must have shape [B, S, K], got [2, 3]");
        let x3 = zeros(DType::F32, &[1, 2, 3])?;
        assert_eq!(text(&x3, &weight, &by(3, 1)), "linear: `weight` must have shape [3·1·D, K], got [4, 3]");
        assert_eq!(text(&x3, &weight, &by(1, usize::MAX)).split(',').next(), Some(&*format!("linear: `weight` must have shape [1·{}·D", usize::MAX)));
        assert_eq!(text(&x3, &weight, &by(0, 2)), "linear: `parts` must be 1 or more, got 0");
        assert_eq!(text(&x3, &weight, &by(2, 0)), "linear: `heads` must be 1 or more, got 0");
        let residual = zeros(DType::F32, &[4])?;
        let want = "linear: `heads` must be absent with a residual, got parts 1, heads 2";
        assert_eq!(text(&x3, &weight, &Linear { residual: Some(&residual), ..by(1, 2) }), want);
        let want = "linear: `heads` must be absent where the activation's operand is kept, got parts 1, heads 2";
        assert_eq!(ops::linear_keeping(&x3, &weight, &by(1, 2)).expect_err("not kept").to_string(), want);
        let y = zeros(DType::F32, &[1, 2, 4])?;
        let want = "linear: `y` must have shape [1, 1, 2, 2, 2], got [1, 2, 4]";
        assert_eq!(ops::linear_into(&x3, &weight, &by(1, 2), &y).expect_err("y is not by heads").to_string(), want);
        let dy = zeros(DType::F32, &[2, 4])?;
        let layer = LinearBackward { activation: Activation::Relu, ..Default::default() };
        let error = ops::linear_backward(&x, &weight, &dy, &layer).expect_err("pre is missing").to_string();
        assert_eq!(error, "linear_backward: `pre` is required: the slope of the activation is taken there");
        let error = ops::linear_backward(&x, &weight, &x, &Default::default()).expect_err("dy is wrong");
        assert_eq!(error.to_string(), "linear_backward: `dy` must have shape [2, 4], got [2, 3]");
        let (row, ones) = (zeros(DType::F32, &[3])?, zeros(DType::F32, &[1, 4])?);
        let error = ops::linear(&row, &weight, &Linear { residual: Some(&ones), ..Linear::default() });
        let want = "linear: `residual` must have shape [4], got [1, 4]";
        assert_eq!(error.expect_err("y has one dimension").to_string(), want);
        let gradients = ops::LinearGradients {
            dx: zeros(DType::F32, x.shape())?,
            dweight: zeros(DType::F32, weight.shape())?,
            dbias: Some(zeros(DType::F32, &[5])?),
        };
        let error = ops::linear_backward_into(&x, &weight, &dy, &Default::default(), &gradients);
        let want = "linear_backward: `dbias` must be absent, since the layer has no bias, got [5]";
        assert_eq!(error.expect_err("there is no bias").to_string(), want);
        Ok(())
    }
}

#[test]
fn a_replay_gives_the_bits_of_the_eager_call() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_gives_the_bits_of_the_eager_call")? else { return Ok(()) };
    let mut random = Random::new(103);
    for (dtype, [m, n, k]) in
        [(DType::BF16, [300, 520, 264]), (DType::F32, [77, 130, 500]), (DType::F16, [1, 64, 4096])]
    {
        let mut of = |shape: &[usize]| uniform(&device, dtype, shape, &mut random);
        let (x, weight, bias) = (of(&[m, k])?, of(&[n, k])?, of(&[n])?);
        let layer = Linear { bias: Some(&bias), activation: Activation::Relu, ..Default::default() };
        let want = ops::linear(&x, &weight, &layer)?;
        let y = poisoned(&device, dtype, &[m, n], POISON)?;
        let (graph, ()) = Graph::capture(&device, |_| ops::linear_into(&x, &weight, &layer, &y))?;
        for _ in 0..3 {
            graph.launch()?;
            assert_same(&y.to_bytes()?, &want.to_bytes()?, "y");
        }
    }
    Ok(())
}
