//! Operations captured once and launched many times: on a GPU.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, scores};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Error, Graph, Result, Tensor};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, first_gpu_apart, poisoned};

#[test]
fn a_replay_equals_the_eager_calls() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_equals_the_eager_calls")? else { return Ok(()) };
    for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
        for cols in [37, 3000, 70_000] {
            let mut random = Random::new(40);
            let shape = [5, cols];
            let x = scores(&device, dtype, &shape, &mut random)?;
            let masking = form.random(&device, dtype, cols, &shape, &mut random)?;
            let parameters = MaskedSoftmax { scale: 0.5, mask: masking.mask(), causal: None };
            let y = poisoned(&device, dtype, &shape, POISON)?;
            let z = poisoned(&device, dtype, &shape, POISON)?;
            let plain = MaskedSoftmax { scale: -20.0, ..Default::default() };
            // Two calls, the second on the first's result.
            let calls = |y: &Tensor, z: &Tensor| {
                ops::masked_softmax_into(&x, &parameters, y)?;
                ops::masked_softmax_into(y, &plain, z)
            };
            let (graph, ()) = Graph::capture(&device, |_| calls(&y, &z))?;
            assert!(y.to_bytes()?.iter().all(|&byte| byte == POISON), "a capture runs nothing");
            for round in 0..3 {
                if round > 0 {
                    x.copy_from(&scores(&device, dtype, &shape, &mut random)?)?;
                }
                let (y_eager, z_eager) =
                    (poisoned(&device, dtype, &shape, 0)?, poisoned(&device, dtype, &shape, 0)?);
                calls(&y_eager, &z_eager)?;
                graph.launch()?;
                let what = format!("{dtype}, {form:?}, {cols} columns, launch {round}");
                assert_same(&y.to_bytes()?, &y_eager.to_bytes()?, &what);
                assert_same(&z.to_bytes()?, &z_eager.to_bytes()?, &what);
            }
        }
    }
    Ok(())
}

#[test]
fn results_made_in_a_capture_belong_to_the_graph() -> Result<()> {
    let Some(device) = first_gpu_apart("results_made_in_a_capture_belong_to_the_graph")? else {
        return Ok(());
    };
    let x = scores(&device, DType::F16, &[7, 300], &mut Random::new(41))?;
    let want = ops::masked_softmax(&x, &MaskedSoftmax::default())?.to_bytes()?;
    let (graph, y) = Graph::capture(&device, |_| ops::masked_softmax(&x, &MaskedSoftmax::default()))?;
    drop(x);
    for _ in 0..3 {
        graph.launch()?;
        assert_same(&y.to_bytes()?, &want, "the graph's y");
    }
    drop(graph);
    assert_same(&y.to_bytes()?, &want, "y after the graph");
    Ok(())
}

#[test]
fn a_replay_reports_lengths_out_of_range_each_time() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_reports_lengths_out_of_range_each_time")? else {
        return Ok(());
    };
    let x = scores(&device, DType::F32, &[3, 8], &mut Random::new(42))?;
    let lengths = Tensor::from_slice(&device, &[3], &[8, 9, -1])?;
    let y = poisoned(&device, DType::F32, &[3, 8], POISON)?;
    let mask = Mask::Range { lengths: Some(&lengths), starts: None };
    let parameters = MaskedSoftmax { mask, ..Default::default() };
    let (graph, ()) = Graph::capture(&device, |_| ops::masked_softmax_into(&x, &parameters, &y))?;
    device.synchronize()?;
    for _ in 0..3 {
        graph.launch()?;
        let error = y.to_bytes().unwrap_err();
        assert_eq!(error.to_string(), "masked_softmax: `lengths[1]` must be in 0..=8, got 9");
        assert!(y.to_vec::<f32>()?[16..].iter().all(|&p| p == 0.0), "a length of -1 keeps nothing");
    }
    Ok(())
}

#[test]
fn a_refused_call_in_a_capture_leaves_the_device_usable() -> Result<()> {
    let Some(device) = first_gpu_apart("a_refused_call_in_a_capture_leaves_the_device_usable")? else {
        return Ok(());
    };
    let x = scores(&device, DType::F32, &[3, 8], &mut Random::new(43))?;
    let wrong = poisoned(&device, DType::F32, &[8, 3], POISON)?;
    let captured =
        Graph::capture(&device, |_| ops::masked_softmax_into(&x, &MaskedSoftmax::default(), &wrong));
    assert_eq!(captured.unwrap_err().to_string(), "masked_softmax: `y` must have shape [3, 8], got [8, 3]");
    let reading = Graph::capture(&device, |_| x.to_bytes());
    assert!(matches!(reading, Err(Error::State { .. })), "{reading:?}");
    let y = ops::masked_softmax(&x, &MaskedSoftmax::default())?.to_f64()?;
    assert!(y.chunks(8).all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-6), "{y:?}");
    Ok(())
}

#[test]
fn the_cpu_says_that_it_has_no_graphs() {
    let error = Graph::capture(&Device::cpu(), |_| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "Graph::capture: the CPU device has no graphs");
}

#[test]
fn a_copy_is_captured() -> Result<()> {
    let Some(device) = first_gpu_apart("a_copy_is_captured")? else { return Ok(()) };
    let mut random = Random::new(45);
    let (x, other) = (
        scores(&device, DType::F32, &[6, 1000], &mut random)?,
        scores(&device, DType::F32, &[6, 1000], &mut random)?,
    );
    let y = poisoned(&device, DType::F32, &[6, 1000], POISON)?;
    // Of the middle rows.
    let (from, to) = (x.narrow(0, 1, 4)?, y.narrow(0, 2, 4)?);
    let (graph, ()) = Graph::capture(&device, |_| to.copy_from(&from))?;
    assert!(y.to_bytes()?.iter().all(|&byte| byte == POISON), "a capture runs nothing");
    for round in 0..2 {
        if round > 0 {
            x.copy_from(&other)?;
        }
        graph.launch()?;
        assert_same(&to.to_bytes()?, &from.to_bytes()?, format!("launch {round}"));
        assert!(y.narrow(0, 0, 2)?.to_bytes()?.iter().all(|&byte| byte == POISON), "the rest is untouched");
    }
    Ok(())
}
