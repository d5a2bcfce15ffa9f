//! Allocation: stream-ordered where the device can, and a cache of blocks for graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuda_driver::sys;

use super::buffer::DeviceBuffer;
use super::capture::{Capture, Relaxed};
use super::context::Context;
use super::event::Event;
use super::lock;
use super::status::check;
use super::stream::Stream;
use crate::error::{Error, Result};

const SMALL: usize = 1 << 20;
/// Blocks up to `SMALL` are multiples of this; it is the driver's own alignment.
const SMALL_STEP: usize = 512;
/// Larger ones are multiples of this, the size of the driver's pages.
const LARGE_STEP: usize = 2 << 20;

/// The size of the cached block that serves `bytes`; `None` past the address space.
fn block_size(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(if bytes <= SMALL { SMALL_STEP } else { LARGE_STEP })
}

/// Whether a block of `size` may serve a request for `wanted` without wasting more than a quarter.
pub(super) fn fits(size: usize, wanted: usize) -> bool {
    size >= wanted && size - wanted <= wanted / 4
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// Not ours to free, or null.
    Borrowed,
    /// From the device's pool.
    Pool,
    /// From `cuMemAlloc`; goes back to the context's free blocks.
    Cache,
}

/// A piece of device memory; a buffer owns it, and perhaps a graph that uses it.
#[derive(Debug)]
pub(super) struct Block {
    stream: Arc<Stream>,
    ptr: u64,
    size: usize,
    origin: Origin,
}

impl Block {
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(super) fn borrowed(stream: &Arc<Stream>, ptr: u64, size: usize) -> Self {
        Self { stream: stream.clone(), ptr, size, origin: Origin::Borrowed }
    }

    pub(super) fn ptr(&self) -> u64 {
        self.ptr
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn is_borrowed(&self) -> bool {
        self.origin == Origin::Borrowed
    }
}

impl Drop for Block {
    /// `capture::release` has made sure that the stream is not being captured.
    fn drop(&mut self) {
        let context = self.stream.context();
        match self.origin {
            Origin::Borrowed => {}
            Origin::Pool => {
                if context.make_current().is_ok() {
                    // SAFETY: allocated on this stream, and nobody else knows of it any more; work queued
                    // on the stream runs before the memory is given away. No error can be reported.
                    unsafe { sys::cuMemFreeAsync(self.ptr, self.stream.raw()) };
                }
            }
            Origin::Cache => {
                let ready =
                    Event::untimed(context).and_then(|event| event.record(&self.stream).map(|()| event));
                // Without the event nobody could know when the block is free: then it is lost.
                if let Ok(ready) = ready {
                    lock(&context.free_blocks)
                        .put(self.size, FreeBlock { ptr: self.ptr, ready: Some(ready) });
                }
            }
        }
    }
}

/// A block that waits for its next use.
#[derive(Debug)]
struct FreeBlock {
    ptr: u64,
    /// Reached when its last use is over.
    ready: Option<Event>,
}

/// Free blocks by size.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    by_size: BTreeMap<usize, Vec<FreeBlock>>,
}

impl FreeBlocks {
    fn put(&mut self, size: usize, block: FreeBlock) {
        self.by_size.entry(size).or_default().push(block);
    }

    /// The smallest block that fits.
    fn take(&mut self, wanted: usize) -> Option<(usize, FreeBlock)> {
        let (&size, blocks) =
            self.by_size.range_mut(wanted..).next().filter(|&(&size, _)| fits(size, wanted))?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.by_size.remove(&size);
        }
        Some((size, block?))
    }
}

impl Context {
    /// Memory for `bytes` bytes, uninitialised, ordered on `stream`: usable by work given to that stream
    /// from now on, and given back once the work given to it before the drop is done.
    pub fn alloc(self: &Arc<Self>, bytes: usize, stream: &Arc<Stream>) -> Result<DeviceBuffer> {
        self.expect_same(stream.context(), "alloc", "stream")?;
        if bytes == 0 {
            return Ok(DeviceBuffer::borrowed(stream, 0, 0));
        }
        self.make_current()?;
        let block = match Capture::of(stream)? {
            Capture::None => match self.pool {
                Some(_) => self.alloc_from_pool(bytes, stream)?,
                None => Arc::new(self.alloc_cached(bytes, stream, Capture::None)?),
            },
            Capture::Ours(id) => {
                let size = block_size(bytes).ok_or_else(|| self.out_of_memory(bytes))?;
                match self.captures.reuse(id, stream, size) {
                    Some(block) => block,
                    None => {
                        let block = Arc::new(self.alloc_cached(bytes, stream, Capture::Ours(id))?);
                        self.captures.keep(id, &block, true);
                        block
                    }
                }
            }
            Capture::Foreign => {
                let reason = "the stream is being captured by someone else; allocate before the capture";
                return Err(Error::State { op: "alloc", reason });
            }
        };
        Ok(DeviceBuffer::new(block, bytes))
    }

