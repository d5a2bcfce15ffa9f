//! Work beside a stream: what an operation needs only at its end, while its other kernels leave the GPU idle.

use crate::device::{Device, Kind};
use crate::error::Result;
use crate::stream::Stream;

/// A second stream of a device's stream, from a point in its work on until [`Aside::join`] or the drop: work given to it
/// sees all that the device's stream was given before, and the device's stream sees it from the join on. In a capture both
/// are branches of the graph.
///
/// Memory is to be allocated on the device's stream before and freed there after the join. The kernel that the device's
/// stream gets first after the join is to be of the same operation, and none that starts early: such a one waits for the kernel
/// ahead of it in its own stream, and nobody promises more.
pub(crate) struct Aside<'a> {
    home: &'a Stream,
    device: Device,
    joined: bool,
}

impl Device {
    /// Work beside this device's stream, from here on; `None` on the CPU, where nothing runs beside anything.
    pub(crate) fn aside(&self) -> Result<Option<Aside<'_>>> {
        let Kind::Cuda(_, home) = self.kind() else { return Ok(None) };
        let beside = Stream::new(home.raw_arc().beside()?.clone());
        let device = self.on_stream(&beside)?;
        beside.wait(&home.record()?)?;
        Ok(Some(Aside { home, device, joined: false }))
    }
}

impl Aside<'_> {
    /// The device on the second stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes the device's stream wait for what the second was given.
    pub fn join(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        self.joined = true;
        let Some(beside) = self.device.stream() else { return Ok(()) };
        self.home.wait(&beside.record()?)
    }
}

impl Drop for Aside<'_> {
    /// After an error: memory that the second stream uses must not be given away before it is done. There is nobody to tell of
    /// another error.
    fn drop(&mut self) {
        if !self.joined {
            let _ = self.wait();
        }
    }
}
