//! Streams.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

use cuda_driver::sys;

use super::capture::Relaxed;
use super::context::Context;
use super::event::Event;
use super::status::check;
use super::{Handle, lock};
use crate::error::{Error, Result};

/// A queue of work on a device.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    raw: Handle,
    owned: bool,
    /// See [`Stream::beside`].
    beside: OnceLock<Arc<Stream>>,
}

impl Stream {
    // `cust::stream::Stream::new` drops the non-blocking flag, so the driver is called directly.
    pub(super) fn non_blocking(context: &Arc<Context>) -> Result<Arc<Self>> {
        context.make_current()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, sys::CU_STREAM_NON_BLOCKING) })?;
        Ok(Arc::new(Self {
            context: context.clone(),
            raw: Handle(raw),
            owned: true,
            beside: OnceLock::new(),
        }))
    }

    pub(super) fn foreign(context: &Arc<Context>, raw: *mut c_void) -> Arc<Self> {
        lock(&context.ended_streams).remove(&raw.addr());
        Arc::new(Self { context: context.clone(), raw: Handle(raw), owned: false, beside: OnceLock::new() })
    }

    /// The driver's handle.
    #[inline]
    pub fn raw(&self) -> *mut c_void {
        self.raw.0
    }

    /// A stream of this one's own, for work that runs beside it; made at its first use. One for each, so that what is
    /// captured here and what runs elsewhere do not meet.
    pub fn beside(&self) -> Result<&Arc<Stream>> {
        if let Some(beside) = self.beside.get() {
            return Ok(beside);
        }
        let _relaxed = Relaxed::enter();
        let made = Self::non_blocking(&self.context)?;
        Ok(self.beside.get_or_init(|| made))
    }

    /// The context that the stream belongs to.
    #[inline]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits on the host for all work given to the stream so far.
    pub fn synchronize(&self) -> Result<()> {
        self.expect_no_capture(
            "synchronize",
            "the stream is being captured: nothing runs until the graph is",
        )?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw.0) })
    }

    /// Makes work given to the stream from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: stream and event are alive; waiting across devices is allowed.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw.0, event.raw(), 0) })
    }

    /// A new event that stands for the work given to the stream so far.
    pub fn record(&self) -> Result<Event> {
        let event = Event::new(&self.context)?;
        event.record(self)?;
        Ok(event)
    }

    /// Whether the stream's work is being recorded in a graph instead of run.
    pub fn is_capturing(&self) -> Result<bool> {
        self.context.make_current()?;
        let mut status = sys::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, `status` a valid place for the result.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw.0, &mut status) })?;
        Ok(status != sys::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The status of the stream's capture, and its number, if there is one.
    pub(super) fn capture(&self) -> Result<(u32, u64)> {
        self.context.make_current()?;
        let (mut status, mut id) = (sys::CU_STREAM_CAPTURE_STATUS_NONE, 0);
        let none = ptr::null_mut();
        // SAFETY: the stream is alive; the places for the results are valid, or null for the optional ones.
        let code = unsafe {
            let (status, id) = (&mut status, &mut id);
            sys::cuStreamGetCaptureInfo_v2(self.raw.0, status, id, none, ptr::null_mut(), ptr::null_mut())
        };
        check("cuStreamGetCaptureInfo", code)?;
        Ok((status, id))
    }

    /// Whoever owns this foreign stream says that nothing is under way on it, nor will be.
    pub fn end(&self) {
        lock(&self.context.ended_streams).insert(self.raw.0.addr());
    }

    /// Whether the driver's stream may be gone: [`Stream::end`] was called, and nobody has brought another in its place.
    pub fn has_ended(&self) -> bool {
        !self.owned && lock(&self.context.ended_streams).contains(&self.raw.0.addr())
    }

    /// Refuses what a capture cannot record, before the driver would invalidate the capture for it.
    pub(super) fn expect_no_capture(&self, op: &'static str, reason: &'static str) -> Result<()> {
        if self.is_capturing()? { Err(Error::State { op, reason }) } else { Ok(()) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned && self.context.make_current().is_ok() {
            // SAFETY: created by `non_blocking` and used by nobody any more; the driver lets the work
            // that is still queued finish. An error cannot be reported from here.
            unsafe { sys::cuStreamDestroy_v2(self.raw.0) };
        }
    }
}
