//! Where tensors live and operations run.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use simt::Checks;

use crate::cuda::{self, DeviceInfo, ModuleLoad};
use crate::error::{Error, Result};
use crate::faults::{self, GpuSlots};
use crate::stream::Stream;

const NO_STREAMS: &str = "the CPU device has no streams";

/// A GPU with the stream that operations go to, or the CPU, where kernels run under the checker.
///
/// A cheap value: clone it and pass it around.
#[derive(Clone)]
pub struct Device(Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    /// In an order of threads that belongs to the seed.
    Cpu(Checks, u64),
    Cuda(Arc<Gpu>, Stream),
}

/// What the process shares for one GPU.
pub(crate) struct Gpu {
    pub context: Arc<cuda::Context>,
    pub slots: GpuSlots,
    /// Where kernels are measured, made at its first use; one thread at a time, so that none disturbs another.
    pub measuring: Mutex<Option<Stream>>,
}

impl Gpu {
    fn open(ordinal: usize) -> Result<Arc<Gpu>> {
        static OPEN: Mutex<BTreeMap<usize, Arc<Gpu>>> = Mutex::new(BTreeMap::new());

        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = open.get(&ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Arc::new(Gpu {
            context: cuda::Context::open(ordinal)?,
            slots: GpuSlots::default(),
            measuring: Mutex::default(),
        });
        open.insert(ordinal, gpu.clone());
        Ok(gpu)
    }
}

impl Device {
    /// The CPU: kernels run under the checker with every check on. For tests, not for speed.
    pub fn cpu() -> Device {
        Device::cpu_with(Checks::Full)
    }

    /// The CPU with fewer checks, which is faster.
    pub fn cpu_with(checks: Checks) -> Device {
        Device(Kind::Cpu(checks, 0))
    }

    /// The CPU with every check on, and another order of threads than the usual one, 0: each other seed keeps some blocks and warps back until all
    /// others wait for them, so that tests find what may run ahead of them by too much.
    pub fn cpu_in_order(seed: u64) -> Device {
        Device(Kind::Cpu(Checks::Full, seed))
    }

    /// GPU number `ordinal`, on Warpwright's own stream.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        let gpu = Gpu::open(ordinal)?;
        let stream = Stream::new(gpu.context.default_stream().clone());
        Ok(Device(Kind::Cuda(gpu, stream)))
    }

    /// The first GPU if it opens, else the CPU.
    pub fn best() -> Device {
        Device::cuda(0).unwrap_or_else(|_| Device::cpu())
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }

    /// Whether this is a GPU.
    pub fn is_cuda(&self) -> bool {
        matches!(self.0, Kind::Cuda(..))
    }

    /// The GPU's number; 0 for the CPU.
    pub fn ordinal(&self) -> usize {
        self.info().map_or(0, |info| info.ordinal)
    }

    /// The GPU's name, or "CPU (checker)".
    pub fn name(&self) -> &str {
        self.info().map_or("CPU (checker)", |info| &info.name)
    }

    /// Whether kernels of thread-block clusters run on it: those of Hopper, and the CPU, which runs what the newest GPU
    /// would.
    pub(crate) fn has_clusters(&self) -> bool {
        self.info().is_none_or(|info| info.arch == (9, 0))
    }

    /// What the driver tells about the GPU.
    pub fn info(&self) -> Option<&DeviceInfo> {
        match &self.0 {
            Kind::Cpu(..) => None,
            Kind::Cuda(gpu, _) => Some(gpu.context.info()),
        }
    }

    /// The kernel families that the driver has loaded for this GPU so far, in order; none on the CPU.
    pub fn module_loads(&self) -> Vec<ModuleLoad> {
        match &self.0 {
            Kind::Cpu(..) => Vec::new(),
            Kind::Cuda(gpu, _) => gpu.context.module_loads(),
        }
    }

    /// Whether both are the same CPU or GPU; their streams may differ.
    pub fn same_device(&self, other: &Device) -> bool {
        self.is_cuda() == other.is_cuda() && self.ordinal() == other.ordinal()
    }

    /// Whether work given to both runs in order: the same device, and the same stream.
    pub fn same_stream(&self, other: &Device) -> bool {
        match (&self.0, &other.0) {
            (Kind::Cpu(..), Kind::Cpu(..)) => true,
            (Kind::Cuda(a, s), Kind::Cuda(b, t)) => Arc::ptr_eq(a, b) && s.raw() == t.raw(),
            _ => false,
        }
    }

    /// Waits for the work given to this device's stream, and reports values that its kernels found to be
    /// out of range.
    pub fn synchronize(&self) -> Result<()> {
        if let Kind::Cuda(_, stream) = &self.0 {
            stream.synchronize()?;
        }
        self.check_values()
    }

    /// A new stream of this GPU, which waits for no other.
    pub fn new_stream(&self) -> Result<Stream> {
        match &self.0 {
            Kind::Cpu(..) => Err(Error::State { op: "Device::new_stream", reason: NO_STREAMS }),
            Kind::Cuda(gpu, _) => gpu.context.new_stream().map(Stream::new),
        }
    }

