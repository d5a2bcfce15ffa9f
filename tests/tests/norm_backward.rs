//! `layer_norm_backward`, `add_layer_norm_backward` and `rms_norm_backward` against float64.

#[path = "../src/norms.rs"]
#[allow(dead_code)]
mod norms;
#[allow(dead_code)]
#[path = "../src/pointwise.rs"]
mod pointwise;

use norms::{U, each};
use pointwise::{Layout, SHAPES, round, ulp};
use warpwright::ops::{
    self, AddLayerNormBackward, AddLayerNormGradients, LayerNorm, LayerNormGradients, RmsNormGradients,
};
use warpwright::{DType, Device, Graph, Result, Tensor, reference};
use warpwright_tests::{
    DTYPES, POISON, Random, assert_same, assert_within, first_gpu_apart, floats, on_each_device, poisoned,
};

/// Operands of a backward pass: mean and rstd are those of x.
struct Operands {
    x: Tensor,
    dy: Tensor,
    dsum: Option<Tensor>,
    weight: Option<Tensor>,
    mean: Tensor,
    rstd: Tensor,
}

impl Operands {
    fn random(
        device: &Device,
        dtype: DType,
        shape: [usize; 2],
        [of_x, of_dy]: [Layout; 2],
        (has_dsum, has_weight): (bool, bool),
        random: &mut Random,
    ) -> Result<Operands> {
        let x = of_x.random(device, dtype, shape, (-3.0, 5.0), random)?;
        let dy = of_dy.random(device, dtype, shape, (-2.0, 2.0), random)?;
        let dsum =
            if has_dsum { Some(of_dy.random(device, dtype, shape, (-2.0, 2.0), random)?) } else { None };
        let weight = floats(device, dtype, &[shape[1]], &random.floats(shape[1], -2.0, 2.0))?;
        let normed = ops::layer_norm(&x, &LayerNorm { eps: 1e-3, ..Default::default() })?;
        let weight = has_weight.then_some(weight);
        Ok(Operands { x, dy, dsum, weight, mean: normed.mean, rstd: normed.rstd })
    }
}

/// Compares dx and the sums of columns with float64. dx is a sum of three terms of magnitude rstd·|g|·(1 + x̂²) and dsum;
/// columns add up some hundred products one after another at most.
#[track_caller]
fn check_gradients(
    of: &Operands,
    [dx, dweight, dbias]: [Option<&Tensor>; 3],
    want: [&[f64]; 3],
    what: &str,
) -> Result<()> {
    let dtype = of.x.dtype();
    let (rows, cols) = (of.x.shape()[0], of.x.shape()[1]);
    let (xs, dys) = (of.x.to_f64()?, of.dy.to_f64()?);
    let (means, rstds) = (of.mean.to_f64()?, of.rstd.to_f64()?);
    let weight = each(of.weight.as_ref(), cols, 1.0)?;
    let dsums = each(of.dsum.as_ref(), rows * cols, 0.0)?;
    let normal = |i: usize| (xs[i].abs() + means[i / cols].abs()) * rstds[i / cols];
    let largest = |row: usize| {
        (row * cols..(row + 1) * cols)
            .map(|i| (dys[i] * weight[i % cols]).abs() * (1.0 + normal(i)))
            .fold(0.0, f64::max)
    };
    let of_rows: Vec<f64> = (0..rows).map(largest).collect();
    let computed =
        |i: usize| 64.0 * U * (rstds[i / cols] * of_rows[i / cols] * (1.0 + normal(i)) + dsums[i].abs());
    let allowed = |i: usize| computed(i) + 0.51 * ulp(dtype, want[0][i].abs() + computed(i));
    if let Some(dx) = dx {
        // Beyond the type's range a result is infinite.
        let within = |&want: &f64| if round(dtype, want).is_infinite() { round(dtype, want) } else { want };
        let want: Vec<f64> = want[0].iter().map(within).collect();
        assert_within(&dx.to_f64()?, &want, allowed, format!("dx, {what}"));
    }
    let column = |j: usize, factor: &dyn Fn(usize) -> f64| -> f64 {
        (0..rows).map(|row| (dys[row * cols + j] * factor(row * cols + j)).abs()).sum::<f64>() * 300.0 * U
    };
    let allowed = |j: usize| column(j, &normal) + 0.51 * ulp(dtype, want[1][j].abs() + column(j, &normal));
    if let Some(dweight) = dweight {
        assert_within(&dweight.to_f64()?, want[1], allowed, format!("dweight, {what}"));
    }
    let allowed = |j: usize| column(j, &|_| 1.0) + 0.51 * ulp(dtype, want[2][j].abs());
    if let Some(dbias) = dbias {
        assert_within(&dbias.to_f64()?, want[2], allowed, format!("dbias, {what}"));
    }
    Ok(())
}

