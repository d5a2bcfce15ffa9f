//! Buffers: ranges of device memory that are copied, filled and dropped.

use std::sync::Arc;

use cuda_driver::sys;

use super::capture;
use super::context::Context;
use super::memory::Block;
use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};

/// A range of device memory.
#[derive(Debug)]
pub struct DeviceBuffer {
    block: Arc<Block>,
    ptr: u64,
    bytes: usize,
}

impl DeviceBuffer {
    pub(super) fn new(block: Arc<Block>, bytes: usize) -> Self {
        Self { ptr: block.ptr(), bytes, block }
    }

    pub(super) fn borrowed(stream: &Arc<Stream>, ptr: u64, bytes: usize) -> Self {
        Self::new(Arc::new(Block::borrowed(stream, ptr, bytes)), bytes)
    }

    /// The address on the device; 0 for an empty buffer.
    #[inline]
    pub fn ptr(&self) -> u64 {
        self.ptr
    }

    /// The size that was asked for.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The context that the memory belongs to.
    #[inline]
    pub fn context(&self) -> &Arc<Context> {
        self.block.stream().context()
    }

    /// If `stream` is being captured, makes the graph keep this memory alive. To be called for every
    /// buffer that captured work uses; costs next to nothing outside of a capture.
    #[inline]
    pub fn keep_for(&self, stream: &Stream) -> Result<()> {
        capture::keep_for(&self.block, stream)
    }

    /// Sees to it that nobody gets the memory, once the buffer is dropped, before another stream is done with it.
    pub fn order_behind(&self, guest: &Stream) -> Result<()> {
        capture::order_behind(&self.block, guest)
    }

    /// Copies `src` to the device, from byte `offset` on. Returns when `src` has been read.
    pub fn upload(&self, offset: usize, src: &[u8], stream: &Stream) -> Result<()> {
        let dst = self.range("upload", offset, src.len())?;
        self.ready("upload", stream)?;
        stream
            .expect_no_capture("upload", "the stream is being captured, and host memory may change later")?;
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges are valid, and `src` is borrowed until the stream has done the copy.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(dst, src.as_ptr().cast(), src.len(), stream.raw()) };
        check("cuMemcpyHtoDAsync", code)?;
        stream.synchronize()
    }

    /// Copies bytes from `offset` on to the host, after the work given to `stream` so far.
    pub fn download(&self, offset: usize, dst: &mut [u8], stream: &Stream) -> Result<()> {
        let src = self.range("download", offset, dst.len())?;
        self.ready("download", stream)?;
        stream.expect_no_capture("download", "the stream is being captured: there are no values yet")?;
        if dst.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges are valid, and `dst` is borrowed until the stream has done the copy.
        let code =
            unsafe { sys::cuMemcpyDtoHAsync_v2(dst.as_mut_ptr().cast(), src, dst.len(), stream.raw()) };
        check("cuMemcpyDtoHAsync", code)?;
        stream.synchronize()
    }

    /// Sets `bytes` bytes from `offset` on, in stream order.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8, stream: &Stream) -> Result<()> {
        let dst = self.range("fill", offset, bytes)?;
        self.ready("fill", stream)?;
        if bytes == 0 {
            return Ok(());
        }
        self.keep_for(stream)?;
        // SAFETY: the range is valid.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(dst, value, bytes, stream.raw()) })
    }

    /// Copies between two buffers, perhaps of two devices, in the order of `stream`, which belongs to the
    /// device of `self`.
    pub fn copy_from(
        &self,
        dst_offset: usize,
        src: &DeviceBuffer,
        src_offset: usize,
        bytes: usize,
        stream: &Stream,
    ) -> Result<()> {
        let to = self.range("copy", dst_offset, bytes)?;
        let from = src.range("copy", src_offset, bytes)?;
        self.ready("copy", stream)?;
        if bytes == 0 {
            return Ok(());
        }
        if to.abs_diff(from) < bytes as u64 {
            let (required, got) = ("apart from the destination".into(), "an overlapping range".into());
            return Err(Error::Parameter { op: "copy", arg: "src", required, got });
        }
        self.keep_for(stream)?;
        src.keep_for(stream)?;
        if Arc::ptr_eq(self.context(), src.context()) {
            // SAFETY: both ranges are valid and apart.
            let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) };
            return check("cuMemcpyDtoDAsync", code);
        }
        let (to_context, from_context) = (self.context().raw(), src.context().raw());
        // SAFETY: both ranges are valid in their contexts.
        let code = unsafe { sys::cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream.raw()) };
        check("cuMemcpyPeerAsync", code)
    }

    /// The address of a range that must lie within the buffer.
    fn range(&self, op: &'static str, offset: usize, bytes: usize) -> Result<u64> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(self.ptr + offset as u64);
        }
        let got = format!("{offset} + {bytes}");
        Err(Error::TooLarge { op, what: "offset + bytes", limit: self.bytes as u64, got })
    }

    fn ready(&self, op: &'static str, stream: &Stream) -> Result<()> {
        self.context().expect_same(stream.context(), op, "stream")?;
        self.context().make_current()
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        capture::release(self.block.clone());
    }
}