    /// The stream that operations go to; `None` on the CPU.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.0 {
            Kind::Cpu(..) => None,
            Kind::Cuda(_, stream) => Some(stream),
        }
    }

    /// This device with another of its streams. Tensors made on it belong to that stream; see
    /// [`Tensor::on`](crate::Tensor::on) for the others.
    pub fn on_stream(&self, stream: &Stream) -> Result<Device> {
        let op = "Device::on_stream";
        match &self.0 {
            Kind::Cpu(..) => Err(Error::State { op, reason: NO_STREAMS }),
            Kind::Cuda(gpu, _) => {
                let ordinal = stream.raw_arc().context().info().ordinal;
                if ordinal != self.ordinal() {
                    let (required, got) = (self.to_string(), format!("cuda:{ordinal}"));
                    return Err(Error::DeviceMismatch { op, arg: "stream", required, got });
                }
                Ok(Device(Kind::Cuda(gpu.clone(), stream.clone())))
            }
        }
    }

    /// This device with an embedder's stream, a `CUstream`; null is the legacy default stream.
    ///
    /// # Safety
    /// `stream` belongs to this device's primary context, and the embedder keeps it until the result and all
    /// tensors made on it or rebound to it are dropped, and graphs that were captured there, and
    /// [`Device::end_foreign_stream`] was called after the last operation on it: until then other tensors that operations there have read refer to it, too. Kernels that the
    /// embedder launches there as programmatic dependents wait for what is ahead of them.
    pub unsafe fn on_foreign_stream(&self, stream: *mut c_void) -> Result<Device> {
        match &self.0 {
            Kind::Cpu(..) => Err(Error::State { op: "Device::on_foreign_stream", reason: NO_STREAMS }),
            Kind::Cuda(gpu, _) => {
                // SAFETY: the caller's contract.
                let stream = unsafe { gpu.context.foreign_stream(stream) };
                Ok(Device(Kind::Cuda(gpu.clone(), Stream::new(stream))))
            }
        }
    }

    /// Waits for the work given to this device's stream, an embedder's, reports as [`Device::synchronize`], and lets go of the stream:
    /// tensors of other streams that were read there do not refer to it any more. Nothing is to be given to it from now on.
    pub fn end_foreign_stream(&self) -> Result<()> {
        let waited = self.synchronize();
        match (&self.0, &waited) {
            // It is being captured, and goes on.
            (_, Err(Error::State { .. })) | (Kind::Cpu(..), _) => {}
            (Kind::Cuda(_, stream), _) => stream.raw_arc().end(),
        }
        waited
    }

    /// Makes later work of this device's stream wait for the work given to `other`'s so far.
    pub(crate) fn wait_for(&self, other: &Device, op: &'static str) -> Result<()> {
        let (Kind::Cuda(gpu, here), Kind::Cuda(_, there)) = (&self.0, &other.0) else { return Ok(()) };
        if here.raw() == there.raw() {
            return Ok(());
        }
        match (here.is_capturing()?, there.is_capturing()?) {
            // A capture cannot wait for work outside of it.
            (true, false) => {
                there.synchronize()?;
                gpu.slots.follow(there, here, || Ok(()))
            }
            (false, true) => {
                let reason = "the tensor's stream is being captured: it has no values yet";
                Err(Error::State { op, reason })
            }
            _ => gpu.slots.follow(there, here, || here.wait(&there.record()?)),
        }
    }

    /// Refuses what needs results while the stream is being captured.
    pub(crate) fn refuse_capture(&self, op: &'static str) -> Result<()> {
        match &self.0 {
            Kind::Cuda(_, stream) if stream.is_capturing()? => {
                Err(Error::State { op, reason: "the stream is being captured: there are no values yet" })
            }
            _ => Ok(()),
        }
    }

    /// Reports the first value that steers memory access and that a kernel of this device's stream found
    /// to be out of range, once. Waits for the stream if there is something to check, else costs nothing.
    pub fn check_values(&self) -> Result<()> {
        faults::check(self)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Cpu(..) => f.write_str("cpu"),
            Kind::Cuda(..) => write!(f, "cuda:{}", self.ordinal()),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Opens "cpu", "cuda" or "cuda:N".
    fn from_str(text: &str) -> Result<Device> {
        let digits = match text {
            "cpu" => return Ok(Device::cpu()),
            "cuda" => Some("0"),
            _ => text.strip_prefix("cuda:").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())),
        };
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(ordinal) => Device::cuda(ordinal),
            None => {
                let (required, got) = ("`cpu`, `cuda` or `cuda:N`".into(), format!("`{text}`"));
                Err(Error::Parameter { op: "Device", arg: "device", required, got })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        assert_eq!("cpu".parse::<Device>().unwrap().to_string(), "cpu");
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:99999999999999999999999", "CPU"] {
            let error = bad.parse::<Device>().unwrap_err();
            let want = format!("Device: `device` must be `cpu`, `cuda` or `cuda:N`, got `{bad}`");
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_an_error() {
        let error = "cuda:4095".parse::<Device>().unwrap_err();
        assert!(matches!(error, Error::NoDriver { .. } | Error::NoDevice { ordinal: 4095, .. }), "{error}");
    }

    #[test]
    fn the_cpu_has_no_streams() {
        let cpu = Device::cpu();
        assert!(!cpu.is_cuda() && cpu.stream().is_none() && cpu.info().is_none());
        let error = cpu.new_stream().unwrap_err();
        assert_eq!(error.to_string(), "Device::new_stream: the CPU device has no streams");
        assert!(cpu.synchronize().is_ok());
        assert!(cpu.same_device(&Device::cpu_with(Checks::None)));
    }
}
