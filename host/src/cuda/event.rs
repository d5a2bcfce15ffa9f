//! Events: marks in a stream.

use std::ptr;
use std::sync::Arc;

use cuda_driver::sys;

use super::Handle;
use super::context::Context;
use super::status::{check, driver_error};
use super::stream::Stream;
use crate::error::Result;

// `cust`'s event records only in `cust`'s stream, which cannot be non-blocking or foreign.

/// A mark in a stream, reached when the work ahead of it is done.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    raw: Handle,
}

impl Event {
    /// An event that notes the time when it is reached.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        Self::with_flags(context, 0)
    }

    /// An event without time, which is cheaper.
    pub(super) fn untimed(context: &Arc<Context>) -> Result<Self> {
        Self::with_flags(context, sys::CU_EVENT_DISABLE_TIMING)
    }

    fn with_flags(context: &Arc<Context>, flags: u32) -> Result<Self> {
        context.make_current()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { context: context.clone(), raw: Handle(raw) })
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.raw.0
    }

    /// Moves the mark behind the work given to the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.expect_same(stream.context(), "Event::record", "stream")?;
        self.context.make_current()?;
        // SAFETY: event and stream are alive and of the same context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw.0, stream.raw()) })
    }

    /// Waits on the host until the mark is reached; at once if it was never recorded.
    pub fn synchronize(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw.0) })
    }

    /// Milliseconds on the device from `earlier` to this; both must have been reached.
    pub fn elapsed_ms_since(&self, earlier: &Event) -> Result<f32> {
        self.context.make_current()?;
        let mut ms = 0.0;
        // SAFETY: both events are alive, `ms` a valid place for the result.
        let code = unsafe { sys::cuEventElapsedTime(&mut ms, earlier.raw.0, self.raw.0) };
        check("cuEventElapsedTime", code)?;
        Ok(ms)
    }

    /// Whether the mark is reached.
    pub fn is_done(&self) -> Result<bool> {
        self.context.make_current()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw.0) } {
            sys::CUDA_SUCCESS => Ok(true),
            sys::CUDA_ERROR_NOT_READY => Ok(false),
            code => Err(driver_error("cuEventQuery", code)),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: created by `with_flags`; the driver keeps what is still pending. An error cannot be
            // reported from here.
            unsafe { sys::cuEventDestroy_v2(self.raw.0) };
        }
    }
}
