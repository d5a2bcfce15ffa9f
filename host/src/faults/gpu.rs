//! The words of a GPU: handed out to operations, and taken back when a read-back or synchronisation of the
//! operation's stream looks at them.
//!
//! An error is reported to the stream of its operation, and to streams that took over a tensor of that
//! stream in between, whichever waits first.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_std::global::RawView;

use super::{Check, NONE, WORD};
use crate::cuda;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Words that are allocated at once.
const CHUNK: usize = 4096;
/// A stream that has this many pending is looked at when words run out, before more are allocated.
const MANY: usize = CHUNK / 4;

/// The words of a GPU, made at their first use.
#[derive(Default)]
pub(crate) struct GpuSlots(Mutex<Words>);

#[derive(Default)]
struct Words {
    chunks: Vec<Arc<Chunk>>,
    /// Those that nobody has; each of them holds `NONE`.
    free: Vec<usize>,
    /// In the order of the operations.
    pending: Vec<Pending>,
    graphs: Vec<GraphWords>,
    next_graph: u64,
}

struct Chunk {
    memory: cuda::DeviceBuffer,
    /// Of its own, so that no capture is in the way.
    stream: Arc<cuda::Stream>,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    index: usize,
    check: Check,
}

struct Pending {
    word: Word,
    /// The operation's stream, then those that wait for it.
    streams: Vec<Stream>,
}

/// The words that a captured graph writes at each of its launches.
struct GraphWords {
    id: u64,
    words: Vec<Word>,
    /// The graph's stream, then those that wait for its latest launch.
    streams: Vec<Stream>,
    /// Not looked at since the latest launch.
    launched: bool,
    /// How many threads look at them now.
    lookers: usize,
    dropped: bool,
}

thread_local! {
    /// The words of the capture whose closure this thread is in.
    static CAPTURED: RefCell<Option<Vec<Word>>> = const { RefCell::new(None) };
}

/// Runs the closure of a capture and gives the words that its operations took.
pub(crate) fn capture<T>(f: impl FnOnce() -> T) -> (T, CapturedWords) {
    struct Restore(Option<Vec<Word>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CAPTURED.replace(self.0.take());
        }
    }
    let outer = Restore(CAPTURED.replace(Some(Vec::new())));
    let result = f();
    let words = CAPTURED.take().unwrap_or_default();
    drop(outer);
    (result, CapturedWords(words))
}

/// Words to be given to [`GpuSlots::adopt`] or [`GpuSlots::abandon`].
pub(crate) struct CapturedWords(Vec<Word>);

/// A graph's claim on its words.
pub(crate) struct GraphSlots(Option<u64>);

/// A word that an operation holds while it gives work to its stream.
pub(crate) struct Reserved {
    word: Word,
    /// It belongs to a graph.
    captured: bool,
    address: u64,
}

impl Reserved {
    pub fn view(&self) -> RawView {
        RawView::device(self.address, WORD)
    }
}

impl GpuSlots {
    fn lock(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A word for an operation on `stream`, to be given to [`GpuSlots::submit`].
    pub fn reserve(&self, context: &Arc<cuda::Context>, stream: &Stream, check: Check) -> Result<Reserved> {
        let captured = stream.is_capturing()?;
        if captured && CAPTURED.with_borrow(Option::is_none) {
            let reason = "somebody else captures the stream, so values cannot be checked";
            return Err(Error::State { op: check.op, reason });
        }
        let mut words = self.lock();
        if words.free.is_empty() && !captured && words.pending_for(stream) >= MANY {
            drop(words);
            self.check(stream)?;
            words = self.lock();
        }
        if words.free.is_empty() {
            words.grow(context)?;
        }
        // Never empty now; the other case costs nothing to write down.
        let Some(index) = words.free.pop() else {
            return Err(Error::State { op: check.op, reason: "there are no words for checked values" });
        };
        let word = Word { index, check };
        if captured {
            CAPTURED.with_borrow_mut(|words| words.iter_mut().for_each(|words| words.push(word)));
        }
        let address = words.chunks[index / CHUNK].memory.ptr() + (index % CHUNK * WORD) as u64;
        Ok(Reserved { word, captured, address })
    }

    /// The work that may write a reserved word was given to `stream`.
    pub fn submit(&self, reserved: &Reserved, stream: &Stream) {
        if !reserved.captured {
            self.lock().pending.push(Pending { word: reserved.word, streams: vec![stream.clone()] });
        }
    }

    /// `wait` makes `to` wait for the work of `from`, and so for its words.
    pub fn follow(&self, from: &Stream, to: &Stream, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        // Under the lock: no graph is launched in between, whose words `to` would not wait for.
        let words = &mut *self.lock();
        wait()?;
        let of_graphs =
            words.graphs.iter_mut().filter(|graph| graph.launched).map(|graph| &mut graph.streams);
        let of_operations = words.pending.iter_mut().map(|pending| &mut pending.streams);
        for streams in of_operations.chain(of_graphs) {
            if has(streams, from) && !has(streams, to) {
                streams.push(to.clone());
            }
        }
        Ok(())
    }

    /// Waits for the work of `stream` that has pending words, and reports the first bad value.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        let mut words = self.lock();
        let (done, waiting) = words.pending.drain(..).partition::<Vec<_>, _>(|p| p.is_for(stream));
        words.pending = waiting;
        let (mut of_graphs, mut graphs) = (Vec::new(), Vec::new());
        for graph in words.graphs.iter_mut().filter(|graph| graph.launched && graph.is_for(stream)) {
            graph.launched = false;
            graph.lookers += 1;
            of_graphs.extend(graph.words.iter().copied());
            graphs.push(graph.id);
        }
        if done.is_empty() && graphs.is_empty() {
            return Ok(());
        }
        let chunks = words.chunks.clone();
        drop(words);

        // Without the lock: other streams go on meanwhile.
        let all = of_graphs.iter().chain(done.iter().map(|pending| &pending.word));
        let seen = look(stream, &chunks, all);

        let mut words = self.lock();
        for graph in words.graphs.iter_mut().filter(|graph| graphs.contains(&graph.id)) {
            graph.lookers -= 1;
            graph.launched |= seen.is_err();
        }
        match seen {
            Ok(_) => words.free.extend(done.iter().map(|pending| pending.word.index)),
            // As it was.
            Err(_) => words.pending.splice(..0, done).for_each(drop),
        }
        words.free_dropped();
        seen.flatten()
    }

