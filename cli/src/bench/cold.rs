//! How long a program waits for its first result: measured once, before anything else is run.

use std::time::Instant;

use serde::Serialize;
use warpwright::{Device, Result, Tensor, ops};

use super::data::integers;

#[derive(Clone, Debug, Serialize)]
pub struct ColdStart {
    /// From the start of the command until the device was open.
    pub open_ms: f64,
    /// From there until a small masked softmax was back on the host.
    pub first_result_ms: f64,
    pub loads: Vec<Load>,
}

/// The driver's part of that.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    pub kernel: &'static str,
    /// Much where the driver compiled it, little where it found its result of an earlier process.
    pub ms: f64,
    pub ptx_bytes: usize,
}

/// `begun` is when the command began, and the device has just been opened.
pub fn measure(device: &Device, begun: Instant) -> Result<ColdStart> {
    let opened = Instant::now();
    let values: Vec<f32> = integers(4 * 128, 1000).into_iter().map(|value| value as f32 / 500.0).collect();
    let x = Tensor::from_slice(device, &[4, 128], &values)?;
    ops::masked_softmax(&x, &ops::MaskedSoftmax::default())?.to_vec::<f32>()?;
    let first_result_ms = opened.elapsed().as_secs_f64() * 1e3;
    let loads = device.module_loads().into_iter().map(|load| Load {
        kernel: load.kernel,
        ms: load.micros as f64 / 1e3,
        ptx_bytes: load.ptx_bytes,
    });
    Ok(ColdStart { open_ms: (opened - begun).as_secs_f64() * 1e3, first_result_ms, loads: loads.collect() })
}
