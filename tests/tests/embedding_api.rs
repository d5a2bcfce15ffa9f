//! Inside another program: its streams, its memory, and several streams at once. On a GPU.

#[allow(dead_code)]
#[path = "../src/softmax.rs"]
mod softmax;

use softmax::{Form, check_against, scores};
use warpwright::ops::{self, Mask, MaskedSoftmax};
use warpwright::{DType, Device, Graph, Result, Tensor, reference};
use warpwright_tests::{DTYPES, POISON, Random, assert_same, first_gpu_apart, poisoned};

/// The tensor as an embedder would hand it over: an address with strides.
///
/// # Safety
/// The tensor outlives the result, and its stream's work is done.
unsafe fn foreign(device: &Device, tensor: &Tensor) -> Result<Tensor> {
    // SAFETY: the memory is the tensor's.
    unsafe {
        Tensor::from_foreign(device, tensor.address(), tensor.dtype(), tensor.shape(), tensor.strides())
    }
}

#[test]
fn foreign_memory_on_a_foreign_stream_gives_the_same() -> Result<()> {
    let Some(owner) = first_gpu_apart("foreign_memory_on_a_foreign_stream_gives_the_same")? else {
        return Ok(());
    };
    let stream = owner.new_stream()?;
    // SAFETY: the stream outlives what is made on it, and is synchronised below.
    let device = unsafe { owner.on_foreign_stream(stream.raw())? };
    assert!(device.same_device(&owner) && !device.same_stream(&owner));
    for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| Form::ALL.map(|form| (dtype, form))) {
        for (cols, start) in [(40, 0), (40, 3), (5000, 8), (70_000, 0)] {
            let mut random = Random::new(50);
            let x = scores(&owner, dtype, &[6, cols + start], &mut random)?.narrow(1, start, cols)?;
            let masking = form.random(&owner, dtype, cols, &[6, cols], &mut random)?;
            let y = poisoned(&owner, dtype, &[6, cols], POISON)?;
            let want =
                ops::masked_softmax(&x, &MaskedSoftmax { mask: masking.mask(), ..Default::default() })?;
            owner.synchronize()?;
            // SAFETY: `x`, `y` and the mask live to the end of this turn, which waits for the device.
            unsafe {
                let (x, y) = (foreign(&device, &x)?, foreign(&device, &y)?);
                let masking = masking.map(|tensor| foreign(&device, tensor))?;
                let parameters = MaskedSoftmax { mask: masking.mask(), ..Default::default() };
                ops::masked_softmax_into(&x, &parameters, &y)?;
                device.synchronize()?;
            }
            let what = format!("{dtype}, {form:?}, {cols} columns from {start}");
            assert_same(&y.to_bytes()?, &want.to_bytes()?, what);
        }
    }
    device.synchronize()
}

#[test]
fn foreign_strides_may_repeat_but_not_run_backwards() -> Result<()> {
    let Some(device) = first_gpu_apart("foreign_strides_may_repeat_but_not_run_backwards")? else {
        return Ok(());
    };
    let memory = scores(&device, DType::F32, &[64], &mut Random::new(51))?;
    let of = |at: u64, shape: &[usize], strides: &[isize]| {
        // SAFETY: all elements are within `memory`, which outlives them.
        unsafe { Tensor::from_foreign(&device, memory.address() + 4 * at, DType::F32, shape, strides) }
    };
    for (at, strides) in [(0, [8, 1]), (5, [8, 1]), (0, [1, 8]), (3, [0, 1]), (2, [8, 0]), (1, [3, 2])] {
        let x = of(at, &[4, 7], &strides)?;
        let want = reference::masked_softmax(&softmax::copy(&x)?, &MaskedSoftmax::default())?;
        check_against(&want, &x, &MaskedSoftmax::default(), &format!("at {at}, strides {strides:?}"))?;
    }
    let backwards = of(24, &[4, 7], &[-8, 1])?;
    let error = ops::masked_softmax(&backwards, &MaskedSoftmax::default()).unwrap_err();
    let want = "masked_softmax: `x` must have strides that are not negative, got strides [-8, 1]";
    assert_eq!(error.to_string(), want);
    let x = of(0, &[4, 7], &[8, 1])?;
    let error =
        ops::masked_softmax(&x, &MaskedSoftmax { mask: Mask::Bias(&backwards), ..Default::default() })
            .unwrap_err();
    assert_eq!(error.to_string(), want.replace("`x`", "`bias`"));
    device.synchronize()
}

#[test]
fn a_foreign_output_that_overlaps_the_input_is_refused() -> Result<()> {
    let Some(device) = first_gpu_apart("a_foreign_output_that_overlaps_the_input_is_refused")? else {
        return Ok(());
    };
    let x = scores(&device, DType::F32, &[4, 8], &mut Random::new(52))?;
    // SAFETY: the address is x's own, which outlives the view.
    let y = unsafe { foreign(&device, &x)? };
    let error = ops::masked_softmax_into(&x, &MaskedSoftmax::default(), &y).unwrap_err();
    assert_eq!(
        error.to_string(),
        "masked_softmax: `y` must have memory apart from the inputs', got strides [8, 1]"
    );
    device.synchronize()
}

