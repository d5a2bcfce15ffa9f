//! `warpwright::autotune`: what was measured is right, kept, and told.

#[path = "../src/product.rs"]
mod product;

use product::{tolerance, uniform};
use warpwright::ops::{self, Linear, Matmul};
use warpwright::{DType, Device, Error, Graph, Result, Tensor, autotune, reference};
use warpwright_tests::{POISON, Random, apart, assert_same, assert_within, on_devices, poisoned};

/// One test: whether choices are measured, and where they are kept, is the whole process's.
#[test]
fn measured_choices_are_right_and_kept() {
    on_devices("measured_choices_are_right_and_kept", |device| {
        let folder = tempfile::tempdir().map_err(|error| Error::Io {
            action: "make",
            path: "a folder".into(),
            source: error,
        })?;
        let file = folder.path().join("autotune.json");
        autotune::keep_in(Some(file.clone()));
        assert_eq!(autotune::file().as_ref(), Some(&file));
        autotune::enable(true);
        let tested = products(device).and_then(|()| permutations(device));
        // Whoever comes later has what was measured.
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        autotune::keep_in(Some(file.clone()));
        let tested = tested.and_then(|()| later(device));
        let after = std::fs::read_to_string(&file).unwrap_or_default();
        autotune::enable(false);
        tested?;
        assert_eq!(device.is_cuda(), !kept.is_empty(), "the CPU measures nothing");
        assert_eq!(kept, after, "nothing was measured again");
        autotune::keep_in(None);
        assert_eq!(autotune::file(), None);
        Ok(())
    });
}

fn products(device: &Device) -> Result<()> {
    // A stream that can be captured.
    let device = &apart(device)?;
    let mut random = Random::new(300);
    for (dtype, [m, n, k]) in [
        (DType::F32, [17, 33, 65]),
        (DType::F16, [64, 128, 520]),
        (DType::BF16, [40, 24, 1000]),
        (DType::BF16, [33, 31, 127]),
    ] {
        let (a, b) =
            (uniform(device, dtype, &[m, k], &mut random)?, uniform(device, dtype, &[k, n], &mut random)?);
        let parameters = Matmul::default();
        let want = reference::matmul(&a, &b, &parameters)?;
        let y = poisoned(device, dtype, &[m, n], POISON)?;
        let before = ops::matmul::explain(&a, &b, &parameters)?;
        assert!(!before.measured, "{before}");
        // Nothing is measured while a stream is captured.
        if device.is_cuda() {
            let (graph, _) = Graph::capture(device, |_| ops::matmul(&a, &b, &parameters))?;
            graph.launch()?;
            assert!(!ops::matmul::explain(&a, &b, &parameters)?.measured);
        }
        for _ in 0..2 {
            ops::matmul_into(&a, &b, &parameters, &y)?;
            assert_within(&y.to_f64()?, &want, |i| tolerance(dtype, k, 1.0, want[i]), "a measured product");
        }
        let plan = ops::matmul::explain(&a, &b, &parameters)?;
        assert_eq!(plan.measured, device.is_cuda(), "{plan}");
        assert_eq!(plan.to_string().contains(", measured"), device.is_cuda(), "{plan}");
    }
    // With something behind the product.
    let (x, weight) = (
        uniform(device, DType::F16, &[48, 64], &mut random)?,
        uniform(device, DType::F16, &[72, 64], &mut random)?,
    );
    let bias = uniform(device, DType::F16, &[72], &mut random)?;
    let layer = Linear { bias: Some(&bias), activation: ops::Activation::Relu, ..Default::default() };
    let want = reference::linear(&x, &weight, &layer)?;
    let y = ops::linear(&x, &weight, &layer)?;
    assert_within(&y.to_f64()?, &want, |i| tolerance(DType::F16, 64, 1.0, want[i]), "a measured layer");
    Ok(())
}

const SHAPE: [usize; 4] = [6, 35, 3, 52];
const DIMS: [isize; 4] = [3, 1, 0, 2];

fn permutations(device: &Device) -> Result<()> {
    for dtype in [DType::U8, DType::F16, DType::F32] {
        let x = numbered(device, dtype)?;
        let want = reference_of(&x)?;
        for _ in 0..2 {
            assert_same(&ops::permute(&x, &DIMS)?.to_bytes()?, &want, "a measured permutation");
        }
    }
    Ok(())
}

/// Both again, and what is told of them.
fn later(device: &Device) -> Result<()> {
    let mut random = Random::new(301);
    let (a, b) = (
        uniform(device, DType::F16, &[64, 520], &mut random)?,
        uniform(device, DType::F16, &[520, 128], &mut random)?,
    );
    assert_eq!(ops::matmul::explain(&a, &b, &Matmul::default())?.measured, device.is_cuda());
    ops::matmul(&a, &b, &Matmul::default())?;
    let x = numbered(device, DType::F16)?;
    let explained = ops::permute::explain(x.desc(), &DIMS, DType::F16)?;
    assert_eq!(explained.measured.is_some_and(|micros| micros > 0.0), device.is_cuda(), "{explained}");
    assert_same(&ops::permute(&x, &DIMS)?.to_bytes()?, &reference_of(&x)?, "a permutation that was measured");
    Ok(())
}

/// Elements that differ from their neighbours.
fn numbered(device: &Device, dtype: DType) -> Result<Tensor> {
    let bytes: Vec<u8> =
        (0..SHAPE.iter().product::<usize>() * dtype.size()).map(|i| (i * 7 + i / 256) as u8).collect();
    Tensor::from_bytes(device, dtype, &SHAPE, &bytes)
}

/// The elements in the order of the result, by the index formula.
fn reference_of(x: &Tensor) -> Result<Vec<u8>> {
    let (bytes, size) = (x.to_bytes()?, x.dtype().size());
    let strides = [35 * 3 * 52, 3 * 52, 52, 1];
    let out = DIMS.map(|dim| (SHAPE[dim as usize], strides[dim as usize]));
    let mut want = Vec::with_capacity(bytes.len());
    for i in 0..SHAPE.iter().product() {
        let (mut rest, mut at) = (i, 0);
        for (extent, stride) in out.into_iter().rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        want.extend(&bytes[at * size..][..size]);
    }
    Ok(want)
}