/// Gradients that nothing has written.
fn outputs(of: &Operands, layout: Layout) -> Result<LayerNormGradients> {
    let (device, dtype, cols) = (of.x.device(), of.x.dtype(), of.x.shape()[1]);
    let of_columns = || poisoned(device, dtype, &[cols], POISON);
    let dx = layout.output(device, dtype, [of.x.shape()[0], cols])?;
    Ok(LayerNormGradients { dx, dweight: of_columns()?, dbias: of_columns()? })
}

#[track_caller]
fn check(of: &Operands, output: Layout, what: &str) -> Result<LayerNormGradients> {
    let Operands { x, dy, dsum, weight, mean, rstd } = of;
    let (dsum, weight) = (dsum.as_ref(), weight.as_ref());
    let gradients = outputs(of, output)?;
    if dsum.is_some() {
        let LayerNormGradients { dx, dweight, dbias } = gradients.clone();
        let gradients = AddLayerNormGradients { dx, dresidual: None, dinput_bias: None, dweight, dbias };
        let parameters = AddLayerNormBackward { dsum, weight, ..Default::default() };
        ops::add_layer_norm_backward_into(x, dy, mean, rstd, &parameters, &gradients)?;
    } else {
        ops::layer_norm_backward_into(x, dy, weight, mean, rstd, &gradients)?;
    }
    let parameters = AddLayerNormBackward { dsum, weight, ..Default::default() };
    let want = reference::add_layer_norm_backward(x, dy, mean, rstd, &parameters)?;
    let got = [Some(&gradients.dx), Some(&gradients.dweight), Some(&gradients.dbias)];
    check_gradients(of, got, [&want.dx, &want.dweight, &want.dbias], &format!("{what}: {:?}", x.desc()))?;
    Ok(gradients)
}

/// The same with rstd and no mean.
#[track_caller]
fn check_rms(of: &Operands, output: Layout, what: &str) -> Result<()> {
    let Operands { x, dy, weight, rstd, .. } = of;
    let LayerNormGradients { dx, dweight, .. } = outputs(of, output)?;
    let gradients = RmsNormGradients { dx, dweight };
    ops::rms_norm_backward_into(x, dy, weight.as_ref(), rstd, &gradients)?;
    let want = reference::rms_norm_backward(x, dy, weight.as_ref(), rstd)?;
    let got = [Some(&gradients.dx), Some(&gradients.dweight), None];
    check_gradients(of, got, [&want.dx, &want.dweight, &[]], &format!("rms, {what}: {:?}", x.desc()))
}

