//! What becomes of memory while a stream is captured.
//!
//! Captured work runs later, and again at each launch of the graph, so the memory it uses has to live as
//! long as the graph. Each open capture therefore keeps a list of blocks: those allocated for it, those
//! dropped during it, and those that a launch names through `DeviceBuffer::keep_for`. The graph takes the
//! list over. A block that was allocated for a capture and dropped in it serves the next allocation of the
//! same stream: captured work of one stream runs in the order of the capture.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_driver::sys;

use super::context::Context;
use super::lock;
use super::memory::{Block, fits};
use super::status::check;
use super::stream::Stream;
use crate::error::Result;

/// What a stream's work is being recorded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// It is not: it runs.
    None,
    /// For a capture that `Graph::capture` began; the driver's number of it.
    Ours(u64),
    /// For somebody else's, or for one that is lost.
    Foreign,
}

impl Capture {
    pub(super) fn of(stream: &Stream) -> Result<Self> {
        Ok(match stream.capture()? {
            (sys::CU_STREAM_CAPTURE_STATUS_NONE, _) => Self::None,
            (sys::CU_STREAM_CAPTURE_STATUS_ACTIVE, id) if stream.context().captures.is_open(id) => {
                Self::Ours(id)
            }
            _ => Self::Foreign,
        })
    }
}

#[derive(Debug)]
struct Kept {
    block: Arc<Block>,
    /// Allocated for this capture, so that all its uses are in the capture.
    allocated_here: bool,
    /// Its buffer was dropped: the next allocation may have it.
    idle: bool,
}

/// The captures of a context that are under way.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// How many there are, so that launches outside of captures take no lock.
    count: AtomicUsize,
    kept: Mutex<HashMap<u64, Vec<Kept>>>,
}

thread_local! {
    /// The innermost capture whose closure this thread is in: address of the context, number.
    static INNERMOST: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

impl Captures {
    fn is_open(&self, id: u64) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.kept).contains_key(&id)
    }

    /// Registers a capture; the result is to be given to `close`.
    pub(super) fn open(&self, context: &Context, id: u64) -> Option<(usize, u64)> {
        lock(&self.kept).insert(id, Vec::new());
        self.count.fetch_add(1, Ordering::AcqRel);
        INNERMOST.replace(Some((ptr::from_ref(context).addr(), id)))
    }

    /// Ends what `open` began and gives the blocks that the graph has to keep.
    pub(super) fn close(&self, id: u64, outer: Option<(usize, u64)>) -> Vec<Arc<Block>> {
        INNERMOST.set(outer);
        let kept = lock(&self.kept).remove(&id);
        self.count.fetch_sub(1, Ordering::AcqRel);
        kept.into_iter().flatten().map(|kept| kept.block).collect()
    }

    /// A block of at least `size` bytes that this capture has done with on `stream`.
    pub(super) fn reuse(&self, id: u64, stream: &Stream, size: usize) -> Option<Arc<Block>> {
        let mut captures = lock(&self.kept);
        let best = captures
            .get_mut(&id)?
            .iter_mut()
            .filter(|kept| kept.idle && kept.block.stream().raw() == stream.raw())
            .filter(|kept| fits(kept.block.size(), size))
            .min_by_key(|kept| kept.block.size())?;
        best.idle = false;
        Some(best.block.clone())
    }

    /// Keeps a block for the graph of capture `id`.
    pub(super) fn keep(&self, id: u64, block: &Arc<Block>, allocated_here: bool) {
        if let Some(kept) = lock(&self.kept).get_mut(&id)
            && !kept.iter().any(|kept| Arc::ptr_eq(&kept.block, block))
        {
            kept.push(Kept { block: block.clone(), allocated_here, idle: false });
        }
    }

    /// Notes that the buffer of a block was dropped during capture `id`.
    fn keep_dropped(&self, id: u64, block: &Arc<Block>) {
        self.keep(id, block, false);
        if let Some(kept) = lock(&self.kept).get_mut(&id)
            && let Some(kept) = kept.iter_mut().find(|kept| Arc::ptr_eq(&kept.block, block))
        {
            kept.idle = kept.allocated_here;
        }
    }
}

/// Keeps `block` for the graph if `stream` is being captured.
pub(super) fn keep_for(block: &Arc<Block>, stream: &Stream) -> Result<()> {
    let captures = &stream.context().captures;
    if captures.count.load(Ordering::Acquire) == 0 || block.is_borrowed() {
        return Ok(());
    }
    if let Capture::Ours(id) = Capture::of(stream)? {
        captures.keep(id, block, false);
    }
    Ok(())
}

/// Sees to it that a block that is about to be given up goes to nobody before `guest` is done with it, another stream than its own.
pub(super) fn order_behind(block: &Arc<Block>, guest: &Stream) -> Result<()> {
    let home = block.stream();
    match (Capture::of(guest)?, Capture::of(home)?) {
        // `release` never gives it up.
        (_, Capture::Foreign) => Ok(()),
        // Somebody else's graph may use it for as long as the process runs.
        (Capture::Foreign, _) => {
            std::mem::forget(block.clone());
            Ok(())
        }
        // Both run, or both are recorded for one graph, which gets the order as an edge.
        (there, here) if there == here => home.wait(&guest.record()?),
        // What the guest was given before is no part of the graph.
        (Capture::None, Capture::Ours(_)) => {
            let _relaxed = Relaxed::enter();
            guest.synchronize()
        }
        // The guest's graph keeps it; that no other allocation of a capture gets it is all there is to do.
        _ => {
            let mut captures = lock(&home.context().captures.kept);
            let all = captures.values_mut().flatten();
            all.filter(|kept| Arc::ptr_eq(&kept.block, block)).for_each(|kept| kept.allocated_here = false);
            Ok(())
        }
    }
}

/// Gives up a block: at once, or with the graph that the open capture is going to give.
pub(super) fn release(block: Arc<Block>) {
    if block.is_borrowed() {
        return;
    }
    let context = block.stream().context();
    // Inside of a capture's closure the block may be used by what was captured, whatever its stream.
    let innermost = INNERMOST.get().filter(|&(address, _)| address == Arc::as_ptr(context).addr());
    let capture = match innermost {
        Some((_, id)) => Ok(Capture::Ours(id)),
        None => Capture::of(block.stream()),
    };
    match capture {
        Ok(Capture::None) => drop(block),
        Ok(Capture::Ours(id)) => context.captures.keep_dropped(id, &block),
        // Whoever captures may use the block in a graph for as long as the process runs; and a context
        // that answers with an error is past saving. Memory that is never freed is the safe outcome.
        Ok(Capture::Foreign) | Err(_) => std::mem::forget(block),
    }
}

/// While it lives, other people's captures do not forbid this thread to allocate, free or load.
///
/// That is sound where these calls are not part of what is captured, as here.
pub(super) struct Relaxed {
    previous: u32,
}

impl Relaxed {
    pub(super) fn enter() -> Self {
        Self { previous: exchange(sys::CU_STREAM_CAPTURE_MODE_RELAXED) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        exchange(self.previous);
    }
}

fn exchange(mut mode: u32) -> u32 {
    // SAFETY: `mode` is a valid place for the result. On an error, which only a missing driver could give,
    // it is left as it is.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    mode
}
