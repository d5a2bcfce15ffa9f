//! What the kernels of a piece of work cost: every launch with its shape, the time of the call and the time on
//! the device.
//!
//! ```
//! use warpwright::{Device, Tensor, ops, profile};
//!
//! let device = Device::cpu(); // or Device::cuda(0)?
//! let x = Tensor::from_slice(&device, &[1000], &[1.0f32; 1000])?;
//! let (profile, y) = profile::record(&device, || {
//!     profile::range("residual", || ops::add(&x, &x))
//! })?;
//! assert_eq!(y.to_vec::<f32>()?[0], 2.0);
//! let add = &profile.kernels()[0];
//! assert!(add.kernel.starts_with("pointwise_add") && add.calls == 1);
//! assert_eq!(profile.ranges()[0].name, "residual");
//! let json = profile.trace(); // as a file, for chrome://tracing or https://ui.perfetto.dev
//! # assert!(json.starts_with("{"));
//! # Ok::<(), warpwright::Error>(())
//! ```
//!
//! Recorded are the launches that the recording thread makes on the device, whatever their stream. On a GPU each
//! stands between two events, so its time comes out some microseconds too long (3 to 6 on an H200), and more where the GPU has
//! to wait for the host between event and kernel: give the stream something to do first, as `warpwright profile` does. Launches into a graph that is being captured have no time on the device, and replays of a
//! graph are no launches. Copies and fills are not recorded. While nothing is recorded, a launch looks at one flag of its
//! thread.

mod nvtx;
mod recorder;
mod trace;

use std::time::Duration;

use crate::device::Device;
use crate::error::Result;

pub use recorder::range;
pub(crate) use recorder::{is_recording, recorded};

/// Runs `work` and records the launches that it makes on `device` from this thread. Waits for the device before and
/// afterwards.
///
/// # Errors
/// Those of `work`, and of [`Device::synchronize`]; [`State`](crate::Error::State) where this thread is recording
/// already.
pub fn record<R>(device: &Device, work: impl FnOnce() -> Result<R>) -> Result<(Profile, R)> {
    recorder::record(device, work)
}

/// A stretch of time, which begins so long after the recording did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// From the beginning of the recording. The clocks of the host and a GPU agree to some ten microseconds.
    pub start: Duration,
    /// How long it takes.
    pub length: Duration,
}

/// A kernel that was launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name, that of its entry in the PTX.
    pub kernel: &'static str,
    /// The PTX family that holds it.
    pub family: &'static str,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster; 1 for no clusters.
    pub cluster: u32,
    /// Bytes of the memory that the arguments point to: what the kernel moves if it touches all of it once.
    pub bytes: u64,
    /// The stream's handle; 0 on the CPU.
    pub stream: usize,
    /// The innermost range that it was launched in, by its place in [`Profile::ranges`].
    pub range: Option<usize>,
    /// The call, on the host.
    pub call: Span,
    /// The kernel, on the device; on the CPU the same as the call. None for a launch into a graph.
    pub run: Option<Span>,
}

/// A named piece of the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// The range around it, by its place in [`Profile::ranges`].
    pub parent: Option<usize>,
    /// When, on the host.
    pub span: Span,
}

/// All launches of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTotal {
    /// The kernel's name.
    pub kernel: &'static str,
    /// How often it was launched.
    pub calls: usize,
    /// The time of the calls, on the host.
    pub call: Duration,
    /// The time on the device, of those launches that have one.
    pub run: Duration,
    /// The sum of [`Launch::bytes`].
    pub bytes: u64,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Profile {
    device: String,
    launches: Vec<Launch>,
    ranges: Vec<Range>,
    elapsed: Duration,
}

impl Profile {
    /// The launches, in their order.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// The ranges, in the order in which they began.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// From the beginning to the end, the wait for the device included.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The kernels with their totals, that with the most time on the device first.
    pub fn kernels(&self) -> Vec<KernelTotal> {
        let mut totals: Vec<KernelTotal> = Vec::new();
        for launch in &self.launches {
            let known = totals.iter().position(|total| total.kernel == launch.kernel);
            let at = known.unwrap_or_else(|| {
                let (call, run) = (Duration::ZERO, Duration::ZERO);
                totals.push(KernelTotal { kernel: launch.kernel, calls: 0, call, run, bytes: 0 });
                totals.len() - 1
            });
            let total = &mut totals[at];
            total.calls += 1;
            total.call += launch.call.length;
            total.run += launch.run.map_or(Duration::ZERO, |run| run.length);
            total.bytes += launch.bytes;
        }
        totals.sort_by_key(|total| std::cmp::Reverse(total.run));
        totals
    }

    /// The recording as a trace in Chrome's format (JSON), which chrome://tracing and Perfetto show: ranges and calls
    /// of the host, kernels of each stream of the device, and arrows from calls to kernels.
    pub fn trace(&self) -> String {
        trace::json(self).to_string()
    }
}

#[cfg(test)]
mod tests;