on_each_device! {
    fn operands_may_lie_in_any_way(device: &Device) -> Result<()> {
        let mut random = Random::new(220);
        for (turn, shape) in SHAPES.into_iter().enumerate() {
            for (i, layout) in Layout::ALL.into_iter().enumerate() {
                let dtype = DTYPES[(turn + i) % 3];
                for of_dy in [layout, Layout::Dense] {
                    let given = ((turn + i) % 2 == 0, i % 3 != 0);
                    let of = Operands::random(device, dtype, shape, [layout, of_dy], given, &mut random)?;
                    check(&of, layout, &format!("{layout:?}, dy {of_dy:?}"))?;
                    check_rms(&of, Layout::Dense, &format!("{layout:?}, dy {of_dy:?}"))?;
                }
            }
        }
        Ok(())
    }

    /// Around the capacities of the kernels that walk, of those for dx alone, and beyond.
    fn every_length_of_rows_is_right(device: &Device) -> Result<()> {
        let mut random = Random::new(221);
        for (turn, cols) in [
            4, 8, 16, 24, 64, 128, 136, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 4104, 5000, 8192, 8200, 15, 16, 17,
            127, 129, 255, 257, 511, 513, 769, 1025, 2047, 2049, 4097,
        ]
        .into_iter()
        .enumerate()
        {
            for dtype in DTYPES {
                let layouts = [[Layout::Dense; 2], [Layout::Offset(5); 2], [Layout::Padded(0, 8), Layout::Dense]];
                let layouts = layouts[if cols < 1500 { turn % 3 } else { 0 }];
                let shape = [if cols < 200 { 70 } else { 3 }, cols];
                let of = Operands::random(device, dtype, shape, layouts, (turn % 2 == 0, true), &mut random)?;
                check(&of, layouts[0], "lengths")?;
                check_rms(&of, layouts[0], "lengths")?;
            }
        }
        let of = Operands::random(device, DType::BF16, [2, 8200], [Layout::Dense; 2], (true, true), &mut random)?;
        check(&of, Layout::Dense, "long")?;
        let of = Operands::random(device, DType::F32, [1, 17_000], [Layout::Dense; 2], (true, false), &mut random)?;
        check(&of, Layout::Dense, "long")?;
        check_rms(&of, Layout::Dense, "long")
    }

    /// Rows that begin at every place of a pack, of any length, without gaps, with gaps, and behind an offset.
    fn rows_that_begin_at_any_place_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(227);
        for turn in 0..30 {
            let (rows, cols) = (1 + random.below(40) as usize, 16 + random.below(700) as usize);
            let layout = [Layout::Dense, Layout::Offset(3), Layout::Padded(0, 8)][turn % 3];
            let (dtype, given) = (DTYPES[turn % 3], (turn % 2 == 0, turn % 5 > 0));
            let of = Operands::random(device, dtype, [rows, cols], [layout; 2], given, &mut random)?;
            check(&of, layout, "ragged")?;
            check_rms(&of, layout, "ragged")?;
        }
        // Wide rows, whose sums take most registers.
        for (dtype, shape, has_dsum) in [
            (DType::BF16, [5, 16_384], true), (DType::F16, [3, 16_000], false), (DType::F32, [3, 16_384], true),
            (DType::F32, [5, 9000], false), (DType::BF16, [9, 4095], true), (DType::F32, [9, 4095], false),
        ] {
            let of = Operands::random(device, dtype, shape, [Layout::Dense; 2], (has_dsum, true), &mut random)?;
            check(&of, Layout::Dense, "wide")?;
            check_rms(&of, Layout::Dense, "wide")?;
        }
        Ok(())
    }

    /// Rows that clusters walk, where there are clusters: a few, and some for each cluster; slices that are full, that end anywhere, and
    /// that have nothing.
    fn rows_wider_than_a_block_are_right(device: &Device) -> Result<()> {
        let mut random = Random::new(228);
        for (dtype, shape, given) in [
            (DType::F32, [1, 16_384], (false, true)),
            (DType::F32, [2, 8200], (true, false)),
            (DType::F32, [67, 8256], (false, false)),
            (DType::BF16, [1, 8200], (true, true)),
            (DType::BF16, [2, 16_384], (false, false)),
            (DType::BF16, [68, 8264], (false, true)),
            (DType::F16, [3, 12_344], (true, true)),
            (DType::F32, [3, 20_000], (true, true)),
            (DType::F32, [31, 32_768], (false, true)),
            (DType::BF16, [2, 32_768], (true, true)),
        ] {
            let of = Operands::random(device, dtype, shape, [Layout::Dense; 2], given, &mut random)?;
            check_rms(&of, Layout::Dense, "wide")?;
            let first = check(&of, Layout::Dense, "wide")?;
            let again = check(&of, Layout::Dense, "wide again")?;
            assert_same(&again.dx.to_bytes()?, &first.dx.to_bytes()?, "dx again");
            assert_same(&again.dweight.to_bytes()?, &first.dweight.to_bytes()?, "dweight again");
            assert_same(&again.dbias.to_bytes()?, &first.dbias.to_bytes()?, "dbias again");
        }
        Ok(())
    }

    /// Rows enough that the room for what a cluster's blocks tell one another is used again and again.
    fn clusters_walk_many_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(229);
        for (dtype, given) in [(DType::F32, (false, true)), (DType::F32, (true, true)), (DType::BF16, (true, true))] {
            let of = Operands::random(device, dtype, [670, 8200], [Layout::Dense; 2], given, &mut random)?;
            check(&of, Layout::Dense, "many wide rows")?;
        }
        for (dtype, cols) in [(DType::F32, 16_392), (DType::BF16, 32_776)] {
            let of = Operands::random(device, dtype, [300, cols], [Layout::Dense; 2], (true, false), &mut random)?;
            check_rms(&of, Layout::Dense, "many wide rows")?;
        }
        Ok(())
    }

    /// Enough rows for several blocks, each of which walks several.
    fn many_rows_are_summed_in_the_same_order_each_time(device: &Device) -> Result<()> {
        let mut random = Random::new(222);
        for (dtype, shape, layout) in [
            (DType::BF16, [1000, 64], Layout::Dense),
            (DType::F32, [300, 256], Layout::Dense),
            (DType::F16, [200, 768], Layout::Dense),
            (DType::F32, [900, 33], Layout::Dense),
            (DType::BF16, [1500, 33], Layout::Dense),
            (DType::F16, [290, 769], Layout::Dense),
            (DType::F32, [290, 1021], Layout::Dense),
            (DType::BF16, [300, 2049], Layout::Dense),
            (DType::F32, [270, 5000], Layout::Dense),
            (DType::BF16, [700, 40], Layout::Stepped),
        ] {
            let of = Operands::random(device, dtype, shape, [layout; 2], (true, true), &mut random)?;
            let first = check(&of, Layout::Dense, "many rows")?;
            for _ in 0..2 {
                let again = check(&of, Layout::Dense, "again")?;
                assert_same(&again.dx.to_bytes()?, &first.dx.to_bytes()?, "dx again");
                assert_same(&again.dweight.to_bytes()?, &first.dweight.to_bytes()?, "dweight again");
                assert_same(&again.dbias.to_bytes()?, &first.dbias.to_bytes()?, "dbias again");
            }
        }
        Ok(())
    }

    fn without_rows_the_sums_are_0(device: &Device) -> Result<()> {
        for cols in [8, 9] {
            let x = Tensor::zeros(device, DType::F32, &[0, cols])?;
            let none = Tensor::zeros(device, DType::F32, &[0])?;
            let gradients = ops::layer_norm_backward(&x, &x, None, &none, &none)?;
            assert_same(&gradients.dweight.to_vec::<f32>()?, &vec![0.0; cols], "dweight");
            assert_same(&gradients.dbias.to_vec::<f32>()?, &vec![0.0; cols], "dbias");
            assert_eq!(gradients.dx.shape(), [0, cols]);
        }
        let x = Tensor::zeros(device, DType::F32, &[3, 0])?;
        let ones = floats(device, DType::F32, &[3], &[1.0; 3])?;
        assert!(ops::rms_norm_backward(&x, &x, None, &ones)?.dweight.is_empty());
        Ok(())
    }

    fn a_nan_stays_in_its_row_and_column(device: &Device) -> Result<()> {
        for cols in [16, 13] {
            let mut values = vec![0.5; 20 * cols];
            values[7 * cols + 3] = f32::NAN;
            let dy = floats(device, DType::F32, &[20, cols], &values)?;
            let mut random = Random::new(223);
            let x = Layout::Dense.random(device, DType::F32, [20, cols], (-1.0, 1.0), &mut random)?;
            let normed = ops::layer_norm(&x, &LayerNorm::default())?;
            let gradients = ops::layer_norm_backward(&x, &dy, None, &normed.mean, &normed.rstd)?;
            let nans = |values: Vec<f32>| (0..values.len()).filter(|&i| values[i].is_nan()).collect::<Vec<_>>();
            assert_eq!(nans(gradients.dx.to_vec()?), (7 * cols..8 * cols).collect::<Vec<_>>());
            assert_eq!(nans(gradients.dweight.to_vec()?), [3]);
            assert_eq!(nans(gradients.dbias.to_vec()?), [3]);
        }
        Ok(())
    }

    fn leading_dimensions_are_rows(device: &Device) -> Result<()> {
        let mut random = Random::new(224);
        let mut of = |shape: &[usize]| floats(device, DType::F32, shape, &random.floats(shape.iter().product(), -3.0, 3.0));
        let (x, dy) = (of(&[3, 5, 2, 16])?.transpose(0, 1)?, of(&[5, 3, 2, 16])?);
        let normed = ops::layer_norm(&x, &LayerNorm::default())?;
        let got = ops::layer_norm_backward(&x, &dy, None, &normed.mean, &normed.rstd)?;
        let want = reference::layer_norm_backward(&x, &dy, None, &normed.mean, &normed.rstd)?;
        assert_eq!(got.dx.shape(), x.shape());
        assert_within(&got.dx.to_f64()?, &want.dx, |_| 1e-5, "dx");
        assert_within(&got.dweight.to_f64()?, &want.dweight, |_| 1e-4, "dweight");
        assert_within(&got.dbias.to_f64()?, &want.dbias, |_| 1e-4, "dbias");
        Ok(())
    }

    fn errors_are_at_most_twice_those_of_unfused_steps_in_the_same_precision(device: &Device) -> Result<()> {
        for dtype in DTYPES {
            let mut random = Random::new(225);
            let of = Operands::random(device, dtype, [60, 96], [Layout::Dense; 2], (false, true), &mut random)?;
            let Operands { x, dy, weight, mean, rstd, .. } = &of;
            let want = reference::layer_norm_backward(x, dy, weight.as_ref(), mean, rstd)?;
            let got = ops::layer_norm_backward(x, dy, weight.as_ref(), mean, rstd)?;
            let (xs, dys, w) = (x.to_f64()?, dy.to_f64()?, each(weight.as_ref(), 96, 1.0)?);
            let (means, rstds) = (mean.to_f64()?, rstd.to_f64()?);
            let step = |value: f64| round(dtype, value);
            let (mut dx, mut dweight) = (vec![], vec![0.0; 96]);
            for row in 0..60 {
                let at = |j: usize| row * 96 + j;
                let normal: Vec<f64> = (0..96).map(|j| step(step(xs[at(j)] - means[row]) * rstds[row])).collect();
                let g: Vec<f64> = (0..96).map(|j| step(dys[at(j)] * w[j])).collect();
                let of_g = step(g.iter().sum::<f64>() / 96.0);
                let product = step(g.iter().zip(&normal).map(|(g, n)| step(g * n)).sum::<f64>() / 96.0);
                dx.extend((0..96).map(|j| step(rstds[row] * step(step(g[j] - of_g) - step(normal[j] * product)))));
                // Sums in f32, as PyTorch's too.
                (0..96).for_each(|j| {
                    dweight[j] = round(DType::F32, dweight[j] + step(dys[at(j)] * normal[j]));
                });
            }
            let dweight: Vec<f64> = dweight.into_iter().map(step).collect();
            let worst = |y: &[f64], want: &[f64]| y.iter().zip(want).map(|(y, want)| (y - want).abs()).fold(0.0, f64::max);
            for (name, got, plain, want) in [
                ("dx", got.dx.to_f64()?, dx, want.dx),
                ("dweight", got.dweight.to_f64()?, dweight, want.dweight),
            ] {
                let (got, plain) = (worst(&got, &want), worst(&plain, &want));
                assert!(got <= 2.0 * plain, "{name}, {dtype}: {got:e} against {plain:e}");
            }
        }
        Ok(())
    }

    fn requests_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
        let text = |result: Result<()>| result.expect_err("the arguments are wrong").to_string();
        let zeros = |dtype, shape: &[usize]| Tensor::zeros(device, dtype, shape);
        let (x, rows) = (zeros(DType::F16, &[2, 3])?, zeros(DType::F32, &[2])?);
        let backward = |dy: &Tensor, mean: &Tensor, rstd: &Tensor| {
            text(ops::layer_norm_backward(&x, dy, None, mean, rstd).map(drop))
        };
        let want = "layer_norm_backward: `dy` must have shape [2, 3], got [3, 2]";
        assert_eq!(backward(&zeros(DType::F16, &[3, 2])?, &rows, &rows), want);
        let want = "layer_norm_backward: `mean` must have dtype f32, got f16";
        assert_eq!(backward(&x, &zeros(DType::F16, &[2])?, &rows), want);
        let want = "layer_norm_backward: `rstd` must have shape [2], got [2, 1]";
        assert_eq!(backward(&x, &rows, &zeros(DType::F32, &[2, 1])?), want);
        let dsum = zeros(DType::F32, &[2, 3])?;
        let want = "add_layer_norm_backward: `dsum` must have dtype f16, got f32";
        let parameters = AddLayerNormBackward { dsum: Some(&dsum), ..Default::default() };
        assert_eq!(text(ops::add_layer_norm_backward(&x, &x, &rows, &rows, &parameters).map(drop)), want);
        let gradients = RmsNormGradients { dx: x.clone(), dweight: zeros(DType::F16, &[3])? };
        let want = "rms_norm_backward: `dx` must have memory apart from the inputs', got strides [3, 1]";
        assert_eq!(text(ops::rms_norm_backward_into(&x, &x, None, &rows, &gradients)), want);
        let shape = ops::layer_norm_backward_shape(&x, &x, None, &rows, &rows)?;
        assert_eq!((shape.dx.shape(), shape.dbias.shape()), (&[2usize, 3][..], &[3usize][..]));
        assert_eq!(ops::rms_norm_backward_shape(&x, &x, None, &rows)?.dweight.dtype(), DType::F16);
        Ok(())
    }
}

