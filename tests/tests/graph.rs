//! Operations captured once and launched many times: on a GPU.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, scores};
use warpwright::ops::{self, Mask, MaskedSoftmax, Matmul, Positions};
use warpwright::{DType, Device, Error, Graph, Result, Tensor};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, first_gpu_apart, floats, poisoned};

#[test]
fn a_replay_equals_the_eager_calls() -> Result<()> {
    let Some(device) = first_gpu_apart("a_replay_equals_the_eager_calls")? else { return Ok(()) };
    for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
        // The last are spread over all blocks of a cooperative launch: of each way of masks one, for the time that such rows take.
        let spread = match (form, dtype) {
            (Form::None | Form::Keep | Form::Both, DType::F32) => Some(530_001),
            (Form::None | Form::Keep | Form::Both, _) => Some(1_050_001),
            _ => None,
        };
        for cols in [37, 3000, 70_000].into_iter().chain(spread) {
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

/// Launches begin before those ahead of them are done: each reads what the one before has just written, and writes where
/// one before that has just read, since freed memory is given out again. All numbers are small integers, so that every
/// step is exact: a transposition, a product with 1, a sum, a product with 1 of a single row, in any type.
#[test]
fn launches_in_a_row_see_what_those_ahead_have_written() -> Result<()> {
    let Some(device) = first_gpu_apart("launches_in_a_row_see_what_those_ahead_have_written")? else {
        return Ok(());
    };
    const SIDE: usize = 200;
    const ROUNDS: usize = 150;
    for dtype in [DType::F16, DType::F32] {
        let numbers: Vec<f32> = (0..SIDE * SIDE).map(|i| (i * 7 % 31) as f32).collect();
        let ones: Vec<f32> = (0..SIDE * SIDE).map(|i| f32::from(i / SIDE == i % SIDE)).collect();
        let more: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 3) as f32).collect();
        let [x, one, addend] =
            [numbers, ones, more.clone()].map(|values| floats(&device, dtype, &[SIDE, SIDE], &values));
        let (x, one, addend) = (x?, one?, addend?);
        let product = Matmul::default();
        let round = |x: &Tensor| {
            let x = ops::permute(x, &[1, 0])?;
            let x = ops::add(&ops::matmul(&x, &one, &product)?, &addend)?;
            let last = x.narrow(0, SIDE - 1, 1)?;
            last.copy_from(&ops::matmul(&last, &one, &product)?)?;
            Ok::<_, Error>(x)
        };
        let mut want = x.to_f64()?;
        for _ in 0..ROUNDS {
            let turned = |i: usize| want[i % SIDE * SIDE + i / SIDE];
            want = (0..SIDE * SIDE).map(|i| turned(i) + f64::from(more[i])).collect();
        }
        let rounds = || (0..ROUNDS).try_fold(x.clone(), |x, _| round(&x));
        for _ in 0..5 {
            assert_same(&rounds()?.to_f64()?, &want, format!("{dtype}, launch by launch"));
        }
        let (graph, y) = Graph::capture(&device, |_| rounds())?;
        for _ in 0..5 {
            graph.launch()?;
        }
        assert_same(&y.to_f64()?, &want, format!("{dtype}, a graph"));
    }
    Ok(())
}

