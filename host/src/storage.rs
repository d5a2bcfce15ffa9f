//! The memory behind tensors.

use std::sync::{Arc, Mutex, PoisonError};

use simt::Memory;

use crate::cuda;
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use cuda_std::global::RawView;

/// What the CPU copies at a time.
const COPY_CHUNK: usize = 1 << 20;

/// An allocation, on either device. Tensors share it.
pub(crate) enum Storage {
    Cpu(Memory),
    Cuda(CudaStorage),
}

/// Device memory, which goes back to the stream it was allocated on.
pub(crate) struct CudaStorage {
    buffer: cuda::DeviceBuffer,
    stream: Arc<cuda::Stream>,
    /// Other streams that use it.
    guests: Mutex<Vec<Arc<cuda::Stream>>>,
}

impl Storage {
    pub fn uninit(device: &Device, bytes: usize) -> Result<Storage> {
        match device.kind() {
            Kind::Cpu(..) => match Memory::try_uninit(bytes) {
                Some(memory) => Ok(Storage::Cpu(memory)),
                None => Err(out_of_memory(device.to_string(), bytes)),
            },
            Kind::Cuda(gpu, stream) => {
                let buffer = gpu.context.alloc(bytes, stream.raw_arc())?;
                Ok(Storage::Cuda(CudaStorage::new(buffer, stream.raw_arc())))
            }
        }
    }

    /// The address of the first byte; 0 or dangling where there are none.
    pub fn address(&self) -> u64 {
        match self {
            Storage::Cpu(memory) => memory.as_ptr() as u64,
            Storage::Cuda(cuda) => cuda.buffer.ptr(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Storage::Cpu(memory) => memory.len(),
            Storage::Cuda(cuda) => cuda.buffer.bytes(),
        }
    }

    /// What a kernel sees from byte `offset` on. `device` is the one whose stream uses it.
    pub fn view(&self, offset: usize, device: &Device) -> Result<RawView> {
        let bytes = self.bytes().saturating_sub(offset);
        match (self, device.kind()) {
            (Storage::Cpu(memory), _) => Ok(RawView::checked(memory, offset, bytes)),
            (Storage::Cuda(cuda), kind) => {
                if let Kind::Cuda(_, stream) = kind {
                    cuda.buffer.keep_for(stream.raw_arc())?;
                }
                Ok(RawView::device(cuda.buffer.ptr() + offset as u64, bytes))
            }
        }
    }

    /// Writes bytes from `offset` on; they have been read when this returns.
    pub fn write(&self, offset: usize, data: &[u8], device: &Device) -> Result<()> {
        check_range("write", offset, data.len(), self.bytes())?;
        match (self, device.kind()) {
            (Storage::Cpu(memory), _) => memory.write(offset, data),
            (Storage::Cuda(cuda), Kind::Cuda(_, stream)) => {
                cuda.buffer.upload(offset, data, stream.raw_arc())?
            }
            (Storage::Cuda(_), Kind::Cpu(..)) => return Err(not_on_cpu("write")),
        }
        Ok(())
    }

    /// Reads bytes from `offset` on, after the work given to the device's stream so far.
    pub fn read(&self, offset: usize, data: &mut [u8], device: &Device) -> Result<()> {
        check_range("read", offset, data.len(), self.bytes())?;
        match (self, device.kind()) {
            (Storage::Cpu(memory), _) => memory.read(offset, data),
            (Storage::Cuda(cuda), Kind::Cuda(_, stream)) => {
                cuda.buffer.download(offset, data, stream.raw_arc())?
            }
            (Storage::Cuda(_), Kind::Cpu(..)) => return Err(not_on_cpu("read")),
        }
        Ok(())
    }

    /// Copies bytes of memory of the same device, in the order of the device's stream; the ranges are apart.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Storage,
        source_offset: usize,
        bytes: usize,
        device: &Device,
    ) -> Result<()> {
        match (self, source, device.kind()) {
            (Storage::Cuda(to), Storage::Cuda(from), Kind::Cuda(_, stream)) => {
                to.buffer.copy_from(offset, &from.buffer, source_offset, bytes, stream.raw_arc())
            }
            (Storage::Cpu(to), Storage::Cpu(from), _) => {
                check_range("copy", offset, bytes, to.len())?;
                check_range("copy", source_offset, bytes, from.len())?;
                to.copy_from(offset, from, source_offset, bytes);
                Ok(())
            }
            _ => {
                check_range("copy", offset, bytes, self.bytes())?;
                let mut chunk = vec![0; bytes.min(COPY_CHUNK)];
                for start in (0..bytes).step_by(COPY_CHUNK) {
                    let part = &mut chunk[..COPY_CHUNK.min(bytes - start)];
                    source.read(source_offset + start, part, device)?;
                    self.write(offset + start, part, device)?;
                }
                Ok(())
            }
        }
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8, device: &Device) -> Result<()> {
        match (self, device.kind()) {
            (Storage::Cpu(memory), _) => {
                let chunk = [value; 1 << 14];
                for start in (0..memory.len()).step_by(chunk.len()) {
                    memory.write(start, &chunk[..chunk.len().min(memory.len() - start)]);
                }
            }
            (Storage::Cuda(cuda), Kind::Cuda(_, stream)) => {
                cuda.buffer.fill(0, cuda.buffer.bytes(), value, stream.raw_arc())?
            }
            (Storage::Cuda(_), Kind::Cpu(..)) => return Err(not_on_cpu("fill")),
        }
        Ok(())
    }

