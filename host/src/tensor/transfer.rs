//! From one device or stream to another.

use super::Tensor;
use crate::device::{Device, Kind};
use crate::error::{Error, Result};

impl Tensor {
    /// This tensor with another stream of its device: operations on the result go there, and wait for the
    /// work given to this tensor's stream so far. Shares the memory.
    pub fn on(&self, device: &Device) -> Result<Tensor> {
        self.adopted(device, "Tensor::on", "device")
    }

    /// As [`Tensor::on`], for an operation `op` on `device` whose argument `arg` this is.
    pub(crate) fn adopted(&self, device: &Device, op: &'static str, arg: &'static str) -> Result<Tensor> {
        if !self.device().same_device(device) {
            let (required, got) = (device.to_string(), self.device().to_string());
            return Err(Error::DeviceMismatch { op, arg, required, got });
        }
        if !self.device().same_stream(device) {
            device.wait_for(self.device(), op)?;
            if let Kind::Cuda(_, stream) = device.kind() {
                self.storage.use_on(stream.raw_arc());
            }
        }
        let mut tensor = self.clone();
        tensor.desc.device = device.clone();
        Ok(tensor)
    }

    /// A contiguous copy on another device, through the host; on its own device this tensor itself, as by
    /// [`Tensor::on`].
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device().same_device(device) {
            return self.on(device);
        }
        Tensor::from_bytes(device, self.dtype(), self.shape(), &self.to_bytes()?)
    }
}
