//! Streams and events of a GPU.

use std::ffi::c_void;
use std::sync::Arc;

use crate::cuda;
use crate::error::Result;

/// A queue of work on a GPU. [`Device::on_stream`](crate::Device::on_stream) gives the device whose
/// operations go there.
#[derive(Clone, Debug)]
pub struct Stream(Arc<cuda::Stream>);

impl Stream {
    pub(crate) fn new(stream: Arc<cuda::Stream>) -> Stream {
        Stream(stream)
    }

    #[inline]
    pub(crate) fn raw_arc(&self) -> &Arc<cuda::Stream> {
        &self.0
    }

    /// The driver's handle, a `CUstream`.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw()
    }

    /// Waits on the host for all work given to the stream so far.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Makes work given to the stream from now on wait for the event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.0.wait(&event.0)
    }

    /// A new event that stands for the work given to the stream so far.
    pub fn record(&self) -> Result<Event> {
        self.0.record().map(Event)
    }

    /// Whether the stream's work is being recorded in a graph instead of run.
    pub fn is_capturing(&self) -> Result<bool> {
        self.0.is_capturing()
    }
}

/// A mark in a stream, reached when the work ahead of it is done.
#[derive(Debug)]
pub struct Event(cuda::Event);

impl Event {
    /// Moves the mark behind the work given to the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.0.record(&stream.0)
    }

    /// Waits on the host until the mark is reached.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Whether the mark is reached.
    pub fn is_done(&self) -> Result<bool> {
        self.0.is_done()
    }

    /// Milliseconds on the GPU from `earlier` to this; both must have been reached.
    pub fn elapsed_ms_since(&self, earlier: &Event) -> Result<f32> {
        self.0.elapsed_ms_since(&earlier.0)
    }
}