/// What an operation has running beside its stream is a branch of the graph, and the next launch sees it, even one that
/// begins early.
#[test]
fn work_beside_a_stream_is_done_before_what_follows() -> Result<()> {
    let Some(device) = first_gpu_apart("work_beside_a_stream_is_done_before_what_follows")? else {
        return Ok(());
    };
    let (sequences, steps, cols, words) = (64, 128, 512, 999);
    let ids: Vec<i32> = (0..sequences * steps).map(|i| (i * i % words) as i32).collect();
    let tokens = Tensor::from_slice(&device, &[sequences, steps], &ids)?;
    // Integers, so that every sum is exact.
    let values: Vec<f32> = (0..sequences * steps * cols).map(|i| (i * 7 % 31) as f32).collect();
    let dy = Tensor::from_slice(&device, &[sequences, steps, cols], &values)?;
    let wte = Tensor::zeros(&device, DType::F32, &[words, cols])?;
    let wpe = Tensor::zeros(&device, DType::F32, &[steps, cols])?;
    let mut want = vec![0.0; steps * cols];
    values.iter().enumerate().for_each(|(i, value)| want[i % (steps * cols)] += 2.0 * value);
    let twice = || {
        let (dwte, dwpe) = ops::embedding_backward(&tokens, &dy, &wte, Some(Positions::new(&wpe)))?;
        let dwpe = dwpe.expect("there are positions");
        Ok::<_, Error>((ops::add(&dwpe, &dwpe)?, ops::add(&dwte, &dwte)?))
    };
    let mut of_rows = vec![0.0; words * cols];
    for (i, value) in values.iter().enumerate() {
        of_rows[ids[i / cols] as usize * cols + i % cols] += 2.0 * value;
    }
    for _ in 0..10 {
        let (of_positions, again) = twice()?;
        assert_same(&of_positions.to_vec::<f32>()?, &want, "launch by launch");
        assert_same(&again.to_vec::<f32>()?, &of_rows, "launch by launch, rows");
    }
    let (graph, (of_positions, again)) = Graph::capture(&device, |_| twice())?;
    for _ in 0..10 {
        graph.launch()?;
        assert_same(&of_positions.to_vec::<f32>()?, &want, "a graph");
        assert_same(&again.to_vec::<f32>()?, &of_rows, "a graph, rows");
    }
    Ok(())
}

/// In a capture, memory that another stream of it still reads is not given out again before that stream is done.
#[test]
fn memory_that_a_joined_stream_reads_is_kept_apart() -> Result<()> {
    let Some(device) = first_gpu_apart("memory_that_a_joined_stream_reads_is_kept_apart")? else {
        return Ok(());
    };
    let stream = device.new_stream()?;
    let beside = device.on_stream(&stream)?;
    let own = device.stream().expect("a GPU has streams").clone();
    const COLS: usize = 1 << 20;
    let x = Tensor::from_slice(&device, &[COLS], &vec![1.0f32; COLS])?;
    let zeros = Tensor::from_slice(&device, &[COLS], &vec![0.0f32; COLS])?;
    let (graph, (z, w)) = Graph::capture(&device, |_| {
        let y = ops::add(&x, &x)?;
        stream.wait(&own.record()?)?;
        // Long enough to be under way when the memory is free.
        let mut z = y.on(&beside)?;
        drop(y);
        let y = z.clone();
        for _ in 0..20 {
            z = ops::add(&z, &y)?;
        }
        drop(y);
        let w = ops::add(&zeros, &zeros)?;
        own.wait(&stream.record()?)?;
        Ok((z, w))
    })?;
    for _ in 0..5 {
        graph.launch()?;
        device.synchronize()?;
        assert_same(&w.to_vec::<f32>()?, &vec![0.0; COLS], "w");
        assert_same(&z.on(&device)?.to_vec::<f32>()?, &vec![42.0; COLS], "z");
    }
    Ok(())
}

/// A value out of range that a graph found is reported to whoever takes over its results.
#[test]
fn values_of_a_graph_are_reported_on_other_streams() -> Result<()> {
    let Some(device) = first_gpu_apart("values_of_a_graph_are_reported_on_other_streams")? else {
        return Ok(());
    };
    let beside = device.on_stream(&device.new_stream()?)?;
    let x = scores(&device, DType::F32, &[2, 8], &mut Random::new(43))?;
    let lengths = Tensor::from_slice(&device, &[2], &[3, 9])?;
    let parameters =
        MaskedSoftmax { mask: Mask::Range { starts: None, lengths: Some(&lengths) }, ..Default::default() };
    let (graph, y) = Graph::capture(&device, |_| ops::masked_softmax(&x, &parameters))?;
    for _ in 0..2 {
        graph.launch()?;
        let taken = y.on(&beside)?;
        assert!(matches!(taken.to_bytes(), Err(Error::Value { index: 1, got: 9, .. })));
        assert!(taken.to_bytes().is_ok(), "once for each launch");
    }
    Ok(())
}
