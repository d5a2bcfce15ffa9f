//! Where a test runs, and what is said where it cannot.

use std::io::Write;

use warpwright::{DType, Device, Error, Result, Tensor};

/// Set to 1, this turns each skip into a failure: for the machine that has the GPU.
const REQUIRE_GPU: &str = "WARPWRIGHT_REQUIRE_GPU";

/// Set to 1, this leaves the CPU out: for tools that watch the GPU, such as compute-sanitizer.
const GPU_ALONE: &str = "WARPWRIGHT_GPU_ALONE";

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Tests that run on the CPU under the checker and on the first GPU, from one body each.
///
/// ```no_run
/// use warpwright::{Device, Result, Tensor};
///
/// warpwright_tests::on_each_device! {
///     /// What the test is about.
///     fn zeros_are_zero(device: &Device) -> Result<()> {
///         let x = Tensor::zeros(device, warpwright::DType::F32, &[3])?;
///         assert_eq!(x.to_vec::<f32>()?, [0.0; 3]);
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! on_each_device {
    ($($(#[$attribute:meta])* fn $name:ident($device:ident: &Device) -> Result<()> $body:block)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            fn body($device: &Device) -> Result<()> $body
            $crate::on_devices(concat!(module_path!(), "::", stringify!($name)), body);
        }
    )*};
}

/// Runs a test on the CPU, then on the first GPU; without a GPU, or with one that lacks the instructions,
/// says that it was skipped there. `WARPWRIGHT_GPU_ALONE=1` leaves the CPU out.
#[track_caller]
pub fn on_devices(test: &str, body: fn(&Device) -> Result<()>) {
    if !is_set(GPU_ALONE)
        && let Err(error) = body(&Device::cpu())
    {
        panic!("{test} on the CPU: {error}");
    }
    match Device::cuda(0).and_then(|device| body(&device)) {
        Ok(()) => {}
        Err(
            error @ (Error::NoDriver { .. }
            | Error::NoDevice { .. }
            | Error::Architecture { .. }
            | Error::ArchitectureSpecific { .. }),
        ) => skipped("gpu", test, &error.to_string()),
        Err(error) => panic!("{test} on the GPU: {error}"),
    }
}

/// Says, in a line of its own that the test harness does not hold back, that a test could not run.
///
/// # Panics
/// Where `WARPWRIGHT_REQUIRE_GPU` is 1 and `what` is "gpu".
#[track_caller]
pub fn skipped(what: &str, test: &str, reason: &str) {
    let required = what == "gpu" && is_set(REQUIRE_GPU);
    assert!(!required, "{test} could not run on the GPU, and {REQUIRE_GPU}=1: {reason}");
    // The harness captures what `eprintln!` prints, not what is written to the stream. One call, so that
    // lines of tests that run at once stay whole.
    let line = format!("SKIPPED {what}: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The device with a stream of its own where it has streams: for mistakes that the stream's next read reports.
pub fn apart(device: &Device) -> Result<Device> {
    if device.is_cuda() { device.on_stream(&device.new_stream()?) } else { Ok(device.clone()) }
}

/// The first GPU; without one, says that the test was skipped.
#[track_caller]
pub fn first_gpu(test: &str) -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error) => {
            skipped("gpu", test, &error.to_string());
            None
        }
    }
}

/// The first GPU, if it has so many bytes to spare; else says that the test was skipped.
#[track_caller]
pub fn roomy_gpu(test: &str, bytes: usize) -> Option<Device> {
    let gpu = first_gpu(test)?;
    match Tensor::uninit(&gpu, DType::U8, &[bytes]) {
        Ok(_) => Some(gpu),
        Err(error) => {
            skipped("large", test, &error.to_string());
            None
        }
    }
}

/// The first GPU with a stream of its own: for captures, and for errors that the next read reports.
#[track_caller]
pub fn first_gpu_apart(test: &str) -> Result<Option<Device>> {
    first_gpu(test).map(|gpu| gpu.on_stream(&gpu.new_stream()?)).transpose()
}
