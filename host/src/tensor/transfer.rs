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

    /// Overwrites the elements with those of a tensor of the same shape, type and device, by the driver's own
    /// copy in the order of this tensor's stream. Both are contiguous and apart; a capture records the copy.
    pub fn copy_from(&self, source: &Tensor) -> Result<()> {
        let (op, arg) = ("Tensor::copy_from", "source");
        if source.shape() != self.shape() {
            let (required, got) = (format!("{:?}", self.shape()), source.shape().to_vec());
            return Err(Error::Shape { op, arg, required, got });
        }
        if source.dtype() != self.dtype() {
            let (required, got) = (self.dtype().to_string(), source.dtype());
            return Err(Error::DType { op, arg, required, got });
        }
        for (arg, tensor) in [("self", self), (arg, source)] {
            if !tensor.is_contiguous() {
                let got = tensor.strides().iter().map(|&stride| stride as i64).collect();
                return Err(Error::Strides { op, arg, required: "contiguous elements", got });
            }
        }
        let here = source.adopted(self.device(), op, arg)?;
        let (to, from) = (self.byte_range(), source.byte_range());
        if to.start < from.end && from.start < to.end {
            let (required, got) =
                ("memory apart from the source's".into(), format!("{:#x}..{:#x}", to.start, to.end));
            return Err(Error::Parameter { op, arg: "self", required, got });
        }
        let (to, from) = (self.storage_range(), here.storage_range());
        self.storage.copy_from(to.start, &here.storage, from.start, to.len(), self.device())?;
        // What overwrites the source later waits for the copy.
        source.device().wait_for(self.device(), op)
    }
}
