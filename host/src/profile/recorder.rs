//! The recording of a thread: what `Device::launch` and ranges report to.

use std::cell::RefCell;
use std::time::Instant;

use super::{Launch, Profile, Range, Span, nvtx};
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use crate::families;
use crate::launch::{Call, Grid};
use crate::stream::Event;

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

struct Recorder {
    device: Device,
    begun: Instant,
    launches: Vec<(Launch, Option<Marks>)>,
    ranges: Vec<Range>,
    /// The innermost range that is open.
    open: Option<usize>,
}

/// The events around a kernel.
struct Marks {
    before: Event,
    behind: Event,
}

impl Recorder {
    /// The time since a moment of the recording.
    fn since(&self, start: Instant) -> Span {
        Span { start: start - self.begun, length: start.elapsed() }
    }
}

fn with<R>(act: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
    RECORDER.with_borrow_mut(|recorder| recorder.as_mut().map(act))
}

/// Ends the recording, also where the work panics.
struct Recording;

impl Recording {
    fn begin(device: &Device, begun: Instant) -> Recording {
        let (launches, ranges) = (Vec::new(), Vec::new());
        let recorder = Recorder { device: device.clone(), begun, launches, ranges, open: None };
        RECORDER.set(Some(recorder));
        Recording
    }

    fn end(self) -> Option<Recorder> {
        RECORDER.take()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.set(None);
    }
}

/// [`super::record`].
pub fn record<R>(device: &Device, work: impl FnOnce() -> Result<R>) -> Result<(Profile, R)> {
    if is_recording() {
        let reason = "this thread is recording already";
        return Err(Error::State { op: "profile::record", reason });
    }
    device.synchronize()?;
    // The GPU reaches the event right away, so both clocks begin here.
    let begun = Instant::now();
    let base = device.stream().map(|stream| stream.record()).transpose()?;
    let recording = Recording::begin(device, begun);
    let result = work()?;
    device.synchronize()?;
    let elapsed = begun.elapsed();
    let Some(recorder) = recording.end() else {
        return Err(Error::State { op: "profile::record", reason: "the recording was ended within itself" });
    };
    let timed = recorder.launches.into_iter().map(|(launch, marks)| match (&base, marks) {
        (Some(base), Some(marks)) => Ok(Launch { run: Some(marks.span(base)?), ..launch }),
        _ => Ok(launch),
    });
    let launches = timed.collect::<Result<_>>()?;
    Ok((Profile { device: device.to_string(), launches, ranges: recorder.ranges, elapsed }, result))
}

impl Marks {
    /// When the GPU came from one event to the other.
    fn span(&self, base: &Event) -> Result<Span> {
        // Other streams than the device's own were not waited for.
        self.behind.synchronize()?;
        let after = |event: &Event, earlier: &Event| {
            let ms = event.elapsed_ms_since(earlier)?;
            Ok(std::time::Duration::from_secs_f64(f64::from(ms).max(0.0) / 1e3))
        };
        Ok(Span { start: after(&self.before, base)?, length: after(&self.behind, &self.before)? })
    }
}

/// Whether this thread records.
#[inline]
pub fn is_recording() -> bool {
    RECORDER.with_borrow(|recorder| recorder.is_some())
}

/// Launches, and records the launch if it is on the recording's device and succeeds.
#[cold]
pub fn recorded(
    device: &Device,
    call: &dyn Call,
    grid: Grid,
    launch: impl FnOnce(Grid) -> Result<()>,
) -> Result<()> {
    let entry = call.entry();
    if with(|recorder| recorder.device.same_device(device)) != Some(true) {
        return launch(grid);
    }
    let before = match device.kind() {
        Kind::Cuda(gpu, stream) if !stream.is_capturing()? => {
            // The first launch loads the kernel, which is not to stand between the events.
            gpu.context.function(families::find(entry)?, entry.name)?;
            Some(stream.record()?)
        }
        _ => None,
    };
    let start = Instant::now();
    // What starts early has no time of its own.
    launch(if before.is_some() { grid.early_if(false) } else { grid })?;
    let span = with(|recorder| recorder.since(start)).unwrap_or_default();
    let behind = match (&before, device.stream()) {
        (Some(_), Some(stream)) => Some(stream.record()?),
        _ => None,
    };
    let marks = before.zip(behind).map(|(before, behind)| Marks { before, behind });
    with(|recorder| {
        let launch = Launch {
            kernel: entry.name,
            family: entry.family,
            grid: grid.blocks,
            threads: entry.bounds.threads,
            shared_bytes: grid.shared_bytes,
            cluster: grid.cluster.unwrap_or(1),
            bytes: call.operand_bytes(),
            stream: device.stream().map_or(0, |stream| stream.raw().addr()),
            range: recorder.open,
            call: span,
            run: if device.is_cuda() { None } else { Some(span) },
        };
        recorder.launches.push((launch, marks));
    });
    Ok(())
}

/// Gives a piece of work a name: in the recording of this thread, if there is one, and for NVIDIA's tools by NVTX, if
/// its library is installed. Ranges nest.
pub fn range<R>(name: &str, work: impl FnOnce() -> R) -> R {
    let _open = OpenRange::new(name);
    work()
}

/// A range whose end has not come. It comes with a panic too.
struct OpenRange {
    /// Its place among the recording's ranges, and when it began.
    recorded: Option<(usize, Instant)>,
    _nvtx: nvtx::Pushed,
}

impl OpenRange {
    fn new(name: &str) -> OpenRange {
        let start = Instant::now();
        let recorded = with(|recorder| {
            let at = recorder.ranges.len();
            let span = recorder.since(start);
            recorder.ranges.push(Range { name: name.to_owned(), parent: recorder.open, span });
            recorder.open = Some(at);
            (at, start)
        });
        OpenRange { recorded, _nvtx: nvtx::push(name) }
    }
}

impl Drop for OpenRange {
    fn drop(&mut self) {
        let Some((at, start)) = self.recorded else { return };
        with(|recorder| {
            // Of a recording that ended within the range and another that began there, the second does not have it.
            if recorder.begun <= start
                && let Some(range) = recorder.ranges.get_mut(at)
            {
                range.span.length = start.elapsed();
                recorder.open = range.parent;
            }
        });
    }
}