    /// In whole packs of 16 bytes: kernels copy the last few bytes of a tensor by asking for the first few of a pack, which
    /// tools that watch memory take for the whole pack.
    fn alloc_from_pool(&self, bytes: usize, stream: &Arc<Stream>) -> Result<Arc<Block>> {
        let mut ptr = 0;
        let bytes = bytes.checked_next_multiple_of(16).ok_or_else(|| self.out_of_memory(bytes))?;
        self.allocate("cuMemAllocAsync", bytes, Some(stream), || {
            // SAFETY: `ptr` is a valid place for the result, the stream is alive.
            unsafe { sys::cuMemAllocAsync(&mut ptr, bytes, stream.raw()) }
        })?;
        Ok(Arc::new(Block { stream: stream.clone(), ptr, size: bytes, origin: Origin::Pool }))
    }

    /// A block that no graph's memory node owns: from the free blocks, else from `cuMemAlloc`.
    fn alloc_cached(&self, bytes: usize, stream: &Arc<Stream>, capture: Capture) -> Result<Block> {
        let size = block_size(bytes).ok_or_else(|| self.out_of_memory(bytes))?;
        let _relaxed = Relaxed::enter();
        let free = lock(&self.free_blocks).take(size);
        if let Some((size, free)) = free {
            // From here on the block goes back to the cache by itself if something fails.
            let block = Block { stream: stream.clone(), ptr: free.ptr, size, origin: Origin::Cache };
            match (free.ready, capture) {
                (Some(ready), Capture::None) => stream.wait(&ready)?,
                // A capture cannot wait for work outside of it.
                (Some(ready), _) => ready.synchronize()?,
                (None, _) => {}
            }
            return Ok(block);
        }
        let mut ptr = 0;
        let idle_stream = (capture == Capture::None).then_some(stream);
        self.allocate("cuMemAlloc", size, idle_stream, || {
            // SAFETY: `ptr` is a valid place for the result.
            unsafe { sys::cuMemAlloc_v2(&mut ptr, size) }
        })?;
        Ok(Block { stream: stream.clone(), ptr, size, origin: Origin::Cache })
    }

    /// Calls `attempt`, and once more with all unused memory given back if there was not enough.
    fn allocate(
        &self,
        call: &'static str,
        bytes: usize,
        stream: Option<&Arc<Stream>>,
        mut attempt: impl FnMut() -> sys::CUresult,
    ) -> Result<()> {
        let mut code = attempt();
        if code == sys::CUDA_ERROR_OUT_OF_MEMORY {
            // What was freed on the stream is only free once the stream gets there.
            stream.map_or(Ok(()), |stream| stream.synchronize())?;
            self.trim()?;
            code = attempt();
        }
        if code == sys::CUDA_ERROR_OUT_OF_MEMORY { Err(self.out_of_memory(bytes)) } else { check(call, code) }
    }

    #[cold]
    fn out_of_memory(&self, requested: usize) -> Error {
        let (free, total) = self.free_and_total().unwrap_or((0, self.info().total_memory));
        Error::OutOfMemory { device: self.label(), requested, free, total }
    }

    /// Gives memory that is kept for later back to the device.
    pub fn trim(&self) -> Result<()> {
        self.make_current()?;
        let _relaxed = Relaxed::enter();
        let free = std::mem::take(&mut *lock(&self.free_blocks));
        for block in free.by_size.into_values().flatten() {
            block.ready.map_or(Ok(()), |ready| ready.synchronize())?;
            // SAFETY: the block came from `cuMemAlloc`, its last use is over, and only the list knew it.
            check("cuMemFree", unsafe { sys::cuMemFree_v2(block.ptr) })?;
        }
        let Some(pool) = self.pool else { return Ok(()) };
        // SAFETY: the device's default pool always exists.
        check("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool.0, 0) })
    }

    /// Memory that somebody else owns; it is never freed here.
    ///
    /// # Safety
    ///
    /// `ptr` is the address of `bytes` bytes that this context can access, and stays so until the result
    /// and every graph captured with it are dropped.
    pub unsafe fn foreign_memory(self: &Arc<Self>, ptr: u64, bytes: usize) -> DeviceBuffer {
        DeviceBuffer::borrowed(self.default_stream(), ptr, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_rounded_to_the_step_of_their_class() {
        assert_eq!(block_size(1), Some(512));
        assert_eq!(block_size(513), Some(1024));
        assert_eq!(block_size(SMALL), Some(SMALL));
        assert_eq!(block_size(SMALL + 1), Some(LARGE_STEP));
        assert_eq!(block_size(usize::MAX), None);
    }

    #[test]
    fn the_smallest_free_block_that_fits_is_taken_once() {
        let mut free = FreeBlocks::default();
        for (size, ptr) in [(4096, 1), (5120, 2), (8192, 3)] {
            free.put(size, FreeBlock { ptr, ready: None });
        }
        let mut take = |wanted| free.take(wanted).map(|(size, block)| (size, block.ptr));
        assert_eq!(take(2048), None, "half of the smallest block would be wasted");
        assert_eq!(take(4096), Some((4096, 1)));
        assert_eq!(take(4096), Some((5120, 2)), "a quarter more is allowed");
        assert_eq!(take(4096), None);
        assert_eq!(take(8193), None);
        assert_eq!(take(8192), Some((8192, 3)));
    }
}
