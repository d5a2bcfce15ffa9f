//! Choices that are measured instead of modelled: once for a problem on a GPU, and kept on disk.
//!
//! Off, unless [`enable`] or `WARPWRIGHT_AUTOTUNE=1` asks for it. Then a [product](crate::ops::matmul()) or a
//! [permutation](crate::ops::permute()) that a GPU has not seen yet first tries the likeliest few of its kernels, on the operands
//! that it was called with, and remembers which took least; that takes milliseconds, and may compile kernels. Whoever comes
//! later, in this process or another, has what was measured. Nothing is measured on the CPU, nor while a stream is captured: there
//! the model chooses, as far as nothing is known.
//!
//! Operands are as they are in memory, and those of small problems then in the caches. A measured choice may add in another
//! order than the model's: results are the same from run to run as long as the file is.
//!
//! The file is `warpwright/autotune.json` in the folder that the system has for caches, or `autotune.json` in
//! `WARPWRIGHT_CACHE_DIR`. What cannot be read there counts as nothing known; what cannot be written is kept for the process.

mod store;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};

pub(crate) use store::Measured;

use crate::cuda;
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::stream::Stream;
use store::Store;

/// How often all candidates are timed in turn; the least time of each counts.
const ROUNDS: usize = 5;
/// What a candidate is timed for, in microseconds, by as many calls as that takes, of at least and at most so many.
const LONG_ENOUGH: f64 = 400.0;
const LEAST_CALLS: usize = 4;
const MOST_CALLS: usize = 40;
/// What is not faster by this much does not replace the model's choice.
const MARGIN: f64 = 0.96;