    /// Makes the memory outlive what `stream` does with it.
    pub fn use_on(&self, stream: &Arc<cuda::Stream>) {
        if let Storage::Cuda(cuda) = self {
            let mut guests = cuda.guests.lock().unwrap_or_else(PoisonError::into_inner);
            // Another stream may have come in the place of one that has ended.
            guests.retain(|guest| !guest.has_ended());
            let known = |other: &Arc<cuda::Stream>| other.raw() == stream.raw();
            if !known(&cuda.stream) && !guests.iter().any(known) {
                guests.push(stream.clone());
            }
        }
    }
}

impl CudaStorage {
    pub fn new(buffer: cuda::DeviceBuffer, stream: &Arc<cuda::Stream>) -> CudaStorage {
        CudaStorage { buffer, stream: stream.clone(), guests: Mutex::default() }
    }
}

impl Drop for CudaStorage {
    /// The buffer goes back in the order of its own stream, so that stream waits for the others first.
    fn drop(&mut self) {
        let guests = std::mem::take(self.guests.get_mut().unwrap_or_else(PoisonError::into_inner));
        for guest in guests.iter().filter(|guest| !guest.has_ended()) {
            if self.buffer.order_behind(guest).is_err() {
                // The device is past saving, or nearly: waiting is all that is left.
                let _ = guest.synchronize();
            }
        }
    }
}

fn check_range(op: &'static str, offset: usize, bytes: usize, size: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::TooLarge {
        op,
        what: "offset + bytes",
        limit: size as u64,
        got: format!("{offset} + {bytes}"),
    })
}

#[cold]
fn not_on_cpu(op: &'static str) -> Error {
    Error::DeviceMismatch { op, arg: "tensor", required: "cpu".into(), got: "cuda".into() }
}

/// The machine has not enough memory for `device`, the CPU or the host's side of a copy.
#[cold]
pub(crate) fn out_of_memory(device: String, requested: usize) -> Error {
    let (free, total) = host_memory().unwrap_or((0, 0));
    Error::OutOfMemory { device, requested, free, total }
}

/// Free and total bytes of the machine, where it tells.
fn host_memory() -> Option<(usize, usize)> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<usize>().ok()
    };
    Some((field("MemAvailable")?.checked_mul(1024)?, field("MemTotal")?.checked_mul(1024)?))
}
