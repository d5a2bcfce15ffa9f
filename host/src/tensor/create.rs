//! New tensors.

use std::sync::Arc;

use super::{Desc, Tensor};
use crate::device::{Device, Kind};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::shape::{self, Dims};
use crate::storage::{CudaStorage, Storage};

impl Tensor {
    fn allocate(op: &'static str, device: &Device, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let desc = Desc::contiguous(op, device, dtype, shape)?;
        let storage = Arc::new(Storage::uninit(device, desc.bytes())?);
        Ok(Tensor { storage, desc, offset: 0 })
    }

    /// A tensor whose elements nothing has written: what they are is not defined, and on the CPU a kernel
    /// that reads them is reported.
    pub fn uninit(device: &Device, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::allocate("Tensor::uninit", device, dtype, shape)
    }

    /// A tensor of zeros.
    pub fn zeros(device: &Device, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::full_bytes("Tensor::zeros", device, dtype, shape, 0)
    }

    /// A tensor whose every byte is `byte`. 0xff makes NaN of floats and -1 of integers.
    pub(crate) fn full_bytes(
        op: &'static str,
        device: &Device,
        dtype: DType,
        shape: &[usize],
        byte: u8,
    ) -> Result<Tensor> {
        let tensor = Tensor::allocate(op, device, dtype, shape)?;
        tensor.storage.fill(byte, device)?;
        Ok(tensor)
    }

    /// A tensor of the given elements, in row-major order.
    pub fn from_slice<T: Element>(device: &Device, shape: &[usize], data: &[T]) -> Result<Tensor> {
        // SAFETY: elements are plain numbers without padding.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) };
        Tensor::from_checked_bytes("Tensor::from_slice", device, T::DTYPE, shape, bytes)
    }

    /// A tensor of elements given by their bytes, in row-major order and little-endian. Any byte but 0 is
    /// true.
    pub fn from_bytes(device: &Device, dtype: DType, shape: &[usize], data: &[u8]) -> Result<Tensor> {
        let op = "Tensor::from_bytes";
        if dtype == DType::Bool && data.iter().any(|&byte| byte > 1) {
            let bools: Vec<u8> = data.iter().map(|&byte| u8::from(byte != 0)).collect();
            return Tensor::from_checked_bytes(op, device, dtype, shape, &bools);
        }
        Tensor::from_checked_bytes(op, device, dtype, shape, data)
    }

    fn from_checked_bytes(
        op: &'static str,
        device: &Device,
        dtype: DType,
        shape: &[usize],
        data: &[u8],
    ) -> Result<Tensor> {
        let desc = Desc::contiguous(op, device, dtype, shape)?;
        if data.len() != desc.bytes() {
            let required = format!("[{}], the elements of {shape:?}", desc.len());
            let got = vec![data.len() / dtype.size()];
            return Err(Error::Shape { op, arg: "data", required, got });
        }
        let storage = Storage::uninit(device, data.len())?;
        storage.write(0, data, device)?;
        Ok(Tensor { storage: Arc::new(storage), desc, offset: 0 })
    }

    /// A tensor in memory of a GPU that somebody else owns. `strides` count elements.
    ///
    /// # Safety
    /// Every element is in memory that the device's primary context can access, until the result, all its
    /// views and all graphs captured with them are dropped and the device is synchronised. The owner's
    /// work on it is ordered with the device's stream.
    pub unsafe fn from_foreign(
        device: &Device,
        address: u64,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Tensor> {
        let op = "Tensor::from_foreign";
        let Kind::Cuda(gpu, stream) = device.kind() else {
            return Err(Error::State {
                op,
                reason: "the checker of the CPU device takes its own memory only",
            });
        };
        let size = dtype.size();
        let mut desc = Desc::contiguous(op, device, dtype, shape)?;
        let parameter = |arg, required: String, got: String| Error::Parameter { op, arg, required, got };
        desc.strides = match Dims::from_slice(strides) {
            Some(strides) if strides.len() == shape.len() => strides,
            _ => {
                let required = format!("as many numbers as `shape`, {}", shape.len());
                return Err(parameter("strides", required, strides.len().to_string()));
            }
        };
        if !address.is_multiple_of(size as u64) {
            return Err(parameter("address", format!("a multiple of {size}"), format!("{address:#x}")));
        }
        let (start, bytes) = if desc.is_empty() {
            (address, 0)
        } else {
            let range = shape::reach(shape, strides).and_then(|(low, high)| {
                let start = address.checked_add_signed(low.checked_mul(size as isize)? as i64)?;
                let end =
                    address.checked_add_signed(high.checked_add(1)?.checked_mul(size as isize)? as i64)?;
                Some((start, usize::try_from(end - start).ok()?))
            });
            range.ok_or_else(|| {
                let required = "such that all addresses fit 64 bits".into();
                parameter("strides", required, format!("{strides:?}"))
            })?
        };
        // SAFETY: the caller's contract.
        let buffer = unsafe { gpu.context.foreign_memory(start, bytes) };
        let storage = Storage::Cuda(CudaStorage::new(buffer, stream.raw_arc()));
        Ok(Tensor { storage: Arc::new(storage), desc, offset: (address - start) as usize })
    }
}