    /// Keeps captured words for the launches of a graph on `stream`.
    pub fn adopt(&self, captured: CapturedWords, stream: &Stream) -> GraphSlots {
        if captured.0.is_empty() {
            return GraphSlots(None);
        }
        let mut words = self.lock();
        let id = words.next_graph;
        words.next_graph += 1;
        words.graphs.push(GraphWords {
            id,
            words: captured.0,
            streams: vec![stream.clone()],
            launched: false,
            lookers: 0,
            dropped: false,
        });
        GraphSlots(Some(id))
    }

    /// Gives words back that no graph came to use.
    pub fn abandon(&self, captured: CapturedWords) {
        self.lock().free.extend(captured.0.iter().map(|word| word.index));
    }

    /// Launches a graph by `launch`, and notes that its words are to be looked at.
    pub fn launch(&self, slots: &GraphSlots, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(id) = slots.0 else { return launch() };
        // Under the lock: no check comes between.
        let mut words = self.lock();
        launch()?;
        if let Some(graph) = words.graphs.iter_mut().find(|graph| graph.id == id) {
            graph.launched = true;
            graph.streams.truncate(1);
        }
        Ok(())
    }

    /// Notes that a graph is gone: its words are free once they have been looked at.
    pub fn release(&self, slots: &GraphSlots) {
        let Some(id) = slots.0 else { return };
        let mut words = self.lock();
        words.graphs.iter_mut().filter(|graph| graph.id == id).for_each(|graph| graph.dropped = true);
        words.free_dropped();
    }
}

impl Words {
    fn grow(&mut self, context: &Arc<cuda::Context>) -> Result<()> {
        let stream = context.new_stream()?;
        let memory = context.alloc(CHUNK * WORD, &stream)?;
        memory.fill(0, CHUNK * WORD, 0xff, &stream)?;
        stream.synchronize()?;
        let first = self.chunks.len() * CHUNK;
        self.chunks.push(Arc::new(Chunk { memory, stream }));
        self.free.extend((first..first + CHUNK).rev());
        Ok(())
    }

    fn pending_for(&self, stream: &Stream) -> usize {
        self.pending.iter().filter(|pending| pending.is_for(stream)).count()
    }

    /// Takes the words of graphs back that are gone and were looked at.
    fn free_dropped(&mut self) {
        let free = &mut self.free;
        self.graphs.retain(|graph| {
            let gone = graph.dropped && !graph.launched && graph.lookers == 0;
            if gone {
                free.extend(graph.words.iter().map(|word| word.index));
            }
            !gone
        });
    }
}

impl Pending {
    fn is_for(&self, stream: &Stream) -> bool {
        has(&self.streams, stream)
    }
}

impl GraphWords {
    fn is_for(&self, stream: &Stream) -> bool {
        has(&self.streams, stream)
    }
}

fn has(streams: &[Stream], stream: &Stream) -> bool {
    streams.iter().any(|other| other.raw() == stream.raw())
}

/// Waits for `stream`, reads the words and resets the bad ones. The inner result is the first bad value.
fn look<'a>(
    stream: &Stream,
    chunks: &[Arc<Chunk>],
    words: impl Iterator<Item = &'a Word>,
) -> Result<Result<()>> {
    stream.synchronize()?;
    let mut found: Vec<Option<Vec<u8>>> = chunks.iter().map(|_| None).collect();
    let mut first = Ok(());
    for word in words {
        let (chunk, at) = (word.index / CHUNK, word.index % CHUNK * WORD);
        let Chunk { memory, stream } = &*chunks[chunk];
        let bytes = match &mut found[chunk] {
            Some(bytes) => bytes,
            none => {
                let mut bytes = vec![0; CHUNK * WORD];
                memory.download(0, &mut bytes, stream)?;
                none.insert(bytes)
            }
        };
        let mut value = [0; WORD];
        value.copy_from_slice(&bytes[at..at + WORD]);
        let value = u64::from_ne_bytes(value);
        if value != NONE {
            memory.upload(at, &NONE.to_ne_bytes(), stream)?;
        }
        first = first.and_then(|()| word.check.result(value));
    }
    Ok(first)
}

#[cfg(test)]
mod tests;