/// The reference's gradients against differences of the reference's forward pass.
#[test]
fn the_reference_is_the_derivative() -> Result<()> {
    let device = Device::cpu();
    let mut random = Random::new(226);
    let cols = 7;
    let numbers = random.floats(cols, -2.0, 3.0);
    let of = |values: &[f32]| Tensor::from_slice(&device, &[1, cols], values);
    let dy = of(&random.floats(cols, -1.0, 1.0))?;
    let weight = Tensor::from_slice(&device, &[cols], &random.floats(cols, -1.0, 1.0))?;
    let parameters = LayerNorm { weight: Some(&weight), bias: None, eps: 1e-3 };
    let dys = dy.to_f64()?;
    let dot = |y: &[f64]| y.iter().zip(&dys).map(|(y, dy)| y * dy).sum::<f64>();
    let (layer, rms) = (
        |x: &Tensor| reference::layer_norm(x, &parameters),
        |x: &Tensor| reference::rms_norm(x, Some(&weight), 1e-3),
    );
    let x = of(&numbers)?;
    let f32s = |values: &[f64]| {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Tensor::from_slice(&device, &[1], &values)
    };
    let normed = layer(&x)?;
    let (mean, rstd) = (f32s(&normed.mean)?, f32s(&normed.rstd)?);
    let of_layer = reference::layer_norm_backward(&x, &dy, Some(&weight), &mean, &rstd)?;
    let of_rms = reference::rms_norm_backward(&x, &dy, Some(&weight), &f32s(&rms(&x)?.rstd)?)?;
    for j in 0..cols {
        let step = 1.0 / 64.0; // a power of two, so that x ± step are f32
        let moved = |by: f32| {
            let mut numbers = numbers.clone();
            numbers[j] += by;
            of(&numbers)
        };
        let (up, down) = (moved(step)?, moved(-step)?);
        let width = up.to_f64()?[j] - down.to_f64()?[j];
        let slope = (dot(&layer(&up)?.y) - dot(&layer(&down)?.y)) / width;
        assert!((slope - of_layer.dx[j]).abs() < 1e-3, "layer, {j}: {slope} {}", of_layer.dx[j]);
        let slope = (dot(&rms(&up)?.y) - dot(&rms(&down)?.y)) / width;
        assert!((slope - of_rms.dx[j]).abs() < 1e-3, "rms, {j}: {slope} {}", of_rms.dx[j]);
    }
    Ok(())
}

