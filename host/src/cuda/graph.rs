//! Graphs: work captured once, launched many times.

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex};

use cuda_driver::sys;

use super::capture::{self, Relaxed};
use super::context::Context;
use super::event::Event;
use super::memory::Block;
use super::status::check;
use super::stream::Stream;
use super::{Handle, lock};
use crate::error::Result;

/// Work that was captured from a stream.
///
/// It owns the memory that was allocated or dropped during the capture, or named through
/// `DeviceBuffer::keep_for`. Dropping it waits until its last launch is done.
pub struct Graph {
    context: Arc<Context>,
    /// Locked for a launch: the driver does not do so.
    exec: Mutex<Handle>,
    nodes: usize,
    blocks: Vec<Arc<Block>>,
    /// Behind the last launch; launches of one graph run one after the other.
    launched: Event,
    retained: Vec<Box<dyn Any + Send + Sync>>,
}

impl Graph {
    /// Records what `f` gives to `stream`, without running it.
    ///
    /// Buffers allocated in `f` hold what the last launch wrote. If `f` fails or panics, the capture ends
    /// and nothing is left of it. `f` may also give work to other streams that wait for an event of
    /// `stream`, if `stream` waits for them in the end.
    pub fn capture(stream: &Arc<Stream>, f: impl FnOnce() -> Result<()>) -> Result<Self> {
        stream.expect_no_capture("Graph::capture", "the stream is already being captured")?;
        let context = stream.context();
        let launched = Event::untimed(context)?;
        // Memory that the stream was given to read, and that is dropped during the capture, could not wait for it any more.
        {
            let _relaxed = Relaxed::enter();
            stream.synchronize()?;
        }
        let session = Session::begin(stream)?;
        f()?;
        let (captured, blocks) = session.end()?;
        let instance = captured.instantiate();
        match instance {
            Ok((exec, nodes)) => Ok(Self {
                context: context.clone(),
                exec: Mutex::new(exec),
                nodes,
                blocks,
                launched,
                retained: Vec::new(),
            }),
            Err(error) => {
                blocks.into_iter().for_each(capture::release);
                Err(error)
            }
        }
    }

    /// Gives the captured work to a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.expect_same(stream.context(), "Graph::launch", "stream")?;
        let reason = "the stream is being captured, and a graph does not go into another one";
        stream.expect_no_capture("Graph::launch", reason)?;
        let exec = lock(&self.exec);
        // SAFETY: the graph is alive and launched by this thread alone, its memory is kept by `self`.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(exec.0, stream.raw()) })?;
        self.launched.record(stream)
    }

    /// The number of captured operations.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// Keeps something alive as long as the graph, such as the tensors that its work reads.
    pub fn retain(&mut self, owner: impl Any + Send + Sync) {
        self.retained.push(Box::new(owner));
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").field("nodes", &self.nodes).field("blocks", &self.blocks.len()).finish()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _relaxed = Relaxed::enter();
        // Memory that is still being used must not be given away. If the wait fails, the context is lost
        // and runs nothing any more.
        let _ = self.launched.synchronize();
        // SAFETY: nobody else has the graph, and it is not running.
        unsafe { sys::cuGraphExecDestroy(lock(&self.exec).0) };
        self.blocks.drain(..).for_each(capture::release);
    }
}

/// A capture under way; dropped early, it is thrown away.
struct Session<'a> {
    stream: &'a Stream,
    id: u64,
    outer: Option<(usize, u64)>,
    ended: bool,
}

impl<'a> Session<'a> {
    fn begin(stream: &'a Stream) -> Result<Self> {
        // Relaxed: kernels are loaded at their first use, which other modes forbid during a capture.
        let mode = sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) })?;
        let capture = stream.capture();
        let id = capture.as_ref().map_or(0, |capture| capture.1);
        let context = stream.context();
        let outer = context.captures.open(context, id);
        // From here on an error ends the capture.
        let session = Self { stream, id, outer, ended: false };
        capture?;
        Ok(session)
    }

    fn end(mut self) -> Result<(Captured, Vec<Arc<Block>>)> {
        let (result, blocks) = self.finish();
        match result {
            Ok(captured) => Ok((captured, blocks)),
            Err(error) => {
                blocks.into_iter().for_each(capture::release);
                Err(error)
            }
        }
    }

    fn finish(&mut self) -> (Result<Captured>, Vec<Arc<Block>>) {
        self.ended = true;
        let context = self.stream.context();
        let mut graph = ptr::null_mut();
        let result = context.make_current().and_then(|()| {
            // SAFETY: the stream is alive, `graph` a valid place for the result.
            let code = unsafe { sys::cuStreamEndCapture(self.stream.raw(), &mut graph) };
            let captured = Captured(graph);
            check("cuStreamEndCapture", code).map(|()| captured)
        });
        (result, context.captures.close(self.id, self.outer))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (captured, blocks) = self.finish();
            drop(captured);
            blocks.into_iter().for_each(capture::release);
        }
    }
}

/// A graph as captured; null if the capture was lost.
struct Captured(sys::CUgraph);

impl Captured {
    /// The launchable graph, and the number of its nodes.
    fn instantiate(self) -> Result<(Handle, usize)> {
        let mut nodes = 0;
        // SAFETY: the graph is alive; without a list, only the number of nodes is written.
        let code = unsafe { sys::cuGraphGetNodes(self.0, ptr::null_mut(), &mut nodes) };
        check("cuGraphGetNodes", code)?;
        let _relaxed = Relaxed::enter();
        let mut exec = ptr::null_mut();
        // SAFETY: the graph is alive, `exec` a valid place for the result.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, self.0, 0) };
        check("cuGraphInstantiate", code)?;
        Ok((Handle(exec), nodes))
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: nobody else has the graph; what was instantiated from it stays.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}
