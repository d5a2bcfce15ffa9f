//! On a GPU. Without one, each test says so and ends.

use super::CHUNK;
use crate::{Device, Error, Tensor};

fn device() -> Option<Device> {
    let device = Device::cuda(0).and_then(|device| device.on_stream(&device.new_stream()?));
    device.map_err(|error| eprintln!("skipped: {error}")).ok()
}

/// An operation that finds a bad value, or none; the host does what a kernel would.
fn operation(device: &Device, bad: Option<u64>) {
    let slot = device.value_slot("op", "lengths", 0, 9).unwrap();
    let crate::device::Kind::Cuda(gpu, stream) = device.kind() else { return };
    if let Some(index) = bad {
        // SAFETY: a live word.
        let word = unsafe { gpu.context.foreign_memory(slot.view().address(), 8) };
        word.upload(0, &(index << 32 | 77).to_ne_bytes(), stream.raw_arc()).unwrap();
    }
    slot.finish().unwrap();
}

fn reported(device: &Device) -> Option<u64> {
    match device.check_values() {
        Ok(()) => None,
        Err(Error::Value { index, got: 77, .. }) => Some(index),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn words_are_reported_once_and_used_again() {
    let Some(device) = device() else { return };
    for round in 0..3 * CHUNK as u64 {
        operation(&device, (round % 1000 == 7).then_some(round));
        if round % 1000 == 7 {
            assert_eq!(reported(&device), Some(round));
            assert_eq!(reported(&device), None);
        }
    }
}

#[test]
fn the_first_operation_is_reported_to_its_own_stream() {
    let (Some(a), Some(b)) = (device(), device()) else { return };
    operation(&a, None);
    operation(&a, Some(3));
    operation(&a, Some(2));
    operation(&b, Some(1));
    assert_eq!(reported(&a), Some(3));
    assert_eq!((reported(&a), reported(&b), reported(&b)), (None, Some(1), None));
}

#[test]
fn who_takes_a_tensor_over_takes_its_errors() {
    let (Some(a), Some(b)) = (device(), device()) else { return };
    let x = Tensor::from_slice(&a, &[1], &[1f32]).unwrap();
    operation(&a, Some(5));
    let x = x.on(&b).unwrap();
    let error = x.to_vec::<f32>().unwrap_err();
    assert_eq!(error.to_string(), "op: `lengths[5]` must be in 0..=9, got 77");
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0]);
    assert_eq!(reported(&a), None);
}

#[test]
fn more_words_than_one_chunk_are_fine() {
    let (Some(a), Some(b)) = (device(), device()) else { return };
    for _ in 0..CHUNK + 10 {
        operation(&a, None);
        operation(&b, None);
    }
    operation(&b, Some(8));
    assert_eq!((reported(&a), reported(&b)), (None, Some(8)));
}