#[test]
fn a_replay_gives_the_bits_of_the_eager_call() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_gives_the_bits_of_the_eager_call")? else { return Ok(()) };
    let mut random = Random::new(227);
    let of =
        Operands::random(&device, DType::BF16, [3000, 768], [Layout::Dense; 2], (true, true), &mut random)?;
    let Operands { x, dy, dsum, weight, mean, rstd } = &of;
    let (dsum, weight) = (dsum.as_ref(), weight.as_ref());
    let parameters = AddLayerNormBackward { dsum, weight, ..Default::default() };
    let want = ops::add_layer_norm_backward(x, dy, mean, rstd, &parameters)?;
    let LayerNormGradients { dx, dweight, dbias } = outputs(&of, Layout::Dense)?;
    let gradients = AddLayerNormGradients { dx, dresidual: None, dinput_bias: None, dweight, dbias };
    let (graph, ()) = Graph::capture(&device, |_| {
        ops::add_layer_norm_backward_into(x, dy, mean, rstd, &parameters, &gradients)
    })?;
    for _ in 0..3 {
        graph.launch()?;
        assert_same(&gradients.dx.to_bytes()?, &want.dx.to_bytes()?, "dx");
        assert_same(&gradients.dweight.to_bytes()?, &want.dweight.to_bytes()?, "dweight");
    }
    Ok(())
}