static ENABLED: LazyLock<AtomicBool> = LazyLock::new(|| {
    AtomicBool::new(std::env::var_os("WARPWRIGHT_AUTOTUNE").is_some_and(|value| value == "1"))
});
static STORE: LazyLock<Mutex<Store>> = LazyLock::new(|| Mutex::new(Store::open(default_file())));
/// Counts the files that choices were kept in.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Whether choices are measured from now on, in all threads.
pub fn enable(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

/// Whether choices are measured.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Where choices are kept; none where the system has no such folder, or [`keep_in`] said so.
pub fn file() -> Option<PathBuf> {
    store().path().map(PathBuf::from)
}

/// Keeps choices in another file from now on, or for this process alone, and forgets those of the last.
pub fn keep_in(file: Option<PathBuf>) {
    *store() = Store::open(file);
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

fn default_file() -> Option<PathBuf> {
    let own = std::env::var_os("WARPWRIGHT_CACHE_DIR").filter(|folder| !folder.is_empty());
    let folder = own.map(PathBuf::from).or_else(|| Some(dirs::cache_dir()?.join("warpwright")))?;
    Some(folder.join("autotune.json"))
}

/// What is kept is whole after a panic, too.
fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a choice in memory depends on beside the problem: the file's number, and the GPU's.
pub(crate) type Place = (u64, usize);

/// The place of choices for this device now.
pub(crate) fn place(device: &Device) -> Place {
    (GENERATION.load(Ordering::Relaxed), device.ordinal())
}

/// What choices depend on beside the problem: the GPU, its driver, and the kernels.
fn machine(device: &Device) -> Option<String> {
    let info = device.info()?;
    let ((major, minor), driver) = (info.arch, cuda::driver_version().ok()?);
    // The version, and a hash of all kernels: those that are new have not been measured.
    let kernels = concat!(env!("CARGO_PKG_VERSION"), " ", env!("WARPWRIGHT_KERNELS"));
    Some(format!("{}, sm_{major}{minor}, driver {}.{}, kernels {kernels}", info.name, driver.0, driver.1))
}

/// What was measured for a problem on this device's GPU, where choices are measured.
pub(crate) fn known(device: &Device, problem: &str) -> Option<Measured> {
    if !is_enabled() {
        return None;
    }
    let machine = machine(device)?;
    store().get(&machine, problem)
}

/// The fastest of the candidates, of which the first is the model's: by what is known, else by running each, which may be done any
/// number of times. Nothing where it cannot be measured now.
///
/// `on` gives what runs a candidate on another stream of the device, which waits for this one: operands are to be
/// [adopted](crate::Tensor::on) by it first, since no capture can.
pub(crate) fn fastest<P, R: Fn(&P) -> Result<()>>(
    device: &Device,
    problem: &str,
    candidates: Vec<P>,
    name: impl Fn(&P) -> String,
    on: impl FnOnce(&Device) -> Result<R>,
) -> Result<Option<P>> {
    let Some(machine) = machine(device) else { return Ok(None) };
    let known = store().get(&machine, problem);
    let position = known.and_then(|known| candidates.iter().position(|plan| name(plan) == known.choice));
    let at = match position {
        Some(at) => at,
        None => {
            let Some((at, microseconds)) = measure(device, &candidates, on)? else { return Ok(None) };
            store().keep(&machine, problem, Measured { choice: name(&candidates[at]), microseconds });
            at
        }
    };
    Ok(candidates.into_iter().nth(at))
}

/// The candidate that takes least, and its microseconds; nothing where the stream is captured, something else is being measured, or the
/// model's choice cannot be timed. Another that fails is out of the question.
fn measure<P, R: Fn(&P) -> Result<()>>(
    device: &Device,
    candidates: &[P],
    on: impl FnOnce(&Device) -> Result<R>,
) -> Result<Option<(usize, f64)>> {
    let Kind::Cuda(gpu, stream) = device.kind() else { return Ok(None) };
    if stream.is_capturing()? || candidates.is_empty() {
        return Ok(None);
    }
    // A stream that nobody else has: what other threads give to the device's is not captured, and the legacy default stream, which
    // cannot be captured, is measured as others are. While something is measured, be it what this is a part of, nothing else is.
    let mut measuring = match gpu.measuring.try_lock() {
        Ok(measuring) => measuring,
        Err(TryLockError::Poisoned(left)) => left.into_inner(),
        Err(TryLockError::WouldBlock) => return Ok(None),
    };
    let stream = match &*measuring {
        Some(stream) => stream.clone(),
        None => measuring.insert(device.new_stream()?).clone(),
    };
    let apart = &device.on_stream(&stream)?;
    let run = on(apart)?;
    // Values that kernels ahead found to be out of range are an error of theirs, not of a candidate.
    apart.check_values()?;
    let least = least_times(apart, &stream, candidates, run);
    device.wait_for(apart, "autotune")?;
    let least = least?;
    let best = (0..candidates.len()).min_by(|&a, &b| least[a].total_cmp(&least[b])).unwrap_or(0);
    let at = if least[best] < MARGIN * least[0] { best } else { 0 };
    Ok(least[0].is_finite().then_some((at, least[at])))
}

/// The least microseconds that each candidate took on a stream of a device; infinite for one that failed, if it is not the first or there is no memory for it.
fn least_times<P>(
    device: &Device,
    stream: &Stream,
    candidates: &[P],
    run: impl Fn(&P) -> Result<()>,
) -> Result<Vec<f64>> {
    let time = |work: &dyn Fn() -> Result<()>| -> Result<f64> {
        let begin = stream.record()?;
        work()?;
        let end = stream.record()?;
        end.synchronize()?;
        Ok(f64::from(end.elapsed_ms_since(&begin)?) * 1e3)
    };
    // Replays of a graph: what the host takes for a launch would hide what small kernels take.
    let prepared = |plan: &P| -> Result<(Graph, usize)> {
        let once = time(&|| run(plan))?;
        let calls = ((LONG_ENOUGH / once.max(1.0)) as usize).clamp(LEAST_CALLS, MOST_CALLS);
        let (graph, ()) = Graph::capture(device, |_| (0..calls).try_for_each(|_| run(plan)))?;
        graph.launch()?;
        Ok((graph, calls))
    };
    let mut graphs = Vec::new();
    for (i, plan) in candidates.iter().enumerate() {
        // Loads the kernel.
        match run(plan) {
            // Unmeasured there may be another way.
            Err(Error::OutOfMemory { .. } | Error::TooLarge { .. }) => graphs.push(None),
            Err(error) if i == 0 => return Err(error),
            Err(_) => graphs.push(None),
            Ok(()) => graphs.push(prepared(plan).ok()),
        }
    }
    let mut least = vec![f64::INFINITY; candidates.len()];
    for _ in 0..ROUNDS {
        for (least, prepared) in least.iter_mut().zip(&graphs) {
            if let Some((graph, calls)) = prepared {
                *least = least.min(time(&|| graph.launch())? / *calls as f64);
            }
        }
    }
    Ok(least)
}