#[test]
fn tensors_of_two_streams_meet_in_order() -> Result<()> {
    let Some(first) = first_gpu_apart("tensors_of_two_streams_meet_in_order")? else { return Ok(()) };
    let second = first.on_stream(&first.new_stream()?)?;
    let shape = [2000, 3000];
    for round in 0..5 {
        let source = scores(&first, DType::F32, &shape, &mut Random::new(53 + round))?;
        let (scratch, x) =
            (poisoned(&first, DType::F32, &shape, 0)?, poisoned(&first, DType::F32, &shape, POISON)?);
        let keep = Form::Keep.random(&second, DType::F32, 3000, &[1, 3000], &mut Random::new(60))?;
        let parameters = MaskedSoftmax { scale: 900.0, mask: keep.mask(), causal: None };
        let y = poisoned(&second, DType::F32, &shape, POISON)?;
        first.synchronize()?;
        second.synchronize()?;
        // The first stream has x written last, and is busy until long after the second is told to read it.
        for _ in 0..400 {
            ops::masked_softmax_into(&source, &MaskedSoftmax::default(), &scratch)?;
        }
        ops::masked_softmax_into(&source, &MaskedSoftmax::default(), &x)?;
        // The operation goes to x's stream, also where y and the mask belong to the other.
        let z = ops::masked_softmax(&x.on(&second)?, &parameters)?;
        ops::masked_softmax_into(&x, &parameters, &y)?;
        let last = |tensor: &Tensor| tensor.narrow(0, 1990, 10)?.to_bytes();
        let (from_second, from_first) = (last(&z)?, last(&y)?);
        let rows = x.narrow(0, 1990, 10)?.to_vec::<f32>()?;
        drop(x); // which both have used
        let x = Tensor::from_slice(&second, &[10, 3000], &rows)?;
        let want = ops::masked_softmax(&x, &parameters)?.to_bytes()?;
        assert_same(&from_second, &want, format!("round {round}, computed on the second stream"));
        assert_same(&from_first, &want, format!("round {round}, computed on the first, read on the second"));
    }
    Ok(())
}

#[test]
fn a_graph_captures_on_a_foreign_stream() -> Result<()> {
    let Some(owner) = first_gpu_apart("a_graph_captures_on_a_foreign_stream")? else { return Ok(()) };
    let stream = owner.new_stream()?;
    // SAFETY: the stream outlives the device made from it, which is synchronised at the end.
    let device = unsafe { owner.on_foreign_stream(stream.raw())? };
    let x = scores(&device, DType::BF16, &[9, 77], &mut Random::new(54))?;
    let y = poisoned(&device, DType::BF16, &[9, 77], POISON)?;
    let want = ops::masked_softmax(&x, &MaskedSoftmax::default())?.to_bytes()?;
    let (graph, ()) =
        Graph::capture(&device, |_| ops::masked_softmax_into(&x, &MaskedSoftmax::default(), &y))?;
    graph.launch()?;
    assert_same(&y.to_bytes()?, &want, "captured on a foreign stream");
    drop((graph, x, y));
    device.synchronize()
}

/// Tensors of other streams outlive a foreign stream that has read them.
#[test]
fn a_foreign_stream_ends_before_what_it_has_read() -> Result<()> {
    let Some(owner) = first_gpu_apart("a_foreign_stream_ends_before_what_it_has_read")? else {
        return Ok(());
    };
    let x = scores(&owner, DType::F32, &[9, 77], &mut Random::new(55))?;
    let want = ops::masked_softmax(&x, &MaskedSoftmax::default())?.to_bytes()?;
    for _ in 0..3 {
        let stream = owner.new_stream()?;
        // SAFETY: the stream outlives the device made from it and what is made there.
        let device = unsafe { owner.on_foreign_stream(stream.raw())? };
        let y = ops::masked_softmax(&x.on(&device)?, &MaskedSoftmax::default())?;
        assert_same(&y.to_bytes()?, &want, "on a foreign stream");
        drop(y);
        device.end_foreign_stream()?;
        drop((device, stream));
        // The driver may give the next stream the handle of the last.
        let next = owner.on_stream(&owner.new_stream()?)?;
        let y = ops::masked_softmax(&x.on(&next)?, &MaskedSoftmax::default())?;
        assert_same(&y.to_bytes()?, &want, "on a stream of its own");
    }
    drop(x);
    owner.synchronize()
}

#[test]
fn the_cpu_takes_neither_foreign_memory_nor_streams() {
    let cpu = Device::cpu();
    // SAFETY: both are refused.
    let (memory, stream) = unsafe {
        (Tensor::from_foreign(&cpu, 64, DType::F32, &[1], &[1]), cpu.on_foreign_stream(std::ptr::null_mut()))
    };
    let want = "Tensor::from_foreign: the checker of the CPU device takes its own memory only";
    assert_eq!(memory.unwrap_err().to_string(), want);
    assert_eq!(stream.unwrap_err().to_string(), "Device::on_foreign_stream: the CPU device has no streams");
}
